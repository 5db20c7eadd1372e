# Two commands: `make run` serves Whence, `make test` checks everything. Both need Python 3.11+ and nothing else.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet

.PHONY: run test setup dev lint schema bench clean

run: setup
	@exec $(BIN)/whence serve $(ARGS)

setup: $(VENV)/.run

test: dev lint
	$(BIN)/python -m pytest $(ARGS)

lint: dev
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/pyright
	$(BIN)/lint-imports

bench: dev
	$(BIN)/python bench/run.py $(ARGS)

# Writes src/whence/db/schema.sql anew, after a migration was added.
schema: dev
	$(BIN)/python tests/make_schema.py

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

$(VENV):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Whence needs Python 3.11 or newer: make run PYTHON=python3.12"; exit 1; }
	@$(PYTHON) -m venv $(VENV)

clean:
	rm -rf $(VENV) .pytest_cache .ruff_cache .hypothesis
