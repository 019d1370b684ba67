"""Patches in unified form: read, and applied to a copy of the project. No git is needed, nor the lines' numbers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent

HEADS = ("Bug", "Mended", "Seen as", "Test")
"""What each patch begins with: a line for each."""

WORLDS = "Worlds"
"""One more, in some: the situations in which it is looked for."""


class DoesNotFit(Exception):
    """The code has changed since the patch was written."""


@dataclass(frozen=True)
class Hunk:
    before: str
    after: str
    line: int
    """Where it began when it was written: of several places that look alike, the nearest is meant."""


@dataclass(frozen=True)
class Patch:
    name: str
    """The bug, in words."""
    heads: dict[str, str]
    hunks: tuple[tuple[str, Hunk], ...]
    """With the files that they are of, from the project's root."""

    @classmethod
    def read(cls, file: Path) -> Patch:
        head, _, diff = file.read_text().partition("\n--- ")
        heads = dict(re.findall(r"^([A-Z][a-z ]+): (.+)$", head, re.M))
        return cls(file.stem, heads, tuple(_hunks(f"--- {diff}")))

    @property
    def situations(self) -> tuple[str, ...]:
        return tuple(filter(None, self.heads.get(WORLDS, "").split(", ")))

    def apply(self, root: Path) -> None:
        """Changes the files under `root`. Raises DoesNotFit, and then has changed none."""
        changed: dict[Path, str] = {}
        for name, hunk in self.hunks:
            file = root / name
            text = changed.get(file) or file.read_text()
            places = [found.start() for found in re.finditer(re.escape(hunk.before), text)]
            places = [place for place in places if place == 0 or text[place - 1] == "\n"]
            if not places:
                raise DoesNotFit(f"{self.name}: {name} has nothing like this any more:\n{hunk.before}")
            place = min(places, key=lambda at: abs(text.count("\n", 0, at) + 1 - hunk.line))
            changed[file] = text[:place] + hunk.after + text[place + len(hunk.before) :]
        for file, text in changed.items():
            file.write_text(text)


def all_patches() -> list[Patch]:
    return [Patch.read(file) for file in sorted(FOLDER.glob("*.patch"))]


def _hunks(diff: str) -> Iterator[tuple[str, Hunk]]:
    for of_file in re.split(r"^--- a/.*\n\+\+\+ b/", diff, flags=re.M)[1:]:
        name, _, rest = of_file.partition("\n")
        for line, lines in re.findall(r"^@@ -(\d+).*\n((?:[ +-].*\n|\n)*)", rest, re.M):
            kept = lines.splitlines(keepends=True)
            before, after = ("".join(one[1:] for one in kept if one[0] != other) for other in "+-")
            yield name, Hunk(before, after, int(line))
