"""A reply that is larger than a payload is never asked for again: it is paid for. What is large is kept or named."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from everturn import Agent, Client, Image, Model, ModelSettings, Text, tool
from everturn.activities.large_replies import CURE
from everturn.devserver import DevServer
from everturn.storage.artifacts import Artifacts
from everturn.testing import ScriptedModel, call
from tests.support.agents import agent_on, hosting
from tests.support.histories import TWO_MIB, largest_payload
from tests.support.transcripts import results_of

Scripted = Callable[..., ScriptedModel]

PICTURE = "A" * 3_000_000
"""1.5 of 16 recorded replies with a picture had less."""


class Gemini:
    """A real HTTP server that answers as Gemini's API does: one reply after the other."""

    def __init__(self, *replies: list[dict[str, Any]]) -> None:
        self.requests: list[dict[str, Any]] = []
        served = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                served.requests.append(json.loads(body))
                parts = replies[len(served.requests) - 1]
                candidate = {"content": {"role": "model", "parts": parts}, "finishReason": "STOP"}
                answer = json.dumps({"candidates": [candidate]}).encode()
                self.send_response(200)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_: object) -> None: ...

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.http.serve_forever, daemon=True).start()

    def agent(self, **options: Any) -> Agent:
        model = Model("google:gemini-3-pro-image", base_url=f"http://127.0.0.1:{self.http.server_port}")
        return Agent("painter", model=model, settings=ModelSettings(stream=False), **options)


def picture(data: str = PICTURE) -> dict[str, Any]:
    return {"inlineData": {"mimeType": "image/png", "data": data}, "thoughtSignature": "c2ln"}


@pytest.fixture
def gemini(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Gemini]]:
    monkeypatch.setenv("GEMINI_API_KEY", "a key")
    running: list[Gemini] = []

    def start(*replies: list[dict[str, Any]]) -> Gemini:
        running.append(Gemini(*replies))
        return running[-1]

    yield start
    for one in running:
        one.http.shutdown()
        one.http.server_close()


async def test_a_picture_that_is_too_large_is_named_and_its_turn_is_not_paid_again(
    client: Client, gemini: Callable[..., Gemini], cached_conversations: int
) -> None:
    model = gemini([{"text": "A cat:"}, picture()], [{"text": "A cat, as I said."}])
    agent = model.agent()
    async with hosting(client, agent, cached_conversations=cached_conversations):
        conversation = await client.start(agent, "Draw a cat")
        text = (await conversation.outcome()).text
        await client.send(agent, "What was it?", id=conversation.id)
        assert (await conversation.outcome()).text == "A cat, as I said."
    assert text.startswith("A cat:")
    assert "[Left out because it is too large: image (image/png, 3,000,000 base64 characters). It is lost. Set " in text
    assert "EVERTURN_STORAGE or EVERTURN_ARTIFACTS" in text
    assert len(model.requests) == 2
    assert await largest_payload(client, conversation) < TWO_MIB


async def test_a_picture_is_kept_where_there_is_an_artifact_store(
    client: Client, gemini: Callable[..., Gemini], tmp_path: Path
) -> None:
    agent = gemini([{"text": "A cat:"}, picture(), picture("B" * 400_000)]).agent()
    async with hosting(client, agent, artifacts=tmp_path):
        conversation = await client.start(agent, "Draw a cat", id=f"cat-{client.task_queue}")
        text = (await conversation.outcome()).text
        _, reply = await conversation.transcript()
    assert f"It is kept as {conversation.id}/turn%201." in text
    assert isinstance(reply.parts[2], Image), "what fits stays"
    kept = Artifacts.at(tmp_path).read(conversation.id, "turn 1")
    assert kept is not None
    assert isinstance(kept.content[0], Image)
    assert kept.content[0].data == PICTURE


