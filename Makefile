# Two commands: `make run` serves Whence, `make test` checks everything. Both need Python 3.11+ and nothing else.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
BENCH := .venv-bench
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet

.PHONY: run test setup dev lint schema sync bench clean

run: setup
	@exec $(BIN)/whence serve $(ARGS)

setup: $(VENV)/.run

# A file of tests stays in one process, which has a Postgres of its own.
test: dev lint
	$(BIN)/python -m pytest -n auto --maxprocesses 4 --dist loadfile $(ARGS)

lint: dev
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/pyright
	$(BIN)/lint-imports

bench: $(BENCH)/.bench
	$(BENCH)/bin/python bench/run.py $(ARGS)

# Writes src/whence/db/schema.sql anew, after a migration was added.
schema: dev
	$(BIN)/python tests/make_schema.py

# Writes src/whence/client/synchronous.py anew, after asynchronous.py was changed.
sync: dev
	$(BIN)/python tests/make_sync.py

dev: $(VENV)/.dev

# Wheels only, so that no compiler is needed; the versions are those that were tested.
$(VENV)/.run: pyproject.toml constraints.txt | $(VENV)
	@echo "installing Whence into $(VENV) (once)"
	@$(PIP) install --only-binary :all: -c constraints.txt -e .
	@touch $@

$(VENV)/.dev: pyproject.toml constraints.txt | $(VENV)
	@echo "installing Whence and its development tools into $(VENV) (once)"
	@$(PIP) install --only-binary :all: -c constraints.txt -e '.[dev]'
	@touch $@ $(VENV)/.run

# Apart from the rest, because mem0 refuses the protobuf of constraints.txt; all other versions are the same.
$(BENCH)/.bench: pyproject.toml constraints.txt bench/constraints.txt | $(BENCH)
	@echo "installing Whence and what it is compared with into $(BENCH) (once)"
	@grep -v '^protobuf==' constraints.txt | cat - bench/constraints.txt > $(BENCH)/constraints.txt
	@$(BENCH)/bin/python -m pip --disable-pip-version-check --quiet install --only-binary :all: -c $(BENCH)/constraints.txt -e '.[bench]'
	@touch $@

$(VENV) $(BENCH):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Whence needs Python 3.11 or newer: make run PYTHON=python3.12"; exit 1; }
	@$(PYTHON) -m venv $@

clean:
	rm -rf $(VENV) $(BENCH) .pytest_cache .ruff_cache .hypothesis
