"""The README and the pages under docs/, and the blocks of code in them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


@dataclass(frozen=True)
class Block:
    page: Path
    line: int
    language: str
    text: str
    peer: str
    """The package that it runs with, where a comment `<!-- runs with: ... -->` before it says so."""
    file: str = ""
    """The file that it is, where a comment `<!-- file: ... -->` before it says so: the page's other code imports it."""


def blocks_of(page: Path) -> Iterator[Block]:
    lines = page.read_text().splitlines()
    number = 0
    while number < len(lines):
        if opened := re.fullmatch(r"```(\w*)", lines[number]):
            end = lines.index("```", number + 1)
            before = next((line for line in reversed(lines[:number]) if line.strip()), "")
            marked = re.fullmatch(r"<!-- runs with: (.+) -->", before)
            text = "\n".join(lines[number + 1 : end]) + "\n"
            saved = re.fullmatch(r"<!-- file: (\w+\.py) -->", before)
            yield Block(page, number + 2, opened[1], text, marked[1] if marked else "", file=saved[1] if saved else "")
            number = end
        number += 1


BLOCKS = [block for page in PAGES for block in blocks_of(page)]


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))
