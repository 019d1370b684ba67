"""What is told of a conversation that is over, stalls, or has come to a final reply before it says so itself."""

from __future__ import annotations

from everturn.causes import Stall
from everturn.errors import Stalled
from everturn.history import steps
from everturn.history.state_by_history import StateByHistory
from everturn.payloads import Status


def final_status(by_history: StateByHistory) -> Status:
    """Of a conversation that is over."""
    state, outcome, finished = by_history.state, by_history.outcome, by_history.finished
    if outcome is None:
        return Status(state="done", agent=state.agent, turn=state.turn, cause=finished.why if finished else None)
    return Status(
        state="done",
        agent=state.agent,
        turn=outcome.turns,
        usage=outcome.usage,
        cost_usd=outcome.cost_usd,
        cause=outcome.reason,
    )


def final_reply(by_history: StateByHistory, step: steps.Step) -> str | None:
    """The text of the final reply to all that was said, if this step is it, and before the conversation knows."""
    match step:
        case steps.TurnCompleted(request=request, reply=reply) if reply.final and not request.summarise:
            return reply.message.text if by_history.answers_all(reply) else None
        case _:
            return None


def stalled(conversation_id: str, turn: int, stall: Stall) -> Stalled:
    """The error for who waits for a reply that does not come before a person has helped."""
    return Stalled(
        f"Conversation {conversation_id!r} is stalled in turn {turn}: {stall.cause}",
        cure=f"{stall.cure or ''} Then: `everturn resume {conversation_id}`.".strip(),
    )
