"""Tools: functions that a model may call, and what running one means."""

from __future__ import annotations

import inspect
import json
import re
import sys
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any, Generic, Literal, cast, get_args, overload

from pydantic import BaseModel
from typing_extensions import ParamSpec, TypeVar

from everturn import names
from everturn.errors import InvalidTool
from everturn.logs import get_logger
from everturn.records import Document, Image, Text
from everturn.sizes import size_of
from everturn.tools import user_code
from everturn.tools.argument_defaults import find_defaults
from everturn.tools.arguments import InvalidArguments, ModelArguments, SchemaArguments
from everturn.tools.context import ToolContext
from everturn.tools.given_schema import given_signature
from everturn.tools.options import ToolOptions
from everturn.tools.other_libraries import CONTEXT, adopt_tool
from everturn.tools.results import safe_error_text, to_parts
from everturn.tools.signature import Signature, describe_function, read_signature, unwrap_function
from everturn.tools.unwritten_results import UnwrittenResult, after_effect
from everturn.tools.user_activity import NexusOperation, UserActivity
from everturn.tools.with_context import check_takes, with_context
from everturn.validation import durations
from everturn.validation.spelling import options_of, refuse_unknown

__all__ = ["Effect", "InvalidArguments", "Predicate", "RunsOn", "Tool", "tool"]

Effect = Literal["idempotent", "read", "once"]
"""What running a tool twice would mean: nothing (`read`), the same as once (`idempotent`), or harm (`once`)."""

RunsOn = Literal["worker", "client"]
"""Who runs the tool: a worker, or the program that answers the call."""

YesOrNo = bool | Awaitable[bool]
Predicate = Callable[[dict[str, Any]], YesOrNo] | Callable[[dict[str, Any], ToolContext], YesOrNo]
"""Says whether a call needs a decision. Gets the validated arguments by name, with defaults filled in; and the
call's context if it takes a second parameter."""

DEFAULT_TIMEOUT = timedelta(minutes=10)
NO_TIMEOUT = timedelta.max
"""The default for a tool that the client runs: people take their time."""

Local = bool | Literal["auto"]
"""Whether a tool runs within its conversation's workflow task; "auto": if its last runs were quick."""

LONGEST_LOCAL = timedelta(seconds=10)
"""The longest timeout: a local tool holds up its workflow task, and runs again with it if the worker is lost."""

DEFAULT_PATIENCE = timedelta(minutes=30)

Kinds = type[Exception] | tuple[type[Exception], ...]
"""Of temporary failures, after which a call is retried; as `except` takes them."""

_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_-]{0,63}")
_PROVIDERS_NAME = re.compile(r"[a-zA-Z0-9_$.:-]{1,128}")
"""What providers call their own tools, such as Moonshot's $web_search."""

_PASSED_ON = ("needs_approval", "effect", "runs_on", "local")
"""Options of `tool` that are fields of Tool as they are."""

# Their defaults let a plain `Tool` mean a tool of any function.
P = ParamSpec("P", default=...)
R = TypeVar("R", default=Any)

