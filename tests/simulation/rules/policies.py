"""What has to be true of people's rules: what they deny does not run, what they ask about waits, what they approve does
not. Which rule decides on a call is worked out here once more, from the rules as people sent them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from everturn import names
from everturn.history import steps
from everturn.policy import Policy
from everturn.records import ToolCall
from tests.simulation.agents.cast import LOCAL
from tests.simulation.rules.conversations import AGENTS_BY_NAME, Evidence, needs_approval

Rules = Sequence[Mapping[str, Any]]
"""As people send them: `{"tool": "refund", "then": "approve", "where": {"cents": {"at_most": 5}}}`."""

STRICTEST = ("deny", "ask", "approve")

HEARD_ONLY = ("borrow", "inquire")
"""These ask in the middle, for a person."""


def what_a_policy_says_is_done(one: Evidence) -> Iterator[str]:
    """What it denies never runs, nor does what it has people asked about without their word, and nobody is asked about
    what it approves: of replies during which nobody changed it."""
    if AGENTS_BY_NAME[one.agent].approvers:
        return  # a rule decides as the person who made it, and some may not
    ran = {effect.call_id for effect in one.effects}
    first = _first_runs(one)
    approved = {call_id for call_id, step in first.items() if step.request.decision}
    decided = {result.call_id: result.decision for message in one.transcript for result in message.tool_results}
    named = {str(step.payload.get("call_id")) for step in one.steps if _decides(step)}
    for rules, call in _ruled(one):
        then, name = verdict(rules, call), f"{call.name} {call.call_id}"
        if then == "deny" and call.call_id in ran:
            yield f"{name} ran, and the policy denies it: {rules}"
        if then == "ask" and call.call_id in ran - approved and call.name not in LOCAL:
            yield f"{name} ran without a person's word, and the policy asks for one: {rules}"
        decision = first[call.call_id].request.decision if call.call_id in first else decided.get(call.call_id)
        if decision and decision.by_policy and decision.verdict != then:
            yield f"a rule decided on {name} ({decision.verdict}), and they say {then}: {rules}"
        if then != "approve" or not needs_approval(call, one.agent) or named & {call.call_id, names.EVERY_CALL}:
            continue
        if call.name in (*LOCAL, *HEARD_ONLY) or one.agent == "hooked" or any(run.base for run, _ in one.runs):
            continue
        if decision and not decision.by_policy:
            yield f"{decision.by!r} decided on {name}, and the policy approves it: {rules}"


def what_a_policy_says_holds_for_clients(one: Evidence) -> Iterator[str]:
    """A call of a client's is not answered if the rules deny it, or if they ask about it and nobody has approved it: of
    replies during which nobody changed them."""
    if AGENTS_BY_NAME[one.agent].approvers:
        return
    results = {result.call_id: result for message in one.transcript for result in message.tool_results}
    for rules, call in _ruled(one):
        result = results.get(call.call_id)
        if call.name != "outside" or result is None or result.decision is None:
            continue
        then = verdict(rules, call)
        if then in ("deny", "ask") and result.decision.verdict == "answer":
            yield f"{call.name} {call.call_id} was answered without an approval, and they say {then}: {rules}"


def what_people_rule_is_handed_on(one: Evidence) -> Iterator[str]:
    """As they sent it, and with what they decided for always."""
    if AGENTS_BY_NAME[one.agent].approvers:
        return
    for at, rules in _followed(one):
        if isinstance(at, steps.RunStarted) and at.previous_run_id and at.start.carry and rules is not None:
            found = _plain(at.start.carry.policy)
            if found != _bare(rules):
                yield f"a run is handed the rules {found}, and people said {_bare(rules)}"


def verdict(rules: Rules, call: ToolCall) -> str | None:
    """What the strictest of the rules about a call says. One that can't be compared with its arguments counts as `ask`,
    if it is not one that approves."""
    said = set()
    for rule in rules:
        fits = _fits(rule, call)
        if fits:
            said.add(rule["then"])
        elif fits is None and rule["then"] != "approve":
            said.add("ask")
    return next((then for then in STRICTEST if then in said), None)


def _fits(rule: Mapping[str, Any], call: ToolCall) -> bool | None:
    if rule["tool"] not in ("*", call.name):
        return False
    unknown = False
    for path, condition in (rule.get("where") or {}).items():
        value: Any = call.arguments
        for key in path.split("."):
            value = value.get(key) if isinstance(value, Mapping) else None
        for how, wanted in condition.items():
            holds = _holds(how, wanted, value)
            if holds is False:
                return False
            unknown |= holds is None
    return None if unknown else True


def _holds(how: str, wanted: Any, value: Any) -> bool | None:
    if how == "starts_with":
        return value[: len(wanted)] == wanted if isinstance(value, str) else None
    if how == "one_of":
        alike = [one for one in wanted if isinstance(one, str) == isinstance(value, str)]
        return None if value is None or not alike else value in alike
    if how == "equals":
        return None if value is None or isinstance(value, str) != isinstance(wanted, str) else value == wanted
    if not isinstance(value, int | float):
        return None
    if how in ("at_most", "below"):
        return value < wanted or (value == wanted and how == "at_most")
    return value > wanted or (value == wanted and how == "at_least")


# ------------------------------------------------------------ which rules hold when


def _followed(one: Evidence) -> Iterator[tuple[steps.Step, Rules | None]]:
    """Each step, with the rules that are in force as it comes; None as long as that is not known."""
    rules: Rules | None = ()
    called = one.own_calls
    for run, taken in one.runs:
        for step in taken:
            if isinstance(step, steps.RunStarted) and not run.started.continued_execution_run_id:
                carry = step.start.carry
                rules = _plain(carry.policy if carry else step.start.policy)
            yield step, rules
            match step:
                case steps.CommandSent(name=names.SET_POLICY, payload=payload):
                    rules = payload["rules"] if _can_be_read(payload.get("rules")) else rules
                case steps.CommandSent(name=names.APPROVE | names.DENY as name, payload=payload, accepted=accepted):
                    if payload.get("always"):
                        call = called.get(str(payload.get("call_id"))) if accepted else None
                        where = payload["always"] if isinstance(payload["always"], dict) else {}
                        new = call and {"tool": call.name, "then": name, "where": where}
                        rules = _with(rules, new) if new and rules is not None else None
                case _:
                    pass


def _ruled(one: Evidence) -> Iterator[tuple[Rules, ToolCall]]:
    """The calls of each reply, with the rules that were in force from the reply to the next turn."""
    calls: list[ToolCall] = []
    for step, rules in _followed(one):
        match step:
            case steps.CommandSent(name=name, payload=payload) if name == names.SET_POLICY or payload.get("always"):
                calls = []
            case steps.TurnCompleted(request=request, reply=reply) if not request.summarise:
                calls = [*reply.message.tool_calls]
            case steps.TurnScheduled() | steps.RunClosed(next_run_id=""):
                if rules is not None:
                    yield from ((rules, call) for call in calls)
                calls = []
            case _:
                pass


def _with(rules: Rules, new: Mapping[str, Any]) -> Rules:
    """The newer one counts, of two about the same."""
    about = (new["tool"], new["where"])
    return [*(rule for rule in rules if (rule["tool"], rule.get("where") or {}) != about), new]


def _can_be_read(rules: Any) -> bool:
    return isinstance(rules, list) and all(
        isinstance(rule.get("tool"), str) and rule.get("then") in STRICTEST for rule in rules
    )


def _plain(policy: Policy) -> Rules:
    return _bare([rule.model_dump(mode="json", exclude_unset=True) for rule in policy])


def _bare(rules: Rules) -> Rules:
    return [{"tool": rule["tool"], "then": rule["then"], "where": rule.get("where") or {}} for rule in rules]


def _first_runs(one: Evidence) -> dict[str, steps.ToolScheduled]:
    first: dict[str, steps.ToolScheduled] = {}
    for step in one.steps:
        if isinstance(step, steps.ToolScheduled):
            first.setdefault(step.request.call_id, step)
    return first


def _decides(step: steps.Step) -> bool:
    return isinstance(step, steps.CommandSent) and step.name in names.DECISIONS


POLICY_RULES = (
    what_a_policy_says_is_done,
    what_a_policy_says_holds_for_clients,
    what_people_rule_is_handed_on,
)
