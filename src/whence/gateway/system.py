"""Health, metrics and the OpenAPI document."""

from litestar import Response, get
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from whence import __version__
from whence.app import App
from whence.errors import Unavailable
from whence.wire import Health


@get("/", include_in_schema=False)
async def front_page() -> dict[str, str]:
    return {"name": "whence", "version": __version__, "openapi": "/openapi.json", "health": "/health"}


@get("/health", summary="Whether the parts work; always 200, `degraded` names the parts that do not")
async def health(app: App) -> Health:
    failing = await _failing(app)
    return Health("degraded" if failing else "ok", __version__, failing)


@get("/health/live", summary="The process answers")
async def live() -> Health:
    return Health("ok", __version__, {})


@get("/health/ready", summary="200 when requests can be served, 503 when not")
async def ready(app: App) -> Health:
    failing = await _failing(app)
    if failing or app.stopping.is_set():
        raise Unavailable(f"not ready: {', '.join(failing) or 'stopping'}")
    return Health("ok", __version__, {})


async def _failing(app: App) -> dict[str, str]:
    try:
        await app.database.ping()
    except Unavailable as error:
        return {"database": error.detail}
    return {}


@get("/metrics", summary="Prometheus metrics", media_type=CONTENT_TYPE_LATEST)
async def metrics(registry: CollectorRegistry) -> Response[bytes]:
    return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)
