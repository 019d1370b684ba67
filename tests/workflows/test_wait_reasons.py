"""Why a call waits for a person is a fact: `status()` and `events()` say the same, in the reason and in words."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from temporalio.exceptions import ApplicationError

from everturn import Client, Conversation, ToolCall, ask_user, events, names, tool
from everturn.cli.approval_prompt import ApprovalPrompt
from everturn.cli.terminal import Screen
from everturn.payloads import WaitingCall
from everturn.records import Decision
from everturn.testing import ScriptedModel, call
from tests.support.agents import agent_on, hosting
from tests.support.bounds import Bounds
from tests.support.operators import complete, move_on, running
from tests.support.scripts import ONE
from tests.support.side_by_side import side_by_side
from tests.support.tools import refund
from tests.support.waiting import eventually, waiting

Scripted = Callable[..., ScriptedModel]


async def asked(conversation: Conversation) -> WaitingCall:
    """The call that waits, once one does."""
    await waiting(conversation)
    (shown,) = (await conversation.status()).waiting
    return shown


async def next_asked(conversation: Conversation, after: WaitingCall) -> WaitingCall:
    """The call that waits, once something else is asked than before."""

    async def other() -> WaitingCall | None:
        shown = (await conversation.status()).waiting
        return shown[0] if shown and shown[0].why != after.why else None

    return await eventually(other, what="something else is asked")  # type: ignore[no-any-return]


async def told(conversation: Conversation) -> list[tuple[str | None, str]]:
    """What the events of one that is over say of what its calls waited for."""
    asks = (events.ApprovalRequested, events.AnswerRequested)
    return [(event.reason, event.why) async for event in conversation.events() if isinstance(event, asks)]


async def deny(conversation: Conversation) -> None:
    await conversation.deny("*")
    assert (await conversation.outcome()).text == "Done."


def pay_forever() -> Any:
    @tool(effect="once")
    async def pay() -> str:
        await asyncio.sleep(60)
        return "paid"

    return pay


@pytest.mark.long
async def test_a_run_once_call_without_a_result_has_not_run_or_its_outcome_is_unknown(
    client: Client, scripted: Scripted
) -> None:
    agent = agent_on(scripted([call("pay"), "Done."]), tools=[pay_forever()])
    not_run, unknown = ("has_not_run", "it has not run: gone"), ("outcome_unknown", "outcome unknown: gone")
    waits_for = {
        names.TOO_LATE: not_run,
        names.NOT_CHECKED: not_run,
        names.PAYLOAD_NOT_TO_BE_HAD: not_run,
        names.CUT_SHORT: unknown,
        "OutOfMemory": unknown,
    }

    async def fails(kind: str) -> tuple[str | None, str]:
        conversation = await client.start(agent, "Pay")
        activity_id = await running(client, conversation, "pay")
        handle = client.temporal.get_async_activity_handle(
            workflow_id=conversation.id, run_id=None, activity_id=activity_id
        )
        await handle.fail(ApplicationError("gone", type=kind, non_retryable=True))
        shown = await asked(conversation)
        await deny(conversation)
        assert await told(conversation) == [(shown.reason, shown.why)]
        return shown.reason, shown.why

    async with hosting(client, agent, drain_timeout=timedelta(0)):
        assert await side_by_side(fails, {kind: kind for kind in waits_for}) == waits_for


@pytest.mark.long
async def test_a_result_that_can_not_be_read_is_told_in_the_same_words(
    client: Client, scripted: Scripted, cached_conversations: int
) -> None:
    agent = agent_on(scripted([call("pay"), "Done."]), tools=[pay_forever()])
    results: dict[str, Any] = {
        "a text": "x",
        "nothing": None,
        "of another call": {"kind": "tool_result", "call_id": "another", "name": "pay"},
    }

    async def completed(result: Any) -> None:
        conversation = await client.start(agent, "Pay")
        await complete(client, conversation, "pay", result)
        shown = await asked(conversation)
        await deny(conversation)
        assert shown.reason == "outcome_unknown"
        assert shown.why.startswith("outcome unknown: The result of pay ")
        assert await told(conversation) == [(shown.reason, shown.why)]

    async with hosting(client, agent, cached_conversations=cached_conversations, drain_timeout=timedelta(0)):
        await side_by_side(completed, results)


async def test_whoever_may_not_decide_is_told_of_as_in_the_status(
    client: Client, scripted: Scripted, cached_conversations: int
) -> None:
    def approvers(call: ToolCall, decision: Decision) -> bool | str:
        return True if decision.note == "please" else "ask nicely"

    agent = agent_on(scripted(ONE), tools=[refund], approvers=approvers)
    async with hosting(client, agent, cached_conversations=cached_conversations):
        conversation = await client.start(agent, "Refund 81")
        first = await asked(conversation)
        await conversation.approve("a")
        second = await next_asked(conversation, first)
        await conversation.approve("a", {"order_id": "81", "cents": "5 cents"}, note="please")
        third = await next_asked(conversation, second)
        await conversation.approve("a", note="please")
        assert (await conversation.outcome()).text == "Done."
    assert (first.reason, first.why) == ("needs_approval", "refund needs approval")
    assert (second.reason, second.why) == (
        "not_allowed",
        "refund needs approval (tester may not decide: ask nicely)",
    )
    assert third.reason == "invalid_edit"
    assert third.why.startswith("the edited arguments do not fit: cents: ")
    assert await told(conversation) == [(one.reason, one.why) for one in (first, second, third)]


async def test_a_policy_that_can_not_be_asked_is_told_of_as_in_the_status(client: Client, scripted: Scripted) -> None:
    asking = asyncio.Event()

    async def approvers(call: ToolCall, decision: Decision) -> bool:
        asking.set()
        await asyncio.sleep(60)
        return True

    agent = agent_on(scripted(ONE), tools=[refund], approvers=approvers)
    async with hosting(client, agent, drain_timeout=timedelta(0)):
        conversation = await client.start(agent, "Refund 81")
        first = await asked(conversation)
        await conversation.approve("a")
        await asking.wait()
        await complete(client, conversation, names.CHECK_DECISION, 7)
        second = await next_asked(conversation, first)
        asking.clear()
        await conversation.approve("a")
        await asking.wait()
        activity_id = await running(client, conversation, names.CHECK_DECISION)
        handle = client.temporal.get_async_activity_handle(
            workflow_id=conversation.id, run_id=None, activity_id=activity_id
        )
        await handle.fail(ApplicationError("gone", non_retryable=True))
        third = await next_asked(conversation, second)
        await conversation.close()
        await conversation.outcome()
    assert "The policy's decision can't be read: " in second.why
    assert third.why.endswith("(tester may not decide: the policy could not be checked: gone)")
    assert await told(conversation) == [(one.reason, one.why) for one in (first, second, third)]


@pytest.mark.long
async def test_what_may_have_run_stays_in_doubt_whatever_else_is_wrong_with_it(
    client: Client, scripted: Scripted, cached_conversations: int
) -> None:
    """A client that approves by itself, as `--yes` does, must never see another reason for such a call."""

    def approvers(call: ToolCall, decision: Decision) -> bool:
        return decision.note == "please"

    @tool(effect="once", timeout=timedelta(seconds=0.2))
    async def pay(cents: int) -> str:
        await asyncio.sleep(60)
        return "paid"

    agent = agent_on(scripted([call("pay", {"cents": 5}, id="a"), "Done."]), tools=[pay], approvers=approvers)
    async with hosting(client, agent, cached_conversations=cached_conversations, drain_timeout=timedelta(0)):
        conversation = await client.start(agent, "Pay")
        asks = [await asked(conversation)]
        await conversation.approve("a", {"cents": "five"}, note="please")
        asks.append(await next_asked(conversation, asks[-1]))
        await conversation.approve("a")
        asks.append(await next_asked(conversation, asks[-1]))
        await conversation.deny("a", reason="please")
        assert (await conversation.outcome()).text == "Done."
    assert {ask.reason for ask in asks} == {"outcome_unknown"}
    unknown = "outcome unknown: pay did not finish within 0:00:00.200000."
    assert asks[0].why == unknown
    assert asks[1].why.startswith(f"{unknown} (the edited arguments do not fit: cents: ")
    assert asks[2].why == f"{unknown} (tester may not decide: not among the approvers)"
    assert await told(conversation) == [(ask.reason, ask.why) for ask in asks]


async def test_yes_does_not_run_again_what_may_have_run(
    client: Client, scripted: Scripted, capsys: pytest.CaptureFixture[str]
) -> None:
    runs: list[int] = []

    @tool(effect="once", timeout=timedelta(seconds=0.2))
    async def pay(cents: int) -> str:
        runs.append(cents)
        await asyncio.sleep(60)
        return "paid"

    agent = agent_on(scripted([call("pay", {"cents": 5}, id="a"), "Done."]), tools=[pay])
    async with hosting(client, agent, drain_timeout=timedelta(0)):
        conversation = await client.start(agent, "Pay")
        first = await asked(conversation)
        await conversation.approve("a", {"cents": "five"})
        await next_asked(conversation, first)
        prompt = ApprovalPrompt(conversation, screen=Screen(), approve_all=True, prefix="")
        prompt.nudge()
        attending = asyncio.create_task(prompt.ask_until_cancelled())
        await eventually(lambda: "It waits for you." in capsys.readouterr().err)
        attending.cancel()
        await asyncio.wait({attending})
        await conversation.deny("a")
        await conversation.outcome()
    assert runs == [5]


async def test_an_edit_that_does_not_fit_a_local_tool_is_told_of(client: Client, scripted: Scripted) -> None:
    @tool(needs_approval=True, effect="read", local=True, timeout=timedelta(seconds=5))
    def look(cents: int) -> str:
        return f"{cents}"

    agent = agent_on(scripted([call("look", {"cents": 5}, id="a"), "Done."]), tools=[look])
    async with hosting(client, agent):
        conversation = await client.start(agent, "Look")
        first = await asked(conversation)
        await conversation.approve("a", {"cents": "five"})
        second = await next_asked(conversation, first)
        await conversation.approve("a")
        assert (await conversation.outcome()).text == "Done."
    assert second.reason == "invalid_edit"
    assert await told(conversation) == [(one.reason, one.why) for one in (first, second)]


async def test_a_question_and_a_tool_that_runs_outside_are_told_apart(client: Client, scripted: Scripted) -> None:
    @tool(runs_on="client")
    def look() -> str: ...

    script = [[call("ask_user", {"question": "Which?"}, id="a"), call("look", id="b")], "Done."]
    agent = agent_on(scripted(script), tools=[ask_user, look])
    async with hosting(client, agent):
        conversation = await client.start(agent, "Go")
        await waiting(conversation, calls=2)
        shown = (await conversation.status()).waiting
        await conversation.answer("a", "this")
        await conversation.answer("b", "that")
        assert (await conversation.outcome()).text == "Done."
    assert [(one.reason, one.why) for one in shown] == [
        ("asks_user", "Which?"),
        ("runs_outside", "look runs outside of everturn: send its result as the answer"),
    ]
    assert await told(conversation) == [(one.reason, one.why) for one in shown]


async def test_the_reason_goes_along_to_the_next_run(client: Client, scripted: Scripted, bounds: Bounds) -> None:
    bounds(updates=2)

    @tool(effect="once", timeout=timedelta(seconds=0.2))
    async def pay(cents: int) -> str:
        await asyncio.sleep(60)
        return "paid"

    agent = agent_on(scripted([call("pay", {"cents": 5}, id="a"), "Done."]), tools=[pay])
    async with hosting(client, agent, drain_timeout=timedelta(0)):
        conversation = await client.start(agent, "Pay", keep_open=timedelta(minutes=1))
        before = await asked(conversation)
        await move_on(conversation)
        after = await asked(conversation)
        assert after == before
        assert after.reason == "outcome_unknown"
        run = await conversation.latest_run()
        async for event in conversation.events(f"{run}/0"):  # as a page does that is opened now
            if isinstance(event, events.ApprovalRequested):
                assert (event.reason, event.why) == (after.reason, after.why)
                break
        await conversation.close()
        await conversation.outcome()
