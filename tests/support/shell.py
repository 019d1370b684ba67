"""`everturn` as a program: in a folder, with an environment."""

from __future__ import annotations

import asyncio
import json
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any

from everturn import Client
from everturn.errors import NotFound
from tests.support.prepared import Program, run
from tests.support.waiting import eventually, waiting

TOOLS = """
import subprocess

from everturn import tool

def get_weather(city: str) -> str:
    "The weather in a city."
    return f"Sunny in {city}"

@tool(needs_approval=True, effect="once")
def refund(order: str, cents: int) -> str:
    "Give money back."
    print("a tool's own words")  # not a part of the reply
    subprocess.run(["echo", "and those of a program that it starts"])
    return f"refunded {cents} of {order}"
"""


class Shell:
    """Runs `everturn` in a folder, with an environment."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self.folder = folder
        self.environment = environment

    def start(self, *arguments: str) -> Program:
        streams = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        return Program("-m", "everturn", *arguments, cwd=self.folder, env=self.environment, **streams)

    def run(self, *arguments: str, says: str = "") -> subprocess.CompletedProcess[str]:
        done = run("-m", "everturn", *arguments, cwd=self.folder, env=self.environment, says=says)
        assert "Traceback" not in done.stderr
        return done

    def until_one_waits(self, conversation_id: str) -> None:
        """Returns once a call of the conversation waits for somebody. Asked from here: a command takes a second."""
        asyncio.run(_until_one_waits(self.environment["TEMPORAL_ADDRESS"], conversation_id))

    def json(self, *arguments: str) -> Any:
        done = self.run(*arguments, "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)


async def _until_one_waits(address: str, conversation_id: str) -> None:
    conversation = (await Client.connect(address)).conversation(conversation_id)

    async def begun() -> bool:
        with suppress(NotFound):
            return bool(await conversation.status())
        return False

    await eventually(begun, what=f"{conversation_id} begins")
    await waiting(conversation)
