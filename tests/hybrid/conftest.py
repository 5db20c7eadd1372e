"""A gateway, made up or served, and a folder of curated memory."""

from pathlib import Path

import httpx
import pytest

from conftest import Server
from hybrid_agent import KEY, Gateway, MadeUp, Wire


@pytest.fixture
def made_up() -> Gateway:
    return Gateway("http://gateway.test:8010", KEY, Wire(MadeUp()))


@pytest.fixture
def served(server: Server, admin: httpx.Client) -> Gateway:
    key = admin.post("/users", json={"user_id": "ann"}).raise_for_status().json()["user_key"]
    return Gateway(server.url, key, Wire(httpx.AsyncHTTPTransport()))


@pytest.fixture(params=["made_up", "served"])
def gateway(request: pytest.FixtureRequest) -> Gateway:
    return request.getfixturevalue(request.param)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """With a note and something about the user in it."""
    (tmp_path / "MEMORY.md").write_text("# Notes\n\n- The build needs CURATED-NOTE\n")
    (tmp_path / "USER.md").write_text("- Ann likes CURATED-TEA\n")
    return tmp_path
