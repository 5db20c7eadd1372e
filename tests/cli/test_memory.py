"""`whence remember`, `explain`, `memory` and the memory's part of `rebuild` as a person or a script uses them."""

import json
import re
import uuid
from datetime import UTC, datetime
from pathlib import Path

import pytest
from msgspec import Raw
from psycopg import Connection

from conftest import Workspace, whence
from whence.app import App
from whence.wire import Fact, ItemsRequest, PutItem, Remember

LONG = "Ann prefers tea over coffee in the mornings, and never drinks any after six in the evening"


def fact(city: str, year: int) -> Remember:
    return Remember(
        agent="gateway",
        tier="persistent",
        kind="semantic",
        text=f"Ann lives in {city}",
        user_id="ann",
        fact=Fact("Ann", "lives in", city),
        valid_at=datetime(year, 1, 1, tzinfo=UTC),
    )


@pytest.fixture
def where(app: App, workspace: Workspace, data_dir: Path) -> tuple[str | Path, ...]:
    return ("-w", workspace.workspace_id, "--data-dir", data_dir)


def test_something_is_remembered_and_explains_itself(where: tuple[str | Path, ...]) -> None:
    done = whence(
        "remember", "ask before a release", "--user", "ann", "--kind", "procedural", "--key", "release", *where
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("remembered as ")
    again = whence(
        "remember", "never ask", "--user", "ann", "--kind", "procedural", "--key", "release", "--json", *where
    )
    answer = json.loads(again.stdout)
    assert len(answer["superseded"]) == 1
    told = whence("explain", answer["memory_id"], *where)
    assert (told.returncode, told.stderr) == (0, "")
    lines = told.stdout.splitlines()
    assert lines[0] == "never ask"
    assert lines[1].startswith("admin told gateway on ")
    assert f"in place of memory {answer['superseded'][0]}" in told.stdout
    before = whence("explain", answer["superseded"][0], *where).stdout
    assert f"replaced by memory {answer['memory_id']}" in before
    assert "told again" not in before


def test_an_explanation_says_what_became_of_a_memory(where: tuple[str | Path, ...]) -> None:
    tea = ("remember", "Ann likes tea", "--user", "ann", "--json", *where)
    memory, again = [json.loads(whence(*tea).stdout)["memory_id"] for _ in range(2)]
    assert memory == again
    recall = json.loads(whence("recall", "tea", "--json", *where).stdout)["recall_id"]
    for how in ("--helpful", "--unhelpful"):
        assert whence("feedback", recall, how, memory, *where).returncode == 0
    assert whence("memory", "forget", memory, *where).returncode == 0
    told = [line.strip() for line in whence("explain", memory, *where).stdout.splitlines()]
    happened = [re.sub(r" \d{4}-\d\d-\d\d \d\d:\d\d UTC", "", line) for line in told]
    assert [line for line in happened if line.split()[0] in ("told", "found", "forgotten")] == [
        "told again by one who had told it",
        "found helpful by an administrator",
        "found unhelpful by an administrator",
        "forgotten by an administrator",
    ]


def test_what_an_agent_may_remember_is_shown(where: tuple[str | Path, ...]) -> None:
    lines = dict(line.split(maxsplit=1) for line in whence("memory", "profile", "sdr", *where).stdout.splitlines())
    assert lines["profile"].startswith("sdr: An agent that works for a whole workspace")
    assert (
        lines["semantic"] == "ends what it contradicts; outlives its session if corroborated; retention: until deleted"
    )
    assert (lines["canon"], lines["kept"]) == ("none", "email, phone")
    answer = json.loads(whence("memory", "profile", "whoever", "--json", *where).stdout)
    assert (answer["agent"], answer["profile"]) == ("whoever", "gateway")


def test_what_cannot_be_remembered_says_why_in_one_line(where: tuple[str | Path, ...]) -> None:
    done = whence("remember", "something", *where)
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.splitlines()[-1].endswith(
        "whence: --user: is needed: memory of the profile gateway hangs on a user"
    )


async def test_all_that_can_be_told_of_a_memory_is_an_option(
    app: App, workspace: Workspace, where: tuple[str | Path, ...]
) -> None:
    run_id = str((await app.runs.start(workspace.user("ann"), "gateway", "one")).run_id)
    episode = ("remember", "I moved to Oslo", "-u", "ann", "--kind", "episodic", "--run", run_id, "--json", *where)
    first = json.loads(whence(*episode).stdout)["memory_id"]
    memory_id = str(uuid.uuid4())
    said = ("remember", "Ann lives in Oslo", "-u", "ann", "--fact", "Ann", "lives in", "-Oslo", "--confidence", "0.6")
    when = ("--valid-at", "2024-01-01 12:00", "--importance", "0.9", "--id", memory_id)
    whom = ("--about", "bob", "--from", first, "--from", run_id, "--byte-range", "2", "7")
    for _ in range(2):
        done = whence(*said, *when, *whom, *where)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.startswith(f"remembered as {memory_id}")
    kept = await app.memory.get(workspace.admin.scope, uuid.UUID(memory_id))
    assert kept.fact == Fact("Ann", "lives in", "-Oslo", 0.6)
    assert (kept.valid_at, kept.importance) == (datetime(2024, 1, 1, 12, tzinfo=UTC), 0.9)
    assert (kept.user_id, kept.told_count) == ("ann", 1)
    assert (await app.memory.get(workspace.admin.scope, uuid.UUID(first))).run_id == uuid.UUID(run_id)
    told = await app.memory.explain(workspace.admin.scope, kept.memory_id)
    assert {source.source for source in told.sources} >= {first, run_id}
    assert [source.quote for source in told.sources if source.quote] == ["moved"]
    assert (await app.ledger.get(workspace.admin.scope, kept.memory_id)).subject_id == "bob"
    other = whence("remember", "Ann lives in Rome", "-u", "ann", "--id", memory_id, *where)
    said_so = "whence: --id: an event with this id was stored earlier with other content\n"
    assert (other.returncode, other.stdout, other.stderr) == (1, "", said_so)
    lines = [
        re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d", "then", line)
        for line in whence("explain", memory_id, *where).stdout.splitlines()
    ]
    position = kept.position
    assert lines[3:] == [
        f"  from event {run_id}",
        f"    memory.run_started, position {position - 2}",
        "    taken up by admin at then UTC",
        f"  from memory {first}",
        f"    position {position - 1}, told by admin",
        "    taken up by admin at then UTC",
        "    where it says: moved",
    ]


def test_a_text_of_several_lines_is_shown_as_it_is_and_one_of_which_nothing_is_left_as_such(
    where: tuple[str | Path, ...],
) -> None:
    steps = "boil\nwait\x1b[31m"
    brew = json.loads(whence("remember", steps, "-u", "ann", "--kind", "procedural", "--json", *where).stdout)
    for command in (("explain",), ("memory", "show")):
        assert whence(*command, brew["memory_id"], *where).stdout.startswith("boil\nwait·[31m\n")


def test_what_cannot_be_told_so_is_wrong_usage(where: tuple[str | Path, ...]) -> None:
    for options, said in (
        (("--confidence", "0.5"), "'--confidence': is how sure a fact is: give --fact too"),
        (("--byte-range", "0", "4"), "'--byte-range': is a place in --from: give that too"),
        (("--fact", "Ann", "lives in", "Oslo", "--confidence", "2"), "'--confidence'"),
        (("--importance", "1.1"), "'--importance'"),
        (("--valid-at", "yesterday"), "'--valid-at': is not a time such as"),
        (("--from", "x"), "'--from'"),
        (("--id", "x"), "'--id'"),
    ):
        done = whence("remember", "x", "--user", "ann", *options, *where, COLUMNS="80")
        assert (done.returncode, done.stdout) == (2, ""), options
        assert said in done.stderr
    done = whence("remember", "x", "-u", "ann", "--kind", "episodic", "--fact", "Ann", "lives in", "Oslo", *where)
    assert (done.returncode, done.stderr) == (1, "whence: fact: only semantic memory holds facts\n")


def test_a_rebuild_compares_memory_too(where: tuple[str | Path, ...], workspace: Workspace, owner: Connection) -> None:
    whence("remember", "likes tea", "--user", "ann", *where)
    done = whence("rebuild", "--verify", *where)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("equal") == 2
    owner.execute("SET ROLE whence_workspace")
    owner.execute(f"SET app.workspace_id = '{workspace.workspace_id}'")
    owner.execute("UPDATE whence.memories SET importance = 1")
    done = whence("rebuild", "--verify", *where)
    assert done.returncode == 1
    assert "the memory in use differed in: memories" in done.stdout
    answer = json.loads(whence("rebuild", "--json", *where).stdout)
    assert answer["memory"]["replaced"] is True
    assert whence("rebuild", "--verify", *where).returncode == 0


async def test_memories_are_listed_with_ids_to_go_on_with(
    app: App, workspace: Workspace, where: tuple[str | Path, ...]
) -> None:
    old, new = await app.memory.remember_all(workspace.admin, [fact("Oslo", 2020), fact("Bergen", 2024)])
    assert old.remembered is not None
    assert new.remembered is not None
    done = whence("memory", "list", "--subject", "ann", *where)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[0].split() == ["memory", "text"]
    assert lines[1].rstrip() == f"{new.remembered.memory_id}  Ann lives in Bergen"
    assert lines[2].rstrip() == "since 2024-01-01 00:00                semantic, persistent, gateway of ann"
    then = ("--as-of", "2020-06-01", "--kind", "semantic", "--tier", "persistent", "--agent", "gateway")
    assert str(old.remembered.memory_id) in whence("memory", "list", *then, *where).stdout
    page = json.loads(whence("memory", "list", "--json", *then, *where).stdout)
    assert [item["text"] for item in page["memories"]] == ["Ann lives in Oslo"]
    assert whence("memory", "list", "--known-at", "2020-06-01T00:00:00+02:00", *where).stdout == (
        "nothing is remembered\n"
    )


async def test_a_long_list_is_told_in_pages_and_a_long_text_is_cut(
    app: App, workspace: Workspace, where: tuple[str | Path, ...]
) -> None:
    notes = [Remember(agent="sdr", tier="persistent", kind="semantic", text=text) for text in ("first", LONG)]
    await app.memory.remember_all(workspace.admin, notes)
    _, row, _, more = whence("memory", "list", "--limit", "1", *where).stdout.splitlines()
    assert row.endswith("…")
    assert len(row) == 80
    assert more == "more: --before 2"
    assert "first" in whence("memory", "list", *more.split()[1:], *where).stdout
    # What has no text is told by its namespace and key.
    item = PutItem(namespace=("people", "ann"), key="diet", value=Raw(b"{}"))
    (put,) = await app.items.do(workspace.user("ann"), ItemsRequest(ops=(item,)))
    assert "people/ann/diet" in whence("memory", "list", "--limit", "1", *where).stdout
    assert whence("explain", str(put.memory_id), *where).stdout.startswith("people/ann/diet\nann told store on ")


def test_who_was_remembered_for_needs_no_account_to_be_asked_for(where: tuple[str | Path, ...]) -> None:
    done = whence("remember", "likes tea", "--user", "nobody-known", *where)
    assert done.returncode == 0, done.stderr
    assert "likes tea" in whence("memory", "list", "--user", "nobody-known", *where).stdout


async def test_a_memory_is_shown_with_its_history_and_forgotten(
    app: App, workspace: Workspace, where: tuple[str | Path, ...]
) -> None:
    await app.identity.add_user(workspace.workspace_id, "ann")
    await app.identity.add_user(workspace.workspace_id, "bob")
    old = await app.memory.remember(workspace.admin, fact("Oslo", 2020))
    new = await app.memory.remember(workspace.admin, fact("Bergen", 2024))
    told = whence("memory", "show", str(old.memory_id), "-u", "ann", *where).stdout
    for words in ("held         2020-01-01 00:00 to 2024-01-01 00:00 UTC", f"replaced by  {new.memory_id}"):
        assert words in told
    assert json.loads(whence("memory", "show", str(old.memory_id), "--json", *where).stdout)["user_id"] == "ann"
    for verb in ("show", "history", "forget"):
        hidden = whence("memory", verb, str(old.memory_id), "-u", "bob", *where)
        assert (hidden.returncode, hidden.stderr) == (1, "whence: there is no such memory\n")
    assert whence("memory", "forget", str(new.memory_id), "--user", "ann", *where).stdout == "forgotten\n"
    assert json.loads(whence("memory", "forget", str(new.memory_id), "--json", *where).stdout)["deleted_at"]
    lines = whence("memory", "history", str(old.memory_id), *where).stdout.splitlines()
    assert [line.split("  ")[1].rstrip() for line in lines[1::2]] == ["Ann lives in Oslo", "Ann lives in Bergen"]
    assert "forgotten" in lines[-1]
    *_, more = whence("memory", "history", str(old.memory_id), "--limit", "1", *where).stdout.splitlines()
    rest = whence("memory", "history", str(old.memory_id), *more.split()[1:], *where).stdout
    assert more.startswith("more: --after ")
    assert ("Ann lives in Oslo" in rest, "Ann lives in Bergen" in rest) == (False, True)
    listed = json.loads(whence("memory", "history", str(old.memory_id), "--json", *where).stdout)["memories"]
    assert [item["memory_id"] for item in listed] == [str(old.memory_id), str(new.memory_id)]


async def test_how_long_a_memory_is_kept_is_told(app: App, workspace: Workspace, where: tuple[str | Path, ...]) -> None:
    note = Remember(agent="gateway", tier="persistent", kind="episodic", text="tea at four", user_id="ann")
    episode = str((await app.memory.remember(workspace.admin, note)).memory_id)
    told = whence("memory", "retention", episode, "-u", "ann", *where)
    assert (told.returncode, told.stderr) == (0, "")
    lines = dict(line.split(maxsplit=1) for line in told.stdout.splitlines())
    assert (lines["memory"], lines["state"], lines["strength"]) == (episode, "ACTIVE", "1.00, hot")
    assert lines["policy"] == "memory, episodes"
    assert lines["expires"].endswith(" UTC")
    action = await app.actions.record(workspace.admin, "decision.published", [uuid.UUID(episode)])
    held = whence("memory", "retention", episode, *where).stdout
    assert f"held by      {action.action_id}" in held
    assert "REFERENCED" in held
    whence("memory", "forget", episode, *where)
    answer = json.loads(whence("memory", "retention", episode, "--json", *where).stdout)
    assert (answer["state"], answer["expires_at"]) == ("TOMBSTONED", None)
    assert answer["disposed_at"] is not None
    lasting = str((await app.memory.remember(workspace.admin, fact("Oslo", 2020))).memory_id)
    assert "expires      no timer runs" in whence("memory", "retention", lasting, *where).stdout
    missing = whence("memory", "retention", str(uuid.uuid4()), *where)
    assert (missing.returncode, missing.stderr) == (1, "whence: there is no such memory\n")


async def test_what_was_called_wrongly_or_is_not_there_is_told(
    app: App, workspace: Workspace, where: tuple[str | Path, ...]
) -> None:
    for arguments, said in (
        (("memory", "show", str(uuid.uuid4())), "whence: there is no such memory\n"),
        (("memory", "list", "--user", "\x1b"), "whence: --user: 1 to 256 printable characters\n"),
        (("memory", "list", "--user", "eve"), f"whence: there is no user eve in the workspace {where[1]}\n"),
        (("explain", str(uuid.uuid4()), "-u", "eve"), f"whence: there is no user eve in the workspace {where[1]}\n"),
        (("memory", "list", "--agent", ""), "whence: agent: 1 to 256 characters\n"),
    ):
        done = whence(*arguments, *where)
        assert (done.returncode, done.stdout, done.stderr) == (1, "", said)
    for arguments in (
        ("list", "--as-of", "yesterday"),
        ("list", "--tier", "nowhere"),
        ("list", "--limit", "0"),
        ("list", "--before", str(1 << 63)),
        ("show", "x"),
    ):
        assert whence("memory", *arguments, *where).returncode == 2, arguments


async def test_a_text_tells_the_terminal_nothing(app: App, workspace: Workspace, where: tuple[str | Path, ...]) -> None:
    note = Remember(agent="sdr", tier="persistent", kind="semantic", text="[red]a\x1b[31m\u202eb")
    done = await app.memory.remember(workspace.admin, note)
    for arguments in (("list",), ("show", str(done.memory_id)), ("list", "--json")):
        shown = whence("memory", *arguments, *where).stdout
        assert "[red]a" in shown
        assert "\x1b" not in shown
        assert "\u202e" not in shown
