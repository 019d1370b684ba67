"""What a conversation has cost so far: actions, events, bytes, tokens and dollars, from its histories."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client

from everturn.client.belongings import children_of
from everturn.client.runs import events_of, runs_of
from everturn.errors import NotFound
from everturn.history.billed_actions import actions_of, ordinary_heartbeats
from everturn.history.reader import HistoryReader
from everturn.history.steps import RunStarted, TurnCompleted
from everturn.records import Usage, cost_with
from everturn.storage.composed_converter import own_converter
from everturn.storage.unreadable import strict
from everturn.temporal.temporal_prices import TemporalPrices

BYTES_PER_GB: Final = 1_000_000_000

EventKey = tuple[int, int]


@dataclass
class ConversationCost:
    """The cost of one conversation over all its runs, without the agents that it asked. A run that a reset made begins
    with a copy of the run before: that is not counted again, but in `bytes`, since both are stored."""

    id: str
    beginnings: int = 0
    """How often a conversation was begun under this id. More than one are conversations of their own, started with
    `again=True` or after one was erased: what they cost is added up."""
    runs: int = 0
    events: int = 0
    bytes: int = 0
    """The size of its histories, as the server counts it."""
    open_byte_hours: float = 0.0
    """Each run's bytes times the hours it has been open: an upper bound, since a history grows over time."""
    actions: Counter[str] = field(default_factory=Counter)
    """By kind. `heartbeats` is computed from how long activities ran, without those for streaming."""
    turns: int = 0
    usage: Usage = field(default_factory=Usage)
    model_usd: float | None = 0.0
    """None if the price of a model is not known."""

    def add(self, other: ConversationCost) -> None:
        self.runs += other.runs
        self.events += other.events
        self.bytes += other.bytes
        self.open_byte_hours += other.open_byte_hours
        self.actions += other.actions
        self.turns += other.turns
        self.usage += other.usage
        self.model_usd = cost_with(self.model_usd, other.model_usd)

    def temporal_usd(self, prices: TemporalPrices) -> float:
        """What Temporal Cloud charges: actions, active storage while it is open, and retained storage after that."""
        actions = self.actions.total() * prices.per_million_actions / 1_000_000
        active = self.open_byte_hours / BYTES_PER_GB * prices.active_gb_hour
        retained = self.bytes / BYTES_PER_GB * prices.retention_days * 24 * prices.retained_gb_hour
        return actions + active + retained


async def costs_of(client: Client, conversation_id: str) -> list[ConversationCost]:
    """The conversation's cost, then that of each agent that it asked, and of the agents that those asked. Raises
    NotFound, RPCError, and InvalidSetting if a history can't be read."""
    costs: dict[str, ConversationCost] = {}
    todo = [conversation_id]
    while todo:
        next_id = todo.pop(0)
        if next_id in costs:
            continue
        cost = ConversationCost(next_id)
        counted: set[EventKey] = set()
        for run_id in await runs_of(client, next_id):
            todo += await _add_run(client, cost, run_id, counted)
        if cost.runs:
            costs[next_id] = cost
    if conversation_id not in costs:
        raise NotFound(
            f"There is no conversation {conversation_id!r}.", cure="`everturn list` shows the existing ones."
        )
    return list(costs.values())


def _event_key(event: HistoryEvent) -> EventKey:
    """The same for an event and its copies, which resets make."""
    return event.event_id, event.event_time.ToNanoseconds()


async def _add_run(client: Client, cost: ConversationCost, run_id: str, counted: set[EventKey]) -> list[str]:
    """Adds a run's cost, without events that are counted already. Returns the ids of the agents' conversations that the
    run started."""
    reader = HistoryReader(own_converter(strict(client.data_converter)))
    events = [event async for event in events_of(client, cost.id, run_id)]
    if not events:
        return []
    new_events = [event for event in events if _event_key(event) not in counted]
    counted |= {_event_key(event) for event in new_events}
    old_events = events[: len(events) - len(new_events)]
    for event in events:
        match await reader.read_event(event):
            case RunStarted(start=start, previous_run_id="") if not old_events:
                origin = start.carry.origin if start.carry else None
                cost.beginnings += origin is None or bool(origin.conversation_id)  # else it was revived
            case TurnCompleted(reply=reply) if event.event_id > len(old_events):
                cost.turns += 1
                cost.usage += reply.usage
                cost.model_usd = cost_with(cost.model_usd, reply.cost_usd)
            case _:
                pass
    cost.actions += actions_of(new_events)
    cost.actions += Counter(heartbeats=ordinary_heartbeats(events) - ordinary_heartbeats(old_events))
    described = await client.get_workflow_handle(cost.id, run_id=run_id).describe()
    size = described.raw_description.workflow_execution_info.history_size_bytes
    until = described.close_time or datetime.now(UTC)
    cost.runs += 1
    cost.events += len(new_events)
    cost.bytes += size
    cost.open_byte_hours += size * (until - described.start_time).total_seconds() / 3600
    return [child for event in events for child in children_of(event)]
