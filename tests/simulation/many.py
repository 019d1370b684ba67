"""Many worlds, on all cores, and what came of them."""

from __future__ import annotations

import multiprocessing
import multiprocessing.connection
import signal
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count, islice
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from typing import TextIO

from tests.simulation.speed import alone
from tests.simulation.world import ALL_SITUATIONS, WILD, run, seeds_of

WORLDS_AT_A_TIME = 10
LIVES_OF_A_PROCESS = 5
"""So many times as many worlds: then another one takes its place, which costs less than to look for garbage."""
SILENT_SECONDS = 240.0
"""A world that goes round in circles is stopped by its own process, after some seconds of its own time: see clock.py. A
process that does not even do that is ended after so long."""
SHOWN = 20
BAR = 40


@dataclass(frozen=True)
class Batch:
    seed: int
    count: int = sys.maxsize
    """So many conversations, or a few more: the last world is lived through to its end."""
    minutes: float | None = None
    """No longer than this, or hardly, whether there were so many or not."""
    jobs: int | None = None
    fail_fast: bool = False
    chosen: tuple[int, ...] = ()
    """These seeds, in place of those from `seed` on."""
    situations: tuple[str, ...] = ()
    """The worlds that are about these, in place of ordinary ones: of each million, those from `seed` on."""

    def seeds(self) -> Iterator[int]:
        if self.situations and not self.chosen:
            return (seed for seed in seeds_of(self.situations) if seed % WILD >= self.seed % WILD)
        return iter(self.chosen) if self.chosen else count(self.seed)

    def __str__(self) -> str:
        if self.chosen:
            return f"the worlds of {len(self.chosen)} seeds"
        if len(self.situations) == len(ALL_SITUATIONS):
            about = f"all {len(ALL_SITUATIONS)} situations"
        else:
            about = f"the situations {', '.join(self.situations)}" if self.situations else "ordinary worlds"
        return f"{about}, from seed {next(self.seeds())} on"


@dataclass
class Report:
    asked: str = ""
    """What was to be run."""
    stopped: bool = False
    """Somebody broke it off: this is what was done until then."""
    worlds: int = 0
    conversations: int = 0
    """Each conversation's id that was begun: those that agents had with each other, and forks, as well."""
    seconds: float = 0.0
    virtual_seconds: float = 0.0
    broken: dict[int, list[str]] = field(default_factory=dict)
    """By seed: the invariants that did not hold."""
    counts: Counter[str] = field(default_factory=Counter)
    outcomes: Counter[str] = field(default_factory=Counter)

    def __str__(self) -> str:
        days = self.virtual_seconds / 86_400
        worlds = f"in {self.worlds:,} worlds, in {self.seconds:.0f} s, in which {days:,.1f} days went by"
        lines = [f"{self.conversations:,} conversations {worlds}", f"{self.asked}{self.stopped * ': broken off'}"]
        lines += [f"  {number:>12,}  {what}" for what, number in sorted(self.counts.items())]
        lines += [f"  {number:>12,}  ends of conversations: {how}" for how, number in sorted(self.outcomes.items())]
        for seed, broken in list(self.broken.items())[:SHOWN]:
            lines += [f"seed {seed}: {what}" for what in broken[:3]]
            lines.append(f"    step by step: make sim SEED={seed}")
        if len(self.broken) > SHOWN:
            lines.append(f"and {len(self.broken) - SHOWN} more")
        held = "every invariant held" if self.worlds else "no world was lived through"
        lines.append(f"BROKEN in {len(self.broken)} of {self.worlds}" if self.broken else held)
        return "\n".join(lines)


@dataclass(frozen=True)
class _Lived:
    seed: int
    broken: list[str]
    conversations: int
    counts: dict[str, int]
    seconds: float
    outcomes: list[str]


def live_through(
    batch: Batch, *, progress: TextIO | None = None, found: Callable[[str], None] = lambda _: None
) -> Report:
    """`found` is told at once of what is broken."""
    report, began = Report(str(batch)), time.monotonic()
    until = began + batch.minutes * 60 if batch.minutes else None
    try:
        for in_process in _in_processes(batch) if (batch.jobs or 1) > 1 else map(_live, batch.seeds()):
            _take(report, in_process)
            if in_process.broken:
                found(f"seed {in_process.seed}: {in_process.broken[0]}")
            report.seconds = time.monotonic() - began
            if progress:
                _draw(report, batch, progress)
            over = until is not None and time.monotonic() > until
            if over or report.conversations >= batch.count or (batch.fail_fast and report.broken):
                break
    except KeyboardInterrupt:
        report.stopped, report.seconds = True, time.monotonic() - began
    if progress:
        print(file=progress)
    return report


