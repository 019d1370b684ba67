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
