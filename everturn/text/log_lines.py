"""How log lines look: for people and as JSON, safe to show, and without keys."""

from __future__ import annotations

import logging
import os
import sys
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, Literal

from everturn.text.printable import printable, printable_line
from everturn.text.secrets import hidden

LogFormat = Literal["console", "json"]

_PLAIN: Final = (int, float, type(None))


def make_formatter(form: LogFormat) -> logging.Formatter:
    """For lines on stderr; in colours if that is a terminal."""
    import structlog

    as_json = form == "json"
    stamp = structlog.processors.TimeStamper("iso" if as_json else "%H:%M:%S", utc=as_json)
    return structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=[_facts_of_record, structlog.stdlib.add_log_level, stamp],
        processors=[
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            # Not rich's traceback, which shows local variables: prompts, results, keys.
            structlog.processors.format_exc_info,
            *(_json_processors() if as_json else _console_processors()),
            _hide_secrets,
        ],
    )


def _json_processors() -> list[Any]:
    import structlog

    return [structlog.processors.JSONRenderer(default=str, ensure_ascii=False), _show_line]


def _console_processors() -> list[Any]:
    import structlog

    colors = sys.stderr.isatty() and not os.environ.get("NO_COLOR")
    plain = structlog.dev.plain_traceback
    return [
        _show_facts,
        structlog.dev.ConsoleRenderer(colors=colors, pad_event_to=0, sort_keys=False, exception_formatter=plain),
    ]


def _show_facts(_: Any, __: str, facts: Any) -> Any:
    """For the console, whose own colours come later: names and values that no terminal acts on. A line that looks like
    one of ours is seen to be the continuation of another."""
    exception = printable(facts.pop("exception", ""))
    line = {_shown_name(str(name)): _shown_value(value) for name, value in facts.items()}
    line["event"] = printable(str(facts.get("event", ""))).replace("\n", "\n    ")
    if exception:
        line["exception"] = exception
    return line


_shown_name = lru_cache(maxsize=1_000)(printable_line)  # they are few, and in every line


def _shown_value(value: Any) -> Any:
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, _PLAIN):
        return value
    return _Verbatim(printable(repr(value)))


@dataclass(frozen=True, repr=False)
class _Verbatim:
    """What the renderer is to write as it is."""

    text: str

    def __repr__(self) -> str:
        return self.text


def _show_line(_: Any, __: str, line: Any) -> str:
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


def _hide_secrets(_: Any, __: str, line: Any) -> str:
    """The last step: no value of a secret environment variable leaves, wherever in the line it is."""
    return hidden(str(line))
