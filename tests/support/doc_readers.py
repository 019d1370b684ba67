"""What a reader does with the programs on a page of the docs, once they are typed in: `NAME(page's names)`, by page.

They run in the page's own process, against a real Temporal server. What can't be had here is stood in for: Slack signs,
takes messages and buttons as its documentation says, and runs on loopback.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import os
import re
import subprocess
import sys
import time
from base64 import b64decode
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from uuid import uuid4

import httpx
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from everturn import Agent, Client, Conversation, Worker, tool
from tests.support.doc_pages import BLOCKS, ROOT

Page = dict[str, Any]


@tool(needs_approval=True)
def refund(order_id: str, cents: int) -> str:
    """Refund an order."""
    return f"Refunded {cents / 100:.2f} EUR for order {order_id}."


@asynccontextmanager
async def serving(app: Any) -> AsyncIterator[str]:
    """The app on loopback, as `uvicorn module:app` serves it; yields its address."""
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="warning", timeout_graceful_shutdown=1))
    running = asyncio.create_task(server.serve())
    while not server.started:
        assert not running.done()
        await asyncio.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        await running


@asynccontextmanager
async def clerk_at_work(name: str) -> AsyncIterator[tuple[Client, Agent]]:
    client = await Client.connect(by="the test")
    clerk = Agent(name, model="scripted:docs", tools=[refund])
    async with Worker(client, agents=[clerk]):
        yield client, clerk


async def approve_from_slack(page: Page) -> None:
    written = (ROOT / "examples" / "slack_approvals.py").read_text()
    assert any(block.text.endswith(written) for block in BLOCKS if block.page.stem == "approve-from-slack")
    posted: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    updated: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    answered: asyncio.Queue[dict[str, Any]] = asyncio.Queue()

    async def post_message(request: Request) -> JSONResponse:
        assert request.headers["authorization"] == "Bearer xoxb-test"
        message = await request.json()
        await posted.put(message)
        return JSONResponse({"ok": True, "channel": "C0SHOP", "ts": message["blocks"][0]["text"]["text"]})

    async def update(request: Request) -> JSONResponse:
        assert request.headers["authorization"] == "Bearer xoxb-test"
        await updated.put(await request.json())
        return JSONResponse({"ok": True})

    async def respond(request: Request) -> JSONResponse:
        await answered.put(await request.json())
        return JSONResponse({"ok": True})

    routes = [
        Route("/chat.postMessage", post_message, methods=["POST"]),
        Route("/chat.update", update, methods=["POST"]),
        Route("/re", respond, methods=["POST"]),
    ]
    page |= {"TOKEN": "xoxb-test", "SECRET": "hush", "LOOK_EVERY_SECONDS": 0.1}
    async with serving(Starlette(routes=routes)) as page["API"], clerk_at_work("slack-clerk") as (client, clerk):
        conversation = await client.start(clerk, "Order 81 arrived broken.")
        await _one_that_nobody_answers_for()
        async with serving(page["app"]) as address, httpx.AsyncClient(base_url=address, timeout=180) as slack:
            message = await _of(conversation, posted)
            approve, deny = message["blocks"][1]["elements"]

            async def press(button: dict[str, Any], *, secret: str = "hush", at: float = time.time()) -> int:
                action = {key: button[key] for key in ("action_id", "value")}
                clicked = {
                    "type": "block_actions",
                    "user": {"id": "U0ANN"},
                    "actions": [action],
                    "response_url": f"{page['API']}/re",
                }
                body = urlencode({"payload": json.dumps(clicked)})
                signed = hmac.new(secret.encode(), f"v0:{int(at)}:{body}".encode(), hashlib.sha256).hexdigest()
                headers = {"x-slack-request-timestamp": str(int(at)), "x-slack-signature": f"v0={signed}"}
                return (await slack.post("/slack", content=body, headers=headers)).status_code

            assert await press(approve, secret="guessed") == 401
            assert await press(approve, at=time.time() - 3600) == 401
            assert (await slack.post("/slack", content=b"x" * 1_100_000)).status_code == 413
            for hostile in ({"x-slack-request-timestamp": "soon"}, {"x-slack-signature": "v0=\xe9"}, {}):
                assert (await slack.post("/slack", content="payload=", headers=_raw(hostile))).status_code == 401
            before = {**approve, "value": json.dumps({**json.loads(approve["value"]), "since": "2026-01-01T00:00:00Z"})}
            assert await press(before) == 200
            assert "asked again" in (await answered.get())["text"]
            assert await press(approve) == 200
            assert (await answered.get())["text"] == "Approved by slack:U0ANN."
            assert await press(deny) == 200
            assert "slack:U0ANN" in (await answered.get())["text"] or (await conversation.outcome())
            elsewhere = await client.start(clerk, "Order 81 arrived broken.")
            message = await _of(elsewhere, posted)
            await elsewhere.deny()
            told = await updated.get()
            while told["ts"] != message["blocks"][0]["text"]["text"]:
                told = await updated.get()
            assert (told["channel"], told["text"], told["blocks"]) == ("C0SHOP", "Decided elsewhere.", [])
        assert (await conversation.outcome()).status == "completed"
        assert (await elsewhere.outcome()).status == "completed"
        transcript = await conversation.transcript()
    [result] = [result for message in transcript for result in message.tool_results]
    assert result.text == "Refunded 34.90 EUR for order 81."
    assert result.decision
    assert result.decision.by == "slack:U0ANN"


async def _one_that_nobody_answers_for() -> None:
    """It waits for an approval, is listed before all others, and its worker is gone."""
    client = await Client.connect(task_queue=f"gone-{uuid4().hex}")
    clerk = Agent("gone-clerk", model="scripted:docs", tools=[refund])
    async with Worker(client, agents=[clerk]):
        gone = await client.start(clerk, "Order 81 arrived broken.")
        async for listed in _again(lambda: client.conversations(status="awaiting_approval")):
            if gone.id in listed:
                break


async def _again(conversations: Callable[[], Any]) -> AsyncIterator[set[str]]:
    while True:
        yield {conversation.id async for conversation in conversations()}
        await asyncio.sleep(0.1)


def _raw(headers: dict[str, str]) -> list[tuple[bytes, bytes]]:
    return [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]


async def _of(conversation: Conversation, posted: asyncio.Queue[dict[str, Any]]) -> dict[str, Any]:
    """The message about this conversation: others may wait on the same server."""
    while True:
        message = await posted.get()
        if conversation.id in message["blocks"][0]["text"]["text"]:
            return message


async def approve_from_a_web_app(page: Page) -> None:
    async with (
        clerk_at_work("web-clerk") as (client, clerk),
        serving(page["app"]) as address,
        httpx.AsyncClient(base_url=address, timeout=180) as browser,
    ):
        conversation = await client.start(clerk, "Order 81 arrived broken.")
        mine: list[dict[str, Any]] = []
        while not mine:
            listed = (await browser.get("/waiting")).json()
            mine = [call for call in listed if call["conversation"] == conversation.id]
        [call] = mine
        assert call["arguments"] == {"order_id": "81", "cents": 3490}
        place = f"/conversations/{conversation.id}/calls/{call['call_id']}"
        edited = {"order_id": "81", "cents": 900}
        said = {"verdict": "approve", "question": call["question"], "arguments": edited}
        assert (await browser.post(place, json=said)).status_code == 401
        as_ann = {"X-User": "ann"}
        other = await browser.post(place, json={**said, "question": "before"}, headers=as_ann)
        assert (other.status_code, "Something else is asked" in other.json()["error"]) == (409, True)
        assert (await browser.post(place, json=said, headers=as_ann)).json() == {"by": "ann"}
        assert (await conversation.outcome()).status == "completed"
        again = await browser.post(place, json=said, headers=as_ann)
        assert again.status_code == 409
        transcript = await conversation.transcript()
    assert "9.00 EUR" in str(transcript)


async def stream_to_a_web_page(page: Page) -> None:
    client = await Client.connect()
    helper = Agent("helper", model="scripted:docs")
    async with (
        Worker(client, agents=[helper]),
        serving(page["app"]) as address,
        httpx.AsyncClient(base_url=address, timeout=180) as browser,
    ):
        assert "EventSource" in (await browser.get("/")).text
        assert (await browser.get("/chats/streamed/events")).text == "retry: 1000\n\n"
        for _ in range(2):  # the second is the same message
            said = await browser.post("/chats/streamed", content="Paris?", headers={"Idempotency-Key": "m1"})
            assert said.status_code == 202
        first = await _read(browser, until="replied")
        assert await client.conversation("streamed").reply() == "It is 21 degrees in Paris."
        await client.conversation("streamed").close()
        started = next(cursor for kind, cursor, _ in first if kind == "turn_started")
        rest = await _read(browser, until="done", since=started)
    # Another worker of the queue may have handed the turn back before.
    passing = {"text_delta", "thinking_delta", "turn_retried", "turn_limited"}
    assert [kind for kind, *_ in first if kind not in passing] == ["message_received", "turn_started", "replied"]
    assert [kind for kind, *_ in rest if kind not in passing] == ["replied", "switched", "done"]
    assert rest[-1][2]["outcome"]["text"] == "It is 21 degrees in Paris."


async def use_fastapi(page: Page) -> None:
    as_ann = {"X-User": "ann"}
    async with (
        serving(page["app"]) as address,
        httpx.AsyncClient(base_url=address, timeout=180, headers=as_ann) as browser,
    ):
        chat = f"/chats/api-{time.time_ns()}"
        assert (await browser.get(chat)).status_code == 404
        assert (await browser.get(f"{chat}/events")).text.startswith("event: trouble\ndata: ")
        said = {"text": "Order 81 arrived broken.", "message_id": "m1"}
        for _ in range(2):  # the second is the same message
            assert (await browser.post(chat, json=said)).status_code == 202
        shown: dict[str, Any] = {}
        while not shown.get("waiting"):
            shown = (await browser.get(chat)).json()
        waiting = {"call_id": "call_0_0", "tool": "refund", "arguments": {"order_id": "81", "cents": 3490}}
        assert shown == {"state": "awaiting_approval", "waiting": [waiting]}
        decided = {"approve": True, "seen": waiting["arguments"]}
        other = {"approve": True, "seen": {"order_id": "81", "cents": 1}}
        assert (await browser.post(f"{chat}/calls/call_0_0", json=other)).status_code == 409
        assert (await browser.post(f"{chat}/calls/call_0_0", json=decided)).status_code == 204
        again = await browser.post(f"{chat}/calls/call_0_0", json=decided)
        assert again.status_code == 409
        async with browser.stream("GET", f"{chat}/events") as stream:
            kinds = []
            async for line in stream.aiter_lines():
                if line.startswith("event: "):
                    kinds.append(line.removeprefix("event: "))
                if line.startswith("data: ") and kinds[-1] == "replied" and "21 degrees" in line:
                    break
        assert {"approval_requested", "decided", "tool_finished"} <= set(kinds)
        await page["app"].state.client.conversation(chat.removeprefix("/chats/")).close()


async def front_ends(page: Page) -> None:
    for name in ("chat_app.py", "chat.tsx"):
        written = (ROOT / "examples" / "front_ends" / name).read_text()
        assert any(block.text.endswith(written) for block in BLOCKS if block.page.stem == "front-ends"), name
    [shown] = [block.text for block in BLOCKS if block.page.stem == "front-ends" and block.language == "text"]
    said = {"id": "m1", "role": "user", "parts": [{"type": "text", "text": "Order 81 arrived broken."}]}
    body = {"id": f"chat-{time.time_ns()}", "messages": [said]}
    async with (
        clerk_at_work("clerk"),
        serving(page["app"]) as address,
        httpx.AsyncClient(base_url=address, timeout=180, headers={"x-user": "ann"}) as browser,
    ):
        told = (await browser.post("/api/chat/", json=body)).text
    told = re.sub(r"call_0_0\.[0-9a-f]{16}", "call_0_0.5e1b7a9f42c30d86", told)
    passing = ('data: {"type":"data-status"', ": beat")  # on a machine that is busy
    assert [line for line in told.split("\n") if line and not line.startswith(passing)] == shown.strip().split("\n\n")


async def use_pytest(page: Page) -> None:
    [settings] = [block.text for block in BLOCKS if block.page.stem == "use-pytest" and block.language == "toml"]
    Path("pyproject.toml").write_text(settings)
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("TEMPORAL_", "PYTEST_"))}
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider"],
        env=environment | {"MODEL": "scripted:test"},
        check=False,
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "3 passed" in ran.stdout


async def encrypt_conversations(page: Page) -> None:
    # All workers of a queue share the key.
    os.environ["EVERTURN_TASK_QUEUE"] = "encrypted"
    client = await page["connect"]()
    clerk = Agent("secretive", model="scripted:docs", tools=[refund])
    async with Worker(client, agents=[clerk]):
        conversation = await client.start(clerk, "Order 81 arrived broken.", id="encrypted")
        async for event in conversation.events():
            if event.kind == "approval_requested":
                await conversation.approve(event.call.call_id)
        assert "3490" in str(await conversation.transcript())
        described = await client.temporal.get_workflow_handle("encrypted").describe()
        assert await described.static_summary() == "Order 81 arrived broken."
    history = await client.temporal.get_workflow_handle("encrypted").fetch_history()
    stored = history.to_json()
    assert "binary/encrypted" in b64decode(stored.split('"encoding": "')[1].split('"')[0]).decode()
    texts = [b64decode(data) for data in re.findall(r'"data": "([^"]*)"', stored)]
    # The order's number stands in no payload; what everturn names itself may.
    assert texts
    assert [text for text in texts if b"3490" in text or b"broken" in text] == []


async def _read(browser: httpx.AsyncClient, *, until: str, since: str = "") -> list[tuple[str, str, dict[str, Any]]]:
    """The server-sent events up to the first of a kind: kind, id, data."""
    events = []
    headers = {"Last-Event-ID": since} if since else {}
    async with browser.stream("GET", "/chats/streamed/events", headers=headers) as stream:
        fields: dict[str, str] = {}
        async for line in stream.aiter_lines():
            if line:
                name, _, value = line.partition(": ")
                fields[name] = value
                continue
            events.append((fields["event"], fields["id"], json.loads(fields["data"])))
            if fields["event"] == until:
                return events
    raise AssertionError(f"the stream ended before {until!r}: {events}")


READERS: dict[str, Callable[[Page], Awaitable[None]]] = {
    "approve-from-slack": approve_from_slack,
    "approve-from-a-web-app": approve_from_a_web_app,
    "encrypt-conversations": encrypt_conversations,
    "front-ends": front_ends,
    "stream-to-a-web-page": stream_to_a_web_page,
    "use-fastapi": use_fastapi,
    "use-pytest": use_pytest,
}
