"""The same scripts on the simulated server and on a real one: the same transcripts and the same events."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import aclosing, contextmanager
from datetime import timedelta
from typing import Any

import pytest
import temporalio.client

from everturn import Agent, Client, Conversation, tool
from everturn.activities import model_turns
from everturn.errors import NotFound, Unreachable
from everturn.providers.base import Request
from everturn.records import Message, Reply, Text, ToolCall, Usage
from tests.simulation.agents.ledger import Ledger
from tests.simulation.chance import Chances
from tests.simulation.machines.workers import SimulatedWorker
from tests.simulation.speed import worked_out_once
from tests.simulation.temporal import clock
from tests.simulation.temporal.dispatch import QUEUE
from tests.simulation.temporal.sealing import converter
from tests.simulation.temporal.server import Server
from tests.simulation.temporal.service import SimulatedService
from tests.support.agents import hosting
from tests.support.bounds import Bounds
from tests.support.operators import reset_to_the_last_workflow_task

LOOK_SECONDS = 0.05
PLACES = {"cursor", "at", "since", "run_id", "chain_id", "seconds", "activity_id"}
"""What is another in each run of a script: times, and where something is."""

HOUR = timedelta(hours=1)


@tool(effect="read", local=False)
def look(number: int) -> str:
    """Reads."""
    return f"saw {number}"


@tool(effect="once", needs_approval=True, local=False)
def refund(cents: int) -> str:
    """Must not happen twice, and not without a person's word."""
    return f"{cents} back"


@tool(runs_on="client")
def outside(where: str) -> str: ...


CLERK = Agent("clerk", model="scripted:first", tools=[look, refund, outside])


def call(name: str, call_id: str, **arguments: Any) -> ToolCall:
    return ToolCall(call_id=call_id, name=name, arguments=arguments)


Replies = Sequence[str | Sequence[ToolCall]]


@contextmanager
def model_says(replies: Replies) -> Iterator[None]:
    """Whoever asks, and how often: the reply follows from how many there were before."""

    async def ask(request: Request, *_: Any, **__: Any) -> Reply:
        said = replies[sum(message.role == "assistant" for message in request.messages)]
        parts = (Text(text=said),) if isinstance(said, str) else tuple(said)
        stop: Any = "end" if isinstance(said, str) else "tool_calls"
        message = Message(role="assistant", parts=parts)
        return Reply(message=message, stop=stop, usage=Usage(input_tokens=7, output_tokens=3), model="scripted:first")

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(model_turns, "ask", ask)
        yield


async def reaches(talk: Conversation, *states: str, turn: int = 0, run: str = "") -> None:
    """Waits until it is so in a run that is not this one."""
    while True:
        try:
            status = await talk.status()
            there = status.state in states and status.turn >= turn
            if there and (not run or await talk.latest_run() != run):
                return
        except (NotFound, Unreachable):
            pass
        await asyncio.sleep(LOOK_SECONDS)


Script = Callable[[Client, str], Awaitable[Sequence[Conversation]]]
"""Gives the conversations that are compared."""


async def messages(client: Client, name: str) -> Sequence[Conversation]:
    talk = await client.start(CLERK, "one", id=name, keep_open=HOUR)
    await reaches(talk, "idle", turn=2)
    await talk.send("two")
    await reaches(talk, "idle", turn=3)
    await talk.close()
    return [talk]


async def decisions(client: Client, name: str) -> Sequence[Conversation]:
    talk = await client.start(CLERK, "one", id=name)
    await reaches(talk, "awaiting_approval")
    await talk.deny("b", reason="too much")
    await talk.answer("c", "in cash")
    await talk.approve("a", note="fine")
    return [talk]


async def edits(client: Client, name: str) -> Sequence[Conversation]:
    talk = await client.start(CLERK, "one", id=name)
    await reaches(talk, "awaiting_approval")
    await talk.approve("a", {"cents": "many"})
    await reaches(talk, "awaiting_approval")
    await talk.approve("a", {"cents": 77})
    return [talk]


async def cancels(client: Client, name: str) -> Sequence[Conversation]:
    talk = await client.start(CLERK, "one", id=name, keep_open=HOUR)
    await reaches(talk, "awaiting_approval")
    await talk.cancel_turn(reason="never mind")
    await reaches(talk, "idle")
    await talk.send("two")
    await reaches(talk, "idle", turn=2)
    await talk.close()
    return [talk]


