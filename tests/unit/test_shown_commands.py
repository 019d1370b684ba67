"""Commands that texts tell people to run: who chose an id, or a tenant's name, puts no words of a shell there."""

from __future__ import annotations

import re

import pytest

from everturn.temporal.any_status import words_of_pause
from everturn.temporal.ids import id_problem
from tests.support.source import PACKAGE

UNQUOTED = re.compile(r"(?:everturn [a-z-]+|--workflow-id) \{(?!shlex\.quote\()[^}]*\}")
"""A value right behind a command, as an f-string has it."""

SHOWN = {
    "cli/render.py": "{place}",  # of place_of, which quotes it
    "cli/approval_prompt.py": "{place}",
    "client/status_waits.py": "{place}",
    "web/auth.py": "{purpose}",  # no command
    "web/codec_server.py": "{purpose}",
}


def test_what_is_put_into_a_command_is_quoted() -> None:
    unquoted = {
        f"{name}: {match}"
        for path in PACKAGE.rglob("*.py")
        for name in [path.relative_to(PACKAGE).as_posix()]
        for match in UNQUOTED.findall(path.read_text())
        if not match.endswith(SHOWN.get(name, "no value"))
    }
    assert unquoted == set()
    assert "--workflow-id 'a; b'`" in words_of_pause("a; b")[1]


@pytest.mark.parametrize("name", ["--all", "-", "-h"])
def test_no_id_can_be_an_option(name: str) -> None:
    """`everturn approve --all` would decide on every call."""
    assert "would take it for an option" in id_problem(name)
