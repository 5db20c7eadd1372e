"""The command line can do with memory what HTTP can: no route is without a command, and no field without an option."""

import re
from typing import Any

import msgspec
import pytest
import typer.main
from typer.testing import CliRunner

from whence.cli import cli
from whence.gateway import http, memories
from whence.gateway.openapi import document
from whence.wire import Assemble, Fact, Feedback, Recall, RecallFilters, Remember

COMMANDS = {
    ("POST", "/v1/memories"): "remember",
    ("GET", "/v1/memories"): "memory list",
    ("GET", "/v1/memories/{memory_id:uuid}"): "memory show",
    ("DELETE", "/v1/memories/{memory_id:uuid}"): "memory forget",
    ("GET", "/v1/memories/{memory_id:uuid}/history"): "memory history",
    ("GET", "/v1/memories/{memory_id:uuid}/explain"): "explain",
    ("GET", "/v1/memories/{memory_id:uuid}/retention"): "memory retention",
    ("POST", "/v1/recall"): "recall",
    ("GET", "/v1/recalls/{recall_id:uuid}"): "explain",
    ("POST", "/v1/recalls/{recall_id:uuid}/feedback"): "feedback",
    ("POST", "/v1/assemble"): "assemble",
    ("PUT", "/v1/working/{agent:str}/{instance:str}/{key:str}"): "working set",
    ("GET", "/v1/working/{agent:str}/{instance:str}/{key:str}"): "working get",
    ("DELETE", "/v1/working/{agent:str}/{instance:str}/{key:str}"): "working delete",
    ("GET", "/v1/working/{agent:str}/{instance:str}"): "working list",
    ("POST", "/v1/runs"): "run start",
    ("GET", "/v1/runs/{run_id:uuid}"): "run show",
    ("POST", "/v1/runs/{run_id:uuid}/episodes"): "run episode",
    ("POST", "/v1/runs/{run_id:uuid}/complete"): "run complete",
    ("POST", "/v1/runs/{run_id:uuid}/fail"): "run fail",
    ("GET", "/v1/agents/{agent:str}/runs"): "run list",
    ("GET", "/v1/agents/{agent:str}/episodes"): "run episodes",
    ("GET", "/v1/agents/{agent:str}/profile"): "memory profile",
    ("POST", "/v1/workflows"): "workflow add",
    ("GET", "/v1/workflows"): "workflow list",
    ("DELETE", "/v1/workflows/{workflow_id:uuid}"): "workflow retire",
    ("POST", "/v1/workflows/select"): "workflow select",
    ("POST", "/v1/workflows/outcomes"): "workflow outcome",
    ("GET", "/v1/canon/{world_id:str}"): "canon list",
    ("PUT", "/v1/canon/{world_id:str}/{rule_id:str}"): "canon set",
    ("DELETE", "/v1/canon/{world_id:str}/{rule_id:str}"): "canon drop",
    ("POST", "/v1/actions"): "action record",
    ("GET", "/v1/actions"): "action list",
    ("GET", "/v1/actions/{action_id:uuid}"): "action show",
    ("GET", "/v1/sessions"): "session list",
    ("POST", "/v1/sessions/{session_id:str}/close"): "session close",
    ("POST", "/v1/erasures"): "erase",
    ("GET", "/v1/erasures/{erasure_id:uuid}"): "erase",
    ("GET", "/v1/subjects/{subject_id:str}/export"): "export",
}
"""Each route about memory, as the server registers it, and the command that does the same."""

ELSEWHERE = {
    "/": "where the server sends browsers",
    "/health": "how the server is",
    "/metrics": "how the server is",
    "/users": "users and their keys",
    "/memories": "the memory gateway: what agents tell it of a chat, with a user's key",
    "/resources": "documents",
    "/v1/broadcasts": "conversations",
    "/v1/conversations": "conversations",
    "/v1/context": "the graph",
    "/v1/events": "the ledger",
    "/v1/items": "the items of a program, which has a store for them",
    "/v1/jobs": "the queue",
    "/v1/logs": "telemetry",
    "/v1/prov": "the graph",
    "/v1/seals": "the ledger",
    "/v1/subgraph": "the graph",
    "/v1/traces": "telemetry",
}
"""Routes that are not about memory, by what their paths begin with, and what they are about."""

