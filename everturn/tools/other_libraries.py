"""Adopts tools of LangChain, the OpenAI Agents SDK and pydantic-ai, unchanged.

They are recognised by their attributes: none of these libraries is imported here or has to be installed.
"""

from __future__ import annotations

import asyncio
import copy
import functools
import inspect
import json
import sys
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, Final, Literal, get_origin, get_type_hints

from pydantic import BaseModel, ValidationError

from everturn.errors import InvalidTool, NeedsApproval, ToolFailed
from everturn.tools.arguments import InvalidArguments, SchemaArguments
from everturn.tools.json_schema import problems_in
from everturn.tools.options import ToolOptions
from everturn.tools.unwritten_results import after_effect

CONTEXT = "everturn_context"
"""The parameter that passes the call's context to these tools. No argument has this name."""

_OPENAI = "agents.tool_context"
_PYDANTIC_AI = "pydantic_ai"


@dataclass(frozen=True)
class AdoptedTool:
    """Another library's tool, as everturn needs it."""

    name: str
    description: str
    arguments: SchemaArguments
    function: Callable[..., Any]
    needs_approval: Any = False
    options: Mapping[str, Any] = field(default_factory=dict)
    """Those of `ToolOptions` that it has."""


def adopt_tool(given: Any, *, deps: Any = None) -> AdoptedTool | None:
    """None if it is no tool of these libraries. `deps`: what its function gets in its context. Raises InvalidTool."""
    if isinstance(given, type):
        return None
    if _has_attributes(given, "name", "description", "params_json_schema", "on_invoke_tool"):
        return _of_openai(given, deps)
    if _has_attributes(given, "name", "function_schema", "takes_ctx"):
        return _of_pydantic_ai(given, deps)
    if _has_attributes(given, "name", "description", "tool_call_schema", "ainvoke", "invoke"):
        return _of_langchain(given)
    if inspect.isroutine(given) and _takes_run_context(given):
        return _of_pydantic_ai(sys.modules[_PYDANTIC_AI].Tool(given), deps)
    return None


def _has_attributes(given: object, *names: str) -> bool:
    return all(hasattr(given, name) for name in names)


class _CheckedArguments(SchemaArguments):
    """A JSON schema, with its library's own check of the arguments."""

    def __init__(self, schema: Mapping[str, Any], check: Callable[[dict[str, Any]], object]) -> None:
        super().__init__({name: value for name, value in schema.items() if name not in ("title", "description")})
        self._check = check
        self.runs_user_code = True

    def validate(self, arguments: Mapping[str, Any], context: Any = None) -> dict[str, Any]:  # noqa: ARG002
        """The arguments as they are: their library converts them. Raises InvalidArguments."""
        given = super().validate(arguments)
        try:
            self._check(given)
        except ValidationError as error:
            raise InvalidArguments(problems_in(error)) from None
        return given

    keywords = as_json = validate


class RanTooLong(ToolFailed):
    """It ran for longer than its library lets it. It may have taken effect."""


@dataclass(frozen=True)
class LibraryOption:
    """What everturn does with an option of another library's tool."""

    does: Literal["obeyed", "refused", "not needed"]
    how: str
    """In a few words. Of a refused one: what to do instead."""
    unset: tuple[Any, ...] = ()
    """Of a refused one: the values that ask for nothing."""


_DECIDES = "Leave the tool out, or remove the option and decide in Agent(prepare_tools=...) when the tool is offered."
_USED = LibraryOption("obeyed", "the tool itself")
_THEIRS = LibraryOption("obeyed", "by the library, in its own call")
_WHEN_MADE = LibraryOption("not needed", "used by the library when the tool was made")
_FOR_ITS_RUNS = LibraryOption("not needed", "for records of the library's own runs")

