"""What was asked of a fleet, number by number: the aim, the command that measures it, the figure, and whether that is
within the aim. The figures are read from the tables that were recorded, so this table can say nothing else."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.measures import encoding

BEGIN, END = "<!-- aims: begin -->", "<!-- aims: end -->"

_SECTION: Final = re.compile(r"<!-- (?P<kind>[^>]+): begin -->(?P<body>.*?)<!-- (?P=kind): end -->", re.S)
_NUMBER: Final = re.compile(r"-?[\d,]+(?:\.\d+)?")
_RATIO: Final = re.compile(r"\(\*\*([\d.]+)\*\*\)")

Rows = dict[str, dict[str, str]]


@dataclass(frozen=True)
class Cell:
    """A number of each recorded table whose title begins so."""

    title: str
    row: str
    column: str
    ratio: bool = False
    """The ratio beside the number. `column` then ends with what it is to: 'ms per turn (/ floor)'."""
    minus: str = ""
    """Less that of this row."""
    times: float = 1.0

    def values(self, tables: Sequence[tuple[str, Rows]]) -> Iterator[float]:
        for title, rows in tables:
            if title.startswith(self.title) and (own := self._number(rows, self.row)) is not None:
                other = self._number(rows, self.minus) if self.minus else 0.0
                if other is not None:
                    yield (own - other) * self.times

    def _number(self, rows: Rows, row: str) -> float | None:
        written = rows.get(row, {}).get(self.column, "")
        found = _RATIO.search(written) if self.ratio else _NUMBER.search(written)
        return float(found[found.lastindex or 0].replace(",", "")) if found else None


@dataclass(frozen=True)
class Aim:
    part: int
    """Of what was asked."""
    what: str
    asked: str
    command: str
    cells: tuple[Cell, ...] = ()
    most: float | None = None
    least: float | None = None
    form: str = "g"
    tested: str = ""
    """If a test holds it: what it says."""

    def figure(self, tables: Sequence[tuple[str, Rows]]) -> str:
        """Of each cell the number, or the range of those recorded."""
        spans = [[*cell.values(tables)] for cell in self.cells]
        return self.tested or ", ".join(self._span(span) for span in spans) or "-"

    def reached(self, tables: Sequence[tuple[str, Rows]]) -> str:
        if self.tested:
            return "yes (a test)"
        spans = [[*cell.values(tables)] for cell in self.cells]
        if not all(spans):
            return "not measured"
        if self.most is None and self.least is None:
            return "measured"
        within = [self._within(value) for span in spans for value in span]
        return "yes" if all(within) else "in part" if any(within) else "**no**"

    def _within(self, value: float) -> bool:
        return (self.most is None or value <= self.most) and (self.least is None or value >= self.least)

    def _span(self, span: Sequence[float]) -> str:
        low, high = (format(one(span), self.form) if span else "-" for one in (min, max))
        return low if low == high else f"{low} to {high}"


def _python(measure: str) -> str:
    return f"`python -m benchmarks {measure}`"


def _python_against(options: str) -> str:
    return f"`python -m benchmarks.against ee82d3d5 {options}`"


def _test(file: str, name: str = "") -> str:
    return f'`make test ARGS="{file}{f" -k {name}" if name else ""}"`'


_LATENCY, _SLOW, _TEXT, _WATCHERS = "Latency: ", "Actions of slow turns", "Events: a streamed", "Watchers of one"
_LIMITS, _KILL, _TOOL = "Providers' limits", "A kill within a workflow task", "Actions of a long tool"
_LENGTHS, _ENCODING = "What a turn costs by the length", "Encoding and writing"
_CHECKS, _SCALE, _MILLION = "Before a deploy", "Load", "A million conversations a day"
_HELD = "KB of the worker's memory each (/ floor_waiting)"
_COLD = "s of CPU for 60 conversations of 50 turns"
_TO_TEXT = "token to client, median ms (/ workflow_streams)"
_TO_WATCHER = "word to watcher, median ms"
_EVENTS = "history events (/ workflow_streams)"
_ACTIONS = "actions, 20 turns of 8 s"
_TEN = "actions, 10 minutes, worked out"


def _fleets(column: str) -> tuple[Cell, ...]:
    return tuple(Cell(_LIMITS, workers, column) for workers in ("1", "4", "8"))


AIMS: Final = (
    Aim(
        1,
        "a turn whose quick read tool runs locally, of the floor's",
        "at most 0.85",
        _python("latency"),
        (Cell(_LATENCY, "everturn_local", "ms per turn (/ floor)", ratio=True),),
        most=0.85,
    ),
    Aim(
        1,
        "any other turn, of floor_http's",
        "at most 1.05",
        _python("latency"),
        (Cell(_LATENCY, "everturn", "ms per turn (/ floor_http)", ratio=True),),
        most=1.05,
    ),
    Aim(
        1,
        "8 parallel calls, of the floor's",
        "at most 0.85",
        _python("parallel"),
        (Cell("8 calls at once", "everturn", "ms per turn (/ floor)", ratio=True),),
        most=0.85,
    ),
    Aim(
        1,
        "start-up, of the floor's",
        "at most 1.4",
        _python("startup"),
        (Cell("Start-up", "everturn", "seconds (/ floor)", ratio=True),),
        most=1.4,
    ),
    Aim(
        1,
        "`reply()` once more after 150 turns, ms of CPU",
        "read from the end (it took 65)",
        _python("reading"),
        (Cell("What is read again", "reply(), again", "CPU ms"),),
        most=65,
    ),
    Aim(
        1,
        "60 conversations of 50 turns on a cold worker, s of CPU: replayed; as a worker does it",
        "at most 3",
        f"{_python('replay')}, {_python('reading')}",
        (Cell("Replay", "everturn", _COLD), Cell("What is read again", "a conversation, cold", "CPU ms", times=0.06)),
        most=3,
        form=".1f",
    ),
    Aim(
        1,
        "turns that read more than 64 KB, two workers, 6 calls a reply, %",
        "at most 5",
        _python("reading"),
        (Cell("What is read again", "a turn with 6 calls, two workers", "turns that read over 64 KB"),),
        most=5,
    ),
    Aim(
        1,
        "a kill within a workflow task, s: started by the client; by the Temporal CLI",
        "at most 5",
        _python("task_kill"),
        (Cell(_KILL, "everturn", "seconds, median"), Cell(_KILL, "everturn_by_cli", "seconds, median")),
        most=5,
    ),
    Aim(
        2,
        "actions of 20 turns of 8 s, thrifty",
        "at most 45",
        _python("slow_turns"),
        (Cell(_SLOW, "everturn_thrifty", _ACTIONS),),
        most=45,
    ),
    Aim(
        2,
        "then goes on elsewhere after a kill, s",
        "at most 15",
        _python("resume"),
        (Cell("Resume", "everturn_thrifty", "seconds, median"),),
        most=15,
    ),
    Aim(
        2,
        "actions of a 10-minute tool, thrifty (worked out from a shorter one)",
        "fewer than the 400 it took",
        _python("long_tool"),
        (Cell(_TOOL, "everturn_thrifty", _TEN),),
        most=400,
        form=".0f",
    ),
    Aim(
        2,
        "the same, quick",
        "as it was",
        _python("long_tool"),
        (Cell(_TOOL, "everturn_quick", _TEN),),
        form=".0f",
    ),
    Aim(
        2,
        "streamed text at the client, median ms: Redis; HTTP",
        "at most 20",
        _python("events"),
        (Cell(_TEXT, "everturn_redis", _TO_TEXT), Cell(_TEXT, "everturn_http", _TO_TEXT)),
        most=20,
    ),
    Aim(
        2,
        "history events more for it: Redis; HTTP",
        "0",
        _python("events"),
        tuple(Cell(_TEXT, lane, _EVENTS, minus="everturn") for lane in ("everturn_redis", "everturn_http")),
        most=0,
    ),
    Aim(
        2,
        "actions more for it, of 20 turns of 8 s, thrifty, HTTP (a turn over 10 s has a heartbeat)",
        "0",
        _python("slow_turns"),
        (Cell(_SLOW, "everturn_thrifty_streamed_http", _ACTIONS, minus="everturn_thrifty"),),
        most=0,
    ),
    Aim(
        2,
        "streamed text at each of 1,000 watchers of a conversation in one process, median ms: Redis; HTTP",
        "at most 20",
        _python("watchers"),
        tuple(
            Cell(_WATCHERS, f"{lane}, 1000 in one process", "word to watcher, median ms") for lane in ("redis", "http")
        ),
        most=20,
    ),
    Aim(
        2,
        "the same, each with a connection of its own, HTTP",
        "at most 20",
        _python("watchers"),
        (Cell(_WATCHERS, "http, 1000 connections", _TO_WATCHER),),
        most=20,
    ),
    Aim(
        2,
        "the cursors of streamed text after a kill",
        "hold",
        _test("tests/workflows/test_live_lanes.py", "kill"),
        tested="they hold",
    ),
    Aim(
        3,
        "of a provider's rate used, %: 1, 4, 8 workers",
        "at least 90",
        _python("limits"),
        _fleets("of the rate"),
        least=90,
    ),
    Aim(3, "answers of 429 for 100 replies", "at most 5", _python("limits"), _fleets("429s for 100 replies"), most=5),
    Aim(3, "p99 of the turns, of the median", "at most 3", _python("limits"), _fleets("p99 / median"), most=3),
    Aim(3, "stalled", "0", _python("limits"), _fleets("stalled"), most=0),
    Aim(
        4,
        "five conversations of B behind 300 of A, with `tenant=`, s",
        "9 to 11 (it was 91 to 116)",
        _python("tenants"),
        (
            Cell(
                "A small tenant behind a large one",
                "behind 300 of A, both with `tenant=`",
                "five conversations of B took, median",
            ),
        ),
        most=11,
    ),
    Aim(
        4,
        "updates of a tenant's budget for an answer of 20 turns",
        "at its beginning, at its end, every so many turns (it was 21)",
        _test("tests/workflows/test_tenant_budgets.py", "twenty"),
        tested="3",
    ),
    Aim(
        5,
        "conversations a second: `replay --query`; `doctor --against`",
        "more than 25",
        _python("deploy_checks"),
        (
            Cell(_CHECKS, "replay --query", "conversations a second"),
            Cell(_CHECKS, "doctor --against", "conversations a second"),
        ),
        least=25,
    ),
    Aim(
        5,
        "payments that run again by themselves after a database was restored, with `restored_at`",
        "0 (it was 13)",
        _test("tests/workflows/test_restored.py"),
        tested="0",
    ),
    Aim(
        6,
        "turns a second on a cluster of two cores: 1, 2, 4 workers",
        "measured",
        _python("scale"),
        tuple(Cell(_SCALE, workers, "turns/s") for workers in ("1", "2", "4")),
    ),
    Aim(
        6,
        "the model, off from the points, %",
        "checked",
        _python("scale"),
        tuple(Cell("The model and the points", workers, "off by") for workers in ("1", "2", "4")),
    ),
    Aim(
        6,
        "a million conversations a day: turns a second; events a second; GB of histories a day",
        "about 230; 2,800; 118",
        _python("scale"),
        tuple(Cell(_MILLION, row, "") for row in ("turns a second", "events a second", "GB of histories a day")),
        form=",.0f",
    ),
    *(
        Aim(
            7,
            f"a request of {mb} MB whose last turn is new, encoded, ms of CPU: Chat; Responses; Messages; Gemini",
            f"at most {most:g}",
            _python("encoding"),
            tuple(Cell(_ENCODING, name, f"ms at {mb} MB") for name in encoding.MODELS),
            most=most,
        )
        for mb, most in ((1.1, 1.0), (8.9, 8.0))
    ),
    *(
        Aim(
            7,
            f"CPU of a turn at {mb:g} MB, of one at 0.1 MB",
            f"at most {most:.2f}",
            _python_against("--lengths"),
            (Cell(_LENGTHS, "everturn", f"of that at 0.1 MB: {mb} MB"),),
            most=most,
        )
        for mb, most in ((2.0, 1.1), (8.0, 1.5))
    ),
    Aim(
        7,
        "bytes that a worker holds for each of a transcript's JSON, results of 4 KB",
        "at most 1.3",
        _test("tests/providers/test_encoded_messages.py", "in_memory_once"),
        tested="at most 1.3",
    ),
    Aim(
        7,
        "200 conversations with transcripts of 0.5 MB at once: turns a second, of those of ee82d3d5",
        "at least 1.5",
        _python_against("--at-once 200 --long-results 16 --rounds 2"),
        (Cell("Beside ee82d3d5: 200 conversations with", "everturn", "turns/s (/ everturn_before)", ratio=True),),
        least=1.5,
    ),
    Aim(
        7,
        "8 parallel calls, of the floor's",
        "at most 0.90",
        _python("parallel"),
        (Cell("8 calls at once", "everturn", "ms per turn (/ floor)", ratio=True),),
        most=0.9,
    ),
    Aim(
        7,
        "a worker's start until its first turn is done, of floor_http's",
        "at most 1.5",
        _python("startup"),
        (Cell("Start-up", "everturn", "until its turn is done (/ floor_http)", ratio=True),),
        most=1.5,
    ),
    Aim(
        7,
        "CPU of a short turn, of floor_http's",
        "at most 1.05",
        _python("latency"),
        (Cell(_LATENCY, "everturn", "worker CPU ms (/ floor_http)", ratio=True),),
        most=1.05,
    ),
    Aim(
        7,
        "what a worker holds of a conversation that waits for an approval, of a bare workflow that waits",
        "at most 2",
        _python("waiting"),
        (Cell("400 conversations that wait", "everturn_waiting", _HELD, ratio=True),),
        most=2,
    ),
)


def tables_of(page: str) -> list[tuple[str, Rows]]:
    """The recorded tables: title and rows, each row by the heads of its cells."""
    found = []
    for section in _SECTION.finditer(page):
        if section["kind"] != "aims":
            for part in re.split(r"^### ", section["body"], flags=re.M)[1:]:
                title, _, body = part.partition("\n")
                found.append((title, _rows(body)))
    return found


def _rows(body: str) -> Rows:
    lines = [line for line in body.splitlines() if line.startswith("|")]
    if len(lines) < 2:
        return {}
    heads = _cells(lines[0])[1:]
    written = [_cells(line) for line in lines[2:]]
    return {cells[0]: dict(zip(heads, cells[1:], strict=False)) for cells in written}


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def table(page: str) -> str:
    tables = tables_of(page)
    lines = ["| | what was asked for | aim | command | recorded | reached |", "| ---: | --- | --- | --- | ---: | --- |"]
    for aim in AIMS:
        cells = (str(aim.part), aim.what, aim.asked, aim.command, aim.figure(tables), aim.reached(tables))
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def write(path: Path) -> None:
    """Puts the table into the page, as its records have it now."""
    page = path.read_text()
    before, _, rest = page.partition(BEGIN)
    path.write_text(f"{before}{BEGIN}\n\n{table(page)}\n\n{END}{rest.partition(END)[2]}")
