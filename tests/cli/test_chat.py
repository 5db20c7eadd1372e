"""`whence chat` as it is started: in a pipe and in a terminal, with a model that stands in behind HTTP."""

import contextlib
import fcntl
import functools
import json
import os
import pty
import select
import socket
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from conftest import Server, clean_environment, whence
from key_watch import holds_a_key
from model_stand_in import Messages, Said, StandIn, standing_in

MODEL_KEY = "sk-made-up-77c1"


@pytest.fixture
def hurry() -> Iterator[threading.Event]:
    event = threading.Event()
    yield event
    event.set()


@pytest.fixture
def model(hurry: threading.Event) -> Iterator[StandIn]:
    def reply(messages: Messages) -> Said:
        asked = messages[-1]["content"]
        if asked == "Take your time.":
            # As long as the test asks for it, and no longer than it can wait.
            hurry.wait(60)
        if asked == "Fail.":
            return 401
        if asked == "Be rude.":
            return "\x1b[2JGone."
        return "Peanuts." if "peanuts" in json.dumps(messages[:-1]) else "I do not know."

    with standing_in(reply) as model:
        yield model
        hurry.set()


def environment(model: StandIn, **more: str) -> dict[str, str]:
    return clean_environment() | {"OPENAI_BASE_URL": model.url, "OPENAI_API_KEY": MODEL_KEY} | more


def chat(model: StandIn, said: str, *flags: str | Path, **more: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "whence", "chat", "--model", "openai-chat:m", *map(str, flags)]
    done = subprocess.run(
        command, input=said, capture_output=True, text=True, timeout=120, env=environment(model, **more)
    )
    assert not holds_a_key(done.stdout + done.stderr)
    return done


def test_two_chats_in_pipes_share_a_memory_without_a_server_or_a_key(tmp_path: Path, model: StandIn) -> None:
    where = ("--data-dir", tmp_path / "data")
    first = chat(model, "I am allergic to peanuts.\n\n", *where)
    assert (first.returncode, first.stdout, first.stderr) == (0, "I do not know.\n", "")
    second = chat(model, "What am I allergic to?\n/why\nBe rude.\n/quit\nnever asked\n", *where)
    lines = second.stdout.splitlines()
    assert (second.returncode, second.stderr, lines[0], lines[-1]) == (0, "", "Peanuts.", "·[2JGone.")
    assert any(line.startswith("  said by me (user) on ") for line in lines)
    kept = list((tmp_path / "data" / "chat" / "me").rglob("*.jsonl"))
    assert len(kept) == 2
    for said in (first.stdout, second.stdout, *(path.read_text() for path in kept)):
        assert MODEL_KEY not in said


@pytest.fixture
def curated(tmp_path: Path) -> tuple[str | Path, ...]:
    """Without a gateway, which needs no database."""
    config = tmp_path / "agent.json"
    config.write_text('{"memory": {"mode": "curated"}}')
    return ("--config", config, "--data-dir", tmp_path / "data")


def test_a_prompt_without_an_answer_is_told_and_fails_a_pipe_at_its_end(
    curated: tuple[str | Path, ...], model: StandIn
) -> None:
    done = chat(model, "Fail.\nWhat now?\n", *curated)
    assert (done.returncode, done.stdout) == (1, "\nI do not know.\n")
    assert done.stderr == "whence: the model did not answer: 401, check its key\n"


def test_a_conversation_goes_on_by_its_name_in_a_folder_of_choice(
    curated: tuple[str | Path, ...], model: StandIn, tmp_path: Path
) -> None:
    flags = (*curated, "--session", "bikes", "--notes", tmp_path / "notes")
    chat(model, "I am allergic to peanuts.\n", *flags)
    assert chat(model, "What am I allergic to?\n", *flags).stdout == "Peanuts.\n"
    assert (tmp_path / "notes" / "sessions" / "bikes.jsonl").exists()
    wrong = chat(model, "Hi.\n", *curated, "--session", "../bikes")
    assert (wrong.returncode, wrong.stdout) == (1, "")
    assert wrong.stderr.startswith("whence: a session is called by")


