"""docs/architecture.md is the map of the code: what it names is there, and no folder is missing from it."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "everturn"
PAGE = (ROOT / "docs/architecture.md").read_text()
PATHS = sorted(set(re.findall(r"`([\w/]+(?:\.py|/))`", PAGE)))


def test_every_path_on_the_map_exists() -> None:
    assert len(PATHS) > 50
    assert [path for path in PATHS if not any((place / path).exists() for place in (PACKAGE, ROOT))] == []


def test_every_folder_is_on_the_map() -> None:
    folders = {f"{path.name}/" for path in PACKAGE.iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert folders - set(PATHS) == set()


def test_the_table_says_where_to_change_thirty_things() -> None:
    rows = PAGE.partition("## To change this")[2].strip().splitlines()[4:]
    assert len(rows) >= 30
    assert [row for row in rows if not re.search(r"`[\w/]+(\.py|/)`", row)] == []
