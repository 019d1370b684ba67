"""`nexus_tool`: a Nexus operation, of whatever team and in whatever namespace, as a tool."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from datetime import timedelta
from types import NoneType
from typing import Any, Literal, get_type_hints

from pydantic import BaseModel, Field

from everturn.errors import InvalidTool
from everturn.tools.activity_tool import check_text, patience_for
from everturn.tools.arguments import ModelArguments, SchemaArguments
from everturn.tools.context import ToolContext
from everturn.tools.given_schema import given_arguments
from everturn.tools.options import ToolOptions
from everturn.tools.signature import Signature, read_signature
from everturn.tools.tool import DEFAULT_TIMEOUT, Predicate, Tool
from everturn.tools.user_activity import NexusOperation
from everturn.validation.spelling import known_options

_SERVICE, _OPERATION, _FACTORY = "__nexus_service_definition__", "__nexus_operation__", "__nexus_operation_factory__"
"""The attributes where nexusrpc's decorators store a service's definition and a handler's operation."""


@known_options("nexus_tool()", InvalidTool)
def nexus_tool(
    operation: Any,
    /,
    *,
    endpoint: str,
    service: type | str,
    schema: Mapping[str, Any] | type[BaseModel] | None = None,
    name: str | None = None,
    description: str | None = None,
    needs_approval: bool | Predicate = False,
    effect: Literal["idempotent", "read"] = "idempotent",
    timeout: timedelta = DEFAULT_TIMEOUT,
    options: ToolOptions | Mapping[str, Any] | None = None,
) -> Tool:
    """Make a tool of a Nexus operation, which stays as it is and runs at its endpoint.

    - `operation`: a `nexusrpc.Operation` of a service's definition, whose input type is what the model sees; or only
      the name of one.
    - `endpoint`: the Nexus endpoint, as `temporal operator nexus endpoint create` made it. It says in which namespace
      and on which task queue the operation is handled.
    - `service`: the class with `@nexusrpc.service`, or the service's name.
    - `schema`: the arguments, as a JSON schema of type object or a pydantic model: the operation gets them as one
      object. Required if `operation` is a name; for an operation, it replaces the input type. A schema without
      properties means that the operation takes nothing.
    - `name`, `description`: of the tool, instead of the operation's name and its input's docstring.
    - `needs_approval`, `options`: as for `tool`.
    - `effect`: `idempotent` or `read`. Temporal itself starts an operation again if the answer to its start was lost,
      so `once` is not possible. Each start has the same header `everturn-idempotency-key`.
    - `timeout`: from its start to its end, 10 minutes unless given.

    Raises InvalidTool.
    """
    given = operation if isinstance(operation, str) else getattr(operation, "name", operation)
    place = f"nexus_tool() of {given!r:.200}"
    kind, input_type = (operation, None) if isinstance(operation, str) else _defined(operation, place=place)
    check_text(place, "the operation's name", kind)
    check_text(place, "endpoint", endpoint)
    of_service = service if isinstance(service, str) else _service_name(service, operation=kind, place=place)
    check_text(place, "service", of_service)
    if effect not in ("idempotent", "read"):
        raise InvalidTool(
            f"{place} has effect={effect!r}: Temporal starts an operation again if the answer to its start was lost.",
            cure="Write effect='idempotent', and let the handler start a workflow, or look at the header "
            "'everturn-idempotency-key'.",
        )
    if schema is not None:
        arguments, described, positions = _given(schema, place=place)
    elif isinstance(operation, str):
        raise InvalidTool(
            f"{place} has a name and no schema.",
            cure="Write schema=: a JSON schema of type object, or a pydantic model.",
        )
    else:
        arguments, described, positions = _of_type(input_type, place=place)
    return Tool(
        name=kind if name is None else name,
        description=described if description is None else description,
        arguments=arguments,
        function=None,
        needs_approval=needs_approval,
        effect=effect,
        timeout=timeout,
        patience=patience_for(timeout),
        options=ToolOptions.of(options, tool=name or kind),
        module=sys._getframe(2).f_globals.get("__name__", ""),
        operation=NexusOperation(endpoint=endpoint, service=of_service, name=kind, by_position=positions),
    )


