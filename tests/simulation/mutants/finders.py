"""Who may find out that a copy's everturn is wrong: the simulation, or tests."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from tests.simulation.mutants.copies import Ran, begun, copied, run, simulate
from tests.simulation.world import situation_of, wild_seeds

SIMULATION_SECONDS = 3_600.0
TEST_SECONDS = 900.0

_UNIT_TESTS = [
    "drawn_mutants",
    "drawn_mutants_of_later",
    "strangers_mutants",
    "evaluations",
    "retry_delays",
    "short_runs",
    "durations",
    "web_ui",
    "recent_messages",
    "eviction_guard",
    "budgets",
    "payload_sizes",
    "plain_steps",
    "policy",
    "compaction",
    "early_decisions",
    "bounds_page",
    "activity_results",
    "approval_waits",
    "call_headers",
    "call_ledger",
    "cancellation",
    "cancelled_signals",
    "nexus_calls",
    "open_calls",
    "stalls_and_pauses",
    "sub_agent_calls",
    "tool_results",
    "user_activity_calls",
    "wait_notices",
    "state",
    "conversation_runs",
    "commands_of_people",
    "unreadable_inputs",
    "chains",
    "history_space",
    "sent_messages",
    "listed_states",
    "run_changes",
    "handlers_of_signals",
    "batch_collectors",
    "batch_waits",
    "workflow_traces",
    "webhook_events",
    "awaited_workers",
    "budget_workflows",
    "evaluation_workflows",
    "workflow_definitions",
    "activity_timeouts",
]
REPLAYS = (
    "tests/replay/test_expected.py",
    "tests/replay/test_histories.py",
    *(f"tests/unit/test_{name}.py" for name in _UNIT_TESTS),
)
"""Seconds, and no server."""

_WORKFLOW_TESTS = """
    conversation approvals steering limits continue_as_new waiting_across_runs one_state odd_moments too_late
    told_results decisions_in_time wait_reasons following sub_agents unreadable awaited_worker compaction
    what_is_said large full_inbox history_space worst_payloads idempotency_keys tool_retries reset revivals wire
"""
WORKFLOW_TESTS = tuple(f"tests/workflows/test_{name}.py" for name in _WORKFLOW_TESTS.split())
"""Those of the loop and of what its readers make of it, with a real server."""

_AIMED = {
    "user_activity_calls": "activity_tools nexus_tools typed_inputs awaited_worker",
    "activity_results": "unreadable activity_tools",
    "approvals": "approvals policies many_decisions",
    "awaited_worker": "awaited_worker no_worker",
    "call_headers": "activity_tools",
    "cancellation": "cancelled_replies steering",
    "batching/collector": "batches",
    "batching/waits": "batches",
    "call_ledger": "reset steering tool_retries",
    "chain": "reset revivals",
    "commands": "worst_payloads policies many_decisions decisions_in_time approvals steering",
    "continue_as_new": "continue_as_new worst_payloads large waiting_across_runs",
    "conversation_events": "webhooks",
    "conversation": "conversation limits what_is_said wire unreadable",
    "delivery_workflow": "webhooks",
    "early_decisions": "decisions_in_time too_late",
    "evaluations/collector": "evaluations",
    "evaluations/workflow": "evaluations",
    "message_dispatch": "full_inbox odd_moments unreadable",
    "history_space": "history_space worst_payloads large",
    "nexus_operations": "nexus_tools",
    "sent_messages": "full_inbox waiting_across_runs",
    "stalls_and_pauses": "steering wait_reasons decisions_in_time",
    "start_input": "real_starts start_transcript",
    "state": "steering limits conversation one_state",
    "subagents/workflow": "sub_agents ask_from_workflow",
    "budgets/workflow": "tenant_budgets budget_moves used_up",
    "timeouts": "awaited_worker tool_retries heartbeats",
    "tool_calls": "approvals policies told_results tool_retries handoffs hooks context_ask",
    "tool_results": "told_results guardrails",
    "tracing": "traces",
    "visibility": "listing searchable wait_reasons",
    "wait_notices": "wait_reasons ask_from_workflow",
    "web_ui": "history_in_the_web_ui",
}


def aimed_at(file: str) -> tuple[str, ...]:
    """The tests with a real server that are about this file of everturn's: a minute or two, and most drawn mutants that
    replays don't find. Empty if there are none."""
    path = Path(file).with_suffix("")
    names = _AIMED.get(path.name) or _AIMED.get(f"{path.parent.name}/{path.name}", "")
    return tuple(f"tests/workflows/test_{name}.py" for name in names.split())


