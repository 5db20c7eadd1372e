"""`whence eval` as a person or a script uses it: on a throwaway Whence, and on one that is served."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import httpx
import pytest

from conftest import Server, Workspace, clean_environment, whence
from small_sets import locomo, longmemeval, written
from tiny_models import likings, make_scorer, write_model
from whence.app import App
from whence.settings import Settings


@pytest.fixture
def elsewhere(tmp_path: Path) -> dict[str, str]:
    """An environment in which a home and a database are named that must not be touched."""
    for name in ("home", "tmp"):
        (tmp_path / name).mkdir()
    return {
        "HOME": str(tmp_path / "home"),
        "TMPDIR": str(tmp_path / "tmp"),
        "WHENCE_DATABASE_URL": "postgresql://nobody@127.0.0.1:1/none",
        "whence_key_file": str(tmp_path / "home" / "kek.key"),
        "COLUMNS": "80",
    }


def nothing_is_left(environment: dict[str, str]) -> bool:
    return not any(any(Path(environment[name]).iterdir()) for name in ("HOME", "TMPDIR"))


def test_a_locomo_set_is_measured_by_several_methods(tmp_path: Path, elsewhere: dict[str, str]) -> None:
    path, out = written(tmp_path, locomo()), tmp_path / "a" / "out"
    done = whence("eval", path, "--method", "full", "--method", "bm25", "--out", out, **elsewhere)
    assert done.returncode == 0, done.stderr
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert done.stdout.startswith("set.json: 2 questions (1 more have no evidence), 1 conversations, 4 turns\n")
    assert "against full: R@10 " in done.stdout
    report = json.loads((out / "recall.json").read_bytes())
    assert set(report["methods"]) == {"full", "bm25"}
    assert set(report["methods"]["full"]["by_turn"]) == {"single-hop", "multi-hop", "all"}
    assert report["methods"]["full"]["by_turn"]["all"]["figures"]["recall@5"]["mean"] == 1
    assert report["methods"]["full"]["by_session"] == {}
    first, second = report["questions"]
    assert first["answers"]["full"]["turns"] == {"D1:1": 1}
    assert set(second["answers"]["bm25"]["turns"]) == {"D2:1", "D1:1"}
    assert report["weights"]["words"]
    assert report["embedder"]
    picture = ElementTree.parse(out / "recall.svg")
    assert "Recall on set.json" in "".join(picture.getroot().itertext())
    assert nothing_is_left(elsewhere)


def test_a_longmemeval_set_is_measured_by_turn_and_by_session(tmp_path: Path, elsewhere: dict[str, str]) -> None:
    items = longmemeval()
    # Longer than Whence takes in one piece, with what answers in the second.
    items[0]["haystack_sessions"][1][0]["content"] = "Well, well. " * 2_000 + "I play the cello as an instrument."
    path = written(tmp_path, items)
    reports: list[Any] = []
    for _ in range(2):
        done = whence("eval", path, "--json", **elsewhere)
        assert done.returncode == 0, done.stderr
        reports.append(json.loads(done.stdout))
    report = reports[0]
    assert report["dataset"]["without_evidence"] == 1
    (question,) = report["questions"]
    assert question["answers"]["full"]["turns"] == {"earlier:1": 1}
    assert question["answers"]["full"]["sessions"] == {"earlier": 1}
    figures = report["methods"]["full"]["by_session"]["single-session-user"]["figures"]
    assert figures["all@5"] == {"mean": 1.0, "low": 1.0, "high": 1.0}
    assert reports[1]["methods"]["full"]["by_turn"] == report["methods"]["full"]["by_turn"]
    assert nothing_is_left(elsewhere)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_who_interrupts_it_leaves_nothing_behind(
    tmp_path: Path, elsewhere: dict[str, str], number: signal.Signals
) -> None:
    command = [sys.executable, "-m", "whence", "eval", str(written(tmp_path, longmemeval() * 100))]
    with subprocess.Popen(command, env=clean_environment() | elsewhere, stderr=subprocess.PIPE, text=True) as process:
        deadline = time.monotonic() + 60
        while not list(Path(elsewhere["TMPDIR"]).glob("whence-eval-*/data/pgdata")) and time.monotonic() < deadline:
            time.sleep(0.05)
        time.sleep(3)
        process.send_signal(number)
        _, said = process.communicate(timeout=60)
    assert (process.returncode, said) == (130, "")
    assert nothing_is_left(elsewhere)


def test_a_malformed_file_is_one_line(tmp_path: Path, elsewhere: dict[str, str]) -> None:
    items = locomo()
    items[0]["qa"][2]["evidence"] = "D1:1"
    done = whence("eval", written(tmp_path, items), **elsewhere)
    assert (done.returncode, done.stdout) == (1, "")
    where = tmp_path / "set.json"
    assert done.stderr == f"whence: {where}: Expected `array`, got `str` - at `[0].qa[2].evidence`\n"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--method", "magic"), "there is no method magic"),
        (("--url", "http://127.0.0.1:1"), "--url and --key are given together"),
        (("--url", "http://127.0.0.1:1", "--key", "k"), "say --yes"),
        (("--url", "http://127.0.0.1:1", "--key", "k", "--yes", "--embedder", "wordllama"), "a server has its own"),
        (("--url", "http://127.0.0.1:1", "--key", "k", "--yes", "--reranker", "hosted:m"), "--reranker is for"),
        (("--limit", "0"), "--limit"),
        (("--through", "magic"), "--through is remember or gateway"),
        (("--through", "gateway", "--method", "words"), "the gateway is measured by full and bm25"),
    ],
)
def test_what_does_not_go_together_is_refused(tmp_path: Path, options: tuple[str, ...], said: str) -> None:
    done = whence("eval", written(tmp_path, locomo()), *options, COLUMNS="200")
    assert done.returncode == 2
    assert said in done.stderr


@pytest.mark.skipif("embedder" not in Settings.model_fields, reason="there is one embedder")
def test_the_memory_gateway_is_measured_in_the_same_way(tmp_path: Path, elsewhere: dict[str, str]) -> None:
    path = written(tmp_path, locomo())
    direct, through = (
        json.loads(whence("eval", path, "--json", "--through", calls, **elsewhere).stdout)
        for calls in ("remember", "gateway")
    )
    assert (direct["through"], through["through"]) == ("remember", "gateway")
    assert through["dataset"] == direct["dataset"]
    figures = [each["methods"]["full"]["by_turn"]["all"]["figures"]["recall@50"]["mean"] for each in (direct, through)]
    assert figures[0] == figures[1]


def test_an_embedder_is_chosen_as_by_the_setting(tmp_path: Path, elsewhere: dict[str, str]) -> None:
    path = written(tmp_path, locomo())
    done = whence("eval", path, "--embedder", "wordllama", "--json", **elsewhere, WHENCE_EMBEDDER="onnx:none")
    assert json.loads(done.stdout)["embedder"].startswith("wordllama")


def test_a_reranker_is_measured_beside_an_order_without_it(tmp_path: Path, elsewhere: dict[str, str]) -> None:
    path = written(tmp_path, locomo())
    folder = write_model(tmp_path / "tiny", make_scorer(likings()))
    both = ("--method", "without-rerank", "--method", "full", "--json")
    done = whence("eval", path, "--reranker", f"onnx:{folder}", *both, **elsewhere, WHENCE_RERANKER="onnx:none")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["reranker"].startswith("onnx:tiny:")
    assert [report["methods"][name]["not_reranked"] for name in ("without-rerank", "full")] == [0, 0]
    assert report["methods"]["full"]["gain"]


def test_answers_that_a_reranker_failed_at_are_counted(tmp_path: Path, elsewhere: dict[str, str]) -> None:
    nobody = {"WHENCE_RERANKER": "hosted:m", "WHENCE_RERANKER_URL": "http://127.0.0.1:1/v1"}
    done = whence("eval", written(tmp_path, locomo()), **elsewhere, **nobody)
    assert done.returncode == 0, done.stderr
    assert "2 of them the reranker has not put in order" in done.stdout
    assert nothing_is_left(elsewhere)


def test_a_server_is_measured_and_left_as_it_was(
    tmp_path: Path, server: Server, workspace: Workspace, admin: httpx.Client
) -> None:
    path = written(tmp_path, locomo())
    done = whence("eval", path, "--url", server.url, "--key", workspace.admin_key, "--yes", "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["methods"]["full"]["by_turn"]["all"]["figures"]["recall@5"]["mean"] == 1
    assert "weights" not in report or report["weights"] is None
    assert admin.get("/v1/memories").json()["memories"] == []


async def test_a_key_that_is_no_administrators_is_refused(
    tmp_path: Path, app: App, server: Server, workspace: Workspace
) -> None:
    key = await app.identity.add_user(workspace.workspace_id, "ann")
    done = whence("eval", written(tmp_path, locomo()), "--url", server.url, "--key", key, "--yes")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.count("\n") == 1
    assert "administrator" in done.stderr
