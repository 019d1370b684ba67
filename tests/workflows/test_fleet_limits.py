"""`python -m benchmarks limits`, in small: workers as processes, on a provider that says nothing of its limit."""

from __future__ import annotations

import pytest

from benchmarks import limits


@pytest.mark.long
async def test_workers_that_do_not_talk_to_each_other_keep_to_one_limit() -> None:
    measured = await limits.measure(2, conversations=20, rate=10.0, retry_after=20.0)
    assert measured.stalled == 0
    # Without a limiter each of them would be refused again and again: twice for each reply.
    assert measured.refused <= 0.5
