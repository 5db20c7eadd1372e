"""The documentation, held to the code: what is there must be documented, and what is documented must be there."""

import ast
import importlib
import inspect
import json
import pkgutil
import re
import shlex
import shutil
import socket
import subprocess
import sys
import time
import tomllib
import unicodedata
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, get_args

import httpx
import psycopg
import pytest
import typer.main
from prov.model import ProvDocument
from psycopg import Connection
from psycopg.conninfo import make_conninfo

import whence
from conftest import Server, Workspace, clean_environment, serving
from conftest import whence as run_whence
from model_stand_in import Messages, standing_in
from samples import event, sample
from whence import errors, wire
from whence.app import App
from whence.cli import cli
from whence.crypto import LocalKeyProvider
from whence.db.embedded import SUPERUSER, EmbeddedServer
from whence.errors import WhenceError
from whence.gateway import http
from whence.gateway.graph import ContextRequest
from whence.gateway.openapi import document
from whence.ledger.leaves import Leaf
from whence.recall.scoring import INTENTS, WEIGHTS
from whence.settings import Settings

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md")])
DEFAULT_URL = "http://127.0.0.1:8010"

pages = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


def text_of(name: str) -> str:
    return (DOCS / name).read_text()


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


def prose(text: str) -> str:
    return re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)


def sections(text: str) -> dict[str, str]:
    """What stands under each heading, up to the next one."""
    parts = re.split(r"^#+ (.+)$", prose(text), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def rows(text: str) -> dict[str, list[str]]:
    """The rows of all tables, by their first cell without its backticks."""
    lines = [line for line in text.splitlines() if line.startswith("| `")]
    cells = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]
    return {row[0].strip("`"): row for row in cells}


# Nothing is left undocumented


def test_every_setting_is_documented_with_its_variable_and_default() -> None:
    documented = rows(text_of("reference/settings.md"))
    for name, field in Settings.model_fields.items():
        row = documented[name]
        assert row[1] == f"`WHENCE_{name.upper()}`"
        if isinstance(field.default, str):
            assert row[2] == f"`{field.default}`"
        elif isinstance(field.default, int):
            assert row[2].replace(",", "") == str(field.default)