@pytest.mark.parametrize("kept", [True, False])
async def test_what_many_small_parts_are_cut_to_says_where_the_whole_is(
    client: Client, gemini: Callable[..., Gemini], tmp_path: Path, kept: bool
) -> None:
    """None of them is large by itself: nothing of them was kept, and nobody was told."""
    parts = [{"text": f"{number:04} ".ljust(1_800, "x"), "thought": number % 2 == 0} for number in range(1_000)]
    agent = gemini(parts).agent()
    async with hosting(client, agent, **({"artifacts": tmp_path} if kept else {})):
        conversation = await client.start(agent, "Think", id=f"many-{client.task_queue}")
        text = (await conversation.outcome()).text
    assert await largest_payload(client, conversation) < TWO_MIB
    if not kept:
        assert text.endswith(f"[The reply was too large and was cut. It is lost. {CURE}]")
        return
    assert text.endswith(f" It is kept as {conversation.id}/turn%201.]")
    whole = Artifacts.at(tmp_path).read(conversation.id, "turn 1")
    assert whole is not None
    assert [part.text for part in whole.content if isinstance(part, Text)] == [part["text"] for part in parts]


async def test_a_picture_stays_in_the_reply_where_large_payloads_are_stored(
    server: DevServer, client: Client, gemini: Callable[..., Gemini], tmp_path: Path
) -> None:
    stores = await Client.connect(server.address, task_queue=f"{client.task_queue}-stored", storage=tmp_path)
    model = gemini([picture()], [{"text": "A cat."}])
    agent = model.agent()
    async with hosting(stores, agent):
        conversation = await stores.start(agent, "Draw a cat")
        await conversation.outcome()
    async with hosting(stores, agent):  # reads the history to go on
        await stores.send(agent, "What is it?", id=conversation.id)
        assert (await conversation.outcome()).text == "A cat."
    shown = (await conversation.transcript())[1].parts[0]
    assert isinstance(shown, Image)
    assert shown.data == PICTURE
    assert model.requests[1]["contents"][1]["parts"][0]["inlineData"]["data"] == PICTURE


async def test_arguments_that_are_too_large_are_named_to_the_model(client: Client, scripted: Scripted) -> None:
    @tool
    def save(text: str) -> str:
        return "saved"

    model = scripted([[call("save", {"text": "x" * 2_500_000}), call("save", {"text": "short"})], "Done."])
    agent = agent_on(model, tools=[save], settings=ModelSettings(stream=False))  # as a stream, it has 80,000 pieces
    async with hosting(client, agent):
        conversation = await client.start(agent, "Save it")
        assert await conversation.reply() == "Done."
        large, short = results_of(await conversation.transcript())
    assert "The arguments have 2,500," in large.text
    assert "Call save again with less." in large.text
    assert short.text == "saved"


@pytest.mark.long
async def test_a_text_that_is_too_large_is_cut(client: Client, scripted: Scripted) -> None:
    agent = agent_on(scripted(["語" * 700_000]))
    async with hosting(client, agent):
        conversation = await client.start(agent, "Tell me all")
        outcome = await conversation.outcome()
    assert outcome.text.startswith("語" * 100_000)
    assert "of 700,000 characters are shown. It is lost." in outcome.text


@pytest.mark.long
async def test_what_512_calls_of_unknown_tools_are_told_fits_beside_them(client: Client, scripted: Scripted) -> None:
    tools = [tool(lambda: "", name=f"a_tool_with_a_long_name_{number:040}") for number in range(100)]
    model = scripted([[call("no_such_tool", id=f"c{number}") for number in range(512)], "Done."])
    agent = agent_on(model, tools=tools)
    async with hosting(client, agent):
        conversation = await client.start(agent, "Go")
        assert await conversation.reply() == "Done."
        results = results_of(await conversation.transcript())
    assert {result.text[:33] for result in results} == {"There is no tool 'no_such_tool'. "}
    assert isinstance(results[0].content[0], Text)
