"""Adopts tools of LangChain, the OpenAI Agents SDK and pydantic-ai, unchanged.

They are recognised by their attributes: none of these libraries is imported here or has to be installed.
"""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields
from typing import Any, get_origin, get_type_hints

from pydantic import BaseModel, ValidationError

from everturn.errors import InvalidTool, ToolFailed
from everturn.tools.arguments import InvalidArguments, SchemaArguments
from everturn.tools.json_schema import problems_in

CONTEXT = "everturn_context"
"""The parameter that passes the call's context to these tools. No argument has this name."""

_OPENAI = "agents.tool_context"
_PYDANTIC_AI = "pydantic_ai"


@dataclass(frozen=True)
class Adopted:
    """Another library's tool, as everturn needs it."""

    name: str
    description: str
    arguments: SchemaArguments
    function: Callable[..., Any]
    needs_approval: Any = False


def adopted(given: Any, *, deps: Any = None) -> Adopted | None:
    """None if it is no tool of these libraries. `deps`: what its function gets in its context. Raises InvalidTool."""
    if isinstance(given, type):
        return None
    if _has(given, "name", "description", "params_json_schema", "on_invoke_tool"):
        return _of_openai(given, deps)
    if _has(given, "name", "function_schema", "takes_ctx"):
        return _of_pydantic_ai(given, deps)
    if _has(given, "name", "description", "tool_call_schema", "ainvoke", "invoke"):
        return _of_langchain(given)
    if inspect.isroutine(given) and _takes_run_context(given):
        return _of_pydantic_ai(sys.modules[_PYDANTIC_AI].Tool(given), deps)
    return None


def _has(given: object, *names: str) -> bool:
    return all(hasattr(given, name) for name in names)


class _Checked(SchemaArguments):
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


def _refuse_if_it_decides(theirs: Any, library: str, option: str) -> None:
    """Refuses a tool whose library decides when to offer it: everturn would always offer it to the model."""
    raise InvalidTool(
        f"The {library} tool {theirs.name!r} has {option}=, which only agents of that library use.",
        cure="Leave the tool out, or remove the option and decide in "
        "Agent(prepare_tools=...) when the tool is offered.",
    )


# ---------------------------------------------------------------- LangChain

ONE_TEXT = {"type": "object", "properties": {"tool_input": {"type": "string"}}, "required": ["tool_input"]}


def _of_langchain(theirs: Any) -> Adopted:
    # `Tool(name=, func=, description=)` has no schema: it takes one text, whatever its function calls that.
    takes_one_text = getattr(theirs, "args_schema", None) is None and "tool_input" in getattr(theirs, "args", ())
    wanted: Any = ONE_TEXT if takes_one_text else theirs.tool_call_schema
    is_model = isinstance(wanted, type) and issubclass(wanted, BaseModel)
    if not is_model and not isinstance(wanted, Mapping):
        raise InvalidTool(
            f"The LangChain tool {theirs.name!r} has args_schema={wanted!r}.",
            cure="Give it a model of pydantic 2, or a JSON schema.",
        )
    schema = wanted.model_json_schema() if is_model else wanted
    check = wanted.model_validate if is_model else dict

    async def run_async(**given: Any) -> Any:
        context = given.pop(CONTEXT)
        return _message(await theirs.ainvoke(_tool_call(theirs, given, context)))

    def run(**given: Any) -> Any:
        context = given.pop(CONTEXT)
        return _message(theirs.invoke(_tool_call(theirs, given, context)))

    function = run_async if _is_async(theirs) else run
    return Adopted(theirs.name, theirs.description, _Checked(schema, check), function)


def _tool_call(theirs: Any, arguments: Mapping[str, Any], context: Any) -> dict[str, Any]:
    """A call in LangChain's form: with it, a tool gets the call's id if it wants that."""
    return {"type": "tool_call", "name": theirs.name, "args": dict(arguments), "id": context.call_id}


def _is_async(theirs: Any) -> bool:
    """Whether the tool has its own async code. Sync tools run in everturn's threads, which can be abandoned."""
    if hasattr(theirs, "coroutine"):
        return theirs.coroutine is not None
    own = next((kind for kind in type(theirs).__mro__ if "_arun" in vars(kind)), None)
    return own is not None and not own.__module__.startswith("langchain_core.")


