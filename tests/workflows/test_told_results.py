"""Every call that events tell of has its result told too, once, however it came about."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from everturn import Approvals, Client, Conversation, tool
from everturn.events import ToolCalled
from everturn.testing import ScriptedModel, call
from tests.support.agents import agent_on, hosting
from tests.support.bounds import Bounds
from tests.support.tools import ask_somebody, look
from tests.support.transcripts import results_of, results_told, told
from tests.support.waiting import eventually, waiting

Scripted = Callable[..., ScriptedModel]


@tool(needs_approval=True)
def refund(cents: int) -> str:
    return f"{cents} back"


@tool(needs_approval=True)
def tip(cents: int) -> str:
    return f"{cents} tipped"


EVERY_KIND = [
    call("look", {"number": 1}, id="ran"),
    call("refund", {"cents": 1}, id="approved"),
    call("refund", {"cents": 2}, id="denied"),
    call("ask_somebody", id="answered"),
    call("no_such_tool", id="refused"),
    call("look", {"number": "x"}, id="invalid"),
    call("tip", {"cents": 3}, id="expired"),
]


@pytest.mark.long
@pytest.mark.parametrize("short_runs", [False, True], ids=["one run", "many runs"])
async def test_calls_of_every_kind_have_one_result_in_the_events(
    client: Client, scripted: Scripted, cached_conversations: int, bounds: Bounds, short_runs: bool
) -> None:
    if short_runs:
        bounds(events=15)
    agent = agent_on(
        scripted([EVERY_KIND, "Done."]),
        tools=[look, refund, tip, ask_somebody],
        approvals=Approvals(expire_after=timedelta(seconds=10)),
    )
    async with hosting(client, agent, cached_conversations=cached_conversations):
        conversation = await client.start(agent, "Go")
        await waiting(conversation, calls=4)
        await conversation.approve("approved")
        await conversation.deny("denied", "no")
        await conversation.answer("answered", "42")
        await conversation.outcome()
    events = await told(conversation)
    called = [event.call.call_id for event in events if isinstance(event, ToolCalled)]
    expected = {result.call_id: result.text for result in results_of(await conversation.transcript())}
    assert [*expected] == called == [one.id for one in EVERY_KIND]
    assert results_told(events) == expected
    assert "Nobody decided" in expected["expired"]
    # Wherever somebody comes back, he is told what he has not seen, once.
    for place, event in enumerate(events):
        assert await told(conversation, event.cursor) == events[place + 1 :]


async def test_a_turn_that_was_cut_short_tells_its_results_with_the_end(client: Client, scripted: Scripted) -> None:
    model = scripted([[call("refund", {"cents": 1}, id="a"), call("look", {"number": 1}, id="b")], "Done."])
    agent = agent_on(model, tools=[refund, look])
    async with hosting(client, agent):
        conversation = await client.start(agent, "Go")
        await waiting(conversation)
        await eventually(lambda: _looked(conversation))
        await conversation.cancel_turn("wrong order")
        await conversation.outcome()
    assert results_told(await told(conversation)) == {
        "a": "This call was cut short: the turn was cancelled by tester (wrong order).",
        "b": "saw 1",
    }


async def _looked(conversation: Conversation) -> bool:
    history = await conversation._temporal.get_workflow_handle(conversation.id).fetch_history()
    return any("saw 1" in str(event.activity_task_completed_event_attributes.result) for event in history.events)
