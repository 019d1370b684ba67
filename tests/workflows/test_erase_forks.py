"""Erasing a conversation that has forks, on a real server."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from uuid import uuid4

import pytest
from temporalio.client import WorkflowExecution
from temporalio.service import RPCError, RPCStatusCode

import everturn.client.fork_search
from everturn import Client, Conversation
from everturn.client import erasure
from everturn.client.belongings import Belongings, find_belongings
from everturn.client.fork_search import Fork, ForkLines
from everturn.devserver import DevServer
from everturn.errors import Refused
from everturn.history import fork_start
from everturn.sizes import MAX_FORK_LINE_BYTES, size_of
from everturn.temporal.namespace import Namespace
from everturn.tenants.metadata import index_keywords
from everturn.testing import ScriptedModel
from tests.support.agents import agent_on, hosting
from tests.support.bounds import Bounds
from tests.support.operators import delete
from tests.support.waiting import eventually

Scripted = Callable[..., ScriptedModel]


@pytest.fixture
async def keeper(server: DevServer) -> Client:
    """A client whose conversations are not replayed at the end: they are gone by then."""
    return await Client.connect(server.address, task_queue=f"q-{uuid4().hex[:8]}")


async def belongings(conversation: Conversation, *, keep_forks: bool = False) -> Belongings:
    return await find_belongings(conversation._temporal, conversation.id, keep_forks=keep_forks)


async def _delete_later(client: Client, conversation_id: str, run_id: str) -> bool:
    return True


async def gone(client: Client, conversation_id: str) -> None:
    with pytest.raises(RPCError) as missed:
        await client.temporal.get_workflow_handle(conversation_id).describe()
    assert missed.value.status is RPCStatusCode.NOT_FOUND


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
    await eventually(lambda: _has(conversation, 1))
    assert (await belongings(conversation, keep_forks=True)).bound == []  # it is small: the fork has a copy
    assert (await keeper.erase(conversation.id, keep_forks=True)).kept == (fork.id,)
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
        await keeper.erase(conversation.id, keep_forks=True)
    async with hosting(keeper, agent):
        for one in (fork, second):
            await one.send("And?")
            await one.reply()
        await eventually(lambda: _none_needs(conversation))
    erased = await keeper.erase(conversation.id, keep_forks=True)
    assert [conversation.id for conversation in erased.conversations] == [conversation.id]
    async with hosting(keeper, agent):
        assert [message.text for message in await fork.transcript()][:2] == ["Hi.", "Reply 1."]
        for one in (fork, second):
            await one.close()
            await one.outcome()


async def test_forks_go_too_and_those_of_forks(
    keeper: Client, scripted: Scripted, bounds: Bounds, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = agent_on(scripted(lambda messages: f"Reply {len(messages)}."))
    async with hosting(keeper, agent):
        conversation = await keeper.start(agent, "Hi.")
        await conversation.outcome()
        fork = await _forked(conversation)
        of_fork = await _forked(fork)
    await eventually(lambda: _has(conversation, 2))
    with pytest.raises(Refused, match="still runs"):
        await keeper.erase(conversation.id)
    with monkeypatch.context() as patch:  # a server that takes its time: it says yes, and deletes later
        patch.setattr(erasure, "_delete_run", _delete_later)
        bounds(gone_seconds=0.0)
        erased = await keeper.erase(conversation.id, force=True)
    assert {conversation.id: conversation.was for conversation in erased.conversations} == {
        conversation.id: "named",
        fork.id: "fork",
        of_fork.id: "fork",
    }
    assert erased.under_way == erased.runs >= 3
    bounds(gone_seconds=60.0)
    assert (await keeper.erase(conversation.id)).under_way == 0


@pytest.mark.long
async def test_a_fork_of_a_fork_is_found_when_the_one_between_is_gone(keeper: Client, scripted: Scripted) -> None:
    """It begins with what was said in the first one. And a fork that was revived is still one when retention has
    removed the run that it began with."""
    agent = agent_on(scripted(lambda messages: f"Reply {len(messages)}."))
    async with hosting(keeper, agent):
        first = await keeper.start(agent, "The secret.", keep_open=timedelta(minutes=5))
        await first.reply()
        middle = await _forked(first)
        await middle.send("More")
        await middle.reply()
        last = await middle.fork(at_turn=2)
        for one in (first, middle, last):
            await one.close()
            await one.outcome()
        [began, *_] = (await belongings(last)).conversations[last.id].runs
        await keeper.send(agent, "Again", id=last.id)
        await last.outcome()
    await delete(keeper, last, began)
    await eventually(lambda: _has(first, 2))
    assert (await keeper.erase(middle.id, keep_forks=True)).kept == (last.id,)
    assert (await last.transcript())[0].text == "The secret."
    erased = await keeper.erase(first.id)
    assert [(conversation.id, conversation.of) for conversation in erased.conversations] == [
        (first.id, ""),
        (last.id, middle.id),
    ]
    await gone(keeper, last.id)


async def listed_by(monkeypatch: pytest.MonkeyPatch, client: Client) -> list[str]:
    """The ids of all workflows whose memos are read from now on."""
    seen: list[str] = []
    read = everturn.client.fork_search._fork_line

    def reading(execution: WorkflowExecution) -> tuple[str, ...]:
        seen.append(execution.id)
        return read(execution)

    monkeypatch.setattr(everturn.client.fork_search, "_fork_line", reading)
    return seen


async def test_forks_are_found_by_the_index_without_a_look_at_other_conversations(
    keeper: Client, scripted: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But those that were started without the search attribute."""
    agent = agent_on(scripted(lambda messages: f"Reply {len(messages)}."))
    long = f"{'a' * 300}-{uuid4().hex}"  # longer than what the index takes
    async with hosting(keeper, agent):
        for conversation in (await keeper.start(agent, "Hi."), await keeper.start(agent, "Hi.", id=long)):
            await conversation.outcome()
            other = await keeper.start(agent, "Hi.")
            await other.outcome()
            near = await _forked(conversation)
            with monkeypatch.context() as patched:
                patched.setattr(Namespace, "searchable", _no)
                without = await _forked(near)
            for one in (near, without):
                await one.close()
                await one.outcome()
            await eventually(partial(_has, conversation, 2))
            await eventually(partial(_is_listed, keeper, other))
            with monkeypatch.context() as patched:
                seen = await listed_by(patched, keeper)
                erased = await keeper.erase(conversation.id)
            assert {conversation.id for conversation in erased.conversations} == {conversation.id, near.id, without.id}
            assert without.id in seen
            assert other.id not in seen


