"""Turns a model's reply into a plan: for each call, as data, what the workflow has to know to settle it.

User code (schemas, predicates) runs here, in an activity, and never in the workflow.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from everturn.activities.handoff_planning import SaidBefore, one_at_the_most, plan_handover
from everturn.activities.hook_runs import CallVerdict, HookRuns, after_hooks, hooks_at, seconds_at
from everturn.activities.tool_times import ToolTimes
from everturn.agent import Agent
from everturn.calls.pending_calls import UNSEEN_BY_HOOKS
from everturn.names import TOO_DEEP, TOO_LARGE
from everturn.plans import (
    AwaitAnswer,
    Expiry,
    GatedPlan,
    PlannedCall,
    RefuseCall,
    Review,
    RunActivity,
    RunAgent,
    RunHandoff,
    RunNexus,
    RunTool,
    TypedInput,
    UseResult,
)
from everturn.providers.json_values import TooDeep, parse_json
from everturn.records import ToolCall, ToolResult
from everturn.reviews.verdicts import Reviews
from everturn.sizes import (
    MAX_BESIDE_REPLY_BYTES,
    MAX_DEPTH,
    MAX_GIVEN_BYTES,
    MOST_LOCAL,
    PLAN_ARGUMENTS_BYTES,
    PLAN_TEXT_BYTES,
    size_of,
)
from everturn.system.json_numbers import place_of_odd_number
from everturn.text.shortening import shortened
from everturn.tools.agent_option_checks import ASK
from everturn.tools.argument_defaults import defaults_in_words
from everturn.tools.arguments import InvalidArguments
from everturn.tools.ask_user import question_of
from everturn.tools.context import ToolContext
from everturn.tools.tool import Tool
from everturn.truncation import Notice, bound_content

MAX_PLANNED_CALLS = 512
"""Of one reply. More are probably a loop in the model, which is told so."""


AT_ONCE = 32
"""Calls whose arguments are checked and whose predicates are asked at the same time."""

CallContexts = Callable[[ToolCall], ToolContext]
"""Makes a call's context."""


NOTHING_SAID = SaidBefore()
NOT_TIMED = ToolTimes()


@dataclass(frozen=True, slots=True)
class _ReplyFacts:
    """What is the same for every call of a reply. The fields are as `plan_calls` has them."""

    agent: Agent
    hooks: HookRuns | None
    said_before: SaidBefore
    times: ToolTimes
    reviews: Reviews
    careful: bool
    ruled: bool


def _no_context(call: ToolCall) -> ToolContext:
    return ToolContext(call_id=call.call_id)


async def plan_calls(
    agent: Agent,
    calls: Sequence[ToolCall],
    *,
    conclude: str | None,
    calls_left: int | None = None,
    careful: bool = False,
    given_up: Collection[str] = (),
    context: CallContexts = _no_context,
    hooks: HookRuns | None = None,
    said_before: SaidBefore = NOTHING_SAID,
    times: ToolTimes = NOT_TIMED,
    ruled: bool = False,
) -> tuple[PlannedCall, ...]:
    """Raises what hooks raise to stop the answer or to stall the conversation.

    `given_up`: tools that are not run again. `careful`: no user code runs, since workers were lost with this reply. A
    person decides in place of a predicate, and arguments are checked when the tool runs. `context`: what a call's
    predicates, validators and hooks are given. `said_before`: what was said before the reply, for the filters of
    handoffs. `times`: how long tools took so far. `ruled`: as in ModelRequest."""
    if conclude:
        return _fit_plan(_refuse_all(calls, f"No more tool calls: the conversation has reached {conclude}."))
    if calls_left is None:
        calls_left = agent.limits.max_tool_calls
    most_calls = MAX_PLANNED_CALLS
    if calls_left is not None:
        most_calls = min(calls_left, MAX_PLANNED_CALLS)
    surplus = calls[most_calls:]
    too_many = "Not run: the conversation's limit of tool calls is used up. Conclude without it."
    if most_calls == MAX_PLANNED_CALLS:
        too_many = f"Too many calls: only the first {MAX_PLANNED_CALLS} of a reply are run. Call again later."
    if len(calls) > MOST_LOCAL:
        times = NOT_TIMED
    facts = _ReplyFacts(agent, hooks, said_before, times, Reviews(agent), careful=careful, ruled=ruled)
    slots = asyncio.Semaphore(AT_ONCE)  # a call whose predicate hangs takes one slot, and does not delay the others

    async def plan_one(call: ToolCall) -> PlannedCall:
        async with slots:
            if call.name in given_up:
                text = f"{call.name} is not run again because workers were lost while it ran. Continue without it."
                return RefuseCall(call_id=call.call_id, text=text)
            return await _plan_call(facts, call, context(call))

    plans = one_at_the_most(await _plan_together(plan_one, calls[:most_calls]))
    return _fit_plan((*_with_room_for_all(plans), *_refuse_all(surplus, too_many)))


