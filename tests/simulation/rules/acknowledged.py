"""What people were told has to be so: what they put in is what runs, one decision counts, and results, decisions and
ends are told as they were."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from everturn import names
from everturn.events import Decided, Done, ToolFinished
from everturn.history import steps
from everturn.records import Outcome
from tests.simulation.rules.conversations import Evidence

LATE = timedelta(minutes=2)
"""How late a limit of time may be looked at: a turn is asked by a worker that may be killed."""


RUN_BY_CLIENTS = ("outside", "computer")


def what_a_person_put_in_is_what_runs(one: Evidence) -> Iterator[str]:
    """A call runs with the arguments of the approval that the server has of them, whatever the conversation made of
    it."""
    put_in: dict[str, dict[str, object]] = {}
    for _, taken in one.runs:
        for step in taken:
            match step:
                case steps.CommandSent(name=names.APPROVE, accepted=True, payload=payload):
                    call_id = str(payload.get("call_id", ""))
                    if payload.get("arguments") is not None:
                        put_in[call_id] = dict(payload["arguments"])
                    else:
                        put_in.pop(call_id, None)
                case steps.CommandSent(name=names.APPROVE, payload=payload):
                    put_in.pop(str(payload.get("call_id", "")), None)  # by signal: it may have been passed over
                case steps.ToolRunFailed(request=request) | steps.ToolCompleted(request=request):
                    put_in.pop(request.call_id, None)
                case steps.ToolScheduled(request=request):
                    wanted = put_in.get(request.call_id)
                    if wanted is not None and request.arguments != wanted:
                        yield f"{request.call_id} runs with {request.arguments}, and a person put in {wanted}"
                case _:
                    pass


def one_decision_counts(one: Evidence) -> Iterator[str]:
    """Of those on a call, one is taken, until the call is asked about again: one that a client runs, once it was
    approved."""
    decided: dict[str, str] = {}
    outside = {call_id for call_id, call in one.own_calls.items() if call.name in RUN_BY_CLIENTS}
    for _, taken in one.runs:
        for step in taken:
            match step:
                case steps.CommandSent(name=name, accepted=True, payload=payload) if name in names.DECISIONS:
                    call_id = str(payload.get("call_id", ""))
                    let_out = decided.get(call_id) == names.APPROVE and call_id in outside
                    if call_id in decided and call_id != names.EVERY_CALL and not let_out:
                        yield f"{name} of {call_id} was taken at event {step.id}, after {decided[call_id]}"
                    decided[call_id] = name
                case steps.ToolRunFailed(request=request) | steps.ToolCompleted(request=request):
                    decided.pop(request.call_id, None)
                case steps.DecisionChecked(check=check):
                    decided.pop(check.call.call_id, None)
                case steps.TurnScheduled() | steps.RunStarted():
                    decided.clear()
                case _:
                    pass


def results_are_told_as_they_are(one: Evidence) -> Iterator[str]:
    """What the events say of a result is what the model is told."""
    told = {event.result.call_id: event.result for event in one.events if isinstance(event, ToolFinished)}
    for message in one.transcript:
        for result in message.tool_results:
            event = told.get(result.call_id)
            if event and (event.text, event.is_error) != (result.text, result.is_error):
                yield (
                    f"the result of {result.call_id} is told as {event.text!r:.200} (error: {event.is_error}), and is "
                    f"{result.text!r:.200} (error: {result.is_error})"
                )


def decisions_are_told_as_they_were(one: Evidence) -> Iterator[str]:
    """Who decided, with which arguments, and why."""
    sent = [
        (step.name, str(step.payload.get("call_id", "")), step.payload.get("by", ""), step.payload.get("arguments"))
        for _, taken in one.life
        for step in taken
        if isinstance(step, steps.CommandSent) and step.name in names.DECISIONS
    ]
    for event in one.events:
        if isinstance(event, Decided) and not (event.by_policy or event.by_model):
            made = event.verdict, event.call_id, event.by, event.arguments
            if made not in sent and not any(run.base for run, _ in one.runs):
                yield f"the events tell of a decision {made} that nobody sent: {sent}"


def ends_are_told_as_they_are(one: Evidence) -> Iterator[str]:
    last = one.events[-1] if one.events else None
    closed = next((step for step in reversed(one.steps) if isinstance(step, steps.RunClosed)), None)
    if isinstance(last, Done) and closed and last.outcome != closed.outcome:
        yield f"the events end with {last.outcome}, and its history with {closed.outcome}"


def time_and_tokens_are_limited(one: Evidence) -> Iterator[str]:
    """No turn is asked after the limit, but those that conclude and summarise. A conversation knows its agent's limits
    from its first reply on."""
    limits = one.limits
    if limits.max_total_tokens is None and limits.max_duration is None:
        return
    for runs in _lives(one):
        begun, tokens, known = None, 0, False
        for taken in runs:
            for step in taken:
                match step:
                    case steps.RunStarted(start=start, at=at) if begun is None:
                        begun, tokens = at, start.carry.usage.total_tokens if start.carry else 0
                        known = start.limits is not None and start.limits.max_duration is not None
                    case steps.TurnCompleted(reply=reply):
                        tokens += reply.usage.total_tokens
                        known = True
                    case steps.ToolCompleted(outcome=Outcome() as outcome):
                        tokens += outcome.usage.total_tokens
                    case steps.TurnScheduled(request=request, at=at) if not (request.conclude or request.summarise):
                        if limits.max_total_tokens is not None and tokens >= limits.max_total_tokens:
                            yield f"turn {request.turn} was asked after {tokens} of {limits.max_total_tokens} tokens"
                        if limits.max_duration is not None and known and at - begun > limits.max_duration + LATE:
                            yield f"turn {request.turn} was asked {at - begun} after its begin"
                    case _:
                        pass


def _lives(one: Evidence) -> Iterator[list[object]]:
    """The steps of each life's runs."""
    lives: dict[str, list[object]] = {}
    for run, taken in one.runs:
        lives.setdefault(run.first_run_id, []).append(taken)
    yield from lives.values()  # type: ignore[misc]


SAID_RULES = (
    what_a_person_put_in_is_what_runs,
    one_decision_counts,
    results_are_told_as_they_are,
    decisions_are_told_as_they_were,
    ends_are_told_as_they_are,
    time_and_tokens_are_limited,
)