OPENAI: Final[Mapping[str, LibraryOption]] = {
    **dict.fromkeys(("name", "description", "params_json_schema", "on_invoke_tool"), _USED),
    "is_enabled": LibraryOption("refused", _DECIDES, (True,)),
    "tool_input_guardrails": LibraryOption("obeyed", "asked before the function runs; they get no agent"),
    "tool_output_guardrails": LibraryOption("obeyed", "asked about what it returned; they get no agent"),
    "needs_approval": LibraryOption("obeyed", "as tool(needs_approval=)"),
    "timeout_seconds": LibraryOption("obeyed", "the model is told; with effect='once', a person decides"),
    "timeout_behavior": LibraryOption("obeyed", "'raise_exception' tells the model, too: nothing ends a conversation"),
    "timeout_error_function": LibraryOption("obeyed", "its text is what the model reads"),
    "defer_loading": LibraryOption("obeyed", "as ToolOptions(defer_loading=)"),
    "allowed_callers": LibraryOption("obeyed", "as ToolOptions(allowed_callers=)"),
    "strict_json_schema": LibraryOption(
        "not needed", "the arguments are checked; ToolOptions(strict=True) asks for more"
    ),
    "custom_data_extractor": _FOR_ITS_RUNS,
    "output_json_schema": LibraryOption("not needed", "tells programs of the model what the tool returns"),
}
"""The public fields of FunctionTool, openai-agents 0.24.0."""

PYDANTIC_AI: Final[Mapping[str, LibraryOption]] = {
    **dict.fromkeys(("function", "takes_ctx", "name", "description", "function_schema"), _USED),
    **dict.fromkeys(("docstring_format", "require_parameter_descriptions", "schema_generator"), _WHEN_MADE),
    "prepare": LibraryOption("refused", _DECIDES, (None,)),
    "args_validator": LibraryOption("obeyed", "asked before the function runs"),
    "requires_approval": LibraryOption("obeyed", "as tool(needs_approval=True)"),
    "timeout": LibraryOption("obeyed", "the model is told; with effect='once', a person decides"),
    "sequential": LibraryOption(
        "refused", "Remove it, and set Limits(max_parallel_calls=1), which lets no two calls overlap.", (False, None)
    ),
    "tool_kind": LibraryOption("refused", "Remove it: only agents of that library run tools of this kind.", (None,)),
    "defer_loading": LibraryOption("obeyed", "as ToolOptions(defer_loading=)"),
    "max_retries": LibraryOption("not needed", "each ModelRetry is told to the model; Limits bound the conversation"),
    "strict": LibraryOption("not needed", "the arguments are checked; ToolOptions(strict=True) asks for more"),
    "metadata": LibraryOption("not needed", "for filters of the library's toolsets"),
    "include_return_schema": LibraryOption("not needed", "tells the model what the tool returns"),
}
"""What Tool takes, pydantic-ai 2.68.0."""

LANGCHAIN: Final[Mapping[str, LibraryOption]] = {
    **dict.fromkeys(("name", "description", "args_schema", "func", "coroutine"), _USED),
    **dict.fromkeys(("callbacks", "verbose", "tags", "metadata"), _THEIRS),
    "handle_tool_error": _THEIRS,
    "handle_validation_error": LibraryOption(
        "not needed", "arguments that don't fit never reach the tool: the model is told"
    ),
    "response_format": LibraryOption(
        "obeyed", "the model reads the content; the artifact is for LangChain's own graphs"
    ),
    "return_direct": LibraryOption(
        "refused", "Remove it, and end the turn in a hook: after_tool may return StopWith(text).", (False,)
    ),
    "extras": LibraryOption("obeyed", "its fields that ToolOptions has, too"),
}
"""The fields of StructuredTool and Tool, langchain-core 1.8.3."""


def _refuse_options(foreign_tool: Any, library: str, options: Mapping[str, LibraryOption]) -> None:
    """Raises InvalidTool for an option that is set and can't be obeyed."""
    for name, option in options.items():
        if option.does != "refused" or not hasattr(foreign_tool, name):
            continue
        if not any(getattr(foreign_tool, name) is value for value in option.unset):
            raise InvalidTool(
                f"The {library} tool {foreign_tool.name!r} has {name}=, which only agents of that library use.",
                cure=option.how,
            )


class _RunsTooLate(Exception): ...


