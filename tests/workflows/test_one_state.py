"""What a conversation has come to is worked out once: what is revived, forked, asked again or read off its history goes
on from the same."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from everturn import Client, Conversation, events
from everturn.agent_settings import Compaction
from everturn.carryover import StoredInRun
from everturn.errors import Stalled
from everturn.history.reader import first_step, read_steps
from everturn.history.steps import CommandSent
from everturn.testing import ScriptedModel, call, fail, say, slow
from tests.support.agents import agent_on, hosting
from tests.support.bounds import Bounds
from tests.support.histories import runs_of
from tests.support.operators import complete, delete, reset_to
from tests.support.scripts import in_turn, page, pages, reader
from tests.support.tools import note, read_page, refund
from tests.support.waiting import eventually, waiting

Scripted = Callable[..., ScriptedModel]
REFUSED = fail(401, body={"error": {"message": "no such key"}})


# ---------------------------------------------------------------- revived


@pytest.mark.long
async def test_a_revived_conversation_is_shown_to_the_model_as_it_was(client: Client, scripted: Scripted) -> None:
    """One that was compacted would not fit any more if it were shown whole."""
    model = scripted(reader(12, wordy=True, window=2_000))
    agent = agent_on(model, tools=[note], compaction=Compaction(window_tokens=1_000_000, keep_messages=5))
    async with hosting(client, agent) as worker:
        conversation = await client.start(agent, "Read it all")
        assert (await conversation.outcome()).text == "Read."
        before = (await conversation.by_history()).state.view
        assert before is not None
        worker.prefixes.clear()
        asked = len(model.requests)
        await client.send(agent, "And?", id=conversation.id)
        assert await conversation.reply() == "Read."
        assert len(model.requests) == asked + 1, "it was shown whole, did not fit, and was summarised again"
        assert (await conversation.by_history()).state.view == before


async def test_a_revived_conversation_keeps_the_model_that_somebody_chose(
    client: Client, scripted: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = scripted(in_turn(REFUSED, "One.", "Two."))
    monkeypatch.setenv("SCRIPTED_BASE_URL", model.base_url)
    agent = agent_on(model)
    async with hosting(client, agent):
        conversation = await client.start(agent, "1")
        with pytest.raises(Stalled):
            await conversation.reply()
        await conversation.resume(model="scripted:another")
        assert (await conversation.outcome()).text == "One."
        await client.send(agent, "2", id=conversation.id)
        assert await conversation.reply() == "Two."
    assert [request["model"] for request in model.requests][1:] == ["another", "another"]


@pytest.mark.long
async def test_a_revived_conversation_outlives_the_history_of_its_first_life(
    client: Client, scripted: Scripted, bounds: Bounds
) -> None:
    bounds(begun_with_bytes=0)
    agent = agent_on(scripted(pages(5)), tools=[read_page])
    async with hosting(client, agent) as worker:
        conversation = await client.start(agent, "Read it all")
        await conversation.outcome()
        first = await conversation.latest_run()
        await client.send(agent, "And?", id=conversation.id, keep_open=timedelta(minutes=5))
        assert await conversation.reply() == "Read."
        started = await first_step(client.temporal, conversation.id)
        assert started is not None
        assert started.start.carry is not None
        assert isinstance(started.start.carry.earlier, StoredInRun)
        await eventually(lambda: _brought_along(conversation))
        await delete(client, conversation, first)
        worker.prefixes.clear()
        await conversation.send("And now?")
        assert await conversation.reply() == "Read."
        said = [message.text for message in await conversation.transcript() if message.role == "user"]
        assert said == ["Read it all", "And?", "And now?"]


async def _brought_along(conversation: Conversation) -> bool:
    return not isinstance((await conversation.by_history()).transcript.earlier, StoredInRun)


async def test_what_a_terminated_conversation_had_is_in_its_next_life(client: Client, scripted: Scripted) -> None:
    """The results that had come in, that others had not, and what nobody had answered."""
    both = [call("read_page", {"number": 1}, id="c1"), call("refund", {"order_id": "81", "cents": 1}, id="c2")]
    model = scripted([both, "Sorry."])
    agent = agent_on(model, tools=[read_page, refund])
    async with hosting(client, agent):
        conversation = await client.start(agent, "Read and refund")
        await waiting(conversation)
        await eventually(lambda: _told_a_result(conversation))
        await conversation.send("Are you there?")
        await client.temporal.get_workflow_handle(conversation.id).terminate("an operator's mistake")
        await client.send(agent, "Again.", id=conversation.id)
        assert await conversation.reply() == "Sorry."
    contents = [
        (message["role"], message["content"])
        for message in model.requests[-1]["messages"]
        if message["role"] != "assistant"
    ]
    assert [role for role, _ in contents] == ["user", "tool", "tool", "user", "user"]
    assert "page 1" in contents[1][1] or page(1, 10) in contents[1][1]
    assert "cut short" in contents[2][1]
    assert [content for role, content in contents[3:]] == ["Are you there?", "Again."]


async def _told_a_result(conversation: Conversation) -> bool:
    cursor = ""
    async for event in conversation.events(deltas=False):
        cursor = event.cursor
        if isinstance(event, events.ToolFinished):
            return True
        if isinstance(event, events.ApprovalRequested):
            break
    return bool(cursor) and bool((await conversation.by_history()).transcript.results_of(["c1"]))


# ---------------------------------------------------------------- asked again


@pytest.mark.long
async def test_a_turn_that_is_asked_again_after_a_summary_has_it_in_its_prefix(
    client: Client, scripted: Scripted
) -> None:
    """By a worker that remembers nothing: it reads the history up to its own event, not up to the turn's first."""
    workers: list[Any] = []
    script = reader(12, wordy=True, window=2_000)

    def forgetful(messages: list[dict[str, Any]]) -> Any:
        workers[0].prefixes.clear()
        return script(messages)

    model = scripted(forgetful)
    agent = agent_on(model, tools=[note], compaction=Compaction(window_tokens=1_000_000, keep_messages=5))
    async with hosting(client, agent) as worker:
        workers.append(worker)
        conversation = await client.start(agent, "Read it all")
        assert (await conversation.outcome()).text == "Read."
        kinds = [event.kind async for event in conversation.events()]
    assert "compacted" in kinds
    for request in model.requests:
        people = [message["content"] for message in request["messages"] if message["role"] == "user"]
        assert len(people) == len(set(map(str, people))), "something was said twice"


