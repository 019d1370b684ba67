"""Conversations as JSON lines, Markdown and SQLite: whole, through runs, edits and revivals."""

from __future__ import annotations

import itertools
import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from temporalio.client import Interceptor, OutboundInterceptor
from temporalio.service import RPCError, RPCStatusCode

from everturn import Client, Conversation, tool
from everturn.errors import InvalidFile, NotFound, Unreachable
from everturn.exporting import Exported, read_conversation, sqlite, to_jsonl, to_markdown, write_sqlite
from everturn.records import Message, Text
from everturn.testing import ScriptedModel, call
from tests.support.agents import agent_on, hosting
from tests.support.bounds import Bounds
from tests.support.waiting import eventually, reaches, waiting

Scripted = Callable[..., ScriptedModel]

REFUND = call("refund", {"order": "81", "cents": 3490})


@tool(needs_approval=True, effect="once")
def refund(order: str, cents: int) -> str:
    """Give money back."""
    return f"```\nrefunded {cents} of {order}\n```"


@tool
def read_page(number: int) -> str:
    """Read a page."""
    return f"page {number}: " + "x" * 3000


async def refunded(client: Client, scripted: Scripted, conversation_id: str) -> Conversation:
    """A conversation with an edited call, which was over and taken up again."""
    agent = agent_on(scripted([REFUND, "Less than it was.", "Really."]), tools=[refund])
    async with hosting(client, agent):
        conversation = await client.start(agent, "Refund order 81.", id=conversation_id)
        await waiting(conversation)
        await conversation.approve("call_0_0", arguments={"order": "81", "cents": 900}, note="half")
        await conversation.outcome()
        await client.send(agent, "Really?", id=conversation.id)
        await conversation.outcome()

    async def both_listed() -> bool:
        written = conversation_id.replace("'", "''")
        query = f"WorkflowId = '{written}'"
        return len([workflow async for workflow in client.temporal.list_workflows(query)]) == 2

    await eventually(both_listed, what="the index knows both of its lives")
    return conversation


def asked(file: Path, question: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(file)) as database:
        return database.execute(question).fetchall()


async def test_a_database_is_asked_in_sql(client: Client, scripted: Scripted, tmp_path: Path) -> None:
    file = tmp_path / "conversations.db"
    name = f"it's {uuid4().hex[:6]}"
    other = await refunded(client, scripted, f"{name}-2")
    conversation = await refunded(client, scripted, name)
    exported = await read_conversation(client, conversation.id)
    write_sqlite(file, [exported, await read_conversation(client, other.id)])
    write_sqlite(file, [exported])  # once more: it is replaced, and the other one stays

    assert asked(file, "SELECT id, agent, model, status, turns, messages FROM conversations ORDER BY id") == [
        (name, "clerk", "scripted:demo", "completed", 3, 6),
        (f"{name}-2", "clerk", "scripted:demo", "completed", 3, 6),
    ]
    (row,) = asked(
        file,
        """SELECT c.arguments ->> 'cents', r.edited_arguments ->> 'cents', r.verdict, r.decided_by, r.note, r.is_error,
                  c.turn, c.started_at < c.finished_at, m.role
           FROM tool_calls c JOIN tool_results r USING (conversation, call_id)
           JOIN messages m ON m.conversation = r.conversation AND m.position = r.position
           WHERE c.name = 'refund' AND c.conversation NOT LIKE '%-2'""",
    )
    assert row == (3490, 900, "approve", "tester", "half", 0, 1, 1, "tool")
    said = asked(file, "SELECT role, turn, text FROM messages WHERE conversation NOT LIKE '%-2' ORDER BY position")
    assert said[-2:] == [("user", 3, "Really?"), ("assistant", 3, "Really.")]
    stops = ["tool_calls", "end", "end"]
    assert [turn.stop for turn in exported.turns] == stops
    assert asked(file, "SELECT stop FROM usage WHERE conversation NOT LIKE '%-2' ORDER BY turn") == [
        (stop,) for stop in stops
    ]
    lines = map(json.loads, to_jsonl(exported).splitlines())
    assert [line["stop"] for line in lines if line["kind"] == "turn"] == stops
    tokens = sum(turn.usage.total_tokens for turn in exported.turns)
    assert asked(file, "SELECT sum(input_tokens + output_tokens), count(*) FROM usage WHERE turn > 0") == [
        (2 * tokens, 6)
    ]
    assert tokens > 0
    for table in ("messages", "tool_calls", "tool_results", "usage"):
        assert asked(
            file, f"SELECT count(*) FROM {table} WHERE conversation NOT IN (SELECT id FROM conversations)"
        ) == [(0,)]


