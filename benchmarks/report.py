"""What was measured, for people: Markdown tables, the JSON of a run, and the recorded numbers in RESULTS.md."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

from benchmarks import aims, peers
from benchmarks.contestants import ALL, EVERTURN, EVERTURN_LOCAL, FLOOR, FLOOR_HTTP, NAIVE
from benchmarks.measures import Column, Measured, Rows
from benchmarks.rig import RESULTS, ROOT

RECORD = ROOT / "benchmarks" / "RESULTS.md"
PLOTS = ROOT / "benchmarks" / "plots"
WORTH_SAYING = 1.02
"""Behind by less than this is noise."""


@dataclass(frozen=True)
class Goal:
    measure: str
    key: str
    what: str
    bound: str
    better: Literal["low", "high"] = "low"


GOALS = (
    Goal("latency", "latency_ms", "latency per turn", "at most 1.10"),
    Goal("throughput", "rate_50", "throughput of 50 conversations", "at least 0.85", "high"),
    Goal("throughput", "rate_200", "throughput of 200 conversations", "at least 0.85", "high"),
)


def machine(server: Path) -> dict[str, str]:
    """What the numbers depend on."""
    asked = subprocess.run([server, "--version"], capture_output=True, text=True, timeout=10, check=True)
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "everturn": _revision(),
        "cpu": f"{os.cpu_count()} x {_cpu_name()}",
        "load before": f"{os.getloadavg()[0]:.2f}",
        "system": platform.platform(terse=True),
        "python": platform.python_version(),
        "temporalio": version("temporalio"),
        "temporal": asked.stdout.strip().removeprefix("temporal version "),
    }


def table(measured: Measured) -> str:
    heads = ["", *(_head(column) for column in measured.columns)]
    lines = [f"### {measured.title}", "", _line(heads), _line(["---", *["---:"] * len(measured.columns)])]
    for name, row in measured.rows.items():
        lines.append(_line([name, *(_cell(measured.rows, row, column) for column in measured.columns)]))
    return "\n".join([*lines, *(f"\n{note}" for note in measured.notes)])


def losses(every: list[Measured], *, name: str = EVERTURN.name) -> str:
    """Where `name` is behind somebody: one line each, from the numbers."""
    lost = [line for measured in every if name in measured.rows for line in _losses(measured, name)]
    return "\n".join([f"### Where {name} loses", "", *(lost or ["- nowhere, in this run"])])


def goals(every: dict[str, Measured], *, name: str = EVERTURN.name) -> str:
    """What we want to be, against both floors and the naive loop, and whether the libraries are behind."""
    beside = (FLOOR_HTTP.name, FLOOR.name, NAIVE.name)
    libraries = {one.name for one in ALL if one.python == peers.PYTHON}
    heads = ["", *(f"/ {one}" for one in beside), "goal, / floor_http", "ahead of both libraries"]
    lines = ["### The first goals", "", _line(heads), _line(["---", *["---:"] * 5])]
    for goal in GOALS:
        rows = every[goal.measure].rows if goal.measure in every else {}
        values = {one: row[goal.key] for one, row in rows.items() if row.get(goal.key)}
        if name in values:
            own = values[name]
            ratios = [f"{own / values[one]:.2f}" if one in values else "-" for one in beside]
            others = [value for one, value in values.items() if one in libraries]
            ahead = all(own < value if goal.better == "low" else own > value for value in others)
            lines.append(_line([goal.what, *ratios, goal.bound, "yes" if ahead else "no"]))
    return "\n".join(lines)


def legend() -> str:
    return "\n".join(["### Who is who", "", *(f"- **{one.name}**: {one.what}" for one in (*ALL, EVERTURN_LOCAL))])


def save(kind: str, facts: dict[str, str], every: dict[str, Any]) -> Path:
    """`every`: dataclasses by name."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{kind}-{datetime.now(UTC):%Y%m%d-%H%M%S}.json"
    path.write_text(json.dumps({"machine": facts, **{name: asdict(one) for name, one in every.items()}}, indent=1))
    return path


def draw(path: Path) -> None:
    """The plots of a saved run, in the peers' environment."""
    subprocess.run([peers.PYTHON, "-m", "benchmarks.plots", str(path)], cwd=ROOT, check=True, timeout=60)
    print(f"Drawn into {PLOTS}")


def record(kind: str, facts: dict[str, str], *sections: str, path: Path = RECORD) -> None:
    """Puts a run into RESULTS.md, or another page, in the place of the last one of its kind."""
    begin, end = f"<!-- {kind}: begin -->", f"<!-- {kind}: end -->"
    before, _, rest = path.read_text().partition(begin)
    after = rest.partition(end)[2]
    about = "\n".join(_line(cells) for cells in (["", ""], ["---", "---"], *([*fact] for fact in facts.items())))
    body = "\n\n".join([begin, about, *sections, end])
    path.write_text(f"{before.rstrip()}\n\n{body}\n{after.rstrip()}".rstrip() + "\n")
    if aims.BEGIN in before + after:
        aims.write(path)


def _head(column: Column) -> str:
    return f"{column.head} (/ {column.against})" if column.against else column.head


def _cell(rows: Rows, row: dict[str, Any], column: Column) -> str:
    value = row.get(column.key)
    if value is None:
        return "-"
    text = format(value, column.form)
    base = rows.get(column.against, {}).get(column.key)
    return f"{text} (**{value / base:.2f}**)" if base else text


def _losses(measured: Measured, name: str) -> Iterator[str]:
    told = set()
    for column in measured.columns:
        own = measured.rows[name].get(column.key)
        if column.better is None or own is None or column.key in told:
            continue
        told.add(column.key)
        for other, row in measured.rows.items():
            value = row.get(column.key)
            if other.startswith(name) or not value:  # itself, and what is only set otherwise
                continue
            behind = own / value if column.better == "low" else value / own
            if behind > WORTH_SAYING:
                what = f"{measured.title.partition(':')[0]}, {column.head}"
                yield f"- {what}: {own / value:.2f} times {other}'s"


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _revision() -> str:
    git = ["git", "-C", str(ROOT), "describe", "--always", "--dirty"]
    found = subprocess.run(git, capture_output=True, text=True, timeout=10, check=False).stdout.strip()
    return f"{version('everturn')} ({found})" if found else version("everturn")


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except FileNotFoundError:
        return platform.processor() or platform.machine()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())
