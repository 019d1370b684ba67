"""What a tenant's budget does as a workflow: whom it resumes, when it wakes by itself, and when it ends."""

from __future__ import annotations

from typing import Any

import pytest

from everturn import names
from everturn.budgets.records import BudgetStart, BudgetTerms, SetBudget, Spending, SpendingBatch
from everturn.budgets.workflow import TenantBudgetWorkflow
from tests.support.bounds import Bounds
from tests.support.played_runs import Command, PlayedRun, Refused, kinds, only

LEASE = 900.0
RESUMED_FOR = 30.0


class Kept:
    """A budget that is kept, by default of one conversation at a time."""

    def __init__(self, **terms: Any) -> None:
        given = BudgetTerms(**{"conversations": 1} | terms)
        self.run = PlayedRun(TenantBudgetWorkflow, BudgetStart(tenant="acme", budget=given, declared=True)).begin()
        self._number = 0

    def report(self, conversation: str, **facts: Any) -> Any:
        """The answer to it."""
        self._number += 1
        item = Spending(conversation=conversation, **facts)
        return self.run.update(names.COUNT_SPENDING, SpendingBatch(worker="w", number=self._number, items=(item,)))

    def spend(self, conversation: str, **facts: Any) -> list[Command]:
        """The commands beside the answer."""
        self.report(conversation, **facts)
        return self.run.commands

    def ask(self, conversation: str) -> list[Command]:
        return self.spend(conversation, asks=True)

    def is_refused(self, conversation: str) -> bool:
        return bool(self.report(conversation, asks=True).get("refused"))

    @property
    def status(self) -> Any:
        return self.run.query(names.BUDGET)


def resumed(commands: list[Command]) -> list[str]:
    signals = [command for command in commands if command.kind == "signal_external_workflow_execution"]
    for signal in signals:
        assert signal.attributes.signal_name == names.RESUME
        assert signal.input == {"by": "its tenant's budget", "only_stalled": True}
    return [signal.attributes.workflow_execution.workflow_id for signal in signals]


def arrived(run: PlayedRun, commands: list[Command], *, failed: str = "") -> list[Command]:
    signal = only(commands, "signal_external_workflow_execution")
    return run.deliver(signal, failed=failed).commands


def timer(commands: list[Command]) -> Command:
    return only(commands, "start_timer")


def test_who_waits_goes_on_once_a_place_is_free() -> None:
    kept = Kept()
    assert kept.ask("a") == [], "nobody waits, so nothing is to be done by itself"
    alarm = timer(kept.ask("b"))
    assert (alarm.seconds, alarm.summary) == (LEASE, "until somebody goes on")
    commands = kept.spend("a", done=True)
    assert resumed(commands) == ["b"]
    sooner = arrived(kept.run, commands)
    assert kinds(sooner) == ["cancel_timer", "start_timer"]
    assert timer(sooner).seconds == RESUMED_FOR


def test_who_does_not_ask_after_it_was_resumed_is_resumed_once_more() -> None:
    kept = Kept()
    kept.ask("a")
    kept.ask("b")
    commands = kept.spend("a", done=True)
    again = kept.run.fire(timer(arrived(kept.run, commands))).commands
    assert resumed(again) == ["b"]
    assert timer(arrived(kept.run, again)).seconds == RESUMED_FOR, "the alarm that rang is none any more"


def test_an_alarm_that_rings_too_early_does_no_harm_and_is_left() -> None:
    kept = Kept()
    kept.ask("a")
    kept.ask("b")
    kept.run.pass_time(10)
    assert kept.ask("c") == [], "the place of a expires no later than it did"
    kept.run.pass_time(10)
    assert kept.ask("a") == [], "a has its place for longer now"


def test_a_conversation_that_is_over_gives_its_place_to_the_next() -> None:
    kept = Kept()
    for conversation in "abc":
        kept.ask(conversation)
    commands = kept.spend("a", done=True)
    assert resumed(arrived(kept.run, commands, failed="no such workflow")) == ["c"]
    assert kept.status["waiting"] == 1


