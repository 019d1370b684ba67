"""The server's database is restored from a backup, as of before what its conversations have done."""

from __future__ import annotations

import shutil
import sqlite3
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import uuid4

import pytest
from temporalio.service import RPCError

from everturn import Agent, Client, Conversation, tool
from everturn.devserver import DevServer
from everturn.errors import EverturnError
from everturn.testing import ScriptedModel, call
from tests.support.agents import agent_on, hosting
from tests.support.waiting import eventually

Scripted = Callable[..., ScriptedModel]


class Backups:
    """A server with its database in a file, a copy of which is taken and put back."""

    def __init__(self, server: DevServer, folder: Path) -> None:
        self.server = server
        self._kept = folder / "backup"

    def take(self) -> None:
        """While the server runs, as backups are taken."""
        with closing(sqlite3.connect(self._database)) as database, closing(sqlite3.connect(self._kept)) as kept:
            database.backup(kept)

    async def restore(self) -> None:
        self.server.kill()
        for file in self._database.parent.glob(f"{self._database.name}*"):
            file.unlink()
        shutil.copy(self._kept, self._database)
        await self.server.start()

    @property
    def _database(self) -> Path:
        assert self.server.db_filename is not None
        return self.server.db_filename


@pytest.fixture
async def backups(tmp_path: Path) -> AsyncIterator[Backups]:
    folder = tmp_path / "database"
    folder.mkdir()
    async with DevServer(db_filename=folder / "temporal.db") as server:
        yield Backups(server, tmp_path)


@pytest.fixture
async def client(backups: Backups) -> Client:
    return await Client.connect(backups.server.address, by="tester")


class Cashier:
    """An agent that pays for each message, and what it paid."""

    def __init__(self, scripted: Scripted) -> None:
        self.paid: Counter[str] = Counter()

        @tool(effect="once")
        def pay(order: str) -> str:
            """Pay for an order."""
            self.paid[order] += 1
            return f"paid {order}"

        # As providers do, it gives its calls other ids each time that it is asked.
        model = scripted(
            lambda messages: (
                "Done."
                if messages[-1]["role"] == "tool"
                else call("pay", {"order": messages[-1]["content"]}, id=uuid4().hex)
            )
        )
        self.agent = agent_on(model, tools=[pay], name="cashier")


async def done(conversations: list[Conversation]) -> None:
    for one in conversations:
        await eventually(lambda one=one: _answered(one), what=f"{one.id} is answered")


async def _answered(conversation: Conversation) -> bool:
    try:
        return (await conversation.status()).state in ("idle", "done")
    except (EverturnError, RPCError):  # the server has just come up
        return False


async def held(conversations: list[Conversation]) -> None:
    """Returns once each has a call that may have run."""

    async def waits(conversation: Conversation) -> bool:
        try:
            return [call.reason for call in (await conversation.status()).waiting] == ["outcome_unknown"]
        except (EverturnError, RPCError):
            return False

    for one in conversations:
        await eventually(lambda one=one: waits(one), what=f"a call of {one.id} waits")


async def begun(client: Client, agent: Agent, count: int) -> list[Conversation]:
    return [
        await client.start(agent, f"order-{number}", id=f"order-{number}", keep_open=timedelta(hours=1))
        for number in range(count)
    ]


async def test_payments_of_the_lost_window_are_made_again_unless_the_workers_know_of_the_restore(
    backups: Backups, client: Client, scripted: Scripted
) -> None:
    cashier = Cashier(scripted)
    orders = await begun(client, cashier.agent, 5)
    backups.take()
    async with hosting(client, cashier.agent):
        await done(orders)
    assert set(cashier.paid.values()) == {1}

    await backups.restore()
    async with hosting(client, cashier.agent):  # the accident: nobody has told it
        await done(orders)
    assert cashier.paid == {f"order-{number}": 2 for number in range(5)}

    cashier.paid.clear()
    await backups.restore()
    async with hosting(client, cashier.agent, restored_at=datetime.now(UTC)):
        await held(orders)
        assert cashier.paid == {}
        (waits,) = (await orders[0].status()).waiting
        assert "outcome unknown: the database was restored at 20" in waits.why
        assert "pay may have run in what was lost: it is for a message of 20" in waits.why
        assert await client.approve_all() == []  # each is for a person who looks at it
        first, second, third = orders[:3]
        await first.answer("*", "paid already")
        await second.approve()
        await third.deny(reason="It was paid.")
        await done([first, second, third])
        assert cashier.paid == {"order-1": 1}
        # What people say from now on was not done before.
        await first.send("order-new")
        assert await first.reply() == "Done."
        assert cashier.paid == {"order-1": 1, "order-new": 1}


async def test_what_came_with_a_run_before_or_from_who_asked_is_held_too(
    backups: Backups, client: Client, scripted: Scripted, bounds: Callable[..., None]
) -> None:
    bounds(events=12)  # it goes on as new runs, in the middle of its answer
    cashier = Cashier(scripted)

    def runs_on(messages: list[dict[str, str]]) -> object:
        asked = sum(message["role"] == "tool" for message in messages)
        if asked < 3:
            return call("look", {"page": asked})
        return call("cashier", {"message": "order-asked"}) if messages[-1]["content"] != "Done." else "All done."

    @tool(effect="read")
    def look(page: int) -> str:
        """Look."""
        return f"page {page}"

    asks = agent_on(scripted(runs_on), tools=[look, cashier.agent], name="desk")
    desk = await client.start(asks, "Go", id="desk", keep_open=timedelta(hours=1))
    backups.take()
    async with hosting(client, asks):
        await done([desk])
    assert cashier.paid == {"order-asked": 1}
    await backups.restore()
    async with hosting(client, asks, restored_at=datetime.now(UTC)):
        (child,) = await eventually(lambda: _asked_by(desk), what="an agent is asked")
        await held([client.conversation(child)])
        assert cashier.paid == {"order-asked": 1}


async def _asked_by(conversation: Conversation) -> list[str]:
    try:
        return [agent.conversation_id for agent in (await conversation.status()).agents]
    except (EverturnError, RPCError):
        return []


async def test_a_worker_that_goes_on_notices_a_call_that_it_has_begun_before(
    backups: Backups, client: Client, scripted: Scripted
) -> None:
    cashier = Cashier(scripted)
    orders = await begun(client, cashier.agent, 3)
    backups.take()
    # What it keeps in memory of a conversation that is open is of after the backup: so it keeps nothing.
    async with hosting(client, cashier.agent, cached_conversations=0):
        await done(orders)
        await backups.restore()
        await held(orders)
        assert set(cashier.paid.values()) == {1}
        (waits,) = (await orders[0].status()).waiting
        assert "its database must have been restored from a backup" in waits.why
