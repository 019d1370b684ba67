"""Logs: one form for every line, on stderr, without keys.

`import everturn` configures nothing: our loggers write plain `logging` records, which a program that uses everturn as
a library sees in its own form; a worker only leaves out a traceback that says the same once more. Only the CLI and the
worker process call `configure`.

Nothing heavy is imported at the top, so that workflow code can import this module inside Temporal's sandbox.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from datetime import timedelta
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, cast

if TYPE_CHECKING:
    import structlog

    from everturn.text.log_lines import LogFormat

LogLevel = Literal["debug", "info", "warning", "error"]


def get_logger(name: str, **facts: Any) -> structlog.stdlib.BoundLogger:
    """A structlog logger that writes to `logging.getLogger(name)`: `log.info("turn.finished", turn=3)`."""
    if facts:
        return _plain_logger(name).bind(**facts)
    return cast("structlog.stdlib.BoundLogger", _AtFirstUse(name))


class _AtFirstUse:
    """Imports structlog with the first line that is logged: most short programs log none."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        return getattr(_plain_logger(self._name), attribute)


@cache
def _plain_logger(name: str) -> structlog.stdlib.BoundLogger:
    import structlog

    logger: structlog.stdlib.BoundLogger = structlog.wrap_logger(
        logging.getLogger(name),
        processors=_processors(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    return logger


def workflow_log(event: str, *, level: LogLevel = "info", **facts: Any) -> None:
    """Log from workflow code: once, when it happens, and never again on replay."""
    from temporalio import workflow

    if workflow.unsafe.is_replaying_history_events():
        return
    with workflow.unsafe.sandbox_unrestricted(), workflow.unsafe.imports_passed_through():
        log = get_logger("everturn.workflow", conversation=workflow.info().workflow_id)
        turn = getattr(workflow.instance(), "turn", None)
        if turn is not None:
            facts = {"turn": turn, **facts}
        getattr(log, level)(event, **facts)


@contextmanager
def _no_rich() -> Iterator[None]:
    """structlog imports rich, if it is installed, for tracebacks that show local variables: prompts, results, keys.
    They are not wanted, and the import takes five times as long as structlog's own."""
    kept = sys.modules.get("rich")
    sys.modules["rich"] = None  # type: ignore[assignment]  # how Python says that there is no such module
    try:
        yield
    finally:
        del sys.modules["rich"]
        if kept:
            sys.modules["rich"] = kept


def configure(*, format: LogFormat = "console", level: LogLevel = "info") -> None:  # noqa: A002 - reads best so
    """Send all of this process's log lines to stderr, in one form."""
    with _no_rich():
        import structlog

    from everturn.text.log_lines import make_formatter

    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(make_formatter(format))
    handler.addFilter(is_news)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    # httpx has a line for each request; below these levels, all three print contents: prompts, results, headers.
    logging.getLogger("httpx").setLevel(logging.WARNING)
    logging.getLogger("httpcore").setLevel(logging.WARNING)
    logging.getLogger("temporalio").setLevel(max(root.level, logging.INFO))
    # For the user's own structlog.get_logger(), in tools.
    structlog.configure(
        processors=_processors(),
        wrapper_class=structlog.stdlib.BoundLogger,
        logger_factory=structlog.stdlib.LoggerFactory(),
    )


def forward_core_logs() -> None:
    """Send the lines of Temporal's Rust core, which go to stdout by themselves, the way of all others.

    Call it before the process's first Temporal client.
    """
    from temporalio.runtime import Runtime, TelemetryConfig

    runtime = Runtime(telemetry=TelemetryConfig(logging=core_logs()), worker_heartbeat_interval=WORKER_HEARTBEATS)
    Runtime.set_default(runtime, error_if_already_set=False)


WORKER_HEARTBEATS = timedelta(seconds=3)
"""How often this process's workers tell the server that they are there, and whom they host. Temporal's own default is a
minute, and so long a worker that has just begun may be unknown."""

_ABOUT = ("conversation", "turn", "tool", "call", "attempt")


def core_logs() -> Any:
    """Temporal's LoggingConfig for that."""
    from temporalio.runtime import LogForwardingConfig, LoggingConfig, TelemetryFilter

    forwarding = LogForwardingConfig(logger=logging.getLogger("temporalio.core"), append_target_to_name=False)
    return LoggingConfig(filter=TelemetryFilter(core_level="WARN", other_level="ERROR"), forwarding=forwarding)


def _processors() -> list[Any]:
    import structlog

    return [
        structlog.stdlib.filter_by_level,
        structlog.contextvars.merge_contextvars,
        _about_first,
        structlog.stdlib.PositionalArgumentsFormatter(),
        _as_record,
    ]


def _about_first(_: Any, __: str, facts: MutableMapping[str, Any]) -> dict[str, Any]:
    """What a line is about comes before what it says of it: the context's own order is none."""
    return {name: facts[name] for name in _ABOUT if name in facts} | dict(facts)


def _as_record(_: Any, __: str, facts: Any) -> tuple[tuple[_Message], dict[str, Any]]:
    """The arguments of a `logging` call: a readable message for anybody's formatter, and the facts for ours."""
    exc_info = facts.pop("exc_info", None)
    ours = {"event": str(facts.pop("event", "")), **facts}
    # The message is no format string: %-signs in it are only expanded if there are arguments, and there are none.
    return (_Message(ours),), {"exc_info": exc_info, "extra": {"everturn": ours}}


class _Message:
    """`turn.finished turn=3`, put together only if somebody reads it: our own lines are made from the facts."""

    def __init__(self, facts: Mapping[str, Any]) -> None:
        self._facts = facts

    def __str__(self) -> str:
        facts = {**self._facts}
        return " ".join([facts.pop("event"), *(f"{name}={value!r}" for name, value in facts.items())])


def is_news(record: logging.LogRecord) -> bool:
    """False for Temporal's own warning, with its traceback, about an activity that failed as ours are meant to.

    A failing tool or model call is normal, and our code has a line for it. Any other exception is a bug, and shown.
    """
    if getattr(record, "__temporal_error_identifier", None) != "ActivityFailure" or not record.exc_info:
        return True
    kind = record.exc_info[0]
    return kind is None or kind.__module__.partition(".")[0] not in ("temporalio", "everturn")
