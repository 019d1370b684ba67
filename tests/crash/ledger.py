"""Where tools under test leave their effects: one row each, in a database that the harness owns."""

from __future__ import annotations

import json
import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

BUSY_SECONDS = 30.0
COLUMNS = "tool, key, attempt, pid, at, arguments"


@dataclass(frozen=True, slots=True)
class Effect:
    receipt: int
    tool: str
    key: str
    attempt: int
    pid: int
    at: float
    arguments: str = "{}"
    """What the tool ran with, as JSON."""


class Ledger:
    """Any process may write; what one wrote before it was killed stays."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def create(self) -> Ledger:
        with self._open() as database:
            database.execute("PRAGMA journal_mode=WAL")
            database.execute(
                "CREATE TABLE effects (receipt INTEGER PRIMARY KEY AUTOINCREMENT, tool TEXT NOT NULL, "
                "key TEXT NOT NULL, attempt INTEGER NOT NULL, pid INTEGER NOT NULL, at REAL NOT NULL, "
                "arguments TEXT NOT NULL)"
            )
        return self

    def write(self, tool: str, key: str, attempt: int, arguments: dict[str, Any]) -> int:
        """Notes that the tool has taken effect; returns the receipt's number."""
        row = (tool, key, attempt, os.getpid(), time.time(), json.dumps(arguments))
        with self._open() as database:
            written = database.execute(f"INSERT INTO effects ({COLUMNS}) VALUES (?, ?, ?, ?, ?, ?)", row)
            assert written.lastrowid is not None
            return written.lastrowid

    def effects(self) -> list[Effect]:
        with self._open() as database:
            rows = database.execute(f"SELECT receipt, {COLUMNS} FROM effects ORDER BY receipt")
            return [Effect(*row) for row in rows]

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        with closing(sqlite3.connect(self._path, timeout=BUSY_SECONDS)) as database, database:
            # A killed process loses nothing by it, and a power cut is not tested here.
            database.execute("PRAGMA synchronous=OFF")
            yield database
