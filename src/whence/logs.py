"""Log lines: structured, on standard error, without keys, payloads or query strings."""

import logging
import sys
import traceback

import structlog

from whence.errors import WhenceError
from whence.settings import Settings

log = structlog.get_logger()


def configure_logs(settings: Settings) -> None:
    level = logging.getLevelNamesMapping()[settings.log_level.upper()]
    render = (
        structlog.processors.JSONRenderer()
        if settings.log_format == "json"
        else structlog.dev.ConsoleRenderer(
            colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback
        )
    )
    as_json = settings.log_format == "json"
    shared: list[structlog.typing.Processor] = [
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info if as_json else structlog.processors.StackInfoRenderer(),
    ]
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            *shared,
            render,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    # Libraries speak up only when something is wrong; their debug lines may quote what we keep out of ours.
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *shared, render],
            foreign_pre_chain=[structlog.stdlib.add_log_level, structlog.stdlib.add_logger_name],
        )
    )
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    # psycopg tells of an error twice when it happens in a pipeline; ours is the one that counts.
    logging.getLogger("psycopg").setLevel(logging.ERROR)
    logging.getLogger("psycopg.pool").setLevel(logging.WARNING)


def leave_logs_to_host() -> None:
    """Inside another program, lines go to `logging` under the names of our modules, where the program has the say.

    One that uses structlog itself has said already what is to become of them.
    """
    if structlog.is_configured():
        return
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            structlog.contextvars.merge_contextvars,
            structlog.processors.KeyValueRenderer(key_order=["event"], drop_missing=True),
        ],
        wrapper_class=structlog.stdlib.BoundLogger,
        logger_factory=structlog.stdlib.LoggerFactory(),
    )


def tell_failure(work: str, error: Exception, again: bool = True, **where: object) -> None:
    """Of work that nobody waits for. What we foresee says what it is; of the rest, where it came from.

    What it says is left out, because it may quote what it failed at.
    """
    known = isinstance(error, WhenceError)
    reason = error.detail if known else type(error).__name__
    said = "work failed, and is tried again" if again else "work failed, and is given up"
    trace = {} if known else {"exception": "".join(traceback.format_tb(error.__traceback__)) + reason}
    log.error(said, work=work, error=reason, **trace, **where)
