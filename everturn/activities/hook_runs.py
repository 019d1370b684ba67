"""Runs an agent's hooks in a model turn or a tool call, and keeps what they did for its record."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from operator import is_
from typing import Any, NoReturn

from temporalio.exceptions import ApplicationError

from everturn import names
from everturn.activities import hook_answers
from everturn.activities.hook_answers import same_record
from everturn.agent import Agent
from everturn.calls.pending_calls import CHANGED_UNFIT
from everturn.hooks import (
    AskApproval,
    DenyCall,
    Hooks,
    ModelInput,
    StallWith,
    StopWith,
    has_point,
    name_of,
)
from everturn.logs import get_logger
from everturn.providers import Request
from everturn.records import HookAction, HookPoint, Message, Reply, Text, ToolCall, ToolResult
from everturn.sizes import (
    MAX_ACTION_WHY_BYTES,
    MAX_ACTIONS_BYTES,
    MAX_CAUSE_BYTES,
    MAX_CHANGED_BYTES,
    MAX_EDIT_BYTES,
    MAX_GIVEN_BYTES,
    MAX_REPLY_BYTES,
    size_of,
    too_deep,
)
from everturn.text.shortening import shortened
from everturn.tools import user_code
from everturn.tools.arguments import InvalidArguments
from everturn.tools.context import ToolContext, TurnContext
from everturn.tools.results import safe_error_text
from everturn.tools.tool import Tool
from everturn.truncation import Notice, bound_content

_log = get_logger("everturn.hook")


_OF_CALLS = (ToolCall, ToolResult, DenyCall, AskApproval, StopWith, StallWith)
_OF_RESULTS = (ToolResult, str, StopWith)


class HookFailed(Exception):
    """A hook raised, hung, or returned something that it may not return; the message says which."""


class StoppedByHook(Exception):
    """A `before_tool` hook has stopped: its text is the answer, in place of the reply."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text


@dataclass(frozen=True)
class CallVerdict:
    """What hooks say of a call before it runs."""

    call: ToolCall
    """With its arguments as the hooks left them."""
    changed_by: tuple[str, ...] = ()
    denied: str | None = None
    """What the model is told if hooks do not let the call run."""
    result: ToolResult | None = None
    """What a hook answers: nothing runs."""
    asks: str | None = None
    """Why a person has to approve it."""
    failed: bool = False
    """A hook failed: only a person can let the call run, and no policy."""


