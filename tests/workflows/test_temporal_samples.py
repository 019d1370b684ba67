"""Temporal's samples for AI, done with everturn: each runs as a program, and is no longer than theirs."""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from everturn.devserver import DevServer
from everturn.testing import ScriptedModel, call, say
from tests.support.prepared import run
from tests.support.provider_server import ProviderServer, in_order, message_item, response

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


def _serve(messages: list[dict[str, Any]], body: dict[str, Any]) -> Any:
    """The model of the airline's three agents, each known by its tools."""
    asked = next(message["content"] for message in reversed(messages) if message["role"] == "user")
    tools = {tool["function"]["name"] for tool in body["tools"]}
    if messages[-1]["role"] == "tool" and messages[-1]["content"].startswith(("Free wifi", "Updated")):
        return say("Done.")
    if "transfer_to_faq" in tools:
        return call("transfer_to_faq" if "wifi" in asked else "transfer_to_seat_booking")
    if "faq_lookup" in tools:
        return call("faq_lookup", {"question": asked}) if "wifi" in asked else call("transfer_to_triage")
    flight = re.findall(r"FLT-\d+", json.dumps(messages))[-1]
    return call("update_seat", {"confirmation_number": "XY12", "new_seat": "4A", "flight_number": flight})


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
    told = {"MODEL": "scripted:demo", "SCRIPTED_BASE_URL": scripted(script).base_url}
    assert await _said(name, message, server, told) == printed


async def test_what_openai_is_to_call_is_approved_first(server: DevServer) -> None:
    asks = {"server_label": "gitmcp", "name": "fetch_docs", "arguments": "{}"}
    request = {"type": "mcp_approval_request", "id": "mcpr_1", **asks}
    replies = in_order(response(request), response(message_item("In Rust."), id="resp_2"))
    with ProviderServer(replies) as openai:
        told = {"MODEL": "openai:gpt-5.5", "OPENAI_BASE_URL": openai.base_url, "OPENAI_API_KEY": "none"}
        said = await _said("hosted_mcp", "Which language is this repo written in?", server, told)
        assert openai.bodies[1]["input"][-1]["approve"] is True
    assert said == "Approve fetch_docs?\nIn Rust.\n"


async def test_agents_hand_a_long_conversation_on_and_it_is_there_again(server: DevServer, scripted: Scripted) -> None:
    told = {"MODEL": "scripted:demo", "SCRIPTED_BASE_URL": scripted(_serve).base_url}
    chat, queue = f"chat-{uuid4().hex[:8]}", f"sample-{uuid4().hex[:8]}"
    first = await _said("customer_service", chat, server, told, queue=queue, typed="Is there wifi?\n\n")
    again = await _said("customer_service", chat, server, told, queue=queue, typed="I want seat 4A.\n\n")
    assert "faq_lookup: Free wifi on the plane" in first
    assert "faq: Done." in first
    assert "user: Is there wifi?" in again, "all that was said before"
    assert re.search(r"update_seat: Updated seat to 4A for confirmation number XY12 on FLT-\d+", again)
    assert "seat_booking: Done." in again


async def _said(
    name: str, given: str, server: DevServer, told: dict[str, str], *, queue: str = "", typed: str = ""
) -> str:
    """What the sample printed."""
    environment = {
        **{name: value for name, value in os.environ.items() if name.startswith(("LANG", "LC_"))},
        "PATH": os.environ["PATH"],
        "HOME": os.environ.get("HOME", ""),
        "TEMPORAL_ADDRESS": server.address,
        "EVERTURN_TASK_QUEUE": queue or f"sample-{uuid4().hex[:8]}",
        **told,
    }
    program = str(FOLDER / f"{name}.py")
    done = await asyncio.to_thread(run, program, given, says=typed, timeout=200, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


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
