"""Erasing a conversation with all that belongs to it, on a real server."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from temporalio.api.enums.v1 import ArchivalState
from temporalio.api.namespace.v1 import NamespaceConfig
from temporalio.service import RPCError, RPCStatusCode

from everturn import Agent, Budget, Client, Conversation, Limits, tool
from everturn.client import erasure
from everturn.client.belongings import Belongings, find_belongings
from everturn.client.erasure import Erased
from everturn.client.out_of_reach import archives_of
from everturn.devserver import DevServer
from everturn.errors import Refused
from everturn.lost_workers import journal
from everturn.tenants.priorities import budget_id
from everturn.testing import ScriptedModel, call
from tests.support.agents import agent_on, hosting
from tests.support.bounds import Bounds
from tests.support.histories import runs_of
from tests.support.shell import Shell
from tests.support.waiting import eventually

Scripted = Callable[..., ScriptedModel]

LARGE = "x" * 300_000


@pytest.fixture
async def keeper(server: DevServer, tmp_path: Path) -> Client:
    """A client whose conversations are not replayed at the end: they are gone by then."""
    return await Client.connect(server.address, task_queue=f"q-{uuid4().hex[:8]}", storage=tmp_path / "stored")


@tool
def dump() -> str:
    return LARGE


def lister(scripted: Scripted) -> Agent:
    model = scripted(lambda messages: "Here." if messages[-1]["role"] == "tool" else call("dump"))
    return agent_on(model, name=f"lister-{uuid4().hex[:6]}", tools=[dump], limits=Limits(max_result_chars=290_000))


def asker(scripted: Scripted, helper: Agent) -> Agent:
    model = scripted(
        lambda messages: "Done." if messages[-1]["role"] == "tool" else call(helper.name, {"message": "List them."})
    )
    return agent_on(model, name=f"asker-{uuid4().hex[:6]}", tools=[helper])


async def belongings(conversation: Conversation, *, keep_forks: bool = False) -> Belongings:
    return await find_belongings(conversation._temporal, conversation.id, keep_forks=keep_forks)


async def gone(client: Client, conversation_id: str, *runs: str) -> None:
    for run in ("", *runs):
        handle = client.temporal.get_workflow_handle(conversation_id, run_id=run or None)
        with pytest.raises(RPCError) as missed:
            await handle.describe()
        assert missed.value.status is RPCStatusCode.NOT_FOUND


def files(folder: Path) -> list[Path]:
    return [file for file in folder.rglob("*") if file.is_file()]


async def test_all_that_belongs_to_a_conversation_goes_and_nothing_else(
    keeper: Client, scripted: Scripted, bounds: Bounds, tmp_path: Path
) -> None:
    bounds(events=12)  # it continues as new runs
    helper = lister(scripted)
    agent = asker(scripted, helper)
    kept = tmp_path / "artifacts"
    async with hosting(keeper, agent, artifacts=kept):
        first = await keeper.start(agent, "Go", id=f"order.{uuid4().hex}", keep_open=timedelta(minutes=5))
        await first.reply()
        await first.send("Once more")
        await first.reply()
        await first.close()
        await first.outcome()
        await keeper.send(agent, "And again", id=first.id)  # a second life
        await first.outcome()
        other = await keeper.start(agent, "Go", id=f"{first.id}.other")
        await other.outcome()
    found = await belongings(first)
    runs = {conversation.id: conversation.runs for conversation in found.conversations.values()}
    agents = [run for run in runs if run != first.id]
    assert len(agents) == 3
    assert all(agent.startswith(f"{first.id}.") for agent in agents)
    assert len(runs[first.id]) > len(await runs_of(keeper, first)) >= 1
    before = len(files(kept)), len(files(tmp_path / "stored"))

    would = await keeper.erase(first.id, artifacts=kept, dry_run=True)
    assert (len(files(kept)), len(files(tmp_path / "stored"))) == before

    erased = await keeper.erase(first.id, artifacts=kept)
    assert erased.conversations == would.conversations
    assert {conversation.id: conversation.runs for conversation in erased.conversations} == {
        conversation_id: len(run_ids) for conversation_id, run_ids in runs.items()
    }
    assert [(conversation.was, conversation.of) for conversation in erased.conversations] == [
        ("named", ""),
        *3 * [("asked", first.id)],
    ]
    assert [conversation.artifacts for conversation in erased.conversations] == [0, 1, 1, 1]
    assert [conversation.payloads for conversation in erased.conversations][1:] == [1, 1, 1]
    assert (erased.under_way, erased.left, erased.elsewhere) == (0, (), ())
    for one, ids in runs.items():
        await gone(keeper, one, *ids)
    assert len(files(kept)) == before[0] - erased.artifacts
    assert len(files(tmp_path / "stored")) == before[1] - erased.payloads > 0
    assert (await other.transcript())[-1].text == "Done."  # the other one's are its own
    assert await keeper.erase(first.id, artifacts=kept) == Erased()  # safe to repeat
    await eventually(lambda: _unlisted(keeper, first.id))


async def _unlisted(client: Client, conversation_id: str) -> bool:
    return conversation_id not in [conversation.id async for conversation in client.conversations()]


async def test_what_runs_is_refused_and_terminated_only_if_that_is_said(keeper: Client, scripted: Scripted) -> None:
    agent = agent_on(scripted(["Hi."]))
    conversation = await keeper.start(agent, "Hi")  # nobody hosts it
    with pytest.raises(Refused, match=r"still runs.*Close it first"):
        await keeper.erase(conversation.id)
    would = await keeper.erase(conversation.id, dry_run=True)
    assert "still runs" in would.refused
    assert [conversation.running for conversation in would.conversations] == [True]
    assert (await keeper.erase(conversation.id, force=True)).runs == 1
    await gone(keeper, conversation.id)


async def test_an_erasure_that_broke_off_goes_on_where_it_stopped(
    keeper: Client, scripted: Scripted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    helper = lister(scripted)
    agent = asker(scripted, helper)
    async with hosting(keeper, agent, artifacts=tmp_path / "artifacts"):
        conversation = await keeper.start(agent, "Go")
        await conversation.outcome()
    real = erasure._delete_run

    async def breaks_off(client: object, conversation_id: str, run: str) -> bool:
        if conversation_id == conversation.id:
            raise ConnectionError("killed")
        return await real(client, conversation_id, run)  # type: ignore[arg-type]

    monkeypatch.setattr(erasure, "_delete_run", breaks_off)
    with pytest.raises(ConnectionError):
        await keeper.erase(conversation.id, artifacts=tmp_path / "artifacts")
    monkeypatch.undo()
    erased = await keeper.erase(conversation.id, artifacts=tmp_path / "artifacts")
    assert erased.conversations[0].id == conversation.id
    await gone(keeper, conversation.id)
    assert files(tmp_path / "artifacts") == []


async def test_the_conversation_of_an_agent_goes_with_the_one_that_asked(keeper: Client, scripted: Scripted) -> None:
    helper = lister(scripted)
    agent = asker(scripted, helper)
    async with hosting(keeper, agent):
        conversation = await keeper.start(agent, "Go")
        await conversation.outcome()
    [_, child] = (await belongings(conversation)).conversations
    with pytest.raises(Refused, match=rf"answers a call of '{conversation.id}'"):
        await keeper.erase(child)
    await keeper.erase(conversation.id)
    assert await keeper.erase(child) == Erased()


async def test_the_command_asks_first_and_says_what_it_deleted(
    keeper: Client, scripted: Scripted, tmp_path: Path, shell: Shell
) -> None:
    agent = lister(scripted)
    async with hosting(keeper, agent, artifacts=tmp_path / "artifacts"):
        conversation = await keeper.start(agent, "Go")
        await conversation.outcome()
    shell.environment |= {
        "EVERTURN_ARTIFACTS": str(tmp_path / "artifacts"),
        "EVERTURN_STORAGE": str(tmp_path / "stored"),
    }
    listed = f"{conversation.id}: 1 run, 1 artifact, 1 stored payload"
    would = shell.run("erase", conversation.id, "--dry-run")
    assert (would.returncode, would.stdout) == (0, f"{listed}\n"), would
    asked = shell.run("erase", conversation.id)
    assert (asked.returncode, asked.stdout) == (1, f"{listed}\n"), asked
    assert "To erase without a question, use --yes." in asked.stderr
    await conversation.transcript()  # it is still there
    done = shell.run("erase", conversation.id, "--yes", "--json")
    told = json.loads(done.stdout)
    assert (told["conversations"][0]["id"], told["left"], done.returncode) == (conversation.id, [], 0), done
    again = shell.run("erase", conversation.id, "--yes")
    assert (again.returncode, again.stdout) == (0, f"nothing is left of {conversation.id}\n")
    assert files(tmp_path / "artifacts") == files(tmp_path / "stored") == []


def test_journals_of_dead_workers_that_name_it_are_removed(tmp_path: Path) -> None:
    def task(conversation: str) -> dict[str, str]:
        return {"token": "dG9rZW4=" if conversation == "a" else "b3RoZXI=", "conversation": conversation} | {
            "run": "r",
            "activity": "pay",
        }

    def left_by_a_dead_worker(*conversations: str) -> None:
        made = journal.Journal(tmp_path, scope={"server": "s"}).__enter__()
        for conversation in conversations:
            made._held[conversation] = task(conversation)
            made._write_line(task(conversation))
        os.close(made._descriptor)  # as a kill does
        made._folder.close()

    left_by_a_dead_worker("a")
    left_by_a_dead_worker("b")
    left_by_a_dead_worker("a", "b")
    with journal.Journal(tmp_path, scope={"server": "s"}) as alive:
        with alive.holding_task(task("a")):
            assert journal.forget_conversations({"a"}, tmp_path) == (1, 2)
        assert journal.forget_conversations({"a"}, tmp_path) == (0, 1)  # nothing is in its hand: it names nobody
    assert len(files(tmp_path)) == 2


# ---------------------------------------------------------------- what is left on disk

WORD = "Zanzibarquokka"


@tool
def look_up(name: str) -> str:
    """What is known of somebody."""
    return f"{name} owes a lot. " * 20_000


@pytest.fixture
async def on_disk(tmp_path: Path) -> AsyncIterator[DevServer]:
    quick = {f"history.{queue}ProcessorUpdateAckInterval": '"0.5s"' for queue in ("transfer", "visibility")}
    async with DevServer(db_filename=tmp_path / "database" / "temporal.db", dynamic_config=quick) as server:
        yield server


def about(messages: list[dict[str, Any]]) -> str:
    """Whom the first message names."""
    return str(next(message["content"] for message in messages if message["role"] == "user")).split()[-1]


async def test_no_file_has_a_word_of_an_erased_conversation(
    on_disk: DevServer, scripted: Scripted, tmp_path: Path
) -> None:
    """Of the database, the stored payloads, the artifacts and the journals. The word was in all that people, models and
    tools said, and in what the index shows."""
    keeper = await Client.connect(on_disk.address, task_queue=f"q-{uuid4().hex[:8]}", storage=tmp_path / "stored")
    model = scripted(
        lambda messages: (
            f"Told of {about(messages)}"
            if messages[-1]["role"] == "tool"
            else call("look_up", {"name": about(messages)})
        )
    )
    helper = agent_on(model, name="helper", tools=[look_up], limits=Limits(max_result_chars=290_000))
    asks = scripted(
        lambda messages: (
            f"It is {about(messages)}"
            if messages[-1]["role"] == "tool"
            else call("helper", {"message": f"Who is {about(messages)}"})
        )
    )
    agent = agent_on(asks, tools=[helper])
    async with hosting(keeper, agent, artifacts=tmp_path / "artifacts", journals=tmp_path / "journals"):
        told = {"keep_open": timedelta(minutes=5), "metadata": {"user": WORD}}
        named = await keeper.start(agent, f"{'Who? ' * 60_000} {WORD}", **told)
        await named.reply()
        fork = await named.fork(at_turn=1)
        other = await keeper.start(agent, f"{'Who? ' * 60_000} Wombat", keep_open=timedelta(minutes=5))
        await other.reply()
        for one in (named, fork, other):
            await one.close()
            await one.outcome()
    assert containing(tmp_path, WORD) == containing(tmp_path, "Wombat") == {"database", "stored", "artifacts"}
    await eventually(lambda: _has(named, 1))
    erased = await keeper.erase(named.id, artifacts=tmp_path / "artifacts")
    assert [(conversation.was, conversation.runs) for conversation in erased.conversations] == [
        ("named", 1),
        ("asked", 1),
        ("fork", 1),
    ]
    await eventually(lambda: _nothing_is_left(keeper, named.id, fork.id))
    await on_disk.stop()
    with closing(sqlite3.connect(tmp_path / "database" / "temporal.db")) as database:
        database.execute("VACUUM")  # else what was deleted stays in the file's free pages until they are needed
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    assert containing(tmp_path, WORD) == set()
    assert containing(tmp_path, "Wombat") == {"database", "stored", "artifacts"}


async def _has(conversation: Conversation, forks: int) -> bool:
    return len((await belongings(conversation, keep_forks=True)).kept) == forks


async def _nothing_is_left(client: Client, *ids: str) -> bool:
    return not any([(await client.erase(id_, dry_run=True)).conversations for id_ in ids])


def containing(folder: Path, word: str) -> set[str]:
    """The folders in it that have a file with that word."""
    return {file.relative_to(folder).parts[0] for file in files(folder) if word.encode() in file.read_bytes()}


def test_what_a_namespace_archives_is_said() -> None:
    on = ArchivalState.ARCHIVAL_STATE_ENABLED
    assert archives_of(NamespaceConfig()) == ()
    [told] = archives_of(NamespaceConfig(history_archival_state=on, history_archival_uri="s3://old"))
    assert "s3://old" in told
    [told] = archives_of(NamespaceConfig(visibility_archival_state=on, visibility_archival_uri="s3://index"))
    assert "s3://index" in told


async def test_a_workflow_of_another_kind_is_refused(keeper: Client) -> None:
    await keeper.set_budget(tenant := f"t-{uuid4().hex}", Budget(tokens_per_day=1))
    with pytest.raises(Refused, match="no conversation"):
        await keeper.erase(budget_id(tenant, encoded=False), force=True)
    await keeper.set_budget(tenant, None)