@pytest.mark.long
async def test_a_stalled_conversation_goes_on_without_the_histories_that_were_brought_along(
    client: Client, scripted: Scripted, bounds: Bounds, forgetful: None
) -> None:
    bounds(events=40, packed_bytes=0)
    script, refusing = pages(10), [False]
    model = scripted(lambda messages: REFUSED if refusing[0] else script(messages))
    agent = agent_on(model, tools=[read_page])
    async with hosting(client, agent) as worker:
        conversation = await client.start(agent, "Read it all", keep_open=timedelta(minutes=5))
        assert await conversation.reply() == "Read."
        refusing[0] = True
        await conversation.send("And?")
        with pytest.raises(Stalled):
            await conversation.reply()
        await eventually(lambda: _brought_along(conversation))
        await delete(client, conversation, *(await runs_of(client, conversation))[:-1])
        worker.prefixes.clear()
        refusing[0] = False
        await conversation.resume()
        assert await conversation.reply() == "Read."
        assert len(model.requests[-1]["messages"]) == 23
        # A fork at the last reply finds them, too.
        turn = (await conversation.status()).turn
        fork = await conversation.fork(at_turn=turn)
        assert len(await fork.transcript()) == 24
        await fork.close()
        await conversation.close()


# ---------------------------------------------------------------- reply()


