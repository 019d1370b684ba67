"""What the history tells people: a line for each step, and which steps belong to one turn."""

from __future__ import annotations

import json
from collections.abc import Callable

from temporalio.api.enums.v1 import EventType
from temporalio.api.sdk.v1 import WorkflowMetadata

from everturn import Client, tool
from everturn.testing import ScriptedModel, call
from tests.support.agents import agent_on, hosting
from tests.support.waiting import waiting


@tool(effect="read")
def look_up(order_id: str) -> str:
    return f"order {order_id}: a lamp"


@tool(needs_approval=True, effect="once")
def refund(cents: int) -> str:
    return f"refunded {cents}"


async def test_a_conversation_of_three_turns_is_told_by_its_activities_alone(
    client: Client, scripted: Callable[..., ScriptedModel], cached_conversations: int
) -> None:
    script = [call("look_up", {"order_id": "81"}), call("refund", {"cents": 3490}), "Done."]
    agent = agent_on(scripted(script), tools=[look_up, refund])
    async with hosting(client, agent, cached_conversations=cached_conversations):
        conversation = await client.start(agent, "Order 81 arrived broken.")
        (call_id,) = await waiting(conversation)
        await conversation.approve(call_id)
        await conversation.outcome()
    history = await client.temporal.get_workflow_handle(conversation.id).fetch_history()
    scheduled = [event for event in history.events if event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED]
    told = [
        (
            one.activity_task_scheduled_event_attributes.activity_type.name,
            json.loads(one.user_metadata.summary.data),
            [marker.label.id for marker in one.event_group_markers],
        )
        for one in scheduled
    ]
    assert told == [
        ("call_model", "turn 1 · demo", ["turn 1"]),
        ("look_up", 'order_id="81"', ["turn 1"]),
        ("call_model", "turn 2 · demo", ["turn 2"]),
        ("refund", "cents=3490 · approved by tester", ["turn 2"]),
        ("call_model", "turn 3 · demo", ["turn 3"]),
    ]
    assert max(marker.ByteSize() for one in scheduled for marker in one.event_group_markers) <= 12


async def test_the_web_ui_lists_each_signal_with_what_it_does(
    client: Client, scripted: Callable[..., ScriptedModel]
) -> None:
    agent = agent_on(scripted(["Done."]))
    async with hosting(client, agent):
        conversation = await client.start(agent, "Go")
        await conversation.outcome()
        handle = client.temporal.get_workflow_handle(conversation.id)
        metadata: WorkflowMetadata = await handle.query("__temporal_workflow_metadata", result_type=WorkflowMetadata)
    listed = {
        signal_definition.name: signal_definition.description
        for signal_definition in metadata.definition.signal_definitions
    }
    decisions = ("approve", "deny", "answer", "set_policy", "inherit_policy")
    any_other = ""  # Temporal's own way to list a handler of all other names
    steering = ("pause", "resume", "cancel_turn", "close", "withdraw", "batch")
    assert sorted(listed) == sorted(("message", *decisions, *steering, any_other))
    assert all(listed.values())
