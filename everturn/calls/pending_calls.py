"""Pending calls: what a person is asked, and when again. The conversation and the readers of its history both follow
this, so that they say the same."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Literal, Self

from everturn import names
from everturn.calls.decision_records import Approve, Deny
from everturn.carryover import QuestionToPerson
from everturn.names import unversioned
from everturn.payloads import WaitingCall
from everturn.plans import AwaitAnswer, Expiry, GatedPlan, PlannedCall, Review, RunHandoff
from everturn.policy import Policy, Rule, rule_for, same_json
from everturn.records import ApproveOrDeny, Decision, ToolCall
from everturn.sizes import MAX_NAME_CHARS, MAX_RULE_CHARS
from everturn.text.iso_times import iso_time
from everturn.text.shortening import shortened

LONGEST_SECONDS = 100 * 365 * 86_400.0
"""A timer can't be longer than some centuries."""

RULED = ("needs_approval", "not_allowed")
"""Reasons of calls that may be decided all at once. A call that may already have run is decided by itself."""

AT_THE_GATE = (*RULED, "invalid_edit")
"""Reasons of calls that run outside and are not let out yet."""

QUESTION_CHARS = 16
"""Of the digest that names a question."""

EDITED = "the edited arguments"
"""So begins what is wrong with those that a person put in."""
UNSEEN_BY_HOOKS = "its hooks can't see it"
"""So begins why a call is put before a person in place of its hooks."""

