"""What a worker has in hand, on disk."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from everturn.lost_workers import journal
from everturn.lost_workers.journal import Journal, default_folder
from everturn.system import private_files
from everturn.system.private_files import NotPrivate, PrivateFolder
from tests.support.journals import DAMAGED, NAME, SCOPE, left, task


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (made := tmp_path / "journals").mkdir(mode=0o700)
    return made


def tokens(tasks: Any) -> list[str]:
    return sorted(task["token"] for task in tasks)


def orphans(folder: Path, scope: dict[str, str] = SCOPE) -> list[str]:
    with Journal(folder, scope=scope) as mine:
        return tokens(mine._orphaned_tasks())


def test_a_worker_that_ends_leaves_nothing(folder: Path) -> None:
    with Journal(folder, scope=SCOPE) as mine, mine.holding_task(task("t")):
        assert orphans(folder) == [], "its worker lives"
    assert list(folder.iterdir()) == []


def test_a_killed_workers_open_tasks_are_found_once_by_a_successor_of_the_same_queue(folder: Path) -> None:
    program = f"""
import os, signal
from pathlib import Path
from everturn.lost_workers.journal import Journal
with Journal(Path({str(folder)!r}), scope={SCOPE!r}) as mine:
    with mine.holding_task({task("ended")!r}):
        pass
    with mine.holding_task({task("open")!r}):
        os.kill(os.getpid(), signal.SIGKILL)
