"""What Python clears away of conversations that a stopped worker left."""

from __future__ import annotations

import asyncio

import pytest

from everturn.carryover import CarryOver
from everturn.payloads import Start
from everturn.state import State
from everturn.tracing import TraceContext
from everturn.workflows.eviction_guard import OwnLoop
from everturn.workflows.tracing import Tracing

CALLER = TraceContext(traceparent=f"00-{'a' * 32}-{'b' * 16}-01")


async def own_loop() -> OwnLoop:
    made = OwnLoop()
    assert made.is_running
    return made


async def tracing() -> Tracing:
    start = Start(agent="clerk", trace=CALLER)
    return Tracing(State(start, run_began=0.0), start, CarryOver(), chain_id="chain")


def test_a_conversation_does_not_run_where_no_loop_or_another_ones_does() -> None:
    left = asyncio.run(own_loop())
    assert not left.is_running

    async def elsewhere() -> None:
        assert not left.is_running

    asyncio.run(elsewhere())


@pytest.mark.parametrize("reason", ["stalled", "paused"])
def test_a_wait_that_is_cleared_away_notes_nothing(reason: str) -> None:
    left = asyncio.run(tracing())
    left.was_held(reason, since=1.0, ended="", resumed_by="")  # type: ignore[arg-type]
    carried = left.carried()
    assert carried
    assert carried.trace.waits == ()
