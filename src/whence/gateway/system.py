"""Health, metrics and the OpenAPI document."""

import asyncio
from functools import cache

from litestar import Response, get
from litestar.di import NamedDependency
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from whence import __version__
from whence.app import App
from whence.db.migrate import migrations
from whence.errors import Unavailable
from whence.gateway.events import TheApp
from whence.wire import Health

HEALTH_SECONDS = 2.0
LAG_SECONDS = 60
"""So far may the graph be behind."""
# Litestar adds the character set itself.
_METRICS_TYPE = CONTENT_TYPE_LATEST.removesuffix("; charset=utf-8")


@get("/", include_in_schema=False)
async def front_page() -> dict[str, str]:
    return {"name": "whence", "version": __version__, "openapi": "/openapi.json", "health": "/health"}


@get("/health", summary="Whether the parts work; always 200, `degraded` names the parts that do not")
async def health(app: TheApp) -> Health:
    failing = await _silent(app) or await _behind(app)
    if app.memory.is_embedder_failing:
        failing["embedder"] = "did not answer when it was asked last"
    if app.chats.is_model_failing:
        failing["language_model"] = "did not answer when it was asked last"
    return Health("degraded" if failing else "ok", __version__, failing)


@get("/health/live", summary="The process answers")
async def live() -> Health:
    return Health("ok", __version__, {})


@get("/health/ready", summary="200 when requests can be served, 503 when not")
async def ready(app: TheApp) -> Health:
    failing = await _silent(app)
    if failing or app.stopping.is_set():
        raise Unavailable(f"not ready: {', '.join(failing) or 'stopping'}")
    return Health("ok", __version__, {})


async def _silent(app: App) -> dict[str, str]:
    """What nothing works without."""
    try:
        async with asyncio.timeout(HEALTH_SECONDS):
            version = await app.database.schema_version()
    except (Unavailable, TimeoutError):
        return {"database": "does not answer"}
    if version > _known_version():
        return {"database": "was migrated by a newer Whence: stop this server, and start that one"}
    return {}


@cache
def _known_version() -> int:
    return migrations()[-1].version


async def _behind(app: App) -> dict[str, str]:
    try:
        async with asyncio.timeout(HEALTH_SECONDS):
            seconds = await app.projector.lag()
    except (Unavailable, TimeoutError):
        return {"worker": "it is not known how far the graph is behind"}
    return {"worker": f"the graph is {seconds:,.0f} s behind"} if seconds > LAG_SECONDS else {}


@get("/metrics", summary="Prometheus metrics", media_type=_METRICS_TYPE)
async def metrics(app: TheApp, registry: NamedDependency[CollectorRegistry]) -> Response[bytes]:
    """How far the graph is behind and how many jobs wait is asked for now, and not told if the database is silent."""
    try:
        async with asyncio.timeout(HEALTH_SECONDS):
            await app.projector.measure()
            await app.queue.measure()
    except (Unavailable, TimeoutError):
        app.projector.forget_measures()
        app.queue.forget_measures()
    return Response(generate_latest(registry), media_type=_METRICS_TYPE)
