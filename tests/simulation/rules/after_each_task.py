"""What has to be true of a conversation right after each of its workflow tasks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from everturn.records import Message
from everturn.state import State
from everturn.workflows import continue_as_new
from tests.simulation.agents.cast import ONCE
from tests.simulation.agents.ledger import Ledger
from tests.simulation.agents.mcp import MCP_ASKS
from tests.simulation.temporal.history import kind
from tests.simulation.temporal.runs import Run

LATE_SECONDS = 10.0
"""How much later than it is due a timer may be seen to."""

SLACK_EVENTS = 150
"""What may come before the end of a turn, if no worker is lost in it."""

SLACK_UPDATES = 15


@dataclass(frozen=True)
class Moment:
    run: Run
    state: State
    ledger: Ledger
    now: float
    """Of the world's clock."""
    seen: int
    """The event up to which the conversation was looked after."""
    was_reset: bool
    quiet: bool
    """No worker is lost in this world."""
    read: Sequence[Message]
    """What a reader of the history has of the transcript now, of this run."""
    is_batched: bool
    """Its turn waits for a provider's batch."""


def what_took_effect_waits_in_doubt(moment: Moment) -> Iterator[str]:
    """A question about a call that must not happen twice says so if it may have happened."""
    if moment.was_reset:
        return
    done = {effect.call_id for effect in moment.ledger.of(moment.run.workflow_id) if effect.tool in ONCE}
    for call_id, pending in moment.state.pending.items():
        # An answer is not kept from a run to the next while its call is in doubt: MCP's servers ask again.
        asks_again = pending.tool_asks and pending.call.name in MCP_ASKS
        if call_id in done and not pending.is_doubtful and not asks_again:
            yield f"{pending.call.name} {call_id} took effect, and waits since {pending.asked.in_words!r}"


def what_may_have_run_does_not_expire(moment: Moment) -> Iterator[str]:
    """Only a person says whether it runs again, however long that takes."""
    for call_id, pending in moment.state.pending.items():
        waiting = pending.as_waiting()
        if waiting.reason == "outcome_unknown" and waiting.expires_at:
            yield f"nobody knows what {pending.call.name} {call_id} has done, and it expires at {waiting.expires_at}"


def what_expired_is_over(moment: Moment) -> Iterator[str]:
    for call_id, pending in moment.state.pending.items():
        late = moment.now - pending.expires.timestamp() if pending.expires and not moment.was_reset else 0.0
        if late > LATE_SECONDS:
            yield f"{call_id} was to expire {late:.0f} s ago, and waits"


def what_is_cancelled_does_not_wait(moment: Moment) -> Iterator[str]:
    asked = any(
        kind(event) == "workflow_execution_cancel_requested" for event in moment.run.history.events[: moment.seen]
    )
    if asked and not moment.run.closed and moment.state.name in ("idle", "paused", "stalled"):
        yield f"its workflow was cancelled, and it is {moment.state.name}"


def what_waits_goes_on_as_a_new_run(moment: Moment) -> Iterator[str]:
    """A run that nothing but people is waited for in is not longer than it may be. One whose turn waits for a batch has
    an activity to come, as any running turn has."""
    run, held = moment.run, continue_as_new.MAX_EVENTS + SLACK_EVENTS
    if run.closed or run.activities or run.children or moment.is_batched:
        return
    if moment.state.closing or moment.state.answering is False:
        return
    if moment.quiet and len(run.history) > held:
        yield f"it has {len(run.history)} events, and waits ({moment.state.name}) without going on as a new run"
    taken = sum(bool(update.accepted_id) for update in run.updates.values())
    if taken > continue_as_new.MAX_UPDATES + SLACK_UPDATES:
        yield f"it has taken {taken} updates, and waits ({moment.state.name}) without going on as a new run"


def what_was_cut_short_is_read(moment: Moment) -> Iterator[str]:
    """What a reply had said when it was cut short is in the transcript at once, and not only with the next turn."""
    for message in moment.state.unseen.messages:
        if message.cut_short and message not in moment.read:
            yield f"the conversation knows that {message.text[:100]!r} was cut short, and who reads it does not"


TASK_RULES = (
    what_took_effect_waits_in_doubt,
    what_may_have_run_does_not_expire,
    what_expired_is_over,
    what_is_cancelled_does_not_wait,
    what_waits_goes_on_as_a_new_run,
    what_was_cut_short_is_read,
)
