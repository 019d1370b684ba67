"""Temporal's samples for AI, done with everturn: each runs as a program, and is no longer than theirs."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from everturn.devserver import DevServer
from everturn.testing import ScriptedModel, call, say

FOLDER = Path(__file__).parents[2] / "examples" / "temporal_samples"

Scripted = Callable[..., ScriptedModel]


def _translate(messages: list[dict[str, Any]], body: dict[str, Any]) -> Any:
    """The model of all five agents."""
    system = messages[0]["content"]
    if language := re.search(r"message to (\w+)", system):
        return say(f"({language[1]})")
    if "You inspect" in system:
        return say(f"Synthesised: {messages[-1]['content'].splitlines()[-1]}")
    results = [message["content"] for message in messages if message["role"] == "tool"]
    if results:
        return say(" ".join(results))
    return [call(tool["function"]["name"], {"message": "Good morning!"}) for tool in body["tools"]]


SAMPLES: dict[str, tuple[str, Any, str]] = {
    "tools": (
        "What is the weather in Tokyo?",
        lambda messages: (
            say(messages[-1]["content"]) if messages[-1]["role"] == "tool" else call("get_weather", {"city": "Tokyo"})
        ),
        '{"city":"Tokyo","temperature_range":"14-20C","conditions":"Sunny with wind."}\n',
    ),
    "tool_loop": (
        "Give me a random number.",
        [call("get_random_number"), call("get_weather_alerts", {"region": "CA"}), "There it is."],
        "There it is.\n",
    ),
    "approval": (
        "Lisbon",
        [call("book_trip", {"city": "Lisbon"}), "Booked."],
        "Approve book_trip({'city': 'Lisbon'})?\nBooked.\n",
    ),
    "hook_approval": (
        "Delete notes.txt.",
        [call("delete_file", {"path": "notes.txt"}), "Gone."],
        "approve delete of notes.txt?\nGone.\n",
    ),
    "forced_tool": (
        "What is the weather in Tokyo?",
        lambda messages, body: call("get_weather", {"city": "Tokyo"}) if body["tool_choice"] == "required" else "No.",
        "Tokyo is sunny with wind, 14-20C.\n",
    ),
    "agents_as_tools": ("Good morning!", _translate, "Synthesised: (Spanish) (French) (Italian)\n"),
}


@pytest.mark.parametrize("name", SAMPLES)
async def test_a_sample_runs(name: str, server: DevServer, scripted: Scripted) -> None:
    message, script, printed = SAMPLES[name]
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": os.environ.get("HOME", ""),
        "TEMPORAL_ADDRESS": server.address,
        "EVERTURN_TASK_QUEUE": f"sample-{uuid4().hex[:8]}",
        "MODEL": "scripted:demo",
        "SCRIPTED_BASE_URL": scripted(script).base_url,
    }
    program = await asyncio.create_subprocess_exec(
        sys.executable, str(FOLDER / f"{name}.py"), message,
        env=environment, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    said, errors = await program.communicate()
    assert (program.returncode, said.decode()) == (0, printed), errors.decode()


def test_the_table_of_lengths_is_true_and_no_sample_is_longer_than_theirs() -> None:
    lengths: dict[str, int] = {}
    name = ""
    for row in (FOLDER / "README.md").read_text().splitlines():
        if found := re.fullmatch(r"\| (?:\[(\w+)\.py\]\(\w+\.py\))? ?\| (\d*) ?\| .* \| (\d+) \|", row):
            name = found[1] or name
            lengths[name] = int(found[2]) if found[1] else lengths[name]
            assert lengths[name] < int(found[3])
    assert lengths == {
        path.stem: sum(bool(line.strip()) for line in path.read_text().splitlines()) for path in FOLDER.glob("*.py")
    }