CHANGED_UNFIT = "its arguments do not fit"
"""So begins what is wrong with those that a hook put in."""

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
    """With the arguments that it is about now."""
    plan: PlannedCall
    asked: QuestionToPerson

    @classmethod
    def from_question(cls, call: ToolCall, plan: PlannedCall, question: QuestionToPerson) -> Self:
        """`call`: as the model made it."""
        return cls(_as_asked(call, question), plan, question)

    @property
    def needs(self) -> Literal["approval", "answer"]:
        return "answer" if self.is_outside or self.tool_asks else "approval"

    @property
    def is_outside(self) -> bool:
        """It was let out, and its result is awaited."""
        return isinstance(self.plan, AwaitAnswer) and self.asked.reason not in AT_THE_GATE

    @property
    def tool_asks(self) -> bool:
        """Its tool has a question. Whatever a person answers, the call is run again with the answer."""
        return self.asked.reason == "tool_asks"

    @property
    def may_have_begun(self) -> bool:
        """Some client has been given it to run, and may not have said so yet."""
        return self.asked.handed_out or (self.is_outside and self.asked.reason != "asks_user")

    @property
    def is_doubtful(self) -> bool:
        """The call may have run, and nobody knows with what outcome."""
        return self.asked.doubtful

    @property
    def expiry(self) -> Expiry | None:
        """A call that may already have run never expires."""
        if not isinstance(self.plan, GatedPlan) or self.is_doubtful:
            return None
        if isinstance(self.plan, AwaitAnswer) and not self.is_outside:
            return self.plan.approval_expiry
        return self.plan.expiry

    @property
    def since(self) -> datetime:
        return datetime.fromtimestamp(self.asked.since, UTC)

    @property
    def expires(self) -> datetime | None:
        return None if self.longest_wait is None else self.since + self.longest_wait

    @property
    def verdict_on_expiry(self) -> ApproveOrDeny | Literal["answer"]:
        """If nobody answers a question in time, its answer is that nobody did. What only a person may approve is
        denied."""
        if self.needs == "answer":
            return "answer"
        return self.expiry.verdict if self.expiry and not self.asked.only_person else "deny"

    def decision_on_expiry(self, decided_at: str) -> Decision:
        """The decision that is made instead of a person, once nobody has decided in time."""
        decision = Decision(verdict=self.verdict_on_expiry, by=names.THE_CLOCK, at=decided_at)
        if decision.verdict == "answer":
            return decision
        return decision.model_copy(update={"note": f"Nobody decided within {self.longest_wait}."})

    @property
    def longest_wait(self) -> timedelta | None:
        """How long it waits for a person at most. None: as long as it takes."""
        return timedelta(seconds=min(self.expiry.after, LONGEST_SECONDS)) if self.expiry else None

    @property
    def policy(self) -> bool:
        """A person's decision on it is checked before it counts. The result of a call that runs outside is none."""
        return isinstance(self.plan, GatedPlan) and self.plan.policy and not self.is_outside

    def hands_over(self, decision: Decision) -> bool:
        """With this decision, nothing is missing for another agent to take over: no check of whoever decided, and none
        of their arguments."""
        return isinstance(self.plan, RunHandoff) and not self.policy and self.is_as_hooks_saw(decision)

    def ruling_of(self, policy: Policy, *, agent: str = "", again: bool = False) -> Rule | None:
        """The rule that decides on it in people's place; None if a person has to. `agent`: the one that made the call.
        `again`: the rules have changed. Then a call that runs outside may still be denied."""
        outside = self.is_outside and again
        if not outside and self.asked.reason not in (RULED if again else ("needs_approval",)):
            return None
        rule = rule_for(policy, self.call.name, self.call.arguments, agent=agent)
        if rule is None or rule.then == "ask" or (rule.then == "approve" and (outside or self.asked.only_person)):
            return None
        return rule

    def review_of(self, policy: Policy, *, agent: str = "") -> Review | None:
        """What the agent's reviewer decides on it in people's place; None if a person has to. Whatever rule there is
        about it goes before that."""
        if self.asked.reason != "needs_approval":  # its word has been refused, or the call has run since
            return None
        rule = rule_for(policy, self.call.name, self.call.arguments, agent=agent)
        return None if rule else self.asked.review

    def decided_in_advance(
        self, policy: Policy, *, agent: str = "", decided_at: str, again: bool = False
    ) -> Decision | None:
        """The decision of a rule, or of the agent's reviewer, in people's place; None if a person has to decide. The
        rest: as in `ruling_of`."""
        if rule := self.ruling_of(policy, agent=agent, again=again):
            return decision_of(rule, decided_at=decided_at)
        if not again and (review := self.review_of(policy, agent=agent)):
            return Decision(
                verdict=review.verdict, by=review.by, at=decided_at, note=review.reason or None, by_model=True
            )
        return None

    def releasing_rule(self, policy: Policy, *, agent: str) -> Rule | None:
        """What lets it run now that the rules have changed: only a rule had asked for its approval, and none does."""
        waits = self.asked.by_rule and self.asked.reason in RULED
        if not waits or rule_for(policy, self.call.name, self.call.arguments, agent=agent) is not None:
            return None
        return Rule(tool=self.call.name, agent=unversioned(agent), then="approve")

    def back_at_the_gate(self, policy: Policy, *, agent: str) -> PendingCall | None:
        """A call that runs outside, if a rule wants its approval now. Whoever has begun it may still send its
        result. None if no rule does."""
        approval = self.asked.decision
        if approval is not None and not approval.by_policy:  # a person's approval stands
            return None
        if not self.is_outside or not isinstance(self.plan, GatedPlan):
            return None
        rule = rule_for(policy, self.call.name, self.call.arguments, agent=agent)
        if rule is None or rule.then != "ask":
            return None
        return self.with_question(
            reason="needs_approval", why=asks_for_approval(rule, self.call, self.plan), by_rule=True, handed_out=True
        )

    def refuses(self, verdict: str) -> bool:
        """Whether such a decision can't be made on it: what has to be answered can't be approved, and nobody has
        begun what waits to be let out."""
        if verdict == names.APPROVE:
            return self.needs == "answer"
        closed = isinstance(self.plan, AwaitAnswer) and not (self.is_outside or self.asked.handed_out)
        return verdict == names.ANSWER and closed

    def with_arguments(self, decision: Decision) -> Decision:
        """The decision with the arguments that were approved, if they are not the model's."""
        if decision.verdict != "approve" or decision.arguments is not None or self.asked.arguments is None:
            return decision
        return decision.model_copy(update={"arguments": self.asked.arguments})

    def is_as_hooks_saw(self, decision: Decision) -> bool:
        """Whether an approval leaves the arguments as hooks have left them, so that they need not see them again."""
        same = decision.arguments is None or same_json(decision.arguments, self.call.arguments)
        return same and (self.asked.arguments is None or self.asked.seen_by_hooks)

    def asked_since(self, time: float) -> PendingCall:
        """People are asked now, unless they were before. `time`: seconds since 1970."""
        if self.asked.since:
            return self
        return self.with_question(since=time)

    def after_check(self, *, decided_by: str, refusal: str) -> PendingCall:
        """What is asked once more, since the person who decided may not."""
        reason = self.asked.reason if self.is_doubtful or self.tool_asks else "not_allowed"
        return self.with_question(reason=reason, refused=f" ({decided_by or 'somebody'} may not decide: {refusal})")

    def is_addressed(self, call_id: str, verdict: str) -> bool:
        """Whether a decision on `call_id`, which may mean every call, is about this one."""
        return call_id in (names.EVERY_CALL, self.call.call_id) and not self.refuses(verdict)

    @property
    def question(self) -> str:
        """Names what is asked about the call now. Not since when: beside a local tool, a conversation's clock goes on
        before its history's does, and whoever reads the history has to come to the same name."""
        facts = [self.call.call_id, self.call.name, self.call.arguments, self.asked.reason, self.asked.in_words]
        written = json.dumps(facts, sort_keys=True)
        return hashlib.sha256(written.encode("utf-8", "replace")).hexdigest()[:QUESTION_CHARS]

    def as_waiting(self) -> WaitingCall:
        expires = self.expires
        return WaitingCall(
            call_id=self.call.call_id,
            tool=self.call.name,
            arguments=self.call.arguments,
            needs=self.needs,
            reason=self.asked.reason,
            why=self.asked.in_words,
            since=iso_time(self.since),
            expires_at=iso_time(expires) if expires else None,
            question=self.question,
        )

    def with_question(self, **changes: object) -> PendingCall:
        question = self.asked.model_copy(update=changes)
        return replace(self, call=_as_asked(self.call, question), asked=question)