async def test_a_message_after_a_stalled_turn_was_cancelled_is_answered(client: Client, scripted: Scripted) -> None:
    agent = agent_on(scripted(in_turn(REFUSED, "Two.")))
    async with hosting(client, agent):
        conversation = await client.start(agent, "1", keep_open=timedelta(minutes=1))
        with pytest.raises(Stalled):
            await conversation.reply()
        await conversation.cancel_turn()
        await conversation.send("2")
        assert await conversation.reply() == "Two."
        assert await conversation.reply() == "Two."


async def test_a_message_that_came_before_the_turn_was_cancelled_is_answered(
    client: Client, scripted: Scripted
) -> None:
    agent = agent_on(scripted(in_turn(slow("One.", seconds=60), "Two.")))
    async with hosting(client, agent):
        conversation = await client.start(agent, "1", keep_open=timedelta(minutes=1))
        await eventually(lambda: _asks(conversation))
        await conversation.send("2")
        await conversation.cancel_turn()
        assert await conversation.reply() == "Two."


async def _asks(conversation: Conversation) -> bool:
    return (await conversation.status()).turn == 1


@pytest.mark.long
async def test_a_handle_that_sent_more_than_a_run_remembers_gets_its_reply(
    client: Client, scripted: Scripted, bounds: Bounds
) -> None:
    bounds(events=20, remembered_ids=10)
    agent = agent_on(scripted(lambda _: say("Read.")))
    async with hosting(client, agent):
        conversation = await client.start(agent, "Hi", keep_open=timedelta(minutes=5))
        assert await conversation.reply() == "Read."
        await conversation.pause()
        for number in range(12):
            await conversation.send(f"{number}")
        await conversation.resume()
        assert await conversation.reply() == "Read."
        await conversation.send("One more, for the next run")
        assert await conversation.reply() == "Read."
        assert len(await runs_of(client, conversation)) > 1
        await conversation.close()


# ---------------------------------------------------------------- events


async def test_commands_are_told_by_name_after_a_reset(client: Client, scripted: Scripted) -> None:
    """Temporal applies them again, and writes them down in another event than at first."""
    agent = agent_on(scripted(["Hello."]))
    async with hosting(client, agent):
        conversation = await client.start(agent, "Hi", keep_open=timedelta(minutes=5))
        assert await conversation.reply() == "Hello."
        await conversation.pause("one moment")
        await conversation.resume()
        await reset_to(client, conversation, task=2)  # the one after the reply
        await eventually(lambda: _switches(conversation, ["pause", "resume"]))
        await conversation.close()
        told = [event async for event in conversation.events(deltas=False)]
    switched = [(event.name, event.by, event.reason) for event in told if isinstance(event, events.Switched)]
    assert switched == [("pause", client.by, "one moment"), ("resume", client.by, None), ("close", client.by, None)]


async def _switches(conversation: Conversation, names: list[str]) -> bool:
    told = []
    async for step in read_steps(conversation._temporal, conversation.id):
        told += [step.name] if isinstance(step, CommandSent) else []
    return told == names


@pytest.mark.parametrize(
    ("name", "payload"),
    [
        ("pause", {"reason": {"a": 1}}),
        ("approve", {"call_id": "*", "note": ["x"]}),
        ("deny", {"reason": "no call named"}),
        ("answer", {"call_id": "*", "content": "x", "by": 5}),
        ("close", "now"),
        ("nobody knows it", {"by": "me"}),
    ],
)
async def test_a_signal_that_is_no_command_is_no_event(
    client: Client, scripted: Scripted, name: str, payload: Any
) -> None:
    """The conversation passes over it; one such signal blinded everybody who watched, from then on."""
    agent = agent_on(scripted(["Hello."]))
    async with hosting(client, agent):
        conversation = await client.start(agent, "Hi", keep_open=timedelta(minutes=5))
        assert await conversation.reply() == "Hello."
        await client.temporal.get_workflow_handle(conversation.id).signal(name, payload)
        await conversation.close()
        told = [event.kind async for event in conversation.events(deltas=False)]
    assert told == ["message_received", "turn_started", "replied", "switched", "done"]


