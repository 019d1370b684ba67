"""The crash test's bounds, in a process that does other things, too."""

from __future__ import annotations

from everturn.workflows import continue_as_new
from tests.crash.short_runs import short_runs


def test_the_last_one_out_puts_all_back() -> None:
    """They stayed, and a later test of the process replayed histories that did not fit them."""
    before = continue_as_new.MAX_EVENTS
    with short_runs(20), short_runs(30):
        assert continue_as_new.MAX_EVENTS == 30
    assert before == continue_as_new.MAX_EVENTS
