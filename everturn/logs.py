"""Logs: one form for every line, on stderr, without keys.

`import everturn` configures nothing: our loggers write plain `logging` records, which a program that uses everturn as
a library sees in its own form. Only the CLI and the worker process call `configure`.

Nothing heavy is imported at the top, so that workflow code can import this module inside Temporal's sandbox.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import MutableMapping
from dataclasses import dataclass
from datetime import timedelta
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, Final, Literal

from everturn.printable import printable, printable_line

if TYPE_CHECKING:
    import structlog

LogFormat = Literal["console", "json"]
LogLevel = Literal["debug", "info", "warning", "error"]

# Wide on purpose: a user's own key for a compatible server, or for a tool, is as secret as the ones that we know.
_SECRET_NAMES: Final = ("_KEY", "_TOKEN", "_SECRET", "_PASSWORD", "_KEY_DATA")
_ENCODED_SECRET_NAMES: Final = tuple(name.encode() for name in _SECRET_NAMES)
_PLAIN: Final = (int, float, type(None))
_SECRET_MIN_CHARS: Final = 8
"""Shorter values are placeholders, and would blot out ordinary words."""


def get_logger(name: str, **facts: Any) -> structlog.stdlib.BoundLogger:
    """A structlog logger that writes to `logging.getLogger(name)`: `log.info("turn.finished", turn=3)`."""
    return _plain_logger(name).bind(**facts) if facts else _plain_logger(name)


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
        getattr(log, level)(event, **({} if turn is None else {"turn": turn}), **facts)


def configure(*, format: LogFormat = "console", level: LogLevel = "info") -> None:  # noqa: A002 - reads best so
    """Send all of this process's log lines to stderr, in one form."""
    import structlog

    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_formatter(format))
    handler.addFilter(_is_news)
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


def _as_record(_: Any, __: str, facts: Any) -> tuple[tuple[str], dict[str, Any]]:
    """The arguments of a `logging` call: a readable message for anybody's formatter, and the facts for ours."""
    exc_info = facts.pop("exc_info", None)
    event = str(facts.pop("event", ""))
    message = " ".join([event, *(f"{name}={value!r}" for name, value in facts.items())])
    # The message is no format string: %-signs in it are only expanded if there are arguments, and there are none.
    return (message,), {"exc_info": exc_info, "extra": {"everturn": {"event": event, **facts}}}


def _formatter(format: LogFormat) -> logging.Formatter:  # noqa: A002
    import structlog

    as_json = format == "json"
    colors = sys.stderr.isatty() and not os.environ.get("NO_COLOR")
    renderers: list[Any] = (
        [structlog.processors.JSONRenderer(default=str, ensure_ascii=False)]
        if as_json
        # Not rich's traceback, which shows local variables: prompts, results, keys.
        else [
            structlog.dev.ConsoleRenderer(
                colors=colors, pad_event_to=0, sort_keys=False, exception_formatter=structlog.dev.plain_traceback
            )
        ]
    )
    stamp = (
        structlog.processors.TimeStamper("iso", utc=True)
        if as_json
        else structlog.processors.TimeStamper("%H:%M:%S", utc=False)
    )
    return structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=[_facts_of_record, structlog.stdlib.add_log_level, stamp],
        processors=[
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            structlog.processors.format_exc_info,
            *([] if as_json else [_shown]),
            *renderers,
            *([_shown_whole] if as_json else []),
            _scrub,
        ],
    )


def _shown(_: Any, __: str, facts: Any) -> Any:
    """For the console, whose own colours come later: names and values that no terminal acts on. A line that looks like
    one of ours is seen to be the continuation of another."""
    exception = printable(facts.pop("exception", ""))
    shown = {_shown_name(str(name)): _shown_value(value) for name, value in facts.items()}
    shown["event"] = printable(str(facts.get("event", ""))).replace("\n", "\n    ")
    return {**shown, "exception": exception} if exception else shown


_shown_name = lru_cache(maxsize=1_000)(printable_line)  # they are few, and in every line


def _shown_value(value: Any) -> Any:
    if isinstance(value, str):
        return printable(value)
    return value if isinstance(value, _PLAIN) else _Shown(printable(repr(value)))


@dataclass(frozen=True, repr=False)
class _Shown:
    """What the renderer is to write as it is."""

    text: str

    def __repr__(self) -> str:
        return self.text


def _shown_whole(_: Any, __: str, line: Any) -> str:
    return printable(line)


def _facts_of_record(_: Any, __: str, facts: Any) -> Any:
    record: logging.LogRecord = facts["_record"]
    ours = getattr(record, "everturn", None)
    if ours is not None:
        return {**facts, **ours}
    facts["logger"] = record.name
    # Temporal puts a dictionary of 500 characters after each message: keep what tells one line from another.
    details = getattr(record, "temporal_activity", None) or getattr(record, "temporal_workflow", None)
    if details:
        facts["event"] = facts["event"].partition(" ({'")[0]
        facts["conversation"] = details.get("workflow_id")
        facts["activity"] = details.get("activity_type")
        facts["attempt"] = details.get("attempt")
    return {name: value for name, value in facts.items() if value is not None}


def _is_news(record: logging.LogRecord) -> bool:
    """False for Temporal's own warning, with its traceback, about an activity that failed as ours are meant to.

    A failing tool or model call is normal, and our code has a line for it. Any other exception is a bug, and shown.
    """
    if getattr(record, "__temporal_error_identifier", None) != "ActivityFailure" or not record.exc_info:
        return True
    kind = record.exc_info[0]
    return kind is None or kind.__module__.partition(".")[0] not in ("temporalio", "everturn")


def names_a_secret(variable: str) -> bool:
    """Whether an environment variable's name says that others are not to see its value."""
    return variable.endswith(_SECRET_NAMES)


def _scrub(_: Any, __: str, line: Any) -> str:
    """The last step: no value of a secret environment variable leaves, wherever in the line it is."""
    # Read anew for each line: a user's file may load its keys after the logs were configured.
    for encoded in os.environb:  # of which a look costs a quarter
        if encoded.endswith(_ENCODED_SECRET_NAMES):
            name = os.fsdecode(encoded)
            value = os.environ[name]
            # A private key has lines, and their breaks are written in other ways here.
            for secret in (value, *(value.splitlines() if "\n" in value else ())):
                if len(secret) >= _SECRET_MIN_CHARS:
                    line = line.replace(secret, f"<{name}>")
    return str(line)
