"""Decisions by signal that come before their call waits: which of them are kept, for how long, and in which order they
are tried."""

from __future__ import annotations

import pytest

from everturn.workflows import early_decisions
from everturn.workflows.early_decisions import MAX_HELD, EarlyDecisions


class Decisions:
    """Decisions with a name each, at times of workflow tasks."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.task = 1
        self.tried: list[str] = []
        self.given_up: dict[str, str] = {}
        self.early = EarlyDecisions()
        # Each time another object, as the SDK's is.
        monkeypatch.setattr(early_decisions.workflow, "time", lambda: float(f"{self.task}.5"))

    def keep(self, name: str, *, waits: bool = False) -> bool:
        """Its call's id is the first letter of its name."""

        def later(problem: str) -> None:
            if problem:
                self.given_up[name] = problem
            else:
                self.tried.append(name)

        return self.early.keep(name[0], later, waits=waits)

    def release(self, call_id: str, *, tries: int = 9) -> None:
        """Until so many were tried."""
        self.early.release(call_id, until=lambda: len(self.tried) >= tries)


@pytest.fixture
def decisions(monkeypatch: pytest.MonkeyPatch) -> Decisions:
    return Decisions(monkeypatch)


def test_decisions_of_one_task_wait_for_their_calls_and_are_tried_in_their_order(decisions: Decisions) -> None:
    for name in ("b1", "a1", "b2", "c1"):
        assert decisions.keep(name)
    decisions.release("b")
    assert (decisions.tried, decisions.given_up) == (["b1", "b2"], {})
    decisions.release("a")
    assert (decisions.tried, decisions.given_up) == (["b1", "b2", "a1"], {})
    assert decisions.early.any_to_take


def test_a_decision_of_an_earlier_task_is_given_up_when_another_comes(decisions: Decisions) -> None:
    assert decisions.keep("a1")
    assert decisions.keep("b1", waits=True)
    decisions.task = 2
    assert decisions.keep("c1")
    assert decisions.given_up == {"a1": "Call 'a' was not waiting for it."}
    decisions.release("b")
    decisions.release("c")
    assert decisions.tried == ["b1", "c1"]


@pytest.mark.parametrize("later", [False, True])
@pytest.mark.parametrize("waits", [False, True])
def test_a_decision_is_tried_in_its_own_task_and_in_later_ones_only_if_it_waits_for_a_check(
    decisions: Decisions, *, waits: bool, later: bool
) -> None:
    decisions.keep("a1", waits=waits)
    decisions.keep("b1")
    decisions.task += later
    assert decisions.early.any_to_take is (waits or not later)
    decisions.release("a")
    assert decisions.tried == (["a1"] if waits or not later else [])
    assert [*decisions.given_up] == ([] if waits or not later else ["a1"])


def test_after_one_was_taken_the_others_on_its_call_wait_for_its_check(decisions: Decisions) -> None:
    for name in ("a1", "a2", "b1"):
        decisions.keep(name)
    decisions.release("a", tries=1)
    assert decisions.tried == ["a1"]
    decisions.task = 2
    decisions.keep("c1")
    assert [*decisions.given_up] == ["b1"]
    decisions.release("a")
    assert decisions.tried == ["a1", "a2"]


@pytest.mark.parametrize(("call_id", "given_up"), [("b", ["b1"]), (None, ["a1", "b1", "c1"])])
def test_a_final_decision_makes_others_on_its_call_too_late(
    decisions: Decisions, call_id: str | None, given_up: list[str]
) -> None:
    for name in ("a1", "b1", "c1"):
        decisions.keep(name, waits=True)
    decisions.early.discard_late(call_id)
    assert [*decisions.given_up] == given_up


def test_only_so_many_are_kept(decisions: Decisions) -> None:
    assert [decisions.keep("a") for _ in range(MAX_HELD + 1)] == [True] * MAX_HELD + [False]