class HookRuns:
    """The hooks of one turn or call. `actions`: what they did, in order."""

    def __init__(self, agent: Agent, turn: Callable[[], TurnContext] = TurnContext, *, summary: bool = False) -> None:
        """`turn` makes the context that the model's hooks are given."""
        self._agent = agent
        self._turn = turn
        self._summary = summary
        self.actions: list[HookAction] = []
        self.changed: dict[str, ToolCall] = {}
        """Calls of the reply whose arguments were changed."""

        self.hidden: frozenset[str] = frozenset()
        """Tools that the model was not shown."""
        self.answer: str | None = None
        """What a hook answers in place of the model."""

    @property
    def is_stopped(self) -> bool:
        return self.answer is not None

    # ------------------------------------------------------------ the model

    async def before_model(self, request: Request) -> Request:
        """The request as hooks left it; not sent if there is an `answer` now. Raises ApplicationError to stall."""
        for hook in self._hooks_at("before_model"):
            given = ModelInput(
                messages=tuple(request.messages),
                instructions=request.instructions,
                tools=tuple(tool.name for tool in request.tools),
                settings=request.settings,
                model=request.model.name,
                purpose="summary" if self._summary else "turn",
            )
            answer = await self._run_model_hook(hook, "before_model", given, wanted=ModelInput)
            if isinstance(answer, StopWith):
                return request
            if answer is not None and answer != given:
                same = len(answer.messages) == len(given.messages) and all(map(is_, answer.messages, given.messages))
                request = replace(
                    request,
                    messages=request.messages if same else answer.messages,
                    instructions=answer.instructions,
                    tools=[tool for tool in request.tools if tool.name in answer.tools],
                    settings=answer.settings,
                )
                self.hidden |= set(given.tools) - set(answer.tools)
                self._note_action(hook, "before_model", "changed")
        return request

    async def after_model(self, reply: Reply) -> Reply:
        """The reply as hooks left it, to be recorded. Raises ApplicationError to stall."""
        for hook in reversed([*self._hooks_at("after_model")]):
            answer = await self._run_model_hook(hook, "after_model", reply, wanted=Reply)
            if isinstance(answer, StopWith):
                return stopped_reply(reply, answer.text)
            if answer is not None and not same_record(answer, reply):
                if problem := _reply_problem(reply, answer):
                    self._stall_failed(hook, "after_model", problem)
                reply = answer
                self._note_action(hook, "after_model", "changed")
        return reply

    @cached_property
    def context(self) -> TurnContext:
        """The turn's context."""
        return self._turn()

    async def _run_model_hook(self, hook: Hooks, point: HookPoint, given: Any, *, wanted: type) -> Any:
        try:
            answer = await self._run_hook(hook, point, given, self.context, wanted=(wanted, StopWith, StallWith))
        except HookFailed as error:
            self._stall_failed(hook, point, str(error))
        if isinstance(answer, StallWith):
            raise _stall_error(answer.cause, answer.cure)
        if isinstance(answer, StopWith) and self._summary:
            self._stall_failed(hook, point, "StopWith is not possible here: this turn writes a summary, not an answer")
        if isinstance(answer, StopWith):
            self._note_action(hook, point, "stopped")
            self.answer = answer.text
        return answer

    def answer_with(self, request: Request, text: str | None) -> Reply:
        """The reply that a hook gives before the model is asked."""
        self.answer = text or ""
        return stopped_reply(Reply(message=Message(role="assistant", parts=()), model=request.model.name), self.answer)

    def _stall_failed(self, hook: Hooks, point: HookPoint, problem: str) -> NoReturn:
        cure = "Fix it and deploy, then resume: the model is asked again."
        raise _stall_error(
            f"The hook {name_of(hook)!r} ({point}) of agent {self._agent.name!r} failed: {problem}", cure
        )

    # ------------------------------------------------------------ tools

    async def before_tool(self, call: ToolCall, tool: Tool, context: ToolContext) -> CallVerdict:
        """What hooks say of a call whose arguments fit. Raises Stops, and ApplicationError to stall."""
        verdict = CallVerdict(call)
        for hook in self._hooks_at("before_tool", tool=call.name):
            try:
                answer = await self._run_hook(hook, "before_tool", verdict.call, context, wanted=_OF_CALLS)
                if isinstance(answer, ToolCall) and not same_record(answer, verdict.call):
                    await _check_change(verdict.call, answer, tool, context)
                if isinstance(answer, ToolResult) and answer.call_id != call.call_id:
                    raise HookFailed("it returned a result with another call_id")
            except HookFailed as error:
                self._note_action(hook, "before_tool", "failed", str(error), call)
                approval_reason = f"the hook {name_of(hook)!r} failed: {error}"
                verdict = replace(verdict, asks=verdict.asks or approval_reason, failed=True)
                continue
            match answer:
                case DenyCall(reason):
                    self._note_action(hook, "before_tool", "denied", reason, call)
                    return replace(verdict, denied=_denial_text(hook, reason))
                case AskApproval(approval_reason):
                    self._note_action(hook, "before_tool", "asked", approval_reason, call)
                    verdict = replace(
                        verdict, asks=verdict.asks or approval_reason or f"{name_of(hook)} asks for approval"
                    )
                case ToolResult(content=content, is_error=is_error):
                    answered = HookAction(hook=name_of(hook), point="before_tool", did="answered", call_id=call.call_id)
                    self._note_action(hook, "before_tool", "answered", call=call)
                    given = ToolResult(call_id=call.call_id, name=call.name, content=content, is_error=is_error)
                    return replace(verdict, result=given.model_copy(update={"hooks": (answered,)}))
                case StopWith(text):
                    self._note_action(hook, "before_tool", "stopped", call=call)
                    raise StoppedByHook(text)
                case StallWith(cause, cure):
                    raise _stall_error(cause, cure)
                case ToolCall() if not same_record(answer, verdict.call):
                    self._note_action(hook, "before_tool", "changed", call=call)
                    verdict = replace(verdict, call=answer, changed_by=(*verdict.changed_by, name_of(hook)))
                    self.changed[call.call_id] = answer
                case _:
                    pass
        return verdict

    def with_changes(self, reply: Reply) -> Reply:
        """The reply with the calls as `before_tool` left them. Raises ApplicationError if that makes it too large."""
        if not self.changed:
            return reply
        parts = (
            self.changed.get(part.call_id, part) if isinstance(part, ToolCall) else part for part in reply.message.parts
        )
        message = reply.message.model_copy(update={"parts": tuple(parts)})
        if size_of(message) > MAX_REPLY_BYTES and size_of(message) > size_of(reply.message):
            raise _stall_error(
                "Hooks have made the arguments of a reply's calls too large to record.",
                "Make the hooks put less into the arguments.",
            )
        return reply.model_copy(update={"message": message})

    async def after_tool(self, call: ToolCall, result: ToolResult, context: ToolContext) -> ToolResult:
        """The result as it is recorded, with what hooks did to it. A failed hook raises nothing: the tool has run."""
        for hook in reversed([*self._hooks_at("after_tool", tool=call.name)]):
            try:
                answer = await self._run_hook(hook, "after_tool", call, result, context, wanted=_OF_RESULTS)
                if isinstance(answer, ToolResult) and answer.call_id != result.call_id:
                    raise HookFailed("it returned a result with another call_id")
            except HookFailed as error:
                self._note_action(hook, "after_tool", "failed", str(error), call)
                text = f"The tool {call.name} ran. Its result is withheld because the hook {name_of(hook)!r} failed."
                result = result.model_copy(update={"content": (Text(text=text),), "is_error": True})
                break
            match answer:
                case StopWith(text):  # others still see the result: it is kept
                    self._note_action(hook, "after_tool", "stopped", text, call, most=MAX_EDIT_BYTES)
                case str():
                    answer = result.model_copy(update={"content": (Text(text=answer),)})
            if isinstance(answer, ToolResult) and answer != result:
                self._note_action(hook, "after_tool", "changed", call=call)
                result = result.model_copy(update={"content": answer.content, "is_error": answer.is_error})
        if not self.actions:
            return result
        return result.model_copy(update={"hooks": tuple(self.actions)})

    # ------------------------------------------------------------ a single hook

    def _hooks_at(self, point: HookPoint, *, tool: str | None = None) -> Iterator[Hooks]:
        return hooks_at(self._agent, point, tool=tool)

    async def _run_hook(self, hook: Hooks, point: HookPoint, *given: Any, wanted: tuple[type, ...]) -> Any:
        """What the hook returned, checked. Raises HookFailed."""
        *originals, context = given
        copies = [hook_answers.own_copy(original) for original in originals]
        function = partial(getattr(hook, point), *copies, context)
        try:
            answer = await user_code.call(function, seconds=hook.timeout.total_seconds())
        except user_code.TookTooLong:
            problem = f"it did not end within {hook.timeout}"
        except Exception as error:  # noqa: BLE001 - the user's own, whatever it is
            problem = await safe_error_text(error)
        else:
            may = ", ".join(kind.__name__ for kind in wanted)
            problem = f"it returned something of type {user_code.class_name(answer)}; it may return {may} or None"
            if answer is None or isinstance(answer, wanted):
                try:
                    return hook_answers.check_answer(answer, given=copies[-1], original=originals[-1])
                except hook_answers.UnfitHookAnswer as error:
                    problem = str(error)
        _log.error("hook.failed", hook=name_of(hook), point=point, agent=self._agent.name, error=problem)
        raise HookFailed(problem)

    def _note_action(
        self,
        hook: Hooks,
        point: HookPoint,
        did: Any,
        reason: str = "",
        call: ToolCall | None = None,
        *,
        most: int = MAX_ACTION_WHY_BYTES,
    ) -> None:
        """`point` and `did` are as in HookAction."""
        short_reason = shortened(reason, max_bytes=most)
        call_id = call.call_id if call else ""
        action = HookAction(hook=name_of(hook), point=point, did=did, call_id=call_id, why=short_reason)
        _log.info("hook.acted", hook=name_of(hook), point=point, did=did)
        if did == "stopped" or size_of(self.actions) + size_of(action) <= MAX_ACTIONS_BYTES:
            self.actions.append(action)