def _message(returned: Any) -> Any:
    """The content of a ToolMessage; other values unchanged. Raises ToolFailed."""
    if not _has(returned, "content", "status", "tool_call_id"):
        return returned
    if returned.status == "error":
        raise ToolFailed(str(returned.content))
    return returned.content


# ---------------------------------------------------------------- the OpenAI Agents SDK


def _of_openai(theirs: Any, deps: Any) -> Adopted:
    if getattr(theirs, "is_enabled", True) is not True:
        _refuse_if_it_decides(theirs, "OpenAI Agents", "is_enabled")

    async def run(**given: Any) -> Any:
        context = given.pop(CONTEXT)
        written = json.dumps(given, ensure_ascii=False)
        made = _openai_context(theirs.name, context.call_id, written, deps)
        return _output(await theirs.on_invoke_tool(made, written))

    asks: Any = getattr(theirs, "needs_approval", False)

    async def needs_approval(arguments: dict[str, Any]) -> bool:
        made = _openai_context(theirs.name, "", json.dumps(arguments, ensure_ascii=False), deps)
        asked = asks(made, arguments, "")
        return bool(await asked if inspect.isawaitable(asked) else asked)

    arguments = _Checked(theirs.params_json_schema, dict)
    return Adopted(
        theirs.name, theirs.description or "", arguments, run, needs_approval if callable(asks) else bool(asks)
    )


def _openai_context(tool: str, call_id: str, arguments: str, deps: Any) -> Any:
    module = sys.modules.get(_OPENAI)  # the tool exists, so its library is loaded
    if module is None:
        return None
    return module.ToolContext(context=deps, tool_name=tool, tool_call_id=call_id, tool_arguments=arguments)


def _output(returned: Any) -> Any:
    """Converts the SDK's images and files to those of OpenAI's Responses, which have other names."""
    if isinstance(returned, list | tuple):
        return [_output(one) for one in returned]
    written = returned.model_dump(exclude_none=True) if isinstance(returned, BaseModel) else returned
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


def _of_pydantic_ai(theirs: Any, deps: Any) -> Adopted:
    if getattr(theirs, "prepare", None) is not None:
        _refuse_if_it_decides(theirs, "pydantic-ai", "prepare")
    schema = theirs.function_schema

    async def run(**given: Any) -> Any:
        context = given.pop(CONTEXT)
        values = schema.validator.validate_python(given)
        try:
            returned = await schema.call(values, _run_context(theirs, context, deps))
        except Exception as error:
            raise _failure(error) from error
        # A ToolReturn, whose value is for the model.
        return returned.return_value if _has(returned, "return_value", "metadata") else returned

    arguments = _Checked(schema.json_schema, schema.validator.validate_python)
    asks = bool(getattr(theirs, "requires_approval", False))
    return Adopted(theirs.name, theirs.description or "", arguments, run, asks)


def _run_context(theirs: Any, context: Any, deps: Any) -> Any:
    """A RunContext with what is known without an agent of pydantic-ai: the call, and the user's `deps`."""
    kind = sys.modules[_PYDANTIC_AI].RunContext
    known = {
        "deps": deps,
        "tool_name": theirs.name,
        "tool_call_id": context.call_id,
        "retry": context.attempt - 1,
        "run_step": context.turn,
        "tool_call_approved": bool(getattr(theirs, "requires_approval", False)),
    }
    own = {one.name: one for one in fields(kind) if one.init}
    needed = {name: None for name, one in own.items() if one.default is MISSING and one.default_factory is MISSING}
    return kind(**{**needed, **{name: value for name, value in known.items() if name in own}})


def _failure(error: Exception) -> Exception:
    """Converts pydantic-ai's exceptions that the model should read to ToolFailed."""
    if type(error).__module__.partition(".")[0] != _PYDANTIC_AI:
        return error
    match type(error).__name__:
        case "ModelRetry" | "ToolFailed":
            return ToolFailed(str(getattr(error, "message", error)))
        case "ApprovalRequired" | "CallDeferred" as kind:
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
