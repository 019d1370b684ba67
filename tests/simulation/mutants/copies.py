"""A copy of the project with another everturn in it, and commands that run there: the work tree is never changed."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.prepared import Program

ROOT = Path(__file__).parents[3]

PRODUCT = "everturn"
"""What is copied. All else of the project is there by links."""

LEFT_OUT = {".git", ".venv", PRODUCT}


@dataclass(frozen=True)
class Ran:
    status: int | None
    """None if it was ended, since it took too long."""
    output: str
    seconds: float


@contextmanager
def copied() -> Iterator[Path]:
    """A folder that looks like the project's, whose everturn may be changed."""
    with tempfile.TemporaryDirectory(prefix="everturn-mutant-", ignore_cleanup_errors=True) as made:
        folder = Path(made)
        # With the times of its files, so that what is compiled already is not compiled again.
        shutil.copytree(ROOT / PRODUCT, folder / PRODUCT)
        for entry in ROOT.iterdir():
            if entry.name not in LEFT_OUT:
                target = entry.readlink() if entry.is_symlink() else entry
                (folder / entry.name).symlink_to(target)
        yield folder


def begun(folder: Path, arguments: Sequence[str]) -> subprocess.Popen[str]:
    """Python with these arguments in a copy, to be asked and to answer by lines."""
    pipe = subprocess.PIPE
    command = [sys.executable, *arguments]
    return subprocess.Popen(command, cwd=folder, env=_environment(folder), stdin=pipe, stdout=pipe, text=True)


def _environment(folder: Path) -> dict[str, str]:
    """In which `import everturn` finds the copy's."""
    return {**os.environ, "PYTHONPATH": str(folder), "PYTHONUNBUFFERED": "1", "PYTHONHASHSEED": "0"}


def simulate(folder: Path, arguments: Sequence[str], *, seconds: float) -> Ran:
    """Runs the simulation with a copy's everturn. It starts no process, and is forked from one that has the libraries:
    their imports are a third of what the world of a known seed costs."""

    def start(**streams: Any) -> Program:
        simulation = ("-m", "tests.simulation", *arguments)
        return Program(*simulation, cwd=folder, env=_environment(folder), imported="libraries", **streams)

    return _ended(folder, start, Program.kill, seconds=seconds)


def run(folder: Path, arguments: Sequence[str], *, seconds: float) -> Ran:
    """Runs Python with these arguments in a copy, where `import everturn` finds the copy's."""

    def start(**streams: Any) -> subprocess.Popen[str]:
        command = [sys.executable, *arguments]
        return subprocess.Popen(command, cwd=folder, env=_environment(folder), start_new_session=True, **streams)

    return _ended(folder, start, _kill_with_all_it_started, seconds=seconds)


def _ended(folder: Path, start: Callable[..., Any], kill: Callable[[Any], None], *, seconds: float) -> Ran:
    """What a process in a copy wrote until it ended, or was killed since it took too long."""
    began = time.monotonic()
    with (folder / "output.txt").open("w+", errors="replace") as output:
        process = start(stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT)
        try:
            status: int | None = process.wait(seconds)
        except subprocess.TimeoutExpired:
            status = None
        finally:
            kill(process)
            process.wait()
        output.seek(0)
        return Ran(status, output.read(), time.monotonic() - began)


def _kill_with_all_it_started(process: subprocess.Popen[str]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def has_its_own(folder: Path) -> bool:
    """Whether Python really takes everturn from the copy, and not from the work tree."""
    code = "import everturn, tests; print(everturn.__file__)"
    return str(folder / PRODUCT) in run(folder, ["-c", code], seconds=60).output
