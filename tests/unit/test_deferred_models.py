"""A worker builds the records that it uses, and pydantic lets two threads do that at once."""

from __future__ import annotations

import subprocess
import sys

import pytest

from everturn.system.deferred_models import LOCKS_SINCE, minor_version

IMPORTED = """
import everturn.worker.hosting
from everturn.records import Record

def kinds(record):
    return {record}.union(*map(kinds, record.__subclasses__()))

print(sorted(record.__name__ for record in kinds(Record) if record.__pydantic_complete__))
"""


@pytest.mark.parametrize(
    ("version", "safe"), [("2.12.0", False), ("2.13.5", False), ("2.14.0b1", True), ("2.14.3", True), ("3.0.0", True)]
)
def test_models_are_deferred_from_the_version_on_that_locks(version: str, safe: bool) -> None:
    assert (minor_version(version) >= LOCKS_SINCE) is safe


def test_a_worker_imports_its_records_without_building_them() -> None:
    run = subprocess.run([sys.executable, "-c", IMPORTED], capture_output=True, text=True, timeout=60, check=True)
    assert "Message" in run.stdout, "what nearly all records hold is built once, and not with each of them"
    assert "Start" not in run.stdout
    assert "CarryOver" not in run.stdout
