"""`whence run` as a person or a script uses it."""

import json
import uuid
from pathlib import Path

import pytest

from conftest import Workspace, whence
from whence.app import App


@pytest.fixture
def where(app: App, workspace: Workspace, data_dir: Path) -> tuple[str | Path, ...]:
    return ("-w", workspace.workspace_id, "--data-dir", data_dir)


async def test_a_run_is_started_told_of_and_ended(
    app: App, workspace: Workspace, where: tuple[str | Path, ...]
) -> None:
    await app.identity.add_user(workspace.workspace_id, "ann")
    ann = ("-u", "ann", *where)
    options = ("--task-type", "refunds", "--session", "s1", "--input", '{"q": 1}')
    run = json.loads(whence("run", "start", "gateway", "run-7", *options, "--json", *ann).stdout)
    assert (run["status"], run["turn"], run["user_id"]) == ("running", 1, "ann")
    payload = await app.ledger.payload(workspace.admin.scope, uuid.UUID(run["run_id"]))
    assert json.loads(payload)["input"] == {"q": 1}
    done = whence("run", "episode", run["run_id"], "looked it up", *ann)
    assert done.stdout.startswith("remembered as "), done.stderr
    shown = whence("run", "show", run["run_id"], *where)
    assert (shown.returncode, shown.stderr) == (0, "")
    for words in ("run-7, turn 1", "running since 20", "refunds", "s1", "ann", "looked it up"):
        assert words in shown.stdout
    ended = whence("run", "complete", run["run_id"], "--output", "42", *ann)
    assert ended.stdout.startswith("completed 20")
    assert ended.stdout.endswith(" s\n")
    whole = json.loads(whence("run", "show", run["run_id"], "--json", *ann).stdout)
    assert (whole["status"], [episode["text"] for episode in whole["episodes"]]) == ("completed", ["looked it up"])
    assert "looked it up" in whence("run", "episodes", "gateway", *ann).stdout
    again = whence("run", "complete", run["run_id"], "--output", "43", *ann)
    assert again.stdout == ended.stdout + "it had ended before: nothing has changed\n"
    for verb, more in (("fail", ()), ("episode", ("x",))):
        late = whence("run", verb, run["run_id"], *more, *ann)
        assert (late.returncode, late.stderr) == (1, "whence: the run is completed\n")


async def test_all_that_can_be_told_of_an_episode_is_an_option(
    app: App, workspace: Workspace, where: tuple[str | Path, ...]
) -> None:
    run = await app.runs.start(workspace.admin, "sdr", "one")
    source = (await app.runs.add_episode(workspace.admin, run.run_id, "looked it up")).memory_id
    memory_id = str(uuid.uuid4())
    options = ("--from", str(source), "--importance", "0.9", "--valid-at", "2026-01-02", "--id", memory_id)
    for _ in range(2):
        done = whence("run", "episode", str(run.run_id), "called back", *options, *where)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.startswith(f"remembered as {memory_id}")
    kept = json.loads(whence("memory", "show", memory_id, "--json", *where).stdout)
    assert (kept["importance"], kept["valid_at"], kept["run_id"]) == (0.9, "2026-01-02T00:00:00Z", str(run.run_id))
    assert f"from memory {source}" in whence("explain", memory_id, *where).stdout
    for wrong in (("--importance", "2"), ("--from", "x"), ("--valid-at", "x")):
        assert whence("run", "episode", str(run.run_id), "x", *wrong, *where).returncode == 2, wrong


def test_what_was_taken_out_is_told(where: tuple[str | Path, ...]) -> None:
    card = '"4111 1111 1111 1111"'
    iban = '"DE89370400440532013000"'
    started = whence("run", "start", "sdr", "one", "--input", iban, *where).stdout.splitlines()
    assert started[1:] == ["taken out: 1 x iban"]
    run_id = started[0].split()[1].strip(",")
    refused = whence("run", "complete", run_id, "--output", card, *where)
    assert refused.stderr == "whence: output: holds what the profile sdr refuses: card\n"
    assert whence("run", "complete", run_id, "--output", iban, *where).stdout.endswith("taken out: 1 x iban\n")


async def test_runs_are_listed_the_newest_first(app: App, workspace: Workspace, where: tuple[str | Path, ...]) -> None:
    first = await app.runs.start(workspace.admin, "sdr", "one", "calls", "s1")
    whence("run", "fail", str(first.run_id), "--error", '"no answer"', *where)
    second = await app.runs.start(workspace.admin, "sdr", "two")
    lines = whence("run", "list", "sdr", *where).stdout.splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[1].startswith(f"{second.run_id}  running since 20")
    assert lines[2].split() == ["two,", "turn", "1"]
    assert lines[3].startswith(f"{first.run_id}  failed 20")
    assert lines[4].split() == ["one,", "turn", "1", "calls,", "session", "s1"]
    found = json.loads(whence("run", "list", "sdr", "--instance", "one", "--json", *where).stdout)["runs"]
    assert [run["run_id"] for run in found] == [str(first.run_id)]
    assert whence("run", "list", "nobody", *where).stdout == "there are no runs of nobody\n"


async def test_more_episodes_than_shown_say_where_they_are(
    app: App, workspace: Workspace, where: tuple[str | Path, ...]
) -> None:
    run = await app.runs.start(workspace.admin, "sdr", "one")
    for text in ("earlier", "later"):
        await app.runs.add_episode(workspace.admin, run.run_id, text)
    more = whence("run", "show", str(run.run_id), "--limit", "1", *where).stdout.splitlines()[-1]
    name, *words = more.split()
    assert (name, words[0]) == ("more:", "whence")
    assert "earlier" in whence(*words[1:], *where).stdout


def test_what_is_wrong_is_told(where: tuple[str | Path, ...]) -> None:
    for arguments, said in (
        (("show", str(uuid.uuid4())), "whence: there is no such run\n"),
        (("complete", str(uuid.uuid4())), "whence: there is no such run\n"),
        (("start", "gateway", "i"), "whence: --user: is needed: memory of the profile gateway hangs on a user\n"),
        (("start", "sdr", ""), "whence: instance: 1 to 256 characters\n"),
    ):
        done = whence("run", *arguments, *where)
        assert (done.returncode, done.stdout, done.stderr) == (1, "", said)
    wrong = whence("run", "complete", str(uuid.uuid4()), "--output", "hello", *where)
    assert wrong.returncode == 2
    assert "a text needs its quotes" in wrong.stderr
