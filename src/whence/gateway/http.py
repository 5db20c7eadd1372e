"""The HTTP server: its routes put together."""

from typing import Any
from urllib.parse import unquote

import msgspec
from litestar import Litestar, Response, get
from litestar.connection import ASGIConnection
from litestar.di import Provide
from litestar.handlers import BaseRouteHandler
from litestar.params import ParameterKwarg
from litestar.types import ASGIApp, Receive, Scope, Send
from litestar.typing import FieldDefinition

from whence.app import App
from whence.errors import FieldError, InvalidInput
from whence.gateway import (
    chats,
    conversations,
    erasures,
    events,
    graph,
    items,
    jobs,
    lifecycle,
    memories,
    recalls,
    resources,
    seals,
    sessions,
    system,
    telemetry,
    workflows,
    working,
)
from whence.gateway.boundary import Asgi, Boundary
from whence.gateway.limiter import Limiter
from whence.gateway.openapi import document
from whence.gateway.problems import problem_response

ROUTES = (
    events.append_events,
    events.list_events,
    events.stream_events,
    events.get_event,
    events.get_payload,
    graph.get_lineage,
    graph.get_subgraph,
    graph.get_context,
    graph.get_prov,
    items.do_with_items,
    jobs.list_jobs,
    memories.remember,
    memories.list_memories,
    memories.get_memory,
    memories.forget_memory,
    memories.get_history,
    memories.explain_memory,
    memories.start_run,
    memories.get_run,
    memories.add_episode,
    memories.complete_run,
    memories.fail_run,
    memories.list_runs,
    memories.list_episodes,
    memories.agent_profile,
    memories.list_rules,
    memories.set_rule,
    memories.drop_rule,
    recalls.recall,
    recalls.get_recall,
    recalls.give_feedback,
    recalls.assemble,
    resources.add_resource,
    resources.list_resources,
    resources.get_resource,
    resources.delete_resource,
    lifecycle.record_action,
    lifecycle.list_actions,
    lifecycle.get_action,
    lifecycle.get_retention,
    seals.get_proof,
    seals.list_seals,
    seals.get_consistency,
    sessions.list_sessions,
    sessions.close_session,
    workflows.add_workflow,
    workflows.list_workflows,
    workflows.retire_workflow,
    workflows.select_workflow,
    workflows.record_outcome,
    working.put_working,
    working.get_working,
    working.delete_working,
    working.list_working,
    chats.add_user,
    chats.add_messages,
    chats.flush_chat,
    chats.search_memories,
    chats.override_memory,
    chats.delete_memory,
    conversations.start_conversation,
    conversations.list_conversations,
    conversations.get_conversation,
    conversations.delete_conversation,
    conversations.post_message,
    conversations.publish_broadcast,
    erasures.erase,
    erasures.get_erasure,
    erasures.export_subject,
    telemetry.export_traces,
    telemetry.export_logs,
    system.health,
    system.live,
    system.ready,
    system.metrics,
    system.front_page,
)


@get("/openapi.json", include_in_schema=False, sync_to_thread=False)
def openapi() -> Response[bytes]:
    return Response(msgspec.json.encode(document(ROUTES)), media_type="application/json")


async def only_known_parameters(connection: ASGIConnection[Any, Any, Any, Any], handler: BaseRouteHandler) -> None:
    """A parameter that is misspelt must not be taken for one that was left out.

    Async, though it waits for nothing: Litestar asks any other guard in a thread, at each request.
    """
    if not connection.query_params:
        return
    if b"%" in connection.scope["query_string"]:
        # Litestar takes what is not valid for something else.
        for each in connection.scope["query_string"].split(b"&"):
            name, _, value = each.decode("ascii", "replace").partition("=")
            _decoded(name, value)
    known = {_name_in_query(field) for field in handler.parsed_fn_signature.parameters.values()}
    for name in connection.query_params:
        if name not in known or name in ("request", "app", "registry", *connection.path_params):
            raise InvalidInput(f"{name}: is not a known parameter", (FieldError(name, "is not a known parameter"),))


def _name_in_query(field: FieldDefinition) -> str:
    """Some names, such as `from`, cannot be those of a Python parameter."""
    definition = field.kwarg_definition
    return (isinstance(definition, ParameterKwarg) and definition.name) or field.name


def decoded_names(app: ASGIApp) -> ASGIApp:
    """The names in a path, which the boundary left as they were sent. By now the path has been taken apart."""

    async def call(scope: Scope, receive: Receive, send: Send) -> None:
        given: dict[str, Any] = scope["path_params"]
        scope["path_params"] = {
            name: _decoded(name, value) if isinstance(value, str) else value for name, value in given.items()
        }
        await app(scope, receive, send)

    return call


def _decoded(name: str, value: str) -> str:
    """`name` is told, as it was sent, where the value is refused."""
    try:
        return unquote(value, errors="strict")
    except UnicodeDecodeError:
        raise InvalidInput(f"{name}: is not valid Unicode", (FieldError(name, "is not valid Unicode"),)) from None


def build(app: App) -> Asgi:
    inner = Litestar(
        route_handlers=[*ROUTES, openapi],
        dependencies={
            "app": Provide(lambda: app, sync_to_thread=False),
            "registry": Provide(lambda: app.registry, sync_to_thread=False),
        },
        middleware=[decoded_names],
        guards=[only_known_parameters],
        exception_handlers={Exception: problem_response},
        request_max_body_size=app.settings.max_body_bytes,
        openapi_config=None,
        logging_config=None,
    )
    fixed_paths = frozenset(path for route in ROUTES for path in route.paths if "{" not in path)
    limiter = Limiter(app.settings.rate_limit)
    return Boundary(inner, app.identity, app.registry, fixed_paths, limiter)  # pyright: ignore[reportArgumentType]
