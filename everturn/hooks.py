"""Hooks: code of yours that sees what goes to the model and to the tools, and what comes back, and may change it.

    @before_tool
    def only_small(call: ToolCall, context: ToolContext) -> DenyCall | None:
        return DenyCall("too much") if call.name == "refund" and call.arguments["cents"] > 5000 else None

    Agent("clerk", ..., hooks=[only_small])

They run on workers, inside the activities of model turns and tool calls; what they decide is recorded with the reply or
the result, so that a retry or a replay follows it.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any, Final, Generic, Literal, TypeAlias, TypeVar, Union, cast, get_args, overload

from everturn.errors import InvalidAgent
from everturn.models import ModelSettings
from everturn.records import HookPoint, Message, Reply, ToolCall, ToolResult
from everturn.sizes import MAX_HOOK_NAME_CHARS
from everturn.tools.context import ToolContext, TurnContext
from everturn.validation import durations

__all__ = [
    "AskApproval",
    "DenyCall",
    "Hooks",
    "ModelInput",
    "StallWith",
    "StopWith",
    "after_model",
    "after_tool",
    "before_model",
    "before_tool",
]

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")
Given: TypeAlias = Union[T, Awaitable[T]]  # noqa: UP007 - of a type variable, only this is an alias
"""What a sync or an async function returns."""

DEFAULT_TIMEOUT: Final = timedelta(seconds=20)
LONGEST_TIMEOUT: Final = timedelta(minutes=10)

# ---------------------------------------------------------------- what they are given, and what they may say


@dataclass(frozen=True, kw_only=True)
class ModelInput:
    """What the model is about to be sent. `dataclasses.replace` makes a changed one; the transcript stays as it is."""

    messages: tuple[Message, ...]
    instructions: str = ""
    tools: tuple[str, ...] = ()
    """The names of the tools that it is shown: leave some out, and it can't call them in this turn."""
    settings: ModelSettings = ModelSettings()  # noqa: RUF009 - frozen
    model: str = ""
    """`provider:name`. It can't be changed here."""
    purpose: Literal["turn", "summary"] = "turn"
    """A `summary` is what the model writes if the transcript nears its window: see Compaction."""

    @property
    def new(self) -> tuple[Message, ...]:
        """The messages since the model's last reply."""
        replies = [place for place, message in enumerate(self.messages) if message.role == "assistant"]
        if not replies:
            return self.messages
        return self.messages[replies[-1] + 1 :]


@dataclass(frozen=True)
class DenyCall:
    """From `before_tool`: the call does not run. The model is told so, and why."""

    reason: str = ""


@dataclass(frozen=True)
class AskApproval:
    """From `before_tool`: the call waits for a person's approval, whoever runs it then."""

    why: str = ""


@dataclass(frozen=True)
class StopWith:
    """From any hook: this is the answer. The model is not asked again, and no call of its reply runs. After a tool's
    result, the other calls of the reply are finished first."""

    text: str


@dataclass(frozen=True)
class StallWith:
    """From any hook but `after_tool`: the conversation stalls. `resume` asks the model again."""

    cause: str
    cure: str = "Fix the cause, then resume."


BeforeModel = ModelInput | StopWith | StallWith | None
AfterModel = Reply | StopWith | StallWith | None
BeforeTool = ToolCall | ToolResult | DenyCall | AskApproval | StopWith | StallWith | None
AfterTool = ToolResult | str | StopWith | None

# ---------------------------------------------------------------- hooks


class Hooks:
    """Several hooks that belong together. Override those that you need, sync or async. Return None to change
    nothing.

    They run in the order of `Agent(hooks=[...])`, and `after_...` hooks in the opposite order. Each gets what the
    one before it returned. The first that denies, answers, stops or stalls is the last that runs, but `after_tool` goes
    on, since the result is kept: the answer is that of the first that stops. After one that asks for approval, a later
    one may still deny, or answer: then a person approves the answer.
    A hook fails if it raises, takes longer than its `timeout` or returns something else. Then the conversation
    stalls (`before_model`, `after_model`), the call waits for a person's approval (`before_tool`), or the result is
    withheld (`after_tool`). If a worker is lost, a hook may run twice; it should do no harm then.
    """

    name: str = ""
    """Its name in records and on screens; the class's own name unless given."""
    timeout: timedelta = DEFAULT_TIMEOUT
    """Of each run."""
    tools: Collection[str] | None = None
    """The names of the tools that `before_tool` and `after_tool` are for; None: all."""
    streams: bool = False
    """The text may be shown while it is written, before `after_model` has seen it. False: it is not streamed."""

    def before_model(self, given: ModelInput, context: TurnContext) -> Given[BeforeModel]:  # noqa: ARG002 - for those who override it
        """Runs before the model is asked. May change what the model gets. StopWith answers instead of the model."""
        return None

    def after_model(self, reply: Reply, context: TurnContext) -> Given[AfterModel]:  # noqa: ARG002 - for those who override it
        """Runs before the model's reply is recorded. May change its text, and change or leave out its calls."""
        return None

    def before_tool(self, call: ToolCall, context: ToolContext) -> Given[BeforeTool]:  # noqa: ARG002 - for those who override it
        """Runs when a call is planned, if its arguments fit the tool's schema. Its result is recorded with the
        reply. May change the arguments, or answer with a ToolResult of the call's `call_id`: then nothing runs, and
        no approval is needed for what does not run. If a person changes the arguments, it runs again with these, on a
        worker. If it denies those or changes them, the call waits for a person again: with what it made of them."""
        return None

    def after_tool(self, call: ToolCall, result: ToolResult, context: ToolContext) -> Given[AfterTool]:  # noqa: ARG002 - for those who override it
        """Runs when a call has a result, whoever gave it, before it is recorded. May change the result, or return a
        text to replace it."""
        return None


