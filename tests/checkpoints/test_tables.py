"""The tables of LangGraph: made once, by its own set-up, whoever comes first; and nobody's who had some before."""

import asyncio
from collections.abc import Iterator

import pytest
from psycopg import AsyncConnection, Connection

from conftest import Workspace
from saving import Gateway, at, put, said_in
from whence.app import App
from whence.db import embedded, enter
from whence.errors import DatabaseError
from whence.langgraph.gateway import make_tables
from whence.langgraph.tables import set_up


@pytest.fixture
def platform(owner: Connection) -> Iterator[str]:
    """A role of somebody else's, with a table of its own, that was made a member of the server's."""
    owner.execute("CREATE ROLE a_platform NOLOGIN")
    owner.execute("GRANT whence_app TO a_platform")
    owner.execute("GRANT a_platform TO whence_owner")
    owner.execute("CREATE SCHEMA a_platform AUTHORIZATION a_platform")
    yield "a_platform"
    owner.execute("DROP SCHEMA a_platform CASCADE")
    owner.execute("DROP ROLE a_platform")


async def test_they_are_made_once_by_whoever_comes_first(
    app: App, gateway: Gateway, workspace: Workspace, owner: Connection, postgres: embedded.EmbeddedServer
) -> None:
    await put(gateway().for_(workspace.user("ann")), "t", "lost")
    owner.execute("DROP SCHEMA langgraph CASCADE")
    # Without LangGraph a thread is a row like others.
    assert await gateway().delete_threads(workspace.workspace_id, [("ann", "t")]) == 1
    await asyncio.gather(*[make_tables(app.settings) for _ in range(3)])
    assert not await make_tables(app.settings)
    await put(gateway().for_(workspace.user("ann")), "t", "said")
    # As after an upgrade of the framework, and with a login that may not.
    owner.execute(
        "DELETE FROM langgraph.checkpoint_migrations WHERE v = (SELECT max(v) FROM langgraph.checkpoint_migrations)"
    )
    with pytest.raises(DatabaseError, match="whence checkpoints setup"):
        await set_up(postgres.app_conninfo, postgres.app_conninfo)
    assert await make_tables(app.settings)
    assert await said_in(gateway().for_(workspace.user("ann")), "t") == ["said"] * 4


async def test_checkpoints_of_another_saver_are_left_alone(app: App, gateway: Gateway, owner: Connection) -> None:
    for policy in ("of_user", "of_workspace"):
        owner.execute(f"DROP POLICY {policy} ON langgraph.checkpoints".encode())
    owner.execute("REVOKE ALL ON langgraph.checkpoint_writes FROM whence_app")
    owner.execute("INSERT INTO langgraph.checkpoints VALUES ('theirs', '', '1', NULL, NULL, '{}', '{}')")
    try:
        with pytest.raises(DatabaseError, match="not Whence's"):
            await make_tables(app.settings)
    finally:
        owner.execute("DELETE FROM langgraph.checkpoints")
        await make_tables(app.settings)


async def test_a_platform_keeps_its_own_rights_in_a_transaction_that_it_enters(
    gateway: Gateway, workspace: Workspace, postgres: embedded.EmbeddedServer, platform: str
) -> None:
    ann = workspace.user("ann")
    async with await AsyncConnection.connect(postgres.owner_conninfo) as conn:
        await conn.execute("SET ROLE a_platform")
        await conn.execute("CREATE TABLE a_platform.checkpoints (thread_id text)")
        await conn.execute("SET search_path = a_platform")
        await enter(conn, ann.scope)
        await conn.execute("INSERT INTO checkpoints VALUES ('an order')")
        await put(gateway().for_(ann, tx=conn), "t", "said")
        assert await said_in(gateway().for_(ann, tx=conn), "t") == ["said"] * 4
        assert await (await conn.execute("SELECT thread_id FROM checkpoints")).fetchall() == [("an order",)]
        await conn.commit()
    assert await said_in(gateway().for_(ann), "t") == ["said"] * 4
    assert await gateway().for_(workspace.user("bob")).aget_tuple(at("t")) is None
