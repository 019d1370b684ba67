"""Deleting a conversation with all that belongs to it, on a real server."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

import pytest
from temporalio.service import RPCError, RPCStatusCode

from everturn import Agent, Client, Conversation, Limits, tool
from everturn.activities import journal
from everturn.client import deletion
from everturn.client.deletion import Deleted
from everturn.devserver import DevServer
from everturn.errors import Refused
from everturn.testing import ScriptedModel, call
from tests.support.agents import agent_on, hosting
from tests.support.bounds import Bounds
from tests.support.histories import runs_of, started
from tests.support.shell import Shell
from tests.support.waiting import eventually

Scripted = Callable[..., ScriptedModel]

LARGE = "x" * 300_000


@pytest.fixture
async def keeper(server: DevServer, tmp_path: Path) -> Client:
    """A client whose conversations are not replayed at the end: they are gone by then."""
    client = await Client.connect(server.address, task_queue=f"q-{uuid4().hex[:8]}", storage=tmp_path / "stored")
    yield client
    started.pop(client.task_queue, None)


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


async def belongings(conversation: Conversation) -> deletion.Belongings:
    return await deletion.find_belongings(conversation._temporal, conversation.id)


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
    agents = [one for one in found.conversations if one != first.id]
    assert len(agents) == 3
    assert all(one.startswith(f"{first.id}.") for one in agents)
    assert len(found.runs[first.id]) > len(await runs_of(keeper, first)) >= 1
    before = len(files(kept)), len(files(tmp_path / "stored"))

    deleted = await first.delete(artifacts=kept)
    assert {*deleted.conversations} == {first.id, *agents}
    assert deleted.runs == sum(map(len, found.runs.values()))
    assert deleted.artifacts == 3
    assert deleted.payloads == 6 or deleted.payloads > 0
    assert deleted.left == ()
    for one, runs in found.runs.items():
        await gone(keeper, one, *runs)
    assert len(files(kept)) == before[0] - deleted.artifacts
    assert len(files(tmp_path / "stored")) == before[1] - deleted.payloads > 0
    assert (await other.transcript())[-1].text == "Done."  # the other one's are its own
    assert await first.delete(artifacts=kept) == Deleted()  # safe to repeat
    await eventually(lambda: _unlisted(keeper, first.id))


async def _unlisted(client: Client, conversation_id: str) -> bool:
    return conversation_id not in [one.id async for one in client.conversations()]


async def test_what_runs_is_refused_and_terminated_only_if_that_is_said(keeper: Client, scripted: Scripted) -> None:
    agent = agent_on(scripted(["Hi."]))
    conversation = await keeper.start(agent, "Hi")  # nobody hosts it
    with pytest.raises(Refused, match=r"still runs.*Close it first"):
        await conversation.delete()
    assert (await conversation.delete(terminate=True)).runs == 1
    await gone(keeper, conversation.id)


async def test_a_delete_that_broke_off_goes_on_where_it_stopped(
    keeper: Client, scripted: Scripted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    helper = lister(scripted)
    agent = asker(scripted, helper)
    async with hosting(keeper, agent, artifacts=tmp_path / "artifacts"):
        conversation = await keeper.start(agent, "Go")
        await conversation.outcome()
    real = deletion._delete_run

    async def breaks_off(client: object, conversation_id: str, run: str) -> bool:
        if conversation_id == conversation.id:
            raise ConnectionError("killed")
        return await real(client, conversation_id, run)  # type: ignore[arg-type]

    monkeypatch.setattr(deletion, "_delete_run", breaks_off)
    with pytest.raises(ConnectionError):
        await conversation.delete(artifacts=tmp_path / "artifacts")
    monkeypatch.undo()
    assert conversation.id in (await conversation.delete(artifacts=tmp_path / "artifacts")).conversations
    await gone(keeper, conversation.id)
    assert files(tmp_path / "artifacts") == []


async def test_the_conversation_of_an_agent_goes_with_the_one_that_asked(keeper: Client, scripted: Scripted) -> None:
    helper = lister(scripted)
    agent = asker(scripted, helper)
    async with hosting(keeper, agent):
        conversation = await keeper.start(agent, "Go")
        await conversation.outcome()
    [child] = [one for one in (await belongings(conversation)).conversations if one != conversation.id]
    with pytest.raises(Refused, match=rf"answers a call of '{conversation.id}'"):
        await keeper.conversation(child).delete()
    await conversation.delete()
    assert await keeper.conversation(child).delete() == Deleted()


async def test_a_fork_that_needs_the_history_is_named_and_one_with_a_copy_stays(
    keeper: Client, scripted: Scripted
) -> None:
    agent = agent_on(scripted(lambda messages: f"Reply {len(messages)}."))
    async with hosting(keeper, agent):
        conversation = await keeper.start(agent, "Hi. " * 10, keep_open=timedelta(minutes=5))
        await conversation.reply()
        await conversation.close()
        await conversation.outcome()
    fork = await _forked(conversation)
    found = await eventually(lambda: _forks_of(conversation))
    assert [(one.id, one.needs) for one in found] == [(fork.id, False)]  # it is small: the fork has a copy
    await conversation.delete()
    async with hosting(keeper, agent):
        assert [message.text for message in await fork.transcript()] == ["Hi. " * 10, "Reply 1."]
        await fork.send("And?")
        assert await fork.reply() == "Reply 3."
        await fork.close()
        await fork.outcome()


async def test_a_fork_whose_beginning_is_in_the_history_is_refused_until_it_has_it(
    keeper: Client, scripted: Scripted, bounds: Bounds
) -> None:
    bounds(begun_with_bytes=10)  # as if the transcript were too long to travel
    agent = agent_on(scripted(lambda messages: f"Reply {len(messages)}."))
    async with hosting(keeper, agent):
        conversation = await keeper.start(agent, "Hi.", keep_open=timedelta(minutes=5))
        await conversation.reply()
        await conversation.close()
        await conversation.outcome()
    fork, second = await _forked(conversation), await _forked(conversation)
    await eventually(lambda: _has(conversation, 2))
    with pytest.raises(Refused, match=rf"{fork.id}.*can't be read without the history of"):
        await conversation.delete()
    async with hosting(keeper, agent):
        for one in (fork, second):
            await one.send("And?")
            await one.reply()
        await eventually(lambda: _none_needs(conversation))
    deleted = await conversation.delete()
    assert deleted.conversations == (conversation.id,)
    async with hosting(keeper, agent):
        assert [message.text for message in await fork.transcript()][:2] == ["Hi.", "Reply 1."]
        for one in (fork, second):
            await one.close()
            await one.outcome()


async def test_forks_go_too_if_that_is_said(keeper: Client, scripted: Scripted, bounds: Bounds) -> None:
    bounds(gone_seconds=1.0)  # of those that were just terminated, the histories stay for a while
    agent = agent_on(scripted(lambda messages: f"Reply {len(messages)}."))
    async with hosting(keeper, agent):
        conversation = await keeper.start(agent, "Hi.")
        await conversation.outcome()
        fork = await _forked(conversation)
        of_fork = await _forked(fork)
    await eventually(lambda: _has(conversation, 2))
    with pytest.raises(Refused, match="still runs"):
        await conversation.delete(forks=True)
    deleted = await conversation.delete(forks=True, terminate=True)
    assert {*deleted.conversations} == {conversation.id, fork.id, of_fork.id}


async def _forked(conversation: Conversation) -> Conversation:
    return await conversation.fork(at_turn=1)


async def _forks_of(conversation: Conversation) -> object:
    return (await belongings(conversation)).forks


async def _has(conversation: Conversation, forks: int) -> bool:
    return len((await belongings(conversation)).forks) == forks


async def _none_needs(conversation: Conversation) -> bool:
    return not any(fork.needs for fork in (await belongings(conversation)).forks)


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
    asked = shell.run("delete", conversation.id)
    assert asked.returncode == 1
    assert f"{conversation.id}: 1 run, 1 payload in external storage" in asked.stdout
    assert "To delete without a question, use --yes." in asked.stderr
    await conversation.transcript()  # it is still there
    done = shell.run("delete", conversation.id, "--yes")
    assert done.stdout.startswith(f"deleted: {conversation.id}: 1 run, 1 artifact, 1 stored payload, "), done
    again = shell.run("delete", conversation.id, "--yes")
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
            made._write(task(conversation))
        os.close(made._descriptor)  # as a kill does
        made._folder.close()

    left_by_a_dead_worker("a")
    left_by_a_dead_worker("b")
    left_by_a_dead_worker("a", "b")
    with journal.Journal(tmp_path, scope={"server": "s"}) as alive:
        with alive.holding(task("a")):
            assert journal.forget({"a"}, tmp_path) == (1, 2)
        assert journal.forget({"a"}, tmp_path) == (0, 1)  # nothing is in its hand: it names nobody
    assert len(files(tmp_path)) == 2