FIELDS: dict[tuple[str, type[msgspec.Struct]], dict[str, str]] = {
    ("remember", Remember): {
        "agent": "--agent",
        "tier": "--tier",
        "kind": "--kind",
        "text": "TEXT",
        "user_id": "--user",
        "subject_id": "--about",
        "speaker": "--speaker",
        "role": "--role",
        "session_id": "--session",
        "interaction_id": "--interaction",
        "run_id": "--run",
        "world_id_context": "--world",
        "fact": "--fact",
        "key": "--key",
        "valid_at": "--valid-at",
        "derived_from": "--from",
        "byte_range": "--byte-range",
        "importance": "--importance",
        "memory_id": "--id",
    },
    ("remember", Fact): {
        "subject": "--fact",
        "predicate": "--fact",
        "object": "--fact",
        "confidence": "--confidence",
    },
    ("run episode", memories.Episode): {
        "text": "TEXT",
        "derived_from": "--from",
        "importance": "--importance",
        "valid_at": "--valid-at",
        "memory_id": "--id",
    },
    ("recall", Recall): {
        "query": "TEXT",
        "agent": "--agent",
        "tiers": "--tier",
        "kinds": "--kind",
        "session_id": "--session",
        "sessions": "--session",
        "session_prefixes": "--session-prefix",
        "subject": "--subject",
        "predicate": "--predicate",
        "as_of": "--as-of",
        "known_at": "--known-at",
        "top_k": "--top-k",
        "max_tokens": "--max-tokens",
        "intent": "--intent",
        "channels": "--channel",
        "neighbours": "--neighbours",
        "rerank": "--rerank",
    },
    ("recall", RecallFilters): {
        "speaker": "--speaker",
        "role": "--role",
        "world_id_context": "--world",
        "since": "--since",
        "until": "--until",
    },
    ("feedback", Feedback): {"helpful": "--helpful", "unhelpful": "--unhelpful"},
    ("assemble", Assemble): {
        "agent": "AGENT",
        "instance": "INSTANCE",
        "query": "--query",
        "session_id": "--session",
        "task_type": "--task-type",
        "max_tokens": "--max-tokens",
        "rerank": "--rerank",
    },
}
"""By command, what is sent and what gives each of its fields."""

WITHOUT: dict[type[msgspec.Struct], dict[str, str]] = {
    Remember: {"embedding": "nobody types some hundred numbers; a program that has them sends them"},
    Recall: {
        "embedding": "nobody types some hundred numbers; a program that has them sends them",
        "filters": "its fields are options of their own",
    },
}
"""Fields that no option gives, and why."""


def found(words: str) -> Any:
    command: Any = typer.main.get_command(cli)
    for word in words.split():
        command = command.commands[word]
    return command


def names(words: str) -> set[str]:
    """The options of a command, and its arguments as its help calls them."""
    return {name for param in found(words).params for name in (*param.opts, param.metavar) if name is not None}


def test_every_route_about_memory_has_a_command() -> None:
    routes = {(method, path) for route in http.ROUTES for path in route.paths for method in route.http_methods}
    about_memory = {
        (method, path)
        for method, path in routes
        if not any(path == start or path.startswith(f"{start}/") for start in ELSEWHERE)
    }
    assert about_memory == set(COMMANDS), "a route is to be named here, with its command or with what it is about"


@pytest.mark.parametrize("words", sorted(set(COMMANDS.values())))
def test_every_command_says_how_it_is_called(words: str) -> None:
    assert not hasattr(found(words), "commands"), f"{words} is a group"
    told = CliRunner().invoke(cli, [*words.split(), "--help"])
    assert told.exit_code == 0, told.output
    assert f"{words} [OPTIONS]" in told.output
    assert {"--json", "--data-dir", "--workspace"} <= names(words)


def test_every_parameter_of_a_route_is_an_option() -> None:
    paths = document(http.ROUTES)["paths"]
    for (method, path), words in COMMANDS.items():
        operation = paths[re.sub(r":[a-z]+}", "}", path)][method.lower()]
        wanted = [each["name"] for each in operation.get("parameters", ()) if each["in"] == "query"]
        options = {f"--{name.removesuffix('_id').replace('_', '-')}" for name in wanted}
        assert options <= names(words), words


@pytest.mark.parametrize(("words", "sent"), FIELDS, ids=lambda each: getattr(each, "__name__", each))
def test_every_field_of_what_is_sent_can_be_given(words: str, sent: type[msgspec.Struct]) -> None:
    given, without = FIELDS[words, sent], WITHOUT.get(sent, {})
    assert set(given) | set(without) == set(sent.__struct_fields__)
    assert not set(given) & set(without)
    assert set(given.values()) <= names(words)