async def _plan_together(
    plan: Callable[[ToolCall], Awaitable[PlannedCall]], calls: Sequence[ToolCall]
) -> list[PlannedCall]:
    """The plans, made at the same time. Once all have ended, raises the first error in the order of the calls."""
    if len(calls) <= 1:  # as in most replies: a task of its own takes two more rounds of the event loop
        return [await plan(call) for call in calls]
    planned = await asyncio.gather(*map(plan, calls), return_exceptions=True)
    for outcome in planned:
        if isinstance(outcome, BaseException):
            raise outcome
    return [outcome for outcome in planned if not isinstance(outcome, BaseException)]


def _fit_plan(plan: tuple[PlannedCall, ...]) -> tuple[PlannedCall, ...]:
    for texts, arguments in zip(PLAN_TEXT_BYTES, PLAN_ARGUMENTS_BYTES, strict=True):
        shorter = tuple(_shorten_plan(each, texts, arguments) for each in plan)
        if size_of(shorter) <= MAX_BESIDE_REPLY_BYTES:
            return shorter
    return shorter[:MAX_PLANNED_CALLS]  # a call without a plan does not run either, and the model is told


def _with_room_for_all(planned: Sequence[PlannedCall]) -> tuple[PlannedCall, ...]:
    """The plans. If the results that hooks gave are too large together, each large one is cut to the same size."""
    sizes = sorted(size_of(plan) for plan in planned if isinstance(plan, UseResult))
    room = MAX_GIVEN_BYTES
    share = MAX_GIVEN_BYTES
    for smaller, size in enumerate(sizes):
        share = room // (len(sizes) - smaller)
        if size > share:
            break
        room -= size
    return tuple(
        _cut_to(plan, share) if isinstance(plan, UseResult) and size_of(plan) > share else plan for plan in planned
    )


def _cut_to(plan: UseResult, max_bytes: int) -> UseResult:
    room = max(0, max_bytes - size_of(plan) + size_of(plan.result.content))
    content = bound_content(plan.result.content, max_chars=room, max_bytes=room, notice=Notice())
    return plan.model_copy(update={"result": plan.result.model_copy(update={"content": content})})


def _shorten_plan(plan: PlannedCall, texts: int, arguments: int) -> PlannedCall:
    """The plan in fewer bytes: its text may quote a large call, and a reply may have 512 calls."""
    changes: dict[str, Any] = {}
    match plan:
        case RefuseCall(text=text):
            changes["text"] = shortened(text, max_bytes=texts)
        case AwaitAnswer(why=reason):
            changes["why"] = shortened(reason, max_bytes=texts)
    match plan:
        case GatedPlan(approval=str(reason)):
            changes["approval"] = shortened(reason, max_bytes=texts)
        case GatedPlan(defaults=words) if words:
            changes["defaults"] = shortened(words, max_bytes=texts)
    match plan:
        case (
            RunAgent(input=TypedInput(arguments=dict(given))) | RunHandoff(input=TypedInput(arguments=dict(given)))
        ) if size_of(given) > arguments:
            changes["input"] = TypedInput()  # then it reads them as the model wrote them
        case RunTool(by_default=given) if size_of(given) > arguments:
            changes["by_default"] = {}  # then it uses those of the worker that runs it
        case RunActivity(arguments=dict(given)) | RunNexus(arguments=dict(given)) if size_of(given) > arguments:
            changes["arguments"] = None  # then it gets them as the model wrote them
    if all(getattr(plan, name) is value for name, value in changes.items()):
        return plan
    return plan.model_copy(update=changes)


