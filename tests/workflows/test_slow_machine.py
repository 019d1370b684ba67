"""A machine that has little time for its workers: conversations take longer, and go on."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from temporalio.api.enums.v1 import EventType

from everturn import Client
from everturn.state import State
from everturn.testing import ScriptedModel
from tests.support.agents import agent_on, hosting

LONGER_THAN_THE_SDK_ALLOWS = 2.5
"""Seconds; it takes 2 for a deadlock."""


async def test_a_workflow_task_that_takes_long_is_not_taken_for_a_deadlock(
    client: Client, scripted: Callable[..., ScriptedModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    begin_turn = State.begin_turn

    def slow(state: State, **options: Any) -> None:
        time.sleep(LONGER_THAN_THE_SDK_ALLOWS)
        begin_turn(state, **options)

    agent = agent_on(scripted(["Hello."]))
    async with hosting(client, agent):
        with monkeypatch.context() as patch:
            patch.setattr(State, "begin_turn", slow)
            conversation = await client.start(agent, "Hi")
            assert (await conversation.outcome()).text == "Hello."
    history = await client.temporal.get_workflow_handle(conversation.id).fetch_history()
    failed = EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED
    assert [event.event_id for event in history.events if event.event_type == failed] == []
