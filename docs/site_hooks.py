"""For mkdocs: brings pages that stand outside of docs/ into the site, and reads Markdown as repositories' hosts do."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files, InclusionLevel

ROOT = Path(__file__).parents[1]
BROUGHT = {
    "CHANGELOG.md": "CHANGELOG.md",
    "CONTRIBUTING.md": "CONTRIBUTING.md",
    "benchmarks/RESULTS.md": "RESULTS.md",
    **{f"benchmarks/plots/{path.name}": f"plots/{path.name}" for path in (ROOT / "benchmarks/plots").glob("*.png")},
}
"""Where a file stands in the repository: where it stands in the site."""

PROGRAMS = {
    f"examples/beside/{path.name}": f"programs/{path.stem}.md" for path in (ROOT / "examples/beside").glob("*.py")
}
"""Each has a page that shows it, which is reached by links only."""
PLACES = BROUGHT | PROGRAMS

LIST_UNDER_TEXT = re.compile(r"^(?![-\s|#>]|\d+\.)(.+)\n(?=- )", re.M)
LINK = re.compile(r"(\]\()([^)#:\s]+)((?:#[^)\s]*)?\))")


def on_config(config: Any) -> Any:
    """What the nav does not name goes to the end of its section, under its own title."""
    named = str(config.nav)
    for title, folder in {"How to": "howto", "Decisions": "decisions"}.items():
        places = [f"{folder}/{path.name}" for path in sorted((ROOT / "docs" / folder).glob("*.md"))]
        _section(config.nav, title).extend(place for place in places if place not in named)
    return config


def _section(items: list[Any], title: str) -> list[Any]:
    """The list of this title, however deep; empty where there is none."""
    for item in items:
        for name, inside in item.items() if isinstance(item, dict) else ():
            if isinstance(inside, list):
                found: list[Any] = inside if name == title else _section(inside, title)
                if found:
                    return found
    return []


def on_files(files: Files, config: Any) -> Files:
    for path, place in BROUGHT.items():
        files.append(File.generated(config, place, abs_src_path=str(ROOT / path)))
    for path, place in PROGRAMS.items():
        shown = f"# {path}\n\n```python\n{(ROOT / path).read_text()}```\n"
        files.append(File.generated(config, place, content=shown, inclusion=InclusionLevel.NOT_IN_NAV))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Links are written for the repository, so that they work there too: here they are turned to where things stand."""
    brought = next((path for path, place in BROUGHT.items() if place == page.file.src_uri), None)
    here = posixpath.dirname(brought or f"docs/{page.file.src_uri}")

    def turned(found: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(here, found[2]))
        if target not in PLACES and not target.startswith("docs/"):
            return found[0]  # mkdocs complains about it
        place = PLACES.get(target, target.removeprefix("docs/"))
        return found[1] + posixpath.relpath(place, posixpath.dirname(page.file.src_uri)) + found[3]

    # Python's Markdown wants an empty line before a list, and others don't.
    return LINK.sub(turned, LIST_UNDER_TEXT.sub(r"\1\n\n", markdown))
