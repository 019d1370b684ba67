"""A missing extra is installed from where everturn itself came."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from everturn.system import extras


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Says how everturn was installed: a distribution of that name, found before the real one."""
    folder = tmp_path / "everturn-0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: everturn\nVersion: 0\n")
    monkeypatch.syspath_prepend(tmp_path)

    def say(direct_url: str | None) -> None:
        if direct_url is not None:
            (folder / "direct_url.json").write_text(direct_url)
        extras._installed_from.cache_clear()

    yield say
    extras._installed_from.cache_clear()


@pytest.mark.parametrize(
    ("direct_url", "command"),
    [
        (None, "pip install 'everturn[web]'"),
        (json.dumps({"url": "file:///a/b", "dir_info": {}}), "pip install '/a/b[web]'"),
        (json.dumps({"url": "file:///a/b%20c", "dir_info": {"editable": True}}), "pip install -e '/a/b c[web]'"),
        (json.dumps({"url": "https://x.example/e.whl", "archive_info": {}}), "pip install 'everturn[web]'"),
        (json.dumps({"url": "https://x.example/e", "dir_info": {}}), "pip install 'everturn[web]'"),
        ("no json", "pip install 'everturn[web]'"),
        ("[]", "pip install 'everturn[web]'"),
    ],
)
def test_the_command_names_where_everturn_came_from(installed: Any, direct_url: str | None, command: str) -> None:
    installed(direct_url)
    assert extras.install("web") == command
