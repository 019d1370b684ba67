"""A cancelled turn keeps what people saw of its reply: in the transcript, and for the model."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from everturn import Agent, Client, Conversation, Message, Model, Text, tool
from everturn.activities.turn_request import CUT_SHORT
from everturn.cli.render import transcript_lines
from everturn.client.cancel_turn import find_seen_reply
from everturn.devserver import DevServer
from everturn.errors import Ended
from everturn.exporting import read_conversation, to_jsonl, to_markdown
from everturn.heartbeats.details import SeenReply
from everturn.records import Thinking
from everturn.testing import ScriptedModel, call, say, slow
from tests.support.agents import agent_on, hosting
from tests.support.bounds import Bounds
from tests.support.half_told import HALF, STORY, half_told, until_told
from tests.support.prepared import killed_at_the_end
from tests.support.provider_server import Asked, ProviderServer
from tests.support.waiting import WAIT_SECONDS, eventually, nothing_runs, reaches

Scripted = Callable[..., ScriptedModel]
CUT = Message(role="assistant", parts=(Text(text=HALF),), cut_short=True)
ROOT = Path(__file__).parents[2]

WORKER = """
import asyncio, os, signal, sys
from everturn import Client, Worker
from everturn.activities import model_turns
from tests.workflows.test_cancelled_replies import agent_at

async def main():
    if sys.argv[4:]:
        model_turns._cut_reply = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
    client = await Client.connect(sys.argv[1], task_queue=sys.argv[2])
    await Worker(client, agents=[agent_at(sys.argv[3])]).run()

