"""Draws the picture of a trace: a real conversation with an approval, a killed worker and a run that goes on as new.

    .venv/bin/python docs/picture_of_trace.py

The spans are those that a receiver of OTLP got from the workers; nothing in the picture is made up but its colours.
Look at the picture afterwards.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from pathlib import Path
from typing import Any

from everturn import Client
from everturn.devserver import DevServer
from everturn.testing import ScriptedModel, call, slow

DOCS = Path(__file__).parent
ROOT = DOCS.parent
sys.path.append(str(ROOT))

from tests.crash.workers import WorkerProcess  # noqa: E402 - it is not installed, but lies beside us
from tests.support.otlp import Received, Receiver  # noqa: E402
from tests.support.waiting import waiting  # noqa: E402

SCRIPT = [
    slow(call("look_up", {"order_id": "81"}), seconds=0.8),
    slow(call("pack", {"order_id": "81"}), seconds=0.6),
    slow(call("refund", {"order_id": "81", "cents": 3490}), seconds=0.9),
    slow(call("look_up", {"order_id": "82"}), seconds=0.5),
    slow(call("bookkeeper", {"message": "Write down 34.90 EUR."}), seconds=0.7),
    slow("All done.", seconds=0.6),
]
BOOKS = slow("Written down.", seconds=0.6)
THINKS_SECONDS = 3.0
"""How long the person takes."""

WIDTH, LABELS, ROW, TOP = 1000, 300, 26, 58
COLOURS = {
    "invoke_agent": "#7c6bd6",
    "chat": "#2b9e8f",
    "execute_tool": "#3b7dd8",
    "await_approval": "#e0a030",
}


STYLE = """<style>
text { font: 13px system-ui, sans-serif; fill: #222 }
.axis { font-size: 11px; fill: #666; text-anchor: middle }
.mark { font-size: 11px; text-anchor: middle }
.killed { stroke: #c0392b; fill: #c0392b }
.moved { stroke: #777; fill: #777 }
text.killed, text.moved { stroke: none }
.paper { fill: #fff; stroke: #ddd }
@media (prefers-color-scheme: dark) {
  text { fill: #ddd }
  .axis { fill: #aaa }
  .killed { stroke: #ff7b6b; fill: #ff7b6b }
  .moved { stroke: #aaa; fill: #aaa }
  .paper { fill: #1e1e24; stroke: #444 }
}
</style>"""


@dataclass(frozen=True)
class Recorded:
    spans: Sequence[Received]
    killed_at: float
    """Seconds since 1970."""


async def record(address: str, folder: Path) -> Recorded:
    """Holds the conversation on the Temporal server at this address."""
    with Receiver() as receiver, ScriptedModel(reply) as model:
        client = await Client.connect(address, task_queue="picture-of-trace", by="ann")
        environment = {
            "EVERTURN_TRACES": "on",
            "OTEL_EXPORTER_OTLP_ENDPOINT": receiver.endpoint,
            "TRACED_FOLDER": str(folder),
            "TRACED_EVENTS": "35",
        }
        workers: list[WorkerProcess] = []

        def start() -> WorkerProcess:
            agents = "tests/support/traced_agents.py"
            workers.append(WorkerProcess(client, model, folder, agents=agents, environment=environment))
            return workers[-1]

        try:
            first = start()
            conversation = await client.start("clerk", "Order 81 arrived broken.", id="order-81")
            await asyncio.to_thread(first.process.wait, 60)
            killed_at = time.time()
            start()
            await waiting(conversation)
            await asyncio.sleep(THINKS_SECONDS)
            await conversation.approve()
            await conversation.reply()
            await conversation.outcome()
        finally:
            for worker in workers:
                worker.kill()
        receiver.check()
        return Recorded(tuple(receiver.spans), killed_at)


def reply(messages: list[dict[str, Any]]) -> Any:
    if "Keep the books." in str(messages[0]):
        return BOOKS
    return SCRIPT[sum(message["role"] == "assistant" for message in messages)]


def draw(recorded: Recorded) -> str:
    """The spans as an SVG: a row each, as wide as it lasted."""
    rows = _rows(recorded.spans)
    begin = min(span.begin for span in recorded.spans)
    end = max(span.end for span in recorded.spans)
    height = TOP + ROW * len(rows) + 40

    def x(at: float) -> float:
        return LABELS + (WIDTH - LABELS - 90) * (at - begin) / (end - begin)

    bars = [_bar(span, depth, TOP + ROW * row, x) for row, (span, depth) in enumerate(rows)]
    marks = [_mark(x(recorded.killed_at), "the worker is killed", "killed", height)]
    marks += [_mark(x(at), "continue-as-new", "moved", height) for at in _new_runs(recorded.spans)]
    seconds = [
        f'<text x="{x(begin + at):.1f}" y="{height - 12}" class="axis">{at} s</text>'
        for at in range(0, int(end - begin) + 1, 2)
    ]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" '
            f'height="{height}" role="img">',
            "<title>A trace of one conversation</title>",
            f"<desc>{escape(', '.join(f'{span.name}: {_lasted(span)}' for span, _ in rows))}</desc>",
            STYLE,
            f'<rect width="{WIDTH}" height="{height}" rx="8" class="paper"/>',
            *marks,
            *bars,
            *seconds,
            "</svg>\n",
        ]
    )


def _rows(spans: Sequence[Received]) -> list[tuple[Received, int]]:
    """Each span below its parent, in the order of their beginnings, and how deep it is."""
    ids = {span.span_id for span in spans}

    def below(parent: str, depth: int) -> list[tuple[Received, int]]:
        children = [s for s in spans if (s.parent_id if s.parent_id in ids else "") == parent]
        found = []
        for child in sorted(children, key=lambda span: span.begin):
            found += [(child, depth), *below(child.span_id, depth + 1)]
        return found

    return below("", 0)


def _new_runs(spans: Sequence[Received]) -> list[float]:
    """When a run of the conversation went on as the next one: between its last span and the next one's first."""
    main = [span for span in spans if span.attributes.get("temporalWorkflowID") == "order-81"]
    by_run: dict[str, list[Received]] = {}
    for span in sorted(main, key=lambda span: span.begin):
        if run := span.attributes.get("temporalRunID"):
            by_run.setdefault(run, []).append(span)
    runs = list(by_run.values())
    return [(max(s.end for s in a) + min(s.begin for s in b)) / 2 for a, b in pairwise(runs)]


def _bar(span: Received, depth: int, y: float, x: Any) -> str:
    colour = COLOURS.get(span.name.split()[0], "#999")
    left, width = x(span.begin), max(2.0, x(span.end) - x(span.begin))
    attempt = span.attributes.get("everturn.attempt", 1)
    again = f" (attempt {attempt})" if attempt > 1 else ""
    return (
        f'<text x="{14 + 16 * depth}" y="{y + 16}">{escape(span.name)}{again}</text>'
        f'<rect x="{left:.1f}" y="{y + 4}" width="{width:.1f}" height="16" rx="3" fill="{colour}"/>'
        f'<text x="{left + width + 6:.1f}" y="{y + 16}" class="axis" style="text-anchor: start">{_lasted(span)}</text>'
    )


def _lasted(span: Received) -> str:
    return f"{span.seconds:.1f} s" if span.seconds >= 1 else f"{span.seconds * 1000:.0f} ms"


def _mark(x: float, what: str, kind: str, height: float) -> str:
    return (
        f'<line x1="{x:.1f}" y1="{TOP - 12}" x2="{x:.1f}" y2="{height - 28}" class="{kind}" stroke-dasharray="4 3"/>'
        f'<text x="{x:.1f}" y="{TOP - 20}" class="mark {kind}">{what}</text>'
    )


if __name__ == "__main__":

    async def main() -> None:
        picture = DOCS / "pictures" / "trace.svg"
        with tempfile.TemporaryDirectory() as folder:
            async with DevServer() as server:
                picture.write_text(draw(await record(server.address, Path(folder))))
        print(f"{picture.name}: {picture.stat().st_size // 1024} KB")

    asyncio.run(main())
