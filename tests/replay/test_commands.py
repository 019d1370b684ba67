"""Recorded conversations are answered with the same commands in every process, wherever that runs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from tests.support.prepared import run

ELSEWHERE = {"PYTHONHASHSEED": "2", "TZ": "America/St_Johns", "LC_ALL": "POSIX", "HOME": "/tmp"}
"""A process that starts in another place. The other one is forked, with an order of sets that is drawn."""

DIFFERENT = ("{*'abcdefghijklmnop'}", "time.localtime(0).tm_hour", "id('a')")

PROGRAM = """
import asyncio, json, sys, time
from pathlib import Path
from temporalio import workflow
from everturn.client import interpreter_exit
from tests.replay.commands import all_answers, answers
from tests.replay import HISTORIES

start, planted = workflow.start_activity, ""

def with_a_word(*given, **options):
    return start(*given, **{**options, "summary": str(eval(planted))})

async def main(recorded, written):
    global planted
    interpreter_exit.runtime_is_used()
    recorded.write_text(json.dumps(await all_answers(), sort_keys=True))
    workflow.start_activity = with_a_word
    answered = {}
    for planted in ("'the same'", *DIFFERENT):
        answered[planted] = await answers(HISTORIES / "plain_reply.json")
    written.write_text(json.dumps(answered))

asyncio.run(main(*map(Path, sys.argv[1:])))
"""


Answers = list[dict[str, Any]]
"""With what a process answers, by history or by what was planted: in each of the places."""


@pytest.fixture(scope="module")
def answered(tmp_path_factory: pytest.TempPathFactory) -> tuple[Answers, Answers]:
    """The recorded histories, and one with what depends on the process planted. A process does both."""
    folder, program = tmp_path_factory.mktemp("answers"), PROGRAM.replace("DIFFERENT", repr(DIFFERENT))
    files = [[folder / f"{what}{number}.json" for what in "rp"] for number in range(2)]
    here, there = (["-c", program, *map(str, pair)] for pair in files)
    with subprocess.Popen(
        [sys.executable, *there], env=os.environ | ELSEWHERE, stderr=subprocess.PIPE, text=True
    ) as elsewhere:
        try:
            done = run(*here, env=os.environ | {"TZ": "Asia/Tokyo"}, timeout=120)
            _, errors = elsewhere.communicate(timeout=120)
        finally:
            elsewhere.kill()
    assert done.returncode == 0, done.stderr[-2_000:]
    assert elsewhere.returncode == 0, errors[-2_000:]
    recorded, planted = ([json.loads(file.read_text()) for file in kind] for kind in zip(*files, strict=True))
    return recorded, planted


def test_every_process_answers_a_history_with_the_same_commands(answered: tuple[Answers, Answers]) -> None:
    here, there = answered[0]
    assert len(here) > 50
    assert [name for name in here if here[name] != there[name]] == []


def test_what_depends_on_the_process_is_noticed(answered: tuple[Answers, Answers]) -> None:
    here, there = answered[1]
    assert [planted for planted in here if here[planted] != there[planted]] == [*DIFFERENT]
