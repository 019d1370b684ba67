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

_SERVICE = "__nexus_service_definition__"
_OPERATION = "__nexus_operation__"
_FACTORY = "__nexus_operation_factory__"
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
    place = f"nexus_tool() of {getattr(operation, 'name', operation)!r:.200}"
    kind = operation
    input_type = None
    if not isinstance(operation, str):
        kind, input_type = _read_operation(operation, place=place)
    check_text(place, "the operation's name", kind)
    check_text(place, "endpoint", endpoint)
    if not isinstance(service, str):
        service = _service_name(service, operation=kind, place=place)
    check_text(place, "service", service)
    if effect not in ("idempotent", "read"):
        raise InvalidTool(
            f"{place} has effect={effect!r}: Temporal starts an operation again if the answer to its start was lost.",
            cure="Write effect='idempotent', and let the handler start a workflow, or look at the header "
            "'everturn-idempotency-key'.",
        )
    if schema is not None:
        arguments, described, positions = _read_schema(schema, place=place)
    elif isinstance(operation, str):
        raise InvalidTool(
            f"{place} has a name and no schema.",
            cure="Write schema=: a JSON schema of type object, or a pydantic model.",
        )
    else:
        arguments, described, positions = _read_input_type(input_type, place=place)
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
        operation=NexusOperation(endpoint=endpoint, service=service, name=kind, by_position=positions),
    )


Described = tuple[ModelArguments | SchemaArguments, str, tuple[str, ...] | None]
"""The arguments, the description, and the name of the argument that is the operation's input, in a tuple: empty if it
takes nothing, None if all arguments together are the input."""


def _read_operation(operation: object, *, place: str) -> tuple[str, Any]:
    """The name and the input type of an operation, or of a handler's method."""
    if isinstance(operation, Tool):
        raise InvalidTool(f"{operation.name!r} is already a tool.", cure="Give the operation itself, or its name.")
    definition = getattr(operation, _FACTORY, operation)
    definition = getattr(definition, _OPERATION, definition)
    name = getattr(definition, "name", None)
    if not isinstance(name, str) or not hasattr(definition, "input_type"):
        raise InvalidTool(
            f"{place} is not a Nexus operation.",
            cure="Give one of a class with @nexusrpc.service, such as Payments.refund, or its name.",
        )
    return name, getattr(definition, "input_type", None)


def _service_name(service: type, *, operation: str, place: str) -> str:
    definition = None
    if isinstance(service, type):
        definition = vars(service).get(_SERVICE)
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


def _read_schema(schema: Mapping[str, Any] | type[BaseModel], *, place: str) -> Described:
    arguments = given_arguments(schema, place=place, option="schema")
    positions = None if arguments.schema["properties"] else ()
    return arguments, arguments.schema.get("description", ""), positions


def _read_input_type(kind: Any, *, place: str) -> Described:
    """An input type as arguments: the fields of a model or a dataclass, or one argument called `input`."""
    if kind is None or kind is NoneType:
        return SchemaArguments({"additionalProperties": False}), "", ()
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return _read_schema(kind, place=place)
    if isinstance(kind, type) and is_dataclass(kind):
        signature = _read_parameters(_parameters_of(kind), doc=_doc_of(kind), name=kind.__name__)
        return signature.arguments, signature.description, None if fields(kind) else ()
    only = inspect.Parameter("input", inspect.Parameter.KEYWORD_ONLY, annotation=kind)
    signature = _read_parameters([only], doc="", name="operation")
    return signature.arguments, signature.description, ("input",)


def _parameters_of(kind: type) -> list[inspect.Parameter]:
    hints = get_type_hints(kind, include_extras=True)
    parameters = []
    for field in fields(kind):
        if field.init:
            default: Any = inspect.Parameter.empty
            if field.default is not MISSING:
                default = field.default
            elif field.default_factory is not MISSING:
                default = Field(default_factory=field.default_factory)
            parameters.append(
                inspect.Parameter(
                    field.name, inspect.Parameter.KEYWORD_ONLY, annotation=hints[field.name], default=default
                )
            )
    return parameters


def _doc_of(kind: type) -> str:
    generated = kind.__name__ + "("
    doc = kind.__doc__ or ""
    if doc[: len(generated)] == generated:  # Python's own, if nobody wrote one
        return ""
    return doc


def _read_parameters(parameters: list[inspect.Parameter], *, doc: str, name: str) -> Signature:
    def operation() -> None: ...

    operation.__doc__ = doc
    operation.__name__ = name
    operation.__qualname__ = name
    vars(operation)["__signature__"] = inspect.Signature(parameters)
    return read_signature(operation, context_type=ToolContext)