def test_a_gateway_elsewhere_is_used_by_the_file_that_names_it(server: Server, tmp_path: Path, model: StandIn) -> None:
    made = whence("user", "add", "chat-user", "--json", "--data-dir", server.data_dir)
    key = json.loads(made.stdout)["user_key"]
    gateway = {"baseUrl": server.url, "userId": "chat-user", "userKey": key, "scope": ["all_user_memory"]}
    config = tmp_path / "agent.json"
    flags = ("--config", config, "--data-dir", tmp_path / "none")
    config.write_text(json.dumps({"memory": {"mode": "hybrid", "gateway": gateway}}))
    chat(model, "I am allergic to peanuts.\n", *flags)
    second = chat(model, "What am I allergic to?\n/why\n/memory\n", *flags)
    assert second.stdout.startswith("Peanuts.\n")
    assert "said by chat-user (user)" in second.stdout
    assert key not in second.stdout + second.stderr
    # The same file when the gateway is away.
    config.write_text(
        json.dumps({"memory": {"mode": "hybrid", "gateway": gateway | {"baseUrl": "http://127.0.0.1:9"}}})
    )
    away = chat(model, "What am I allergic to?\n/memory\n", *flags)
    assert (away.returncode, away.stderr) == (0, "")
    assert away.stdout.startswith("I do not know.\n")
    assert "the memory gateway failed (network)" in away.stdout
    assert not (tmp_path / "none" / "postgres").exists()


def test_a_whence_that_cannot_be_opened_leaves_notes_and_answers(tmp_path: Path, model: StandIn) -> None:
    nowhere = "postgresql://nobody@127.0.0.1:9/nothing"
    done = chat(model, "Hi.\n", "--data-dir", tmp_path / "data", "--database-url", nowhere)
    assert (done.returncode, done.stdout) == (0, "I do not know.\n")
    assert done.stderr.endswith("whence: nothing is recalled meanwhile; notes are there\n")


def test_what_cannot_work_is_one_line_before_anything_is_opened(tmp_path: Path, model: StandIn) -> None:
    config = tmp_path / "agent.json"
    config.write_text('{"memory": {"mode": "hybrid", "gateway": {"userKey": "uk_secret"}}}')
    wrong = chat(model, "Hi.\n", "--config", config)
    assert (wrong.returncode, wrong.stdout, wrong.stderr.count("\n")) == (1, "", 1)
    assert wrong.stderr.startswith("whence: memory.gateway.baseUrl")
    assert "uk_secret" not in wrong.stderr
    unknown = whence("chat", "--model", "no-such:m", "--data-dir", tmp_path / "data")
    assert (unknown.returncode, unknown.stdout) == (1, "")
    assert unknown.stderr.startswith("whence: there is no model no-such:m here")
    keyless = whence("chat", "--model", "openai-chat:m", "--data-dir", tmp_path / "data", OPENAI_API_KEY="")
    assert (keyless.returncode, keyless.stderr.count("\n")) == (1, 1)
    assert keyless.stderr.startswith("whence: there is no model openai-chat:m here")
    assert "OPENAI_API_KEY" in keyless.stderr
    assert not (tmp_path / "data").exists()
    assert whence("chat").returncode == 2


def test_without_the_extra_only_this_command_is_missing(tmp_path: Path) -> None:
    program = (
        "import sys; sys.modules['pydantic_ai'] = None; from whence.__main__ import main; "
        "sys.argv[0] = 'whence'; main()"
    )
    command = [sys.executable, "-c", program, "chat", "--model", "m", "--data-dir", str(tmp_path / "data")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=clean_environment())
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "whence: `whence chat` needs pydantic_ai: pip install 'whence[chat]'\n"


def test_no_other_command_loads_it() -> None:
    program = "import sys, whence.cli; print([n for n in ('pydantic_ai', 'openai', 'agents') if n in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.stdout == "[]\n"