_log = get_logger("everturn.tool")


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Tool(Generic[P, R]):
    """A tool: what the model sees of it, how it runs, and the function, which can still be called.

    Made by `tool`, not by hand. `timeout` bounds one try, `patience` all tries together; for a tool that runs on
    the client, `timeout` is how long the call waits for its answer. `function` is None if only the client has it.
    `module` is where `tool` was called.
    """

    name: str
    """As the model and the Temporal Web UI see it."""
    description: str
    """What the model is told about it."""
    arguments: ModelArguments | SchemaArguments
    function: Callable[P, R] | None = None
    context_parameters: tuple[str, ...] = ()
    needs_approval: bool | Predicate = False
    effect: Effect = "idempotent"
    attaches: bool = False
    """Whether a retry continues what an earlier try began, and sends nothing twice: tasks of MCP servers."""
    timeout: timedelta = DEFAULT_TIMEOUT
    patience: timedelta = DEFAULT_PATIENCE
    runs_on: RunsOn = "worker"
    local: Local | None = None
    """None: as the agent says; if it does not, as the worker says."""
    retry: tuple[type[Exception], ...] = ()
    """Exception types of temporary failures: the call is retried, as for Retry."""
    options: ToolOptions = ToolOptions()  # noqa: RUF009 - frozen
    """Further options for providers."""
    module: str = ""
    agent: str = ""
    """The name of the agent that answers the calls, if it is one."""
    handoff: str = ""
    """The name of the agent that a call hands the conversation on to."""
    activity: UserActivity | None = None
    """The activity of the user's own that runs instead of a function: see activity_tool."""
    operation: NexusOperation | None = None
    """The Nexus operation that runs instead of a function: see nexus_tool."""
    provider_tool: bool = False
    """Whether the provider defines it: the model gets only the definition among the agent's raw tools."""

    def __post_init__(self) -> None:
        _check_name(self.name, by_provider=self.provider_tool)
        _check_choice(self, "effect", get_args(Effect))
        _check_choice(self, "runs_on", get_args(RunsOn))
        _check_duration(self, "timeout")
        _check_duration(self, "patience")
        if self.patience < self.timeout:
            raise InvalidTool(
                f"Tool {self.name!r} has patience={self.patience}, which is less than its "
                f"timeout={self.timeout} for one try.",
                cure="Raise patience or lower timeout.",
            )
        _check_local(self)
        _check_approval(self)
        _check_retry(self)
        if self.function is not None:  # so that help() and inspect see the function
            vars(self)["__wrapped__"] = self.function
            for attribute in ("__name__", "__qualname__", "__doc__"):
                vars(self)[attribute] = getattr(unwrap_function(self.function), attribute, None)

    def __repr__(self) -> str:
        return f"<Tool {self.name!r}>"

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self._callable(*args, **kwargs)

    @property
    def parameters(self) -> dict[str, Any]:
        """The JSON schema of the arguments, of type object."""
        return self.arguments.schema

    def defaults_for(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """What the schema says that the tool gets for the arguments that a call leaves out, also within objects and
        lists, by their places: `order.currency`, `items[0].count`. Without nulls."""
        return find_defaults(self.parameters, arguments)

    @property
    def is_function(self) -> bool:
        """Whether a worker of everturn's runs it as a function. False for tools that run on the client, agents,
        handoffs, activities of the user's own and Nexus operations."""
        to_agent = self.agent or self.handoff
        return self.runs_on == "worker" and not to_agent and self.activity is None and self.operation is None

    @property
    def bounded(self) -> bool:
        """Whether it has a timeout."""
        return self.timeout < NO_TIMEOUT

    def check(self, arguments: Mapping[str, Any], context: ToolContext | None = None) -> dict[str, Any]:
        """The arguments by name, as Python values; raises InvalidArguments with a message for the model. `context`:
        what pydantic's validators get as `info.context`."""
        return self.arguments.validate(arguments, context)

    async def checked(self, arguments: Mapping[str, Any], context: ToolContext | None = None) -> dict[str, Any]:
        """As `check`, but in a thread if there are validators of the user's own, which may block or never end."""
        try:
            if not self.arguments.runs_user_code:
                return self.check(arguments, context)
            return await user_code.in_thread(partial(self.check, arguments, context))
        except InvalidArguments:
            raise
        except Exception as error:
            raise InvalidArguments(f"they could not be checked ({await safe_error_text(error)})") from error

    async def inputs(self, arguments: Mapping[str, Any], context: ToolContext | None = None) -> dict[str, Any]:
        """The arguments as an activity of the user's own takes them, in JSON. Raises InvalidArguments."""
        try:
            as_json = partial(self.arguments.as_json, arguments, context)
            inputs: dict[str, Any] = await user_code.in_thread(as_json)
        except InvalidArguments:
            raise
        except Exception as error:
            raise InvalidArguments(f"they could not be written as JSON ({await safe_error_text(error)})") from error
        return inputs

    async def needs_decision(self, arguments: Mapping[str, Any], context: ToolContext | None = None) -> bool:
        """Whether a human has to decide on a call with these arguments; raises InvalidArguments.

        A predicate that fails, takes longer than 20 s or returns something other than True and False is logged and
        counts as yes: nobody has said that the call may run.
        """
        if isinstance(self.needs_approval, bool):
            return self.needs_approval
        context = context or ToolContext()
        predicate = with_context(self.needs_approval, await self.checked(arguments, context), context=context)
        try:
            asks: bool = await user_code.call(predicate, seconds=user_code.QUICK_SECONDS, finish=_yes_or_no)
        except Exception as error:  # noqa: BLE001 - the predicate's own, whatever it is
            _log.error("approval_predicate.failed", tool=self.name, error=await safe_error_text(error))
            return True
        return asks

    async def run(
        self,
        arguments: Mapping[str, Any],
        context: ToolContext,
        *,
        executor: Executor | None = None,
        on_begin: Callable[[], None] | None = None,
    ) -> tuple[Text | Image | Document, ...]:
        """Run the function and give its result as parts.

        A sync function runs in a thread of `executor` (None: one that is shared), with the caller's context variables;
        cancelling does not stop it. `on_begin` is called just before the first of the user's code. Raises
        InvalidArguments, Unwritten for a result that can't be sent to a model, TookTooLong after the tool's `timeout`,
        NoThread, and whatever the function raises.
        """
        function = cast("Callable[..., Any]", self._callable)
        seconds = self.timeout.total_seconds()

        def read_keywords() -> dict[str, Any]:
            return self.arguments.keywords(arguments, context) | dict.fromkeys(self.context_parameters, context)

        if user_code.is_async(function) and not self.arguments.runs_user_code:
            begun = partial(function, **read_keywords())
        elif user_code.is_async(function):
            read = await user_code.call(read_keywords, seconds=seconds, threads=executor, on_begin=on_begin)
            begun = partial(function, **read)
        else:
            begun = partial(_with_keywords, function, read_keywords)
        returned = False

        def to_result(value: Any) -> tuple[Text | Image | Document, ...]:
            nonlocal returned
            returned = True
            with after_effect():
                parts = to_parts(value)
                size_of(parts)  # a picture's address or name may hold what can't be written
                return parts

        try:
            parts: tuple[Text | Image | Document, ...] = await user_code.call(
                begun, seconds=seconds, finish=to_result, threads=executor, name=self.name, on_begin=on_begin
            )
        except user_code.TookTooLong as error:
            if not returned:
                raise
            raise UnwrittenResult from error
        return parts

    @property
    def _callable(self) -> Callable[P, R]:
        if self.function is None:
            raise InvalidTool(
                f"Tool {self.name!r} has no function here: the client runs it.", cure="Answer the call instead."
            )
        return self.function


@overload
def tool(
    function: Callable[P, R],
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    parameters: Mapping[str, Any] | type[BaseModel] | None = None,
    needs_approval: bool | Predicate = False,
    effect: Effect = "idempotent",
    timeout: timedelta | None = None,
    patience: timedelta | None = None,
    runs_on: RunsOn = "worker",
    local: Local | None = None,
    retry: Kinds = (),
    options: ToolOptions | Mapping[str, Any] | None = None,
    deps: Any = None,
) -> Tool[P, R]: ...


@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    parameters: Mapping[str, Any] | type[BaseModel] | None = None,
    needs_approval: bool | Predicate = False,
    effect: Effect = "idempotent",
    timeout: timedelta | None = None,
    patience: timedelta | None = None,
    runs_on: RunsOn = "worker",
    local: Local | None = None,
    retry: Kinds = (),
    options: ToolOptions | Mapping[str, Any] | None = None,
    deps: Any = None,
) -> Callable[[Callable[P, R]], Tool[P, R]]: ...


