"""Workspaces, users and keys."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from conftest import Workspace
from whence.app import App
from whence.db import Scope
from whence.errors import Conflict, InvalidInput, NotFound, Unauthenticated
from whence.identity import Identity


async def test_a_key_names_its_holder(app: App, workspace: Workspace) -> None:
    key = await app.identity.add_user(workspace.workspace_id, "ann")
    holder = await app.identity.authenticate(key)
    assert (holder.workspace_id, holder.user_id, holder.is_admin) == (workspace.workspace_id, "ann", False)
    assert holder.scope == Scope(workspace.workspace_id, "ann")
    admin = await app.identity.authenticate(workspace.admin_key)
    assert admin.is_admin
    assert admin.scope == Scope(workspace.workspace_id, None)
    assert key.startswith(f"uk_{workspace.workspace_id}.")
    assert workspace.admin_key.startswith("ak_")


async def test_only_a_hash_of_a_key_is_stored(app: App, workspace: Workspace) -> None:
    key = await app.identity.add_user(workspace.workspace_id, "ann")
    secret = key.rsplit(".", 1)[1]
    async with app.database.transaction(Scope(workspace.workspace_id)) as tx:
        rows = await (await tx.execute("SELECT * FROM whence.user_keys")).fetchall()
    assert secret not in repr(rows)
    assert len(rows) == 2


@pytest.mark.parametrize(
    "damage",
    [
        lambda k: k[:-1],
        lambda k: k[:-1] + ("A" if k[-1] != "A" else "B"),
        lambda k: k.upper(),
        lambda _: "",
        lambda _: "uk_default",
        lambda k: k.replace("w-", "v-"),
        lambda k: k + "\x00",
        lambda _: "uk_ü.é.\ud800",
    ],
)
async def test_a_key_that_is_not_exactly_right_is_refused(app: App, workspace: Workspace, damage: object) -> None:
    key = await app.identity.add_user(workspace.workspace_id, "ann")
    with pytest.raises(Unauthenticated) as refused:
        await app.identity.authenticate(damage(key))  # type: ignore[operator]
    assert key not in str(refused.value)


async def test_a_rotated_key_works_beside_the_old_one_until_the_overlap_ends(app: App, workspace: Workspace) -> None:
    now = datetime.now(UTC)
    identity = Identity(app.database, lambda: now)
    old = await identity.add_user(workspace.workspace_id, "ann")
    new = await identity.rotate_key(workspace.workspace_id, "ann", timedelta(hours=1))
    assert old != new
    now += timedelta(minutes=59)
    for key in (old, new):
        assert (await Identity(app.database, lambda: now).authenticate(key)).user_id == "ann"
    now += timedelta(minutes=2)
    later = Identity(app.database, lambda: now)
    assert (await later.authenticate(new)).user_id == "ann"
    with pytest.raises(Unauthenticated):
        await later.authenticate(old)


async def test_a_shorter_overlap_is_not_undone_by_a_later_longer_one(app: App, workspace: Workspace) -> None:
    now = datetime.now(UTC)
    identity = Identity(app.database, lambda: now)
    first = await identity.add_user(workspace.workspace_id, "ann")
    await identity.rotate_key(workspace.workspace_id, "ann", timedelta(0))
    await identity.rotate_key(workspace.workspace_id, "ann", timedelta(days=1))
    with pytest.raises(Unauthenticated):
        await Identity(app.database, lambda: now).authenticate(first)


async def test_revoked_keys_stop_at_once_here_and_within_a_second_elsewhere(app: App, workspace: Workspace) -> None:
    elsewhere = Identity(app.database, app.clock)
    key = await app.identity.add_user(workspace.workspace_id, "ann")
    await app.identity.authenticate(key)
    await elsewhere.authenticate(key)
    assert await app.identity.revoke_keys(workspace.workspace_id, "ann") == 1
    with pytest.raises(Unauthenticated):
        await app.identity.authenticate(key)
    await asyncio.sleep(1.1)
    with pytest.raises(Unauthenticated):
        await elsewhere.authenticate(key)
    assert await app.identity.revoke_keys(workspace.workspace_id, "ann") == 0


async def test_names_are_taken_once(app: App, workspace: Workspace) -> None:
    await app.identity.add_user(workspace.workspace_id, "ann")
    with pytest.raises(Conflict, match="ann exists already"):
        await app.identity.add_user(workspace.workspace_id, "ann")
    with pytest.raises(Conflict, match="exists already"):
        await app.identity.add_workspace(workspace.workspace_id)
    with pytest.raises(NotFound, match="no workspace nowhere"):
        await app.identity.add_user("nowhere", "ann")
    with pytest.raises(NotFound):
        await app.identity.rotate_key(workspace.workspace_id, "stranger", timedelta(0))


@pytest.mark.parametrize("bad", ["", " ", "a b", "x" * 129, "é", "a'b", ".a", "a\x00"])
async def test_a_workspace_id_must_be_plain(app: App, bad: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        await app.identity.add_workspace(bad)
    assert refused.value.errors[0].field == "workspace_id"


@pytest.mark.parametrize("bad", ["", "x" * 257, "a\x00b", "a\nb"])
async def test_a_user_id_must_be_printable(app: App, workspace: Workspace, bad: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        await app.identity.add_user(workspace.workspace_id, bad)
    assert refused.value.errors[0].field == "user_id"


async def test_no_workspace_is_made_when_its_key_cannot_be_kept(app: App) -> None:
    def fail(_: str) -> None:
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        await app.identity.add_workspace("w-unkept", keep=fail)
    assert not await app.identity.workspace_exists("w-unkept")


async def test_the_list_of_users_counts_valid_keys(app: App, workspace: Workspace) -> None:
    await app.identity.add_user(workspace.workspace_id, "ann")
    await app.identity.rotate_key(workspace.workspace_id, "ann", timedelta(hours=1))
    await app.identity.add_user(workspace.workspace_id, "bob")
    await app.identity.revoke_keys(workspace.workspace_id, "bob")
    rows = {row.user_id: (row.role, row.live_keys) for row in await app.identity.list_users(workspace.workspace_id)}
    assert rows == {"admin": ("admin", 1), "ann": ("member", 2), "bob": ("member", 0)}
