"""Recorded conversations are answered with the same commands in every process, wherever that runs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ELSEWHERE = [
    {"PYTHONHASHSEED": "1", "TZ": "Asia/Tokyo", "LC_ALL": "C.UTF-8", "HOME": "/"},
    {"PYTHONHASHSEED": "2", "TZ": "America/St_Johns", "LC_ALL": "POSIX", "HOME": "/tmp"},
]

PLANTED = """
import asyncio, sys, time
from pathlib import Path
from temporalio import workflow
from tests.replay.commands import main

start = workflow.start_activity

def with_a_word(*given, **options):
    return start(*given, **{**options, "summary": str(PLANTED)})

workflow.start_activity = with_a_word
asyncio.run(main(Path(sys.argv[1]), "plain_reply"))
"""


def answered(folder: Path, *program: str) -> list[dict[str, Any]]:
    """With what: in each of the places, by history."""
    files = [folder / f"{number}.json" for number in range(len(ELSEWHERE))]
    for file, place in zip(files, ELSEWHERE, strict=True):
        command = [sys.executable, *program, str(file)]
        done = subprocess.run(command, env=os.environ | place, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stderr[-2_000:]
    return [json.loads(file.read_text()) for file in files]


def test_every_process_answers_a_history_with_the_same_commands(tmp_path: Path) -> None:
    here, there = answered(tmp_path, "-m", "tests.replay.commands")
    assert len(here) > 50
    assert [name for name in here if here[name] != there[name]] == []


@pytest.mark.parametrize("planted", ["{'a', 'b', 'c', 'd', 'e'}", "time.localtime(0).tm_hour", "id('a')"])
def test_what_depends_on_the_process_is_noticed(planted: str, tmp_path: Path) -> None:
    here, there = answered(tmp_path, "-c", PLANTED.replace("PLANTED", planted))
    assert here.keys() == {"plain_reply"}
    assert here != there