def _refuse_all(calls: Iterable[ToolCall], text: str) -> tuple[PlannedCall, ...]:
    return tuple(RefuseCall(call_id=call.call_id, text=text) for call in calls)


async def _plan_call(facts: _ReplyFacts, call: ToolCall, context: ToolContext) -> PlannedCall:
    agent = facts.agent
    hidden = facts.hooks.hidden if facts.hooks else frozenset[str]()
    tool = None if call.name in hidden else agent.tool(call.name)
    if agent.loop == "manual":
        return await _plan_manual(facts, tool, call, context)
    if tool is None:
        known = ", ".join(name for name in agent.callable_tools if name not in hidden) or "none"
        return RefuseCall(call_id=call.call_id, text=f"There is no tool {call.name!r}. The tools are: {known}.")
    if size := call.extra.get(TOO_LARGE):
        text = f"The arguments have {size:,} bytes, which is too much. Call {call.name} again with less."
        return RefuseCall(call_id=call.call_id, text=text)
    if call.extra.get(TOO_DEEP):
        text = f"The arguments are nested more than {MAX_DEPTH} levels deep. Call {call.name} again with flatter ones."
        return RefuseCall(call_id=call.call_id, text=text)
    if call.unparsed is not None:
        return RefuseCall(call_id=call.call_id, text=_unreadable_text(call.name, call.unparsed))
    try:
        if not facts.careful:
            await tool.checked(call.arguments, context)
    except InvalidArguments as error:
        return RefuseCall(call_id=call.call_id, text=f"The arguments of {call.name} do not fit its schema:\n{error}")
    verdict = await _ask_hooks(facts, tool, call, context)
    if verdict.denied is not None:
        return RefuseCall(call_id=call.call_id, text=verdict.denied)
    if verdict.result is not None:
        return await _plan_result(agent, verdict, verdict.result, context)
    return await _plan_run(facts, tool, verdict, context)


async def _ask_hooks(facts: _ReplyFacts, tool: Tool, call: ToolCall, context: ToolContext) -> CallVerdict:
    """What hooks say of a call whose arguments fit."""
    if facts.hooks is None or not any(hooks_at(facts.agent, "before_tool", tool=tool.name)):
        return CallVerdict(call)
    if facts.careful:
        return CallVerdict(call, asks="its hooks did not run because workers were lost with this reply", failed=True)
    return await facts.hooks.before_tool(call, tool, context)


async def _plan_result(agent: Agent, verdict: CallVerdict, given: ToolResult, context: ToolContext) -> UseResult:
    """The plan for a call whose result a hook gave. The agent's hooks see it, as they see every result."""
    result = await after_hooks(agent, verdict.call, given, context)
    return UseResult(**_guards_of(agent, verdict), approval=verdict.asks, expiry=_expiry_of(agent), result=result)


def _guards_of(agent: Agent, verdict: CallVerdict) -> dict[str, Any]:
    """What stands before a call and after it, whatever settles it: the fields of a GatedPlan that hooks and approvers
    decide."""
    call = verdict.call
    return {
        "call_id": call.call_id,
        "policy": agent.approvers is not None,
        "only_person": verdict.failed,
        "changed_by": ", ".join(verdict.changed_by),
        "hooks_after": seconds_at(agent, call.name, "after_tool"),
    }


async def _gate_of(facts: _ReplyFacts, tool: Tool, verdict: CallVerdict, context: ToolContext) -> dict[str, Any]:
    """What stands before the call, whatever runs it: the fields of a GatedPlan."""
    call = verdict.call
    careful = facts.careful
    guards = _guards_of(facts.agent, verdict)
    doubts = ""
    if tool.provider_tool:
        doubts = _doubts_of_provider(call)
    if careful:
        needs_person = tool.needs_approval is not False
    else:
        needs_person = not doubts and await _needs_decision(tool, call, context)
    review: Review | None = None
    if needs_person and not (verdict.asks or doubts or careful):  # what others want a person to see, no model decides
        review = await facts.reviews.review_of(tool, call)
    cause = verdict.asks or doubts or (f"{tool.name} needs approval" if needs_person else None)
    return guards | {
        "review": review,
        **_asked_with(cause, tool, call, ruled=facts.ruled),
        "expiry": _expiry_of(facts.agent),
        "only_person": guards["only_person"] or careful,
    }