asyncio.run(main())
"""


def agent_at(address: str) -> Agent:
    return Agent("clerk", model=Model("scripted:demo", base_url=address))


@asynccontextmanager
async def killed_in_its_middle(
    server: DevServer, client: Client, model: str, *, in_the_end: bool = False
) -> AsyncIterator[Conversation]:
    """A conversation whose worker was killed once its first reply was half told; or when that was cancelled by a bare
    signal, and the worker was about to hand over what it had said."""
    with killed_at_the_end(
        "-c", WORKER, server.address, client.task_queue, model, *(["dies"] if in_the_end else [])
    ) as doomed:
        agent, keep_open = agent_at(model), timedelta(minutes=1)
        conversation = await client.start(agent, "Tell me a story", keep_open=keep_open, stream=True)
        await until_told(conversation.events(), HALF)
        if in_the_end:
            await client.temporal.get_workflow_handle(conversation.id).signal("cancel_turn")
            assert await asyncio.to_thread(doomed.wait, 60) == -signal.SIGKILL
    yield conversation


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
    messages = [(message["role"], message["content"]) for message in model.requests[1]["messages"]]
    assert messages == [("user", "Tell me a story"), ("assistant", HALF + CUT_SHORT), ("user", "Shorter")]
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


@pytest.mark.parametrize("answered_before", [False, True])
async def test_what_was_cut_short_is_no_answer_once_it_has_ended_either(
    client: Client, scripted: Scripted, cached_conversations: int, go_on: threading.Event, answered_before: bool
) -> None:
    """Who waited was given the reply to an earlier message, or an empty one."""
    model = scripted([*(["Hello!"] if answered_before else []), half_told(go_on)], order="arrival")
    agent = agent_on(model)
    async with hosting(client, agent, cached_conversations=cached_conversations):
        conversation = await client.start(agent, "Hello", keep_open=timedelta(minutes=1), stream=True)
        if answered_before:
            assert await conversation.reply() == "Hello!"
            await conversation.send("Tell me a story")
        await until_told(conversation.events(), HALF)
        await conversation.cancel_turn()
        await conversation.close()
        await conversation.outcome()
        with pytest.raises(Ended, match="ended before it answered every message"):
            await conversation.reply()
        with pytest.raises(Ended, match="ended before it answered every message"):
            await client.conversation(conversation.id).reply()


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
    assert status.usage.input_tokens == by_history.totals.usage.input_tokens == outcome.usage.input_tokens == 11
    assert (await conversation.transcript())[-1].text == "Once"


async def test_a_bare_signal_keeps_what_was_said(
    client: Client, scripted: Scripted, cached_conversations: int, go_on: threading.Event
) -> None:
    """As the Web UI and `temporal workflow signal` send it: nobody says what was seen."""
    model = scripted([half_told(go_on), "As you like."], order="arrival")
    agent = agent_on(model)
    async with hosting(client, agent, cached_conversations=cached_conversations):
        conversation = await client.start(agent, "Tell me a story", keep_open=timedelta(minutes=1), stream=True)
        events = conversation.events()
        await until_told(events, HALF)
        handle = client.temporal.get_workflow_handle(conversation.id)
        await handle.signal("cancel_turn")
        await handle.signal("cancel_turn", {"reason": "now"})
        await conversation.send("Shorter")
        told = [await anext(events) for _ in range(5)]
        assert await conversation.reply() == "As you like."
        transcript = await conversation.transcript()
        await conversation.close()
        outcome = await conversation.outcome()
        await events.aclose()
    assert transcript[1] == CUT
    assert [message.text for message in transcript] == ["Tell me a story", HALF, "Shorter", "As you like."]
    assert (outcome.text, outcome.turns) == ("As you like.", 2)
    assert [event.message for event in told if event.kind == "replied"] == [CUT]
    assert not any(event.final for event in told if event.kind == "replied")
    messages = [(message["role"], message["content"]) for message in model.requests[1]["messages"]]
    assert messages == [("user", "Tell me a story"), ("assistant", HALF + CUT_SHORT), ("user", "Shorter")]


async def test_a_bare_signal_keeps_what_a_killed_worker_said(
    server: DevServer, client: Client, scripted: Scripted, cached_conversations: int, go_on: threading.Event
) -> None:
    """It is killed when it would hand over. Its heartbeats stay with the server, which says what they had once it
    counts the worker as lost."""
    model = scripted([half_told(go_on), "As you like."], order="arrival")
    agent = agent_at(model.base_url)
    async with killed_in_its_middle(server, client, model.base_url, in_the_end=True) as conversation:
        await conversation.send("Shorter")
        async with hosting(client, agent, cached_conversations=cached_conversations):
            assert await conversation.reply() == "As you like."
            assert [message.text for message in await conversation.transcript()][1:3] == [HALF, "Shorter"]
            await conversation.close()
            await conversation.outcome()
    assert len(model.requests) == 2, "the turn was not asked again"


async def test_a_cancelled_workflow_waits_for_nothing_that_a_killed_worker_said(
    server: DevServer, client: Client, scripted: Scripted, go_on: threading.Event
) -> None:
    model = scripted([half_told(go_on)])
    async with killed_in_its_middle(server, client, model.base_url) as conversation:
        handle = client.temporal.get_workflow_handle(conversation.id)
        await handle.signal("cancel_turn")
        await handle.cancel()
        async with hosting(client, agent_at(model.base_url)):
            assert (await conversation.outcome()).reason == "the workflow was cancelled"
    history = await handle.fetch_history()
    assert not any(event.HasField("activity_task_timed_out_event_attributes") for event in history.events)


async def test_the_calls_of_a_reply_that_was_cut_short_do_not_run(
    client: Client, scripted: Scripted, go_on: threading.Event
) -> None:
    ran: list[int] = []

    @tool
    def refund(cents: int) -> str:
        ran.append(cents)
        return "done"

    reply = slow([say(STORY), call("refund", {"cents": 5})], after=11, until=go_on)
    model = scripted([reply, "As you like."], order="arrival")
    agent = agent_on(model, tools=[refund])
    async with hosting(client, agent):
        conversation = await client.start(agent, "Tell me a story", keep_open=timedelta(minutes=1), stream=True)
        await until_told(conversation.events(), HALF)
        await client.temporal.get_workflow_handle(conversation.id).signal("cancel_turn")
        await conversation.send("Shorter")
        assert await conversation.reply() == "As you like."
        transcript = await conversation.transcript()
        await conversation.close()
        await conversation.outcome()
    assert (transcript[1], ran) == (CUT, [])


async def test_code_that_does_not_end_when_it_is_cancelled_is_given_up(
    client: Client, scripted: Scripted, bounds: Bounds
) -> None:
    begun, never = asyncio.Event(), asyncio.Event()

    async def deaf(_: Any) -> str:
        begun.set()
        while not never.is_set():
            with suppress(asyncio.CancelledError):
                await never.wait()
        return "Be kind."

    agent = agent_on(scripted(["As you like."]), instructions=deaf)
    async with hosting(client, agent):
        conversation = await client.start(agent, "Hello", keep_open=timedelta(minutes=1))
        await asyncio.wait_for(begun.wait(), WAIT_SECONDS)
        await client.temporal.get_workflow_handle(conversation.id).signal("cancel_turn")
        await reaches(conversation, "idle")
        never.set()
        await conversation.close()
        assert (await conversation.outcome()).turns == 1


async def test_a_reply_that_came_all_the_same_is_not_doubled(client: Client, scripted: Scripted) -> None:
    """Whoever cancels has seen a part of a turn that is over by then."""
    agent = agent_on(scripted(["One.", "Two."], order="arrival"))
    async with hosting(client, agent):
        conversation = await client.start(agent, "Hello", keep_open=timedelta(minutes=1))
        assert await conversation.reply() == "One."
        assert await find_seen_reply(client.temporal, conversation.id) is None
        seen = SeenReply(turn=1, text="On").model_dump(mode="json")
        handle = client.temporal.get_workflow_handle(conversation.id)
        await handle.signal("cancel_turn", {"seen": seen})
        await conversation.send("Again")
        assert await conversation.reply() == "Two."
        transcript = await conversation.transcript()
        await conversation.close()
        await conversation.outcome()
    assert [message.text for message in transcript] == ["Hello", "One.", "Again", "Two."]


async def test_a_reply_that_comes_together_with_both_cancellations_counts(
    server: DevServer, client: Client, scripted: Scripted, go_on: threading.Event
) -> None:
    """Of its turn, and then of the workflow: all that while no worker takes the conversation's tasks."""
    agent = agent_on(scripted([half_told(go_on)]))
    another = await Client.connect(server.address, task_queue=client.task_queue)
    async with hosting(another, agent, roles=["models"]):
        async with hosting(client, agent, roles=["workflows"]):
            conversation = await client.start(agent, "Tell me a story", keep_open=timedelta(minutes=1), stream=True)
            await until_told(conversation.events(), HALF)
        handle = client.temporal.get_workflow_handle(conversation.id)
        await handle.signal("cancel_turn")
        await handle.cancel()
        go_on.set()
        await nothing_runs(client, conversation)
        async with hosting(client, agent, roles=["workflows"]):
            outcome = await conversation.outcome()
    assert (outcome.status, outcome.reason) == ("cancelled", "the workflow was cancelled")
    assert outcome.usage.output_tokens > 0
    assert [message.text for message in await conversation.transcript()] == ["Tell me a story", STORY]


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


