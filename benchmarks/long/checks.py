"""What a long run found: facts, and the bounds that they have to keep (issue 4, "It must show")."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from benchmarks.histories import Run
from benchmarks.replaying import replayer
from benchmarks.rig import Rig


@dataclass(frozen=True)
class Check:
    what: str
    value: Any
    form: str = ","
    bound: str = ""
    """What it has to be, in words; empty where it is only told."""
    kept: bool = True


@dataclass
class Report:
    title: str
    checks: list[Check] = field(default_factory=list)

    def tell(self, what: str, value: Any, form: str = ",") -> None:
        self.checks.append(Check(what, value, form))

    def most(self, what: str, value: float, bound: float, form: str = ",") -> None:
        self.checks.append(Check(what, value, form, f"at most {bound:,}", value <= bound))

    def same(self, what: str, value: Any, wanted: Any) -> None:
        self.checks.append(Check(what, value, "", str(wanted), value == wanted))

    @property
    def kept(self) -> bool:
        return all(check.kept for check in self.checks)

    def markdown(self) -> str:
        lines = [f"### {self.title}", "", "|  |  | must be |  |", "| --- | ---: | ---: | --- |"]
        for check in self.checks:
            verdict = "" if not check.bound else "ok" if check.kept else "**MISSED**"
            lines.append(f"| {check.what} | {check.value:{check.form}} | {check.bound} | {verdict} |")
        return "\n".join(lines)


async def transcript_of(rig: Rig, conversation_id: str) -> list[str]:
    """The messages as JSON, read from the histories."""
    from benchmarks.contestants import everturn_client

    messages = await everturn_client(rig.client).conversation(conversation_id).transcript()
    return [message.model_dump_json() for message in messages]


async def longest_replay(runs: list[Run], clock: Callable[[], float]) -> float:
    """Seconds of the slowest run: a replay is one workflow task."""
    slowest = 0.0
    for run in runs:
        started = clock()
        await replayer("everturn").replay_workflow(run.history)
        slowest = max(slowest, clock() - started)
    return slowest


def requests_of(model_log: str) -> Iterator[tuple[float, int]]:
    """The time and the turn of each request that the model got."""
    for line in model_log.splitlines():
        at, turn = line.split()
        yield float(at), int(turn)
