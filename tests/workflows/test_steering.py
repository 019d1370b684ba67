"""Steering: turns are cancelled, approvals expire, policies say who may decide, fallbacks take over."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from pydantic import BaseModel

from everturn import Approvals, Client, Conversation, Limits, Model, Patience, ToolContext, tool
from everturn.agent_settings import Compaction
from everturn.client.followed_reply import FollowedReply
from everturn.errors import Ended, Refused, Stalled
from everturn.records import Decision, ToolCall
from everturn.testing import ScriptedModel, call, fail, say, slow
from tests.support.agents import agent_on, hosting
from tests.support.bounds import Bounds
from tests.support.operators import goes_on, signal
from tests.support.scripts import ONE
from tests.support.tools import refund
from tests.support.transcripts import results_of
from tests.support.waiting import WAIT_SECONDS, eventually, reaches, waiting

Scripted = Callable[..., ScriptedModel]


async def cancel_workflow(conversation: Conversation) -> None:
    """What `temporal workflow cancel` does."""
    await conversation._temporal.get_workflow_handle(conversation.id).cancel()


async def test_a_cancelled_turn_leaves_the_conversation_ready_and_every_call_with_a_result(
    client: Client, scripted: Scripted, cached_conversations: int
) -> None:
    cancelled = asyncio.Event()
    looked: list[bool] = []

    @tool
    async def sleep() -> str:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cancelled.set()
            raise
        return "never"

    @tool
    def look(context: ToolContext) -> str:
        deadline = time.monotonic() + WAIT_SECONDS
        while not context.is_cancelled() and time.monotonic() < deadline:
            time.sleep(0.02)
        looked.append(context.is_cancelled())
        return "never"

    agent = agent_on(scripted([[call("sleep"), call("look")], "Ready again."]), tools=[sleep, look])
    async with hosting(client, agent, cached_conversations=cached_conversations):
        conversation = await client.start(agent, "Go", keep_open=timedelta(minutes=1))
        await eventually(lambda: _running(client, conversation.id, 2))
        await conversation.cancel_turn("wrong order")
        with pytest.raises(Ended, match="was cancelled"):
            await conversation.reply()
        with pytest.raises(Refused, match="No turn is running"):
            await conversation.cancel_turn()
        await asyncio.wait_for(cancelled.wait(), WAIT_SECONDS)
        await eventually(lambda: looked == [True])
        await conversation.send("Again")
        assert await conversation.reply() == "Ready again."
        await conversation.close()
        await conversation.outcome()
        results = results_of(await conversation.transcript())
    assert [result.text for result in results] == [
        "This call was cut short: the turn was cancelled by tester (wrong order). "
        "It was running: it may or may not have taken effect."
    ] * 2


async def _running(client: Client, conversation_id: str, activities: int) -> bool:
    described = await client.temporal.get_workflow_handle(conversation_id).describe()
    started = [
        pending_activity
        for pending_activity in described.raw_description.pending_activities
        if pending_activity.HasField("last_started_time")
    ]
    return len(started) == activities


async def test_a_cancelled_model_call_is_stopped_and_what_was_said_is_kept(client: Client, scripted: Scripted) -> None:
    model = scripted([slow("never", seconds=30), "Both heard."], order="arrival")
    agent = agent_on(model)
    async with hosting(client, agent):
        conversation = await client.start(agent, "One", keep_open=timedelta(minutes=1))
        await eventually(lambda: model.requests)
        await conversation.cancel_turn()
        await conversation.send("Two")
        assert await conversation.reply() == "Both heard."
        await conversation.close()
        await conversation.outcome()
        roles = [(message.role, message.text) for message in await conversation.transcript()]
    assert roles == [("user", "One"), ("user", "Two"), ("assistant", "Both heard.")]


async def test_what_no_model_has_answered_is_in_the_transcript_once(client: Client, scripted: Scripted) -> None:
    model = scripted([slow("never", seconds=30)])
    agent = agent_on(model)
    async with hosting(client, agent):
        conversation = await client.start(agent, "Go")
        await eventually(lambda: model.requests)
        await conversation.cancel_turn()
        assert (await conversation.outcome()).tail
        assert [message.text for message in await conversation.transcript()] == ["Go"]


async def test_a_cancelled_turn_ends_a_conversation_that_is_not_kept_open(client: Client, scripted: Scripted) -> None:
    agent = agent_on(scripted(ONE), tools=[refund])
    async with hosting(client, agent):
        conversation = await client.start(agent, "Go")
        await waiting(conversation)
        await conversation.cancel_turn()
        outcome = await conversation.outcome()
        (result,) = results_of(await conversation.transcript())
    assert (outcome.status, outcome.reason) == ("cancelled", "the turn was cancelled by tester")
    assert "cut short" in result.text


@pytest.mark.parametrize(
    ("on_expiry", "text"), [("deny", "Nobody decided within 0:00:01"), ("approve", "5 back for 81")]
)
async def test_an_approval_that_nobody_gives_expires_into_its_default(
    client: Client, scripted: Scripted, cached_conversations: int, on_expiry: Any, text: str
) -> None:
    approvals = Approvals(
        expire_after=timedelta(seconds=1), on_expiry=on_expiry, remind_before=timedelta(milliseconds=500)
    )
    agent = agent_on(scripted(ONE), tools=[refund], approvals=approvals)
    async with hosting(client, agent, cached_conversations=cached_conversations):
        conversation = await client.start(agent, "Go")
        await conversation.outcome()
        (result,) = results_of(await conversation.transcript())
        kinds = [event.kind async for event in conversation.events()]
    assert text in result.text
    assert result.decision is not None
    assert result.decision.by == "the clock"
    assert kinds.count("approval_reminder") == 1


async def test_only_those_may_decide_whom_the_policy_lets(
    client: Client, scripted: Scripted, cached_conversations: int
) -> None:
    async def approvers(call: ToolCall, decision: Decision) -> bool | str:
        return decision.by == "boss" or f"{call.name} is the boss's to decide"

    agent = agent_on(scripted(ONE), tools=[refund], approvers=approvers)
    boss = Client(client.temporal, task_queue=client.task_queue, by="boss")
    async with hosting(client, agent, cached_conversations=cached_conversations):
        conversation = await client.start(agent, "Go")
        await waiting(conversation)
        await conversation.approve("a")
        await eventually(lambda: _why(conversation, "tester may not decide: refund is the boss's to decide"))
        await boss.conversation(conversation.id).approve("a")
        await conversation.outcome()
        (result,) = results_of(await conversation.transcript())
    assert result.text == "5 back for 81"
    assert result.decision is not None
    assert result.decision.by == "boss"


async def _why(conversation: Any, text: str) -> bool:
    return any(text in call_waiting.why for call_waiting in (await conversation.status()).waiting)


async def test_a_decision_on_other_arguments_than_the_calls_is_refused(client: Client, scripted: Scripted) -> None:
    agent = agent_on(scripted(ONE), tools=[refund])
    async with hosting(client, agent):
        conversation = await client.start(agent, "Go")
        await waiting(conversation)
        with pytest.raises(Refused, match="has different arguments now"):
            await conversation.approve("a", expected={"order_id": "81", "cents": 500})
        await conversation.approve("a", expected={"order_id": "81", "cents": 5})
        await conversation.outcome()


async def test_fallback_models_take_over_in_order_and_then_a_person(client: Client, scripted: Scripted) -> None:
    refusing, ill, well = scripted([fail(401)]), scripted([fail(400)]), scripted(["Here.", "And here."])
    agent = agent_on(
        refusing,
        fallback_models=[Model("scripted:ill", base_url=ill.base_url), Model("scripted:well", base_url=well.base_url)],
    )
    async with hosting(client, agent):
        conversation = await client.start(agent, "Go", keep_open=timedelta(minutes=1))
        assert await conversation.reply() == "Here."
        await conversation.send("More")
        assert await conversation.reply() == "And here."
        await conversation.close()
        await conversation.outcome()
    assert [len(model.requests) for model in (refusing, ill, well)] == [1, 1, 2]


async def test_a_final_reply_that_does_not_fit_the_output_type_is_mended_by_the_model(
    client: Client, scripted: Scripted
) -> None:
    class Order(BaseModel):
        number: int

    model = scripted(["about eighty", say('{"number": "x"}'), say('{"number": 81}')])
    agent = agent_on(model, output=Order)
    async with hosting(client, agent):
        outcome = await client.run(agent, "Which order?")
        assert (outcome.status, outcome.output, outcome.turns) == ("completed", {"number": 81}, 3)
        assert "does not fit the output's schema" in model.requests[-1]["messages"][-1]["content"]

        hopeless = agent_on(scripted(["no"] * 5), output=Order, name="hopeless")
    async with hosting(client, hopeless):
        outcome = await client.run(hopeless, "Which order?")
    assert (outcome.status, outcome.text, outcome.turns) == ("failed", "no", 3)


async def test_only_failures_spend_patience_and_then_the_conversation_stalls(
    client: Client, scripted: Scripted
) -> None:
    model = scripted(lambda messages: fail(503))
    agent = agent_on(model, patience=Patience(model=timedelta(seconds=3)))
    async with hosting(client, agent):
        conversation = await client.start(agent, "Go", keep_open=timedelta(minutes=1))
        with pytest.raises(Stalled, match=r"tried \d times, for 0:00:0[0-3]"):
            await conversation.reply()
    assert len(model.requests) in (2, 3, 4, 5)


async def test_an_outage_of_the_workers_spends_no_patience(client: Client, scripted: Scripted) -> None:
    model = scripted(lambda messages: fail(503) if len(model.requests) < 3 else "Back.")
    # Its tries take 3 s, and those of a busy machine longer.
    agent = agent_on(model, patience=Patience(model=timedelta(seconds=8)))
    async with hosting(client, agent, drain_timeout=timedelta(0)):
        conversation = await client.start(agent, "Go")
        await eventually(lambda: len(model.requests) >= 1)
    await asyncio.sleep(8)  # the outage itself, longer than all patience
    async with hosting(client, agent):
        assert await conversation.reply() == "Back."


async def test_a_limit_can_end_a_conversation_without_a_last_word(client: Client, scripted: Scripted) -> None:
    model = scripted([call("nothing")] * 5)
    agent = agent_on(model, limits=Limits(max_turns=2, conclude=False))
    async with hosting(client, agent):
        conversation = await client.start(agent, "Go")
        outcome = await conversation.outcome()
        assert len(results_of(await conversation.transcript())) == 2, "every call has its result"
    assert (outcome.status, outcome.turns) == ("limit_reached", 2)
    assert len(model.requests) == 2


@pytest.mark.parametrize("progress", ["x" * 3_000_000, object(), {"done": 3}], ids=["large", "unwritable", "fine"])
async def test_no_progress_that_a_tool_reports_can_end_it(client: Client, scripted: Scripted, progress: object) -> None:
    @tool(effect="once")
    async def work(context: ToolContext) -> str:
        context.heartbeat(progress)
        await asyncio.sleep(2)  # beyond the first beat
        return "worked"

    agent = agent_on(scripted([call("work"), "Done."]), tools=[work])
    async with hosting(client, agent):
        conversation = await client.start(agent, "Go")
        assert await conversation.reply() == "Done."
    (result,) = results_of(await conversation.transcript())
    assert result.text == "worked"


async def test_a_turn_that_is_cancelled_while_a_summary_is_written_is_the_answer_to_what_was_said(
    client: Client, scripted: Scripted, cached_conversations: int
) -> None:
    """The model is not asked again before somebody says something new."""
    written = threading.Event()
    summaries: list[str] = []

    def script(messages: list[dict[str, Any]]) -> Any:
        last = str(messages[-1]["content"])
        if "replaced by a summary" in last:
            summaries.append(last)
            return slow(say("In short."), until=written) if len(summaries) == 1 else "In short."
        return say(f"To {last}", usage={"prompt_tokens": 5_000 if last == "First." else 10, "completion_tokens": 1})

    model = scripted(script)
    agent = agent_on(model, compaction=Compaction(window_tokens=1_000, keep_messages=1))
    try:
        async with hosting(client, agent, cached_conversations=cached_conversations):
            conversation = await client.start(agent, "First.", keep_open=timedelta(minutes=1))
            assert await conversation.reply() == "To First."
            await conversation.send("Second.")
            await eventually(lambda: summaries)
            await conversation.cancel_turn("wrong order")
            assert (await conversation.status()).state == "idle"
            with pytest.raises(Ended, match="was cancelled"):
                await conversation.reply()
            async with FollowedReply(conversation) as answer:
                assert answer.rest
                assert answer.rest.why == "cancelled"
            assert [message.text for message in await conversation.transcript()] == ["First.", "To First.", "Second."]
            assert len(model.requests) == 2
            await conversation.send("Third.")
            assert await conversation.reply() == "To Third."
            texts = [message.text for message in await conversation.transcript() if not message.summary]
            assert texts == ["First.", "To First.", "Second.", "Third.", "To Third."]
            await conversation.close()
            await conversation.outcome()
    finally:
        written.set()


@pytest.mark.parametrize("keep_open", [None, timedelta(minutes=1)], ids=["once", "kept open"])
async def test_a_turn_that_is_cancelled_before_it_begins_asks_no_model(
    client: Client, scripted: Scripted, cached_conversations: int, keep_open: timedelta | None
) -> None:
    model = scripted(["Never."])
    agent = agent_on(model)
    conversation = await client.start(agent, "Go", keep_open=keep_open)
    await signal(conversation, "pause", {})
    async with hosting(client, agent, cached_conversations=cached_conversations):
        await reaches(conversation, "paused")
        await conversation.cancel_turn("wrong order")
        if keep_open:
            await reaches(conversation, "idle")
            assert [message.text for message in await conversation.transcript()] == ["Go"]
            with pytest.raises(Ended, match="was cancelled"):
                await conversation.reply()
            await conversation.close()
        outcome = await conversation.outcome()
        assert outcome.status == "cancelled"
        assert outcome.reason == "the turn was cancelled by tester (wrong order)"
        assert [message.text for message in await conversation.transcript()] == ["Go"]
    assert not model.requests


async def test_a_turn_that_is_cancelled_before_it_begins_in_another_run_asks_no_model(
    client: Client, scripted: Scripted, bounds: Bounds
) -> None:
    """And what was said since then is answered."""
    bounds(updates=3)
    model = scripted(["One.", "Three."], order="arrival")
    agent = agent_on(model)
    async with hosting(client, agent):
        conversation = await client.start(agent, "First.", keep_open=timedelta(minutes=1))
        assert await conversation.reply() == "One."
        run_id = await conversation.latest_run()
        for switch in (conversation.pause, conversation.resume, conversation.pause):
            await switch()
        await conversation.send("Second.")
        await goes_on(conversation, run_id)
        await reaches(conversation, "paused")
        await conversation.send("Third.")
        await conversation.cancel_turn()
        assert await conversation.reply() == "Three."
        assert [message.text for message in await conversation.transcript() if message.role == "user"] == [
            "First.",
            "Second.",
            "Third.",
        ]
        await conversation.close()
        await conversation.outcome()
    assert len(model.requests) == 2


ENDS: list[Any] = [
    pytest.param("look", {}, Conversation.close, "stalled", "it was answered", id="closed-while-stalled"),
    pytest.param("refund", {}, Conversation.close, "awaiting_approval", "it was answered", id="closed-while-it-waits"),
    pytest.param("refund", {}, cancel_workflow, "awaiting_approval", "the workflow was cancelled", id="cancelled"),
    pytest.param("look", {"max_turns": 1, "conclude": False}, None, "done", "the limit of 1 turns", id="limit"),
]


@pytest.mark.parametrize(("tool_name", "limits", "end", "state", "reason"), ENDS)
async def test_words_before_calls_are_no_reply_once_it_has_ended(
    client: Client, scripted: Scripted, tool_name: str, limits: dict[str, Any], end: Any, state: str, reason: str
) -> None:
    """Neither for who waits for it already, nor for who asks later, nor for a page."""

    @tool
    def look() -> str:
        return "A lamp."

    arguments = {"order_id": "81", "cents": 5} if tool_name == "refund" else {}
    model = scripted([[say("Let me see."), call(tool_name, arguments)], fail(400)], order="arrival")
    agent = agent_on(model, tools=[look, refund], limits=Limits(**limits))
    async with hosting(client, agent):
        conversation = await client.start(agent, "Go", keep_open=timedelta(minutes=1))
        replied = asyncio.create_task(client.conversation(conversation.id).reply())
        await reaches(conversation, state)
        if end:
            await end(conversation)
        assert (await conversation.outcome()).text == "Let me see."
        with pytest.raises(Stalled if state == "stalled" else Ended):
            await asyncio.wait_for(replied, WAIT_SECONDS)
        with pytest.raises(Ended, match=reason):
            await conversation.reply()
        async with FollowedReply(conversation) as answer:
            assert answer.rest
            assert answer.rest.why in ("ended", "cancelled")
            assert reason in answer.rest.cause
