"""What events, states and exports say of commands, stalls and messages is what the conversation made of them: found by
somebody who looked for the difference. The fixture compares them after each workflow task, too."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from temporalio.api.common.v1 import Payload, Payloads, WorkflowExecution
from temporalio.api.workflowservice.v1 import SignalWorkflowExecutionRequest
from temporalio.client import WorkflowHandle
from temporalio.exceptions import ApplicationError

from everturn import Client, Conversation, names, tool
from everturn.errors import EverturnError
from everturn.events import Decided, Event, MessageReceived, Stalled, Switched
from everturn.storage.data_converter import NOT_HAD
from everturn.testing import ScriptedModel, call, slow
from everturn.workflows.message_dispatch import Handlers
from tests.support.agents import agent_on, hosting
from tests.support.bounds import Bounds
from tests.support.operators import goes_on, running, signal
from tests.support.waiting import busy_in, eventually, reaches, waiting

Scripted = Callable[..., ScriptedModel]

OPEN = timedelta(minutes=5)

HANDED: dict[str, Any] = {
    "agent": "clerk",
    "carry": {"earlier": {"kind": "hologram"}, "inbox": [{"role": "user", "parts": []}]},
}
"""A carry-over of code that nobody has."""


@tool(needs_approval=True)
def refund(cents: int) -> str:
    return f"{cents} back"


async def lost(client: Client, conversation: Conversation, name: str = names.MESSAGE) -> None:
    """A signal that no worker can read."""
    await client.temporal.workflow_service.signal_workflow_execution(
        SignalWorkflowExecutionRequest(
            namespace=client.temporal.namespace,
            workflow_execution=WorkflowExecution(workflow_id=conversation.id),
            signal_name=name,
            request_id=uuid4().hex,
            input=Payloads(payloads=[Payload(metadata={"encoding": NOT_HAD}, data=b"gone")]),
        ),
        retry=True,
    )


async def events_of(conversation: Conversation) -> list[Event]:
    return [event async for event in conversation.events(deltas=False)]


def in_short(events: list[Event]) -> list[str]:
    """The stalls and what ended them."""
    return [event.name if isinstance(event, Switched) else event.kind for event in events if _held(event)]


def _held(event: Event) -> bool:
    return isinstance(event, Stalled | Switched)


async def test_a_rule_with_an_endless_number_is_refused(client: Client, scripted: Scripted) -> None:
    """JSON has none: the next run could not read its rules, and stalled for good."""
    agent = agent_on(scripted([call("refund", {"cents": 5}, id="a"), "Done."]), tools=[refund])
    endless: list[dict[str, Any]] = [{"at_most": math.inf}, {"above": math.nan}, {"equals": -math.inf}]
    async with hosting(client, agent):
        conversation = await client.start(agent, "Go")
        await waiting(conversation)
        for where in endless:
            with pytest.raises((EverturnError, ValueError)):
                await conversation.approve("a", always={"cents": where})
            rule = {"tool": "refund", "then": "approve", "where": {"cents": where}}
            await signal(conversation, "set_policy", {"rules": [rule]})
            assert (await conversation.status()).policy == (), where
        await conversation.deny("a")
        await conversation.outcome()


MORE: list[tuple[str, dict[str, Any]]] = [
    ("approve", {"call_id": "a", "reason": {"x": 1}}),
    ("deny", {"call_id": "a", "note": 5, "arguments": {"cents": 1}}),
    ("answer", {"call_id": "a", "content": "x", "note": [1]}),
    ("pause", {"note": {"x": 1}}),
    ("set_policy", {"rules": [], "reason": 5}),
]


async def test_what_has_keys_that_mean_nothing_is_not_taken_and_no_event(client: Client, scripted: Scripted) -> None:
    """A key may be misspelt, and what is left would mean something else. (Once, events() raised for good.)"""
    agent = agent_on(scripted([call("refund", {"cents": 5}, id="a"), "Done."]), tools=[refund])
    async with hosting(client, agent):
        conversation = await client.start(agent, "Go")
        await waiting(conversation)
        for name, more in MORE:
            await signal(conversation, name, more)
            status = await conversation.status()
            assert (status.state, len(status.waiting)) == ("awaiting_approval", 1), name
        await conversation.deny("a", "really")
        await conversation.outcome()
        [event] = [event for event in await events_of(conversation) if isinstance(event, Decided | Switched)]
    assert isinstance(event, Decided)
    assert event.note == "really"


async def test_what_is_sent_to_a_run_that_cannot_read_its_start_goes_on_to_the_next(
    client: Client, scripted: Scripted
) -> None:
    temporal, name = client.temporal, f"handed-{client.task_queue}"
    handle: WorkflowHandle[Any, Any] = await temporal.start_workflow(
        "Conversation", HANDED, id=name, task_queue=client.task_queue
    )
    conversation, rule = client.conversation(name), {"tool": "pay", "then": "deny"}
    first = await conversation.latest_run()
    async with hosting(client, agent_on(scripted(["Hello."]))):
        await reaches(conversation, "stalled")
        said = {"text": "Hi", "message_id": "once"}
        assert await handle.execute_update("message", said) == {"taken": True}
        await handle.execute_update("set_policy", {"rules": [rule]})
        await handle.execute_update("pause", {})
        await handle.execute_update("resume", {"only_stalled": True})
        await goes_on(conversation, first)
        await reaches(conversation, "stalled")
        history = await handle.fetch_history()
        (start,) = await temporal.data_converter.decode(
            history.events[0].workflow_execution_started_event_attributes.input.payloads, [dict]
        )
        await conversation.close()
        await conversation.outcome()
    carry = start["carry"]
    assert (carry["message_ids"], carry["paused"], carry["policy"][0]["tool"]) == (["once"], True, "pay")
    assert [part["text"] for message in carry["inbox"] for part in message["parts"]] == ["Hi"]


async def test_what_is_said_after_such_a_run_was_closed_goes_on_too(client: Client, scripted: Scripted) -> None:
    temporal, name = client.temporal, f"closed-{client.task_queue}"
    handle = await temporal.start_workflow("Conversation", HANDED, id=name, task_queue=client.task_queue)
    await handle.signal("close", {})
    await handle.signal("message", {"text": "late"})
    conversation = client.conversation(name)
    first = await conversation.latest_run()
    async with hosting(client, agent_on(scripted(["Hello."]))):
        await goes_on(conversation, first)
        await reaches(conversation, "stalled")
        await conversation.close()
        await conversation.outcome()


async def test_each_signal_that_cannot_be_read_is_named(client: Client, scripted: Scripted) -> None:
    agent = agent_on(scripted(["Hello."]))
    conversation = await client.start(agent, "Go", keep_open=OPEN)
    await lost(client, conversation, "approve")
    await lost(client, conversation, "set_policy")
    async with hosting(client, agent):
        cause = (await reaches(conversation, "stalled")).cause
        assert cause.startswith("2 signals can't be read ('approve', 'set_policy'): ")
        await conversation.resume()
        assert await conversation.reply() == "Hello."
        await conversation.close()
        await conversation.outcome()
    stalled = next(event for event in await events_of(conversation) if isinstance(event, Stalled))
    assert stalled.cause.startswith("2 signals can't be read ('approve', 'set_policy'): ")


async def test_a_message_waits_while_a_signal_could_not_be_read(client: Client, scripted: Scripted) -> None:
    """By the history, its answer had begun, and so a refused cancel_turn was an event."""
    agent = agent_on(scripted(["Hello."]))
    conversation = await client.start(agent, "Go", keep_open=OPEN)
    await lost(client, conversation)
    async with hosting(client, agent):
        await reaches(conversation, "stalled")
        await signal(conversation, "cancel_turn", {})
        await signal(conversation, "resume", {})
        await reaches(conversation, "idle")
        await conversation.close()
        await conversation.outcome()
    assert in_short(await events_of(conversation)) == ["stalled", "resume", "close"]


@pytest.mark.parametrize(
    ("sent", "told"),
    [
        (["cancel_turn"], ["cancel_turn", "close"]),
        (["resume"], ["stalled", "resume", "close"]),
        (["lost", "cancel_turn"], ["cancel_turn", "stalled", "close"]),
        (["resume", "resume", "lost"], ["stalled", "resume", "stalled", "close"]),
    ],
    ids="-".join,
)
async def test_what_comes_with_a_failure_is_told_in_the_order_of_what_it_does(
    client: Client, scripted: Scripted, monkeypatch: pytest.MonkeyPatch, sent: list[str], told: list[str]
) -> None:
    never = threading.Event()
    agent = agent_on(scripted([slow("Hello.", until=never)] * 4))
    async with hosting(client, agent, drain_timeout=timedelta(0)):
        conversation = await client.start(agent, "Go", keep_open=OPEN)
        turn = client.temporal.get_async_activity_handle(
            workflow_id=conversation.id, run_id=None, activity_id=await running(client, conversation, "call_model")
        )
        busy = busy_in(monkeypatch, Handlers, "take_signal", when=lambda name, *_: name == "withdraw", seconds=2.0)
        await signal(conversation, "withdraw", {})
        await eventually(busy.is_set)  # all of this comes in one workflow task
        for one in sent:
            await (lost(client, conversation) if one == "lost" else signal(conversation, one, {}))
        await turn.fail(ApplicationError("broken", non_retryable=True))
        if sent[-1] == "cancel_turn" and "lost" not in sent:
            await reaches(conversation, "idle")
        elif sent == ["resume"]:
            await running(client, conversation, "call_model")
        else:
            await reaches(conversation, "stalled")
        never.set()
        await conversation.close()
        await conversation.outcome()
    assert in_short(await events_of(conversation)) == told


@pytest.mark.parametrize("asks", [False, True], ids=["idle", "a call waits"])
async def test_a_resume_is_early_or_not_as_things_are_when_it_comes(
    client: Client, scripted: Scripted, monkeypatch: pytest.MonkeyPatch, *, asks: bool
) -> None:
    replies = [call("refund", {"cents": 5}, id="a"), "Done."] if asks else ["Hello.", "Again."]
    agent = agent_on(scripted(replies), tools=[refund])
    async with hosting(client, agent):
        conversation = await client.start(agent, "Go", keep_open=OPEN)
        await (waiting(conversation) if asks else conversation.reply())
        busy = busy_in(monkeypatch, Handlers, "take_signal", when=lambda name, *_: name == "withdraw", seconds=2.0)
        await signal(conversation, "withdraw", {})
        await eventually(busy.is_set)
        await signal(conversation, "resume", {})
        await lost(client, conversation)
        await signal(conversation, *(("deny", {"call_id": "a"}) if asks else ("message", {"text": "More"})))
        await reaches(conversation, "stalled")
        await conversation.close()
        await conversation.outcome()
    assert in_short(await events_of(conversation)) == ["stalled", "close"]


async def test_messages_after_a_close_are_told_if_they_are_taken(client: Client, scripted: Scripted) -> None:
    agent = agent_on(scripted(["1", "2", "3"]))
    conversation = await client.start(agent, "Go")
    await signal(conversation, "close", {})
    for number in range(8):
        await signal(conversation, "message", {"text": f"m{number}" + "x" * 100_000})
    async with hosting(client, agent):
        await reaches(conversation, "done")
        said = [message.text[:2] for message in await conversation.transcript() if message.role == "user"]
        told = [event.message.text[:2] for event in await events_of(conversation) if isinstance(event, MessageReceived)]
    assert told == said
    assert len(said) < 9


async def test_an_id_that_is_forgotten_is_new_for_events_too(
    client: Client, scripted: Scripted, bounds: Bounds
) -> None:
    bounds(remembered_ids=2)
    agent = agent_on(scripted(list("12345")))
    async with hosting(client, agent):
        conversation = await client.start(agent, "Go", keep_open=OPEN)
        await conversation.reply()
        for letter in "abca":
            await signal(conversation, "message", {"text": letter, "message_id": letter})
            await conversation.reply()
        await conversation.close()
        await conversation.outcome()
        said = [message.text for message in await conversation.transcript() if message.role == "user"]
        told = [event.message.text for event in await events_of(conversation) if isinstance(event, MessageReceived)]
    assert told == said
