"""What the gateway recalls before a run and is told after it."""

import json
import logging
import os
from pathlib import Path
from typing import Any

import httpx
import pytest

from hybrid_agent import Events, Gateway
from whence.hybrid import AuditEvent, HybridMemory, MemoryGateway
from whence.hybrid.reference import CLOSING, LABEL

ASKED, ANSWERED = 1780000000000, 1780000001000
SAID = ("I moved to Lyon, and I am allergic to peanuts.", "Welcome to Lyon!")


def service(gateway: Gateway, **more: Any) -> MemoryGateway:
    config = gateway.config(**more).gateway
    assert config is not None
    return MemoryGateway(config, gateway.events, transport=gateway.wire)


def details(events: Events) -> list[dict[str, Any]]:
    return [event.details for event in events.kept]


# As docs/reference/hybrid.md lists it


async def test_a_search_has_the_configured_scopes_and_raw_fields_are_dropped(gateway: Gateway) -> None:
    memory = service(gateway, scope=["current_chat", "all_user_memory"], topK=2)
    await memory.persist_after_run("42", *SAID, ASKED, ANSWERED)
    recalled = await memory.recall_before_run("42", "What is Ann allergic to?")
    await memory.close()
    (asked,) = gateway.wire.bodies("/memories/search")
    assert (asked["scope"], asked["top_k"]) == (["current_chat", "all_user_memory"], 2)
    (message,) = recalled.messages
    lines = message["content"].split("\n")
    found = [json.loads(line) for line in lines[2:-1]]
    assert SAID[0] in [each["text"] for each in found]
    for each in found:
        assert set(each) <= {"id", "session_id", "text", "score", "source_scope", "resource_uri"}
        assert (each["session_id"], each["source_scope"]) == ("chat:42", "current_chat")
    assert (lines[0], lines[-1]) == (LABEL, CLOSING)
    assert "RAW-FIELD" not in message["content"]
    expected = {"scope": ["current_chat", "all_user_memory"], "result_count": len(found), "left_out": 0}
    assert gateway.events.kept[-1] == AuditEvent("memory_gateway_recall_succeeded", "42", expected)


async def test_an_empty_search_gives_no_message(gateway: Gateway) -> None:
    memory = service(gateway)
    recalled = await memory.recall_before_run("nobody-spoke-here", "Anything?")
    await memory.close()
    assert (recalled.messages, recalled.error) == ((), None)
    assert gateway.events.names == ["recall_succeeded"]
    assert gateway.events.kept[0].details["result_count"] == 0


async def test_exactly_the_prompt_and_the_answer_are_added_and_flushed_once(gateway: Gateway) -> None:
    memory = service(gateway, appId="crm", projectId="north")
    await memory.persist_after_run("42", *SAID, ASKED, ANSWERED)
    await memory.close()
    who = {"user_id": "ann", "user_key": gateway.key, "app_id": "crm", "project_id": "north", "session_id": "chat:42"}
    messages = [
        {"sender_id": "ann", "role": "user", "timestamp": ASKED, "content": SAID[0]},
        {"sender_id": "assistant", "role": "assistant", "timestamp": ANSWERED, "content": SAID[1]},
    ]
    assert gateway.wire.sent == [("/memories/add", who | {"messages": messages}), ("/memories/flush", who)]
    assert gateway.events.kept == [
        AuditEvent("memory_gateway_add_succeeded", "42", {"gateway_session": "chat:42", "message_count": 2}),
        AuditEvent("memory_gateway_flush_succeeded", "42", {"gateway_session": "chat:42", "is_more": False}),
    ]


async def test_after_a_failed_add_nothing_is_flushed_and_a_failed_flush_leaves_what_was_added(
    gateway: Gateway,
) -> None:
    memory = service(gateway)
    gateway.wire.faults["/memories/add"] = lambda _: httpx.Response(500)
    await memory.persist_after_run("41", *SAID, ASKED, ANSWERED)
    assert gateway.wire.paths == ["/memories/add"]
    assert gateway.events.names == ["add_failed"]
    failed = {"gateway_session": "chat:41", "operation": "add", "path": "/memories/add"}
    assert details(gateway.events) == [failed | {"category": "http_error", "status": 500}]

    gateway.wire.faults = {"/memories/flush": lambda _: httpx.Response(503)}
    await memory.persist_after_run("42", *SAID, ASKED, ANSWERED)
    assert gateway.wire.paths == ["/memories/add", "/memories/add", "/memories/flush"]
    assert gateway.events.names == ["add_failed", "add_succeeded", "flush_failed"]
    assert details(gateway.events)[2]["add_succeeded"] is True
    assert (await memory.recall_before_run("41", "Where?")).messages == ()
    assert SAID[0] in (await memory.recall_before_run("42", "Where does Ann live?")).messages[0]["content"]
    await memory.close()


