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
from everturn.agent import Agent
from everturn.hooks import (
    AskApproval,
    DenyCall,
    Hooks,
    ModelInput,
    StallWith,
    StopWith,
    has,
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
    shortened,
    size_of,
    too_deep,
)
from everturn.tools import user_code
from everturn.tools.arguments import InvalidArguments
from everturn.tools.context import ToolContext, TurnContext
from everturn.tools.results import safe_error_text
from everturn.tools.tool import Tool
from everturn.truncation import Notice, bounded

_log = get_logger("everturn.hook")


_OF_CALLS = (ToolCall, ToolResult, DenyCall, AskApproval, StopWith, StallWith)
_OF_RESULTS = (ToolResult, str, StopWith)


class HookFailed(Exception):
    """A hook raised, hung, or returned something that it may not return; the message says which."""


class Stops(Exception):
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
    def stopped(self) -> bool:
        return self.answer is not None

    # ------------------------------------------------------------ the model

    async def before_model(self, request: Request) -> Request:
        """The request as hooks left it; not sent if there is an `answer` now. Raises ApplicationError to stall."""
        for hook in self._at("before_model"):
            given = ModelInput(
                messages=tuple(request.messages),
                instructions=request.instructions,
                tools=tuple(tool.name for tool in request.tools),
                settings=request.settings,
                model=request.model.name,
                purpose="summary" if self._summary else "turn",
            )
            said = await self._of_model(hook, "before_model", given, wanted=ModelInput)
            if isinstance(said, StopWith):
                return request
            if said is not None and said != given:
                same = len(said.messages) == len(given.messages) and all(map(is_, said.messages, given.messages))
                request = replace(
                    request,
                    messages=request.messages if same else said.messages,
                    instructions=said.instructions,
                    tools=[tool for tool in request.tools if tool.name in said.tools],
                    settings=said.settings,
                )
                self.hidden |= set(given.tools) - set(said.tools)
                self._note(hook, "before_model", "changed")
        return request

    async def after_model(self, reply: Reply) -> Reply:
        """The reply as hooks left it, to be recorded. Raises ApplicationError to stall."""
        for hook in reversed([*self._at("after_model")]):
            said = await self._of_model(hook, "after_model", reply, wanted=Reply)
            if isinstance(said, StopWith):
                return stopped(reply, said.text)
            if said is not None and said != reply:
                if problem := _reply_problem(reply, said):
                    self._stall_failed(hook, "after_model", problem)
                reply = said
                self._note(hook, "after_model", "changed")
        return reply

    @cached_property
    def context(self) -> TurnContext:
        """The turn's context."""
        return self._turn()

    async def _of_model(self, hook: Hooks, point: HookPoint, given: Any, *, wanted: type) -> Any:
        try:
            said = await self._said(hook, point, given, self.context, wanted=(wanted, StopWith, StallWith))
        except HookFailed as error:
            self._stall_failed(hook, point, str(error))
        if isinstance(said, StallWith):
            raise _stall(said.cause, said.cure)
        if isinstance(said, StopWith) and self._summary:
            self._stall_failed(hook, point, "StopWith is not possible here: this turn writes a summary, not an answer")
        if isinstance(said, StopWith):
            self._note(hook, point, "stopped")
            self.answer = said.text
        return said

    def answered(self, request: Request, text: str | None) -> Reply:
        """The reply that a hook gives before the model is asked."""
        self.answer = text or ""
        return stopped(Reply(message=Message(role="assistant", parts=()), model=request.model.name), self.answer)

    def _stall_failed(self, hook: Hooks, point: HookPoint, why: str) -> NoReturn:
        cure = "Fix it and deploy, then resume: the model is asked again."
        raise _stall(f"The hook {name_of(hook)!r} ({point}) of agent {self._agent.name!r} failed: {why}", cure)

    # ------------------------------------------------------------ tools

    async def before_tool(self, call: ToolCall, tool: Tool, context: ToolContext) -> CallVerdict:
        """What hooks say of a call whose arguments fit. Raises Stops, and ApplicationError to stall."""
        verdict = CallVerdict(call)
        for hook in self._at("before_tool", tool=call.name):
            try:
                said = await self._said(hook, "before_tool", verdict.call, context, wanted=_OF_CALLS)
                if isinstance(said, ToolCall) and said != verdict.call:
                    await _check_change(verdict.call, said, tool, context)
                if isinstance(said, ToolResult) and said.call_id != call.call_id:
                    raise HookFailed("it returned a result with another call_id")
            except HookFailed as error:
                self._note(hook, "before_tool", "failed", str(error), call)
                why = f"the hook {name_of(hook)!r} failed: {error}"
                verdict = replace(verdict, asks=verdict.asks or why, failed=True)
                continue
            match said:
                case DenyCall(reason):
                    self._note(hook, "before_tool", "denied", reason, call)
                    return replace(verdict, denied=_denied(hook, reason))
                case AskApproval(why):
                    self._note(hook, "before_tool", "asked", why, call)
                    verdict = replace(verdict, asks=verdict.asks or why or f"{name_of(hook)} asks for approval")
                case ToolResult(content=content, is_error=is_error):
                    answered = HookAction(hook=name_of(hook), point="before_tool", did="answered", call_id=call.call_id)
                    self._note(hook, "before_tool", "answered", call=call)
                    given = ToolResult(call_id=call.call_id, name=call.name, content=content, is_error=is_error)
                    return replace(verdict, result=given.model_copy(update={"hooks": (answered,)}))
                case StopWith(text):
                    self._note(hook, "before_tool", "stopped", call=call)
                    raise Stops(text)
                case StallWith(cause, cure):
                    raise _stall(cause, cure)
                case ToolCall() if said != verdict.call:
                    self._note(hook, "before_tool", "changed", call=call)
                    verdict = replace(verdict, call=said, changed_by=(*verdict.changed_by, name_of(hook)))
                    self.changed[call.call_id] = said
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
            raise _stall(
                "Hooks have made the arguments of a reply's calls too large to record.",
                "Make the hooks put less into the arguments.",
            )
        return reply.model_copy(update={"message": message})

    async def after_tool(self, call: ToolCall, result: ToolResult, context: ToolContext) -> ToolResult:
        """The result as it is recorded, with what hooks did to it. A failed hook raises nothing: the tool has run."""
        for hook in reversed([*self._at("after_tool", tool=call.name)]):
            try:
                said = await self._said(hook, "after_tool", call, result, context, wanted=_OF_RESULTS)
                if isinstance(said, ToolResult) and said.call_id != result.call_id:
                    raise HookFailed("it returned a result with another call_id")
            except HookFailed as error:
                self._note(hook, "after_tool", "failed", str(error), call)
                text = f"The tool {call.name} ran. Its result is withheld because the hook {name_of(hook)!r} failed."
                result = result.model_copy(update={"content": (Text(text=text),), "is_error": True})
                break
            match said:
                case StopWith(text):
                    self._note(hook, "after_tool", "stopped", text, call, most=MAX_EDIT_BYTES)
                    break
                case str():
                    said = result.model_copy(update={"content": (Text(text=said),)})
            if isinstance(said, ToolResult) and said != result:
                self._note(hook, "after_tool", "changed", call=call)
                result = result.model_copy(update={"content": said.content, "is_error": said.is_error})
        return result.model_copy(update={"hooks": tuple(self.actions)}) if self.actions else result

    # ------------------------------------------------------------ a single hook

    def _at(self, point: HookPoint, *, tool: str | None = None) -> Iterator[Hooks]:
        return hooks_at(self._agent, point, tool=tool)

    async def _said(self, hook: Hooks, point: HookPoint, *given: Any, wanted: tuple[type, ...]) -> Any:
        """What the hook returned, checked. Raises HookFailed."""
        *others, context = given
        copies = [hook_answers.own_copy(one) for one in others]
        function = partial(getattr(hook, point), *copies, context)
        try:
            said = await user_code.call(function, seconds=hook.timeout.total_seconds())
        except user_code.TookTooLong:
            why = f"it did not end within {hook.timeout}"
        except Exception as error:  # noqa: BLE001 - the user's own, whatever it is
            why = await safe_error_text(error)
        else:
            may = ", ".join(one.__name__ for one in wanted)
            why = f"it returned something of type {user_code.class_name(said)}; it may return {may} or None"
            if said is None or isinstance(said, wanted):
                try:
                    return hook_answers.checked(said, given=copies[-1], before=others[-1])
                except hook_answers.Unfit as error:
                    why = str(error)
        _log.error("hook.failed", hook=name_of(hook), point=point, agent=self._agent.name, error=why)
        raise HookFailed(why)

    def _note(
        self,
        hook: Hooks,
        point: HookPoint,
        did: Any,
        why: str = "",
        call: ToolCall | None = None,
        *,
        most: int = MAX_ACTION_WHY_BYTES,
    ) -> None:
        """`point` and `did` are as in HookAction."""
        words, call_id = shortened(why, max_bytes=most), call.call_id if call else ""
        action = HookAction(hook=name_of(hook), point=point, did=did, call_id=call_id, why=words)
        _log.info("hook.acted", hook=name_of(hook), point=point, did=did)
        if did == "stopped" or size_of(self.actions) + size_of(action) <= MAX_ACTIONS_BYTES:
            self.actions.append(action)


