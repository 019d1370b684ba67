"""What comes in at the worst moment, or out of all bounds: nothing stands still for ever, and nothing runs for ever."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from temporalio.client import WorkflowUpdateFailedError

from everturn import Agent, Approvals, Client, Conversation, Limits, Model, Patience, names, tool
from everturn.activities.retry_delays import retry_delay
from everturn.errors import InvalidAgent, InvalidModel, Refused, Stalled
from everturn.events import Decided, MessageReceived, Switched
from everturn.records import Decision, ToolCall
from everturn.sizes import MAX_INPUT_BYTES
from everturn.testing import ScriptedModel, call, fail
from tests.support.agents import agent_on, hosting
from tests.support.operators import signal
from tests.support.scripts import ONE
from tests.support.side_by_side import side_by_side
from tests.support.tools import refund
from tests.support.transcripts import results_of
from tests.support.waiting import WAIT_SECONDS, eventually, reaches, says_why, waiting

Scripted = Callable[..., ScriptedModel]

DECISIONS: dict[str, dict[str, Any]] = {
    names.APPROVE: {"call_id": "a"},
    names.DENY: {"call_id": "*"},
    names.ANSWER: {"call_id": "a", "content": "done"},
    names.CLOSE: {},
}


@pytest.mark.long
async def test_a_turn_is_cancelled_in_the_same_step_as_somebody_decides(client: Client, scripted: Scripted) -> None:
    agent = agent_on(scripted([ONE[0], "Ready again."]), tools=[refund])
    cases = {
        f"{decision}, cancelled {when}": (decision, when) for decision in DECISIONS for when in ("before", "after")
    }

    async def begun(_: Any) -> Conversation:
        conversation = await client.start(agent, "Go", keep_open=timedelta(minutes=1))
        await waiting(conversation)
        return conversation

    async with hosting(client, agent):
        conversations = await side_by_side(begun, cases)
    for case, (decision, when) in cases.items():
        both: list[tuple[str, dict[str, Any]]] = [(names.CANCEL_TURN, {}), (decision, DECISIONS[decision])]
        for name, payload in both if when == "before" else reversed(both):
            await signal(conversations[case], name, payload)
        if decision != names.CLOSE:
            await conversations[case].send("Again")

    async def ends(case: str) -> str:
        conversation, (decision, _) = conversations[case], cases[case]
        if decision != names.CLOSE:
            assert await conversation.reply() == "Ready again."
            await conversation.close()
        await conversation.outcome()
        (result,) = results_of(await conversation.transcript())
        return result.text

    async with hosting(client, agent):
        texts = await side_by_side(ends, {case: case for case in cases})
    ends_of = {case: text for case, text in texts.items() if "cut short" not in text and "closed" not in text}
    assert set(ends_of.values()) <= {"done", "5 back for 81"}, ends_of


LONG = "x" * (MAX_INPUT_BYTES + 1)

REFUSED: list[tuple[str, dict[str, Any]]] = [
    (names.APPROVE, {"call_id": "*", "arguments": {"order": "81", "cents": 1}}),
    (names.APPROVE, {"call_id": "*", "expected": {"cents": 1}}),
    (names.APPROVE, {"call_id": "a", "note": LONG}),
    (names.DENY, {"call_id": "*", "reason": LONG}),
    (names.ANSWER, {"call_id": "a", "content": LONG}),
    (names.MESSAGE, {"text": LONG}),
]


async def test_signals_that_are_refused_change_nothing_and_no_event_tells_them(
    client: Client, scripted: Scripted
) -> None:
    """Readers of the history took these decisions, and told the message: after each of them they said something else
    than the conversation, which the fixture compares after each workflow task."""
    agent = agent_on(scripted([ONE[0], "Done."]), tools=[refund])
    async with hosting(client, agent):
        conversation = await client.start(agent, "Go")
        await waiting(conversation)
        for name, payload in REFUSED:
            await signal(conversation, name, payload)
        for name in ("pause", "pause", "resume", "resume"):
            await signal(conversation, name, {})
        assert await waiting(conversation) == ("a",)
        assert await conversation.approve("a") == ("a",)
        await conversation.outcome()
        events = [event async for event in conversation.events(deltas=False)]
    assert [event.message.text for event in events if isinstance(event, MessageReceived)] == ["Go"]
    assert [(event.verdict, event.by) for event in events if isinstance(event, Decided)] == [("approve", "tester")]
    assert [event.name for event in events if isinstance(event, Switched)] == ["pause", "resume"]


async def test_what_is_sent_before_a_worker_comes_is_taken_in_the_order_in_which_it_was_sent(
    client: Client, scripted: Scripted
) -> None:
    agent = agent_on(scripted(["At last."]))
    orders = {"-".join(order): order for order in (("resume", "pause"), ("pause", "resume", "pause"))}

    async def begun(order: tuple[str, ...]) -> Conversation:
        conversation = await client.start(agent, "Go")
        for name in order:
            await signal(conversation, name, {})
        return conversation

    async def paused(conversation: Conversation) -> None:
        await reaches(conversation, "paused")
        await conversation.resume()
        assert await conversation.reply() == "At last."
        await conversation.outcome()

    conversations = await side_by_side(begun, orders)
    async with hosting(client, agent):
        await side_by_side(paused, conversations)


async def test_no_policy_is_asked_about_the_clock_and_about_closing(client: Client, scripted: Scripted) -> None:
    asked: list[str] = []

    def approvers(call: ToolCall, decision: Decision) -> bool:
        asked.append(decision.by)
        return False

    agent = agent_on(
        scripted([*ONE, *ONE]),
        tools=[refund],
        approvers=approvers,
        approvals=Approvals(expire_after=timedelta(seconds=6)),
    )
    async with hosting(client, agent):
        expiring = await client.start(agent, "Go")
        await waiting(expiring)
        await expiring.approve("a")
        await eventually(lambda: asked == ["tester"])
        await expiring.outcome()  # and that nobody may decide holds up no expiry
        (result,) = results_of(await expiring.transcript())
        assert "Nobody decided" in result.text
        closing = await client.start(agent, "Go")
        await waiting(closing)
        await closing.close()
        await closing.outcome()
    assert asked == ["tester"]


async def test_a_policy_may_do_anything_and_the_call_waits_on(client: Client, scripted: Scripted) -> None:
    def approvers(call: ToolCall, decision: Decision) -> str:
        if decision.note == "cancelled":
            raise asyncio.CancelledError
        return "no" * 1_500_000

    agent = agent_on(scripted(ONE), tools=[refund], approvers=approvers)

    async def doubted(odd: str) -> None:
        conversation = await client.start(agent, "Go")
        await waiting(conversation)
        await conversation.approve("a", note=odd)
        await eventually(lambda: _doubted(conversation))
        await conversation.close()
        await conversation.outcome()

    async with hosting(client, agent):
        await side_by_side(doubted, {"cancelled": "cancelled", "huge": "huge"})


async def test_who_decides_while_another_decision_is_checked_is_told_so(client: Client, scripted: Scripted) -> None:
    asked, boss = asyncio.Event(), asyncio.Event()

    async def approvers(call: ToolCall, decision: Decision) -> bool:
        asked.set()
        await boss.wait()
        return asked.is_set()

    agent = agent_on(scripted(ONE), tools=[refund], approvers=approvers)
    async with hosting(client, agent):
        conversation = await client.start(agent, "Go")
        await waiting(conversation)
        await conversation.approve("a")
        await asyncio.wait_for(asked.wait(), WAIT_SECONDS)
        with pytest.raises(Refused, match="by tester is being checked"):
            await conversation.approve("a")
        asked.clear()  # it does not count
        boss.set()
        await eventually(lambda: _doubted(conversation))
        asked.set()
        await conversation.approve("a")
        await conversation.outcome()
    assert [result.text for result in results_of(await conversation.transcript())] == ["5 back for 81"]


@pytest.mark.long
async def test_a_once_tool_that_its_worker_does_not_have_has_not_run(client: Client, scripted: Scripted) -> None:
    """As in the middle of a deploy. That leaves no doubt: it runs for the first time where it is hosted."""
    model = scripted(ONE)
    async with hosting(client, agent_on(model, tools=[refund])):
        conversation = await client.start("clerk", "Go")
        await waiting(conversation)
    async with hosting(client, agent_on(model)):
        await conversation.approve("a")
        await eventually(lambda: says_why(conversation, "'refund'"))
    gc.collect()  # of the worker's workflows, nothing wakes up any more
    async with hosting(client, agent_on(model, tools=[refund])):
        await conversation.outcome()
    assert [result.text for result in results_of(await conversation.transcript())] == ["5 back for 81"]


async def test_a_call_that_is_cut_short_while_it_runs_leaves_a_doubt(client: Client, scripted: Scripted) -> None:
    begun = asyncio.Event()

    @tool(effect="once")
    async def charge() -> str:
        begun.set()
        await asyncio.sleep(60)
        return "charged"

    model = scripted([[call("charge"), call("refund", {"order_id": "1", "cents": 1})], "Done."])
    agent = agent_on(model, tools=[charge, refund])
    async with hosting(client, agent):
        conversation = await client.start(agent, "Go")
        await waiting(conversation)
        await asyncio.wait_for(begun.wait(), WAIT_SECONDS)
        await conversation.cancel_turn()
        await conversation.outcome()
    running, waited = (result.text for result in results_of(await conversation.transcript()))
    assert running.endswith("It was running: it may or may not have taken effect.")
    assert "may or may not" not in waited


async def _doubted(conversation: Any) -> bool:
    return any("may not decide" in waiting_call.why for waiting_call in (await conversation.status()).waiting)


async def test_expected_arguments_go_with_one_call(client: Client, scripted: Scripted) -> None:
    agent = agent_on(scripted(ONE), tools=[refund])
    async with hosting(client, agent):
        conversation = await client.start(agent, "Go")
        await waiting(conversation)
        with pytest.raises(Refused, match="Expected arguments are for one call"):
            await conversation.approve("*", expected={"cents": 5})
        await conversation.close()


async def test_a_model_name_that_is_none_stalls_and_says_so(client: Client, scripted: Scripted) -> None:
    agent = agent_on(scripted([fail(401), "Done."]))
    async with hosting(client, agent):
        with pytest.raises(InvalidModel, match="There is no provider 'nonsense'"):
            await client.start(agent, "Go", model="nonsense:x")
        # Clients of other languages have no list of providers.
        started = {"agent": agent.name, "message": "Go", "model": "nonsense:x"}
        handle = await client.temporal.start_workflow(
            names.CONVERSATION, started, id=f"nonsense-{uuid4().hex[:6]}", task_queue=client.task_queue
        )
        conversation = client.conversation(handle.id)
        with pytest.raises(Stalled, match="nonsense"):
            await conversation.reply()
        with pytest.raises(InvalidModel, match="'nonsense' is not a model"):
            await conversation.resume(model="nonsense")
        with pytest.raises(InvalidModel, match="Did you mean 'scripted'"):
            await conversation.resume(model="skripted:demo")
        with pytest.raises(WorkflowUpdateFailedError) as refused:
            await handle.execute_update(names.RESUME, {"model": "nonsense"})
        assert "There is no model 'nonsense'" in str(refused.value.cause)
        await conversation.close()
        await conversation.outcome()


async def test_closed_twice_while_it_is_stalled_it_ends(client: Client, scripted: Scripted) -> None:
    model = scripted([fail(401)] * 5)
    agent = agent_on(model)
    async with hosting(client, agent):
        conversation = await client.start(agent, "Go")
        with pytest.raises(Stalled):
            await conversation.reply()
    for _ in range(2):
        await signal(conversation, names.CLOSE, {})
    async with hosting(client, agent):
        outcome = await conversation.outcome()
    assert (outcome.status, outcome.reason) == ("cancelled", "the conversation was closed before it was answered")
    assert len(model.requests) == 1


async def test_who_resumes_gets_the_whole_line_of_fallbacks_again(client: Client, scripted: Scripted) -> None:
    first, second = scripted([fail(401), "Well again."], order="arrival"), scripted([fail(400)])
    agent = agent_on(first, fallback_models=[Model("scripted:second", base_url=second.base_url)])
    async with hosting(client, agent):
        conversation = await client.start(agent, "Go")
        with pytest.raises(Stalled):
            await conversation.reply()
        await conversation.resume()
        assert await conversation.reply() == "Well again."
    assert (len(first.requests), len(second.requests)) == (2, 1)


async def test_no_more_tools_run_than_the_limit_says(client: Client, scripted: Scripted) -> None:
    limits = (0, 1, 3)
    ran: dict[int, list[int]] = {limit: [] for limit in limits}

    @tool
    def count(limit: int, number: int) -> str:
        ran[limit].append(number)
        return "counted"

    agents = {
        limit: agent_on(
            scripted([[call("count", {"limit": limit, "number": number}) for number in range(4)], "Done."]),
            name=f"clerk{limit}",
            tools=[count],
            limits=Limits(max_tool_calls=limit),
        )
        for limit in limits
    }

    async def counted(limit: int) -> list[bool]:
        conversation = await client.start(agents[limit], "Go")
        assert (await conversation.outcome()).text == "Done."
        return [result.text == "counted" for result in results_of(await conversation.transcript())]

    async with hosting(client, *agents.values()):
        results = await side_by_side(counted, {str(limit): limit for limit in limits})
    assert {limit: sorted(numbers) for limit, numbers in ran.items()} == {limit: list(range(limit)) for limit in limits}
    assert results == {str(limit): [number < limit for number in range(4)] for limit in limits}


async def test_an_endless_reason_and_an_endless_wait_are_bounded(client: Client, scripted: Scripted) -> None:
    agent = agent_on(scripted(ONE), tools=[refund], approvals=Approvals(expire_after=timedelta.max))
    async with hosting(client, agent):
        conversation = await client.start(agent, "Go", keep_open=timedelta.max)
        await waiting(conversation)
        await signal(conversation, names.CANCEL_TURN, {"reason": "x" * 1_900_000})
        await reaches(conversation, "idle")
        await conversation.close()
        outcome = await conversation.outcome()
    assert outcome.status == "cancelled"
    assert len(outcome.reason or "") < 5_000


async def test_a_local_tool_that_is_always_late_runs_out_of_patience(client: Client, scripted: Scripted) -> None:
    tries: list[int] = []

    @tool(effect="read", local=True, timeout=timedelta(seconds=0.5), patience=timedelta(seconds=3))
    async def slow() -> str:
        tries.append(1)
        await asyncio.sleep(60)
        return "never"

    async with hosting(client, agent := agent_on(scripted([call("slow"), "So be it."]), tools=[slow])):
        conversation = await client.start(agent, "Go")
        assert await conversation.reply() == "So be it."
    (result,) = results_of(await conversation.transcript())
    assert (result.is_error, result.text) == (True, "slow did not finish within 0:00:00.500000.")
    assert 2 <= len(tries) <= 6


def test_no_provider_can_ask_for_more_than_time_holds() -> None:
    for seconds in (1e300, float("inf"), 99_999_999_999_999.0):
        assert retry_delay(seconds, attempt=1, longest=Patience().max_retry_delay) == Patience().max_retry_delay


def test_models_of_one_name_are_refused() -> None:
    model = Model("openai-chat:m", base_url="http://127.0.0.1:1/v1")
    with pytest.raises(InvalidAgent, match="more than once"):
        Agent("clerk", model=model, fallback_models=[model])
