"""Draws a saved run, with matplotlib from the peers' environment: `python -m benchmarks.plots RESULTS.json`.

Run by `python -m benchmarks`; not to be imported elsewhere.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import matplotlib as mpl  # type: ignore[import-not-found]

mpl.use("Agg")
import matplotlib.pyplot as plt  # type: ignore[import-not-found]

PLOTS = Path(__file__).parent / "plots"
BARS = {
    "latency": [("latency_ms", "ms per turn")],
    "events": [
        ("median_ms", "token to client, median ms"),
        ("p95_ms", "95th ms"),
        ("history_events", "history events"),
        ("history_kb", "history KB"),
    ],
    "throughput": [
        ("rate_50", "turns/s, 50 conversations"),
        ("rate_200", "turns/s, 200 conversations"),
        ("cpu_200", "worker CPU, ms per turn"),
        ("rss_200", "worker peak MB"),
    ],
    "startup": [("seconds", "seconds")],
    "resume": [("seconds", "seconds")],
}
OURS, OTHERS = "#1a7f5a", "#9aa5b1"


def bars(name: str, measured: dict[str, Any]) -> None:
    panels = BARS[name]
    figure, axes = plt.subplots(1, len(panels), figsize=(4.2 * len(panels), 3), squeeze=False)
    for axis, (key, label) in zip(axes[0], panels, strict=True):
        rows = {who: row[key] for who, row in reversed(measured["rows"].items()) if row.get(key) is not None}
        drawn = axis.barh([*rows], [*rows.values()], color=[OURS if who == "everturn" else OTHERS for who in rows])
        axis.bar_label(drawn, fmt="%.3g", padding=2)
        axis.margins(x=0.15)
        axis.set_xlabel(label)
    figure.suptitle(measured["title"], fontsize=10)
    _save(figure, name)


def history(measured: dict[str, Any]) -> None:
    figure, axis = plt.subplots(figsize=(7, 4))
    for who, marks in measured["samples"].items():
        turns, sizes = [mark[0] for mark in marks], [mark[2] / 1e6 for mark in marks]
        axis.plot(turns, sizes, label=who, linewidth=2.5 if who == "everturn" else 1.5)
    axis.axhline(50, color="#b33", linestyle=":", label="Temporal ends it")
    axis.set(yscale="log", xlabel="turns, each with a result of 4 KB", ylabel="MB of history", title=measured["title"])
    axis.legend()
    _save(figure, "history")


LABELS = {
    "floor_http": "a bare workflow, HTTP",
    "everturn_before": "everturn, earlier build",
    "pydantic_ai": "pydantic-ai",
    "openai_agents": "openai-agents",
}


def lengths(measured: dict[str, Any]) -> None:
    figure, axes = plt.subplots(1, 2, figsize=(9, 3.5))
    for axis, key, label in zip(axes, ("cpu_", "latency_"), ("worker CPU, ms per turn", "ms per turn"), strict=True):
        for who, row in measured["rows"].items():
            marks = [(float(name.removeprefix(key)), value) for name, value in row.items() if name.startswith(key)]
            name = LABELS.get(who, who)
            axis.plot(*zip(*marks, strict=True), marker="o", label=name, linewidth=2.5 if who == "everturn" else 1.5)
        axis.set(xscale="log", yscale="log", xlabel="MB of transcript", ylabel=label)
        axis.set_xticks([0.1, 0.5, 2, 8], labels=["0.1", "0.5", "2", "8"])
        ticks = [10, 20, 50, 100, 200]
        axis.set_yticks(ticks, labels=[str(tick) for tick in ticks])
        axis.minorticks_off()
    axes[1].legend(fontsize=8)
    figure.suptitle(measured["title"], fontsize=10)
    _save(figure, "lengths")


def _save(figure: Any, name: str) -> None:
    PLOTS.mkdir(exist_ok=True)
    figure.tight_layout()
    figure.savefig(PLOTS / f"{name}.png", dpi=110)
    plt.close(figure)


if __name__ == "__main__":
    run = json.loads(Path(sys.argv[1]).read_text())
    for name in BARS.keys() & run.keys():
        bars(name, run[name])
    if "history" in run:
        history(run["history"])
    if "lengths" in run:
        lengths(run["lengths"])
