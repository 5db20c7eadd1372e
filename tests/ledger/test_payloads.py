"""Payloads: encrypted under their subject's key, opened by who may read them, committed to by their event."""

import hashlib
from pathlib import Path
from uuid import uuid4

import msgspec
import pytest

from conftest import Workspace
from samples import event
from whence.app import App
from whence.crypto import LocalKeyProvider, Shredded, ShreddedKey, SubjectKey, Wrapped, commit
from whence.db import Scope
from whence.errors import NotFound, SetupError
from whence.ledger import MAX_JOINED_BYTES, _place
from whence.ledger.payloads import canonical, subject_of, tie_to_provider


@pytest.mark.parametrize(
    "payload", [None, 0, "", [], {}, "text", {"a": {"b": [1, 2.5, True, None, "\x00 ü 🙂"]}}, 10**30]
)
async def test_any_json_comes_back_as_it_was_sent(app: App, workspace: Workspace, payload: object) -> None:
    sent = event(payload)
    await app.ledger.append(workspace.admin, [sent])
    assert await app.ledger.payload(workspace.admin.scope, sent.event_id) == bytes(sent.payload)


async def test_an_event_without_a_payload_has_none(app: App, workspace: Workspace) -> None:
    sent = event()
    await app.ledger.append(workspace.admin, [sent])
    assert not (await app.ledger.get(workspace.admin.scope, sent.event_id)).has_payload
    with pytest.raises(NotFound, match="no payload"):
        await app.ledger.payload(workspace.admin.scope, sent.event_id)


async def test_each_subject_has_a_key_of_its_own(app: App, workspace: Workspace) -> None:
    events = [event({}, subject_id="patient", user_id="ann"), event({}, user_id="ann"), event({})]
    await app.ledger.append(workspace.admin, events)
    assert [subject_of(e) for e in events] == ["patient", "ann", ""]
    async with app.database.transaction(Scope(workspace.workspace_id)) as tx:
        rows = await (await tx.execute("SELECT subject_id, wrapped_key FROM whence.subject_keys ORDER BY 1")).fetchall()
        used = await (await tx.execute("SELECT subject_id FROM whence.payloads ORDER BY global_position")).fetchall()
    assert [row[0] for row in rows] == ["", "ann", "patient"]
    assert len({bytes(row[1]) for row in rows}) == 3
    assert [row[0] for row in used] == ["patient", "ann", ""]


async def test_a_user_reads_own_payloads_only(app: App, workspace: Workspace) -> None:
    hers = event({"text": "private"})
    await app.ledger.append(workspace.user("ann"), [hers])
    assert await app.ledger.payload(workspace.user("ann").scope, hers.event_id) == b'{"text":"private"}'
    with pytest.raises(NotFound, match="no such event"):
        await app.ledger.payload(workspace.user("bob").scope, hers.event_id)


async def test_a_payload_moved_to_another_event_does_not_open(app: App, workspace: Workspace) -> None:
    keys = await app.ledger.keys.ensure(workspace.workspace_id, {""})
    one, two = event(), event()
    sealed = keys[""].seal(_place(workspace.workspace_id, one.event_id), b"{}", b"{}")
    with pytest.raises(SetupError, match="does not decrypt"):
        keys[""].open(_place(workspace.workspace_id, two.event_id), sealed.ciphertext)


def test_what_is_sealed_later_is_not_kept_in_clear_and_a_shredded_key_says_so_at_once() -> None:
    key = SubjectKey(uuid4(), SubjectKey.generate())
    sealing = key.sealing(b"place", b"secret", b"secret")
    assert not sealing.is_done
    sealed = sealing.done()
    assert sealing.done() is sealed
    assert key.open(b"place", sealed.ciphertext) == b"secret"
    assert b"secret" not in b"".join(sealing._given)
    with pytest.raises(SetupError, match="erased after this backup"):
        ShreddedKey(uuid4()).sealing(b"place", b"secret", b"secret")


