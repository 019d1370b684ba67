"""Why a decision can't be taken. The conversation and the readers of its history both ask this, so that both follow the
same decisions."""

from __future__ import annotations

from collections.abc import Collection

from everturn import names
from everturn.calls.decision_records import Answer, Approve, Deny, too_late
from everturn.calls.pending_calls import RULED, PendingCall, rules_of
from everturn.policy import Policy, rule_for, same_json, with_rules
from everturn.policy import problem as policy_problem
from everturn.sizes import MAX_INPUT_BYTES, MAX_REASON_BYTES, SMALL_DECISION_BYTES, size_of
from everturn.text.json_text import json_text
from everturn.text.shortening import shortened

MOST_REFUSED_EDITS = 200
"""The limit for a turn. Each edit costs a dozen events and an update; Temporal takes 2,000 updates in a run."""


def decision_problem(
    decision: Approve | Deny | Answer,
    calls: Collection[PendingCall],
    *,
    policy: Policy,
    agent: str = "",
    time: float,
    refused_edits: int,
) -> str | None:
    """Why it can't be taken now, if any call waits for it; None if it can. `calls`: those that it is about, of this
    `agent`. `time`: of the conversation's clock. `refused_edits`: how many edits did not fit in this turn."""
    problem = None
    if isinstance(decision, Approve):
        problem = _edit_problem(decision, refused_edits)
    problem = (
        problem or _size_problem(decision, len(calls)) or too_late(decision, time) or _question_problem(decision, calls)
    )
    if problem or isinstance(decision, Answer):
        return problem
    return _shown_arguments_problem(decision, calls) or _always_problem(decision, calls, policy, agent=agent)


def _edit_problem(approval: Approve, refused_edits: int) -> str | None:
    if approval.call_id == names.EVERY_CALL and approval.arguments is not None:
        return "Edited arguments are for one call: name its call_id."
    if approval.call_id == names.EVERY_CALL and approval.expected is not None:
        return "Expected arguments are for one call: name its call_id."
    if approval.arguments is not None and refused_edits >= MOST_REFUSED_EDITS:
        return f"{refused_edits} edits did not fit in this turn. Approve the call as it is, deny it, or answer it."
    return None


def _size_problem(decision: Approve | Deny | Answer, calls: int) -> str | None:
    # It goes into the tool's payload twice, and beside the model's own arguments into the policy's.
    if (size := size_of(decision)) > MAX_INPUT_BYTES:
        return f"It has {size:,} bytes of JSON; the limit is {MAX_INPUT_BYTES:,}."
    if decision.call_id != names.EVERY_CALL or not isinstance(decision, Approve):
        calls = 1
    if size * calls > max(MAX_INPUT_BYTES, SMALL_DECISION_BYTES * calls):  # it goes along with each of them
        return (
            f"It has {size:,} bytes of JSON, and goes along with each of {calls} calls; the limit is "
            f"{max(MAX_INPUT_BYTES // calls, SMALL_DECISION_BYTES):,} then. Send less, or decide on each call by "
            "itself."
        )
    return None


def _question_problem(decision: Approve | Deny | Answer, calls: Collection[PendingCall]) -> str | None:
    """Whoever decided saw the call in another state: it may have run since."""
    if decision.question is None:
        return None
    if decision.call_id == names.EVERY_CALL:
        return "A question is about one call: name its call_id."
    changed = next((pending for pending in calls if pending.question != decision.question), None)
    if changed is None:
        return None
    words = shortened(changed.asked.in_words, max_bytes=MAX_REASON_BYTES)
    arguments = shortened(json_text(changed.call.arguments), max_bytes=MAX_REASON_BYTES)
    return (
        f"Something else is asked about call {changed.call.call_id!r} now: {words}. Its arguments are {arguments}. "
        "Look at it, then decide."
    )


def _shown_arguments_problem(decision: Approve | Deny, calls: Collection[PendingCall]) -> str | None:
    """Whoever approved had other arguments before them."""
    if not isinstance(decision, Approve) or decision.expected is None:
        return None
    expected = decision.expected
    changed_call = next((pending.call for pending in calls if not same_json(pending.call.arguments, expected)), None)
    if changed_call is None:
        return None
    arguments = shortened(str(changed_call.arguments), max_bytes=MAX_REASON_BYTES)
    return f"Call {changed_call.call_id!r} has different arguments now: {arguments}. Check them, then decide."


def denied_edit_problem(
    decision: Approve | Deny | Answer, calls: Collection[PendingCall], rules: Policy, *, agent: str
) -> str | None:
    """Why it can't be taken, if a rule denies the call with the arguments that a person has put in."""
    if not rules or not isinstance(decision, Approve) or decision.arguments is None:
        return None
    for pending in calls:
        rule = rule_for(rules, pending.call.name, decision.arguments, agent=agent)
        if rule and rule.then == "deny":
            reason = f" Reason: {rule.reason}" if rule.reason else ""
            return f"A rule of {rule.by or 'the policy'} denies {pending.call.name} with these arguments.{reason}"
    return None


def _always_problem(
    decision: Approve | Deny, calls: Collection[PendingCall], policy: Policy, *, agent: str
) -> str | None:
    """Why it can't be decided for always; None if it can, or is not to be."""
    if decision.always is False:
        return None
    if isinstance(decision, Approve) and decision.arguments is not None:
        return "A decision for always can't change arguments: approve this call by itself."
    if any(pending.asked.reason not in RULED for pending in calls):
        return "Only a call that waits for its approval can be decided for always: name its call_id."
    return policy_problem(with_rules(policy, rules_of(decision, calls, agent=agent)))