async def test_a_plan_for_calls_that_a_reply_does_not_have_is_no_event(client: Client, scripted: Scripted) -> None:
    """As an operator may complete a model turn."""
    plan = {"kind": "run", "call_id": "none", "approval": "it needs approval"}
    reply = {"message": {"role": "assistant", "parts": [{"kind": "text", "text": "By hand."}]}, "plan": [plan]}
    agent = agent_on(scripted([slow("Hello.", seconds=60)]))
    async with hosting(client, agent, drain_timeout=timedelta(0)):
        conversation = await client.start(agent, "Hi", keep_open=timedelta(minutes=5))
        await complete(client, conversation, "call_model", reply)
        await eventually(lambda: _replied(conversation))
        await conversation.close()
        assert [event.kind async for event in conversation.events(deltas=False)][-1] == "done"


async def _replied(conversation: Conversation) -> bool:
    return any(message.text == "By hand." for message in await conversation.transcript())


async def test_who_waits_or_watches_goes_on_after_a_reset(client: Client, scripted: Scripted) -> None:
    """The run that an operator's reset leaves is terminated, and the conversation is not over."""
    agent = agent_on(scripted(["Hello.", call("refund", {"order_id": "81", "cents": 1}), "Refunded."]), tools=[refund])
    async with hosting(client, agent):
        conversation = await client.start(agent, "Hi", keep_open=timedelta(minutes=5))
        assert await conversation.reply() == "Hello."
        await conversation.send("Refund it")
        told: list[events.Event] = []

        async def watch() -> None:
            async for event in conversation.events(deltas=False):
                told.append(event)

        watcher = asyncio.create_task(watch())
        await waiting(conversation)
        # Another's handle: it does not know what was said, and the copied history shows the reply to "Hi" first.
        reply = asyncio.create_task(client.conversation(conversation.id).reply())
        outcome = asyncio.create_task(conversation.outcome())
        await eventually(lambda: told and told[-1].kind == "approval_requested")
        before = told[-1].cursor
        await reset_to(client, conversation, task=-1)
        await eventually(lambda: [event.kind for event in told[-2:]] == ["switched", "approval_requested"])
        await conversation.approve()
        assert await reply == "Refunded."
        await conversation.close()
        assert (await outcome).status == "completed"
        await watcher
        later = [event async for event in conversation.events(before, deltas=False)]
    kinds = [event.kind for event in told]
    assert kinds[:6] == ["message_received", "turn_started", "replied", "message_received", "turn_started", "replied"]
    assert kinds[6:8] == ["tool_called", "approval_requested"]
    assert kinds[8:] == [event.kind for event in later], "who comes back with a cursor of the run that was left"
    assert kinds[8:11] == ["switched", "approval_requested", "decided"]
    assert [told[8].name, told[8].reason] == ["reset", "it was terminated: it stood still"]  # type: ignore[union-attr]
    assert kinds.count("done") == 1


async def test_who_comes_back_to_a_conversation_that_was_over_and_reset_is_told_the_rest(
    client: Client, scripted: Scripted
) -> None:
    agent = agent_on(scripted(in_turn("One.", "Two.")))
    async with hosting(client, agent):
        conversation = await client.start(agent, "Hi")
        assert (await conversation.outcome()).text == "One."
        told = [event async for event in conversation.events(deltas=False)]
        await reset_to(client, conversation, task=0)
        assert await conversation.reply() == "Two."
        later = [event.kind async for event in conversation.events(told[0].cursor, deltas=False)]
    assert later == ["turn_started", "replied", "switched", "turn_started", "replied", "done"]