async def test_an_auditor_with_the_salt_can_check_the_commitment(app: App, workspace: Workspace) -> None:
    sent = event({"b": 1, "a": 2})
    await app.ledger.append(workspace.admin, [sent])
    async with app.database.transaction(Scope(workspace.workspace_id)) as tx:
        row = await (await tx.execute("SELECT payload_commitment FROM whence.events")).fetchone()
    assert row is not None
    key = (await app.ledger.keys.ensure(workspace.workspace_id, {""}))[""]
    salt = key.salt(_place(workspace.workspace_id, sent.event_id))
    assert commit(salt, b'{"a":2,"b":1}') == bytes(row[0])
    assert commit(salt, b'{"a":2,"b":2}') != bytes(row[0])


def test_equal_json_has_one_canonical_form() -> None:
    assert canonical(b'{"b": 1,\n "a": [1.0, "\\u00e9"]}') == canonical('{"a":[1.0,"é"],"b":1}'.encode())
    assert canonical(b"1") != canonical(b'"1"')


def test_keys_do_not_show_in_a_repr() -> None:
    key = SubjectKey.generate()
    provider = LocalKeyProvider(key)
    for shown in (repr(SubjectKey(uuid4(), key)), repr(provider)):
        assert key.hex() not in shown
        assert repr(key) not in shown
    assert provider.kek_id in repr(provider)