class _FunctionHook(Hooks):
    def __init__(self, point: HookPoint, function: Callable[..., Any], /, **options: Any) -> None:
        vars(self).update({"name": getattr(function, "__name__", point), **options, point: function})


class _Decorator(Generic[F]):
    """Makes a hook of a function."""

    def __init__(self, point: HookPoint) -> None:
        self._point = point

    @overload
    def __call__(self, function: F, /) -> Hooks: ...

    @overload
    def __call__(
        self,
        /,
        *,
        name: str | None = None,
        timeout: timedelta | None = None,
        tools: Collection[str] | None = None,
        streams: bool | None = None,
    ) -> Callable[[F], Hooks]: ...

    def __call__(self, function: F | None = None, /, **options: Any) -> Hooks | Callable[[F], Hooks]:
        given = {name: value for name, value in options.items() if value is not None}
        if unknown := given.keys() - {"name", "timeout", "tools", "streams"}:
            raise InvalidAgent(
                f"{self._point} has no option {min(unknown)!r}.",
                cure="The options are name, timeout, tools and streams.",
            )
        make_hook = partial(_FunctionHook, self._point, **given)
        if function is None:
            return cast("Callable[[F], Hooks]", make_hook)
        return make_hook(function)


before_model: Final = _Decorator[Callable[[ModelInput, TurnContext], Given[BeforeModel]]]("before_model")
"""Makes a hook of a function: `@before_model`, or `@before_model(name=, timeout=)`. See Hooks.before_model."""

after_model: Final = _Decorator[Callable[[Reply, TurnContext], Given[AfterModel]]]("after_model")
"""Likewise, with `streams=`. See Hooks.after_model."""

before_tool: Final = _Decorator[Callable[[ToolCall, ToolContext], Given[BeforeTool]]]("before_tool")
"""Likewise, with `tools=`. See Hooks.before_tool."""

after_tool: Final = _Decorator[Callable[[ToolCall, ToolResult, ToolContext], Given[AfterTool]]]("after_tool")
"""Likewise, with `tools=`. See Hooks.after_tool."""


# ---------------------------------------------------------------- underneath


def name_of(hook: Hooks) -> str:
    return (hook.name or type(hook).__name__)[:MAX_HOOK_NAME_CHARS]


def has_point(hook: Hooks, point: HookPoint) -> bool:
    """Whether it does anything at that point."""
    return point in vars(hook) or getattr(type(hook), point) is not getattr(Hooks, point)


def check_hooks(place: str, hooks: Any) -> tuple[Hooks, ...]:
    """Raises InvalidAgent for what is no list of hooks."""
    if isinstance(hooks, Hooks | str) or not isinstance(hooks, Sequence):
        raise InvalidAgent(f"{place} has hooks={hooks!r}, which is not a list.", cure="Write hooks=[...].")
    for number, hook in enumerate(hooks):
        where = f"hooks[{number}] of {place}"
        if isinstance(hook, type):
            raise InvalidAgent(f"{where}: {hook.__name__} is a class.", cure=f"Write {hook.__name__}(...).")
        if not isinstance(hook, Hooks):
            kind = "a function" if inspect.isroutine(hook) else f"of type {type(hook).__name__}"
            raise InvalidAgent(
                f"{where} is {hook!r}, {kind}.",
                cure="Decorate it with @before_tool or another hook decorator, or subclass Hooks.",
            )
        if not any(has_point(hook, point) for point in get_args(HookPoint)):
            raise InvalidAgent(
                f"{where}, {name_of(hook)!r}, does nothing.", cure="Override one of its methods, such as before_tool."
            )
        problem = durations.problem_of(hook.timeout)
        if problem or hook.timeout > LONGEST_TIMEOUT:
            raise InvalidAgent(
                f"{where}, {name_of(hook)!r}, has timeout={hook.timeout!r}.",
                cure=problem or f"The longest timeout is {LONGEST_TIMEOUT}.",
            )
    return tuple(hooks)
