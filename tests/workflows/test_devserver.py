"""The embedded Temporal server, the real one."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from temporalio.client import Client
from temporalio.service import RPCError

from everturn import devserver
from everturn.devserver import DevServer, connect_or_start
from everturn.errors import InvalidSetting, Unreachable
from everturn.names import SEARCH_ATTRIBUTES
from everturn.system.extras import install
from everturn.temporal.connect_options import connect_options
from tests.support.waiting import until


@pytest.fixture(autouse=True)
def no_other_temporal(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TEMPORAL_ADDRESS", "TEMPORAL_PROFILE", "TEMPORAL_NAMESPACE"):
        monkeypatch.delenv(name, raising=False)


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def fetch(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=180) as page:
        body: bytes = page.read()
        return body


async def test_it_answers_with_its_web_ui_and_our_search_attributes() -> None:
    async with DevServer() as server:
        client = await Client.connect(server.address)
        # Taken at the first try: a search attribute that is still unknown would refuse it.
        handle = await client.start_workflow("Unhosted", id="w1", task_queue="none")
        assert (await handle.describe()).id == "w1"
        for name in SEARCH_ATTRIBUTES:
            await client.count_workflows(f"{name} IS NULL")
        assert b"<html" in await asyncio.to_thread(fetch, server.ui_url)
    assert not server.running
    assert not listens(server.port)


async def test_killed_and_restarted_it_has_the_same_ports_and_data(tmp_path: Path) -> None:
    async with DevServer(db_filename=tmp_path / "new" / "temporal.db") as server:
        client = await Client.connect(server.address)
        await client.start_workflow("Unhosted", id="w1", task_queue="none")
        before = (server.address, server.ui_url)

        server.kill()
        assert not server.running
        assert not listens(server.port)

        await server.start()
        assert (server.address, server.ui_url) == before
        # The client of before connects again by itself.
        assert (await client.get_workflow_handle("w1").describe()).id == "w1"

        await server.restart()
        assert (await client.get_workflow_handle("w1").describe()).id == "w1"


async def test_after_it_ended_by_itself_it_can_be_started_again(tmp_path: Path) -> None:
    async with DevServer(db_filename=tmp_path / "temporal.db") as server:
        assert server._process is not None
        server._process.kill()
        server._process.wait()
        await server.start()
        assert listens(server.port)


async def test_in_memory_a_restart_forgets() -> None:
    async with DevServer() as server:
        client = await Client.connect(server.address)
        await client.start_workflow("Unhosted", id="w1", task_queue="none")
        await server.restart()
        with pytest.raises(RPCError, match="not found"):
            await client.get_workflow_handle("w1").describe()


@pytest.mark.parametrize("option", ["port", "ui_port"])
async def test_a_taken_port_is_named_with_the_next_step(option: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(InvalidSetting) as refusal:
            await DevServer(**{option: port}).start()
    assert f"Port {port} on 127.0.0.1" in str(refusal.value)
    assert "is taken" in str(refusal.value)
    assert "--" + option.replace("_", "-") in str(refusal.value)


async def test_a_port_that_another_program_takes_meanwhile_is_drawn_again(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken, drawn = other.getsockname()[1], devserver._free_port
        first = iter([taken])  # it was free when we looked
        monkeypatch.setattr(devserver, "_free_port", lambda *, but=(): next(first, None) or drawn(but=but))
        async with DevServer() as server:
            assert taken not in (server.port, server.ui_port)
            assert listens(server.port)


async def test_two_servers_never_share_a_database(tmp_path: Path) -> None:
    async with DevServer(db_filename=tmp_path / "temporal.db"):
        with pytest.raises(InvalidSetting, match=r"Another Temporal server is using .*temporal\.db"):
            await DevServer(db_filename=tmp_path / "temporal.db").start()
    async with DevServer(db_filename=tmp_path / "temporal.db") as again:
        assert again.running


async def test_a_folder_that_cannot_be_written_to_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InvalidSetting, match=r"can't keep its data at '.*file/temporal\.db'"):
        await DevServer(db_filename=tmp_path / "file" / "temporal.db").start()


async def test_a_server_that_ends_at_once_has_its_last_words_in_the_error(tmp_path: Path) -> None:
    (tmp_path / "temporal.db").write_text("this is no database, and long enough to be seen as none " * 20)
    with pytest.raises(Unreachable, match=r"ended while it started\. Its last lines were:\n.*database"):
        await DevServer(db_filename=tmp_path / "temporal.db").start()


async def test_a_server_that_never_answers_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "temporal"
    program.write_text("#!/bin/sh\necho so slow\nexec sleep 60\n")
    program.chmod(0o755)

    async def slow_one() -> Path:
        return program

    monkeypatch.setattr(devserver, "find_binary", slow_one)
    server = DevServer(ready_seconds=0.5)
    with pytest.raises(Unreachable, match=r"did not answer within 0 s\. Its last lines were:\nso slow"):
        await server.start()
    assert not server.running


OLDER = """#!/bin/sh
for one in "$@"; do
  case "$one" in {flag}*) echo "Error: unknown flag: {flag}" >&2; exit 1;; esac