def commands(command: Any, *path: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    yield path, command
    for name, child in getattr(command, "commands", {}).items():
        yield from commands(child, *path, name)


COMMANDS = dict(commands(typer.main.get_command(cli)))


def options(command: Any) -> set[str]:
    flags = {flag for param in command.params for flag in (*param.opts, *param.secondary_opts)}
    return {flag for flag in flags if flag.startswith("-")} | {"--help"}


def test_every_command_and_option_is_documented() -> None:
    documented = sections(text_of("reference/cli.md"))
    headings = {" ".join(re.findall(r"\b[a-z]+\b", heading)): heading for heading in documented if "`" in heading}
    for path, command in COMMANDS.items():
        if not path:
            continue
        own = documented[headings[" ".join(("whence", *path))]]
        group = documented[headings[" ".join(("whence", *path[:-1]))]] if len(path) > 1 else ""
        said = own + group + documented["Options of every command"]
        for option in options(command):
            assert re.search(rf"`{option}\b", said), f"{option} of {path}"
    assert len(headings) == len(COMMANDS) - 1, "a heading names a command that does not exist"


def error_classes(base: type[WhenceError] = WhenceError) -> Iterator[type[WhenceError]]:
    yield base
    for child in base.__subclasses__():
        yield from error_classes(child)


def test_every_error_code_is_documented_with_its_status(admin: httpx.Client) -> None:
    documented = {code: int(row[1]) for code, row in rows(text_of("reference/errors.md")).items() if len(row) == 4}
    ours = {error.code: error.status for error in error_classes() if error.__module__ == errors.__name__}
    # The web framework's own refusals have no class of ours.
    refusal = admin.delete("/v1/events").json()
    assert documented == ours | {refusal["code"]: refusal["status"]}


def test_every_route_and_parameter_is_documented() -> None:
    documented = sections(text_of("reference/http.md"))
    routes = {
        f"`{method} {re.sub(r':[a-z]+}', '}', path)}`"
        for handler in (*http.ROUTES, http.openapi)
        for method in handler.http_methods
        for path in handler.paths
    }
    assert {heading for heading in documented if heading.startswith("`")} == routes
    for path, operations in document(http.ROUTES)["paths"].items():
        for method, operation in operations.items():
            said = documented[f"`{method.upper()} {path}`"]
            listed = {name for row in rows(said).values() for name in re.findall(r"`(\w+)`", row[0])}
            wanted = {parameter["name"] for parameter in operation.get("parameters", ()) if parameter["in"] == "query"}
            assert wanted <= listed, f"{method} {path}"


def test_every_metric_is_documented(admin: httpx.Client, server: Server) -> None:
    admin.post("/v1/events", json=sample())
    with server.client(None) as anyone:
        exposed = set(re.findall(r"^# TYPE (whence_\w+)", anyone.get("/metrics").text, re.MULTILINE))
    said = text_of("reference/metrics.md")
    assert exposed == set(re.findall(r"`(whence_\w+)`", said))
    for name, row in rows(said).items():
        if name.startswith("whence_"):
            assert name in exposed
            assert row[1] in ("counter", "histogram", "gauge")


def limit_constants() -> Iterator[tuple[str, float]]:
    """Every public upper-case constant of a module whose value is a number or a duration."""
    for module_info in pkgutil.walk_packages(whence.__path__, "whence."):
        if module_info.name.endswith("__main__"):
            continue
        module = importlib.import_module(module_info.name)
        for statement in ast.parse(Path(str(module.__file__)).read_text()).body:
            targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
            for target in targets:
                if isinstance(target, ast.Name) and re.fullmatch(r"[A-Z][A-Z0-9_]*", target.id):
                    value = getattr(module, target.id)
                    seconds = value.total_seconds() if isinstance(value, timedelta) else value
                    if isinstance(seconds, int | float) and not isinstance(seconds, bool):
                        yield f"{module_info.name.removeprefix('whence.')}.{target.id}", seconds


def test_every_limit_is_documented_with_its_value() -> None:
    documented = {
        name: row
        for name, row in rows(text_of("reference/limits.md")).items()
        if re.search(r"\.[A-Z][A-Z0-9_]*$", name)
    }
    constants = dict(limit_constants())
    assert set(documented) == set(constants)
    for name, value in constants.items():
        written = f"{int(value):,}" if value == int(value) else f"{value}"
        assert documented[name][1].split()[0] == written, name


def documented_form(verb: str, method: Any) -> str:
    """As the reference writes it: `?` after what can be left out, `…` for keyword arguments."""
    parameters = list(inspect.signature(method).parameters.values())[1:]
    written = [
        "…" if each.kind is each.VAR_KEYWORD else each.name + ("" if each.default is each.empty else "?")
        for each in parameters
    ]
    return f"{verb}({', '.join(written)})"


def keyword_arguments(method: Any) -> dict[str, bool]:
    """Those that a verb takes by `…`, with whether each is required."""
    for each in inspect.signature(method).parameters.values():
        if each.kind is each.VAR_KEYWORD:
            (fields,) = get_args(each.annotation)
            return {name: name in fields.__required_keys__ for name in fields.__annotations__}
    return {}


def test_every_verb_of_the_clients_is_documented_with_its_arguments() -> None:
    documented = rows(text_of("reference/python.md"))
    verbs = {
        name: method
        for name, method in inspect.getmembers(whence.AsyncWhence, inspect.isfunction)
        if not name.startswith("_")
    }
    forms = {name for name in documented if re.fullmatch(r"[a-z_]+\(.*\)", name)}
    assert forms == {documented_form(verb, method) for verb, method in verbs.items()}
    for verb, method in verbs.items():
        listed = documented[verb][1] if verb in documented else ""
        said = {name: f"**`{name}`**" in listed for name in re.findall(r"`(\w+)`", listed)}
        assert said == keyword_arguments(method), verb
        answer = inspect.signature(method).return_annotation
        named = re.findall(r"\w+", documented[documented_form(verb, method)][1])[-1]
        assert answer in (None, Any) or named in str(answer), verb
    for opening in (whence.AsyncWhence.__init__, whence.AsyncWhence.embedded):
        said = sections(text_of("reference/python.md"))["Opening"]
        names = [name for name in inspect.signature(opening).parameters if name != "self"]
        assert f"({', '.join(names)})`" in said


def test_what_is_sent_again_is_documented() -> None:
    """The verbs whose calls are marked as repeatable, by what stands in the source."""
    said = sections(text_of("reference/python.md"))["Failures"].partition("It is not for")
    source = ast.parse(Path(inspect.getfile(whence.AsyncWhence)).read_text())
    for verb in ast.walk(source):
        if not isinstance(verb, ast.AsyncFunctionDef) or verb.name.startswith("_"):
            continue
        written = ast.unparse(verb)
        makes = re.search(r"\b(post|put|delete)\(", written)
        if makes is None or verb.name == "context":
            continue
        repeatable = makes[1] == "put" or "repeatable=True" in written
        assert f"`{verb.name}`" in said[0 if repeatable else 2], verb.name


def test_every_field_of_an_event_is_documented() -> None:
    said = text_of("reference/events.md")
    for struct in (wire.Event, wire.StoredEvent, wire.Measures, wire.ItemResult, wire.AppendAnswer):
        for name in struct.__struct_fields__:
            assert f"`{name}`" in said or f'"{name}"' in said, f"{struct.__name__}.{name}"
    fields = rows(sections(said)["Fields"])
    assert set(fields) == set(wire.Event.__struct_fields__)
    required = {name for name in fields if fields[name][1] == "yes"}
    assert required == {"event_id", "event_type", "occurred_at", "session_id", "trace_id"}


def test_every_field_of_recall_and_every_weight_is_documented() -> None:
    said = text_of("reference/recall.md")
    told = text_of("reference/memory.md")
    own = set(wire.Hit.__struct_fields__) - set(wire.StoredMemory.__struct_fields__)
    for struct in (wire.Recall, wire.RecallFilters, wire.RecallMeta, wire.HitSource, wire.Turn, wire.Assemble,
                   wire.Assembled, wire.AssembledMeta):  # fmt: skip
        for name in struct.__struct_fields__:
            assert f"`{name}`" in said, f"{struct.__name__}.{name}"
    for name in own:
        assert f"`{name}`" in said, name
    for name in wire.Remember.__struct_fields__:
        assert f"`{name}`" in told, name
    signals = rows(sections(said)["What a score means"])
    assert {name: (row[1].strip("`"), float(row[2])) for name, row in signals.items()} == {
        name: (channel, weight) for channel, weights in WEIGHTS.items() for name, weight in weights.items()
    }
    for intent, channels in INTENTS.items():
        for channel in channels:
            assert re.search(rf"`{intent}`[^;]*`{channel}`", said), intent


def test_every_page_is_in_the_index() -> None:
    index = text_of("README.md")
    for kind in ("tutorial", "how-to", "reference", "explanation"):
        for page in (DOCS / kind).glob("*.md"):
            assert f"({kind}/{page.name})" in index


# Nothing is documented that is not there


def anchors(page: Path) -> set[str]:
    """As GitHub makes them from headings."""
    headings = re.findall(r"^#+ (.+)$", prose(page.read_text()), re.MULTILINE)
    kept = [re.sub(r"[^\w\- ]", "", unicodedata.normalize("NFC", heading.lower())) for heading in headings]
    return {heading.replace(" ", "-") for heading in kept}


@pages
def test_links_point_at_what_exists(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page.read_text())):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        linked = (page.parent / name).resolve() if name else page
        assert linked.exists(), target
        if anchor:
            assert anchor in anchors(linked), target