async def test_lines_and_markdown_hold_all_that_was_said(client: Client, scripted: Scripted) -> None:
    conversation = await refunded(client, scripted, f"refunds-{uuid4().hex[:6]}")
    exported = await read_conversation(client, conversation.id)
    lines = [json.loads(line) for line in to_jsonl(exported).splitlines()]
    assert [line["kind"] for line in lines] == ["conversation"] + ["turn"] * 3 + ["message"] * 6
    assert lines[0]["outcome"]["text"] == "Really."
    messages = tuple(Message.model_validate(line) for line in lines if line["kind"] == "message")
    assert messages == await conversation.transcript()
    assert [line["turn"] for line in lines if line["kind"] == "message"] == [1, 1, 2, 2, 3, 3]
    ats = [line["at"] for line in lines if line["kind"] == "message"]
    assert ats == sorted(ats)

    written = to_markdown(exported)
    assert written.startswith(f"# {conversation.id}\n\nAgent clerk · scripted:demo · completed · ")
    assert "**refund** (`call_0_0`)\n\n```json\n" in written
    assert "approved by tester at " in written
    assert "````\n```\nrefunded 900 of 81\n```\n````" in written  # a result can't end its own fence
    assert written.index("Less than it was.") < written.index("Really?")


async def test_results_are_exported_before_the_last_call_of_their_reply_is_over(
    client: Client, scripted: Scripted, tmp_path: Path
) -> None:
    @tool
    def look(thing: str) -> str:
        return f"{thing} is there"

    @tool(needs_approval=True, effect="once")
    def refund(cents: int) -> str:
        return "refunded"

    reply = [call("look", {"thing": "order 81"}), call("refund", {"cents": 5})]
    agent = agent_on(scripted([reply, "Done."]), tools=[look, refund])
    async with hosting(client, agent):
        conversation = await client.start(agent, "Go")
        await waiting(conversation)

        async def looked() -> bool:
            return any(open_call.result for open_call in (await read_conversation(client, conversation.id)).open_calls)

        await eventually(looked)
        exported = await read_conversation(client, conversation.id)
        await conversation.approve()
        await conversation.outcome()
    looked, waits = [json.loads(line) for line in to_jsonl(exported).splitlines() if '"kind": "open_call"' in line]
    assert (looked["tool"], looked["state"], looked["result"]["content"][0]["text"]) == (
        "look",
        "finished",
        "order 81 is there",
    )
    assert (waits["tool"], waits["state"], waits["result"]) == ("refund", "waits", None)
    file = tmp_path / "open.db"
    write_sqlite(file, [exported])
    assert asked(file, "SELECT name, state FROM tool_calls ORDER BY name") == [
        ("look", "finished"),
        ("refund", "waits"),
    ]
    assert asked(file, "SELECT name, position, text FROM tool_results") == [("look", None, "order 81 is there")]
    write_sqlite(file, [await read_conversation(client, conversation.id)])
    assert asked(file, "SELECT name, state FROM tool_calls ORDER BY name") == [("look", None), ("refund", None)]
    assert asked(file, "SELECT count(*) FROM tool_results WHERE position IS NULL") == [(0,)]


@pytest.mark.long_if(lambda room: room > 0)
@pytest.mark.parametrize("room", [48_000, 0], ids=["packed", "in earlier runs"])
async def test_it_is_whole_over_many_runs_while_it_still_runs(
    client: Client, scripted: Scripted, bounds: Bounds, tmp_path: Path, room: int
) -> None:
    bounds(events=40, packed_bytes=room)
    agent = agent_on(scripted([*(call("read_page", {"number": n}) for n in range(12)), "Read."]), tools=[read_page])
    async with hosting(client, agent):
        conversation = await client.start(agent, "Read it all.", keep_open=timedelta(minutes=5))
        await conversation.reply()
        await reaches(conversation, "idle")

        async def idle() -> Any:  # the index lags
            found = await read_conversation(client, conversation.id)
            return found if found.status == "idle" else None

        exported = await eventually(idle)
        assert (exported.ended_at, exported.outcome) == (None, None)
        assert [message.role for message in exported.messages] == ["user", *["assistant", "tool"] * 12, "assistant"]
        assert [turn.turn for turn in exported.turns] == [*range(1, 14)]
        assert sorted(exported.facts) == [*range(26)]
        assert len(exported.calls) == 12
        write_sqlite(tmp_path / "pages.db", [exported])
        await conversation.close()
        await conversation.outcome()
        behind = await Client.connect(client.temporal.service_client.config.target_host, interceptors=[Behind()])
        assert (await read_conversation(behind, conversation.id)).turns == exported.turns
    (length,) = asked(tmp_path / "pages.db", "SELECT length(text) FROM tool_results WHERE text LIKE 'page 11%'")
    assert length == (3009,)


class Behind(Interceptor):
    """A server whose index knows of nothing yet."""

    def intercept_client(self, next: OutboundInterceptor) -> OutboundInterceptor:  # noqa: A002
        class Empty(OutboundInterceptor):
            def list_workflows(self, input: Any) -> Any:  # noqa: A002
                return super().list_workflows(replace(input, query="WorkflowId = 'nobody'"))

        return Empty(next)