async def test_a_fork_that_the_index_does_not_show_yet_is_said_to_be_left(
    keeper: Client, scripted: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = agent_on(scripted(lambda messages: f"Reply {len(messages)}."))
    async with hosting(keeper, agent):
        conversation = await keeper.start(agent, "Hi.")
        await conversation.outcome()
        fork = await _forked(conversation)
        await fork.close()
        await fork.outcome()
    await eventually(lambda: _has(conversation, 1))
    asked: list[str] = []
    real = ForkLines.find_forks

    async def lagging(self: ForkLines, conversation_id: str) -> list[Fork]:
        asked.append(conversation_id)
        return [] if len(asked) == 1 else await real(self, conversation_id)

    monkeypatch.setattr(ForkLines, "find_forks", lagging)
    [left] = (await keeper.erase(conversation.id)).left
    assert left.startswith(f"{fork.id}: a fork of it that was started just before")
    assert [one.id for one in (await keeper.erase(conversation.id)).conversations] == [fork.id]


async def _no(_: Namespace) -> bool:
    return False


async def _is_listed(client: Client, conversation: Conversation) -> bool:
    return conversation.id in [conversation.id async for conversation in client.conversations()]


def test_a_line_of_forks_that_there_is_no_room_for_in_the_index_is_marked() -> None:
    assert index_keywords([]) == ["fork-of="]
    assert index_keywords([], forked_from=["b", "a"]) == ["fork-of=b", "fork-of=a"]
    ids = [f"{number}-{'x' * 200}" for number in range(30)]
    keywords = index_keywords(["user=u"], tenant="acme", forked_from=ids)
    assert keywords[:3] == ["user=u", "tenant=acme", f"fork-of={ids[0]}"]
    assert keywords[-1] == "fork-of-more"
    assert len(json.dumps(keywords)) <= 2_048


def test_a_line_of_forks_that_is_too_long_keeps_the_nearest() -> None:
    ids = [f"{number}-{'x' * 900}" for number in range(200)]
    kept = fork_start._fork_line(*ids)
    assert list(kept) == ids[: len(kept)]
    assert size_of(kept) <= MAX_FORK_LINE_BYTES
    assert fork_start._fork_line("c", "b", "a", "b") == ("c", "b", "a")


async def _forked(conversation: Conversation) -> Conversation:
    return await conversation.fork(at_turn=1)


async def _has(conversation: Conversation, forks: int) -> bool:
    return len((await belongings(conversation, keep_forks=True)).kept) == forks


async def _none_needs(conversation: Conversation) -> bool:
    return not (await belongings(conversation, keep_forks=True)).bound