def documented_commands(text: str) -> Iterator[list[str]]:
    """The words after `whence`, wherever a page shows the command: in shell blocks and in running text."""
    for block in blocks(text, "sh"):
        for line in block.replace("\\\n", " ").splitlines():
            found = re.match(r"(?:\S*/)?whence\s+(.*)", line)
            if found:
                yield shlex.split(found[1], comments=True)
    for said in re.findall(r"`(?:\.venv/bin/)?whence ([^`…]+)`", prose(text)):
        yield shlex.split(said)


@pages
def test_commands_and_their_options_exist(page: Path) -> None:
    for words in documented_commands(page.read_text()):
        path: tuple[str, ...] = ()
        while words and hasattr(COMMANDS[path], "commands") and not words[0].startswith("-"):
            path = (*path, words.pop(0))
            assert path in COMMANDS, f"whence {' '.join(path)}"
        for word in words:
            if word.startswith("-"):
                assert word.partition("=")[0] in options(COMMANDS[path]), f"whence {' '.join(path)} {word}"


@pages
def test_variables_are_settings(page: Path) -> None:
    variables = {f"WHENCE_{name.upper()}" for name in Settings.model_fields}
    assert set(re.findall(r"\bWHENCE_[A-Z_]*[A-Z]", page.read_text())) <= variables


