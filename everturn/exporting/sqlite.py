"""SQLite: a database that holds exported conversations, for questions in SQL."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from everturn.errors import InvalidFile
from everturn.exporting.jsonl import heading_facts, iso_time, usage_json
from everturn.exporting.reading import CallTimes, Exported, TurnFacts
from everturn.records import Message, Part, Thinking, ToolCall, ToolResult
from everturn.system.private_files import OWNER_ONLY
from everturn.text.json_text import json_text

APPLICATION_ID = 0x45565254
"""`EVRT`: the application id, by which `file` and everturn recognise such a database."""
VERSION = 5

SCHEMA = """
CREATE TABLE IF NOT EXISTS conversations (
  id TEXT PRIMARY KEY, agent TEXT, model TEXT, status TEXT, started_at TEXT, ended_at TEXT, text TEXT, reason TEXT,
  turns INTEGER, messages INTEGER, total_tokens INTEGER, cost_usd REAL, exported_at TEXT, tenant TEXT, metadata TEXT
);
CREATE TABLE IF NOT EXISTS messages (
  conversation TEXT REFERENCES conversations (id) ON DELETE CASCADE, position INTEGER, role TEXT, author TEXT,
  turn INTEGER, at TEXT, text TEXT, thinking TEXT, parts TEXT, cut_short INTEGER,
  PRIMARY KEY (conversation, position)
);
CREATE TABLE IF NOT EXISTS tool_calls (
  conversation TEXT REFERENCES conversations (id) ON DELETE CASCADE, call_id TEXT, position INTEGER, turn INTEGER,
  name TEXT, arguments TEXT, started_at TEXT, finished_at TEXT, state TEXT, PRIMARY KEY (conversation, call_id)
);
CREATE TABLE IF NOT EXISTS tool_results (
  conversation TEXT REFERENCES conversations (id) ON DELETE CASCADE, call_id TEXT, position INTEGER, name TEXT,
  is_error INTEGER, text TEXT, content TEXT, verdict TEXT, decided_by TEXT, decided_at TEXT, note TEXT,
  edited_arguments TEXT, PRIMARY KEY (conversation, call_id)
);
CREATE TABLE IF NOT EXISTS usage (
  conversation TEXT REFERENCES conversations (id) ON DELETE CASCADE, turn INTEGER, kind TEXT, model TEXT,
  started_at TEXT, finished_at TEXT, stop TEXT, input_tokens INTEGER, output_tokens INTEGER, cached_tokens INTEGER,
  cache_write_tokens INTEGER, reasoning_tokens INTEGER, cost_usd REAL, agent TEXT,
  cache_write_1h_tokens INTEGER, input_audio_tokens INTEGER, output_audio_tokens INTEGER, web_searches INTEGER,
  output_image_tokens INTEGER, cached_audio_tokens INTEGER,
  PRIMARY KEY (conversation, turn)
);
CREATE INDEX IF NOT EXISTS tool_calls_by_name ON tool_calls (name);
"""
"""Times are ISO 8601, UTC. `metadata`, `parts`, `arguments`, `content` and `edited_arguments` are JSON, for SQLite's
functions. A new column goes to the end of its table, and into ADDED."""

ADDED = {
    1: (
        "conversations ADD tenant TEXT",
        "conversations ADD metadata TEXT",
        "messages ADD cut_short INTEGER",
        "usage ADD agent TEXT",
    ),
    2: ("tool_calls ADD state TEXT",),
    3: (
        "usage ADD cache_write_1h_tokens INTEGER",
        "usage ADD input_audio_tokens INTEGER",
        "usage ADD output_audio_tokens INTEGER",
        "usage ADD web_searches INTEGER",
    ),
    4: ("usage ADD output_image_tokens INTEGER", "usage ADD cached_audio_tokens INTEGER"),
}
"""The columns that a database of an older version lacks. Rows that are in it have no value there until they are
exported again."""

Row = dict[str, Any]


def write_sqlite(path: Path | str, conversations: Iterable[Exported]) -> None:
    """Puts conversations into a database, and makes the database if there is none. A conversation that is in it already
    is replaced.

    Raises InvalidFile if the file is something else.
    """
    with suppress(OSError):  # it is there, or can't be: SQLite says why
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, OWNER_ONLY))
    try:
        with closing(sqlite3.connect(path)) as database:
            _prepare(database, path)
            for exported in conversations:
                with database:
                    database.execute("DELETE FROM conversations WHERE id = ?", (exported.id,))
                    for table, row in _table_rows(exported):
                        names = ", ".join(row)
                        marks = ", ".join("?" * len(row))
                        database.execute(
                            f"INSERT OR REPLACE INTO {table} ({names}) VALUES ({marks})", tuple(row.values())
                        )
    except sqlite3.Error as error:
        raise InvalidFile(f"{path} can't be written: {error}.", cure="Name another file.") from error


def _prepare(database: sqlite3.Connection, path: Path | str) -> None:
    database.execute("PRAGMA foreign_keys = ON")
    (application,) = database.execute("PRAGMA application_id").fetchone()
    (version,) = database.execute("PRAGMA user_version").fetchone()
    (tables,) = database.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    known = version == VERSION or version in ADDED
    if tables and not (application == APPLICATION_ID and known):
        what = f"one of another version ({version})" if application == APPLICATION_ID else "somebody else's"
        raise InvalidFile(f"The database {path} is {what}.", cure="Name another file.")
    if not tables:
        database.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        database.execute(f"PRAGMA user_version = {VERSION}")
        database.executescript(SCHEMA)
    elif version != VERSION:
        with database:
            database.execute("BEGIN")  # sqlite3 begins one by itself for changes of rows only
            for older in range(version, VERSION):
                for change in ADDED[older]:
                    database.execute(f"ALTER TABLE {change}")
            database.execute(f"PRAGMA user_version = {VERSION}")


def _table_rows(exported: Exported) -> Iterator[tuple[str, Row]]:
    yield "conversations", _conversation_row(exported)
    states = {open_call.call.call_id: open_call.state for open_call in exported.open_calls}
    for position, message in enumerate(exported.messages):
        turn: int | None = None
        at: str | None = None
        if facts := exported.facts.get(position):
            turn = facts.turn
            at = iso_time(facts.at)
        place = {"conversation": exported.id, "position": position}
        yield "messages", {**place, "turn": turn, "at": at, **_message_row(message)}
        for call in message.tool_calls:
            row = _call_row(call, exported.calls.get(call.call_id))
            yield "tool_calls", {**place, "turn": turn, **row, "state": states.get(call.call_id)}
        for result in message.tool_results:
            yield "tool_results", {**place, **_result_row(result)}
    for open_call in exported.open_calls:
        if open_call.result:  # the transcript gets all results of a reply together
            yield "tool_results", {"conversation": exported.id, "position": None, **_result_row(open_call.result)}
    for turn_facts in exported.turns:
        yield "usage", {"conversation": exported.id, **_turn_row(turn_facts)}


def _conversation_row(exported: Exported) -> Row:
    row: Row = {
        **heading_facts(exported),
        "text": None,
        "reason": None,
        "turns": len(exported.turns),
        "messages": len(exported.messages),
        "total_tokens": exported.usage.total_tokens,
        "cost_usd": exported.cost_usd,
        "exported_at": iso_time(datetime.now(UTC)),
        "tenant": exported.labels.get("tenant"),
        "metadata": None,
    }
    if exported.outcome:
        row |= {"text": exported.outcome.text, "reason": exported.outcome.reason}
    if metadata := exported.labels.get("metadata"):
        row["metadata"] = json_text(metadata)
    return row


def _message_row(message: Message) -> Row:
    return {
        "role": message.role,
        "author": message.author or None,
        "text": message.text,
        "thinking": "".join(part.text for part in message.parts if isinstance(part, Thinking)) or None,
        "parts": _parts_json(message.parts),
        "cut_short": message.cut_short,
    }


def _call_row(call: ToolCall, times: CallTimes | None) -> Row:
    return {
        "call_id": call.call_id,
        "name": call.name,
        "arguments": json_text(call.arguments),
        "started_at": iso_time(times.started_at) if times else None,
        "finished_at": iso_time(times.finished_at) if times else None,
    }


def _result_row(result: ToolResult) -> Row:
    row: Row = {
        "call_id": result.call_id,
        "name": result.name,
        "is_error": result.is_error,
        "text": result.text,
        "content": _parts_json(result.content),
        "verdict": None,
        "decided_by": None,
        "decided_at": None,
        "note": None,
        "edited_arguments": None,
    }
    if decision := result.decision:
        row |= {
            "verdict": decision.verdict,
            "decided_by": decision.by,
            "decided_at": decision.at,
            "note": decision.note,
        }
        if decision.arguments is not None:
            row["edited_arguments"] = json_text(decision.arguments)
    return row


def _turn_row(turn: TurnFacts) -> Row:
    return {
        "turn": turn.turn,
        "kind": turn.kind,
        "model": turn.model,
        "started_at": iso_time(turn.started_at),
        "finished_at": iso_time(turn.finished_at),
        "stop": turn.stop,
        **usage_json(turn.usage),
        "cost_usd": turn.cost_usd,
        "agent": turn.agent or None,
    }


def _parts_json(parts: tuple[Part, ...] | tuple[Any, ...]) -> str:
    return json_text([part.model_dump(mode="json") for part in parts])
