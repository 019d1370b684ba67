"""When a call has waited too long for a person, and what is decided then in the person's place."""

from __future__ import annotations

from temporalio import workflow

from everturn import names
from everturn.calls.pending_calls import PendingCall
from everturn.records import Text
from everturn.text.iso_times import iso_time
from everturn.workflows.applied_decisions import AppliedDecision

SHORTEST_SECONDS = 0.001
"""Temporal takes no timer of 0 s."""


async def wait_until_expired(pending: PendingCall) -> None:
    """For a call that expires. Its timers are in the history: one for the reminder, if there is one, and one for the
    rest."""
    expiry = pending.expiry
    expires = pending.expires
    call_id = pending.call.call_id
    assert expiry is not None
    assert expires is not None
    seconds = max((expires - workflow.now()).total_seconds(), SHORTEST_SECONDS)
    remind = expiry.remind_before or 0.0
    if 0 < remind < seconds:
        await workflow.sleep(seconds - remind, summary=f"{names.REMINDER}{call_id}")
        seconds = remind
    await workflow.sleep(seconds, summary=f"{names.EXPIRY}{call_id}")


def decision_of_expiry(pending: PendingCall) -> AppliedDecision:
    """The decision that an expiry makes instead of a person."""
    decision = pending.decision_on_expiry(iso_time(workflow.now()))
    if decision.verdict == "answer":
        text = f"{pending.call.name} timed out: no answer came within {pending.longest_wait}."
        return AppliedDecision(decision, (Text(text=text),), is_error=True, by_rule=True)
    return AppliedDecision(decision, by_rule=True)