def _asked_with(cause: str | None, tool: Tool | None, call: ToolCall, *, ruled: bool) -> dict[str, Any]:
    """The fields of a GatedPlan for what a person is asked, with the defaults that the tool will use. `ruled`: rules
    of the conversation may ask."""
    if tool is None or not (cause or ruled):
        return {"approval": cause}
    words = defaults_in_words(tool.defaults_for(call.arguments))
    if cause:
        return {"approval": cause + words}
    return {"defaults": words}


async def _plan_manual(facts: _ReplyFacts, tool: Tool | None, call: ToolCall, context: ToolContext) -> PlannedCall:
    """With a manual loop, whoever answers decides on approvals, and gets every call as it is. Hooks see those that they
    can see; for others, a person is asked in their place."""
    agent = facts.agent
    verdict = CallVerdict(call)
    if facts.hooks and any(hooks_at(agent, "before_tool", tool=call.name)):
        problem = "" if tool else "there is no such tool"
        try:
            if tool and not facts.careful:
                await tool.checked(call.arguments, context)
        except InvalidArguments as error:
            problem = str(error)
        if tool is None or problem:
            verdict = CallVerdict(call, asks=f"{UNSEEN_BY_HOOKS}: {problem}", failed=True)
        else:
            verdict = await _ask_hooks(facts, tool, call, context)
    if verdict.denied is not None:
        return RefuseCall(call_id=call.call_id, text=verdict.denied)
    if verdict.result is not None:
        return await _plan_result(agent, verdict, verdict.result, context)
    return AwaitAnswer(
        **_guards_of(agent, verdict),
        why=f"the loop is manual: send {call.name}'s result as the answer",
        **_asked_with(verdict.asks, tool, verdict.call, ruled=facts.ruled),
        expiry=_answer_expiry(agent, tool),
        approval_expiry=_expiry_of(agent),
    )


async def _plan_run(facts: _ReplyFacts, tool: Tool, verdict: CallVerdict, context: ToolContext) -> PlannedCall:
    agent = facts.agent
    careful = facts.careful
    call = verdict.call
    gate = await _gate_of(facts, tool, verdict, context)
    if tool.runs_on == "client":
        question = question_of(tool, call.arguments)
        outside = gate | {"approval_expiry": gate["expiry"], "expiry": _answer_expiry(agent, tool)}
        return AwaitAnswer(
            **outside,
            reason="runs_outside" if question is None else "asks_user",
            why=question or f"{tool.name} runs outside of everturn: send its result as the answer",
        )
    if tool.agent:
        typed_question: TypedInput | RefuseCall | None = None
        if tool.arguments is not ASK:
            typed_question = await _typed_input(tool, call, context, careful=careful)
        if isinstance(typed_question, RefuseCall):
            return typed_question
        return RunAgent(**gate, agent=tool.agent, input=typed_question)
    run = gate | {
        "effect": tool.effect,
        "timeout": tool.timeout.total_seconds() + seconds_at(agent, tool.name, "before_tool", "after_tool"),
        "patience": tool.patience.total_seconds(),
    }
    if tool.is_function:
        hurried = not careful and tool.local is not True and facts.times.runs_hurried(agent, tool)
        return RunTool(
            **run,
            activity=agent.activity_prefix and agent.activity_prefix + tool.name,
            local=tool.local is True or hurried,
            hurried=hurried,
            by_default=_defaults_shown(tool, call, gate),
            attaches=tool.attaches,
        )
    if handoff := agent.handoff(tool.name):
        typed_input: TypedInput | RefuseCall | None = None
        if handoff.input is not None:
            typed_input = await _typed_input(tool, call, context, careful=careful)
        if isinstance(typed_input, RefuseCall):
            return typed_input
        return await plan_handover(
            agent, handoff, run | {"input": typed_input}, facts.said_before, context, careful=careful
        )
    inputs = None if careful else partial(tool.inputs, call.arguments, context)
    return await _plan_elsewhere(agent, tool, call, run, inputs)


def _defaults_shown(tool: Tool, call: ToolCall, gate: dict[str, Any]) -> dict[str, Any]:
    """The defaults of its own arguments, if a person may be asked about it; those within objects are left out."""
    if not (gate.get("approval") or gate.get("defaults")):
        return {}
    arguments = tool.parameters.get("properties", {})
    return {name: value for name, value in tool.defaults_for(call.arguments).items() if name in arguments}


