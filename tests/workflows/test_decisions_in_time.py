"""Decisions and time: what comes early, late, often or all at once is taken, refused, or said to be under way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from everturn import Client, tool
from everturn.testing import ScriptedModel, call
from everturn.workflows import display
from tests.conftest import agent_on, hosting, waiting
from tests.workflows.test_conversation import results_of

Scripted = Callable[..., ScriptedModel]


@tool(needs_approval=True)
def file(document: str) -> str:
    return f"{len(document)} characters filed"


async def test_what_waits_is_written_down_once_however_many_calls_begin_to_wait(
    client: Client, scripted: Scripted, cached_conversations: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of 400 calls had all 400 written down again: the deadlock detector took that for a hang, for ever."""
    drawn: list[int] = []
    details = display.current_details

    def counting(status: Any, **options: Any) -> str:
        drawn.append(len(status.waiting))
        return details(status, **options)

    monkeypatch.setattr(display, "current_details", counting)
    calls = [call("file", {"document": "x" * 1000}, id=f"c{number}") for number in range(400)]
    agent = agent_on(scripted([calls, "Done."]), tools=[file])
    async with hosting(client, agent, cached_conversations=cached_conversations):
        conversation = await client.start(agent, "File them")
        ids = await waiting(conversation, calls=400)
        assert set(drawn) == {0, 400}, "never in between"
        assert set(await conversation.deny("*", reason="no")) == set(ids)
        assert await conversation.reply() == "Done."
    assert len(results_of(await conversation.transcript())) == 400
