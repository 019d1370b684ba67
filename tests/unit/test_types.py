"""What type checkers make of the public API: tests/typed has the programs, which mypy reads with `make check`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PYRIGHT = ROOT / "tests" / "typescript" / "node_modules" / ".bin" / "pyright"


@pytest.mark.long
@pytest.mark.skipif(
    not PYRIGHT.exists(), reason="pyright is not there: run `npm install --no-save` in tests/typescript"
)
def test_pyright_knows_an_outcomes_type_by_its_agent() -> None:
    command = [str(PYRIGHT), "--pythonpath", sys.executable, "tests/typed"]
    read = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=200, check=False)
    assert read.returncode == 0, read.stdout
    assert "0 errors" in read.stdout
