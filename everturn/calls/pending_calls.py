"""Pending calls: what a person is asked, and when again. The conversation and the readers of its history both follow
this, so that they say the same."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Literal

from pydantic import JsonValue

from everturn import names
from everturn.calls.decisions import Approve, Deny
from everturn.carryover import QuestionToPerson
from everturn.payloads import WaitingCall
from everturn.plans import AwaitAnswer, Expiry, PlannedCall, RunAgent, RunHandoff, RunPlan, WaitReason
from everturn.policy import Policy, Rule, rule_for
from everturn.records import Decision, ToolCall
from everturn.sizes import MAX_NAME_CHARS, MAX_RULE_CHARS, shortened

LONGEST_SECONDS = 100 * 365 * 86_400.0
"""A timer can't be longer than some centuries."""

RULED = ("needs_approval", "not_allowed")
"""Reasons of calls that may be decided all at once. A call that may already have run is decided by itself."""

READ_ELSEWHERE = (
    "If another version of the code wrote it, deploy that version. If it is in external "
    "storage, set EVERTURN_STORAGE to the same value on all workers."
)

READ_AGAIN = f"{READ_ELSEWHERE} Then resume: it is read again. If that fails, the model is asked again."
"""The cure, if a conversation is stalled since a reply can't be read."""


@dataclass(frozen=True)
class PendingCall:
    """A call that waits: for an `approval` of its run, or for an `answer` in its place."""

    call: ToolCall
    plan: PlannedCall
    asked: QuestionToPerson

    @property
    def needs(self) -> Literal["approval", "answer"]:
        return "answer" if isinstance(self.plan, AwaitAnswer) or self.tool_asks else "approval"

    @property
    def tool_asks(self) -> bool:
        """Its tool has a question. Whatever a person answers, the call is run again with the answer."""
        return self.asked.reason == "tool_asks"

    @property
    def doubtful(self) -> bool:
        """The call may have run, and nobody knows with what outcome."""
        return self.asked.doubtful

    @property
    def expiry(self) -> Expiry | None:
        """A call that may already have run never expires."""
        return self.plan.expiry if isinstance(self.plan, RunPlan | AwaitAnswer) and not self.doubtful else None

    @property
    def since(self) -> datetime:
        return datetime.fromtimestamp(self.asked.since, UTC)

    @property
    def expires(self) -> datetime | None:
        return self.since + timedelta(seconds=min(self.expiry.after, LONGEST_SECONDS)) if self.expiry else None

    @property
    def verdict_on_expiry(self) -> Literal["approve", "deny", "answer"]:
        """If nobody answers a question in time, its answer is that nobody did."""
        if self.needs == "answer":
            return "answer"
        return self.expiry.verdict if self.expiry else "deny"

    @property
    def policy(self) -> bool:
        """A person's decision on it is checked before it counts."""
        return isinstance(self.plan, RunPlan) and self.plan.policy

    @property
    def hands_over(self) -> bool:
        """Nothing but a decision is missing for another agent to take over."""
        return isinstance(self.plan, RunHandoff) and not self.policy

    def ruled(self, policy: Policy, *, again: bool = False) -> Rule | None:
        """The rule that decides on it in people's place; None if a person has to. `again`: the rules have changed."""
        reasons = RULED if again else ("needs_approval",)
        if self.asked.reason not in reasons:
            return None
        rule = rule_for(policy, self.call.name, self.call.arguments)
        asks = rule is None or rule.then == "ask" or (rule.then == "approve" and self.asked.only_person)
        return None if asks else rule

    def at(self, time: float) -> PendingCall:
        """People are asked now, unless they were before. `time`: seconds since 1970."""
        return self if self.asked.since else self._with(since=time)

    def after_check(self, *, by: str, refusal: str) -> PendingCall:
        """What is asked once more, since the person who decided may not."""
        reason = self.asked.reason if self.doubtful or self.tool_asks else "not_allowed"
        return self._with(reason=reason, refused=f" ({by or 'somebody'} may not decide: {refusal})")

    def addressed(self, call_id: str, *, approving: bool) -> bool:
        """Whether a decision on `call_id`, which may mean every call, is about this one."""
        return call_id in (names.EVERY_CALL, self.call.call_id) and not (approving and self.needs == "answer")

    def shown(self) -> WaitingCall:
        expires = self.expires
        return WaitingCall(
            call_id=self.call.call_id,
            tool=self.call.name,
            arguments=self.call.arguments,
            needs=self.needs,
            reason=self.asked.reason,
            why=self.asked.in_words,
            since=iso(self.since),
            expires_at=iso(expires) if expires else None,
        )

    def _with(self, **changes: object) -> PendingCall:
        return replace(self, asked=self.asked.model_copy(update=changes))