def _take(report: Report, one: _Lived) -> None:
    report.worlds += 1
    report.conversations += one.conversations
    report.virtual_seconds += one.seconds
    report.counts.update(one.counts)
    report.outcomes.update(one.outcomes)
    if one.broken:
        report.broken[one.seed] = one.broken


def _in_processes(batch: Batch) -> Iterator[_Lived]:
    seeds, jobs = batch.seeds(), min(batch.jobs or 1, -(-batch.count // WORLDS_AT_A_TIME))
    crew = [Process() for _ in range(jobs)]
    try:
        while True:
            for process in crew:
                if not process.seeds and (portion := [*islice(seeds, WORLDS_AT_A_TIME)]):
                    process.live_through(portion)
            busy = {process.results: process for process in crew if process.seeds}
            if not busy:
                return
            for results in multiprocessing.connection.wait([*busy], timeout=1.0):
                yield busy[results].next_result()  # type: ignore[index]
            for process in busy.values():
                process.end_if_silent()
    finally:
        for process in crew:
            process.end()


class Process:
    """One that lives through worlds and says what came of each. If it ends in the middle of one, or says nothing for
    long, that world is broken, and the next one has another process."""

    def __init__(self) -> None:
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(["tests.simulation.warm"])
        self._process: ForkServerProcess | None = None
        self._portions = 0
        self._silent_since = 0.0
        self.results: Connection
        self.seeds: deque[int] = deque()
        """Those that are to come: the first one's world is lived through now."""

    @property
    def pid(self) -> int:
        assert self._process
        assert self._process.pid
        return self._process.pid

    def live_through(self, seeds: Sequence[int]) -> None:
        if self._portions == LIVES_OF_A_PROCESS:
            self.end()
        if self._process is None:
            self._begin()
        self._portions += 1
        self._silent_since = time.monotonic()
        self.seeds.extend(seeds)
        with suppress(BrokenPipeError):  # it has ended: its first result says so
            self.results.send([*seeds])

    def next_result(self) -> _Lived:
        self._silent_since = time.monotonic()
        try:
            lived: _Lived = self.results.recv()
        except (EOFError, OSError):
            return self._died()
        self.seeds.popleft()
        return lived

    def end_if_silent(self) -> None:
        if self._process and self.seeds and time.monotonic() - self._silent_since > SILENT_SECONDS:
            self._process.kill()  # which its next result says

    def end(self) -> None:
        if self._process:
            self._process.kill()
            self._process.join()
            self.results.close()
            self._process = None

    def _begin(self) -> None:
        self.results, theirs = self._context.Pipe()
        self._process = self._context.Process(target=_serve, args=(theirs,), daemon=True)
        self._process.start()
        theirs.close()
        self._portions = 0

    def _died(self) -> _Lived:
        assert self._process
        self._process.join()
        seed, left = self.seeds[0], [*self.seeds][1:]
        what = f"its process ended in the middle of it, with exit code {self._process.exitcode}"
        self.end()
        self.seeds.clear()
        if left:
            self.live_through(left)
        return _Lived(seed, [what], 0, {}, 0.0, [])


def _serve(requests: Connection) -> None:
    """In a process of its own: lives through the worlds that it is sent, until nobody asks for more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever asks ends it
    alone(for_long=False)
    with suppress(EOFError, BrokenPipeError):
        while True:
            for seed in requests.recv():
                requests.send(_live(seed))


def _live(seed: int) -> _Lived:
    result = run(seed)
    return _Lived(seed, result.broken, result.conversations, result.counts, result.seconds, [*result.outcomes.values()])


def _draw(report: Report, batch: Batch, out: TextIO) -> None:
    done, of = (report.worlds, len(batch.chosen)) if batch.chosen else (report.conversations, batch.count)
    part = report.seconds / (batch.minutes * 60) if batch.minutes else done / of
    filled = min(BAR, int(BAR * part))
    rate = report.conversations / max(report.seconds, 0.001)
    bar = "█" * filled + "·" * (BAR - filled)
    out.write(f"\r{bar} {report.conversations:,} conversations, {rate:.0f}/s, {len(report.broken)} broken ")
    out.flush()
