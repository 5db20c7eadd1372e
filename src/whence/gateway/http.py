"""The HTTP server: its routes put together."""

import msgspec
from litestar import Litestar, Response, get
from litestar.di import Provide

from whence.app import App
from whence.gateway import events, system, telemetry
from whence.gateway.boundary import Asgi, Boundary
from whence.gateway.openapi import document
from whence.gateway.problems import problem_response

ROUTES = (
    events.append_events,
    events.list_events,
    events.stream_events,
    events.get_event,
    events.get_payload,
    events.get_lineage,
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


def build(app: App) -> Asgi:
    inner = Litestar(
        route_handlers=[*ROUTES, openapi],
        dependencies={
            "app": Provide(lambda: app, sync_to_thread=False),
            "registry": Provide(lambda: app.registry, sync_to_thread=False),
        },
        exception_handlers={Exception: problem_response},
        request_max_body_size=app.settings.max_body_bytes,
        openapi_config=None,
        logging_config=None,
    )
    return Boundary(inner, app.identity, app.registry)  # pyright: ignore[reportArgumentType]
