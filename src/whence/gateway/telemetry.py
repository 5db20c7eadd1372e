"""OTLP in: what OpenTelemetry exporters send becomes events, over HTTP and, where it is switched on, over gRPC."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import grpc
import grpc.aio
import structlog
from litestar import Response, post

from whence.app import App
from whence.errors import SetupError, Unauthenticated, Unavailable, WhenceError, refusal_of
from whence.gateway import otlp
from whence.gateway.body import read_body
from whence.gateway.boundary import bearer_key
from whence.gateway.events import Caller, TheApp
from whence.gateway.otlp.forms import PROTOBUF, bare
from whence.identity import Principal

log = structlog.get_logger()

MAX_REASONS_TOLD = 5
PORTION_RECORDS = 250
MAX_GRPC_CALLS = 64
GRPC_GRACE_SECONDS = 5.0

_GRPC_SERVICES: Mapping[str, otlp.Kind] = {
    "opentelemetry.proto.collector.trace.v1.TraceService": "traces",
    "opentelemetry.proto.collector.logs.v1.LogsService": "logs",
}
_GRPC_CODES = {
    400: grpc.StatusCode.INVALID_ARGUMENT,
    401: grpc.StatusCode.UNAUTHENTICATED,
    403: grpc.StatusCode.PERMISSION_DENIED,
    413: grpc.StatusCode.RESOURCE_EXHAUSTED,
    422: grpc.StatusCode.INVALID_ARGUMENT,
    503: grpc.StatusCode.UNAVAILABLE,
}


@post("/v1/traces", status_code=200, summary="OTLP/HTTP traces, protobuf or JSON")
async def export_traces(request: Caller, app: TheApp) -> Response[bytes]:
    return await _export_over_http(request, app, "traces")


@post("/v1/logs", status_code=200, summary="OTLP/HTTP logs, protobuf or JSON")
async def export_logs(request: Caller, app: TheApp) -> Response[bytes]:
    return await _export_over_http(request, app, "logs")


async def _export_over_http(request: Caller, app: App, kind: otlp.Kind) -> Response[bytes]:
    content_type = bare(request.headers.get("content-type", ""))
    body = await read_body(request, app.settings.max_body_bytes)
    return Response(await _export(app, request.user, kind, body, content_type), media_type=content_type)


async def _export(app: App, principal: Principal, kind: otlp.Kind, body: bytes, content_type: str) -> bytes:
    """Stores what can be stored, and answers how many records could not be and why."""
    rejected, reasons = 0, list[str]()
    for portion in otlp.portions(kind, body, content_type, PORTION_RECORDS):
        app.ledger.count("rejected", len(portion.rejected))
        said = [rejection.reason for rejection in portion.rejected]
        outcomes = await app.ledger.append(principal, portion.events) if portion.events else []
        for outcome in outcomes:
            # An exporter sends nothing again of which it is told that it was rejected.
            if any(error.code == Unavailable.code for error in outcome.errors):
                raise refusal_of(outcome.errors)
        said += [
            f"event {event.event_id}: " + "; ".join(f"{error.field}: {error.message}" for error in outcome.errors)
            for event, outcome in zip(portion.events, outcomes, strict=True)
            if outcome.errors
        ]
        rejected += len(said)
        reasons += said[: MAX_REASONS_TOLD - len(reasons)]
    return otlp.encode_answer(kind, content_type, rejected, " | ".join(reasons))


@asynccontextmanager
async def grpc_server(app: App) -> AsyncGenerator[int | None]:
    """OTLP/gRPC on the configured port, which it gives; None where it is not switched on."""
    if app.settings.otlp_grpc_port is None:
        yield None
        return
    server = grpc.aio.server(options=_grpc_options(app), maximum_concurrent_rpcs=MAX_GRPC_CALLS)
    server.add_generic_rpc_handlers(
        [
            grpc.method_handlers_generic_handler(
                service, {"Export": grpc.unary_unary_rpc_method_handler(_grpc_export(app, kind))}
            )
            for service, kind in _GRPC_SERVICES.items()
        ]
    )
    host, port = app.settings.host, app.settings.otlp_grpc_port
    try:
        bound = server.add_insecure_port(f"[{host}]:{port}" if ":" in host else f"{host}:{port}")
    except RuntimeError as error:
        raise SetupError(
            f"cannot serve OTLP/gRPC on {host} port {port}: set WHENCE_OTLP_GRPC_PORT to another"
        ) from error
    await server.start()
    try:
        yield bound
    finally:
        await server.stop(GRPC_GRACE_SECONDS)


def _grpc_options(app: App) -> list[tuple[str, int]]:
    # Without the second, two servers could have the same port and neither would know.
    return [("grpc.max_receive_message_length", app.settings.max_body_bytes), ("grpc.so_reuseport", 0)]


GrpcContext = grpc.aio.ServicerContext[bytes, bytes]


def _grpc_export(app: App, kind: otlp.Kind) -> Callable[[bytes, GrpcContext], Awaitable[bytes]]:
    async def export(body: bytes, context: GrpcContext) -> bytes:
        try:
            principal = await app.identity.authenticate(_grpc_key(context))
            return await _export(app, principal, kind, body, PROTOBUF)
        except WhenceError as error:
            await context.abort(_GRPC_CODES.get(error.status, grpc.StatusCode.INTERNAL), error.detail)
        except Exception as error:
            log.error("request failed", path=kind, error=type(error).__name__, exc_info=error)
            await context.abort(grpc.StatusCode.INTERNAL, "something went wrong; the log has it")

    return export


def _grpc_key(context: GrpcContext) -> str:
    given: Any = context.invocation_metadata()
    for name, value in given or ():
        if name == "authorization":
            return bearer_key(value)
    raise Unauthenticated("this needs a key: send the metadata `authorization: Bearer <key>`")
