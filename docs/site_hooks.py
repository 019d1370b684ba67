"""For mkdocs: brings pages from outside docs/ into the site, reads Markdown as repositories' hosts do, and writes the
pages as Markdown, too, with llms.txt and llms-full.txt, for those who let a model read them."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.nav import Section
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
BROUGHT = {
    "CHANGELOG.md": "CHANGELOG.md",
    "CONTRIBUTING.md": "CONTRIBUTING.md",
    "benchmarks/RESULTS.md": "RESULTS.md",
    "findings/README.md": "findings.md",
    **{f"benchmarks/plots/{path.name}": f"plots/{path.name}" for path in (ROOT / "benchmarks/plots").glob("*.png")},
}
"""Where a file stands in the repository: where it stands in the site."""

PROGRAMS = {
    f"examples/{folder}/{path.name}": f"programs/{folder}/{path.stem}.md"
    for folder in ("beside", "cookbook", "cookbook/models")
    for path in (ROOT / "examples" / folder).glob("*.py")
}
"""Each has a page that shows it, which is reached by links only."""
PLACES = BROUGHT | PROGRAMS

SUMMARY = (
    "everturn runs tool-calling conversations with language models as Temporal workflows, in Python. Each model turn "
    "and each tool call is a retryable activity. Conversations survive crashes and deploys, and wait for people as "
    "long as they take."
)
NOT_IN_FULL = ("decisions/", "CHANGELOG.md", "CONTRIBUTING.md", "RESULTS.md", "architecture.md")
"""Pages about the project, and not about its use: llms-full.txt leaves them out."""

COMMENT = re.compile(r"<!--.*?-->\n?", re.S)
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

    linked = LINK.sub(turned, markdown)
    _markdown[page.file.src_uri] = COMMENT.sub("", linked)
    # Python's Markdown wants an empty line before a list, and others don't.
    return LIST_UNDER_TEXT.sub(r"\1\n\n", linked)


# ---------------------------------------------------------------- for models

_markdown: dict[str, str] = {}
"""By its place in the site, what each page says."""
_sections: list[Any] = []


def on_nav(nav: Any, **_: Any) -> Any:
    _sections[:] = nav.items
    return nav


def on_post_page(output: str, page: Any, **_: Any) -> str:
    """Each page says where it is as Markdown."""
    beside = posixpath.basename(page.file.src_uri)
    return output.replace("</head>", f'<link rel="alternate" type="text/markdown" href="{beside}"></head>', 1)


def on_post_build(config: Any) -> None:
    site = Path(config.site_dir)
    for place, text in _markdown.items():
        (site / place).write_text(text)
    pages = [place for place in _places(_sections) if not place.startswith(NOT_IN_FULL)]
    (site / "llms.txt").write_text(f"# everturn\n\n> {SUMMARY}\n\n" + "\n".join(_listed(_sections)))
    (site / "llms-full.txt").write_text("\n\n".join(f"<!-- {place} -->\n{_markdown[place]}" for place in pages))


def _places(items: list[Any]) -> Iterator[str]:
    for item in items:
        if isinstance(item, Section):
            yield from _places(item.children)
        elif isinstance(item, Page):
            yield item.file.src_uri


def _listed(items: list[Any], above: str = "") -> Iterator[str]:
    """A line for each page, with its first sentence; below a heading for each section."""
    pages = [item for item in items if isinstance(item, Page)]
    if pages:
        yield f"## {above or 'Begin'}\n"
        yield from (f"- [{page.title}]({page.file.src_uri}){_first_sentence(page)}" for page in pages)
        yield ""
    for item in items:
        if isinstance(item, Section):
            yield from _listed(item.children, f"{above}: {item.title}" if above else item.title)


def _first_sentence(page: Page) -> str:
    """Of the first paragraph of prose, without links; empty if there is none."""
    for paragraph in _markdown[page.file.src_uri].split("\n\n")[1:]:
        if re.match(r"(?!Guides?:)[A-Za-z`*\[](?!``)", paragraph):
            words = re.sub(r"\[(.*?)\]\(.*?\)", r"\1", " ".join(paragraph.split()))
            return ": " + re.split(r"(?<=[.?])\s", words)[0].rstrip(":.") + "."
    return ""