Described = tuple[ModelArguments | SchemaArguments, str, tuple[str, ...] | None]
"""The arguments, the description, and the name of the argument that is the operation's input, in a tuple: empty if it
takes nothing, None if all arguments together are the input."""


def _defined(operation: object, *, place: str) -> tuple[str, Any]:
    """The name and the input type of an operation, or of a handler's method."""
    if isinstance(operation, Tool):
        raise InvalidTool(f"{operation.name!r} is already a tool.", cure="Give the operation itself, or its name.")
    found = getattr(operation, _FACTORY, operation)
    found = getattr(found, _OPERATION, found)
    name, has_type = getattr(found, "name", None), hasattr(found, "input_type")
    if not isinstance(name, str) or not has_type:
        raise InvalidTool(
            f"{place} is not a Nexus operation.",
            cure="Give one of a class with @nexusrpc.service, such as Payments.refund, or its name.",
        )
    return name, getattr(found, "input_type", None)


def _service_name(service: type, *, operation: str, place: str) -> str:
    definition = vars(service).get(_SERVICE) if isinstance(service, type) else None
    name = getattr(definition, "name", None)
    if not isinstance(name, str):
        raise InvalidTool(
            f"{place} has service={service!r:.100}, which is not a Nexus service.",
            cure="Give a class with @nexusrpc.service, or the service's name.",
        )
    known = [*getattr(definition, "operation_definitions", ())]
    if operation not in known:
        raise InvalidTool(
            f"{place}: the service {name!r} has no such operation.", cure=f"It has {', '.join(known) or 'none'}."
        )
    return name


def _given(schema: Mapping[str, Any] | type[BaseModel], *, place: str) -> Described:
    arguments = given_arguments(schema, place=place, option="schema")
    positions = None if arguments.schema["properties"] else ()
    return arguments, arguments.schema.get("description", ""), positions


def _of_type(kind: Any, *, place: str) -> Described:
    """An input type as arguments: the fields of a model or a dataclass, or one argument called `input`."""
    if kind is None or kind is NoneType:
        return SchemaArguments({"additionalProperties": False}), "", ()
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return _given(kind, place=place)
    if isinstance(kind, type) and is_dataclass(kind):
        signature = _read(_parameters_of(kind), doc=_doc_of(kind), name=kind.__name__)
        return signature.arguments, signature.description, None if fields(kind) else ()
    only = inspect.Parameter("input", inspect.Parameter.KEYWORD_ONLY, annotation=kind)
    signature = _read([only], doc="", name="operation")
    return signature.arguments, signature.description, ("input",)


def _parameters_of(kind: type) -> list[inspect.Parameter]:
    hints, found = get_type_hints(kind, include_extras=True), []
    for field in fields(kind):
        if field.init:
            default: Any = inspect.Parameter.empty
            if field.default is not MISSING:
                default = field.default
            elif field.default_factory is not MISSING:
                default = Field(default_factory=field.default_factory)
            found.append(
                inspect.Parameter(
                    field.name, inspect.Parameter.KEYWORD_ONLY, annotation=hints[field.name], default=default
                )
            )
    return found


def _doc_of(kind: type) -> str:
    made = kind.__name__ + "("
    doc = kind.__doc__ or ""
    return "" if doc[: len(made)] == made else doc  # Python's own, if nobody wrote one


def _read(parameters: list[inspect.Parameter], *, doc: str, name: str) -> Signature:
    def operation() -> None: ...

    operation.__doc__, operation.__name__, operation.__qualname__ = doc, name, name
    vars(operation)["__signature__"] = inspect.Signature(parameters)
    return read_signature(operation, context_type=ToolContext)