async def _run_within(seconds: float | None, running: Coroutine[Any, Any, Any]) -> Any:
    """The result. Raises _Late after the seconds that its library gives it; a TimeoutError is the tool's own."""
    try:
        async with asyncio.timeout(seconds) as limit:
            return await running
    except TimeoutError as error:
        if limit.expired():
            raise _RunsTooLate from error
        raise


def _too_long(theirs: Any, seconds: float | None) -> str:
    assert seconds is not None
    return f"{theirs.name} did not finish within {seconds:g} s."


def _tool_options(theirs: Any, *names: str) -> dict[str, Any]:
    given = {name: getattr(theirs, name, None) for name in names}
    return {name: value for name, value in given.items() if value}


# ---------------------------------------------------------------- LangChain

ONE_TEXT = {"type": "object", "properties": {"tool_input": {"type": "string"}}, "required": ["tool_input"]}


def _of_langchain(foreign_tool: Any) -> AdoptedTool:
    _refuse_options(foreign_tool, "LangChain", LANGCHAIN)
    # `Tool(name=, func=, description=)` has no schema: it takes one text, whatever its function calls that.
    takes_one_text = getattr(foreign_tool, "args_schema", None) is None and "tool_input" in getattr(
        foreign_tool, "args", ()
    )
    schema: Any = ONE_TEXT if takes_one_text else foreign_tool.tool_call_schema
    check: Callable[[dict[str, Any]], object] = dict
    if isinstance(schema, type) and issubclass(schema, BaseModel):
        check = schema.model_validate
        schema = schema.model_json_schema()
    elif not isinstance(schema, Mapping):
        raise InvalidTool(
            f"The LangChain tool {foreign_tool.name!r} has args_schema={schema!r}.",
            cure="Give it a model of pydantic 2, or a JSON schema.",
        )

    watched = _copy_that_notes_returns(foreign_tool)

    async def run_async(**given: Any) -> Any:
        context = given.pop(CONTEXT)
        with _after_its_return():
            return _message_content(await watched.ainvoke(_tool_call(foreign_tool, given, context)))

    def run(**given: Any) -> Any:
        context = given.pop(CONTEXT)
        with _after_its_return():
            return _message_content(watched.invoke(_tool_call(foreign_tool, given, context)))

    function = run_async if _is_async(foreign_tool) else run
    extras = getattr(foreign_tool, "extras", None) or {}
    options = {name: value for name, value in extras.items() if name in ToolOptions.model_fields}
    return AdoptedTool(
        foreign_tool.name, foreign_tool.description, _CheckedArguments(schema, check), function, options=options
    )


def _tool_call(theirs: Any, arguments: Mapping[str, Any], context: Any) -> dict[str, Any]:
    """A call in LangChain's form: with it, a tool gets the call's id if it wants that."""
    return {"type": "tool_call", "name": theirs.name, "args": dict(arguments), "id": context.call_id}


@dataclass
class _Returns:
    """Whether the tool's own function has returned in this call."""

    noted: bool = False


_RETURNS: Final[ContextVar[_Returns]] = ContextVar("everturn_returns")


def _copy_that_notes_returns(theirs: Any) -> Any:
    """A copy, whose functions are the tool's. LangChain raises in one way whatever went wrong, also once the function
    has returned: its result has no form, or a callback fails."""
    watched = copy.copy(theirs)
    for name in ("_run", "_arun"):
        if callable(function := getattr(theirs, name, None)):
            object.__setattr__(watched, name, _note_return(function))  # pydantic refuses what is no field
    return watched