async def a_reset(client: Client, name: str) -> Sequence[Conversation]:
    talk = await client.start(CLERK, "one", id=name)
    await reaches(talk, "awaiting_approval")
    run = await talk.latest_run()
    await reset_to_the_last_workflow_task(client, talk)
    await reaches(talk, "awaiting_approval", run=run)
    await talk.approve("a")
    return [talk]


async def a_new_run(client: Client, name: str) -> Sequence[Conversation]:
    talk = await client.start(CLERK, "one", id=name, keep_open=HOUR)
    await reaches(talk, "awaiting_approval")
    run = await talk.latest_run()
    await talk.pause()
    await talk.resume()
    await reaches(talk, "awaiting_approval", run=run)
    await talk.approve("a")
    await reaches(talk, "idle", turn=2)
    await talk.close()
    return [talk]


async def an_answer(client: Client, name: str) -> Sequence[Conversation]:
    talk = await client.start(CLERK, "one", id=name)
    await reaches(talk, "awaiting_answer")
    await talk.answer("a", {"sun": True})
    return [talk]


async def a_pause(client: Client, name: str) -> Sequence[Conversation]:
    talk = await client.start(CLERK, "one", id=name)
    await reaches(talk, "awaiting_approval")
    await talk.pause()
    await talk.approve("a")
    async with aclosing(talk.events(deltas=False)) as events:
        async for event in events:
            if event.kind == "tool_finished":
                break
    await talk.resume()
    return [talk]


async def a_revival(client: Client, name: str) -> Sequence[Conversation]:
    talk = await client.start(CLERK, "one", id=name)
    await talk.outcome()
    return [await client.send(CLERK, "two", id=name)]


async def a_fork(client: Client, name: str) -> Sequence[Conversation]:
    talk = await client.start(CLERK, "one", id=name)
    await talk.outcome()
    return [talk, await talk.fork(1, id=f"{name}-branch", message="and then?")]


REFUND: Replies = ([call("refund", "a", cents=5)], "done", "done again")
SCRIPTS: dict[Script, Replies] = {
    messages: ([call("look", "a", number=1)], "first", "second"),
    decisions: ([call("refund", name, cents=number) for number, name in enumerate("abc")], "done"),
    edits: REFUND,
    cancels: REFUND,
    a_reset: REFUND,
    a_new_run: REFUND,
    an_answer: ([call("outside", "a", where="there")], "done"),
    a_pause: REFUND,
    a_revival: ("done", "done again"),
    a_fork: ([call("look", "a", number=1)], "done", "done again"),
}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.__name__)
async def test_it_comes_to_the_same(
    script: Script, client: Client, bounds: Bounds, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SCRIPTED_BASE_URL", "http://127.0.0.1:1/v1")
    bounds(**{"updates": 2} if script is a_new_run else {})
    with model_says(SCRIPTS[script]):
        simulated = _simulated(script)
        async with hosting(client, CLERK):
            real = await _told(client, script)
    for found, wanted in zip(simulated, real, strict=True):
        assert found == wanted


async def _told(client: Client, script: Script) -> list[Any]:
    """The transcripts and the events of a script's conversations, once they are over."""
    told: list[Any] = []
    for talk in await script(client, f"same-{script.__name__}"):
        await talk.outcome()
        told.append([_plain(message) for message in await talk.transcript()])
        told.append([_plain(event) async for event in talk.events(deltas=False)])
    return told


def _simulated(script: Script) -> list[Any]:
    """Beside pytest's own loop, which stands still meanwhile."""
    own = asyncio.get_running_loop()
    asyncio._set_running_loop(None)
    try:
        with worked_out_once(), clock.world(1) as loop:
            server = Server(loop, Chances("the same"))
            server.ledger, server.indexed = Ledger(), True
            temporal = temporalio.client.Client(SimulatedService(server), data_converter=converter(sealed=False))
            worker = SimulatedWorker(server, "worker 1", [CLERK], cached=1_000, prefix_bytes=10_000_000)
            worker.start()
            told = loop.run_until_complete(_told(Client(temporal, task_queue=QUEUE, by="tester"), script))
            assert server.violations == []
            worker.forget_all()
            return told
    finally:
        asyncio._set_running_loop(own)
        asyncio.set_event_loop(own)


def _plain(record: Any) -> Any:
    return _without_places(record.model_dump(mode="json"))


def _without_places(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_places(one) for name, one in value.items() if name not in PLACES}
    return [_without_places(one) for one in value] if isinstance(value, list) else value
