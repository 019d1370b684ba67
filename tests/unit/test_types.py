"""What type checkers make of the public API. `make check` has mypy read tests/typed and the examples."""

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
def test_pyright_agrees_with_mypy_on_outcomes_and_on_the_examples() -> None:
    examples = [str(path) for path in sorted((ROOT / "examples").rglob("*.py")) if path.name != "slack_approvals.py"]
    command = [str(PYRIGHT), "--pythonpath", sys.executable, "tests/typed", *examples]
    read = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=200, check=False)
    assert read.returncode == 0, read.stdout
    assert "0 errors" in read.stdout
