"""Nothing that can't be read ends or freezes a conversation: it waits for a person, and says for what."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from temporalio.api.common.v1 import Payload
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError

from everturn import Client, Conversation, tool
from everturn.errors import Stalled
from everturn.testing import ScriptedModel, call, slow
from tests.conftest import agent_on, eventually, hosting, waiting
from tests.workflows.test_conversation import results_of

Scripted = Callable[..., ScriptedModel]


async def running(client: Client, conversation: Conversation, name: str) -> str:
    """The id of the running activity of that name."""

    async def found() -> str:
        described = await client.temporal.get_workflow_handle(conversation.id).describe()
        pending = described.raw_description.pending_activities
        return next((one.activity_id for one in pending if one.activity_type.name == name), "")

    return str(await eventually(found, what=f"{name} runs"))


async def complete(client: Client, conversation: Conversation, name: str, result: Any) -> None:
    """What `temporal activity complete --result` does."""
    handle = client.temporal.get_async_activity_handle(
        workflow_id=conversation.id, run_id=None, activity_id=await running(client, conversation, name)
    )
    await handle.complete(result)


async def stalls(conversation: Conversation) -> tuple[str, str]:
    async def stalled() -> Any:
        status = await conversation.status()
        return (status.cause or "", status.cure or "") if status.state == "stalled" else None

    cause, cure = await eventually(stalled, what="it stalls")
    return cause, cure


@pytest.mark.parametrize("result", ["x", None, {"message": {"role": "assistant", "parts": [{"kind": "hologram"}]}}])
async def test_a_model_turn_that_an_operator_completes_with_something_else_stalls(
    client: Client, scripted: Scripted, cached_conversations: int, result: Any
) -> None:
    completed = threading.Event()
    agent = agent_on(scripted([slow("Hello.", until=completed)]))
    async with hosting(client, agent, cached_conversations=cached_conversations):
        conversation = await client.start(agent, "Hi")
        await complete(client, conversation, "call_model", result)
        completed.set()
        cause, cure = await stalls(conversation)
        assert cause.startswith("The reply of turn 1 can't be read: ")
        assert "resume" in cure
        with pytest.raises(Stalled, match="turn 1 can't be read"):
            await conversation.reply()
        await conversation.resume()
        assert await conversation.reply() == "Hello."


@pytest.mark.parametrize("effect", ["idempotent", "once"])
async def test_a_tool_that_an_operator_completes_with_plain_text_waits_for_a_person(
    client: Client, scripted: Scripted, cached_conversations: int, effect: Any
) -> None:
    runs: list[int] = []

    @tool(effect=effect)
    async def refund() -> str:
        runs.append(1)
        if len(runs) == 1:
            await asyncio.sleep(60)
        return "refunded"

    agent = agent_on(scripted([call("refund"), "Done."]), tools=[refund])
    async with hosting(client, agent, cached_conversations=cached_conversations, drain_timeout=timedelta(0)):
        conversation = await client.start(agent, "Refund")
        await eventually(lambda: runs)
        await complete(client, conversation, "refund", "x")
        (call_id,) = await waiting(conversation)
        (shown,) = (await conversation.status()).waiting
        assert shown.why.startswith("outcome unknown: The result of refund can't be read: ")
        await conversation.answer(call_id, "It was refunded by hand.")
        assert await conversation.reply() == "Done."
        (result,) = results_of(await conversation.transcript())
        asked = [event async for event in conversation.events() if event.kind == "approval_requested"]
    assert result.text == "It was refunded by hand."
    assert [one.why for one in asked] == ["outcome unknown: The result of refund can't be read"]


async def test_what_a_failure_has_to_say_may_be_unreadable(client: Client, scripted: Scripted) -> None:
    failed = threading.Event()
    agent = agent_on(scripted([slow("Hello.", until=failed)]))
    async with hosting(client, agent):
        conversation = await client.start(agent, "Hi")
        handle = client.temporal.get_async_activity_handle(
            workflow_id=conversation.id, run_id=None, activity_id=await running(client, conversation, "call_model")
        )
        garbage = Payload(metadata={"encoding": b"json/plain"}, data=b"not json")
        await handle.fail(ApplicationError("An operator's word", RawValue(garbage), non_retryable=True))
        failed.set()
        cause, _ = await stalls(conversation)
        assert cause == "An operator's word"
        await conversation.resume()
        assert await conversation.reply() == "Hello."
