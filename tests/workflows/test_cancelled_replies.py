"""A cancelled turn keeps what people saw of its reply: in the transcript, and for the model."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest

from everturn import Agent, Client, Message, Model, Text
from everturn.activities.question import CUT_SHORT
from everturn.client.seen_reply import seen_reply
from everturn.streamed import SeenReply
from everturn.testing import ScriptedModel
from tests.support.agents import agent_on, hosting
from tests.support.provider_server import Asked, ProviderServer
from tests.support.waiting import eventually
from tests.workflows.test_streaming import HALF, half_told, until_told

Scripted = Callable[..., ScriptedModel]
CUT = Message(role="assistant", parts=(Text(text=HALF),), cut_short=True)


@pytest.fixture
def go_on() -> Iterator[threading.Event]:
    """Model streams wait for it in their middle."""
    held = threading.Event()
    yield held
    held.set()


async def test_what_was_seen_stays_and_goes_to_the_model_with_the_next_turn(
    client: Client, scripted: Scripted, cached_conversations: int, go_on: threading.Event
) -> None:
    model = scripted([half_told(go_on), "As you like."], order="arrival")
    agent = agent_on(model)
    async with hosting(client, agent, cached_conversations=cached_conversations):
        conversation = await client.start(agent, "Tell me a story", keep_open=timedelta(minutes=1), stream=True)
        await until_told(conversation.events(), HALF)
        await conversation.cancel_turn()
        assert (await conversation.transcript())[1:] == (CUT,)
        await conversation.send("Shorter")
        assert await conversation.reply() == "As you like."
        user, cut, asked, answer = await conversation.transcript()
        await conversation.close()
        outcome = await conversation.outcome()
    assert (user.text, cut, asked.text, answer.text) == ("Tell me a story", CUT, "Shorter", "As you like.")
    said = [(one["role"], one["content"]) for one in model.requests[1]["messages"]]
    assert said == [("user", "Tell me a story"), ("assistant", HALF + CUT_SHORT), ("user", "Shorter")]
    assert outcome.turns == 2


async def test_what_was_seen_is_in_the_transcript_of_a_conversation_that_ends_with_it(
    client: Client, scripted: Scripted, cached_conversations: int, go_on: threading.Event
) -> None:
    model = scripted([half_told(go_on), "As you like."], order="arrival")
    agent = agent_on(model)
    async with hosting(client, agent, cached_conversations=cached_conversations):
        conversation = await client.start(agent, "Tell me a story", stream=True)
        await until_told(conversation.events(), HALF)
        await conversation.cancel_turn()
        assert (await conversation.outcome()).status == "cancelled"
        assert (await conversation.transcript())[1:] == (CUT,)
        again = await client.send(agent, "Shorter", id=conversation.id)
        assert await again.reply() == "As you like."
        assert [message.cut_short for message in await again.transcript()] == [False, True, False, False]
        await again.outcome()
    assert model.requests[1]["messages"][1]["content"] == HALF + CUT_SHORT


async def test_what_the_provider_has_counted_by_then_is_counted(
    client: Client, monkeypatch: pytest.MonkeyPatch, go_on: threading.Event
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-test")

    def stream(_: Asked) -> Iterator[dict[str, Any]]:
        usage = {"input_tokens": 11, "output_tokens": 1}
        start = {"id": "msg_1", "type": "message", "role": "assistant", "content": [], "usage": usage}
        yield {"type": "message_start", "message": start}
        yield {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
        yield {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Once"}}
        go_on.wait(60)

    with ProviderServer(stream) as server:
        agent = Agent("clerk", model=Model("anthropic:claude-sonnet-5", base_url=server.base_url))
        async with hosting(client, agent):
            conversation = await client.start(agent, "Tell me a story", keep_open=timedelta(minutes=1), stream=True)
            await until_told(conversation.events(), "Once")
            await conversation.cancel_turn()
            status = await conversation.status()
            by_history = (await conversation.by_history()).state
            await conversation.close()
            outcome = await conversation.outcome()
    assert status.usage.input_tokens == by_history.usage.input_tokens == outcome.usage.input_tokens == 11
    assert by_history.unseen[-1].text == "Once"


async def test_a_reply_that_came_all_the_same_is_not_doubled(client: Client, scripted: Scripted) -> None:
    """Whoever cancels has seen a part of a turn that is over by then."""
    agent = agent_on(scripted(["One.", "Two."], order="arrival"))
    async with hosting(client, agent):
        conversation = await client.start(agent, "Hello", keep_open=timedelta(minutes=1))
        assert await conversation.reply() == "One."
        assert await seen_reply(client.temporal, conversation.id) is None
        seen = SeenReply(turn=1, text="On").model_dump(mode="json")
        handle = client.temporal.get_workflow_handle(conversation.id)
        await handle.signal("cancel_turn", {"seen": seen})
        await conversation.send("Again")
        assert await conversation.reply() == "Two."
        transcript = await conversation.transcript()
        await conversation.close()
        await conversation.outcome()
    assert [message.text for message in transcript] == ["Hello", "One.", "Again", "Two."]


async def test_a_turn_that_said_nothing_yet_leaves_nothing(client: Client, scripted: Scripted) -> None:
    held = threading.Event()
    model = scripted(lambda _: held.wait(60) and "One.")
    agent = agent_on(model)
    async with hosting(client, agent):
        conversation = await client.start(agent, "Hello", keep_open=timedelta(minutes=1))
        await eventually(lambda: bool(model.requests))
        await conversation.cancel_turn()
        assert [message.text for message in await conversation.transcript()] == ["Hello"]
        held.set()
        await conversation.close()
        await conversation.outcome()
