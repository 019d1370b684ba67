"""What a page shows besides events: where they begin, what came before, and results that no event tells."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from everturn import rpc
from everturn.carryover import CarryOver
from everturn.client import Client
from everturn.errors import NotFound
from everturn.history import Started, read_steps
from everturn.payloads import Start
from everturn.records import Message, ToolResult
from everturn.transcript import Transcript, read_earlier

KEPT_PASTS = 8
"""A past is read whole and shown by pages: so many are kept for the next page."""


@dataclass(frozen=True)
class Run:
    """The latest run of a conversation: its events are told one by one, and what came before as messages."""

    run_id: str
    agent: str
    earlier: int
    """So many messages came before this run's own."""
    paused: bool


async def latest_run(client: Client, conversation_id: str) -> Run:
    """Raises NotFound."""
    run_id = await client.conversation(conversation_id).latest_run()
    start = await _start_of(client, conversation_id, run_id)
    carry = start.carry or CarryOver()
    earlier = carry.length + len(carry.unseen) + len(carry.inbox)
    return Run(run_id=run_id, agent=start.agent, earlier=earlier, paused=carry.paused)


async def results_of(client: Client, conversation_id: str, call_ids: set[str]) -> dict[str, ToolResult]:
    """The results of these calls, as the model was told them; without those that it was not told yet."""
    conversation = client.conversation(conversation_id)
    found = _results(tuple((await conversation.standing()).transcript.messages), call_ids)
    if found.keys() != call_ids:  # it has continued as a new run meanwhile
        found |= _results(await conversation.transcript(), call_ids - found.keys())
    return found


class Pasts:
    """The messages before a run, which never change."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._kept: OrderedDict[tuple[str, str], list[Message]] = OrderedDict()

    async def before(self, conversation_id: str, run_id: str) -> list[Message]:
        """Raises NotFound where their history is gone."""
        key = (conversation_id, run_id)
        if key not in self._kept:
            self._kept[key] = await self._read(*key)
        self._kept.move_to_end(key)
        while len(self._kept) > KEPT_PASTS:
            self._kept.popitem(last=False)
        return self._kept[key]

    async def _read(self, conversation_id: str, run_id: str) -> list[Message]:
        transcript, behind = Transcript(), tuple[Message, ...]()
        with rpc.explained(self._client.temporal, conversation_id):
            # To the end of the run: it may have brought the earlier messages into itself.
            async for step in read_steps(self._client.temporal, conversation_id, run_id=run_id):
                transcript.take(step)
                if isinstance(step, Started) and step.start.carry:
                    behind = (*step.start.carry.unseen, *step.start.carry.inbox)
            return [*await read_earlier(self._client.temporal, conversation_id, transcript), *behind]


async def _start_of(client: Client, conversation_id: str, run_id: str) -> Start:
    with rpc.explained(client.temporal, conversation_id):
        async for step in read_steps(client.temporal, conversation_id, run_id=run_id):
            if isinstance(step, Started):
                return step.start
    raise NotFound(f"The history of conversation {conversation_id!r} has no beginning.")


def _results(messages: tuple[Message, ...], call_ids: set[str]) -> dict[str, ToolResult]:
    return {one.call_id: one for message in messages for one in message.tool_results if one.call_id in call_ids}
