"""What clients are told about a conversation that is over, has stalled, or has its final reply but has not said so
yet."""

from __future__ import annotations

from everturn.calls.causes import Stall
from everturn.errors import Stalled
from everturn.history import steps
from everturn.history.state_by_history import StateByHistory
from everturn.payloads import Status
from everturn.text.commands import command_about


def final_status(by_history: StateByHistory) -> Status:
    """Of a conversation that is over."""
    state = by_history.state
    outcome = by_history.outcome
    if outcome is None:
        cause = by_history.finished.why if by_history.finished else None
        return Status(state="done", agent=state.agent, turn=state.turn, cause=cause)
    return Status(
        state="done",
        agent=state.agent,
        turn=outcome.turns,
        usage=outcome.usage,
        cost_usd=outcome.cost_usd,
        cause=outcome.reason,
    )


def held_status(by_history: StateByHistory, cause: str, cure: str) -> Status:
    """Of a conversation whose workflow Temporal holds up."""
    state = by_history.state
    return Status(
        state="paused",
        agent=state.agent,
        turn=state.turn,
        waiting=tuple(pending.as_waiting() for pending in state.pending.values()),
        usage=state.totals.usage,
        cost_usd=state.totals.cost_usd,
        policy=state.policy,
        cause=cause,
        cure=cure,
    )


def final_reply(by_history: StateByHistory, step: steps.Step) -> str | None:
    """The text of the final reply to all messages so far, if this step brings it, before the conversation itself says
    so."""
    match step:
        case steps.TurnCompleted(request=request, reply=reply) if reply.final and not request.summarise:
            state = by_history.state
            more = by_history.signals.sent or state.inbox.messages or state.inbox.late
            if more or state.cancelled or reply.output_problem:
                return None
            return reply.message.text
        case _:
            return None


def stalled_error(conversation_id: str, turn: int, stall: Stall) -> Stalled:
    """The error for somebody who waits for a reply that can't come before a person helps."""
    return Stalled(
        f"Conversation {conversation_id!r} is stalled in turn {turn}: {stall.cause}",
        cure=(
            f"{stall.cure or ''} Then, while a worker runs (`everturn worker --agents FILE.py`): "
            f"`{command_about('resume', conversation_id)}`."
        ).strip(),
    )
