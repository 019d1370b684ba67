"""Recorded conversations are answered with the same commands in every process, wherever that runs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ELSEWHERE = [
    {"PYTHONHASHSEED": "1", "TZ": "Asia/Tokyo", "LC_ALL": "C.UTF-8", "HOME": "/"},
    {"PYTHONHASHSEED": "2", "TZ": "America/St_Johns", "LC_ALL": "POSIX", "HOME": "/tmp"},
]

DIFFERENT = ("{'a', 'b', 'c', 'd', 'e'}", "time.localtime(0).tm_hour", "id('a')")

PLANTED = """
import asyncio, json, sys, time
from pathlib import Path
from temporalio import workflow
from everturn.client import interpreter_exit
from tests.replay.commands import answers
from tests.replay.record import HISTORIES

start, planted = workflow.start_activity, ""

def with_a_word(*given, **options):
    return start(*given, **{**options, "summary": str(eval(planted))})

async def main(written):
    global planted
    interpreter_exit.runtime_is_used()
    answered = {}
    for planted in ("'the same'", *DIFFERENT):
        answered[planted] = await answers(HISTORIES / "plain_reply.json")
    written.write_text(json.dumps(answered))

workflow.start_activity = with_a_word
asyncio.run(main(Path(sys.argv[1])))
"""


def answered(folder: Path, *program: str) -> list[dict[str, Any]]:
    """With what: in each of the places, by history."""
    files = [folder / f"{number}.json" for number in range(len(ELSEWHERE))]
    programs = [
        subprocess.Popen(
            [sys.executable, *program, str(file)], env=os.environ | place, stderr=subprocess.PIPE, text=True
        )
        for file, place in zip(files, ELSEWHERE, strict=True)
    ]
    try:
        for process in programs:
            _, errors = process.communicate(timeout=120)
            assert process.returncode == 0, errors[-2_000:]
    finally:
        for process in programs:
            process.kill()
            process.communicate()
    return [json.loads(file.read_text()) for file in files]


def test_every_process_answers_a_history_with_the_same_commands(tmp_path: Path) -> None:
    here, there = answered(tmp_path, "-m", "tests.replay.commands")
    assert len(here) > 50
    assert [name for name in here if here[name] != there[name]] == []


def test_what_depends_on_the_process_is_noticed(tmp_path: Path) -> None:
    here, there = answered(tmp_path, "-c", PLANTED.replace("DIFFERENT", repr(DIFFERENT)))
    assert [planted for planted in here if here[planted] != there[planted]] == [*DIFFERENT]