async def _typed_input(tool: Tool, call: ToolCall, context: ToolContext, *, careful: bool) -> TypedInput | RefuseCall:
    """What another agent reads of the call."""
    inputs: dict[str, Any] | None = None
    try:
        if not careful:
            inputs = await tool.inputs(call.arguments, context)
    except InvalidArguments as error:
        return _refuse_unusable(call, error)
    if inputs == call.arguments:
        inputs = None
    return TypedInput(arguments=inputs)


def _refuse_unusable(call: ToolCall, error: InvalidArguments) -> RefuseCall:
    return RefuseCall(call_id=call.call_id, text=f"The arguments of {call.name} can't be used:\n{error}")


def _doubts_of_provider(call: ToolCall) -> str:
    """What the provider wants a person to look at before its tool runs; empty if there is nothing."""
    checks = call.extra.get("pending_safety_checks")
    listed: list[Any] = []
    if isinstance(checks, list):
        listed = checks
    reasons = [check.get("message") or check.get("code") for check in listed if isinstance(check, dict)]
    decision = call.arguments.get("safety_decision")  # as Gemini has it
    if isinstance(decision, dict) and decision.get("decision") == "require_confirmation":
        reasons.append(decision.get("explanation"))
    if not (listed or reasons):
        return ""
    return f"{call.name} needs approval: {'; '.join(map(str, filter(None, reasons))) or 'its provider asks for it'}"


async def _plan_elsewhere(
    agent: Agent,
    tool: Tool,
    call: ToolCall,
    run: dict[str, Any],
    read: Callable[[], Awaitable[dict[str, Any]]] | None,
) -> PlannedCall:
    """`read`: converts the arguments to what the tool's types want; None to leave them as they are."""
    inputs: dict[str, Any] | None = None
    try:
        if read:
            inputs = await read()
    except InvalidArguments as error:
        return _refuse_unusable(call, error)
    if inputs == call.arguments:
        inputs = None
    run |= {"arguments": inputs, "max_chars": agent.limits.max_result_chars}
    if operation := tool.operation:
        return RunNexus(
            **run,
            endpoint=operation.endpoint,
            service=operation.service,
            operation=operation.name,
            by_position=operation.by_position,
        )
    runs = tool.activity
    assert runs, f"{tool.name} runs nowhere"
    return RunActivity(
        **run,
        activity=runs.name,
        task_queue=runs.task_queue,
        by_position=runs.by_position,
        heartbeat_timeout=runs.heartbeat_timeout and runs.heartbeat_timeout.total_seconds(),
        retry=runs.retry,
    )


async def _needs_decision(tool: Tool, call: ToolCall, context: ToolContext) -> bool:
    try:
        return await tool.needs_decision(call.arguments, context)
    except InvalidArguments:  # of a validator that accepted them a moment ago
        return True


def _unreadable_text(name: str, text: str) -> str:
    """What is wrong with arguments that are no JSON object, for the model."""
    try:
        value = parse_json(text)
        problem = f"not a JSON object: it is a {type(value).__name__}"
        if place := place_of_odd_number(value):
            problem = f"not valid JSON: {place}, and JSON has no such number"
    except TooDeep:
        problem = f"nested more than {MAX_DEPTH} levels deep"
    except ValueError as error:
        problem = f"not a JSON object: {error}"
    return f"The arguments are {problem}. They begin with {text[:200]!r}. Call {name} again with valid JSON."


def _answer_expiry(agent: Agent, tool: Tool | None) -> Expiry | None:
    """How long an answer is waited for: as long as the tool says, or else the agent."""
    if tool and tool.runs_on == "client" and tool.bounded:
        return Expiry(after=tool.timeout.total_seconds())
    return _expiry_of(agent)


def _expiry_of(agent: Agent) -> Expiry | None:
    approvals = agent.approvals
    if approvals.expire_after is None:
        return None
    remind = approvals.remind_before
    return Expiry(
        after=approvals.expire_after.total_seconds(),
        verdict=approvals.on_expiry,
        remind_before=remind.total_seconds() if remind else None,
    )
