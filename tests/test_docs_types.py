"""What people copy from the pages is clean under type checkers: Python under mypy --strict, TypeScript under tsc."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.doc_pages import BLOCKS, ROOT, Block
from tests.support.pages import FOLDER, NODE, needs_node

EXCUSED = {
    "after": "goes on from before.py, which stands above it",
    "slack_approvals": "Slack's own JSON has no types of ours",
}
"""By the file's name, with the reason."""


def file_of(block: Block) -> str:
    """The file that a block is, by a comment before it or by its first line; empty if it is a part of one."""
    named = re.match(r"# (?:\w+/)*(\w+)\.py\n", block.text)
    return block.file.removesuffix(".py") or (named[1] if named else "")


@pytest.mark.long
def test_a_whole_program_of_a_page_is_clean_under_mypy_strict(tmp_path: Path) -> None:
    for block in BLOCKS:
        if block.language == "python" and not block.peer and (name := file_of(block)) and name not in EXCUSED:
            folder = tmp_path / re.sub(r"\W", "_", block.page.stem)
            folder.mkdir(exist_ok=True)
            beside = "|".join(file_of(other) for other in BLOCKS if other.page == block.page and file_of(other))
            text = re.sub(rf"^from ({beside}) import", rf"from {folder.name}.\1 import", block.text, flags=re.M)
            (folder / f"{name}.py").write_text(text)
    assert len(list(tmp_path.rglob("*.py"))) > 12
    command = [sys.executable, "-m", "mypy", "--strict", "--namespace-packages", "--explicit-package-bases"]
    read = subprocess.run(
        [*command, str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, "MYPYPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    assert read.returncode == 0, read.stdout + read.stderr


@needs_node[0]
@needs_node[1]
def test_the_page_of_the_how_to_compiles_with_the_real_packages() -> None:
    compiler = FOLDER / "node_modules" / "typescript" / "bin" / "tsc"
    compiled = subprocess.run(
        [NODE, str(compiler), "-p", str(FOLDER)], capture_output=True, text=True, timeout=250, check=False
    )
    assert compiled.returncode == 0, compiled.stdout + compiled.stderr