async def after_hooks(agent: Agent, call: ToolCall, given: ToolResult, context: ToolContext) -> ToolResult:
    """A result that a `before_tool` hook gave, as the agent's `after_tool` hooks leave it, and no larger than a model
    reads."""
    seen = await HookRuns(agent).after_tool(call, given, context)
    content = bound_content(
        seen.content, max_chars=agent.limits.max_result_chars, max_bytes=MAX_GIVEN_BYTES, notice=Notice()
    )
    actions = given.hooks if seen.hooks == given.hooks else (*given.hooks, *seen.hooks)
    return seen.model_copy(update={"content": content, "hooks": actions})


def hooks_at(agent: Agent, point: HookPoint, *, tool: str | None = None) -> Iterator[Hooks]:
    """The agent's hooks that have a method for this point; if a tool is named, only those for its calls."""
    for hook in agent.hooks:
        if has_point(hook, point) and (tool is None or hook.tools is None or tool in hook.tools):
            yield hook


def seconds_at(agent: Agent, tool: str, *points: HookPoint) -> float:
    """How long the hooks that see a run of the tool at these points may take together; 0 if there are none."""
    return sum(hook.timeout.total_seconds() for point in points for hook in hooks_at(agent, point, tool=tool))


def stopped_reply(reply: Reply, text: str) -> Reply:
    """A reply of that text alone, with the usage of the reply that it replaces."""
    message = Message(role="assistant", parts=(Text(text=text),))
    return reply.model_copy(update={"message": message, "stop": "end", "details": {}})


