"""A copy of the project with another everturn in it, and commands that run there: the work tree is never changed."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

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


def run(folder: Path, arguments: Sequence[str], *, seconds: float) -> Ran:
    """Runs Python with these arguments in a copy, where `import everturn` finds the copy's."""
    began = time.monotonic()
    with (folder / "output.txt").open("w+", errors="replace") as output:
        process = subprocess.Popen(
            [sys.executable, *arguments],
            cwd=folder,
            env=_environment(folder),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            status: int | None = process.wait(seconds)
        except subprocess.TimeoutExpired:
            status = None
        finally:
            with suppress(ProcessLookupError):  # and whatever it has started
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        output.seek(0)
        return Ran(status, output.read(), time.monotonic() - began)


def has_its_own(folder: Path) -> bool:
    """Whether Python really takes everturn from the copy, and not from the work tree."""
    code = "import everturn, tests; print(everturn.__file__)"
    return str(folder / PRODUCT) in run(folder, ["-c", code], seconds=60).output
