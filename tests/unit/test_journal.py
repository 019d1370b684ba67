"""What a worker has in hand, on disk."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from everturn import journal
from everturn.journal import Journal, Task

SCOPE = {"server": "s", "namespace": "n", "task_queue": "q"}


def task(name: str) -> Task:
    return {"token": name, "conversation": "c", "run": "r", "activity": "a"}


def orphans(folder: Path, scope: dict[str, str] = SCOPE) -> list[str]:
    return sorted(one["token"] for one in Journal(folder, scope=scope)._orphans())


def test_a_worker_that_ends_leaves_nothing(tmp_path: Path) -> None:
    with Journal(tmp_path, scope=SCOPE) as mine, mine.holding(task("t")):
        assert orphans(tmp_path) == [], "its worker lives"
    assert list(tmp_path.iterdir()) == []


def test_a_killed_workers_open_tasks_are_found_once_by_a_successor_of_the_same_queue(tmp_path: Path) -> None:
    program = f"""
import os, signal
from pathlib import Path
from everturn.journal import Journal
with Journal(Path({str(tmp_path)!r}), scope={SCOPE!r}) as mine:
    with mine.holding({task("ended")!r}):
        pass
    with mine.holding({task("open")!r}):
        os.kill(os.getpid(), signal.SIGKILL)
"""
    subprocess.run([sys.executable, "-c", program], check=False, timeout=30)
    assert orphans(tmp_path, {**SCOPE, "task_queue": "another"}) == []
    assert orphans(tmp_path) == ["open"]
    assert orphans(tmp_path) == []


def test_a_dead_journal_of_another_queue_is_left_alone_until_it_is_stale(tmp_path: Path) -> None:
    file = tmp_path / "1-x.jsonl"
    file.write_text('{"server":"s","namespace":"n","task_queue":"another"}\n')
    assert orphans(tmp_path) == []
    assert file.exists()
    os.utime(file, times=(0, 0))
    with file.open() as living:
        fcntl.flock(living, fcntl.LOCK_EX)
        assert orphans(tmp_path) == []
        assert file.exists(), "its worker lives"
    assert orphans(tmp_path) == []
    assert not file.exists()


def test_one_that_is_just_being_made_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "1-x.jsonl").touch()
    assert orphans(tmp_path) == []
    assert (tmp_path / "1-x.jsonl").exists()


def test_a_worker_looks_at_journals_of_other_queues_once(tmp_path: Path) -> None:
    with Journal(tmp_path, scope=SCOPE) as mine, Journal(tmp_path, scope={**SCOPE, "task_queue": "another"}) as other:
        for _ in range(2):
            assert list(mine._orphans()) == []
            assert len(mine._passed) == 2
        assert mine._passed == {Path(one._file.name).name for one in (mine, other) if one._file}


def test_half_a_last_line_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "1-x.jsonl").write_text('{"server":"s","namespace":"n","task_queue":"q"}\n{"token":"t","conv')
    assert orphans(tmp_path) == []


def test_a_long_journal_is_written_anew_with_what_is_in_hand(tmp_path: Path) -> None:
    journal.MAX_BYTES, before = 500, journal.MAX_BYTES
    try:
        with Journal(tmp_path, scope=SCOPE) as mine, mine.holding(task("long")):
            for number in range(100):
                with mine.holding(task(str(number))):
                    pass
            (file,) = tmp_path.iterdir()
            assert file.stat().st_size < 1500
            with file.open() as written:
                assert journal._scope_of(written.readline()) == SCOPE
                assert [one["token"] for one in journal._open_tasks(written)] == ["long"]
    finally:
        journal.MAX_BYTES = before


def test_a_folder_that_can_not_be_written_costs_nothing_else(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    with Journal(blocked / "journals", scope=SCOPE) as mine, mine.holding(task("t")):
        assert list(tmp_path.iterdir()) == [blocked]


def test_a_disk_that_is_full_fails_no_tool(tmp_path: Path) -> None:
    with Path("/dev/full").open("wb", buffering=0) as full, Journal(tmp_path, scope=SCOPE) as mine:
        assert mine._file is not None
        os.dup2(full.fileno(), mine._file.fileno())
        with mine.holding(task("t")):
            pass
        assert list(tmp_path.iterdir()) == [], "no other worker takes it for a dead one's"
        with mine.holding(task("u")):
            pass


def test_a_folder_that_is_hidden_hands_nothing_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(self: Path) -> None:
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(Path, "iterdir", denied)
    assert orphans(tmp_path) == []