async def after_hooks(agent: Agent, call: ToolCall, given: ToolResult, context: ToolContext) -> ToolResult:
    """A result that a `before_tool` hook gave, as the agent's `after_tool` hooks leave it, and no larger than a model
    reads."""
    seen = await HookRuns(agent).after_tool(call, given, context)
    content = bounded(seen.content, max_chars=agent.limits.max_result_chars, max_bytes=MAX_GIVEN_BYTES, notice=Notice())
    actions = given.hooks if seen.hooks == given.hooks else (*given.hooks, *seen.hooks)
    return seen.model_copy(update={"content": content, "hooks": actions})


def hooks_at(agent: Agent, point: HookPoint, *, tool: str | None = None) -> Iterator[Hooks]:
    """The agent's hooks that have a method for this point; if a tool is named, only those for its calls."""
    for hook in agent.hooks:
        if has(hook, point) and (tool is None or hook.tools is None or tool in hook.tools):
            yield hook


def seconds_at(agent: Agent, tool: str, *points: HookPoint) -> float:
    """How long the hooks that see a run of the tool at these points may take together; 0 if there are none."""
    return sum(hook.timeout.total_seconds() for point in points for hook in hooks_at(agent, point, tool=tool))


def stopped(reply: Reply, text: str) -> Reply:
    """A reply of that text alone, with the usage of the reply that it replaces."""
    message = Message(role="assistant", parts=(Text(text=text),))
    return reply.model_copy(update={"message": message, "stop": "end", "details": {}})


def stopped_before(messages: Sequence[Message]) -> str | None:
    """The answer of a hook that stopped after a tool; None if none did, or if somebody has said something since."""
    last = messages[-1] if messages else None
    actions = [action for result in (last.tool_results if last else ()) for action in result.hooks]
    return next((action.why for action in actions if action.did == "stopped"), None)


def _stall(cause: str, cure: str) -> ApplicationError:
    details = {"cure": shortened(cure, max_bytes=MAX_CAUSE_BYTES)}
    return ApplicationError(
        shortened(cause, max_bytes=MAX_CAUSE_BYTES), details, type=names.HOOK_STALLED, non_retryable=True
    )


def _denied(hook: Hooks, reason: str) -> str:
    why = f" Reason: {reason}" if reason else ""
    return f"This call was denied by {name_of(hook)} and did not run.{why}"


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
        raise HookFailed(f"its arguments do not fit: {error}") from None