done
exec "{real}" "$@"
"""


@pytest.mark.parametrize(("flag", "works"), [("--ui-disable-news-fetch", True), ("--sqlite-pragma", False)])
async def test_an_older_program_does_without_a_flag_or_is_named_with_the_cure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flag: str, works: bool
) -> None:
    """As 1.5.1 and 1.6.2 say it, which lack the first one."""
    older = tmp_path / "temporal"
    older.write_text(OLDER.format(flag=flag, real=await devserver.find_binary()))
    older.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    server = DevServer(db_filename=tmp_path / "temporal.db")
    if works:
        async with server:
            assert listens(server.port)
        return
    with pytest.raises(Unreachable, match=f"is too old .* does not know {flag}.*{re.escape(install('server'))}"):
        await server.start()


async def test_without_the_program_the_error_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / "everturn").write_text("in the way of the folder for downloads")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(Unreachable, match=re.escape(install("server"))):
        await devserver.find_binary()


PARENT = """
import asyncio, signal
from everturn.devserver import DevServer

async def main():
    async with DevServer() as server:
        asyncio.get_running_loop().add_signal_handler(signal.SIGINT, lambda: None)
        print(server.port, flush=True)
        await asyncio.sleep(60)

asyncio.run(main())
"""


@pytest.fixture
def parent() -> Iterator[subprocess.Popen[str]]:
    """A process with a server, in a group of its own, as a terminal would have it."""
    with subprocess.Popen(
        [sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        yield process
        process.kill()


def port_of(parent: subprocess.Popen[str]) -> int:
    assert parent.stdout is not None
    return int(parent.stdout.readline())


def test_it_dies_with_a_parent_that_is_killed(parent: subprocess.Popen[str]) -> None:
    port = port_of(parent)
    assert listens(port)
    parent.kill()
    until(lambda: not listens(port))


def test_ctrl_c_reaches_the_parent_only(parent: subprocess.Popen[str]) -> None:
    """It still needs the server, to drain its worker, and stops it when it is done."""
    port = port_of(parent)
    os.killpg(parent.pid, signal.SIGINT)  # what a terminal does: to everybody in the foreground
    with pytest.raises(subprocess.TimeoutExpired):
        parent.wait(0.5)
    assert listens(port)


async def test_a_named_temporal_is_used_and_nothing_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEMPORAL_ADDRESS", "temporal.example:7233")
    async with connect_or_start() as endpoint:
        assert (endpoint.address, endpoint.server, endpoint.ui_url) == ("temporal.example:7233", None, None)


async def test_without_one_a_server_is_started_for_as_long_as_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEMPORAL_NAMESPACE", "shop")
    monkeypatch.setenv("TEMPORAL_API_KEY", "for another server")
    async with connect_or_start() as endpoint:
        client = await Client.connect(**endpoint.options)
        assert client.namespace == "shop"
        await client.count_workflows("EverturnStatus = 'stalled'")
        assert endpoint.server is not None
        assert endpoint.ui_url == endpoint.server.ui_url

        for name, value in endpoint.environment.items():
            monkeypatch.setenv(name, value)
        assert (await Client.connect(**connect_options())).namespace == "shop"
    assert not endpoint.server.running