@dataclass
class Screen:
    """What a terminal shows, read up to something that is waited for; what came with it is read the next time."""

    terminal: int
    left: str = ""

    def until(self, wanted: str) -> str:
        while wanted not in self.left:
            ready, _, _ = select.select([self.terminal], [], [], 60)
            assert ready, f"{wanted!r} did not come after {self.left!r}"
            self.left += os.read(self.terminal, 1024).decode()
        before, _, self.left = self.left.partition(wanted)
        return before + wanted

    def type(self, keys: bytes) -> None:
        os.write(self.terminal, keys)


@contextmanager
def terminal(model: StandIn, *flags: str | Path) -> Iterator[tuple[Screen, subprocess.Popen[bytes]]]:
    """Of its own, so that Ctrl-C reaches the command in it, and as if nobody were testing."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "whence", "chat", "-m", "openai-chat:m", *map(str, flags), "--session", "s1"]
    tested = ("CI", "PYTEST_VERSION", "PYTEST_CURRENT_TEST")
    env = {name: value for name, value in environment(model, TERM="dumb").items() if name not in tested}
    streams = {"stdin": theirs, "stdout": theirs, "stderr": theirs}
    take = functools.partial(fcntl.ioctl, 0, termios.TIOCSCTTY, 0)
    with subprocess.Popen(command, env=env, start_new_session=True, preexec_fn=take, **streams) as process:
        os.close(theirs)
        try:
            yield Screen(ours), process
        finally:
            # Nobody types any more.
            process.kill()
    os.close(ours)


def test_a_terminal_has_a_prompt_can_stop_an_answer_and_is_left_by_its_end(
    curated: tuple[str | Path, ...], model: StandIn
) -> None:
    with terminal(model, *curated) as (screen, process):
        seen = screen.until("> ")
        assert "conversation s1; /help shows the commands" in seen
        screen.type(b"Hi there.\n")
        seen += screen.until("I do not know.") + screen.until("> ")
        screen.type(b"Take your time.\n")
        _wait_for(lambda: len(model.asked) == 2)
        screen.type(b"\x03")
        seen += screen.until("(stopped; nothing is kept of this)") + screen.until("> ")
        screen.type(b"And again.\n")
        seen += screen.until("I do not know.") + screen.until("> ")
        screen.type(b"\x04")
        # What comes next, the prompt of a shell, begins at the margin.
        screen.until("\n")
        assert process.wait(30) == 0
    assert "Traceback" not in seen
    assert "pydantic" not in seen.lower(), "nor an advertisement of what it is built with"
    assert [message["content"] for message in model.given[2][1:]] == ["Hi there.", "I do not know.", "And again."]


def test_a_gateway_that_hangs_is_named_and_ctrl_c_keeps_the_answer(model: StandIn, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as hanging:
        gateway = {"baseUrl": f"http://127.0.0.1:{hanging.getsockname()[1]}", "userId": "ann", "userKey": "uk_secret"}
        config = tmp_path / "agent.json"
        config.write_text(json.dumps({"memory": {"mode": "hybrid", "gateway": gateway | {"timeoutSeconds": 4}}}))
        with terminal(model, "--config", config, "--notes", tmp_path / "notes") as (screen, process):
            screen.until("> ")
            screen.type(b"Hi there.\n")
            assert "know" not in screen.until("(waiting for the memory gateway)")
            screen.until("I do not know.\r\n")
            # It was searched, and now it is told.
            hanging.settimeout(30)
            called = [hanging.accept() for _ in range(2)]
            screen.type(b"\x03")
            screen.until("(stopped; this is kept, but the memory gateway may not know of it)")
            screen.until("> ")
            # What is typed before the prompt has begun to read is noticed with the next key only.
            for _ in range(30):
                screen.type(b"\x03")
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(1)
                    break
            assert process.returncode == 130
        for connection, _ in called:
            connection.close()
    assert '"answer":"I do not know."' in (tmp_path / "notes" / "sessions" / "s1.jsonl").read_text()


def _wait_for(happened: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.02)
