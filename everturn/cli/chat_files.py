"""What a chat of this machine leaves behind: its database, and the options to come back to it with."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from everturn.private_files import write_atomically

if TYPE_CHECKING:
    from everturn.cli.connect import AgentChoice


class ChatFiles:
    """A place for each chat, so that they never meet."""

    def __init__(self, name: str) -> None:
        state = Path(os.environ.get("XDG_STATE_HOME") or "~/.local/state").expanduser()
        place = state / "everturn" / "chats" / quote(name, safe="")
        self.database = place.with_name(f"{place.name}.db")
        """Of its own Temporal, if none is configured."""
        self.options = place.with_name(f"{place.name}.json")

    def remember(self, wanted: AgentChoice) -> None:
        written = {
            "model": wanted.model,
            "tools": [str(path.resolve()) for path in wanted.tools],
            "system": wanted.system,
            "agent": wanted.agent,
        }
        with suppress(OSError):  # then it takes the options again to come back
            write_atomically(self.options, json.dumps(written).encode())

    def clear(self) -> None:
        """It was closed: there is nothing to come back to."""
        beside = [self.database.with_name(self.database.name + suffix) for suffix in ("", "-wal", "-shm")]
        for path in (*beside, self.database.with_suffix(".log"), self.options):
            path.unlink(missing_ok=True)


def remembered(name: str) -> AgentChoice | None:
    """The options that a chat was held with, here and last."""
    from everturn.cli.connect import AgentChoice

    try:
        written = json.loads(ChatFiles(name).options.read_text())
        tools = [Path(path) for path in written["tools"]]
        return AgentChoice(written["model"], tools, written["system"], written["agent"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
