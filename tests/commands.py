"""Commands of Whence, each in a process of its own that is forked off one which has imported Whence: to import it takes
longer than most commands do. What they read, write, inherit and answer is as if they had been started by themselves.
"""

import atexit
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Sequence
from pathlib import Path

SECONDS = 60.0


class Commands:
    """Starts the process that the others are forked off, when the first one is."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="whence-commands-")
        self._path = Path(self._folder.name) / "socket"
        self._process: subprocess.Popen[str] | None = None

    def run(self, arguments: Sequence[str], environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
        """To its end, as `subprocess.run` would."""
        if self._process is None:
            self._start()
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err, socket.socket(socket.AF_UNIX) as asked:
            asked.connect(str(self._path))
            asked.settimeout(SECONDS)
            request = {"arguments": arguments, "environment": environment, "folder": str(Path.cwd())}
            socket.send_fds(asked, [b"+"], [out.fileno(), err.fileno()])
            asked.sendall(json.dumps(request).encode() + b"\n")
            with asked.makefile("r") as answers:
                process = int(answers.readline())
                try:
                    code = int(answers.readline())
                except TimeoutError:
                    os.kill(process, signal.SIGKILL)
                    raise
            said = [_read(file.fileno()) for file in (out, err)]
        return subprocess.CompletedProcess(["whence", *arguments], code, *said)

    def _start(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__, str(self._path)], stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "ready\n"

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
        self._folder.cleanup()


def _read(file: int) -> str:
    os.lseek(file, 0, os.SEEK_SET)
    with open(file, encoding="utf-8", closefd=False) as text:
        return text.read()


# In the other process


def _serve(path: str) -> None:
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from whence import cli  # noqa: PLC0415

    # Who waits for a command ends by itself, and nobody waits for it.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(path)
        listening.listen()
        print("ready", flush=True)
        while True:
            asked, _ = listening.accept()
            with asked:
                if os.fork():
                    continue
                listening.close()
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                _wait_for(cli.main, asked)
                os._exit(0)


def _wait_for(main: object, asked: socket.socket) -> None:
    _, (out, err), _, _ = socket.recv_fds(asked, 1, 2)
    with asked.makefile("r") as requests:
        request = json.loads(requests.readline())
    process = os.fork()
    if not process:
        asked.close()
        _become(request, out, err)
        _run(main)
    asked.sendall(b"%d\n" % process)
    _, status = os.waitpid(process, 0)
    with contextlib.suppress(OSError):
        asked.sendall(b"%d\n" % os.waitstatus_to_exitcode(status))


def _become(request: dict[str, object], out: int, err: int) -> None:
    nothing = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((nothing, 0), (out, 1), (err, 2)):
        os.dup2(source, target)
        os.close(source)
    os.environ.clear()
    os.environ.update(request["environment"])  # pyright: ignore[reportArgumentType, reportCallIssue] (JSON)
    os.chdir(str(request["folder"]))
    sys.argv = ["whence", *request["arguments"]]  # pyright: ignore[reportGeneralTypeIssues] (JSON)


def _run(main: object) -> None:
    code = 0
    try:
        main()  # pyright: ignore[reportCallIssue] (a command)
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
        if isinstance(ended.code, str):
            print(ended.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
        code = 1
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError):
            stream.flush()
    os._exit(code)


if __name__ == "__main__":
    _serve(sys.argv[1])