async def test_the_key_file_is_made_once_and_is_private(tmp_path: Path) -> None:
    path = tmp_path / "keys" / "kek.key"
    first = LocalKeyProvider.from_file(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert LocalKeyProvider.from_file(path).kek_id == first.kek_id
    assert [p.name for p in path.parent.iterdir()] == ["kek.key"]
    [wrapped] = await first.wrap([b"k" * 32])
    assert await first.unwrap([Wrapped(first.kek_id, wrapped)]) == [b"k" * 32]


@pytest.mark.parametrize("content", ["", "zz", "00" * 31, "00" * 33])
def test_a_damaged_key_file_is_a_clear_error_and_is_left_alone(tmp_path: Path, content: str) -> None:
    path = tmp_path / "kek.key"
    path.write_text(content)
    with pytest.raises(SetupError, match="restore it from a backup"):
        LocalKeyProvider.from_file(path)
    assert path.read_text() == content


async def test_another_key_file_is_refused_at_start(app: App, tmp_path: Path) -> None:
    other = LocalKeyProvider.from_file(tmp_path / "other.key")
    with pytest.raises(SetupError, match="restore the right key file"):
        await tie_to_provider(app.database, other, app.clock())
    with pytest.raises(SetupError, match="is it the right key file"):
        await other.unwrap([Wrapped("local", key) for key in await LocalKeyProvider(b"k" * 32).wrap([b"x" * 32])])


async def test_log_records_complete_the_payload_of_their_span_whichever_came_first(
    app: App, workspace: Workspace
) -> None:
    span = event({"name": "chat", "attributes": {"a": 1}}, event_type="llm.generate")
    asked = event(
        {"input_messages": [1], "attributes": {"b": 2}}, event_type="llm.content", parent_event_id=span.event_id
    )
    said = event(
        {"input_messages": [2], "output_messages": [3]}, event_type="llm.content", parent_event_id=span.event_id
    )
    child = event({"input_messages": ["not part of it"]}, parent_event_id=span.event_id)
    await app.ledger.append(workspace.admin, [asked, child])
    await app.ledger.append(workspace.admin, [span, said])
    joined = msgspec.json.decode(await app.ledger.payload(workspace.admin.scope, span.event_id))
    assert joined == {"name": "chat", "attributes": {"a": 1}, "input_messages": [1, 2], "output_messages": [3]}
    own = await app.ledger.payload(workspace.admin.scope, asked.event_id)
    assert own == bytes(asked.payload)


async def test_a_content_without_a_span_of_its_own_payload_shows_content_only(app: App, workspace: Workspace) -> None:
    span = event(event_type="llm.generate")
    contents = [
        event({"input_messages": [n], "body": "raw"}, event_type="llm.content", parent_event_id=span.event_id)
        for n in (1, 2)
    ]
    await app.ledger.append(workspace.admin, [span, *contents])
    joined = msgspec.json.decode(await app.ledger.payload(workspace.admin.scope, span.event_id))
    assert joined == {"input_messages": [1, 2]}


async def test_nobody_writes_into_the_payload_of_somebody_elses_event(app: App, workspace: Workspace) -> None:
    hers = event({"name": "chat"}, event_type="llm.generate")
    await app.ledger.append(workspace.user("ann"), [hers])
    forged = event({"input_messages": ["forged"]}, event_type="llm.content", parent_event_id=hers.event_id)
    await app.ledger.append(workspace.user("bob"), [forged])
    for reader in (workspace.admin, workspace.user("ann")):
        assert await app.ledger.payload(reader.scope, hers.event_id) == bytes(hers.payload)


@pytest.mark.parametrize("strange", [[1], "text", 7, None])
async def test_a_content_that_is_not_an_object_is_passed_over(app: App, workspace: Workspace, strange: object) -> None:
    span = event({"name": "chat"}, event_type="llm.generate")
    odd = event(strange, event_type="llm.content", parent_event_id=span.event_id)
    await app.ledger.append(workspace.admin, [span, odd])
    joined = msgspec.json.decode(await app.ledger.payload(workspace.admin.scope, span.event_id))
    assert joined == {"name": "chat"}


async def test_joined_contents_are_bounded_and_say_so(app: App, workspace: Workspace) -> None:
    span = event({"name": "chat"}, event_type="llm.generate")
    large = [
        event({"input_messages": ["x" * 900_000]}, event_type="llm.content", parent_event_id=span.event_id)
        for _ in range(12)
    ]
    await app.ledger.append(workspace.admin, [span, *large])
    payload = await app.ledger.payload(workspace.admin.scope, span.event_id)
    joined = msgspec.json.decode(payload)
    assert joined["contents_truncated"] is True
    assert len(joined["input_messages"]) == MAX_JOINED_BYTES // 900_000
    assert joined["name"] == "chat"


async def test_a_key_that_was_replaced_elsewhere_is_not_written_under(app: App, workspace: Workspace) -> None:
    """Another process shredded the subject's key and made a new one, while this one remembers the old."""
    await app.ledger.append(workspace.admin, [event({"n": 0}, subject_id="other")])
    keys = await app.ledger.keys.ensure(workspace.workspace_id, {"other"})
    keys["other"].key_id = uuid4()
    [outcome] = await app.ledger.append(workspace.admin, [event({"n": 1}, subject_id="other")])
    assert (outcome.status, outcome.errors[0].field) == ("rejected", "subject_id")
    again = event({"n": 2}, subject_id="other")
    [outcome] = await app.ledger.append(workspace.admin, [again])
    assert outcome.status == "accepted"
    assert await app.ledger.payload(workspace.admin.scope, again.event_id) == b'{"n":2}'


async def test_what_was_shredded_is_refused_by_every_process_and_for_ever(tmp_path: Path) -> None:
    here = LocalKeyProvider.from_file(tmp_path / "kek.key")
    there = LocalKeyProvider.from_file(tmp_path / "kek.key")
    wrapped = [Wrapped(here.kek_id, key) for key in await here.wrap([b"a" * 32, b"b" * 32, b"c" * 32])]
    shredded = [Shredded(uuid4(), hashlib.sha256(item.key).hexdigest()) for item in wrapped]
    assert await there.unwrap(wrapped) == [b"a" * 32, b"b" * 32, b"c" * 32]
    await here.shred(shredded[:1])
    await here.shred(shredded[:1])
    path = tmp_path / "shredded.keys"
    assert path.read_text() == f"{shredded[0].key_id} {shredded[0].fingerprint}\n"
    assert path.stat().st_mode & 0o777 == 0o600
    for provider in (here, there, LocalKeyProvider.from_file(tmp_path / "kek.key")):
        assert await provider.unwrap(wrapped) == [None, b"b" * 32, b"c" * 32]
    with path.open("a") as file:
        file.write(str(shredded[1].key_id))
    await there.shred(shredded[2:])
    assert await here.unwrap(wrapped) == [None, b"b" * 32, None], "a line that a crash has cut off hides no other"


async def test_without_a_file_to_remember_it_nothing_is_shredded() -> None:
    with pytest.raises(SetupError, match="no file"):
        await LocalKeyProvider(b"k" * 32).shred([Shredded(uuid4(), "0" * 64)])