async def test_the_gateway_neither_reads_nor_writes_curated_files(
    gateway: Gateway, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    touched: list[str] = []
    monkeypatch.chdir(folder)
    before = {path.name: (path.read_text(), path.stat()) for path in folder.iterdir()}
    for name in ("open", "stat", "replace"):
        plain = getattr(os, name)

        def seen(path: Any, *more: Any, plain: Any = plain, **named: Any) -> Any:
            touched.append(str(path))
            return plain(path, *more, **named)

        monkeypatch.setattr(os, name, seen)
    memory = service(gateway)
    await memory.persist_after_run("42", *SAID, ASKED, ANSWERED)
    await memory.recall_before_run("42", "Where does Ann live?")
    await memory.close()
    monkeypatch.undo()
    assert not [path for path in touched if path.endswith(".md") or str(folder) in path]
    assert {path.name: (path.read_text(), path.stat()) for path in folder.iterdir()}.keys() == before.keys()
    for name, (text, stat) in before.items():
        assert ((folder / name).read_text(), (folder / name).stat().st_mtime_ns) == (text, stat.st_mtime_ns)
    assert not {"_folder", "_curated", "curated"} & set(vars(memory))


# More of the same


@pytest.mark.parametrize(("asked", "answered"), [(0, 0), (-5, 7), (ASKED, ASKED), (ASKED, ASKED - 60_000)])
async def test_times_are_positive_and_in_order_whatever_the_clock_does(
    made_up: Gateway, asked: int, answered: int
) -> None:
    memory = service(made_up)
    await memory.persist_after_run("42", *SAID, asked, answered)
    first, second = (each["timestamp"] for each in made_up.wire.bodies("/memories/add")[0]["messages"])
    assert 0 < first < second


async def test_a_recall_that_failed_is_told_and_gives_no_message(made_up: Gateway) -> None:
    memory = service(made_up)
    made_up.wire.faults["/memories/search"] = lambda _: httpx.Response(401)
    recalled = await memory.recall_before_run("42", "Where?")
    assert recalled.messages == ()
    assert recalled.error is not None
    (event,) = made_up.events.kept
    assert event.details == {
        "operation": "search",
        "path": "/memories/search",
        "category": "unauthorized",
        "status": 401,
    }


class Broken:
    async def record(self, event: AuditEvent) -> None:
        raise OSError(f"the disk with {event.name} is full: secret text of the host")


async def test_a_sink_that_fails_fails_nothing_else(made_up: Gateway, caplog: pytest.LogCaptureFixture) -> None:
    config = made_up.config().gateway
    assert config is not None
    memory = MemoryGateway(config, Broken(), transport=made_up.wire)
    await memory.persist_after_run("42", *SAID, ASKED, ANSWERED)
    assert len((await memory.recall_before_run("42", "?")).messages) == 1
    assert made_up.wire.paths == ["/memories/add", "/memories/flush", "/memories/search"]
    assert [record.getMessage() for record in caplog.records] == [
        f"memory_gateway_{name}_succeeded could not be recorded: OSError" for name in ("add", "flush", "recall")
    ]


async def test_without_a_sink_what_became_of_calls_is_in_the_log(
    made_up: Gateway, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "whence.hybrid")
    made_up.wire.faults["/memories/search"] = lambda _: httpx.Response(500)
    async with HybridMemory(made_up.config(), folder, transport=made_up.wire) as memory:
        run = await memory.before_run("42", SAID[0])
        await run.complete(SAID[1])
    ours = [(record.levelname, record.getMessage().split()[0]) for record in caplog.records]
    assert ours == [
        ("WARNING", "memory_gateway_recall_failed"),
        ("INFO", "memory_gateway_add_succeeded"),
        ("INFO", "memory_gateway_flush_succeeded"),
    ]
    assert made_up.key not in caplog.text
