"""Calls of sub-agents: what their conversations are started with, what they are told, and what becomes of their end."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from temporalio import exceptions, workflow
from temporalio.exceptions import ApplicationError, WorkflowAlreadyStartedError

from everturn import names
from everturn.payloads import AskedAgent, Caller, Notify, Start
from everturn.plans import RunAgent
from everturn.policy import Rule
from everturn.records import Outcome, ToolCall, Usage
from everturn.sizes import MAX_OUTCOME_BYTES, RUN_BYTES
from everturn.tracing import TraceContext
from tests.support.activity_errors import child_error
from tests.support.fake_sdk import FakeSdk, ReplyParts, Scheduled, settle

ASK = ToolCall(call_id="a", name="helper", arguments={"message": "Help *me*."})
DONE = Outcome(status="completed", text="Done.")


async def begun(reply: ReplyParts, *calls: ToolCall) -> Scheduled:
    await reply.begin(*(calls or (ASK,)), plan=[RunAgent(call_id="a", agent="helper:v2")])
    return reply.sdk.children[-1]


async def test_a_sub_agents_conversation_has_what_the_one_that_asks_has(fake_sdk: FakeSdk) -> None:
    notify = Notify(workflow_id="boss", signal="waits")
    trace = TraceContext(traceparent=f"00-{1:032x}-{2:016x}-01")
    reply = ReplyParts(
        fake_sdk, tenant="acme", metadata={"shop": "7"}, notify=notify, stream=True, trace=trace,
        policy=(Rule(tool="look", then="deny"),), limits=None,
    )  # fmt: skip
    child = await begun(reply)
    start: Start = child.input
    assert (child.name, start.agent, start.message) == (names.CONVERSATION, "helper:v2", "Help *me*.")
    assert (start.tenant, start.metadata, start.notify, start.stream, start.visibility) == (
        "acme",
        {"shop": "7"},
        notify,
        True,
        "full",
    )
    assert [rule.tool for rule in start.inherited] == ["look"]
    assert (start.caller, start.trace) == (Caller(conversation_id="talk", call_id="a", turn=1), trace)
    assert child.options["id"] == "talk.a"
    assert child.options["memo"] == {"tenant": "acme", "metadata": {"shop": "7"}}
    assert child.options["static_summary"]
    assert child.options["static_details"] == "Agent **helper:v2**, asked by `talk`"


async def test_a_minimal_conversation_says_nothing_outside_of_its_payloads(fake_sdk: FakeSdk) -> None:
    child = await begun(ReplyParts(fake_sdk, visibility="minimal"))
    assert child.options.keys() & {"static_summary", "static_details"} == set()
    assert child.options["memo"] is None


async def test_a_sub_agent_without_a_message_is_named_in_its_summary(reply: ReplyParts) -> None:
    child = await begun(reply, ToolCall(call_id="a", name="helper", arguments={}))
    assert child.options["static_summary"] == "helper:v2"


@pytest.mark.parametrize(("left", "told"), [(RUN_BYTES, False), (MAX_OUTCOME_BYTES, True)])
async def test_a_sub_agent_is_told_its_room_if_there_is_less_than_for_any_outcome(
    left: int, *, told: bool, reply: ReplyParts
) -> None:
    reply.sdk.size = RUN_BYTES - left
    caller = (await begun(reply)).input.caller
    assert (caller.room is not None) is told


async def test_a_sub_agent_is_at_work_until_it_ends_and_its_cost_is_added(reply: ReplyParts) -> None:
    changes = reply.changes
    child = await begun(reply)
    assert reply.agents.running == {"a": AskedAgent(call_id="a", agent="helper:v2", conversation_id="talk.a")}
    assert reply.changes > changes
    changes = reply.changes
    reply.state.totals.add_usage(Usage(input_tokens=1), 0.5)
    await child.finish(DONE.model_copy(update={"usage": Usage(input_tokens=7), "cost_usd": 0.25}))
    assert reply.agents.running == {}
    assert (reply.state.totals.usage.input_tokens, reply.state.totals.cost_usd) == (8, 0.75)
    assert reply.changes > changes


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (child_error(ApplicationError("it broke", type="Broken")), "it broke"),
        (child_error(exceptions.TerminatedError("T")), "its conversation was terminated"),
    ],
)
async def test_the_model_is_told_why_there_is_no_answer(error: Exception, reason: str, reply: ReplyParts) -> None:
    await (await begun(reply)).fail(error)
    told = await reply.result()
    assert (told.text, told.is_error) == (f"helper could not answer: {reason}.", True)
    assert reply.agents.running == {}


async def test_a_conversation_that_runs_already_is_not_joined(
    reply: ReplyParts, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def start(*_: Any, **__: Any) -> None:
        raise WorkflowAlreadyStartedError("talk.a", names.CONVERSATION)

    monkeypatch.setattr(workflow, "start_child_workflow", start)
    await reply.begin(ASK, plan=[RunAgent(call_id="a", agent="helper")])
    assert (await reply.result()).text == "helper could not answer: a conversation 'talk.a' is already running."


async def test_an_outcome_that_can_not_be_read_is_for_a_person(reply: ReplyParts) -> None:
    await (await begun(reply)).finish_unreadably()
    assert "The outcome of helper:v2's conversation can't be read" in reply.state.pending["a"].asked.why
    assert reply.ledger.running == set()


async def test_a_sub_agent_is_closed_with_the_conversation_that_asked(reply: ReplyParts) -> None:
    child = await begun(reply)
    assert child.signals == []
    await reply.send(names.CLOSE)
    ((name, control),) = child.signals
    assert (name, control.reason) == (names.CLOSE, "the conversation that asked was closed")
    await child.finish(DONE)
    assert (await reply.result()).text == "Done."


async def test_a_sub_agent_is_told_of_each_change_of_the_rules(reply: ReplyParts) -> None:
    child = await begun(reply)
    for then in ("deny", "ask"):
        await reply.send(names.SET_POLICY, rules=[{"tool": "pay", "then": then}])
    assert [(name, changed.rules[0].then, changed.by) for name, changed in child.signals] == [
        (names.INHERIT_POLICY, "deny", "talk"),
        (names.INHERIT_POLICY, "ask", "talk"),
    ]
    await child.finish(DONE)
    await reply.send(names.SET_POLICY, rules=[])
    await reply.send(names.CLOSE)
    assert len(child.signals) == 2, "it is over"


async def test_a_sub_agent_that_has_ended_by_then_need_not_be_told(reply: ReplyParts) -> None:
    child = await begun(reply)
    child.signal_error = ApplicationError("it is over")
    await reply.send(names.SET_POLICY, rules=[{"tool": "pay", "then": "deny"}])
    await reply.send(names.CLOSE)
    child.signal_error = None
    await reply.send(names.SET_POLICY, rules=[])
    assert [name for name, _ in child.signals] == [names.INHERIT_POLICY]
    await child.finish(DONE)
    assert (await reply.result()).text == "Done."


async def test_a_sub_agent_is_cancelled_with_its_turn(reply: ReplyParts) -> None:
    child = await begun(reply)
    await reply.send(names.CANCEL_TURN)
    assert child.cancelled
    assert reply.agents.running == {}


@pytest.mark.parametrize("later", [True, False])
async def test_a_sub_agent_that_began_as_its_turn_was_cancelled_is_cancelled(
    later: bool, reply: ReplyParts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Together with the cancellation, or after it."""
    began: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    start_child = workflow.start_child_workflow

    async def start(*args: Any, **options: Any) -> Any:
        await began
        return await start_child(*args, **options)

    monkeypatch.setattr(workflow, "start_child_workflow", start)
    await reply.begin(ASK, plan=[RunAgent(call_id="a", agent="helper")])
    reply.sdk.length += 1
    reply.commands.handlers.take_signal(names.CANCEL_TURN, ({},))
    if later:
        await settle()
    began.set_result(None)
    await settle()
    (child,) = reply.sdk.children
    assert child.cancelled


async def test_a_sub_agent_that_can_not_begin_after_its_turn_was_cancelled_is_no_error(
    reply: ReplyParts, monkeypatch: pytest.MonkeyPatch
) -> None:
    began: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    async def start(*_: Any, **__: Any) -> Any:
        return await began

    monkeypatch.setattr(workflow, "start_child_workflow", start)
    await reply.begin(ASK, plan=[RunAgent(call_id="a", agent="helper")])
    reply.sdk.length += 1
    await reply.send(names.CANCEL_TURN)
    began.set_exception(WorkflowAlreadyStartedError("talk.a", names.CONVERSATION))
    await settle()
    assert reply.agents.running == {}
