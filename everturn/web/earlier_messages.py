"""What a page shows besides events: the run where the events begin, and the messages from before that run."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from everturn.carryover import CarryOver
from everturn.client.client import Client
from everturn.errors import NotFound
from everturn.history.reader import first_step, read_steps
from everturn.history.steps import RunStarted
from everturn.history.transcript import Transcript, read_earlier
from everturn.payloads import Start
from everturn.records import Message
from everturn.temporal import temporal_errors
from everturn.text.commands import command_about

MOST_RUNS_KEPT = 8
"""How many runs' earlier messages are kept in memory: they are read whole, but a page asks for a few at a time."""


@dataclass(frozen=True)
class LatestRun:
    """The latest run of a conversation. A page gets its events one by one, and everything before it as messages."""

    run_id: str
    earlier: int
    """How many messages there are from before this run."""
    paused: bool
    parent: str
    """The conversation that asked this one's agent, if it is a sub-agent's; else empty."""


async def latest_run(client: Client, conversation_id: str) -> LatestRun:
    """Raises NotFound."""
    run_id = await client.conversation(conversation_id).latest_run()
    start = await _start_of(client, conversation_id, run_id)
    carry = start.carry or CarryOver()
    earlier = carry.length + len(_unseen_of(carry))
    parent = start.caller.conversation_id if start.caller else ""
    return LatestRun(run_id=run_id, earlier=earlier, paused=carry.paused, parent=parent)


class EarlierMessages:
    """The messages before a run, which never change."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._kept: OrderedDict[tuple[str, str], list[Message]] = OrderedDict()

    async def messages_before(self, conversation_id: str, run_id: str) -> list[Message]:
        """Raises NotFound if their history is gone."""
        key = (conversation_id, run_id)
        if key not in self._kept:
            self._kept[key] = await self._read_messages(*key)
        self._kept.move_to_end(key)
        while len(self._kept) > MOST_RUNS_KEPT:
            self._kept.popitem(last=False)
        return self._kept[key]

    async def _read_messages(self, conversation_id: str, run_id: str) -> list[Message]:
        transcript = Transcript()
        unseen_messages: tuple[Message, ...] = ()
        with temporal_errors.explained(self._client.temporal, conversation_id):
            # Read to the run's end: the run may have loaded the earlier messages itself.
            async for step in read_steps(self._client.temporal, conversation_id, run_id=run_id):
                transcript.take_step(step)
                if isinstance(step, RunStarted) and step.start.carry:
                    unseen_messages = _unseen_of(step.start.carry)
            return [*await read_earlier(self._client.temporal, conversation_id, transcript), *unseen_messages]


def _unseen_of(carry: CarryOver) -> tuple[Message, ...]:
    """The carried-over messages that no model has seen yet."""
    messages = [*carry.unseen]
    if carry.open and carry.open.results:
        messages.append(Message(role="tool", parts=carry.open.results))
    return (*messages, *carry.inbox)


async def _start_of(client: Client, conversation_id: str, run_id: str) -> Start:
    with temporal_errors.explained(client.temporal, conversation_id):
        if started := await first_step(client.temporal, conversation_id, run_id):
            return started.start
    raise NotFound(
        f"The history of conversation {conversation_id!r} has no beginning.",
        cure=f"`{command_about('show', conversation_id)}` shows the rest of it.",
    )
