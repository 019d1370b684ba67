"""The files that a chat leaves on this machine: its database, and its options for the next time."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from everturn.system.private_files import write_atomically

if TYPE_CHECKING:
    from everturn.cli.connect import AgentChoice


class ChatFiles:
    """The files of one chat. Each chat has its own."""

    def __init__(self, name: str) -> None:
        state = Path(os.environ.get("XDG_STATE_HOME") or "~/.local/state").expanduser()
        place = state / "everturn" / "chats" / quote(name, safe="")
        self.database = place.with_name(f"{place.name}.db")
        """The database of the chat's own Temporal server, if no other is configured."""
        self.options = place.with_name(f"{place.name}.json")

    def save_options(self, choice: AgentChoice) -> None:
        written = {
            "model": choice.model,
            "tools": [str(path.resolve()) for path in choice.tools],
            "system": choice.system,
            "agent": choice.agent,
        }
        with suppress(OSError):  # then the options have to be given again
            write_atomically(self.options, json.dumps(written).encode())

    def delete_files(self) -> None:
        """Deletes the files of a chat that was closed."""
        beside = [self.database.with_name(self.database.name + suffix) for suffix in ("", "-wal", "-shm")]
        for path in (*beside, self.database.with_suffix(".log"), self.options):
            path.unlink(missing_ok=True)


def load_options(name: str) -> AgentChoice | None:
    """The options that the chat last had on this machine."""
    from everturn.cli.connect import AgentChoice

    try:
        written = json.loads(ChatFiles(name).options.read_text())
        tools = [Path(path) for path in written["tools"]]
        return AgentChoice(written["model"], tools, written["system"], written["agent"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
