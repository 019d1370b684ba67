"""The web process is killed while it streams, and then the worker: the page comes back, and misses nothing."""

from __future__ import annotations

import asyncio
import os
import subprocess
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest

from everturn.devserver import DevServer
from everturn.testing import ScriptedModel, call, slow
from tests.support.pages import State, needs_node, page
from tests.support.ports import free_port
from tests.support.prepared import Program
from tests.support.waiting import eventually

pytestmark = needs_node

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "front_ends"

TEXT = "One two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen."

REFUND = call("refund", {"order_id": "81", "cents": 500}, id="r")


@asynccontextmanager
async def process(*arguments: str, environment: dict[str, str]) -> AsyncIterator[Program]:
    running = Program(*arguments, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield running
    finally:
        await killed(running)


async def killed(running: Program) -> None:
    running.kill()
    await asyncio.to_thread(running.wait, 60)


async def _answers(address: str) -> bool:
    try:
        async with httpx.AsyncClient(timeout=180) as http:
            return (await http.get(f"{address}/api/chat/x")).status_code == 403
    except httpx.HTTPError:
        return False


def words(state: State) -> str:
    """Of the agent, in either protocol."""
    last = state["messages"][-1]
    if last["role"] != "assistant":
        return ""
    parts = [one["text"] for one in last.get("parts", []) if one["type"] == "text"]
    return str(last.get("content") or "".join(parts))


def begins(state: State) -> bool:
    return "One" in words(state) and words(state) != TEXT


def asks(state: State) -> Any:
    """The question's id."""
    parts = [
        interrupt for message in state["messages"] for interrupt in message.get("parts", []) if "approval" in interrupt
    ]
    return [interrupt["id"] for interrupt in state.get("interrupts", [])] or [part["approval"]["id"] for part in parts]


@pytest.mark.parametrize("protocol", ["ai_sdk", pytest.param("ag_ui", marks=pytest.mark.long)])
async def test_the_web_process_and_the_worker_are_killed_in_the_middle(
    server: DevServer, scripted: Callable[..., ScriptedModel], protocol: str
) -> None:
    released = threading.Event()
    model = scripted([REFUND, slow(TEXT, after=3, until=released)])
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("EVERTURN_", "TEMPORAL_"))}
    environment = kept | {
        "TEMPORAL_ADDRESS": server.address,
        "EVERTURN_TASK_QUEUE": f"chat-{uuid4().hex[:8]}",
        "EVERTURN_AGENTS": str(EXAMPLE / "clerk_chat.py"),
        "SCRIPTED_BASE_URL": model.base_url,
        "MODEL": "scripted:demo",
    }
    port = free_port()
    address = f"http://127.0.0.1:{port}"
    web = ("-m", "uvicorn", "--app-dir", str(EXAMPLE), "chat_app:app", "--port", str(port))
    worker = (str(ROOT / "worker.py"),)
    door = f"{address}/api/chat/" if protocol == "ai_sdk" else f"{address}/ag-ui/"
    is_ai_sdk = protocol == "ai_sdk"
    async with (
        page(f"{protocol}.mjs", door, uuid4().hex, **{"x-user": "ann"}) as shown,
        process(*worker, environment=environment) as first_worker,
    ):
        async with process(*web, environment=environment) as first_web:
            await eventually(lambda: _answers(address), what="it serves")
            said = "Refund order 81"
            shown.do("send", message={"text": said} if is_ai_sdk else {"id": "m1", "content": said})
            state = await shown.shows(asks, what="it asks")
            [question] = asks(state)
            resume = [{"interruptId": question, "status": "resolved", "payload": {"approved": True}}]
            if is_ai_sdk:
                await shown.shows(lambda now: now["status"] == "ready", what="it asks")
                shown.do("approve", id=question, approved=True)
            else:
                shown.do("resume", resume=resume)
            await shown.shows(begins, what="it writes")
            await killed(first_web)
        await shown.shows(lambda now: now["error"], what="the connection broke")
        async with process(*web, environment=environment):
            await eventually(lambda: _answers(address), what="it serves again")
            # A client of AG-UI whose answer to an interrupt broke off gives it again.
            shown.do("resume", **({} if is_ai_sdk else {"resume": resume}))
            await shown.shows(lambda now: begins(now) and not now["error"], what="it goes on")
            await killed(first_worker)
            released.set()
            async with process(*worker, environment=environment):
                state = await shown.shows(lambda now: words(now) == TEXT, what="the new worker's words")
                await shown.shows(
                    lambda now: now["status"] == "ready" if is_ai_sdk else not now["running"], what="it is over"
                )
    assert "Refunded 5.00 EUR for order 81." in str(state["messages"])
    assert len([request for request in model.requests if request["messages"][-1]["role"] == "user"]) == 1
