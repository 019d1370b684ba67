"""What was measured, for people: Markdown tables, the JSON of a run, and the recorded numbers in RESULTS.md."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.contestants import ALL
from benchmarks.rig import RESULTS, ROOT

RECORD = ROOT / "benchmarks" / "RESULTS.md"
MARK = "<!-- Below: written by `python -m benchmarks --record`. -->"

Rows = dict[str, dict[str, Any]]
COLUMNS = {
    "latency_ms": "latency",
    "worker_cpu_ms": "worker CPU",
    "events": "events",
    "history_bytes": "history bytes",
}


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


def table(title: str, rows: Rows, *, against: tuple[str, ...]) -> str:
    """The measure `turns`: one line per contestant, with its latency as a ratio to each of `against`."""
    ratios = [f"latency / {name}" for name in against]
    heads = ["", *ratios, "quartiles", "ms", "worker CPU", "CPU ms", "events", "bytes"]
    lines = [f"### {title}", "", _line(heads), _line(["---", *["---:"] * (len(heads) - 1)])]
    for name, row in rows.items():
        low, high = row["latency_ratio_quartiles"]
        ratios = [f"**{row['latency_ms'] / rows[other]['latency_ms']:.2f}**" for other in against]
        cells = [name, *ratios, f"{low:.2f} to {high:.2f}", f"{row['latency_ms']:.1f}"]
        cells += [f"{row['worker_cpu_ratio']:.2f}", f"{row['worker_cpu_ms']:.1f}"]
        lines.append(_line([*cells, f"{row['events']:.1f}", f"{row['history_bytes']:,.0f}"]))
    return "\n".join(lines)


def losses(rows: Rows, *, name: str, against: tuple[str, ...]) -> str:
    """Where `name` is behind: one sentence each, from the numbers."""
    own = rows[name]
    lost = [
        f"- {what}: {own[key] / rows[other][key]:.2f} times {other}'s"
        for other in against
        for key, what in COLUMNS.items()
        if own[key] > rows[other][key] * 1.005
    ]
    return "\n".join([f"### Where {name} loses", "", *(lost or ["- nowhere, in this run"])])


def legend() -> str:
    return "\n".join(["### Who is who", "", *(f"- **{one.name}**: {one.what}" for one in ALL)])


def save(run: dict[str, Any]) -> Path:
    path = RESULTS / f"{datetime.now(UTC):%Y%m%d-%H%M%S}.json"
    path.write_text(json.dumps(run, indent=1))
    return path


def record(facts: dict[str, str], *sections: str) -> None:
    """Puts the run into RESULTS.md, below what people wrote there."""
    by_hand = RECORD.read_text().partition(MARK)[0].rstrip() if RECORD.exists() else "# Results"
    about = "\n".join(_line(cells) for cells in (["", ""], ["---", "---"], *([*fact] for fact in facts.items())))
    RECORD.write_text("\n\n".join([by_hand, MARK, about, *sections]) + "\n")


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