def test_what_is_overdue_when_its_alarm_is_set_rings_at_once() -> None:
    kept = Kept()
    kept.ask("a")
    kept.ask("b")
    commands = kept.spend("a", done=True)
    kept.run.pass_time(RESUMED_FOR + 1)
    assert timer(arrived(kept.run, commands)).seconds == 0.001


def test_a_larger_budget_resumes_who_waits_for_it() -> None:
    kept = Kept(conversations=None, tokens_per_day=10)
    kept.spend("a", tokens=10)
    assert kept.is_refused("a")
    commands = kept.run.signal(names.SET_BUDGET, SetBudget(budget=BudgetTerms(tokens_per_day=100), by="ada")).commands
    assert resumed(commands) == ["a"]
    arrived(kept.run, commands)
    assert (kept.status["budget"]["tokens_per_day"], kept.status["by"]) == (100, "ada")


def test_a_budget_that_is_removed_resumes_everybody_and_ends() -> None:
    kept = Kept(conversations=None, tokens_per_day=10)
    kept.spend("a", tokens=10)
    kept.ask("a")
    kept.ask("b")
    commands = kept.run.signal(names.SET_BUDGET, SetBudget(budget=None, by="ada")).commands
    assert sorted(resumed(commands)) == ["a", "b"]
    assert not kept.is_refused("c"), "until it is gone, it allows everything"
    signals = [command for command in commands if command.kind == "signal_external_workflow_execution"]
    later: list[Command] = []
    for _ in range(3):
        later = [command for signal in signals for command in kept.run.deliver(signal).commands]
        signals = [command for command in later if command.kind == "signal_external_workflow_execution"]
        if not signals:
            break
    assert kinds(later)[-1] == "complete_workflow_execution"


def test_a_budget_that_is_removed_before_anybody_waits_ends_at_once() -> None:
    run = Kept().run
    run.suggested = True
    assert kinds(run.signal(names.SET_BUDGET, SetBudget(budget=None)).commands) == ["complete_workflow_execution"]


def test_a_signal_that_makes_no_sense_changes_nothing() -> None:
    kept = Kept()
    assert kept.run.signal(names.SET_BUDGET, {"budget": {"token_per_day": 1}}).commands == []
    assert (kept.status["budget"]["conversations"], kept.status["declared"]) == (1, True)


def test_a_report_that_makes_no_sense_is_refused() -> None:
    run = Kept().run
    with pytest.raises(Refused, match="worker") as refused:
        run.update(names.COUNT_SPENDING, {"worker": 7})
    facts = refused.value.failure.application_failure_info
    assert (facts.type, facts.non_retryable, run.commands) == (names.REFUSED, True, [])


def test_a_budget_whose_input_makes_no_sense_fails_and_says_so() -> None:
    (failed,) = PlayedRun(TenantBudgetWorkflow, {"budget": 7}).begin().commands
    failure = failed.attributes.failure
    assert failure.message.startswith("This budget can't be kept: ")
    assert failure.application_failure_info.type == names.INVALID_START


def test_the_next_run_has_what_was_spent_and_who_waits() -> None:
    kept = Kept(tokens_per_day=100)
    kept.spend("a", tokens=7)
    kept.ask("a")
    kept.ask("b")
    kept.run.suggested = True
    commands = kept.spend("c", asks=True)
    next_start = only(commands, "continue_as_new_workflow_execution").input
    next_run = PlayedRun(TenantBudgetWorkflow, next_start, continued="before").begin()
    shown = next_run.query(names.BUDGET)
    assert (shown["tokens"], shown["waiting"], shown["at_work"], shown["tenant"]) == (7, 2, 1, "acme")
    assert timer(next_run.first_commands).seconds == LEASE, "it wakes by itself"


def test_a_run_that_has_taken_many_reports_goes_on_as_another(bounds: Bounds) -> None:
    bounds(updates=2)
    kept = Kept()
    assert kept.ask("a") == []
    assert kinds(kept.ask("a")) == ["continue_as_new_workflow_execution"]