@pages
def test_make_targets_exist(page: Path) -> None:
    makefile = (ROOT / "Makefile").read_text()
    for block in blocks(page.read_text(), "sh"):
        for target in re.findall(r"^make (\w+)", block, re.MULTILINE):
            assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


@pages
def test_examples_are_well_formed(page: Path) -> None:
    text = page.read_text()
    for block in blocks(text, "python"):
        compile(block, str(page), "exec")
    for block in blocks(text, "toml"):
        Settings(**tomllib.loads(block))
    for block in blocks(text, "json"):
        try:
            json.loads(block)
        except json.JSONDecodeError:
            for line in block.splitlines():
                json.loads(line)


# What the pages tell the reader to do works


class Reader:
    """Somebody who follows a page, with a home folder as `make run` leaves it and a workspace of their own."""

    def __init__(self, home: Path, server: Server, workspace: Workspace) -> None:
        self.home = home
        self.server = server
        self.workspace = workspace
        (home / ".whence").mkdir()
        (home / ".whence" / "admin.key").write_text(workspace.admin_key + "\n")

    def start(
        self, command: list[str], variables: dict[str, str] | None = None, **streams: Any
    ) -> subprocess.Popen[str]:
        environment = clean_environment() | {"HOME": str(self.home)} | (variables or {})
        return subprocess.Popen(command, text=True, cwd=self.home, env=environment, **streams)

    def run(self, *command: str, **variables: str) -> str:
        with self.start(list(command), variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            out, err = process.communicate(timeout=60)
        assert process.returncode == 0, err
        return out

    def saved(self, name: str, program: str) -> str:
        (self.home / name).write_text(program.replace(DEFAULT_URL, self.server.url))
        return name

    def python(self, name: str, program: str, *arguments: str, **variables: str) -> str:
        return self.run(sys.executable, self.saved(name, program), *arguments, **variables)

    def whence(self, *arguments: str) -> str:
        where = ("--workspace", self.workspace.workspace_id, "--data-dir", str(self.server.data_dir))
        return self.run(sys.executable, "-m", "whence", *arguments, *where)


@pytest.fixture
def reader(tmp_path: Path, server: Server, workspace: Workspace) -> Reader:
    return Reader(tmp_path, server, workspace)


def test_the_tutorial_does_and_prints_what_it_says(reader: Reader) -> None:
    tutorial = text_of("tutorial/first-trace.md")
    send, read = blocks(tutorial, "python")
    _, tail, answer = blocks(tutorial, "text")
    trace_id = reader.python("trace.py", send).strip()
    assert re.fullmatch(r"[0-9a-f]{32}", trace_id)
    when = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d")
    assert when.sub("", reader.whence("tail", "--no-follow")) == when.sub("", tail)
    assert reader.python("read.py", read, trace_id) == answer


def test_the_tutorial_shows_this_version_and_the_default_address() -> None:
    shown = blocks(text_of("tutorial/first-trace.md"), "text")[0].splitlines()
    assert shown[0] == f"Whence {whence.__version__}"
    host, port = (Settings.model_fields[name].default for name in ("host", "port"))
    assert shown[-1] == f"ready {DEFAULT_URL}" == f"ready http://{host}:{port}"


def test_a_follower_that_keeps_its_position_with_its_writes_counts_each_event_once(
    reader: Reader, admin: httpx.Client
) -> None:
    catch_up, _ = blocks(text_of("how-to/follow-the-ledger.md"), "python")
    for count, last in ((3, 3), (0, 3), (1_200, 1_203)):
        for start in range(0, count, 1_000):
            batch = [sample(tool_name="t") for _ in range(min(1_000, count - start))]
            admin.post("/v1/events", json={"events": batch})
        assert reader.python("catch_up.py", catch_up) == f"{last} is the last position that was handled\n"
    counted = "import sqlite3; print(sqlite3.connect('mine.db').execute('SELECT count(*) FROM calls').fetchone()[0])"
    assert reader.run(sys.executable, "-c", counted) == "1203\n"


def test_the_stream_example_shows_events_as_they_come(reader: Reader, admin: httpx.Client) -> None:
    _, follow = blocks(text_of("how-to/follow-the-ledger.md"), "python")
    admin.post("/v1/events", json=sample(event_type="first.one"))
    command = [sys.executable, reader.saved("follow.py", follow)]
    with reader.start(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "1 first.one\n"
            admin.post("/v1/events", json=sample(event_type="second.one"))
            assert process.stdout.readline() == "2 second.one\n"
        finally:
            process.terminate()


def test_a_proof_is_checked_without_whence_as_documented(reader: Reader, admin: httpx.Client) -> None:
    check, connect = blocks(text_of("how-to/verify-the-ledger.md"), "python")
    events = [sample() for _ in range(7)]
    admin.post("/v1/events", json={"events": events[:4]})
    old = reader.whence("seal").splitlines()[1]
    admin.post("/v1/events", json={"events": events[4:]})
    new = reader.whence("seal").splitlines()[1]
    for one in events:
        assert json.loads(reader.python("check.py", check, one["event_id"], new))["event_id"] == one["event_id"]
    for wrong in (old, "7:" + "00" * 32):
        assert reader.python("check.py", check, events[0]["event_id"], wrong) == "the proof does not hold\n"
    names: dict[str, Any] = {}
    exec(connect, names)
    size, root = old.split(":")
    proof = admin.get("/v1/seals/consistency", params={"from": size}).json()
    assert names["newest"](proof, int(size), bytes.fromhex(root)) == (7, bytes.fromhex(new.partition(":")[2]))
    with pytest.raises(SystemExit):
        names["newest"](proof, int(size), bytes(32))


def test_the_walk_through_the_graph_does_and_prints_what_it_says(reader: Reader) -> None:
    page = text_of("how-to/ask-why.md")
    run, ask = blocks(page, "python")
    sent, tree, asked = blocks(page, "text")
    assert reader.python("run.py", run) == sent
    why, picture = [words for words in documented_commands(page) if words[0] == "lineage"]
    assert reader.whence(*why) == tree
    reader.whence(*picture)
    assert (reader.home / "refund.svg").read_text().startswith("<svg")
    assert ProvDocument.deserialize(str(reader.home / "refund.json"), format="json").get_records()
    assert reader.python("ask.py", ask) == asked


def test_an_agent_has_memory_as_documented(reader: Reader) -> None:
    page = text_of("how-to/give-an-agent-memory.md")
    (config,) = blocks(page, "json")
    loop, note = blocks(page, "python")
    said, noted = blocks(page, "text")
    (make_user,) = documented_commands(page)
    key = json.loads(reader.whence(*make_user, "--json"))["user_key"]
    reader.saved("agent.json", config.replace("uk_…", key))
    assert reader.python("agent.py", loop) == said
    assert reader.python("note.py", note) == noted


def test_an_agent_has_memory_in_each_framework_as_documented(reader: Reader) -> None:
    (config,) = blocks(text_of("how-to/give-an-agent-memory.md"), "json")
    page = text_of("how-to/use-a-framework.md")
    (said,) = blocks(page, "text")
    key = json.loads(reader.whence("user", "add", "bob", "--json"))["user_key"]
    reader.saved("agent.json", config.replace("uk_…", key))

    def reply(messages: Messages) -> str:
        return "You are allergic to peanuts." if "peanuts" in str(messages[:-1]) else "All right."

    with standing_in(reply) as model:
        for number, program in enumerate(blocks(page, "python")):
            assert reader.python(f"agent{number}.py", program, **at_model(model.url)) == said


def at_model(url: str) -> dict[str, str]:
    return {"OPENAI_BASE_URL": url, "OPENAI_API_KEY": "none"}


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


def test_the_tutorial_of_an_agent_does_and_prints_what_it_says(tmp_path: Path) -> None:
    """With a Whence of its own, which is switched off and on again."""
    page = text_of("tutorial/agent-that-remembers.md")
    (program,) = blocks(page, "python")
    (config,) = blocks(page, "json")
    first, second, before, after, last = blocks(page, "text")
    port, model_port = str(free_port()), str(free_port())
    (tmp_path / "model.py").write_text(program.replace("8020", model_port))
    (command,) = [words for words in documented_commands(page) if words[:2] == ["chat", "--config"]]
    url = f"http://127.0.0.1:{model_port}/v1"
    assert url.replace(model_port, "8020") in "".join(blocks(page, "sh"))
    environment = clean_environment() | at_model(url) | {"HOME": str(tmp_path)}
    data_dir, log = tmp_path / ".whence", tmp_path / "serve.log"
    changing = re.compile(r"[0-9a-f]{8}-[0-9a-f-]{27}|\d{8}-\d{6}-\w{6}|\d{4}-\d\d-\d\d \d\d:\d\d|position \d+")

    def started() -> subprocess.Popen[str]:
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        arguments = [sys.executable, "-m", "whence", *command]
        return subprocess.Popen(arguments, text=True, cwd=tmp_path, env=environment, **pipes)

    def flushes() -> int:
        kept = (data_dir / "chat" / "bob" / "sessions").glob("*.jsonl")
        return sum(path.read_text().count('"memory_gateway_flush_succeeded"') for path in kept)

    def told(transcript: str) -> list[str]:
        return [line.removeprefix("> ") for line in transcript.splitlines() if line.startswith("> ")]

    def answers(transcript: str) -> list[str]:
        return [changing.sub("", line) for line in transcript.splitlines() if not line.startswith("> ")]

    def talked(transcript: str) -> list[str]:
        with started() as chat:
            said, failed = chat.communicate("\n".join(told(transcript)) + "\n", timeout=60)
        assert (chat.returncode, failed) == (0, "")
        return [changing.sub("", line) for line in said.splitlines()]

    with subprocess.Popen([sys.executable, "model.py"], cwd=tmp_path) as model:
        try:
            with serving(data_dir, log, "--port", port) as server:
                made = run_whence("user", "add", "bob", "--json", "--data-dir", server.data_dir)
                key = json.loads(made.stdout)["user_key"]
                (tmp_path / "agent.json").write_text(config.replace("uk_…", key).replace("8010", port))
                assert talked(first) == answers(first)
                assert talked(second)[: len(answers(second))] == answers(second)
                third = started()
                assert third.stdin is not None
                assert third.stdout is not None
                third.stdin.write("\n".join(told(before)) + "\n")
                third.stdin.flush()
                assert [third.stdout.readline().strip() for _ in answers(before)] == answers(before)
                # The answer is shown before the gateway is told of it.
                deadline = time.monotonic() + 60
                while flushes() < 4 and time.monotonic() < deadline:
                    time.sleep(0.05)
            said, failed = third.communicate("\n".join(told(after)) + "\n", timeout=60)
            assert (third.returncode, failed) == (0, "")
            assert [changing.sub("", line) for line in said.splitlines()] == answers(after)
            with serving(data_dir, log, "--port", port):
                assert talked(last) == answers(last)
        finally:
            model.terminate()


def test_the_tutorial_of_a_langgraph_agent_does_and_prints_what_it_says(reader: Reader) -> None:
    page = text_of("tutorial/langgraph-agent.md")
    model, agent, why = blocks(page, "python")
    first, booked, ids, led_to_it, recalled, explained, origin = blocks(page, "text")
    changing = re.compile(r"[0-9a-f]{8}-[0-9a-f-]{27}|\d{4}-\d\d-\d\d \d\d:\d\d(:\d\d)?|#\d+")
    port = str(free_port())
    at = at_model(f"http://127.0.0.1:{port}/v1")
    (make_user,) = [words for words in documented_commands(page) if words[0] == "user"]
    reader.saved("bob.json", reader.whence(*make_user[:-2]))
    runs = [shlex.split(line) for line in re.findall(r"python (agent\.py .+)$", page, re.MULTILINE)]
    with reader.start([sys.executable, reader.saved("model.py", model.replace("8020", port))]) as standing:
        try:
            said = [reader.python("agent.py", agent, *prompts, **at) for _, *prompts in runs]
        finally:
            standing.terminate()
    assert "".join(said) == first + booked

    def same(shown: str, *command: str) -> str:
        told = reader.whence(*command)
        assert changing.sub("", told) == changing.sub("", shown)
        return told

    found = reader.python("why.py", why)
    assert changing.sub("", found) == changing.sub("", ids)
    by_type = dict(line.split() for line in found.splitlines())
    same(led_to_it, "lineage", by_type["tool.execute"])
    hit = re.search(r"memory (\S+)", same(recalled, "explain", by_type["memory.recalled"], "--user", "bob"))
    assert hit
    same(explained, "explain", hit[1], "--user", "bob")
    same(origin, "lineage", hit[1])


def test_the_examples_of_graph_events_are_taken(admin: httpx.Client) -> None:
    examples = [json.loads(block) for block in blocks(text_of("reference/graph-events.md"), "json")]
    told = [sample(tool_name=name) for name in ("web_search", "browser.search_v2")]
    answer = admin.post("/v1/events", json={"events": [*told, *examples]}).raise_for_status().json()
    assert answer["accepted"] == len(told) + len(examples)
    asked = {"session_id": "housekeeping", "wait_for": answer["results"][-1]["global_position"]}
    assert "tool:web_search" not in admin.get("/v1/subgraph", params=asked).raise_for_status().json()["nodes"]
    call = admin.post("/v1/events", json=sample(tool_name="Browser.search_v2")).json()["results"][0]
    asked = {"event_id": call["event_id"], "wait_for": call["global_position"]}
    assert "tool:web_search" in admin.get("/v1/subgraph", params=asked).raise_for_status().json()["nodes"]


def test_every_body_field_of_a_context_and_key_of_an_atlas_is_documented() -> None:
    said = text_of("reference/http.md")
    context = sections(said)["`POST /v1/context`"]
    listed = {name for row in rows(context).values() for name in re.findall(r"`(\w+)`", row[0])}
    assert set(ContextRequest.__struct_fields__) <= listed
    atlas = sections(said)["The atlas"]
    for struct in (wire.Atlas, wire.AtlasNode, wire.AtlasEdge, wire.AtlasMeta, wire.Pagination, wire.Provenance):
        for name in struct.__struct_fields__:
            assert f"`{name}`" in atlas, f"{struct.__name__}.{name}"
    for name in (*get_args(wire.EdgeType), *get_args(wire.NodeType)):
        assert f"`{name}`" in atlas, name


def test_a_rebuild_prints_what_it_says(reader: Reader, admin: httpx.Client) -> None:
    shown, _ = blocks(text_of("how-to/rebuild.md"), "text")
    admin.post("/v1/events", json={"events": [sample() for _ in range(6)]})
    changing = re.compile(r"[0-9a-f]{64}|\d+\.\d s|\(\d+ events/s\)")
    assert changing.sub("", reader.whence("rebuild", "--verify")) == changing.sub("", shown)


async def test_the_sql_that_shows_what_was_set_aside_does(app: App, workspace: Workspace, raw_app: Connection) -> None:
    await app.ledger.append(workspace.admin, [event({"alias": 1}, event_type="entity.alias")])
    await app.projector.catch_up(workspace.workspace_id)
    (shown,) = blocks(text_of("explanation/graph.md"), "sql")
    found: list[Any] = []
    for statement in shown.replace("'default'", f"'{workspace.workspace_id}'").split(";\n")[:-1]:
        cursor = raw_app.execute(statement.encode())
        if statement.startswith("SELECT"):
            found = cursor.fetchall()
    assert [row[0] for row in found] == [1]


def test_the_example_of_a_leaf_has_the_documented_form() -> None:
    (leaf,) = blocks(text_of("explanation/seals.md"), "json")
    known = json.loads(leaf)
    assert leaf == json.dumps(known, sort_keys=True, separators=(",", ":")) + "\n"
    assert set(known) <= set(Leaf.__struct_fields__)


@pytest.mark.skipif(shutil.which("curl") is None, reason="not every machine has curl")
def test_curl_commands_of_the_how_to_pages_answer(reader: Reader) -> None:
    found = [
        block for page in (DOCS / "how-to").glob("*.md") for block in blocks(page.read_text(), "sh") if "curl" in block
    ]
    assert found
    for block in found:
        answer = json.loads(reader.run("sh", "-ec", block.replace(DEFAULT_URL, reader.server.url)))
        assert "code" not in answer


@pytest.mark.skipif(shutil.which("curl") is None, reason="not every machine has curl")
def test_the_walk_through_the_memory_gateway_does_what_it_says(reader: Reader) -> None:
    commands = [block for block in blocks(text_of("how-to/use-the-memory-gateway.md"), "sh") if "curl" in block]
    user, added, found, flushed, at_last = (
        json.loads(reader.run("sh", "-ec", block.replace(DEFAULT_URL, reader.server.url))) for block in commands
    )
    assert user["user_key"]
    assert (added["status"], added["message_count"]) == ("stored", 2)
    assert any("peanuts" in result["text"] for result in found["results"])
    facts = {fact["text"] for fact in flushed["facts"]}
    assert facts == {"ann lives in Lyon", "ann is allergic to peanuts"}
    for fact in facts:
        assert f'"{fact}"' in text_of("how-to/use-the-memory-gateway.md")
    assert "ann is allergic to peanuts" in {result["text"] for result in at_last["results"]}


def test_the_name_of_a_key_file_is_computed_as_documented(reader: Reader, app: App) -> None:
    keys = reader.home / ".whence" / "keys"
    keys.mkdir()
    shutil.copy(app.settings.kek_path, keys / "kek.key")
    (block,) = [block for block in blocks(text_of("how-to/back-up-keys.md"), "sh") if "hashlib" in block]
    expected = LocalKeyProvider.from_file(app.settings.kek_path).kek_id
    assert reader.run("sh", "-ec", block.replace("python3", shlex.quote(sys.executable))) == expected + "\n"


def test_the_sql_for_your_own_postgres_makes_logins_that_work(
    postgres: EmbeddedServer, reader: Reader, tmp_path: Path
) -> None:
    """Under other names, because the embedded database has these already, and its roles belong to its owner."""
    page = text_of("how-to/use-your-own-postgres.md")
    page = re.sub(r"whence_(owner|server)", r"docs_\1", page).replace("DATABASE whence", "DATABASE docs_whence")
    first, roles, login = blocks(page, "sql")
    password = (postgres.data_dir / f"{SUPERUSER}.password").read_text()
    superuser = make_conninfo(postgres.app_conninfo, user=SUPERUSER, password=password)
    with psycopg.connect(make_conninfo(superuser, dbname="postgres"), autocommit=True) as conn:
        for statement in (*first.split(";\n")[:-1], roles.splitlines()[-1], *login.split(";\n")[:-1]):
            conn.execute(statement.encode())
    owner = make_conninfo(superuser, dbname="docs_whence", user="docs_owner", password="owner-password")
    server = make_conninfo(superuser, dbname="docs_whence", user="docs_server", password="server-password")
    where = ("--data-dir", str(tmp_path / "data"))
    whence_command = (sys.executable, "-m", "whence")
    (said,) = [block for block in blocks(page, "text") if block.startswith("applied")]
    assert reader.run(*whence_command, "migrate", "--database-url", owner, *where).startswith(said.rstrip())
    assert "up to date" in reader.run(*whence_command, "doctor", "--database-url", server, *where)
    assert "docs" in reader.run(*whence_command, "user", "add", "docs", "--database-url", server, *where)


async def test_the_sql_that_shows_isolation_sees_what_it_says(
    app: App, workspace: Workspace, raw_app: Connection
) -> None:
    await app.ledger.append(workspace.admin, [event(user_id="ann"), event(user_id="ann"), event()])
    (shown,) = [block for block in blocks(text_of("explanation/isolation.md"), "sql") if "DELETE" in block]
    statements = re.sub(r" *--.*", "", shown).replace("'default'", f"'{workspace.workspace_id}'").split(";\n")[:-1]
    counts: list[int] = []
    for statement in statements:
        if statement.startswith("DELETE"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege, match="permission denied for table events"):
                raw_app.execute(statement.encode())
            continue
        cursor = raw_app.execute(statement.encode())
        if statement.startswith("SELECT"):
            counts.append((cursor.fetchone() or (-1,))[0])
    assert counts == [0, 2, 3]
