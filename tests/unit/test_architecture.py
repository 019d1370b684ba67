"""docs/architecture.md is the map of the code: what it names is there, and no folder is missing from it. What other
pages and the code's own comments name is there, too."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "everturn"
PAGE = (ROOT / "docs/architecture.md").read_text()
PATHS = sorted(set(re.findall(r"`([\w/]+(?:\.py|/))`", PAGE)))
MODULE = re.compile(r"(?<![\w./])(\w+)/[\w/]+\.py\b")


def is_there(path: str) -> bool:
    return any((place / path).exists() for place in (PACKAGE, ROOT))


def test_every_path_on_the_map_exists() -> None:
    assert len(PATHS) > 50
    assert [path for path in PATHS if not is_there(path)] == []


def test_every_module_that_a_page_or_a_comment_names_exists() -> None:
    our_folders = {path.name for place in (PACKAGE, ROOT) for path in place.iterdir() if path.is_dir()}
    texts = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *PACKAGE.rglob("*.py")]
    named = {
        (match[0], text.name)
        for text in texts
        for match in MODULE.finditer(text.read_text())
        if match[1] in our_folders
    }
    assert len(named) > 100
    assert sorted(path for path in named if not is_there(path[0])) == []


def test_every_folder_is_on_the_map() -> None:
    folders = {f"{path.name}/" for path in PACKAGE.iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert folders - set(PATHS) == set()


def test_the_table_says_where_to_change_thirty_things() -> None:
    rows = PAGE.partition("## To change this")[2].strip().splitlines()[4:]
    assert len(rows) >= 30
    assert [row for row in rows if not re.search(r"`[\w/]+(\.py|/)`", row)] == []