def why_without_arguments(call: WaitingCall) -> str:
    """Why it waits, in words that quote none of its arguments: they may come from the model or from a person. The words
    of tools, hooks and rules are kept."""
    if call.reason == "asks_user":  # the question is an argument
        return "the model has a question"
    if "safety_decision" in call.arguments:  # Gemini's, which has the reason in it
        return f"{call.tool} needs approval"
    for begin, rest in ((EDITED, " are not taken"), (UNSEEN_BY_HOOKS, ""), (CHANGED_UNFIT, "")):
        own_words, quoting, _ = call.why.partition(begin)
        if quoting:
            return f"{own_words}{begin}{rest}{')' if own_words.endswith('(') else ''}"
    return call.why


def _as_asked(call: ToolCall, question: QuestionToPerson) -> ToolCall:
    if question.arguments is None:
        return call
    return call.model_copy(update={"arguments": question.arguments})


def asks_for_approval(rule: Rule | None, call: ToolCall, plan: GatedPlan) -> str:
    reason = (rule and rule.reason) or f"the policy asks for an approval of {call.name}"
    return reason + plan.defaults


def decision_of(rule: Rule, *, decided_at: str) -> Decision:
    """A rule's decision, in the place of the person who made the rule."""
    if rule.then == "deny":
        return Decision(verdict="deny", by=rule.by, at=decided_at, note=rule.reason or None, by_policy=True)
    return Decision(verdict="approve", by=rule.by, at=decided_at, by_policy=True)


def rules_of(decision: Approve | Deny, calls: Iterable[PendingCall], *, agent: str = "") -> tuple[Rule, ...]:
    """What a person has decided for always, as they decided on these calls of this agent's."""
    if decision.always is False:
        return ()
    then: ApproveOrDeny = "approve" if isinstance(decision, Approve) else "deny"
    where = decision.always if isinstance(decision.always, dict) else {}
    reason = ""
    if isinstance(decision, Deny):
        reason = decision.reason or ""
    if len(reason) > MAX_RULE_CHARS:
        reason = shortened(reason, max_bytes=MAX_RULE_CHARS)
    tools = dict.fromkeys(pending.call.name for pending in calls)
    agent_name = unversioned(agent)
    decided_by = decision.by[:MAX_NAME_CHARS]
    return tuple(
        Rule(tool=tool, agent=agent_name, then=then, where=where, by=decided_by, reason=reason) for tool in tools
    )
