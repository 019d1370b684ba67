"""A tool whose last runs were quick runs within the workflow task, and by way of the queue when it is quick no more."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from temporalio import activity
from temporalio.api.enums.v1 import EventType

from everturn import Client, Conversation, Retry, ToolContext, tool
from everturn.activities.tool_times import FEWEST_RUNS
from everturn.errors import InvalidSetting
from everturn.testing import ScriptedModel, call
from tests.support.agents import agent_on, hosting
from tests.support.bounds import Bounds
from tests.support.transcripts import results_of
from tests.support.waiting import waiting

Scripted = Callable[..., ScriptedModel]


async def _ways(client: Client, conversation: Conversation, tool: str) -> list[str]:
    """How each run of the tool began or ended: "queue", "task", or "task, in vain"."""
    history = await client.temporal.get_workflow_handle(conversation.id).fetch_history()
    ways = []
    for event in history.events:
        if event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED:
            if event.activity_task_scheduled_event_attributes.activity_type.name == tool:
                ways.append("queue")
        elif event.event_type == EventType.EVENT_TYPE_MARKER_RECORDED:
            ways.append("task, in vain" if event.marker_recorded_event_attributes.HasField("failure") else "task")
    return ways


@pytest.fixture(autouse=True)
def _all_are_quick(bounds: Bounds) -> None:
    bounds(local_seconds=60.0, hurried=timedelta(seconds=60))


@pytest.mark.long_if(lambda where: where != "worker")
@pytest.mark.parametrize("where", ["tool", "agent", "worker", "setting"])
async def test_a_read_tool_that_was_quick_runs_within_the_workflow_task(
    client: Client, scripted: Scripted, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    if where == "setting":
        monkeypatch.setenv("EVERTURN_LOCAL_TOOLS", "auto")

    @tool(effect="read", local="auto" if where == "tool" else None)
    def look(number: int) -> str:
        return f"saw {number}" + "." * 20_000

    script: list[Any] = [call("look", {"number": number}) for number in range(FEWEST_RUNS)]
    script.append([call("look", {"number": number}) for number in range(FEWEST_RUNS, FEWEST_RUNS + 8)])
    agent = agent_on(scripted([*script, "Done."]), tools=[look], local="auto" if where == "agent" else None)
    async with hosting(client, agent, local_tools="auto" if where == "worker" else None):
        conversation = await client.start(agent, "Look")
        assert (await conversation.outcome()).text == "Done."
    results = results_of(await conversation.transcript())
    assert [result.text.rstrip(".") for result in results] == [f"saw {number}" for number in range(FEWEST_RUNS + 8)]
    assert len({len(result.text.lstrip("saw 0123456789")) for result in results}) == 1, "none is cut"
    assert await _ways(client, conversation, "look") == ["queue"] * FEWEST_RUNS + ["task"] * 8


async def _told(
    client: Client, scripted: Scripted, look: Any, *, calls: int = FEWEST_RUNS + 1, **options: Any
) -> tuple[Conversation, list[str]]:
    """A conversation in which the tool was called so often, and what the model was told."""
    agent = agent_on(scripted([call(look.name)] * calls + ["Done."]), tools=[look])
    async with hosting(client, agent, **options):
        conversation = await client.start(agent, "Look")
        assert (await conversation.outcome()).text == "Done."
    return conversation, [result.text for result in results_of(await conversation.transcript())]


@pytest.mark.parametrize("blocking", [False, True], ids=["async", "in a thread"])
async def test_a_tool_that_is_quick_no_more_goes_to_the_queue_and_the_workflow_task_ends(
    client: Client,
    scripted: Scripted,
    cached_conversations: int,
    bounds: Bounds,
    stuck: Callable[[], Any],
    blocking: bool,
) -> None:
    bounds(hurried=timedelta(seconds=0.3))
    keys: set[str] = set()

    async def look(context: ToolContext) -> str:
        keys.add(context.idempotency_key)
        if activity.info().is_local:
            await asyncio.Event().wait()
        return "seen"

    def look_in_a_thread(context: ToolContext) -> str:
        keys.add(context.idempotency_key)
        if activity.info().is_local:
            stuck()
        return "seen"

    made = tool(effect="idempotent", local="auto", name="look")(look_in_a_thread if blocking else look)
    conversation, told = await _told(client, scripted, made, cached_conversations=cached_conversations)
    assert told == ["seen"] * (FEWEST_RUNS + 1)
    assert await _ways(client, conversation, "look") == ["queue"] * FEWEST_RUNS + ["task, in vain", "queue"]
    assert len(keys) == FEWEST_RUNS + 1, "the same call has the same key"


async def test_a_failure_that_passes_goes_to_the_queue_after_the_time_that_the_tool_names(
    client: Client, scripted: Scripted
) -> None:
    runs: list[int] = []

    @tool(effect="read", local="auto")
    def look() -> str:
        runs.append(1)
        if FEWEST_RUNS < len(runs) <= FEWEST_RUNS + 2:
            raise Retry("It is dark.", after=0.05)
        return "seen"

    conversation, told = await _told(client, scripted, look)
    assert told == ["seen"] * (FEWEST_RUNS + 1)
    assert len(runs) == FEWEST_RUNS + 3
    assert await _ways(client, conversation, "look") == ["queue"] * FEWEST_RUNS + ["task, in vain", "queue"]
    history = await client.temporal.get_workflow_handle(conversation.id).fetch_history()
    waits = [event for event in history.events if event.event_type == EventType.EVENT_TYPE_TIMER_STARTED]
    assert len(waits) == 1


async def test_quick_tools_that_fail_in_another_order_than_they_began_replay(
    client: Client, scripted: Scripted, bounds: Bounds
) -> None:
    """A replay hears of their ends as it was, from SDK 1.35 on: before, in the order in which they began."""
    bounds(hurried=timedelta(seconds=0.3))
    tries = Counter[str]()

    @tool(effect="read", local="auto")
    async def look(where: str) -> str:
        tries[where] += 1
        if where != "before" and tries[where] == 1:
            if where == "second":
                raise Retry("It is dark.", after=0.05)
            await asyncio.Event().wait()
        return f"seen {where}"

    both = [call("look", {"where": "first"}), call("look", {"where": "second"})]
    agent = agent_on(scripted([*[call("look", {"where": "before"})] * FEWEST_RUNS, both, "Done."]), tools=[look])
    async with hosting(client, agent):
        conversation = await client.start(agent, "Look")
        assert (await conversation.outcome()).text == "Done."
    told = [result.text for result in results_of(await conversation.transcript())]
    assert told[FEWEST_RUNS:] == ["seen first", "seen second"]
    ways = await _ways(client, conversation, "look")
    assert ways[FEWEST_RUNS:] == ["task, in vain", "task, in vain", "queue", "queue"]


@pytest.mark.long
async def test_what_the_tool_says_of_itself_is_told_and_not_tried_again(client: Client, scripted: Scripted) -> None:
    runs: list[int] = []

    @tool(effect="read", local="auto")
    def look() -> str:
        runs.append(1)
        raise ValueError("nothing to see")

    conversation, told = await _told(client, scripted, look)
    assert told == ["ValueError: nothing to see"] * (FEWEST_RUNS + 1) == ["ValueError: nothing to see"] * len(runs)
    assert await _ways(client, conversation, "look") == ["queue"] * FEWEST_RUNS + ["task"]


async def test_a_quick_tool_that_needs_approval_or_asks_waits_for_a_person_first(
    client: Client, scripted: Scripted, cached_conversations: int
) -> None:
    @tool(effect="read", local="auto", needs_approval=lambda arguments: arguments["number"] >= FEWEST_RUNS)
    def look(context: ToolContext, number: int) -> str:
        return context.ask("Where?") if number == FEWEST_RUNS else f"saw {number}"

    script = [*(call("look", {"number": number}) for number in range(FEWEST_RUNS + 1)), "Done."]
    agent = agent_on(scripted(script), tools=[look])
    async with hosting(client, agent, cached_conversations=cached_conversations):
        conversation = await client.start(agent, "Look")
        (call_id,) = await waiting(conversation)
        await conversation.approve(call_id)

        (call_id,) = await waiting(conversation)
        await conversation.answer(call_id, "here")
        assert (await conversation.outcome()).text == "Done."
    assert results_of(await conversation.transcript())[-1].text == "here"
    assert await _ways(client, conversation, "look") == ["queue"] * FEWEST_RUNS + ["task, in vain", "task"]


async def test_a_worker_says_which_local_tools_there_are(client: Client, scripted: Scripted) -> None:
    with pytest.raises(InvalidSetting, match=r"local_tools='always'.*'auto' or 'given'"):
        hosting(client, agent_on(scripted(["Hi"])), local_tools="always")
