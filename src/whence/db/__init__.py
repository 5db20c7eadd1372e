"""The database: who a transaction is, where it runs, and what its failures mean.

Every transaction starts by saying who it is for. A `Scope` with a user sees that user's rows; one without sees the
whole workspace. The names of the two session variables are a contract with the row-level security policies and with
anybody who writes SQL against a Whence database.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterable
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Final, NamedTuple, Self

import psycopg
from psycopg import AsyncConnection, pq, sql
from psycopg_pool import AsyncConnectionPool, PoolClosed, PoolTimeout

from whence.db.trip import Said, close, one_trip
from whence.errors import DatabaseError, Unavailable

SESSION_VAR_WORKSPACE_ID: Final = "app.workspace_id"
SESSION_VAR_USER_ID: Final = "app.user_id"

APP_ROLE: Final = "whence_app"
WORKSPACE_ROLE: Final = "whence_workspace"
WORKER_ROLE: Final = "whence_worker"

POOL_MAX_CONNECTIONS = 16
TRIP_MAX_CONNECTIONS = 8
POOL_WAIT_SECONDS = 10.0
STALLED_SECONDS = 2.0
"""Between two parts of a trip, which this process sends one right after the other. If it is stopped there, and not
killed, others wait so long for what the trip has locked."""

# That a connection is closed is no news: it was given up in the middle of an answer, or the server has ended, which
# whoever asks is told.
logging.getLogger("psycopg.pool").addFilter(lambda record: not record.msg.startswith("discarding closed connection"))

_STALE: Final = (
    psycopg.errors.InvalidSqlStatementName,
    psycopg.errors.DuplicatePreparedStatement,
    psycopg.errors.FeatureNotSupported,
)
"""What is prepared on a connection is not what the database knows there, or what it makes of it."""

Tx = AsyncConnection[tuple[Any, ...]]
"""A connection inside a transaction that has its scope set. Verbs take it first; whoever opened it commits."""


class Scope(NamedTuple):
    """On whose behalf a transaction runs: a user of a workspace, or (`user_id` None) the workspace itself."""

    workspace_id: str
    user_id: str | None = None

    def values(self, **more: object) -> dict[str, object]:
        """What a statement is given of it, and more."""
        return {"workspace_id": self.workspace_id, "user_id": self.user_id, **more}


class EveryWorkspace:
    """On behalf of none: sees how far each workspace has come and what it waits for, and nothing of what is in it."""


EVERY_WORKSPACE: Final = EveryWorkspace()


async def enter(conn: Tx, scope: Scope) -> None:
    """Says in a transaction of somebody else's, on a connection of theirs, who it is for, until it ends.

    For a user the login keeps its rights, so that it reaches its own tables as well; it is a member of `whence_app`.
    """
    await conn.execute(b"; ".join(_opening(conn, scope)[1:]), prepare=False)


class Database:
    """A pool of connections as the role that owns nothing."""

    def __init__(
        self,
        conninfo: str,
        max_connections: int = POOL_MAX_CONNECTIONS,
        revive: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._revive = revive
        self._reviving: asyncio.Task[None] | None = None
        self._pool = _pool(conninfo, 2, max_connections, 0, _become_app)
        # Apart, because psycopg drops all prepared statements of a connection whose own ones must go.
        trips = min(max_connections, TRIP_MAX_CONNECTIONS)
        self._trips = _pool(conninfo, 1, trips, None, _become_app_for_trips)
        self._kept: Tx | None = None
        """Of those, one that waits for the next trip: a workspace has one trip at a time, a backend that has just made
        one is quicker at the next, and to give it back and ask for it again takes longer than to send the trip."""
        self._asking = 0
        """Trips that wait for a connection."""

    async def __aenter__(self) -> Self:
        try:
            await self._pool.open(wait=True, timeout=POOL_WAIT_SECONDS)
            await self._trips.open()
        except PoolTimeout as error:
            await self._pool.close()
            raise DatabaseError("the database does not answer: is it running, and is its URL right?") from error
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._give_back()
        await self._trips.close()
        await self._pool.close()

    @asynccontextmanager
    async def transaction(
        self, scope: Scope | EveryWorkspace | None, timeout_ms: int | None = None, snapshot: bool = False
    ) -> AsyncGenerator[Tx]:
        """Commits when the block ends, rolls back when it raises. Without a scope it sees no tenant's row.

        A statement that takes longer than `timeout_ms` is cancelled by the database, with psycopg's QueryCanceled.
        With `snapshot` it only reads, and all its statements see the same moment.
        """
        with _unavailable_when_unreachable(cancelled=timeout_ms is None):
            conn = await self._begin(scope, timeout_ms, snapshot)
            try:
                async with conn:
                    try:
                        yield conn
                    except asyncio.CancelledError:
                        if conn.pgconn.transaction_status == pq.TransactionStatus.ACTIVE:
                            # Given up twice, in the middle of an answer: nothing can be said on it any more.
                            await conn.close()
                        raise
            finally:
                await self._pool.putconn(conn)

    async def one_trip(self, scope: Scope, statements: Iterable[Said | None]) -> list[pq.abc.PGresult]:
        """The statements as one transaction, committed when this returns; what gave rows. They may be made as they are
        asked for, and None among them has the database work on those before it meanwhile."""
        with _unavailable_when_unreachable():
            conn = await self._for_a_trip()
            try:
                opening = _opening(conn, scope)
                kept = len(opening) - (scope.user_id is not None)
                made = await one_trip(conn, opening[:kept], opening[kept:], statements)
            except BaseException as error:
                await self._given_up(conn, error)
                if isinstance(error, _STALE):
                    raise Unavailable("the database has changed below this connection; try again") from error
                raise
            if self._kept is None and not self._asking and not self._trips.closed:
                self._kept = conn
            else:
                await self._trips.putconn(conn)
            return made

    async def _for_a_trip(self) -> Tx:
        conn, self._kept = self._kept, None
        if conn is not None:
            return conn
        self._asking += 1
        try:
            return await _taken(self._trips)
        finally:
            self._asking -= 1

    async def _give_back(self) -> None:
        conn, self._kept = self._kept, None
        if conn is not None:
            await self._trips.putconn(conn)

    async def _given_up(self, conn: Tx, error: BaseException) -> None:
        try:
            if isinstance(error, psycopg.OperationalError) and conn.closed:
                # Where one connection has died, the others probably have too. Some of these errors are told by a server
                # that lives, such as that a row is too big.
                await close(conn)
                await self._revived()
                await self._give_back()
                await self._trips.check()
            elif conn.pgconn.pipeline_status != pq.PipelineStatus.OFF or isinstance(error, _STALE):
                # Given up in the middle of an answer, or of what is sent, the connection is of no use to anybody. What
                # was sent on it may be committed all the same.
                await close(conn)
            elif isinstance(error, psycopg.Error):
                await conn.rollback()
        finally:
            await self._trips.putconn(conn)

    async def schema_version(self) -> int:
        """The last migration that was applied, perhaps by a newer Whence beside this one. Raises Unavailable where the
        database does not answer."""
        async with self.transaction(None) as tx:
            row = await (await tx.execute("SELECT max(version) FROM whence.schema_migrations")).fetchone()
        return row[0] if row else 0

    async def _begin(
        self, scope: Scope | EveryWorkspace | None, timeout_ms: int | None = None, snapshot: bool = False
    ) -> Tx:
        """A connection may have died in the pool, with the server that it was to, and nothing was sent on it yet."""
        # All that the pool holds may have; the one after them is new.
        for _ in range(self._pool.max_size + 1):
            conn = await _taken(self._pool)
            opening = _opening(conn, scope)
            if timeout_ms is not None:
                opening.append(b"SET LOCAL statement_timeout = %d" % timeout_ms)
            if snapshot:
                opening[0] = b"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
            try:
                await conn.execute(b"; ".join(opening), prepare=False)
            except psycopg.OperationalError:
                await self._revived()
                await self._pool.putconn(conn)
            except BaseException:
                await conn.close()
                await self._pool.putconn(conn)
                raise
            else:
                return conn
        raise Unavailable("the database does not answer")

    async def _revived(self) -> None:
        """Before the pool makes a new connection in place of one that died, there should be a server to connect to."""
        if self._revive is None:
            return
        if self._reviving is None or self._reviving.done():
            self._reviving = asyncio.ensure_future(self._revive())
        await asyncio.shield(self._reviving)


def _pool(
    conninfo: str,
    kept: int,
    max_connections: int,
    prepare_threshold: int | None,
    configure: Callable[[Tx], Awaitable[None]],
) -> AsyncConnectionPool[Tx]:
    return AsyncConnectionPool(
        conninfo,
        connection_class=AsyncConnection[tuple[Any, ...]],
        min_size=kept,
        max_size=max_connections,
        timeout=POOL_WAIT_SECONDS,
        kwargs={"autocommit": True, "prepare_threshold": prepare_threshold},
        configure=configure,
        open=False,
    )


async def _taken(pool: AsyncConnectionPool[Tx]) -> Tx:
    """A connection, unless whoever asks was told to give up meanwhile: the pool does not tell them where that comes in
    the moment in which it hands one over."""
    task = asyncio.current_task()
    told = task.cancelling() if task is not None else 0
    conn = await pool.getconn()
    if task is not None and task.cancelling() > told:
        await pool.putconn(conn)
        raise asyncio.CancelledError
    return conn


def _opening(conn: Tx, scope: Scope | EveryWorkspace | None) -> list[bytes]:
    """How a transaction begins. The values are literals because `set_config()` does not reach the shards of Citus."""
    if scope is None:
        return [b"BEGIN"]
    if isinstance(scope, EveryWorkspace):
        # The library that works jobs names its tables without a schema.
        return [b"BEGIN", b"SET LOCAL ROLE " + WORKER_ROLE.encode(), b"SET LOCAL search_path = whence_jobs"]
    quote = pq.Escaping(conn.pgconn).escape_literal
    workspace = b"SET LOCAL %b = %b" % (SESSION_VAR_WORKSPACE_ID.encode(), quote(scope.workspace_id.encode()))
    if scope.user_id is None:
        return [b"BEGIN", b"SET LOCAL ROLE " + WORKSPACE_ROLE.encode(), workspace]
    user = b"SET LOCAL %b = %b" % (SESSION_VAR_USER_ID.encode(), quote(scope.user_id.encode()))
    return [b"BEGIN", workspace, user]


async def _become_app(conn: Tx) -> None:
    """Gives up what the login may have beyond the app role, so that an owner's URL is not an owner's session."""
    await conn.execute(sql.SQL("SET ROLE {}").format(sql.Identifier(APP_ROLE)))
    await conn.execute("SET statement_timeout = '60s'")
    await conn.execute("SET TimeZone = 'UTC'")
    # Statements are few and written so that one plan fits all values; planning anew costs more than most take to run.
    await conn.execute("SET plan_cache_mode = force_generic_plan")
    await conn.execute("SET idle_in_transaction_session_timeout = '60s'")


async def _become_app_for_trips(conn: Tx) -> None:
    await _become_app(conn)
    stalled = sql.Literal(f"{STALLED_SECONDS}s")
    await conn.execute(sql.SQL("SET idle_in_transaction_session_timeout = {}").format(stalled))


@contextmanager
def _unavailable_when_unreachable(cancelled: bool = True) -> Generator[None]:
    """`cancelled`: a statement that took too long counts too. Who set a bound of its own wants to know it instead."""
    try:
        yield
    except psycopg.errors.ProgramLimitExceeded:
        # The database answers; what it was given is too large for it.
        raise
    except psycopg.errors.QueryCanceled as error:
        if not cancelled:
            raise
        raise Unavailable("the database does not answer in time") from error
    except (psycopg.OperationalError, psycopg.InterfaceError, psycopg.InternalError, PoolTimeout, PoolClosed) as error:
        raise Unavailable("the database does not answer") from error
