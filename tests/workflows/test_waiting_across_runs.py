"""Calls wait for people for as long as it takes, however often those try: the run goes on as new, and nobody can
tell."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from typing import Any

import pytest
from temporalio.worker import Replayer

from everturn import Client, Conversation, ToolCall, ToolContext, events, names, tool
from everturn.agent_settings import Approvals
from everturn.errors import Refused
from everturn.exporting.reading import read_conversation
from everturn.records import Decision
from everturn.storage.data_converter import data_converter
from everturn.testing import ScriptedModel, call
from everturn.web.earlier_messages import EarlierMessages, latest_run
from everturn.worker.deploy_check import find_conflicts
from everturn.workflows.conversation import ConversationWorkflow
from tests.support.agents import agent_on, hosting
from tests.support.bounds import Bounds
from tests.support.histories import runs_of
from tests.support.operators import move_on, signal
from tests.support.scripts import ONE
from tests.support.tools import refund
from tests.support.transcripts import results_of
from tests.support.waiting import WAIT_SECONDS, busy_in, eventually, reaches, waiting

Scripted = Callable[..., ScriptedModel]


@pytest.fixture(autouse=True)
def few_updates(bounds: Bounds) -> None:
    """A run is long after two updates."""
    bounds(updates=2)


@pytest.fixture
async def followed(client: Client) -> AsyncIterator[Callable[[Conversation], Any]]:
    """Follows conversations from the beginning. Afterwards, every run of theirs is replayed, and what was told is
    held against what is told to those who read it all later."""
    heard: list[tuple[Conversation, asyncio.Task[list[events.Event]]]] = []

    async def listen(conversation: Conversation) -> list[events.Event]:
        return [event async for event in conversation.events(deltas=False)]

    def follow(conversation: Conversation) -> None:
        heard.append((conversation, asyncio.create_task(listen(conversation))))

    yield follow
    replayer = Replayer(
        workflows=[ConversationWorkflow], data_converter=data_converter, build_id="replay"
    )  # the SDK's own is a hash of all modules, read from the disk
    for conversation, told in heard:
        at_once = await asyncio.wait_for(told, WAIT_SECONDS)
        assert at_once == await listen(conversation)
        asks = [e for e in at_once if isinstance(e, events.ApprovalRequested | events.AnswerRequested)]
        lost = [e for e in at_once if isinstance(e, events.ToolLost)]
        asked, refused = {e.call.call_id for e in asks}, [e for e in asks if e.reason == "not_allowed"]
        again = [e for e in lost if e.call_id in asked and _asked_first(e, at_once)]
        assert len(asks) == len(asked) + len(again) + len(refused)
        ended = [e.result.call_id for e in at_once if isinstance(e, events.ToolFinished)]
        assert sorted(ended) == sorted({e.call.call_id for e in at_once if isinstance(e, events.ToolCalled)})
        for run in await runs_of(client, conversation):
            handle = client.temporal.get_workflow_handle(conversation.id, run_id=run)
            await replayer.replay_workflow(await handle.fetch_history())


def _asked_first(lost: events.ToolLost, told: list[events.Event]) -> bool:
    """Whether it was asked about before it was lost: then it is asked about once more."""
    before = told[: told.index(lost)]
    return any(isinstance(e, events.ApprovalRequested) and e.call.call_id == lost.call_id for e in before)


@pytest.mark.long
async def test_edits_that_do_not_fit_can_be_tried_for_as_long_as_it_takes(
    client: Client, scripted: Scripted, cached_conversations: int, followed: Callable[[Conversation], None]
) -> None:
    keys: list[str] = []

    @tool(name="refund", needs_approval=True, effect="once")
    def give_back(context: ToolContext, order_id: str, cents: int) -> str:
        keys.append(context.idempotency_key)
        return f"{cents} back for {order_id}"

    agent = agent_on(scripted(ONE), tools=[give_back])
    async with hosting(client, agent, cached_conversations=cached_conversations):
        conversation = await client.start(agent, "Refund 81")
        followed(conversation)
        await waiting(conversation)
        first = (await conversation.status()).waiting[0].since
        for number in range(5):
            await conversation.approve("a", {"cents": f"{number} cents"})
            await waiting(conversation)
        (shown,) = (await conversation.status()).waiting
        assert (shown.since, "do not fit" in shown.why) == (first, True)
        await conversation.approve("a")
        assert (await conversation.outcome()).text == "Done."
    runs = await runs_of(client, conversation)
    assert len(runs) >= 3
    (result,) = results_of(await conversation.transcript())
    assert result.text == "5 back for 81"
    (key,) = keys
    assert runs[0] in key


@pytest.mark.long
async def test_the_edits_of_a_turn_are_counted_through_its_runs(
    client: Client, scripted: Scripted, bounds: Bounds
) -> None:
    bounds(refused_edits=5)
    agent = agent_on(scripted(ONE), tools=[refund])
    async with hosting(client, agent):
        conversation = await client.start(agent, "Refund 81")
        for number in range(5):
            await waiting(conversation)
            await conversation.approve("a", {"cents": f"{number} cents"})
        await waiting(conversation)
        with pytest.raises(Refused, match="5 edits did not fit in this turn"):
            await conversation.approve("a", {"cents": 4})
        await conversation.deny("a")
        assert (await conversation.outcome()).text == "Done."


@pytest.mark.long
async def test_people_who_may_not_decide_can_try_for_as_long_as_it_takes(
    client: Client, scripted: Scripted, cached_conversations: int, followed: Callable[[Conversation], None]
) -> None:
    def approvers(call: ToolCall, decision: Decision) -> bool:
        return decision.note == "please"

    agent = agent_on(scripted(ONE), tools=[refund], approvers=approvers)
    async with hosting(client, agent, cached_conversations=cached_conversations):
        conversation = await client.start(agent, "Refund 81")
        followed(conversation)
        for _ in range(5):
            await waiting(conversation)
            await conversation.approve("a")
        await waiting(conversation)
        assert "(tester may not decide: " in (await conversation.status()).waiting[0].why
        await conversation.approve("a", note="please")
        assert (await conversation.outcome()).text == "Done."
    assert len(await runs_of(client, conversation)) >= 3
    (result,) = results_of(await conversation.transcript())
    assert result.decision is not None
    assert result.decision.note == "please"
    assert result.text.endswith("5 back for 81")


@pytest.mark.long
async def test_what_a_reply_has_come_to_goes_along_to_the_next_run(
    client: Client, scripted: Scripted, cached_conversations: int, followed: Callable[[Conversation], None]
) -> None:
    """A result from before, a denial, a doubt, a question outside, and a worker without memory."""
    hang = asyncio.Event()
    paid: list[tuple[str, bool]] = []

    @tool
    def read_page() -> str:
        return "page " * 2000

    @tool(effect="once", timeout=timedelta(seconds=1))
    async def pay(context: ToolContext) -> str:
        paid.append((context.idempotency_key, hang.is_set()))
        await hang.wait()
        return "paid"

    @tool(runs_on="client")
    def look() -> str: ...

    calls = [
        call("refund", {"order_id": "81", "cents": 5}, id="denied"),
        call("look", id="outside"),
        call("read_page", id="page"),
        call("no_such_tool", id="refused"),
        call("pay", id="doubt"),
        call("refund", {"order_id": "82", "cents": 6}, id="open"),
    ]
    model = scripted([calls, "Done."])
    agent = agent_on(model, tools=[refund, read_page, pay, look])
    async with hosting(client, agent, cached_conversations=cached_conversations) as worker:
        conversation = await client.start(agent, "Do it")
        followed(conversation)
        await waiting(conversation, calls=4)
        await conversation.deny("denied", reason="no")
        cursor = await conversation.cursor()
        before = (await conversation.status()).waiting
        for _ in range(2):
            await move_on(conversation)
        assert {waiting_call.call_id: waiting_call for waiting_call in (await conversation.status()).waiting} == {
            one.call_id: one for one in before
        }
        assert (await conversation.status()).state == "awaiting_approval"
        with pytest.raises(Refused, match="'denied' was already decided: deny by tester"):
            await conversation.approve("denied")
        worker.prefixes.clear()
        hang.set()
        await conversation.approve("doubt")
        await conversation.answer("outside", "rain")
        await conversation.approve("open", {"order_id": "82", "cents": 7})
        assert (await conversation.outcome()).text == "Done."
    results = results_of(await conversation.transcript())
    assert [result.call_id for result in results] == ["denied", "outside", "page", "refused", "doubt", "open"]
    assert [result.text for result in results][1:3] == ["rain", "page " * 2000]
    assert [result.text.rpartition("]\n")[2] for result in results][4:] == ["paid", "7 back for 82"]
    assert [key for key, _ in paid] == [paid[0][0]] * 2, "it is the same call, which a person let run again"
    told = [message["content"] for message in model.requests[-1]["messages"] if message["role"] == "tool"]
    assert told[2] == "page " * 2000
    since = [event.kind async for event in conversation.events(cursor)]
    assert since.count("tool_finished") == 3 + 2, "of the denial and the refusal, it was not told before"
    assert "approval_requested" not in since
    exported = await read_conversation(client, conversation.id)
    assert [message.role for message in exported.messages] == ["user", "assistant", "tool", "assistant"]
    assert [turn.turn for turn in exported.turns] == [1, 2]
    assert exported.calls.keys() == {"page", "doubt", "open"}
    branch = await conversation.fork(at_turn=1)
    assert results_of(await branch.transcript())[: len(results)] == results


@pytest.mark.long
async def test_a_call_expires_when_it_would_have_in_the_run_that_asked(
    client: Client, scripted: Scripted, cached_conversations: int, followed: Callable[[Conversation], None]
) -> None:
    approvals = Approvals(expire_after=timedelta(seconds=10), remind_before=timedelta(seconds=5))
    agent = agent_on(scripted(ONE), tools=[refund], approvals=approvals)
    async with hosting(client, agent, cached_conversations=cached_conversations):
        conversation = await client.start(agent, "Refund 81")
        followed(conversation)
        await waiting(conversation)
        before = (await conversation.status()).waiting
        assert before[0].expires_at
        for _ in range(2):
            await move_on(conversation)
        assert (await conversation.status()).waiting == before
        assert (await conversation.outcome()).text == "Done."
    (result,) = results_of(await conversation.transcript())
    assert result.decision is not None
    assert (result.decision.by, result.decision.note) == ("the clock", "Nobody decided within 0:00:10.")
    assert [event.kind async for event in conversation.events()].count("approval_reminder") == 1


@pytest.mark.parametrize("by_signal", [False, True], ids=["update", "signal"])
@pytest.mark.parametrize("name", ["approve", "deny", "cancel_turn", "close"])
async def test_what_is_sent_before_the_next_run_has_begun_is_taken_by_it(
    client: Client,
    scripted: Scripted,
    cached_conversations: int,
    followed: Callable[[Conversation], None],
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    by_signal: bool,
) -> None:
    agent = agent_on(scripted(ONE), tools=[refund])
    payload = {"call_id": "a"} if name in ("approve", "deny") else {}
    async with hosting(client, agent, cached_conversations=cached_conversations):
        conversation = await client.start(agent, "Refund 81", keep_open=timedelta(minutes=1))
        followed(conversation)
        await waiting(conversation)
        busy = busy_in(monkeypatch, ConversationWorkflow, "_next_input")
        moving = asyncio.create_task(move_on(conversation))
        await eventually(busy.is_set)
    await moving  # the worker left with that, and none has begun with the next run
    if by_signal:
        await signal(conversation, name, payload)
    sent = None if by_signal else asyncio.create_task(getattr(conversation, name)(*payload.values()))
    await asyncio.sleep(0)
    async with hosting(client, agent, cached_conversations=cached_conversations):
        if sent:
            await sent
        if name in ("approve", "deny"):
            assert await conversation.reply() == "Done."
        if name == "cancel_turn":
            await conversation.send("And?")
            assert await conversation.reply() == "Done."
        if name != "close":
            await conversation.close()
        assert (await conversation.outcome()).status == "completed"
    (result,) = results_of(await conversation.transcript())
    said = {
        "approve": "5 back for 81",
        "deny": "This call was denied",
        "cancel_turn": "This call was cut short: the turn was cancelled",
        "close": "This call was denied",
    }
    assert result.text.startswith(said[name])


async def test_a_rule_before_the_next_run_has_begun_holds_back_what_a_client_has(
    client: Client, scripted: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    @tool(runs_on="client")
    def refund(order_id: str, cents: int) -> str:
        """Refunds an order."""
        return f"{cents} back for {order_id}"

    agent = agent_on(scripted(ONE), tools=[refund])
    async with hosting(client, agent, cached_conversations=0):
        conversation = await client.start(agent, "Refund 81")
        await waiting(conversation)
        busy = busy_in(monkeypatch, ConversationWorkflow, "_next_input")
        moving = asyncio.create_task(move_on(conversation))
        await eventually(busy.is_set)
    await moving
    await signal(conversation, names.SET_POLICY, {"rules": [{"tool": "refund", "then": "ask"}]})
    async with hosting(client, agent, cached_conversations=0):
        await reaches(conversation, "awaiting_approval")
        await conversation.approve("a")
        await reaches(conversation, "awaiting_answer")
        assert [*(await conversation.by_history()).state.pending] == ["a"]
        assert await conversation.run_tools([refund]) == "Done."
    (result,) = results_of(await conversation.transcript())
    assert result.text == "5 back for 81"


@pytest.mark.parametrize("name", ["cancel_turn", "close"])
async def test_a_run_that_takes_up_a_reply_is_steered_as_the_one_before(
    client: Client, scripted: Scripted, followed: Callable[[Conversation], None], name: str
) -> None:
    agent = agent_on(scripted(ONE), tools=[refund])
    async with hosting(client, agent):
        conversation = await client.start(agent, "Refund 81", keep_open=timedelta(minutes=1))
        followed(conversation)
        await waiting(conversation)
        await conversation.send("And 82?")
        await move_on(conversation)
        await getattr(conversation, name)()
        if name == "cancel_turn":  # what was said meanwhile is answered next
            assert await conversation.reply() == "Done."
            await conversation.close()
        await conversation.outcome()
    said = [message.text for message in await conversation.transcript() if message.role == "user"]
    assert said == ["Refund 81", "And 82?"]


async def test_a_deploy_is_checked_against_calls_that_were_planned_in_an_earlier_run(
    client: Client, scripted: Scripted
) -> None:
    agent, without = agent_on(scripted(ONE), tools=[refund]), agent_on(scripted(ONE))

    async def found(deploy: Any) -> list[str]:
        return [conflict.problem async for conflict in find_conflicts(client, [deploy])]

    async with hosting(client, agent):
        conversation = await client.start(agent, "Refund 81")
        await waiting(conversation)
        await move_on(conversation)
        assert await eventually(lambda: found(without)) == [
            "call 'a' is for the tool refund, which agent 'clerk' no longer has"
        ]
        assert await found(agent) == []
        run = await latest_run(client, conversation.id)
        assert len(await EarlierMessages(client).messages_before(conversation.id, run.run_id)) == run.earlier == 2
        async for event in conversation.events(f"{run.run_id}/0"):  # as a page does that is opened now
            if isinstance(event, events.ApprovalRequested):
                assert event.call.call_id == "a"
                break
        await client.temporal.get_workflow_handle(conversation.id).terminate(reason="enough")
    (result,) = results_of(await conversation.transcript())
    assert "it was terminated: enough" in result.text


async def test_what_is_too_large_to_be_handed_on_waits_where_it_is(
    client: Client, scripted: Scripted, bounds: Bounds
) -> None:
    bounds(open_bytes=1_000)
    script = [call("refund", {"order_id": "8" * 1_000, "cents": 5}, id="a"), "Done."]
    agent = agent_on(scripted(script), tools=[refund])
    async with hosting(client, agent):
        conversation = await client.start(agent, "Refund it")
        await waiting(conversation)
        for _ in range(3):
            await conversation.pause()
            await conversation.resume()
        assert len(await runs_of(client, conversation)) == 1
        await conversation.approve("a")
        assert (await conversation.outcome()).text == "Done."
