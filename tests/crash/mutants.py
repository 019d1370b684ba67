"""Eleven ways in which everturn could be wrong, each a small patch of it, applied in the workers of a crash test.

The crash test has to find every one: `make crash MUTANTS=1` runs it on each at length, `test_mutants.py` in short.
`CRASH_TEST_MUTANT` names the one that a worker process is to have.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from temporalio.common import RetryPolicy

from everturn import names
from everturn.batching.sending import BatchSending
from everturn.records import Decision, ToolResult
from everturn.state import State
from everturn.tools.tool import Tool
from everturn.workflows import continue_as_new, tool_calls
from everturn.workflows.applied_decisions import AppliedDecision
from everturn.workflows.commands import COMMANDS, Commands
from everturn.workflows.tool_calls import OpenCalls
from tests.support.changed_commands import with_another

MUTANT = "CRASH_TEST_MUTANT"


@dataclass(frozen=True)
class Mutant:
    """`found`: what the crash test has to say of it, as a regular expression; whatever else it says does not count."""

    apply: Callable[[], None]
    found: str
    kills: bool = False
    """It shows only if a worker is killed."""


def apply(name: str) -> None:
    """Makes this process's everturn wrong. Nothing for an empty name."""
    if name:
        MUTANTS[name].apply()


def _twice(effect: str) -> None:
    """A tool of this effect is run twice in one try."""
    run = Tool.run

    async def wrong(self: Tool, *args: Any, **options: Any) -> Any:
        if self.effect == effect:
            await run(self, *args, **options)
        return await run(self, *args, **options)

    Tool.run = wrong  # type: ignore[method-assign]


def _edits_ignored() -> None:
    """The tool runs with the model's arguments, whatever a person put in their place."""
    started = OpenCalls._start_tool

    async def wrong(self: OpenCalls, call: Any, request: Any, plan: Any) -> ToolResult:
        return await started(self, call, request.model_copy(update={"arguments": call.arguments}), plan)

    OpenCalls._start_tool = wrong  # type: ignore[method-assign]


def _inbox_dropped() -> None:
    """What waits in the inbox is not handed on when a run continues as a new one."""
    over = continue_as_new.carry_over

    def wrong(*args: Any, **options: Any) -> Any:
        return over(*args, **options).model_copy(update={"inbox": ()})

    continue_as_new.carry_over = wrong


def _result_dropped() -> None:
    """Of several results of one reply, the last is lost."""
    close = OpenCalls.close_reply

    def wrong(self: OpenCalls, why: str) -> tuple[ToolResult, ...]:
        results = close(self, why)
        return results[:-1] if len(results) > 1 else results

    OpenCalls.close_reply = wrong  # type: ignore[method-assign]


def _results_reversed() -> None:
    """The results of one reply stand in another order than its calls."""
    close = OpenCalls.close_reply

    def wrong(self: OpenCalls, why: str) -> tuple[ToolResult, ...]:
        return close(self, why)[::-1]

    OpenCalls.close_reply = wrong  # type: ignore[method-assign]


def _approval_lost() -> None:
    """A conversation's first approval is taken, and nothing is done about it."""
    command = COMMANDS[names.APPROVE]

    def wrong(self: Commands, approval: Any) -> dict[str, Any]:
        if not vars(self).setdefault("_lost_one", False):
            vars(self)["_lost_one"] = True
            return {"call_ids": (approval.call_id,)}
        return command.take(self, approval)

    Commands.find_type = with_another(names.APPROVE, wrong)  # type: ignore[method-assign]


def _denied_run() -> None:
    """A denial counts as an approval."""

    def wrong(self: Commands, denial: Any) -> dict[str, Any]:
        return self._apply_decision(denial.call_id, AppliedDecision(Decision(verdict="approve", by=denial.by)))

    Commands.find_type = with_another(names.DENY, wrong)  # type: ignore[method-assign]


def _message_twice() -> None:
    """A message that is sent again, with the same id, counts again."""
    receive = State.receive_message

    def wrong(self: State, message: Any, message_id: str | None = None) -> bool:
        return receive(self, message, None)

    State.receive_message = wrong  # type: ignore[method-assign]


def _once_again() -> None:
    """A `once` call whose worker was lost is run again by itself."""
    options = tool_calls.tool_activity_options

    def wrong(plan: Any) -> dict[str, Any]:
        return options(plan) | {"retry_policy": RetryPolicy(initial_interval=timedelta(milliseconds=200))}

    tool_calls.tool_activity_options = wrong


def _batch_twice() -> None:
    """A batch whose creation was not answered is created again, and nobody looks for it."""

    async def wrong(*_: Any) -> None:
        return None

    BatchSending._find = wrong  # type: ignore[method-assign]


MUTANTS = {
    "approval-lost": Mutant(_approval_lost, r"was approved, and nothing came of it"),
    "idempotent-twice": Mutant(lambda: _twice("idempotent"), r"(note|sign)\S* \S+ took effect 2 times in 1 tries"),
    "once-twice": Mutant(lambda: _twice("once"), r"(pay|refund)\S* \S+ took effect 2 times, and 1 were allowed"),
    "edits-ignored": Mutant(_edits_ignored, r"ran with .*, and was to run with"),
    "inbox-dropped": Mutant(_inbox_dropped, r"the messages .* stand in the transcript as"),
    "result-dropped": Mutant(_result_dropped, r"has 0 results, not one"),
    "results-reversed": Mutant(_results_reversed, r"have their results in another order"),
    "denied-run": Mutant(_denied_run, r"was started \d+ times, and \d+ were allowed"),
    "message-twice": Mutant(_message_twice, r"the messages .* stand in the transcript as"),
    "batch-twice": Mutant(_batch_twice, r"of a batch was paid 2 times"),
    "once-again": Mutant(_once_again, r"was tried again by itself", kills=True),
}
