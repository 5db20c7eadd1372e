"""The README's first screen, run as a newcomer would."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import Server, clean_environment, serving

README = (Path(__file__).parent.parent / "README.md").read_text()


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Server:
    """`make run`, but for the folder and the port."""
    folder = tmp_path_factory.mktemp("readme")
    with serving(folder / ".whence", folder / "log") as server:
        yield server


def block(language: str) -> str:
    found = re.search(rf"```{language}\n(.*?)```", README, re.DOTALL)
    assert found
    return found[1]


def test_the_first_event_and_its_lineage_take_20_lines_and_work(fresh: Server) -> None:
    program = block("python")
    assert len([line for line in program.splitlines() if line.strip()]) <= 20
    program = program.replace("http://127.0.0.1:8010", fresh.url)
    environment = clean_environment() | {"HOME": str(fresh.data_dir.parent)}
    for accepted, duplicates in ((2, 0), (0, 2)):
        done = subprocess.run([sys.executable, "-"], input=program, text=True, capture_output=True, env=environment)
        assert done.returncode == 0, done.stderr
        lines = done.stdout.splitlines()
        assert f"'accepted': {accepted}, 'rejected': 0, 'duplicates': {duplicates}" in lines[0]
        assert lines[1].startswith("2 tool.execute")
        assert lines[2].strip() == "{'overdue': 3}"
        assert lines[3].startswith("1 agent.invoke")
        assert lines[4].strip() == "{'text': 'Which invoices are overdue?'}"


def test_the_client_remembers_recalls_and_explains_without_a_server_or_beside_one(fresh: Server) -> None:
    program = re.findall(r"```python\n(.*?)```", README, re.DOTALL)[1]
    assert len([line for line in program.splitlines() if line.strip()]) <= 8
    environment = clean_environment() | {"HOME": str(fresh.data_dir.parent)}
    done = subprocess.run([sys.executable, "-"], input=program, text=True, capture_output=True, env=environment)
    assert (done.returncode, done.stderr) == (0, "")
    recalled, summary, position = done.stdout.splitlines()
    assert recalled == "['Ada prefers tea']"
    assert summary.startswith("ada told concierge on ")
    assert int(position) > 0


def test_the_commands_of_the_first_screen_are_make_targets() -> None:
    makefile = (Path(__file__).parent.parent / "Makefile").read_text()
    commands = re.findall(r"^make (\w+)", block("sh"), re.MULTILINE)
    assert commands == ["run", "test"]
    for command in commands:
        assert re.search(rf"^{command}:", makefile, re.MULTILINE)


def test_the_first_screen_is_one_screen() -> None:
    """Down to the end of the example: what a newcomer reads before the first event is stored."""
    first = README[: README.index("It prints the tool call")]
    assert len(first.splitlines()) <= 50
