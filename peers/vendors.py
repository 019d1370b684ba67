"""Vendors' SDKs: every member of their unions, held against their own types of requests

Items, blocks, events of streams and reasons to finish are made from the SDKs' types, read whole and streamed, and sent
back. With LATEST=1, what the newest releases have that the pinned ones lack is listed.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from peers.bench import Bench, NotInstalled

MINUTES = 15

ROOT = Path(__file__).parent.parent
PINNED = ("openai==3.52.0", "anthropic==2.11.0", "google-genai==3.4.0")
"""As in requirements.lock."""


async def run(bench: Bench) -> None:
    try:
        python = bench.python(*PINNED, str(ROOT))
    except NotInstalled as error:
        bench.row("vendors' SDKs", "", "every member of their unions", "not installed", str(error))
        return
    known: dict[str, set[str]] = {}
    if bench.latest:
        pinned = Bench(bench.folder / "pinned", bench.rows_file)
        pinned.folder.mkdir()
        known = {peer: names for peer, _, _, names in _rows(pinned.python(*PINNED, str(ROOT)))}
    for peer, ran, problems, names in _rows(python):
        version = bench.version(python, peer)
        bench.row(peer, version, ran, "wrong" if problems else "right", "; ".join(problems))
        if bench.latest and (new := names - known.get(peer, names)):
            bench.row(peer, version, f"new to us: {', '.join(sorted(new))}")


def _rows(python: Path) -> list[tuple[str, str, list[str], set[str]]]:
    done = subprocess.run(
        [python, "-m", "peers.sdk_members"], cwd=ROOT, capture_output=True, text=True, timeout=300, check=False
    )
    if done.returncode:
        raise RuntimeError(f"the SDKs' types could not be walked: {done.stderr[-600:]}")
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    names: dict[str, set[str]] = {}
    for row in rows:
        names.setdefault(row["peer"], set()).update(row["names"])
    return [(row["peer"], row["ran"], row["problems"], names[row["peer"]]) for row in rows]
