"""The detached process that stops the embedded server once nobody uses it. `embedded` tells the protocol.

It is run by its path as `python -I -S watchdog.py DATA_DIR SOCKET LOCK`, where LOCK is the descriptor of the
locked `watchdog.lock`: so it needs only the standard library and is known to live from its first instant.
"""

import contextlib
import os
import shutil
import signal
import socket
import struct
import sys
import time
from pathlib import Path

if sys.platform != "win32":
    import fcntl

LOG_BYTES = 4 * 1024 * 1024
LOG_CHECK_SECONDS = 60.0
POLL_SECONDS = 0.02
ASK_AGAIN_SECONDS = 2.0
# A fast shutdown may take a checkpoint. Postgres 18 hangs in one that comes while it restarts after the crash
# of a backend; what follows is an immediate shutdown, which loses nothing and costs a recovery.
FAST_SHUTDOWN_SECONDS = 30.0
# A server that cannot be reached for this long is ending for another reason; the next start waits for it.
UNREACHABLE_SECONDS = 10.0


def open_lock(data_dir: Path, name: str, *, create: bool = True) -> int:
    """Open a lock file, which is never unlinked: a lock on a file without a name would exclude nobody."""
    flags = os.O_RDWR | os.O_CREAT if create else os.O_RDONLY
    return os.open(data_dir / f"{name}.lock", flags | os.O_CLOEXEC, 0o600)


def try_lock(lock: int, *, shared: bool = False) -> bool:
    try:
        fcntl.flock(lock, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def is_free(lock: int) -> bool:
    if not try_lock(lock, shared=True):
        return False
    fcntl.flock(lock, fcntl.LOCK_UN)
    return True


def wait_until_free(lock: int, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not is_free(lock):
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_SECONDS)
    return True


def main(data_dir: Path, socket_path: str, own_lock: int) -> None:
    init, lease, server = (open_lock(data_dir, name) for name in ("init", "lease", "server"))
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    if os.fork():
        # The starter waits for this exit only. The child belongs to init and leaves the starter no zombie.
        os._exit(0)
    _bound_log_every_minute(data_dir / "postgres.log")
    _wait_for_last_lease(init, lease)
    _stop_server(data_dir, socket_path, server)
    # A starter that gets init.lock must not see this watchdog alive, and exit frees locks in no set order.
    os.close(own_lock)


def _wait_for_last_lease(init: int, lease: int) -> None:
    """Return with both locks held, when no process has a lease and none can take one.

    A starter takes init.lock before its lease, so holding the lease while waiting for init.lock would
    deadlock: the lease is let go, and asked for again under init.lock.
    """
    while True:
        fcntl.flock(lease, fcntl.LOCK_EX)
        fcntl.flock(lease, fcntl.LOCK_UN)
        fcntl.flock(init, fcntl.LOCK_EX)
        if try_lock(lease):
            return
        fcntl.flock(init, fcntl.LOCK_UN)


def _stop_server(data_dir: Path, socket_path: str, server: int) -> None:
    begun = reached = time.monotonic()
    while not is_free(server) and _still_ours(data_dir, server):
        now = time.monotonic()
        if postmaster := _postmaster(data_dir, socket_path):
            reached = now
            is_patient = now - begun < FAST_SHUTDOWN_SECONDS
            with contextlib.suppress(ProcessLookupError):
                os.kill(postmaster, signal.SIGINT if is_patient else signal.SIGQUIT)
            # Each probe makes the postmaster fork, so one that is stopping is left in peace for a while.
            wait_until_free(server, ASK_AGAIN_SECONDS)
        elif now - reached > UNREACHABLE_SECONDS:
            return
        time.sleep(POLL_SECONDS)


def _still_ours(data_dir: Path, server: int) -> bool:
    """False if the folder was replaced by another one, whose server this process must not stop."""
    try:
        return os.path.samestat(os.fstat(server), os.stat(data_dir / "server.lock"))
    except FileNotFoundError:
        return False


def _postmaster(data_dir: Path, socket_path: str) -> int:
    """Its pid, or 0 if nobody listens: the pid file alone may be old, and its pid a stranger's by now.

    Linux says who listens, also if that is a process of another container, which has no pid here.
    """
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(1.0)
        if probe.connect_ex(socket_path):
            return 0
        if sys.platform == "linux":
            return struct.unpack("3i", probe.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]
    with contextlib.suppress(OSError, ValueError, IndexError):
        return int((data_dir / "pgdata" / "postmaster.pid").read_text().split()[0])
    return 0


def _bound_log_every_minute(log: Path) -> None:
    def bound(*_: object) -> None:
        with contextlib.suppress(OSError):
            bound_log(log)

    signal.signal(signal.SIGALRM, bound)
    signal.setitimer(signal.ITIMER_REAL, LOG_CHECK_SECONDS, LOG_CHECK_SECONDS)
    bound()


def bound_log(log: Path) -> None:
    """Keep one older file. The server appends, so it goes on at the start of the truncated one."""
    if log.stat().st_size > LOG_BYTES:
        shutil.copyfile(log, log.with_suffix(".log.1"))
        os.truncate(log, 0)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
