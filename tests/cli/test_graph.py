"""`whence lineage`, `rebuild` and `worker` as a person or a script uses them."""

import json
import signal
import subprocess
import sys
import uuid
from pathlib import Path

import pytest
from prov.model import ProvDocument

from conftest import Workspace, clean_environment, serving, whence
from samples import event, sample
from whence.app import App


@pytest.fixture
def where(workspace: Workspace, data_dir: Path) -> tuple[str | Path, ...]:
    return ("-w", workspace.workspace_id, "--data-dir", data_dir)


async def test_lineage_is_told_drawn_and_exported(
    app: App, workspace: Workspace, where: tuple[str | Path, ...], tmp_path: Path
) -> None:
    question = {"messages": [{"role": "user", "content": "Is it raining in Oslo?"}]}
    root = event(question, event_type="agent.invoke", agent_id="forecaster")
    tool = event({"arguments": {"city": "Oslo"}}, tool_name="get_weather", parent_event_id=root.event_id)
    await app.ledger.append(workspace.admin, [root, tool])
    picture, prov = tmp_path / "why.svg", tmp_path / "why.json"
    done = whence("lineage", str(tool.event_id), "--graph", picture, "--prov", prov, *where)
    assert (done.returncode, done.stderr) == (0, "")
    for words in ("tool.execute", "get_weather(city: Oslo)", "agent.invoke", "Is it raining in Oslo?", "direct"):
        assert words in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert "get_weather" in picture.read_text()
    assert ProvDocument.deserialize(content=prov.read_text(), format="json").records
    down = json.loads(whence("lineage", str(root.event_id), "--down", "--json", *where).stdout)
    assert list(down["nodes"]) == [str(root.event_id), str(tool.event_id)]


def test_what_is_not_there_is_one_line(where: tuple[str | Path, ...], tmp_path: Path) -> None:
    done = whence("lineage", str(uuid.uuid4()), *where)
    assert (done.returncode, done.stderr) == (1, "whence: there is no such event\n")
    done = whence("lineage", str(uuid.uuid4()), "-w", "nobody's", *where[2:])
    assert (done.returncode, done.stderr) == (1, "whence: there is no workspace nobody's\n")
    done = whence("rebuild", "-w", "nobody's", *where[2:])
    assert (done.returncode, done.stderr) == (1, "whence: there is no workspace nobody's\n")
    assert whence("lineage", "x", *where).returncode == 2


async def test_a_picture_that_cannot_be_written_is_told(
    app: App, workspace: Workspace, where: tuple[str | Path, ...], tmp_path: Path
) -> None:
    one = event()
    await app.ledger.append(workspace.admin, [one])
    done = whence("lineage", str(one.event_id), "--graph", tmp_path / "no" / "x.svg", *where)
    assert done.returncode == 1
    assert done.stderr.startswith("whence: ")
    assert "cannot be written" in done.stderr


async def test_rebuild_compares_and_tells_what_is_set_aside(
    app: App, workspace: Workspace, where: tuple[str | Path, ...]
) -> None:
    await app.ledger.append(workspace.admin, [event(), event({"summarizes": 1}, event_type="session.summary")])
    done = whence("rebuild", "--verify", *where)
    assert (done.returncode, done.stderr) == (0, "")
    assert "set aside: the event on position 2: summarizes" in done.stdout
    assert done.stdout.splitlines()[-1] == "equal"
    answer = json.loads(whence("rebuild", "--json", *where).stdout)
    assert (answer["equal"], answer["swapped"], answer["position"]) == (True, True, 2)
    assert [item["position"] for item in answer["set_aside"]] == [2]


def test_a_worker_alone_does_what_a_server_leaves_to_it(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    with serving(data_dir, tmp_path / "log", "--no-worker") as server, server.client(server.admin_key) as client:
        root, child = sample(event_type="agent.invoke"), sample()
        child["parent_event_id"] = root["event_id"]
        client.post("/v1/events", json={"events": [root, child]}).raise_for_status()
        path = f"/v1/events/{child['event_id']}/lineage"
        waiting = client.get(path, params={"wait_for": 2, "timeout_ms": 100}).json()
        assert waiting["meta"]["timed_out"]
        assert waiting["meta"]["position"] == 0
        command = [sys.executable, "-m", "whence", "worker", "--data-dir", str(data_dir)]
        worker = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=clean_environment())
        try:
            atlas = client.get(path, params={"wait_for": 2, "timeout_ms": 30_000}).json()
            assert list(atlas["nodes"]) == [child["event_id"], root["event_id"]]
        finally:
            worker.send_signal(signal.SIGTERM)
            assert worker.wait(30) == 0
            assert worker.stdout is not None
            worker.stdout.close()


def test_ctrl_c_ends_a_command_whatever_the_driver_makes_of_it() -> None:
    program = """
import asyncio, os, signal, sys
from whence import cli

async def interrupted() -> None:
    asyncio.get_running_loop().call_later(0.1, os.kill, os.getpid(), signal.SIGINT)
    try:
        await asyncio.sleep(10)
    except asyncio.CancelledError:
        raise TypeError("an integer is required") from None

try:
    cli.run(interrupted())
except KeyboardInterrupt:
    sys.exit(130)
"""
    assert subprocess.run([sys.executable, "-c", program], timeout=30, env=clean_environment()).returncode == 130
