"""Which conversation this is, among all that have its id: the idempotency keys of its calls hold it."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from temporalio import workflow

from everturn.workflows.chain import RunChain


@pytest.mark.parametrize(
    ("run", "original", "carried", "before", "known", "reset_run"),
    [
        ("r1", "r1", "", "", "r1", ""),
        ("r2", "r2", "r1", "", "r1", ""),
        ("r2", "r2", "r1", "r0", "r1", "r0"),
        ("r3", "r2", "r1", "r0", "r3", "r3"),
        ("r3", "r2", "", "", "r3", "r3"),
        ("r3", "", "", "", "", ""),
        ("r3", "", "r1", "", "r1", ""),
    ],
)
def test_a_conversation_is_that_of_its_first_run_or_of_the_one_that_a_reset_made(
    run: str, original: str, carried: str, before: str, known: str, reset_run: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = SimpleNamespace(run_id=run, original_execution_run_id=original)
    monkeypatch.setattr(workflow, "info", lambda: info)
    chain = RunChain(carried, reset_run=before)
    assert (chain.id, chain.reset_run) == (known, reset_run)
