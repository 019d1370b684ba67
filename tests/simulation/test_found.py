"""What the simulation has found in everturn, each as the shortest story that shows it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Literal
from unittest.mock import patch

import pytest

from everturn import names
from everturn.activities import model_turns
from everturn.errors import ContextTooLong, Ended, KeyRefused, Stalled
from everturn.events import Compacted
from everturn.history import steps
from everturn.history.state_by_history import StateByHistory
from everturn.limits import Limits
from everturn.payloads import DecisionCheck, MessageIn, ModelReply, ModelRequest, Start, ToolRequest
from everturn.plans import Expiry, RunHandoff, RunTool
from everturn.providers.base import Request
from everturn.records import Decision, Message, Outcome, Reply, Successor, Text, ToolCall, ToolResult, Usage
from tests.simulation.shrink import PLAIN
from tests.simulation.temporal import clock
from tests.simulation.world import Draw, World
from tests.simulation.world import bounds as lowered

AT = datetime(2026, 1, 1, tzinfo=UTC)
ASKED = ModelRequest(agent="clerk", turn=1, delta=(Message.user("Hello"),))
SAID = ModelReply(message=Message(role="assistant", parts=(Text(text="Hi."),)))


def by_history(*taken: steps.Step, keep_open: float | None = 60.0) -> StateByHistory:
    found = StateByHistory()
    found.take_step(steps.RunStarted(1, AT, Start(agent="clerk", message="Hello", keep_open=keep_open)))
    for step in taken:
        found.take_step(step)
    return found


def test_a_conversation_that_is_over_does_not_idle() -> None:
    closed = steps.RunClosed(9, AT, Outcome(status="completed"))
    assert not by_history(
        steps.TurnScheduled(5, AT, ASKED), steps.TurnCompleted(7, AT, ASKED, SAID), closed
    ).state.is_idle


def test_what_is_said_after_the_last_reply_that_a_limit_allows_begins_no_answer() -> None:
    concluding = ASKED.model_copy(update={"conclude": "the limit of 1 turns"})
    found = by_history(
        steps.TurnScheduled(5, AT, concluding),
        steps.MessageSent(6, AT, MessageIn(text="And?")),
        steps.TurnCompleted(7, AT, concluding, SAID),
        steps.WorkflowTaskCompleted(8, AT, 1.0),
    )
    assert found.state.last_reply.final
    assert not found.state.answering


@pytest.mark.parametrize("accepted", [True, False])
def test_a_cancelled_turn_is_not_the_last_one_that_a_limit_allows(*, accepted: bool) -> None:
    """The conversation goes on, and its next message begins an answer: that may be the last one, then."""
    concluding = ASKED.model_copy(update={"conclude": "the limit of 1 turns"})
    cancelled = steps.CommandSent(6, AT, "cancel_turn", {"by": "me"}, accepted=accepted)
    found = by_history(
        steps.TurnScheduled(5, AT, concluding),
        cancelled,
        steps.TurnCompleted(7, AT, concluding, SAID),
        steps.WorkflowTaskCompleted(8, AT, 1.0),
        steps.MessageSent(9, AT, MessageIn(text="And?")),
        steps.WorkflowTaskCompleted(10, AT, 2.0),
    )
    assert found.state.answering
    assert not found.state.cancelled


CALLS = ModelReply(
    message=Message(role="assistant", parts=(ToolCall(call_id="a", name="pay"),)), plan=(RunTool(call_id="a"),)
)
CANCEL = steps.CommandSent(6, AT, "cancel_turn", {"by": "me"}, accepted=True)
AS_AN_ANSWER_ENDS: list[Any] = [
    pytest.param([], steps.TurnCompleted(7, AT, ASKED, SAID), id="by-a-reply"),
    pytest.param([CANCEL], steps.TurnCancelled(7, AT, ASKED), id="by-a-turn-that-was-cut-short"),
    pytest.param([steps.TurnCompleted(6, AT, ASKED, CALLS)], replace(CANCEL, accepted=False), id="by-a-signal"),
]


@pytest.mark.parametrize(("before", "end"), AS_AN_ANSWER_ENDS)
def test_a_cancellation_in_the_workflow_task_that_ends_an_answer_is_not_about_the_next_one(
    before: list[steps.Step], end: steps.Step
) -> None:
    """The conversation takes in an update before what the same workflow task brought: the message is answered."""
    found = by_history(
        steps.TurnScheduled(5, AT, ASKED),
        *before,
        steps.WorkflowTaskCompleted(8, AT, 1.0),
        end,
        steps.MessageSent(9, AT, MessageIn(text="And?")),
        steps.WorkflowTaskCompleted(10, AT, 2.0),
        replace(CANCEL, id=11),
    )
    assert found.state.answering
    assert not found.state.cancelled
    assert found.state.inbox.messages == [Message.user("And?")]


def test_a_reply_whose_conversation_was_closed_is_cut_short_before_it_is_taken_up_again() -> None:
    call = ToolCall(call_id="a", name="pay")
    reply = ModelReply(message=Message(role="assistant", parts=(call,)), plan=(RunTool(call_id="a"),))
    found = by_history(
        steps.TurnScheduled(5, AT, ASKED),
        steps.CommandSent(6, AT, "close", {}),
        steps.MessageSent(7, AT, MessageIn(text="Wait")),
        steps.WorkflowTaskCompleted(8, AT, 1.0),
        steps.TurnCompleted(9, AT, ASKED, reply),
        steps.WorkflowTaskCompleted(10, AT, 2.0),
        steps.RunClosed(11, AT, None, next_run_id="next"),
    )
    assert [result.call_id for message in found.state.unseen.messages for result in message.tool_results] == ["a"]
    assert [message.text for message in found.state.inbox.messages] == ["Wait"]
    assert not found.state.inbox.late
    assert not found.state.answering


def test_a_resume_that_was_taken_together_with_a_failure_came_before_it() -> None:
    found = by_history(
        steps.TurnScheduled(5, AT, ASKED),
        steps.CommandSent(6, AT, "pause", {}),
        steps.WorkflowTaskCompleted(7, AT, 1.0),
        steps.TurnFailed(9, AT, ASKED, "401", "Set the key."),
        steps.WorkflowTaskCompleted(10, AT, 2.0),
        steps.CommandSent(11, AT, "resume", {}, accepted=True),
    )
    assert not found.state.paused
    assert found.state.name == "stalled"
    found.take_step(steps.WorkflowTaskCompleted(13, AT, 3.0))
    found.take_step(steps.CommandSent(14, AT, "resume", {}, accepted=True))
    assert found.state.name == "running"


def test_a_cancellation_that_was_taken_together_with_the_final_reply_counts() -> None:
    found = by_history(
        steps.TurnScheduled(5, AT, ASKED),
        steps.TurnCompleted(7, AT, ASKED, SAID),
        steps.WorkflowTaskCompleted(8, AT, 1.0),
        steps.CommandSent(9, AT, "cancel_turn", {"by": "me"}, accepted=True),
    )
    assert found.state.cancelled == "the turn was cancelled by me"
    assert not found.state.answering


def test_a_handoff_that_comes_together_with_a_cancellation_hands_nothing_over() -> None:
    """It said that another agent was in charge, while the conversation stayed with its own."""
    calls = ToolCall(call_id="a", name="transfer_to_guard"), ToolCall(call_id="b", name="pay")
    plan = RunHandoff(call_id="a", successor=Successor(agent="guard")), RunTool(call_id="b")
    for some in (1, 2):
        reply = ModelReply(message=Message(role="assistant", parts=calls[:some]), plan=plan[:some])
        found = by_history(
            steps.TurnScheduled(5, AT, ASKED),
            steps.TurnCompleted(7, AT, ASKED, reply),
            steps.WorkflowTaskCompleted(8, AT, 1.0),
        )
        assert found.state.agent == ("guard" if some == 1 else "clerk")
        found.take_step(steps.CommandSent(9, AT, "cancel_turn", {"by": "me"}, accepted=True))
        assert (found.state.agent, found.state.in_charge.carried, found.state.view) == (
            "clerk",
            {"agent": "", "handoffs": 0, "views": {}},
            None,
        )
        assert [result.successor for message in found.state.unseen.messages for result in message.tool_results] == [
            None
        ] * some
        assert not found.state.answering


def test_a_call_that_waits_for_a_worker_ends_when_the_conversation_is_closed() -> None:
    """By the history, it did so only if the close came after it was handed back."""
    call = ToolCall(call_id="a", name="pay")
    reply = ModelReply(message=Message(role="assistant", parts=(call,)), plan=(RunTool(call_id="a"),))
    begun = steps.ToolScheduled(9, AT, "pay", ToolRequest(agent="clerk", turn=1, call_id="a"))
    close = steps.CommandSent(11, AT, "close", {}, accepted=True)
    handed_back = steps.ToolRunFailed(12, AT, "pay", begun.request, "nobody has it", names.NOT_HOSTED, awaited=True)
    for came in ((close, handed_back), (handed_back, close)):
        found = by_history(
            steps.TurnScheduled(5, AT, ASKED),
            steps.TurnCompleted(7, AT, ASKED, reply),
            steps.WorkflowTaskCompleted(8, AT, 1.0),
            begun,
        )
        for number, step in enumerate(came):
            assert found.state.answering
            found.take_step(step)
            found.take_step(steps.WorkflowTaskCompleted(13 + number, AT, 2.0))
        assert not found.state.answering
        assert unanswered(found) == ["a"]


def test_a_check_that_lets_a_call_run_after_a_close_ends_it() -> None:
    """The call does not begin. By the history, the reply was still open, and no result was recorded."""
    calls = WAITS, ToolCall(call_id="b", name="look")
    plan = RunTool(call_id="a", approval="it costs", policy=True), RunTool(call_id="b")
    looked = steps.ToolScheduled(9, AT, "look", ToolRequest(agent="clerk", turn=1, call_id="b"))
    seen = ToolResult(call_id="b", name="look", content=())
    approved = Decision(verdict="approve", by="me")
    found = by_history(
        steps.TurnScheduled(5, AT, ASKED),
        steps.TurnCompleted(7, AT, ASKED, ModelReply(message=Message(role="assistant", parts=calls), plan=plan)),
        steps.WorkflowTaskCompleted(8, AT, 1.0),
        looked,
        steps.ToolCompleted(10, AT, "look", looked.request, seen),
        steps.WorkflowTaskCompleted(11, AT, 2.0),
        steps.CommandSent(12, AT, "approve", {"call_id": "a", "by": "me"}, accepted=True),
        steps.CommandSent(14, AT, "close", {}, accepted=True),
        steps.WorkflowTaskCompleted(16, AT, 3.0),
        steps.DecisionChecked(18, AT, DecisionCheck(agent="clerk", turn=1, call=WAITS, decision=approved), ""),
        steps.WorkflowTaskCompleted(20, AT, 4.0),
    )
    assert unanswered(found) == ["a", "b"]
    assert found.state.unseen.recorded == {"b"}
    assert not found.state.answering


WAITS = ToolCall(call_id="a", name="refund")


def waiting_call(verdict: Literal["approve", "deny"], *, expires: bool = True) -> StateByHistory:
    """A call that waits for a person until it expires; in the next workflow task, it does."""
    plan = RunTool(call_id="a", approval="it costs", expiry=Expiry(after=60.0, verdict=verdict))
    found = by_history(
        steps.TurnScheduled(5, AT, ASKED),
        steps.TurnCompleted(7, AT, ASKED, ModelReply(message=Message(role="assistant", parts=(WAITS,)), plan=(plan,))),
        steps.WorkflowTaskCompleted(8, AT, 1.0),
    )
    assert [*found.state.pending] == ["a"]
    if expires:
        found.take_step(steps.CallExpired(11, AT, "a"))
        found.take_step(steps.WorkflowTaskCompleted(13, AT, 61.0))
    return found


def unanswered(found: StateByHistory) -> list[str]:
    return [result.call_id for message in found.state.unseen.messages for result in message.tool_results]


def test_who_decides_in_the_moment_of_the_expiry_comes_before_it() -> None:
    """By the history, the clock had denied the call, and the reply was over, while the tool ran."""
    found = waiting_call("deny")
    assert unanswered(found) == ["a"]
    found.take_step(steps.CommandSent(14, AT, "approve", {"call_id": "a"}, accepted=True))
    assert (unanswered(found), [*found.state.pending], found.calls.has_begun("a")) == ([], [], False)
    ran = steps.ToolScheduled(17, AT, "refund", ToolRequest(agent="clerk", turn=1, call_id="a"))
    found.take_step(ran)
    finished = ToolResult(call_id="a", name="refund", content=())
    found.take_step(steps.ToolCompleted(20, AT, "refund", ran.request, finished))
    found.take_step(steps.WorkflowTaskCompleted(22, AT, 62.0))
    assert unanswered(found) == ["a"]
    assert found.state.unseen.recorded == {"a"}


@pytest.mark.parametrize("name", ["deny", "close"])
def test_who_denies_in_the_moment_in_which_the_clock_approves_comes_before_it(name: str) -> None:
    found = waiting_call("approve")
    assert (unanswered(found), [*found.state.pending]) == ([], [])
    found.take_step(steps.CommandSent(14, AT, name, {"call_id": "a"} if name == "deny" else {}, accepted=True))
    assert unanswered(found) == ["a"]


def test_of_two_who_speak_in_the_moment_of_the_expiry_both_come_before_it() -> None:
    found = waiting_call("deny")
    found.take_step(steps.MessageSent(14, AT, MessageIn(text="And?"), accepted=True))
    assert unanswered(found) == ["a"]
    found.take_step(steps.CommandSent(16, AT, "approve", {"call_id": "a"}, accepted=True))
    assert unanswered(found) == []
    assert [message.text for message in found.state.inbox.messages] == ["And?"]


def test_who_decides_after_the_expiry_comes_too_late() -> None:
    found = waiting_call("deny")
    found.take_step(steps.WorkflowTaskCompleted(17, AT, 62.0))
    found.take_step(steps.CommandSent(18, AT, "approve", {"call_id": "a"}, accepted=True))
    assert unanswered(found) == ["a"]


def test_a_rule_that_decides_in_the_moment_of_the_expiry_is_told_once() -> None:
    found = waiting_call("deny")
    found.take_step(
        steps.CommandSent(14, AT, "set_policy", {"rules": [{"tool": "refund", "then": "approve"}]}, accepted=True)
    )
    assert [call_id for call_id, _ in found.decisions.take_ruled()] == ["a"]
    found.take_step(steps.MessageSent(16, AT, MessageIn(text="And?"), accepted=True))
    assert found.decisions.take_ruled() == []
    assert unanswered(found) == []


def test_a_model_that_was_chosen_together_with_a_failure_is_not_the_one_that_failed() -> None:
    found = by_history(
        steps.TurnScheduled(5, AT, ASKED),
        steps.CommandSent(6, AT, "pause", {}),
        steps.WorkflowTaskCompleted(7, AT, 1.0),
        steps.TurnFailed(9, AT, ASKED, "529", "", fallback="scripted:second"),
        steps.WorkflowTaskCompleted(10, AT, 2.0),
        steps.CommandSent(11, AT, "resume", {"model": "scripted:chosen"}, accepted=True),
    )
    assert found.state.model.name == "scripted:second"  # the next of those that the running turn has


def test_who_decides_while_another_decision_is_checked_is_asked_about_next() -> None:
    call = ToolCall(call_id="a", name="refund")
    reply = ModelReply(
        message=Message(role="assistant", parts=(call,)),
        plan=(RunTool(call_id="a", approval="it costs", policy=True),),
    )
    first, second = ({"call_id": "a", "by": by} for by in ("ann", "ben"))
    check = DecisionCheck(agent="clerk", call=call, decision=Decision(verdict="approve", by="ann"))
    found = by_history(
        steps.TurnScheduled(5, AT, ASKED),
        steps.CommandSent(6, AT, "approve", first),
        steps.CommandSent(7, AT, "approve", second),
        steps.TurnCompleted(9, AT, ASKED, reply),
        steps.WorkflowTaskCompleted(10, AT, 1.0),
        steps.DecisionChecked(13, AT, check, "ann may not"),
        steps.WorkflowTaskCompleted(14, AT, 2.0),
    )
    assert not found.state.pending
    found.take_step(steps.DecisionChecked(17, AT, check, "ben may not either"))
    found.take_step(steps.WorkflowTaskCompleted(18, AT, 3.0))
    assert [*found.state.pending] == ["a"]


def test_a_conversation_that_makes_room_before_it_answers_is_not_shown_as_idle() -> None:
    replies = iter(
        [Reply(message=Message(role="assistant", parts=(ToolCall(call_id="a", name="long", arguments={"size": 900}),)))]
    )

    async def model(*_: Any, **__: Any) -> Reply:
        if reply := next(replies, None):
            return reply.model_copy(update={"stop": "tool_calls"})
        raise KeyRefused("401", status=401)

    async def talk(world: World) -> None:
        world.server.indexed = True
        conversation = await world.client.start("clerk", "Hello", id="talk", keep_open=timedelta(days=1))
        with pytest.raises(Stalled):
            await conversation.reply()
        await conversation.cancel_turn()
        await conversation.send("And?")
        with pytest.raises(Stalled):
            await conversation.reply()
        events = [event for run in world.server.runs.values() for event in run.history.events]
        begun = [event.activity_task_scheduled_event_attributes.activity_type.name for event in events]
        assert names.EXTEND_PREFIX in begun

    in_a_quiet_world(talk, model=model, bounds=(("events", 20), ("handed_bytes", 400)))


def test_who_waits_for_an_answer_is_not_given_an_earlier_one() -> None:
    async def talk(world: World) -> None:
        limits = Limits(max_turns=1)
        first = await world.client.start("abrupt", "Hello", id="talk", limits=limits)
        assert await first.reply() == "said"
        await first.outcome()
        again = await world.client.send("abrupt", "And?", id="talk")
        with pytest.raises(Ended, match="before it answered every message: the limit of 1 turns"):
            await again.reply()

    in_a_quiet_world(talk, agent="abrupt")


def test_each_answer_may_be_mended_as_often_as_the_one_before() -> None:
    """After a turn that was cancelled while its output was mended, the next answer had no chance to be."""
    said = iter(["no number", "none", "slow", "no number", "none", "7"])

    async def counts(request: Request, *_: Any, **__: Any) -> Reply:
        text = next(said)
        await asyncio.sleep(60.0 if text == "slow" else 0.0)
        return Reply(message=Message(role="assistant", parts=(Text(text=text),)), model="scripted:first")

    async def talk(world: World) -> None:
        conversation = await world.client.start("typed", "How many?", id="talk", keep_open=timedelta(days=1))
        await asyncio.sleep(20.0)
        assert (await conversation.status()).turn == 3
        await conversation.cancel_turn()
        await conversation.send("And now?")
        assert await conversation.reply() == "7"

    in_a_quiet_world(talk, agent="typed", model=counts)


@pytest.mark.parametrize("how", ["cancel_turn", "close"])
def test_lists_do_not_show_what_ends_as_paused(how: str) -> None:
    """Its turn is over some time after somebody has ended it. What lists show is compared after each task."""

    async def slow(request: Request, *_: Any, **__: Any) -> Reply:
        await asyncio.sleep(20.0 if len(request.messages) > 1 else 0.0)
        return await says_the_same()

    async def talk(world: World) -> None:
        world.server.indexed = True
        conversation = await world.client.start("clerk", "Hello", id="talk", keep_open=timedelta(days=1))
        await conversation.reply()
        await conversation.send("And?")
        await asyncio.sleep(1.0)
        await conversation.pause()
        await getattr(conversation, how)()
        await asyncio.sleep(30.0)
        assert (await conversation.status()).state == {"cancel_turn": "idle", "close": "done"}[how]

    in_a_quiet_world(talk, model=slow)


@pytest.mark.parametrize("conclude", [True, False])
@pytest.mark.parametrize("how", ["is due", "is needed"])
def test_a_summary_is_a_turn_and_so_may_be_the_last_one_before_a_limit(how: str, conclude: bool) -> None:
    """It took two turns more than its limit: the one after the summary could still call tools."""
    asked: list[Request] = []

    async def reads_on(request: Request, *_: Any, **__: Any) -> Reply:
        asked.append(request)
        if request.conclude:
            return await says_the_same()
        if how == "is needed" and len(asked) == 6:
            raise ContextTooLong("too long", status=400)
        call = ToolCall(call_id=f"c{len(asked)}", name="look", arguments={"number": 1})
        used = Usage(input_tokens=1_000 if how == "is due" and len(asked) == 5 else 10)
        return Reply(message=Message(role="assistant", parts=(call,)), stop="tool_calls", usage=used)

    async def talk(world: World) -> None:
        limits = Limits(max_turns=6, conclude=conclude)
        conversation = await world.client.start("compact", "Hello", id="talk", limits=limits)
        outcome = await conversation.outcome()
        assert (outcome.status, outcome.turns) == ("limit_reached", 6 + conclude)
        events = [event async for event in conversation.events()]
        assert len([event for event in events if isinstance(event, Compacted) and event.summary]) == 1

    in_a_quiet_world(talk, agent="compact", model=reads_on)


async def says_the_same(*_: Any, **__: Any) -> Reply:
    return Reply(message=Message(role="assistant", parts=(Text(text="said"),)), model="scripted:first")


def in_a_quiet_world(
    live: Callable[[World], Awaitable[Any]],
    *,
    model: Callable[..., Awaitable[Reply]] = says_the_same,
    bounds: tuple[tuple[str, int], ...] = (),
    agent: str = "clerk",
) -> None:
    """A world with one worker, in which nothing happens unasked."""
    draw = replace(Draw.of(1), **{**PLAIN, "bounds": bounds, "agent": agent})
    with lowered(draw), patch.object(model_turns, "ask", model), clock.world(1) as loop:
        world = World(draw, loop)
        world.new_worker()
        loop.run_until_complete(live(world))
        world.forget()
        assert not world.server.violations