def _note_return(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, with its signature, which LangChain reads."""

    @functools.wraps(function)
    def run(*given: Any, **named: Any) -> Any:
        returned = function(*given, **named)
        _RETURNS.get().noted = True
        return returned

    @functools.wraps(function)
    async def run_async(*given: Any, **named: Any) -> Any:
        returned = await function(*given, **named)
        _RETURNS.get().noted = True
        return returned

    return run_async if inspect.iscoroutinefunction(function) else run


@contextmanager
def _after_its_return() -> Iterator[None]:
    """Raises Unwritten for what fails once the tool's own function has returned."""
    returns = _Returns()
    _RETURNS.set(returns)
    try:
        yield
    except Exception:
        if not returns.noted:
            raise
        with after_effect():
            raise


def _is_async(theirs: Any) -> bool:
    """Whether the tool has its own async code. Sync tools run in everturn's threads, which can be abandoned."""
    if hasattr(theirs, "coroutine"):
        return theirs.coroutine is not None
    own = next((kind for kind in type(theirs).__mro__ if "_arun" in vars(kind)), None)
    return own is not None and not own.__module__.startswith("langchain_core.")


def _message_content(returned: Any) -> Any:
    """The content of a ToolMessage; other values unchanged. Raises ToolFailed."""
    if not _has_attributes(returned, "content", "status", "tool_call_id"):
        return returned
    if returned.status == "error":
        raise ToolFailed(str(returned.content))
    return returned.content


# ---------------------------------------------------------------- the OpenAI Agents SDK


def _of_openai(foreign_tool: Any, deps: Any) -> AdoptedTool:
    _refuse_options(foreign_tool, "OpenAI Agents", OPENAI)
    seconds = getattr(foreign_tool, "timeout_seconds", None)

    async def run(**given: Any) -> Any:
        context = given.pop(CONTEXT)
        written = json.dumps(given, ensure_ascii=False)
        run_context = _openai_context(foreign_tool.name, context.call_id, written, deps)
        if (refusal := await _openai_refusal(foreign_tool, "tool_input_guardrails", run_context)) is not None:
            raise ToolFailed(refusal)
        try:
            returned = await _run_within(seconds, foreign_tool.on_invoke_tool(run_context, written))
        except _RunsTooLate as error:
            raise RanTooLong(await _openai_timeout_text(foreign_tool, run_context, float(seconds or 0))) from error
        with after_effect():
            refusal = await _openai_refusal(foreign_tool, "tool_output_guardrails", run_context, output=returned)
            if refusal is not None:
                return refusal
            return _convert_output(returned)

    asks: Any = getattr(foreign_tool, "needs_approval", False)

    async def needs_approval(arguments: dict[str, Any]) -> Any:
        run_context = _openai_context(foreign_tool.name, "", json.dumps(arguments, ensure_ascii=False), deps)
        verdict = asks(run_context, arguments, "")
        if inspect.isawaitable(verdict):
            verdict = await verdict
        return verdict  # as it is: only False lets the call run

    return AdoptedTool(
        foreign_tool.name,
        foreign_tool.description or "",
        _CheckedArguments(foreign_tool.params_json_schema, dict),
        run,
        needs_approval if callable(asks) else bool(asks),
        _tool_options(foreign_tool, "defer_loading", "allowed_callers"),
    )


async def _openai_refusal(foreign_tool: Any, option: str, context: Any, **output_data: Any) -> str | None:
    """What the model reads in place of the result, if a guardrail does not let the call run or its output pass. A
    guardrail that fails lets nothing pass."""
    for guardrail in getattr(foreign_tool, option, None) or ():
        module = sys.modules["agents.tool_guardrails"]
        kind = module.ToolOutputGuardrailData if output_data else module.ToolInputGuardrailData
        output = await guardrail.run(kind(context=context, agent=None, **output_data))
        behavior = output.behavior
        match behavior["type"]:
            case "allow":
                continue
            case "reject_content":
                return str(behavior["message"])
            case _:
                halted = f"The guardrail {guardrail.get_name()} stopped this call"
                if output_data:
                    return f"{halted} after it ran: its result is withheld."
                return f"{halted}: it did not run."
    return None


async def _openai_timeout_text(theirs: Any, context: Any, seconds: float) -> str:
    write = getattr(theirs, "timeout_error_function", None)
    if write is None:
        return _too_long(theirs, seconds)
    error = sys.modules["agents.exceptions"].ToolTimeoutError(tool_name=theirs.name, timeout_seconds=seconds)
    text = write(context, error)
    if inspect.isawaitable(text):
        text = await text
    return str(text)


def _openai_context(tool: str, call_id: str, arguments: str, deps: Any) -> Any:
    module = sys.modules.get(_OPENAI)  # the tool exists, so its library is loaded
    if module is None:
        return None
    return module.ToolContext(context=deps, tool_name=tool, tool_call_id=call_id, tool_arguments=arguments)


def _convert_output(returned: Any) -> Any:
    """Converts the SDK's images and files to those of OpenAI's Responses, which have other names."""
    if isinstance(returned, list | tuple):
        return [_convert_output(part) for part in returned]
    written = returned
    if isinstance(returned, BaseModel):
        written = returned.model_dump(exclude_none=True)
    if not isinstance(written, Mapping):
        return returned
    match written.get("type"):
        case "image" if "image_url" in written:
            return {**written, "type": "input_image"}
        case "file" if "file_data" in written or "file_url" in written:
            return {**written, "type": "input_file"}
        case "text" if isinstance(written.get("text"), str):
            return written["text"]
        case _:
            return returned


# ---------------------------------------------------------------- pydantic-ai


def _of_pydantic_ai(foreign_tool: Any, deps: Any) -> AdoptedTool:
    _refuse_options(foreign_tool, "pydantic-ai", PYDANTIC_AI)
    schema = foreign_tool.function_schema
    seconds = getattr(foreign_tool, "timeout", None)
    validate = getattr(foreign_tool, "args_validator", None)

    async def run(**given: Any) -> Any:
        context = given.pop(CONTEXT)
        values = schema.validator.validate_python(given)
        run_context = _run_context(foreign_tool, context, deps)
        try:
            if validate is not None:
                verdict = validate(run_context, **values)
                if inspect.isawaitable(verdict):
                    await verdict
            returned = await _run_within(seconds, schema.call(values, run_context))
        except _RunsTooLate as error:
            raise RanTooLong(_too_long(foreign_tool, seconds)) from error
        except Exception as error:
            if (converted := _convert_error(error)) is error:
                raise  # raised from itself, it would lose what it was raised from
            raise converted from error
        if _has_attributes(returned, "return_value", "metadata"):  # a ToolReturn, whose value is for the model
            return returned.return_value
        return returned

    arguments = _CheckedArguments(schema.json_schema, schema.validator.validate_python)
    asks = bool(getattr(foreign_tool, "requires_approval", False))
    options = _tool_options(foreign_tool, "defer_loading")
    return AdoptedTool(foreign_tool.name, foreign_tool.description or "", arguments, run, asks, options)


def _run_context(foreign_tool: Any, context: Any, deps: Any) -> Any:
    """A RunContext with what is known without an agent of pydantic-ai: the call, and the user's `deps`."""
    kind = sys.modules[_PYDANTIC_AI].RunContext
    known = {
        "deps": deps,
        "tool_name": foreign_tool.name,
        "tool_call_id": context.call_id,
        "retry": context.attempt - 1,
        "run_step": context.turn,
        "tool_call_approved": context.approved or bool(getattr(foreign_tool, "requires_approval", False)),
    }
    fields_by_name = {own_field.name: own_field for own_field in fields(kind) if own_field.init}
    needed = {
        name: None
        for name, own_field in fields_by_name.items()
        if own_field.default is MISSING and own_field.default_factory is MISSING
    }
    return kind(**{**needed, **{name: value for name, value in known.items() if name in fields_by_name}})


def _convert_error(error: Exception) -> Exception:
    """Converts pydantic-ai's exceptions that the model should read to ToolFailed."""
    if type(error).__module__.partition(".")[0] != _PYDANTIC_AI:
        return error
    match type(error).__name__:
        case "ModelRetry" | "ToolFailed":
            return ToolFailed(str(getattr(error, "message", error)))
        case "ApprovalRequired":
            return NeedsApproval("")
        case "CallDeferred" as kind:
            return ToolFailed(f"It raised {kind}, which works only in agents of pydantic-ai.")
        case _:
            return error


def _takes_run_context(function: Any) -> bool:
    """Whether its first parameter is a RunContext."""
    module = sys.modules.get(_PYDANTIC_AI)
    if module is None:
        return False
    try:
        first = next(iter(inspect.signature(function).parameters), None)
        annotation = get_type_hints(function).get(first) if first else None
    except Exception:  # noqa: BLE001 - whatever is wrong with its types, it is said where they are read
        return False
    return module.RunContext in (annotation, get_origin(annotation))
