"""OTLP over HTTP: what OpenTelemetry exporters send becomes events."""

from collections.abc import Callable

from litestar import Response, post

from whence.app import App
from whence.gateway import otlp
from whence.gateway.body import read_body
from whence.gateway.events import Caller
from whence.ledger.events import MAX_BATCH_EVENTS

MAX_REASONS_TOLD = 5


@post("/v1/traces", status_code=200, summary="OTLP/HTTP traces, protobuf or JSON")
async def export_traces(request: Caller, app: App) -> Response[bytes]:
    return await _export(request, app, "traces", otlp.events_from_traces)


@post("/v1/logs", status_code=200, summary="OTLP/HTTP logs, protobuf or JSON")
async def export_logs(request: Caller, app: App) -> Response[bytes]:
    return await _export(request, app, "logs", otlp.events_from_logs)


async def _export(
    request: Caller, app: App, kind: otlp.Kind, events_from: Callable[[bytes, str], otlp.Mapped]
) -> Response[bytes]:
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    mapped = events_from(await read_body(request, app.settings.max_body_bytes), content_type)
    reasons = [rejection.reason for rejection in mapped.rejected]
    for start in range(0, len(mapped.events), MAX_BATCH_EVENTS):
        events = mapped.events[start : start + MAX_BATCH_EVENTS]
        for event, outcome in zip(events, await app.ledger.append(request.user, events), strict=True):
            if outcome.errors:
                said = "; ".join(f"{error.field}: {error.message}" for error in outcome.errors)
                reasons.append(f"event {event.event_id}: {said}")
    message = " | ".join(reasons[:MAX_REASONS_TOLD])
    return Response(otlp.encode_answer(kind, content_type, len(reasons), message), media_type=content_type)
