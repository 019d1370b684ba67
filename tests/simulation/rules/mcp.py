"""What has to be true of calls of MCP servers' tools, by what the servers have seen of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from everturn import names
from everturn.history import steps
from everturn.plans import RunTool
from tests.simulation.agents.mcp import MCP_TOOLS
from tests.simulation.rules.conversations import Evidence, approval_words


def no_tool_is_called_blindly(one: Evidence) -> Iterator[str]:
    """A worker calls what is on the last list that it was given."""
    for called in one.mcp_calls:
        if not called.listed:
            yield f"{called.tool} {called.call_id} was called, and is not on the list that its worker had"


def a_call_keeps_its_key(one: Evidence) -> Iterator[str]:
    """Through all tries and workers, whether or not they took effect."""
    keys: dict[tuple[str, str], set[str]] = {}
    for called in one.mcp_calls:
        life, _, call_id = called.key.rpartition(":")
        if call_id != called.call_id:
            yield f"{called.tool} {called.call_id} came under the key {called.key}"
        keys.setdefault((life, called.call_id), set()).add(called.key)
    lives = {run.first_run_id for run, _ in one.runs}
    for life, _ in keys:
        if life.removeprefix(f"{one.id}:") not in lives:
            yield f"a call came under the key of {life}, which is none of its lives"


def what_is_planned_to_run_once_does(one: Evidence) -> Iterator[str]:
    """By the effect that its list said when it was planned: lists change. Each more takes somebody's word."""
    words = approval_words(one)
    done = Counter(effect.call_id for effect in one.effects if effect.tool in MCP_TOOLS)
    for step in one.steps:
        if not isinstance(step, steps.TurnCompleted):
            continue
        for planned in step.reply.plan:
            if isinstance(planned, RunTool) and planned.effect == "once" and planned.call_id in done:
                times, most = done[planned.call_id], words(planned.call_id) + (planned.approval is None)
                if times > most:
                    yield f"{planned.call_id} took effect {times} times, and {most} times were allowed"


def what_runs_once_is_sent_in_one_try(one: Evidence) -> Iterator[str]:
    """Its server has it from then on: the next try follows the task that it has become, or is in doubt."""
    once, sent = planned_once(one), dict[tuple[str, tuple[str, str]], int]()
    for called in one.mcp_calls:
        first = sent.setdefault((called.call_id, called.activity), called.attempt)
        if called.call_id in once and called.attempt != first:
            yield f"{called.tool} {called.call_id} was sent in try {first}, and again in try {called.attempt}"


def planned_once(one: Evidence) -> set[str]:
    """The calls that were planned so, whatever their servers say of them before and after."""
    plans = (planned for step in one.steps if isinstance(step, steps.TurnCompleted) for planned in step.reply.plan)
    return {planned.call_id for planned in plans if isinstance(planned, RunTool) and planned.effect == "once"}


def what_was_not_made_was_not(one: Evidence) -> Iterator[str]:
    """A result that says so is true."""
    done = {effect.call_id for effect in one.effects}
    for message in one.transcript:
        for result in message.tool_results:
            says_so = "The call was not made." in result.text or f"{result.name} did not run:" in result.text
            if says_so and result.name in MCP_TOOLS and result.call_id in done:
                yield f"{result.name} {result.call_id} says {result.text[:100]!r}, and took effect"


def a_person_is_asked_once(one: Evidence) -> Iterator[str]:
    """Whoever has answered is not asked the same again, by another try or another worker."""
    asked = Counter[str]()
    answered: set[str] = set()
    for step in one.steps:
        match step:
            case steps.ToolRunFailed(kind=names.ASKS, request=request) if request.call_id in answered:
                asked[request.call_id] += 1
            case steps.CommandSent(name=names.APPROVE, payload=payload):  # run it again: then it asks again
                answered.discard(str(payload.get("call_id")))
                answered = answered if payload.get("call_id") != names.EVERY_CALL else set()
            case steps.CommandSent(name=names.ANSWER, payload=payload, accepted=True):
                answered.add(str(payload.get("call_id")))
            case _:
                pass
    for call_id in asked:
        yield f"{call_id} was answered, and a person was asked again"


def a_question_is_that_of_its_call(one: Evidence) -> Iterator[str]:
    """Whatever else asks at the same time, and whatever was given up."""
    for step in one.steps:
        asks = isinstance(step, steps.ToolRunFailed) and step.kind == names.ASKS
        if asks and "which word" in step.cause and f"for {step.request.call_id}?" not in step.cause:
            yield f"{step.request.call_id} waits with {step.cause!r}"


MCP_RULES = (
    a_question_is_that_of_its_call,
    no_tool_is_called_blindly,
    a_call_keeps_its_key,
    what_is_planned_to_run_once_does,
    what_runs_once_is_sent_in_one_try,
    what_was_not_made_was_not,
    a_person_is_asked_once,
)
