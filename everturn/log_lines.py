"""How log lines look: for people and as JSON, safe to show, and without keys."""

from __future__ import annotations

import json
import logging
import os
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from functools import lru_cache, partial
from typing import Any, Final, Literal

from everturn.printable import printable, printable_line

LogFormat = Literal["console", "json"]

# Wide on purpose: a user's own key for a compatible server, or for a tool, is as secret as the ones that we know.
_SECRET_NAMES: Final = ("_KEY", "_TOKEN", "_SECRET", "_PASSWORD", "_KEY_DATA")
_PLAIN: Final = (int, float, type(None))
_SECRET_MIN_CHARS: Final = 8
"""Shorter values are placeholders, and would blot out ordinary words."""


class _Lines(logging.Formatter):
    """A record as one line, the way each form has it, without keys."""

    def __init__(self, shown: Callable[[dict[str, Any]], str]) -> None:
        super().__init__()
        self._shown = shown

    def format(self, record: logging.LogRecord) -> str:
        facts = {**_facts_of(record), "level": record.levelname.lower()}
        if record.stack_info:
            facts["stack_info"] = record.stack_info
        if record.exc_info and record.exc_info[0]:
            # Not rich's traceback, which shows local variables: prompts, results, keys.
            facts["exception"] = self.formatException(record.exc_info)
        return _scrubbed(self._shown(facts))


def formatter(form: LogFormat) -> logging.Formatter:
    """For lines on stderr; in colours if that is a terminal."""
    colors = _COLORS if sys.stderr.isatty() and not os.environ.get("NO_COLOR") else {}
    return _Lines(_as_json if form == "json" else partial(_for_people, colors=colors))


def _as_json(facts: dict[str, Any]) -> str:
    exception, stamp = facts.pop("exception", None), datetime.now(UTC).isoformat().replace("+00:00", "Z")
    line = {**facts, "timestamp": stamp, **({} if exception is None else {"exception": exception})}
    return printable(json.dumps(line, default=str, ensure_ascii=False))


_COLORS: Final = {
    "reset": "\x1b[0m",
    "time": "\x1b[2m",
    "event": "\x1b[1m",
    "logger": "\x1b[1m\x1b[34m",
    "name": "\x1b[36m",
    "value": "\x1b[35m",
    "debug": "\x1b[32m\x1b[1m",
    "info": "\x1b[32m\x1b[1m",
    "warning": "\x1b[33m\x1b[1m",
    "error": "\x1b[31m\x1b[1m",
    "critical": "\x1b[31m\x1b[1m",
}
_LEVEL_CHARS: Final = 9


def _for_people(facts: dict[str, Any], *, colors: Mapping[str, str]) -> str:
    """`12:00:00 [info     ] turn.finished turn=3 seconds=2.4`, and a traceback below it. Nothing in it is acted on by a
    terminal, and a line that looks like one of ours is seen to be the continuation of another."""
    exception, level, event = facts.pop("exception", ""), facts.pop("level"), printable(str(facts.pop("event", "")))
    words = [
        (time.strftime("%H:%M:%S"), "time"),
        (f"[{level:{_LEVEL_CHARS}}]", level),
        (event.replace("\n", "\n    "), "event"),
    ]
    if logger := facts.pop("logger", None):
        words.append((f"[{printable(str(logger))}]", "logger"))
    shown = [(_shown_name(name), _shown_value(value)) for name, value in facts.items()]
    if colors:
        reset, name_color, value_color = colors["reset"], colors["name"], colors["value"]
        line = [f"{colors.get(kind, '')}{word}{reset}" for word, kind in words]
        line += [f"{name_color}{name}{reset}={value_color}{value}{reset}" for name, value in shown]
    else:
        line = [*(word for word, _ in words), *(f"{name}={value}" for name, value in shown)]
    return " ".join(line) + (f"\n{printable(exception)}" if exception else "")


_shown_name = lru_cache(maxsize=1_000)(printable_line)  # they are few, and in every line
_WORD: Final = re.compile(r"[\w.:/@+-]+", re.ASCII)
_TO_QUOTE: Final = re.compile(r"[ \t=\r\n\"']")


def _shown_value(value: Any) -> str:
    """In quotes, if it would look like more than one value."""
    if not isinstance(value, str):
        return repr(value) if isinstance(value, _PLAIN) else printable(repr(value))
    if _WORD.fullmatch(value):
        return value
    text = printable(value)
    return repr(text) if _TO_QUOTE.search(text) else text


def _facts_of(record: logging.LogRecord) -> dict[str, Any]:
    ours: dict[str, Any] | None = getattr(record, "everturn", None)
    if ours is not None:
        return ours
    facts: dict[str, Any] = {"event": record.getMessage(), "logger": record.name}
    # Temporal puts a dictionary of 500 characters after each message: keep what tells one line from another.
    details = getattr(record, "temporal_activity", None) or getattr(record, "temporal_workflow", None)
    if details:
        facts["event"] = facts["event"].partition(" ({'")[0]
        facts["conversation"] = details.get("workflow_id")
        facts["activity"] = details.get("activity_type")
        facts["attempt"] = details.get("attempt")
    return {name: value for name, value in facts.items() if value is not None}


def _scrubbed(line: str) -> str:
    """The last step: no value of a secret environment variable leaves, wherever in the line it is."""
    for secret, name in _secrets.now():
        line = line.replace(secret, name)
    return line


class _Secrets:
    """What no line may hold, by what takes its place: found anew when the environment is another one. A user's file
    may load its keys after the logs were configured."""

    def __init__(self) -> None:
        self._environment: dict[bytes, bytes] = {}
        self._found: tuple[tuple[str, str], ...] = ()

    def now(self) -> tuple[tuple[str, str], ...]:
        # The mapping inside: to compare it as a whole costs less than to look at one variable.
        if self._environment != (there := os.environ._data):  # type: ignore[attr-defined]
            self._environment = dict(there)
            self._found = tuple(_secrets_of(os.environ))
        return self._found


_secrets: Final = _Secrets()


def _secrets_of(environment: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for name, value in environment.items():
        if names_a_secret(name):
            # A private key has lines, and their breaks are written in other ways here.
            for secret in (value, *(value.splitlines() if "\n" in value else ())):
                if len(secret) >= _SECRET_MIN_CHARS:
                    yield secret, f"<{name}>"


def names_a_secret(variable: str) -> bool:
    """Whether an environment variable's name says that others are not to see its value."""
    return variable.endswith(_SECRET_NAMES)