_SEED = re.compile(r"seed (\d+)")


@dataclass(frozen=True)
class Found:
    where: str
    """The seed, or the test."""
    what: str
    """What is wrong, as the finder says it."""


class Sound:
    """Everturn as it is, in a process that is asked about one world after the other: most of what one takes is for the
    process to begin."""

    def __init__(self, folder: Path) -> None:
        self._process = begun(folder, ["-m", "tests.simulation.mutants.holds"])
        self._known: dict[int, bool] = {}
        self._asking = threading.Lock()

    def holds(self, seed: int) -> bool:
        with self._asking:
            if seed not in self._known:
                self._known[seed] = self._ask(seed)
            return self._known[seed]

    def _ask(self, seed: int) -> bool:
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(f"{seed}\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline().strip()
        assert answer in ("holds", "broken"), f"no word about seed {seed}: {answer!r}"
        return answer == "holds"

    def end(self) -> None:
        self._process.kill()
        self._process.communicate()


@contextmanager
def sound() -> Iterator[Sound]:
    with copied() as folder:
        asked = Sound(folder)
        try:
            yield asked
        finally:
            asked.end()


@dataclass(frozen=True)
class Simulation:
    """Up to `count` conversations, until one breaks an invariant."""

    count: int
    sound: Sound
    """Everturn as it is: a seed that breaks an invariant there, too, is passed over."""
    known: int | None = None
    """The seed that found it the last time: tried first."""
    situations: tuple[str, ...] = ()
    """In which it is looked for, of those worlds; empty: in all."""
    but_first: int = 0
    """So many of them are left out: they were tried before."""

    def find(self, folder: Path) -> Found | None:
        if self.known is not None and (found := self._broken(folder, [self.known])) and self._holds(self.known):
            return found
        left = self._seeds()
        while left and (found := self._broken(folder, left)):
            if not (broken := _SEED.fullmatch(found.where)):
                return found
            seed = int(broken[1])
            if self._holds(seed):
                return found
            left = left[left.index(seed) + 1 :]  # none of the mutant's doing
        return None

    def _seeds(self) -> list[int]:
        """Of so many worlds, those of its situations."""
        seeds = islice(wild_seeds(), self.but_first, self.count)
        return [seed for seed in seeds if not self.situations or situation_of(seed) in self.situations]

    def _holds(self, seed: int) -> bool:
        """In everturn as it is."""
        return self.sound.holds(seed)

    def _broken(self, folder: Path, seeds: Sequence[int]) -> Found | None:
        options = ["--fail-fast", "--jobs", "1", "--seeds", *map(str, seeds)]
        ran = simulate(folder, options, seconds=SIMULATION_SECONDS)
        if ran.status == 0:
            return None
        broken = re.search(rf"^({_SEED.pattern}): (.*)$", ran.output, re.M)
        return Found(broken[1], broken[3]) if broken else Found("no seed", _last_line(ran))


@dataclass(frozen=True)
class Tests:
    tests: Sequence[str]
    seconds: float = TEST_SECONDS

    def find(self, folder: Path) -> Found | None:
        options = [
            "-x",
            "-n0",
            "-rfE",
            "--tb=line",
            "--timeout=90",
            "-p",
            "no:cacheprovider",
            "-p",
            "no:hypothesispytest",
        ]
        ran = run(folder, ["-m", "pytest", *options, *self.tests], seconds=self.seconds)
        if ran.status == 0:
            return None
        failed = re.search(r"^(?:FAILED|ERROR) (\S+)(?: - (.*))?$", ran.output, re.M)
        return Found(failed[1], failed[2] or "") if failed else Found("its tests", _last_line(ran))


Finder = Simulation | Tests


def _last_line(ran: Ran) -> str:
    lines = [line for line in ran.output.splitlines() if line.strip()]
    return (lines[-1] if lines else "no word") if ran.status is not None else f"no end within {ran.seconds:.0f} s"
