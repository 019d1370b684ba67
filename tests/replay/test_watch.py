"""What no workflow may do is noticed as it replays, though no command tells of it."""

from __future__ import annotations

import asyncio
import gc
from contextlib import suppress
from typing import Any

import pytest
from temporalio import workflow

from everturn.testing import Diverged, replay_history
from everturn.workflows.conversation import ConversationWorkflow
from tests.replay import HISTORIES
from tests.support.excused import HARMLESS, NOT_CALLED
from tests.support.planted import PLANTED, Planted
from tests.support.source import MODULES
from tests.support.watch import watched


@pytest.mark.parametrize("planted", [one for one in PLANTED if one.in_replay], ids=lambda one: one.name)
async def test_a_planted_call_is_noticed(planted: Planted, monkeypatch: pytest.MonkeyPatch) -> None:
    turn, call = ConversationWorkflow._model_turn, planted.function()

    async def with_one_more(self: ConversationWorkflow, **options: Any) -> Any:
        await call(self)
        return await turn(self, **options)

    monkeypatch.setattr(ConversationWorkflow, "_model_turn", with_one_more)
    with watched() as seen, suppress(Diverged):
        await replay_history(HISTORIES / "plain_reply.json")
    assert any("planted" in one or "ToolCall.parse" in one for one in seen), seen


def suspended() -> Any:
    """A coroutine of `asyncio.wait` that waits for what never comes."""
    waits = asyncio.wait([asyncio.get_running_loop().create_future()])
    waits.send(None)
    return waits


async def test_what_an_earlier_test_left_is_no_call_of_the_workflows(monkeypatch: pytest.MonkeyPatch) -> None:
    """A suspended coroutine that ends in the middle of a function of everturn's, since it is collected there."""
    turn, left = ConversationWorkflow._model_turn, [suspended()]
    ending = Planted("the end of it", "self.pop().close()").function()

    async def with_an_end(self: ConversationWorkflow, **options: Any) -> Any:
        await ending(left)
        return await turn(self, **options)

    monkeypatch.setattr(ConversationWorkflow, "_model_turn", with_an_end)
    with watched() as seen:
        await replay_history(HISTORIES / "plain_reply.json")
    assert (left, seen) == ([], [])


async def test_garbage_is_not_collected_in_a_workflow_that_is_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody knows what it does as it ends."""
    turn, ended = ConversationWorkflow._model_turn, []

    class Left:
        def __init__(self) -> None:
            self.itself = self

        def __del__(self) -> None:
            ended.append("in the workflow" if workflow.in_workflow() else "elsewhere")

    async def with_garbage(self: ConversationWorkflow, **options: Any) -> Any:
        for _ in range(3_000):
            Left()
        return await turn(self, **options)

    monkeypatch.setattr(ConversationWorkflow, "_model_turn", with_garbage)
    with watched():
        await replay_history(HISTORIES / "plain_reply.json")
    assert gc.isenabled()
    gc.collect()
    assert {*ended} == {"elsewhere"}


async def test_what_is_excused_is_watched_by_its_true_name() -> None:
    with watched(harmless=()) as seen:
        await replay_history(HISTORIES / "turn_cancelled.json")
    assert {place for place in HARMLESS if any(place in one for one in seen)} >= {
        "everturn.workflows.activity_results:ActivityResults.read",
        "everturn.workflows.message_dispatch:Handlers._find_lost",
    }


@pytest.mark.parametrize("place", sorted({*NOT_CALLED, *HARMLESS}))
def test_what_is_excused_is_there(place: str) -> None:
    module, _, function = place.partition(":")
    assert f"def {function.rpartition('.')[2]}(" in MODULES[module].read_text()