class Leaving(Interceptor):
    """A server that is gone once it was asked a number of things."""

    def __init__(self, *, after: int) -> None:
        self.left = after

    def intercept_client(self, next: OutboundInterceptor) -> OutboundInterceptor:  # noqa: A002
        leaving = self

        def count() -> None:
            leaving.left -= 1
            if leaving.left < 0:
                raise RPCError("connection refused", RPCStatusCode.UNAVAILABLE, b"")

        class Counted(OutboundInterceptor):
            async def describe_workflow(self, input: Any) -> Any:  # noqa: A002
                count()
                return await super().describe_workflow(input)

            def list_workflows(self, input: Any) -> Any:  # noqa: A002
                count()
                return super().list_workflows(input)

        return Counted(next)


async def test_a_server_that_goes_away_meanwhile_is_said_to_be_unreachable(client: Client, scripted: Scripted) -> None:
    agent = agent_on(scripted(["Hello."]))
    async with hosting(client, agent):
        conversation = await client.start(agent, "Hi")
        await conversation.outcome()
    address, after = client.temporal.service_client.config.target_host, 0
    while True:
        reading = await Client.connect(address, interceptors=[Leaving(after=after)])
        try:
            exported = await read_conversation(reading, conversation.id)
        except Unreachable:
            after += 1
        else:
            break
    assert after >= 4, "the transcript's description, the list, the latest run, the last description"
    assert exported.status == "completed"


async def test_what_is_not_there_and_what_is_no_database_of_ours_is_named(client: Client, tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="no conversation 'nobody'"):
        await read_conversation(client, "nobody")
    text, other = tmp_path / "notes.db", tmp_path / "other.db"
    text.write_text("Not a database, and longer than the header of one, so that SQLite looks at it." * 20)
    with closing(sqlite3.connect(other)) as database:
        database.execute("CREATE TABLE conversations (id)")
    for file in (text, other, tmp_path / "no" / "folder.db"):
        with pytest.raises(InvalidFile, match=r"Name another file\."):
            write_sqlite(file, [])
    assert asked(other, "SELECT count(*) FROM sqlite_schema") == [(1,)]


def test_a_database_of_before_gets_the_columns_that_it_lacks(tmp_path: Path) -> None:
    old = tmp_path / "old.db"
    write_sqlite(old, [Exported("first")])
    with closing(sqlite3.connect(old)) as database:
        for change in itertools.chain.from_iterable(sqlite.ADDED.values()):
            database.execute("ALTER TABLE {} DROP {}".format(*change.split()[::2]))
        database.execute("PRAGMA user_version = 1")
    cut = Message(role="assistant", parts=(Text(text="Once"),), cut_short=True)
    write_sqlite(old, [Exported("second", labels={"tenant": "acme", "metadata": {"order": "81"}}, messages=(cut,))])
    labels = "SELECT id, tenant, metadata ->> 'order' FROM conversations ORDER BY id"
    assert asked(old, labels) == [("first", None, None), ("second", "acme", "81")]
    assert asked(old, "SELECT text, cut_short FROM messages") == [("Once", 1)]
    assert asked(old, "PRAGMA user_version") == [(sqlite.VERSION,)]
    with closing(sqlite3.connect(old)) as database:
        database.execute("PRAGMA user_version = 99")
    with pytest.raises(InvalidFile, match=r"another version \(99\)"):
        write_sqlite(old, [])


def test_no_reader_of_markdown_is_given_a_pictures_bytes() -> None:
    from everturn.records import Image

    parts = (Text(text="Look:"), Image(data="AAAA" * 1000, media_type="image/png"))
    written = to_markdown(Exported("x", messages=(Message.user(parts),)))
    assert "[image: image/png, 3,000 bytes]" in written
    assert "AAAA" not in written


async def test_its_tokens_are_those_that_its_status_and_its_outcome_say(client: Client, scripted: Scripted) -> None:
    """An export added up the turns that it read: it left out agents that were asked, and what a fork began with."""
    researcher = agent_on(scripted(["It gives light."]), name="researcher")
    ask = call("researcher", {"message": "What is a lamp?"}, id="c1")
    editor = agent_on(scripted([ask, "Done.", "Again."]), name="editor", tools=[researcher])
    async with hosting(client, editor):
        conversation = await client.start(editor, "Explain lamps")
        outcome = await conversation.outcome()
        below = await client.conversation(f"{conversation.id}.c1").outcome()
        fork = await conversation.fork(at_turn=1, message="Once more")
        await fork.outcome()
        for one in (conversation, fork):
            exported, status = await read_conversation(client, one.id), await one.status()
            assert (exported.usage, exported.cost_usd) == (status.usage, status.cost_usd)
            first = json.loads(to_jsonl(exported).splitlines()[0])
            assert first["usage"]["input_tokens"] == status.usage.input_tokens
    own = sum(turn.usage.total_tokens for turn in (await read_conversation(client, conversation.id)).turns)
    assert outcome.usage.total_tokens == own + below.usage.total_tokens
