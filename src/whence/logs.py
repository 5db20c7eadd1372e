"""Log lines: structured, on standard error, without keys, payloads or query strings."""

import logging
import sys

import structlog

from whence.settings import Settings


def configure_logs(settings: Settings) -> None:
    level = logging.getLevelNamesMapping()[settings.log_level.upper()]
    render = (
        structlog.processors.JSONRenderer()
        if settings.log_format == "json"
        else structlog.dev.ConsoleRenderer(
            colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback
        )
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info
            if settings.log_format == "json"
            else structlog.processors.StackInfoRenderer(),
            render,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    # Libraries speak up only when something is wrong; their debug lines may quote what we keep out of ours.
    # psycopg tells of an error twice when it happens in a pipeline; ours is the one that counts.
    logging.getLogger("psycopg").setLevel(logging.ERROR)
    logging.getLogger("psycopg.pool").setLevel(logging.WARNING)
    logging.basicConfig(
        level=logging.WARNING, stream=sys.stderr, format="%(asctime)s [%(levelname)s] %(name)s: %(message)s"
    )
