"""What no workflow may do is noticed as it replays, though no command tells of it."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest

from everturn.testing import Diverged, replay_history
from everturn.workflows.conversation import ConversationWorkflow
from tests.replay.record import HISTORIES
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


async def test_what_is_excused_is_watched_by_its_true_name() -> None:
    with watched(harmless=()) as seen:
        await replay_history(HISTORIES / "turn_cancelled.json")
    assert {place for place in HARMLESS if any(place in one for one in seen)} >= {
        "everturn.workflows.activity_results:ActivityResults.read",
        "everturn.workflows.handlers:Handlers._lost",
        "everturn.workflows.start_input:read",
    }


@pytest.mark.parametrize("place", sorted({*NOT_CALLED, *HARMLESS}))
def test_what_is_excused_is_there(place: str) -> None:
    module, _, function = place.partition(":")
    assert f"def {function.rpartition('.')[2]}(" in MODULES[module].read_text()
