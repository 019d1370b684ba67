"""A signal whose name is misspelt is logged. Histories from before that are replayed: see the fixture of `client`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from temporalio.workflow import _Definition

from everturn import Client, tool
from everturn.testing import ScriptedModel, call
from everturn.testing.replay import replay_history
from everturn.workflows.conversation import ConversationWorkflow
from tests.support.agents import agent_on, hosting
from tests.support.waiting import eventually, waiting

Scripted = Callable[..., ScriptedModel]


@tool(needs_approval=True)
def refund(order: str) -> str:
    return f"refunded {order}"


@contextmanager
def as_before() -> Iterator[None]:
    """Conversations have no handler for signals of other names, as in everturn's first versions."""
    definition = _Definition.must_from_class(ConversationWorkflow)
    signals = dict(definition.signals)
    definition.signals.pop(None)  # type: ignore[attr-defined]
    try:
        yield
    finally:
        definition.signals.update(signals)  # type: ignore[attr-defined]


async def test_a_misspelt_signal_is_logged_with_its_name_and_those_there_are(
    client: Client, scripted: Scripted, caplog: pytest.LogCaptureFixture
) -> None:
    agent = agent_on(scripted([call("refund", {"order": "81"}), "Done."]), tools=[refund])
    async with hosting(client, agent):
        conversation = await client.start(agent, "Refund")
        await waiting(conversation)
        handle = client.temporal.get_workflow_handle(conversation.id)
        with caplog.at_level(logging.WARNING):
            await handle.signal("aprove", {"call_id": "*"})
            await handle.signal("x" * 1000)
            await eventually(lambda: caplog.text.count("signal.ignored") >= 2, what="both are logged")
        assert "aprove" in caplog.text
        assert "there are answer, approve, cancel_turn" in caplog.text
        assert "x" * 1000 not in caplog.text
        assert len((await conversation.status()).waiting) == 1
        await conversation.approve("call_0_0")
        assert await conversation.reply() == "Done."


async def test_a_history_in_which_such_signals_were_passed_over_in_silence_is_replayed(
    client: Client, scripted: Scripted
) -> None:
    agent = agent_on(scripted([call("refund", {"order": "81"}), "Done."]), tools=[refund])
    with as_before():
        conversation = await client.start(agent, "Refund", id=f"before-{client.task_queue}")
        handle = client.temporal.get_workflow_handle(conversation.id)
        await handle.signal("nonsense", 1)  # before the first workflow task
        async with hosting(client, agent):
            await waiting(conversation)
            await handle.signal("aprove")
        await handle.signal("denny")
        await handle.signal("approve", {"call_id": "*"})  # in one workflow task with a signal of no name that is known
        await handle.signal("close please")
        async with hosting(client, agent):
            assert await conversation.reply() == "Done."
    assert await replay_history(await handle.fetch_history()) > 0