def stopped_before(messages: Sequence[Message]) -> str | None:
    """The answer of a hook that stopped after a tool; None if none did, or if somebody has said something since."""
    if not messages:
        return None
    actions = [action for result in messages[-1].tool_results for action in result.hooks]
    return next((action.why for action in actions if action.did == "stopped"), None)


def _stall_error(cause: str, cure: str) -> ApplicationError:
    details = {"cure": shortened(cure, max_bytes=MAX_CAUSE_BYTES)}
    return ApplicationError(
        shortened(cause, max_bytes=MAX_CAUSE_BYTES), details, type=names.HOOK_STALLED, non_retryable=True
    )


def _denial_text(hook: Hooks, reason: str) -> str:
    reason_text = f" Reason: {reason}" if reason else ""
    return f"This call was denied by {name_of(hook)} and did not run.{reason_text}"


def _reply_problem(before: Reply, after: Reply) -> str:
    """What is wrong with a reply that a hook has changed; empty if nothing is."""
    known = {call.call_id for call in before.tool_calls}
    ids = [call.call_id for call in after.tool_calls]
    if after.message.role != "assistant":
        return "its message does not have the role assistant"
    if len(ids) != len(set(ids)) or not known.issuperset(ids):
        return "it has calls that the model did not make"
    if after.message.tool_results:
        return "it has results of tools"
    return ""


async def _check_change(before: ToolCall, after: ToolCall, tool: Tool, context: ToolContext) -> None:
    """Raises HookFailed for a change that a hook may not make."""
    if (before.call_id, before.name) != (after.call_id, after.name):
        raise HookFailed("it returned another call: a hook may change only the arguments")
    if too_deep(after.arguments) or size_of(after.arguments) > max(size_of(before.arguments), MAX_CHANGED_BYTES):
        raise HookFailed(f"its arguments have more than {MAX_CHANGED_BYTES:,} bytes, or are nested too deeply")
    try:
        await tool.checked(after.arguments, context)
    except InvalidArguments as error:
        raise HookFailed(f"{CHANGED_UNFIT}: {error}") from None