def tool(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Make a tool of a function: `@tool`, `@tool(effect="once")` or `tool(function, effect="once")`.

    It also takes a tool of LangChain, the OpenAI Agents SDK or pydantic-ai: `tool(theirs)`.

    - `name`, `description`: instead of the function's own name and docstring.
    - `parameters`: a JSON schema of type object, or a pydantic model, in place of the signature. The function gets the
      arguments by name: with a schema, unconverted, and only their names are checked; with a model, as its fields.
    - `needs_approval`: True, or a predicate, sync or async, that gets the dict of validated arguments, and the call's
      ToolContext if it takes a second parameter.
    - `effect`: what running it twice would mean: nothing (`read`), the same as once (`idempotent`), or harm (`once`).
    - `timeout`: of one try, by default 10 minutes; with `runs_on="client"`, for the answer, by default none.
    - `patience`: of all tries together, by default 30 minutes or, if that is longer, one timeout.
    - `runs_on`: with `client`, no worker runs it; the call waits until somebody answers it.
    - `local`: run it within the conversation's own workflow task: quicker, for `read` tools that take a few seconds.
      With "auto", if its last runs were quick, and for `idempotent` tools, too; False: never. By default, as the
      agent says.
    - `retry`: exception types of temporary failures, such as ConnectionError: retried, as for `raise Retry()`.
    - `options`: further options for providers, such as ToolOptions(strict=True), or a dict of the same.
    - `deps`: what another library's tool gets in its context: pydantic-ai's `ctx.deps`, OpenAI's `ctx.context`.

    Raises InvalidTool.
    """
    refuse_unknown(_place_of(function), options, _OPTIONS, error=InvalidTool)
    # A tool belongs to the module that made it, wherever its function comes from.
    options.setdefault("_module", sys._getframe(1).f_globals.get("__name__", ""))
    if function is None:
        return partial(_make_tool, **options)
    return _make_tool(function, **options)


def _make_tool(function: Callable[..., Any], **options: Any) -> Tool:
    _refuse_unbound(function, options)
    return _build_tool(function, **options)


def _build_tool(
    function: Callable[..., Any],
    *,
    _module: str,
    name: str | None = None,
    description: str | None = None,
    patience: timedelta | None = None,
    timeout: timedelta | None = None,
    retry: Kinds = (),
    options: ToolOptions | Mapping[str, Any] | None = None,
    parameters: Mapping[str, Any] | type[BaseModel] | None = None,
    deps: Any = None,
    **tool_options: Any,
) -> Tool:
    if isinstance(function, staticmethod):
        function = function.__func__
    if adopted := adopt_tool(function, deps=deps):
        function = adopted.function
        signature = Signature(adopted.arguments, (CONTEXT,), adopted.description)
        name = adopted.name if name is None else name
        tool_options.setdefault("needs_approval", adopted.needs_approval)
        options = options or dict(adopted.options)
    else:
        _check_function(function)
        name = _own_name(function) if name is None else name
        if parameters is None:
            signature = read_signature(function, context_type=ToolContext)
        else:
            signature = given_signature(function, parameters, context_type=ToolContext)
    if not isinstance(description, str | None):
        raise InvalidTool(f"Tool {name!r} has description={description!r}.", cure="Write a text.")
    if timeout is None:
        timeout = NO_TIMEOUT if tool_options.get("runs_on") == "client" else DEFAULT_TIMEOUT
    if patience is None:
        patience = max(DEFAULT_PATIENCE, timeout) if isinstance(timeout, timedelta) else DEFAULT_PATIENCE
    return Tool(
        name=name,
        description=signature.description if description is None else description,
        arguments=signature.arguments,
        function=function,
        context_parameters=signature.context_parameters,
        timeout=timeout,
        patience=patience,
        retry=_kinds_of(retry),
        options=ToolOptions.of(options, tool=name),
        module=_module,
        **tool_options,
    )


_OPTIONS = (*(name for name in options_of(_build_tool) if name not in {"function", "_module"}), *_PASSED_ON)


def _yes_or_no(answer: object) -> bool:
    """Raises TypeError for what is neither: None comes from a `return` that was forgotten, and says nothing."""
    if not isinstance(answer, bool):
        raise TypeError(f"it returned something of type {user_code.class_name(answer)}, and not True or False")
    return answer


def _place_of(function: Callable[..., Any] | None) -> str:
    if function is None:
        return "tool()"
    return f"tool() of {describe_function(function)}"


def _with_keywords(function: Callable[..., Any], keywords: Callable[[], dict[str, Any]]) -> Any:
    return function(**keywords())


def _check_function(function: Any) -> None:
    if isinstance(function, Tool):
        raise InvalidTool(
            f"{function.name!r} is already a tool.", cure="To change it, write dataclasses.replace(it, effect='once')."
        )
    if isinstance(function, type):
        raise InvalidTool(f"{function.__name__} is a class.", cure="Use tool() on a function.")
    if not callable(function):
        raise InvalidTool(f"{function!r} can't be called.", cure="Make a tool of a function.")
    target = unwrap_function(function)
    if inspect.isgeneratorfunction(target) or inspect.isasyncgenfunction(target):
        raise InvalidTool(
            f"Tool {describe_function(function)} yields.", cure="Return the whole result, such as a list."
        )


def _check_name(name: object, *, by_provider: bool = False) -> None:
    if not isinstance(name, str) or not (_PROVIDERS_NAME if by_provider else _NAME).fullmatch(name):
        raise InvalidTool(
            f"{name!r} is not a valid name for a tool: it needs 1 to 64 of a-z, A-Z, 0-9, _ "
            "and -, and can't start with a digit or -.",
            cure="Give it one with tool(name='...').",
        )
    if name in names.RESERVED_TOOL_NAMES:
        raise InvalidTool(
            f"No tool can be called {name!r}: everturn itself uses that name.",
            cure="Give it another with tool(name='...').",
        )


def _check_choice(tool: Tool, option: str, choices: tuple[str, ...]) -> None:
    value = getattr(tool, option)
    if value not in choices:
        raise InvalidTool(f"Tool {tool.name!r} has {option}={value!r}.", cure=f"Write one of {', '.join(choices)}.")


def _check_duration(tool: Tool, option: str) -> None:
    value = getattr(tool, option)
    if problem := durations.problem_of(value):
        raise InvalidTool(f"Tool {tool.name!r} has {option}={value!r}.", cure=problem)


def _check_local(tool: Tool) -> None:
    match tool.local:
        case None | False:
            return
        case "auto" if tool.effect != "once":
            return
        case "auto":
            raise InvalidTool(
                f"Tool {tool.name!r} has local='auto' and effect='once'.",
                cure="A local call may run again with its workflow task: leave local out.",
            )
        case True if tool.effect == "read" and tool.timeout <= LONGEST_LOCAL:
            return
        case True:
            raise InvalidTool(
                f"Tool {tool.name!r} is local, with effect={tool.effect!r} and timeout={tool.timeout}.",
                cure=f"A local tool needs effect='read' and a timeout of at most {LONGEST_LOCAL}.",
            )
        case other:
            raise InvalidTool(
                f"Tool {tool.name!r} has local={other!r}.", cure="Write local=True, False or 'auto', or leave it out."
            )


def _check_approval(tool: Tool) -> None:
    predicate = tool.needs_approval
    if isinstance(predicate, bool):
        return
    try:
        check_takes(predicate, {}, context=ToolContext())
    except ValueError:  # a builtin without a readable signature; callable all the same
        return
    except TypeError:
        raise InvalidTool(
            f"Tool {tool.name!r} has needs_approval={predicate!r}.",
            cure="Write True, False, or a function of one parameter, which gets the dict of arguments, "
            "or of two, of which the second gets the ToolContext.",
        ) from None


def _kinds_of(given: Any) -> Any:
    """The exception types of `retry=` as a tuple. Does not check them: `Tool` does."""
    if isinstance(given, list | tuple):
        return tuple(given)
    return (given,)


def _check_retry(tool: Tool) -> None:
    wrong = [kind for kind in tool.retry if not (isinstance(kind, type) and issubclass(kind, Exception))]
    if wrong:
        raise InvalidTool(
            f"Tool {tool.name!r} has retry={tool.retry!r}.",
            cure="Write exception types, such as retry=(ConnectionError, TimeoutError).",
        )
    if tool.retry and tool.effect == "once":
        raise InvalidTool(
            f"Tool {tool.name!r} has retry={tool.retry!r} and effect='once', which is never retried.",
            cure="Leave retry= out, or say effect='idempotent' if running it twice does no harm.",
        )
    if tool.retry and tool.runs_on == "client":
        raise InvalidTool(
            f"Tool {tool.name!r} has retry={tool.retry!r}, but no worker runs it.",
            cure="Leave retry= out: your own code answers its calls and can try again.",
        )


def _own_name(function: Callable[..., Any]) -> str:
    named = function
    while isinstance(named, partial):
        named = named.func
    name = getattr(named, "__name__", None)
    if name is None or name == "<lambda>":
        raise InvalidTool(f"{describe_function(function)} has no name of its own.", cure="Write tool(name='...')(it).")
    return str(name)


def _refuse_unbound(function: Any, given: Mapping[str, Any]) -> None:
    """Raises InvalidTool for a method without its object, as a decorator in a class gets it: which object a call would
    be for is not known there. `given`: the tool's options, for the cure."""
    target = unwrap_function(function) if inspect.isfunction(function) else None
    code = getattr(target, "__code__", None)
    if target is None or code is None or code.co_varnames[: code.co_argcount][:1] != ("self",):
        return
    if "self" in target.__annotations__:
        return
    owner, _, name = target.__qualname__.rpartition("<locals>.")[2].rpartition(".")
    written = ", ".join(f"{key}={_as_code(value)}" for key, value in given.items() if not key.startswith("_"))
    example = f"({owner or 'Shop'}().{name})"
    if written:
        example = f"({written}){example}"
    raise InvalidTool(
        f"Tool {describe_function(function)} can't take the parameter 'self': this is a method without its object.",
        cure=f"Leave the method as it is, without @tool, and make the tool of a bound one: tool{example}.",
    )


def _as_code(value: object) -> str:
    """The value as in code."""
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    return getattr(value, "__name__", "") or repr(value).replace("datetime.", "", 1)
