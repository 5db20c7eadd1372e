"""What is refused, and by which field."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import msgspec
import pytest

from samples import event, new_id
from whence.ledger.events import MAX_PAYLOAD_BYTES, problems
from whence.wire import Measures

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
ONE = new_id()


def fields(**given: Any) -> list[str]:
    return [problem.field for problem in problems(event(**given), NOW)]


def test_a_plain_event_is_sound() -> None:
    assert fields() == []
    assert fields(payload={"text": "\x00 is fine inside a payload"}) == []
    assert fields(session_id="Größe 漢字 🙂", importance_hint=10, status="failed", ended_at=NOW) == []


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"occurred_at": NOW + timedelta(seconds=301)}, "occurred_at"),
        ({"occurred_at": datetime(2026, 1, 2, 3, 4, 5)}, "occurred_at"),
        ({"ended_at": datetime(2026, 1, 2, 3, 4, 5)}, "ended_at"),
        ({"ended_at": NOW - timedelta(microseconds=1)}, "ended_at"),
        ({"ended_at": datetime(9999, 12, 31, 23, 59, 59, tzinfo=timezone(timedelta(hours=-1)))}, "ended_at"),
        ({"ended_at": datetime(2262, 1, 1, tzinfo=UTC)}, "ended_at"),
        ({"occurred_at": datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=1)))}, "occurred_at"),
        ({"occurred_at": datetime(1969, 12, 31, 23, 59, 59, tzinfo=UTC)}, "occurred_at"),
        ({"event_id": ONE, "parent_event_id": ONE}, "parent_event_id"),
        ({"payload_ref": "x" * 2049}, "payload_ref"),
        ({"payload_ref": ""}, "payload_ref"),
        ({"payload": "x" * MAX_PAYLOAD_BYTES}, "payload"),
        ({"session_id": ""}, "session_id"),
        ({"session_id": "x" * 257}, "session_id"),
        ({"trace_id": "a\x00b"}, "trace_id"),
        ({"user_id": "\ud800"}, "user_id"),
        ({"agent_id": ""}, "agent_id"),
        ({"subject_id": "x" * 257}, "subject_id"),
        ({"tool_name": "\x00"}, "tool_name"),
        ({"data_classification": ""}, "data_classification"),
        ({"importance_hint": 0}, "importance_hint"),
        ({"importance_hint": 11}, "importance_hint"),
        ({"schema_version": 0}, "schema_version"),
        ({"schema_version": 32768}, "schema_version"),
        ({"event_type": "Tool.execute"}, "event_type"),
        ({"event_type": "tool"}, "event_type"),
        ({"event_type": "tool."}, "event_type"),
        ({"event_type": "tool.execute\n"}, "event_type"),
        ({"event_type": "a." + "b" * 127}, "event_type"),
        ({"measures": Measures(input_tokens=-1)}, "measures.input_tokens"),
        ({"measures": Measures(model="x" * 257)}, "measures.model"),
        ({"measures": Measures(finish_reasons=("stop", ""))}, "measures.finish_reasons"),
        ({"measures": Measures(finish_reasons=("stop",) * 33)}, "measures.finish_reasons"),
    ],
)
def test_what_is_wrong_is_named(given: dict[str, Any], field: str) -> None:
    assert fields(**given) == [field]


def test_everything_that_is_wrong_is_named() -> None:
    assert fields(session_id="", trace_id="", importance_hint=99) == ["session_id", "trace_id", "importance_hint"]


@pytest.mark.parametrize("edge", [NOW + timedelta(seconds=300), NOW, datetime(1970, 1, 1, tzinfo=UTC)])
def test_a_time_up_to_300_seconds_ahead_is_taken(edge: datetime) -> None:
    assert fields(occurred_at=edge) == []


@pytest.mark.parametrize("name", ["agent.invoke", "tool.execute", "llm.generate", "my_app.thing_2.done", "x.9"])
def test_unknown_types_are_taken(name: str) -> None:
    assert fields(event_type=name) == []


def test_a_payload_may_be_as_large_as_the_limit() -> None:
    assert fields(payload="x" * (MAX_PAYLOAD_BYTES - 2)) == []
    assert len(msgspec.json.encode("x" * (MAX_PAYLOAD_BYTES - 2))) == MAX_PAYLOAD_BYTES
