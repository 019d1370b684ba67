"""The virtual environment of the contestants that bring dependencies of their own, and of the plots."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
VENV = ROOT / ".benchmarks-venv"
PYTHON = str(VENV / "bin" / "python")
WANTED = ROOT / "benchmarks" / "peers.txt"
INSTALLED = VENV / "installed.txt"
LONGEST_INSTALL_SECONDS = 600


def make() -> None:
    """Makes it once, and again when peers.txt has changed. Raises CalledProcessError where that fails."""
    wanted = WANTED.read_text()
    if INSTALLED.exists() and INSTALLED.read_text() == wanted:
        return
    print(f"Setting up {VENV.name} for the peers ...", file=sys.stderr)
    for command in (
        [sys.executable, "-m", "venv", "--clear", str(VENV)],
        [PYTHON, "-m", "pip", "install", "--quiet", "--no-deps", "--requirement", str(WANTED)],
    ):
        subprocess.run(command, check=True, timeout=LONGEST_INSTALL_SECONDS)
    INSTALLED.write_text(wanted)


def version_of(package: str) -> str:
    """Of a package that peers.txt pins."""
    pins = dict(line.split("==") for line in WANTED.read_text().splitlines() if "==" in line)
    return pins.get(package, "?")