async def test_what_a_killed_worker_said_is_kept_when_its_turn_is_cancelled(
    server: DevServer, client: Client, scripted: Scripted, cached_conversations: int, go_on: threading.Event
) -> None:
    """The try after it has said nothing yet: what people saw is that of the one before."""
    silent = slow("Never seen.", after=1, until=go_on)
    model = scripted([half_told(go_on), silent, "As you like."], order="arrival")
    agent = agent_at(model.base_url)
    async with (
        killed_in_its_middle(server, client, model.base_url) as conversation,
        hosting(client, agent, cached_conversations=cached_conversations),
    ):
        await eventually(lambda: len(model.requests) == 2)
        await conversation.cancel_turn()
        assert (await conversation.transcript())[1:] == (CUT,)
        await conversation.send("Shorter")
        assert await conversation.reply() == "As you like."
        await conversation.close()
        await conversation.outcome()


async def test_thoughts_that_were_seen_stay_for_people_and_are_not_sent(
    client: Client, scripted: Scripted, go_on: threading.Event
) -> None:
    model = scripted(
        [slow(say("Once upon a time. " * 9, thinking="Hm."), after=4, until=go_on), "So."], order="arrival"
    )
    agent = agent_on(model)
    async with hosting(client, agent):
        conversation = await client.start(agent, "Tell me a story", keep_open=timedelta(minutes=1), stream=True)
        async for event in conversation.events():
            if event.kind == "text_delta":
                break
        await conversation.cancel_turn()
        cut = (await conversation.transcript())[-1]
        await conversation.send("Shorter")
        assert await conversation.reply() == "So."
        await conversation.close()
        await conversation.outcome()
    assert (cut.parts[0], cut.cut_short) == (Thinking(text="Hm."), True)
    assert "Once".startswith(cut.text[:4])
    assert model.requests[1]["messages"][1] == {"role": "assistant", "content": cut.text + CUT_SHORT}


async def test_what_was_cut_short_is_marked_for_people(
    client: Client, scripted: Scripted, go_on: threading.Event
) -> None:
    agent = agent_on(scripted([half_told(go_on)]))
    async with hosting(client, agent):
        conversation = await client.start(agent, "Tell me a story", stream=True)
        await until_told(conversation.events(), HALF)
        await conversation.cancel_turn()
        await conversation.outcome()
        exported = await read_conversation(client, conversation.id)
        lines = transcript_lines(await conversation.transcript(), width=100)
    assert "## Assistant · cut short" in to_markdown(exported)
    assert '"cut_short": true' in to_jsonl(exported)
    assert [line.plain.endswith("… cut short") for line in lines if line.plain][-1]
