"""An operator resets a conversation to its last workflow task: it goes on from there, with the same transcript."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import EventType
from temporalio.api.workflowservice.v1 import ResetWorkflowExecutionRequest

from everturn import Client, Conversation
from everturn.testing import ScriptedModel
from tests.conftest import agent_on, eventually, hosting, waiting
from tests.workflows.test_approvals import ONE, refund

Scripted = Callable[..., ScriptedModel]


async def reset_to_the_last_workflow_task(client: Client, conversation: Conversation) -> None:
    """What `temporal workflow reset --type LastWorkflowTask` does."""
    await reset_to(client, conversation, task=-1)


async def reset_to(client: Client, conversation: Conversation, *, task: int) -> None:
    """To its workflow task of this number, from 0, or from the end for a negative one."""
    handle = client.temporal.get_workflow_handle(conversation.id)
    completed = [
        event.event_id
        async for event in handle.fetch_history_events()
        if event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED
    ]
    await client.temporal.workflow_service.reset_workflow_execution(
        ResetWorkflowExecutionRequest(
            namespace=client.temporal.namespace,
            workflow_execution=WorkflowExecution(workflow_id=conversation.id),
            workflow_task_finish_event_id=completed[task],
            request_id="a-request",
            reason="it stood still",
        )
    )


async def idles(conversation: Conversation) -> bool:
    return (await conversation.status()).state == "idle"


async def test_a_conversation_that_is_reset_goes_on_with_its_transcript(
    client: Client, scripted: Scripted, cached_conversations: int
) -> None:
    model = scripted(["Hello.", ONE, "Refunded.", "Bye."])
    agent = agent_on(model, tools=[refund])
    async with hosting(client, agent, cached_conversations=cached_conversations):
        conversation = await client.start(agent, "Hi", keep_open=timedelta(minutes=1))
        await conversation.reply()
        await conversation.send("Refund it")
        await waiting(conversation)
        await reset_to_the_last_workflow_task(client, conversation)
        await waiting(conversation)
        await conversation.approve()
        assert await conversation.reply() == "Refunded."
        await eventually(lambda: idles(conversation))  # the workflow task behind the reply is done, too
        await reset_to_the_last_workflow_task(client, conversation)
        await conversation.send("Bye")
        assert await conversation.reply() == "Bye."
        roles = [message.role for message in await conversation.transcript()]
        assert roles == ["user", "assistant", "user", "assistant", "tool", "assistant", "user", "assistant"]
    assert len(model.requests) == 4, "no model call was made again"