"""
    subprocess.run([sys.executable, "-c", program], check=False, timeout=30)
    (file,) = folder.iterdir()
    assert file.stat().st_mode & 0o777 == 0o600
    assert orphans(folder, {**SCOPE, "task_queue": "another"}) == []
    assert orphans(folder) == tokens([task("open")])
    assert orphans(folder) == []
    assert list(folder.iterdir()) == []


def test_a_dead_journal_of_another_queue_is_left_alone_until_it_is_stale(folder: Path) -> None:
    file = left(folder, scope={**SCOPE, "task_queue": "another"})
    assert orphans(folder) == []
    assert file.exists()
    os.utime(file, times=(0, 0))
    with file.open() as living:
        fcntl.flock(living, fcntl.LOCK_EX)
        assert orphans(folder) == []
        assert file.exists(), "its worker lives"
    assert orphans(folder) == []
    assert not file.exists()


def test_one_that_is_just_being_made_is_left_alone(folder: Path) -> None:
    with Journal(folder, scope=SCOPE) as mine:
        (folder / NAME).touch()
        assert list(mine._orphaned_tasks()) == []
        (folder / NAME).unlink()
        left(folder, task("t"))
        assert tokens(mine._orphaned_tasks()) == tokens([task("t")]), "it is looked at again"


def test_a_worker_looks_at_journals_of_other_queues_once_and_forgets_those_that_are_gone(folder: Path) -> None:
    with Journal(folder, scope=SCOPE) as mine:
        with Journal(folder, scope={**SCOPE, "task_queue": "another"}):
            for _ in range(2):
                assert list(mine._orphaned_tasks()) == []
                assert len(mine._passed) == 1
        assert list(mine._orphaned_tasks()) == []
        assert mine._passed == set()


def test_half_a_last_line_is_passed_over(folder: Path) -> None:
    left(folder, task("t"), '{"token":"t","conv')
    assert orphans(folder) == tokens([task("t")])


def test_a_long_journal_is_written_anew_with_what_is_in_hand(folder: Path) -> None:
    with Journal(folder, scope=SCOPE, max_bytes=700) as mine, mine.holding_task(task("long")):
        (file,) = folder.iterdir()
        for number in range(100):
            with mine.holding_task(task(str(number))), file.open("rb") as written:
                assert journal._header_of(written.fileno()) == mine._header
                held = tokens(journal._tasks_in(written.fileno()))
                assert held == tokens([task("long"), task(str(number))])
        assert file.stat().st_size < 1500


def test_a_folder_that_can_not_be_written_costs_nothing_else(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    with Journal(blocked / "journals", scope=SCOPE) as mine, mine.holding_task(task("t")):
        assert list(tmp_path.iterdir()) == [blocked]


def test_a_disk_that_is_full_fails_no_tool(folder: Path) -> None:
    with Path("/dev/full").open("wb", buffering=0) as full, Journal(folder, scope=SCOPE) as mine:
        assert mine._descriptor is not None
        os.dup2(full.fileno(), mine._descriptor)
        with mine.holding_task(task("t")):
            pass
        assert list(folder.iterdir()) == [], "no other worker takes it for a dead one's"
        with mine.holding_task(task("u")):
            pass


def test_a_journal_that_comes_into_a_folder_at_rest_is_found(folder: Path) -> None:
    with Journal(folder, scope=SCOPE) as mine:
        os.utime(folder, (1_000_000_000, 1_000_000_000))
        assert list(mine._orphaned_tasks()) == []
        left(folder, task("t"))
        assert tokens(mine._orphaned_tasks()), "its time is another one now"


def test_a_folder_that_goes_away_hands_nothing_back(folder: Path) -> None:
    with Journal(folder, scope=SCOPE) as mine:
        shutil.rmtree(folder)
        assert list(mine._orphaned_tasks()) == []
        with mine.holding_task(task("t")):
            pass


# ---------------------------------------------------------------- what others put there


def test_whatever_is_no_journal_of_ours_stays_as_it_is(folder: Path, tmp_path: Path) -> None:
    others = {
        "notes.txt": "mine",
        "1-abcdefgh.jsonl": json.dumps(SCOPE) + "\n",
        "everturn-1.jsonl": json.dumps(SCOPE) + "\n",
        NAME: json.dumps(SCOPE) + "\n" + json.dumps(task("t")) + "\n",  # the name alone does not make it ours
        NAME.replace("0123", "4567"): "",
    }
    for name, text in others.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o600)
        os.utime(folder / name, times=(0, 0))
    (precious := tmp_path / "precious.txt").write_text("mine")
    os.utime(precious, times=(0, 0))
    (folder / NAME.replace("0123", "aaaa")).symlink_to(precious)
    (folder / NAME.replace("0123", "bbbb")).hardlink_to(precious)
    assert orphans(folder) == []
    assert {file.name: file.read_text() for file in folder.iterdir() if file.name in others} == others
    assert precious.read_text() == "mine"
    assert len(list(folder.iterdir())) == len(others) + 2


def test_a_copy_of_a_journal_is_none(folder: Path) -> None:
    with Journal(folder, scope=SCOPE) as mine, mine.holding_task(task("t")):
        (file,) = folder.iterdir()
        shutil.copy2(file, folder / NAME)
        assert orphans(folder) == []


def test_what_a_living_worker_runs_is_never_handed_back(folder: Path) -> None:
    with Journal(folder, scope=SCOPE) as mine, mine.holding_task(task("running")):
        left(folder, task("running"), task("lost"))
        assert orphans(folder) == tokens([task("lost")])
        left(folder, task("running"))
        assert list(mine._orphaned_tasks()) == []
        # One server may have two names.
        left(folder, task("running"), scope={**SCOPE, "server": "alias"})
        assert orphans(folder, {**SCOPE, "server": "alias"}) == []


@pytest.mark.parametrize("damage", DAMAGED)
def test_a_damaged_journal_stops_nothing(folder: Path, damage: str, caplog: pytest.LogCaptureFixture) -> None:
    DAMAGED[damage](folder / NAME)
    left(folder, task("lost"), name=NAME.replace("0123", "dddd"))
    with Journal(folder, scope=SCOPE) as mine:
        orphaned = tokens(mine._orphaned_tasks())
        assert set(orphaned) - set(tokens([task("x")])) == set(tokens([task("lost")]))
        told = len(caplog.records)
        assert list(mine._orphaned_tasks()) == []
        assert len(caplog.records) == told, "said once"


async def test_the_watch_goes_on_whatever_happens(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    left(folder, task("lost"))
    looks = 0

    async def broken(*_: Any, **__: Any) -> None:
        nonlocal looks
        looks += 1
        raise ZeroDivisionError

    monkeypatch.setattr(journal, "_hand_back", broken)
    with Journal(folder, scope=SCOPE) as mine:
        assert await mine.hand_back(None) == 0  # type: ignore[arg-type]
    assert looks == 1
    assert [record.getMessage().partition(" ")[0] for record in caplog.records] == ["journal.not_read"]


def test_a_link_put_in_the_journals_place_is_not_written_through(folder: Path, tmp_path: Path) -> None:
    (precious := tmp_path / "precious.txt").write_text("mine")
    with Journal(folder, scope=SCOPE, max_bytes=0) as mine:
        (file,) = folder.iterdir()
        file.unlink()
        file.symlink_to(precious)
        with mine.holding_task(task("t")):
            pass
    assert precious.read_text() == "mine"
    assert file.is_symlink(), "nor is it removed, for it is not ours"


@pytest.mark.parametrize("mode", [0o770, 0o777, 0o1777, 0o707])
def test_a_folder_that_others_write_into_is_refused(folder: Path, mode: int) -> None:
    folder.chmod(mode)
    left(folder, task("t"))
    with Journal(folder, scope=SCOPE) as mine, mine.holding_task(task("u")):
        assert list(mine._orphaned_tasks()) == []
        assert [file.name for file in folder.iterdir()] == [NAME]


def test_a_folder_of_somebody_else_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(private_files.os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(NotPrivate, match="belongs to user"):
        PrivateFolder(folder)


def test_a_link_of_somebody_else_is_refused(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (link := tmp_path / "link").symlink_to(folder)
    PrivateFolder(link).close()
    PrivateFolder(link / "deeper").close()
    real, lstat = os.geteuid(), Path.lstat

    def foreign(self: Path) -> Any:
        found = lstat(self)
        return os.stat_result([*found[:4], real + 1, *found[5:10]]) if self == link else found

    monkeypatch.setattr(Path, "lstat", foreign)
    for path in (link, link / "deeper"):
        with pytest.raises(NotPrivate, match="a link that another user made"):
            PrivateFolder(path)


def test_the_default_place_is_this_users_from_its_parent_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with Journal(default_folder(), scope=SCOPE):
        assert default_folder().parent.stat().st_mode & 0o777 == 0o700
        assert default_folder().stat().st_mode & 0o777 == 0o700
    default_folder().parent.chmod(0o777)
    with Journal(default_folder(), scope=SCOPE):
        assert list(default_folder().iterdir()) == []
