"""`make peers`: runs everturn with real peers, part by part, and writes docs/works-with.md.

ONLY=vendors,mcp runs these parts; the page keeps the rows of the others. LATEST=1 takes the newest releases in place of
the pinned ones, and leaves the page as it is. The exit status is 1 if a row is wrong.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from types import ModuleType

from peers.bench import Bench, Row

HERE = Path(__file__).parent
PAGE = HERE.parent / "docs" / "works-with.md"
NOT_PARTS = frozenset({"__init__", "__main__", "bench"})

HEAD = """# Works with

Real peers that everturn was run with, on one machine: `make peers` installs them, runs everturn with each, and writes
this page. `ONLY=vendors,mcp` runs some of its parts; `LATEST=1` takes the newest releases in place of the pinned ones,
and prints what it sees without changing this page. No row needs a key: models are played by small servers, or made on
the spot.

**right**: all of it worked as it should. **differs**: it does not, and the row says why. **not installed**: it could
not be tried here.

Not tried by this command so far: SGLang (what is known of it is from its source, its threads and recordings); pages in
a real browser (React runs in jsdom here).
"""


def parts() -> list[str]:
    """The names of all parts: the modules of this folder that have a `run`."""
    names = sorted(path.stem for path in HERE.glob("*.py") if path.stem not in NOT_PARTS)
    return [name for name in names if hasattr(import_module(f"peers.{name}"), "run")]


def main() -> int:
    if sys.argv[1:2] == ["--part"]:
        return _run_part(sys.argv[2], Path(sys.argv[3]))
    known = parts()
    wanted = [name for name in os.environ.get("ONLY", "").replace(" ", ",").split(",") if name] or known
    if unknown := [name for name in wanted if name not in known]:
        print(f"make peers has no part {', '.join(unknown)}; it has {', '.join(known)}.", file=sys.stderr)
        return 2
    latest = os.environ.get("LATEST") == "1"
    wrong = 0
    for name in wanted:
        module = import_module(f"peers.{name}")
        print(f"{name}: {_title(module)}", flush=True)
        rows = _rows_of(name, minutes=module.MINUTES)
        wrong += sum(row.result == "wrong" for row in rows)
        if not latest:
            page = PAGE.read_text() if PAGE.exists() else ""
            PAGE.write_text(page_with(page, name, section(name, _title(module), rows, datetime.now(UTC)), known))
    print(f"{wrong} wrong" if wrong else "nothing wrong")
    return 1 if wrong else 0


def section(name: str, title: str, rows: Sequence[Row], when: datetime) -> str:
    """A part's rows as a table. What was right with a peer is one row."""
    lines = [f"<!-- part: {name} -->", f"## {title}", "", f"`make peers ONLY={name}`, {when:%Y-%m-%d}.", ""]
    lines += ["| peer | version | what was run | result |", "|---|---|---|---|"]
    for (peer, version, result), ran in _together(rows).items():
        lines.append(f"| {' | '.join(map(_cell, (peer, version, '; '.join(ran), result)))} |")
    return "\n".join([*lines, "<!-- end -->", ""])


def _together(rows: Sequence[Row]) -> dict[tuple[str, str, str], list[str]]:
    """What was run, by peer, version and result."""
    ran: dict[tuple[str, str, str], list[str]] = {}
    for row in rows:
        result = f"**{row.result}**: {row.note}" if row.note else row.result
        ran.setdefault((row.peer, row.version, result), []).append(row.ran)
    return ran


def page_with(page: str, name: str, text: str, known: Sequence[str]) -> str:
    """The page with this part's section in it; those of parts that are no more are left out."""
    sections = {name: text}
    for other in known:
        begin, end = f"<!-- part: {other} -->", "<!-- end -->\n"
        if other != name and begin in page:
            sections[other] = begin + page.partition(begin)[2].partition(end)[0] + end
    return "\n".join([HEAD, *(sections[other] for other in sorted(sections))])


def _rows_of(name: str, *, minutes: float) -> list[Row]:
    """Runs a part in a process group of its own, ends all of it, and gives its rows."""
    with tempfile.NamedTemporaryFile(suffix=".jsonl") as rows_file:
        process = subprocess.Popen(
            [sys.executable, "-m", "peers", "--part", name, rows_file.name], cwd=HERE.parent, start_new_session=True
        )
        problem = ""
        try:
            if process.wait(minutes * 60):
                problem = f"the part ended with {process.returncode}: see its output"
        except subprocess.TimeoutExpired:
            problem = f"the part took longer than {minutes:g} minutes"
        finally:
            _end_group(process)
        rows = [Row(**json.loads(line)) for line in Path(rows_file.name).read_text().splitlines()]
    return [*rows, Row(name, "", "the part itself", "wrong", problem)] if problem else rows


def _end_group(process: subprocess.Popen[bytes]) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
            process.wait(5)
        except (ProcessLookupError, PermissionError, subprocess.TimeoutExpired):
            continue


def _run_part(name: str, rows_file: Path) -> int:
    module = import_module(f"peers.{name}")
    with tempfile.TemporaryDirectory(prefix=f"peers-{name}-", ignore_cleanup_errors=True) as folder:
        bench = Bench(Path(folder), rows_file, latest=os.environ.get("LATEST") == "1")
        try:
            asyncio.run(module.run(bench))
        except Exception:  # noqa: BLE001 - a row says it
            traceback.print_exc()
            return 1
        finally:
            bench.end()
    return 0


def _title(module: ModuleType) -> str:
    return (module.__doc__ or module.__name__).strip().splitlines()[0].rstrip(".")


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


if __name__ == "__main__":
    sys.exit(main())
