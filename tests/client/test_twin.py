"""The synchronous client is what the generator makes of the other one; both say what the server takes."""

import subprocess
import sys
from typing import Any

import pytest

import make_sync
import whence
from conftest import clean_environment
from whence.client import fields
from whence.gateway.http import ROUTES
from whence.gateway.openapi import document


def test_the_committed_twin_is_what_the_generator_makes() -> None:
    made = make_sync.twin_of(make_sync.SOURCE.read_text())
    assert make_sync.TWIN.read_text() == made, "run `make sync`"
    assert make_sync.leftovers(made) == []


def test_the_generator_takes_out_what_waits_and_leaves_texts_alone() -> None:
    source = '''"""First line."""

import asyncio


class AsyncWhence:
    """`AsyncWhence` may await, and `asyncio` too."""

    async def __aenter__(self):
        # AsyncWhence: async by hand
        async with self.http as http:
            return [await thing async for thing in http.aiter_bytes("async")], (await http.aclose())

    async def nap(self):
        await asyncio.sleep(1)
'''
    made = make_sync.twin_of(source)
    assert made == (
        make_sync.FIRST_LINE
        + '''
import time


class Whence:
    """`Whence` may await, and `asyncio` too."""

    def __enter__(self):
        # Whence: async by hand
        with self.http as http:
            return [thing for thing in http.iter_bytes("async")], (http.close())

    def nap(self):
        time.sleep(1)
'''
    )


def test_what_stays_asynchronous_by_mistake_is_found() -> None:
    found = make_sync.leftovers("x = httpx.AsyncLimits(); asyncio.run(y); z.__anext__()")
    assert found == ["AsyncLimits", "asyncio", "__anext__"]


def body(path: str) -> set[str]:
    schema = document(ROUTES)["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"]
    reference = schema.get("$ref") or schema["anyOf"][0]["$ref"]
    return set(document(ROUTES)["components"]["schemas"][reference.rpartition("/")[2]]["properties"])


def query(path: str) -> set[str]:
    parameters = document(ROUTES)["paths"][path]["get"]["parameters"]
    return {parameter["name"] for parameter in parameters if parameter["in"] == "query"}


@pytest.mark.parametrize(
    ("kind", "named", "taken"),
    [
        (fields.EventFields, set(), body("/v1/events")),
        (fields.StreamAsked, set(), query("/v1/events/stream")),
        (fields.EventsAsked, set(), query("/v1/events")),
        (fields.LineageAsked, set(), query("/v1/events/{event_id}/lineage")),
        (fields.SubgraphAsked, set(), query("/v1/subgraph")),
        (fields.ProvAsked, set(), query("/v1/prov")),
        (fields.ContextAsked, {"query"}, body("/v1/context")),
        (fields.RememberFields, {"text"}, body("/v1/memories")),
        (fields.MemoryFields, set(), body("/v1/memories")),
        (fields.MemoriesAsked, set(), query("/v1/memories")),
        (fields.RecallAsked, {"query"}, body("/v1/recall")),
        (fields.Partition, {"user_key", "session_id", "messages"}, body("/memories/add")),
        (fields.Partition, {"user_key", "session_id"}, body("/memories/flush")),
        (fields.SearchAsked, {"user_key", "query", "scope"}, body("/memories/search")),
        (fields.Partition, {"user_key", "session_id", "id", "text"}, body("/memories/override")),
        (fields.Partition, {"user_key", "session_id", "id"}, body("/memories/delete")),
        (fields.AssembleAsked, {"agent", "instance"}, body("/v1/assemble")),
        (fields.ConversationsAsked, set(), query("/v1/conversations")),
        (fields.NewMessageFields, {"message_id"}, body("/v1/conversations/{conversation_id}/messages")),
        (fields.ResourcesAsked, set(), query("/resources")),
        (fields.RunFields, {"agent", "instance"}, body("/v1/runs")),
        (fields.EpisodeFields, {"text"}, body("/v1/runs/{run_id}/episodes")),
        (fields.WorkflowsAsked, set(), query("/v1/workflows")),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_keyword_arguments_are_what_the_server_takes(kind: Any, named: set[str], taken: set[str]) -> None:
    assert set(kind.__annotations__) | named == taken


@pytest.mark.parametrize(
    ("program", "absent"),
    [
        ("import whence; whence.__version__", ("httpx", "whence.client", "msgspec")),
        ("from whence import Whence; Whence(key='k').close()", ("litestar", "psycopg", "structlog", "whence.app")),
        ("import whence.cli", ("httpx", "whence.client")),
    ],
)
def test_imports_bring_only_what_is_needed(program: str, absent: tuple[str, ...]) -> None:
    check = f"import sys; {program}; print([name for name in {absent!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", check], text=True, capture_output=True, env=clean_environment())
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_a_name_that_is_not_there_is_not_there() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Wince'"):
        whence.Wince  # noqa: B018