def before_run(call: ToolCall, plan: PlannedCall, policy: Policy) -> PendingCall | None:
    """What is asked before the call runs, or in its place; None if nobody is asked. What the policy decides by itself
    is asked too, and decided at once: see `PendingCall.ruled`."""
    match plan:
        case RunPlan() | RunAgent():
            why = plan.approval if isinstance(plan, RunPlan) else None
            rule = rule_for(policy, call.name, call.arguments)
            if not why and (rule is None or rule.then == "approve"):
                return None
            why = why or (rule and rule.reason) or f"the policy asks for an approval of {call.name}"
            only = isinstance(plan, RunPlan) and plan.only_person
            return PendingCall(
                call, plan, QuestionToPerson(call_id=plan.call_id, reason="needs_approval", why=why, only_person=only)
            )
        case AwaitAnswer():
            return for_answer(call, plan)
        case _:
            return None


def decision_of(rule: Rule, *, at: str) -> Decision:
    """A rule's decision, in the place of the person who made the rule."""
    verdict: Literal["approve", "deny"] = "deny" if rule.then == "deny" else "approve"
    note = rule.reason or None if verdict == "deny" else None
    return Decision(verdict=verdict, by=rule.by, at=at, note=note, by_policy=True)


def rules_of(said: Approve | Deny, calls: Iterable[PendingCall]) -> tuple[Rule, ...]:
    """What a person has decided for always, as they decided on these calls."""
    if said.always is False:
        return ()
    then: Literal["approve", "deny"] = "approve" if isinstance(said, Approve) else "deny"
    where = said.always if isinstance(said.always, dict) else {}
    reason = (said.reason or "") if isinstance(said, Deny) else ""
    reason = reason if len(reason) <= MAX_RULE_CHARS else shortened(reason, max_bytes=MAX_RULE_CHARS)
    tools = dict.fromkeys(one.call.name for one in calls)
    return tuple(Rule(tool=tool, then=then, where=where, by=said.by[:MAX_NAME_CHARS], reason=reason) for tool in tools)


def for_answer(call: ToolCall, plan: AwaitAnswer) -> PendingCall:
    return PendingCall(call, plan, QuestionToPerson(call_id=plan.call_id, reason=plan.reason, why=plan.why))


def after_run(
    call: ToolCall,
    plan: PlannedCall,
    before: PendingCall | None,
    *,
    kind: str,
    cause: str,
    left: dict[str, JsonValue] | None = None,
    decision: Decision | None = None,
) -> PendingCall | None:
    """What is asked after a run that brought no result, by the type and the words of its error; None if nobody is
    asked, and the model is told. `before`: what was asked before that run; `left`: what it left, if its tool asks;
    `decision`: the approval that it had."""
    if kind == names.ASKS and left is not None:
        asked = QuestionToPerson(call_id=plan.call_id, reason="tool_asks", why=cause, left=left, decision=decision)
        return PendingCall(call, plan, asked)
    if kind == names.NEEDS_APPROVAL:
        # What was approved already and asks again is for a person: a rule would let it ask for ever.
        once_more = decision is not None
        return PendingCall(
            call,
            plan,
            QuestionToPerson(call_id=plan.call_id, reason="needs_approval", why=cause, only_person=once_more),
        )
    doubtful = before is not None and before.doubtful
    once = isinstance(plan, RunPlan) and plan.effect == "once"
    reason: WaitReason
    if kind == names.INVALID_EDIT:
        reason, why = "invalid_edit", cause
    elif kind == names.UNREADABLE_RESULT:
        reason, why = "outcome_unknown", f"outcome unknown: {cause}"
    elif once and kind in names.NEVER_BEGUN:
        reason, why = "has_not_run", f"it has not {'run again' if doubtful else 'run'}: {cause}"
    elif once:
        reason, why = "outcome_unknown", f"outcome unknown: {cause}"
    else:
        return None
    if before and doubtful and reason != "outcome_unknown":
        return before._with(refused=f" ({why})")
    since = before.asked.since if before and reason == "invalid_edit" else 0.0
    return PendingCall(call, plan, QuestionToPerson(call_id=plan.call_id, reason=reason, why=why, since=since))


def not_asked(cause: str) -> str:
    """The refusal, if the agent's policy could not be asked."""
    return f"the policy could not be checked: {cause}"


def iso(time: datetime) -> str:
    """ISO 8601, UTC, to the second."""
    return time.isoformat(timespec="seconds")
