"""What holds transcripts is for its owner only, and is not written through somebody else's link."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from everturn.cli.chat_files import ChatFiles
from everturn.cli.connect import AgentChoice
from everturn.cli.export import _replace_file
from everturn.devserver import DevServer
from everturn.errors import InvalidSetting
from everturn.exporting import Exported, write_sqlite
from everturn.records import Text, ToolResult
from everturn.storage.artifacts import Artifacts
from everturn.storage.external import open_storage
from everturn.system.private_files import open_to_append, write_atomically


@pytest.fixture(autouse=True)
def _a_generous_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def open_to_others(folder: Path) -> list[str]:
    """The files and folders in it that somebody else could read or write."""
    return [
        f"{path.relative_to(folder)} {stat.filemode(path.stat().st_mode)}"
        for path in folder.rglob("*")
        if stat.S_IMODE(path.stat().st_mode) & 0o077
    ]


async def test_the_dev_servers_database_and_log_are_its_owners_only(tmp_path: Path) -> None:
    async with DevServer(db_filename=tmp_path / "state" / "temporal.db"):
        assert {"temporal.db", "temporal.log"} <= {path.name for path in tmp_path.rglob("*")}
        assert open_to_others(tmp_path) == []


async def test_a_database_that_others_could_read_is_closed_to_them(tmp_path: Path) -> None:
    server = DevServer(db_filename=tmp_path / "temporal.db")
    async with server:
        pass
    for path in tmp_path.iterdir():
        path.chmod(0o666)
    async with server:
        assert open_to_others(tmp_path) == []


async def test_the_servers_log_is_not_written_through_a_link(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("mine")
    (tmp_path / "temporal.log").symlink_to(precious)
    with pytest.raises(InvalidSetting, match=r"can't keep its data at"):
        await DevServer(db_filename=tmp_path / "temporal.db").start()
    assert precious.read_text() == "mine"


def test_a_pipe_in_a_files_place_stops_nobody(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="not a regular file"):
        open_to_append(tmp_path / "pipe")


def test_whatever_else_is_written_is_its_owners_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    ChatFiles("chat").save_options(AgentChoice("scripted:demo", [], "Be brief.", None))
    result = ToolResult(call_id="c1", name="look", content=(Text(text="found"),))
    Artifacts.at(tmp_path / "artifacts" / "deep").keep("order-81", result)
    open_storage(tmp_path / "storage" / "deep")
    _replace_file(tmp_path / "exported" / "order-81.md", "what was said")
    write_sqlite(tmp_path / "conversations.db", [Exported("order-81")])
    assert len([path for path in tmp_path.rglob("*") if path.is_file()]) == 4
    assert open_to_others(tmp_path) == []


def test_an_export_takes_the_place_of_a_link_and_leaves_what_it_points_to(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("mine")
    (tmp_path / "order-81.md").symlink_to(precious)
    _replace_file(tmp_path / "order-81.md", "what was said")
    assert (precious.read_text(), (tmp_path / "order-81.md").read_text()) == ("mine", "what was said")


def test_nobody_can_guess_the_name_of_a_file_that_is_being_written(tmp_path: Path) -> None:
    """Whatever has the names that a process's number would give is left alone."""
    trap = tmp_path / f".order-81.md.{os.getpid()}"
    trap.symlink_to(tmp_path / "made-through-a-link")
    write_atomically(tmp_path / "order-81.md", b"what was said")
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([trap.name, "order-81.md"])


def test_an_export_can_go_to_a_pipe(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    _replace_file(tmp_path / "pipe", "what was said")
    assert os.read(reader, 100) == b"what was said"
    os.close(reader)
