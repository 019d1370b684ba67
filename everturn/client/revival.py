"""Starts a conversation that is over again, for its next message."""

from __future__ import annotations

from temporalio.client import Client

from everturn.carryover import StoredInRun
from everturn.client.messages import start_payload
from everturn.history.revival import next_life
from everturn.history.state_by_history import StateByHistory
from everturn.history.transcript import read_transcript
from everturn.payloads import Start
from everturn.records import Message


async def start_of_revival(
    temporal: Client,
    conversation_id: str,
    by_history: StateByHistory,
    message: Message,
    new_start: Start | None,
    message_id: str | None,
    stream: bool | None,
) -> Start:
    """The input of the new run, with the conversation's transcript, model and limits. `new_start`: how it would be
    started if it did not exist; without it, the agent and `keep_open` stay as they were."""
    state = by_history.state
    previous = state.start
    transcript = await read_transcript(temporal, conversation_id, by_history.transcript)
    names = (*previous.labels, "model", "limits", "visibility", "searchable", "forked_from")
    kept = {name: getattr(previous, name) for name in names}
    if stream is None:
        kept["stream"] = previous.stream
    if new_start is None:
        kept["keep_open"] = previous.keep_open
    start = new_start or start_payload(message, agent=previous.agent, message_id=message_id, stream=bool(stream))
    carry = next_life(state, transcript, origin=StoredInRun(run_id=by_history.run_id))
    if state.in_charge.handed_on:  # the agent that took over goes on, unless another one is asked for
        if start.agent not in (previous.agent, state.agent):
            carry = carry.model_copy(update={"agent": start.agent})
        kept["agent"] = previous.agent
    return start.model_copy(update={**kept, "carry": carry})
