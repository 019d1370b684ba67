"""The site of the docs is built whole, needs nothing from elsewhere, and shows no Markdown."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from html import unescape
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

# What a browser fetches by itself: not the links that people follow.
FETCHED = re.compile(
    r"""<(?:script|img|iframe|source|video)[^>]+src=["']?(https?:)?//|<link[^>]+href=["']?(https?:)?//"""
)
LOADED = re.compile(r"""@import|url\(["']?(https?:)?//""")
UNREAD = re.compile(r"```|^ *- |\]\(|^\|", re.M)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    built = tmp_path_factory.mktemp("site")
    # Not --quiet: what it does not say, it does not count either.
    run = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(built)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    return built


def test_every_page_is_in_the_site(site: Path) -> None:
    pages = [path.relative_to(ROOT / "docs").with_suffix(".html") for path in (ROOT / "docs").rglob("*.md")]
    assert [str(page) for page in pages if not (site / page).is_file()] == []


def test_every_page_is_there_as_markdown_whose_links_lead_to_markdown(site: Path) -> None:
    pages = [path.relative_to(ROOT / "docs") for path in (ROOT / "docs").rglob("*.md")]
    assert [str(page) for page in pages if not (site / page).is_file()] == []
    assert all(
        f'type="text/markdown" href="{page.name}"' in (site / page).with_suffix(".html").read_text() for page in pages
    )
    broken = []
    for page in site.rglob("*.md"):
        text = re.sub(r"```.*?```", "", page.read_text(), flags=re.S)
        targets = [target.partition("#")[0] for target in re.findall(r"\]\(([^)\s]+)\)", text)]
        local = [target for target in targets if target and not target.startswith(("http://", "https://"))]
        broken += [f"{page.name}: {target}" for target in local if not (page.parent / target).exists()]
    assert broken == []


def test_llms_txt_lists_every_page_and_llms_full_txt_has_their_text(site: Path) -> None:
    listed = re.findall(r"^- \[.+?\]\((.+?)\)", (site / "llms.txt").read_text(), re.M)
    assert [place for place in listed if not (site / place).is_file()] == []
    written = {str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md")}
    # The changelog and its like come from elsewhere in the repository.
    assert written - set(listed) == set()
    whole = (site / "llms-full.txt").read_text()
    about_use = [place for place in written if not place.startswith(("decisions/", "architecture"))]
    assert [place for place in about_use if (site / place).read_text() not in whole] == []


def test_nothing_is_fetched_from_elsewhere(site: Path) -> None:
    pages = [path.name for path in site.rglob("*.html") if FETCHED.search(path.read_text())]
    styles = [path.name for path in site.rglob("*.css") if LOADED.search(path.read_text())]
    assert pages + styles == []


def test_no_page_shows_its_markdown(site: Path) -> None:
    shown = []
    for path in site.rglob("*.html"):
        article = re.search(r"<article.*?</article>", path.read_text(), re.S)
        text = re.sub(r"<(pre|code).*?</\1>", "", article[0] if article else "", flags=re.S)
        shown += [f"{path.name}: {line[0]!r}" for line in UNREAD.finditer(unescape(re.sub(r"<[^>]+>", "", text)))]
    assert shown == []
