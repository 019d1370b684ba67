"""What a function says of itself as a tool: its arguments by its signature, and its description by its docstring."""

from __future__ import annotations

import inspect
import sys
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace, UnionType
from typing import Annotated, Any, NoReturn, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel, Field, RootModel, create_model
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from everturn.errors import InvalidTool
from everturn.tools.arguments import ModelArguments, SchemaArguments, object_schema
from everturn.tools.docstrings import read_docstring
from everturn.validation.explaining import in_one_line


class UntypedParameter(UserWarning):
    """A tool's parameter has no annotation: the model is not told what to send, and anything is taken."""


@dataclass(frozen=True, slots=True)
class Signature:
    """What a function's signature and docstring say."""

    arguments: ModelArguments | SchemaArguments
    context_parameters: tuple[str, ...]
    """The parameters that take the context, hidden from the model."""
    description: str


def read_signature(function: Callable[..., Any], *, context_type: type) -> Signature:
    """Read `function`; parameters annotated with `context_type` are hidden. Raises InvalidTool."""
    target = unwrap_function(function)
    label = describe_function(function)
    hidden: list[str] = []
    parameters: dict[str, tuple[Any, Any]] = {}
    namespace = {context_type.__name__: context_type, **namespace_of(target)}
    for parameter in _read_parameters(function, label=label):
        annotation = _resolve_annotation(parameter, target=target, namespace=namespace, label=label)
        if mentions_type(annotation, context_type):
            hidden.append(parameter.name)
        else:
            parameters[parameter.name] = annotation, parameter.default
    description, parameter_texts = read_docstring(target)
    arguments = _build_arguments(parameters, namespace=namespace, label=label)
    for name, text in parameter_texts.items():
        if name in arguments.schema["properties"]:
            arguments.schema["properties"][name].setdefault("description", text)
    # If the function has no docstring, that of the model that holds all arguments describes the tool.
    described = arguments.schema.pop("description", "")
    return Signature(arguments=arguments, context_parameters=tuple(hidden), description=description or described)


def unwrap_function(function: Callable[..., Any]) -> Any:
    """The function under partials, bound methods, callable objects and decorators that use functools.wraps."""
    while isinstance(function, partial):
        function = function.func
    function = inspect.unwrap(function)
    if not inspect.isroutine(function):
        function = type(function).__call__
    return getattr(function, "__func__", function)


def describe_function(function: Callable[..., Any]) -> str:
    """`name (file:line)`, for errors."""
    target = unwrap_function(function)
    name = getattr(target, "__qualname__", repr(target)).rpartition("<locals>.")[2]
    code = getattr(target, "__code__", None)
    if code is None:
        return repr(name)
    return f"{name!r} ({code.co_filename}:{code.co_firstlineno})"


def _read_parameters(function: Callable[..., Any], *, label: str) -> Iterable[inspect.Parameter]:
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError, NameError) as error:
        raise InvalidTool(
            f"Tool {label} has no readable signature ({error}).", cure="Wrap it in a function with type hints."
        ) from error
    # Arguments that a partial binds by name stay in its signature, as defaults: the model must not see or set them.
    bound = function.keywords if isinstance(function, partial) else {}
    for index, parameter in enumerate(signature.parameters.values()):
        if parameter.name in bound:
            continue
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            stars = "*" if parameter.kind is parameter.VAR_POSITIONAL else "**"
            _refuse_parameter(
                label,
                stars + parameter.name,
                "a model sends named arguments, each with a schema",
                "Name the parameters.",
            )
        if parameter.kind is parameter.POSITIONAL_ONLY:
            _refuse_parameter(
                label, parameter.name, "it is positional-only, but a model sends named arguments", "Take out the '/'."
            )
        if index == 0 and parameter.name == "self" and parameter.annotation is parameter.empty:
            _refuse_parameter(label, "self", "this is a method without its object", "Pass a bound one: Shop().refund.")
        yield parameter


def _refuse_parameter(label: str, parameter: str, reason: str, cure: str) -> NoReturn:
    raise InvalidTool(f"Tool {label} can't take the parameter {parameter!r}: {reason}.", cure=cure)


def namespace_of(target: Any) -> dict[str, Any]:
    """The names that a function's annotations may use: its module's, and those of the functions around it.

    Annotations written as strings don't keep the locals that they use. But while `def` and the decorator run, and often
    when the Agent is built, the functions around it are still on the stack.
    """
    code = getattr(target, "__code__", None)
    names = dict(getattr(target, "__globals__", {}))
    if code is None:
        return names
    pieces = target.__qualname__.split(".<locals>")
    locals_by_function: dict[str, dict[str, Any]] = {
        ".<locals>".join(pieces[:end]): {} for end in range(1, len(pieces))
    }
    frame = sys._getframe(1) if locals_by_function else None
    while frame is not None:
        qualname = frame.f_code.co_qualname
        # The innermost frame of each, if a function is on the stack more than once.
        if (
            qualname in locals_by_function
            and not locals_by_function[qualname]
            and frame.f_code.co_filename == code.co_filename
        ):
            locals_by_function[qualname] = frame.f_locals
        frame = frame.f_back
    for locals_around in locals_by_function.values():
        names.update(locals_around)
    closure = zip(code.co_freevars, target.__closure__ or (), strict=True)
    names.update({name: cell.cell_contents for name, cell in closure if _is_filled(cell)})
    return names


def _is_filled(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018 - reading an empty one raises, and there is no other way to ask
    except ValueError:
        return False
    return True


def _warn_untyped(parameter: inspect.Parameter, *, target: Any, label: str) -> None:
    problem = f"Tool {label}: the parameter {parameter.name!r} has no type, so a model can only guess what to send."
    likely = "str"
    if isinstance(parameter.default, str | int | float):
        likely = type(parameter.default).__name__
    cure = f"Write `{parameter.name}: {likely}`, or `{parameter.name}: Any` if it may be anything."
    # The warning points to the function, wherever the tool is made.
    code = getattr(target, "__code__", None)
    place = (code.co_filename, code.co_firstlineno) if code else ("everturn", 0)
    warnings.warn_explicit(UntypedParameter(f"{problem} {cure}"), None, *place)


def _resolve_annotation(parameter: inspect.Parameter, *, target: Any, namespace: dict[str, Any], label: str) -> Any:
    if parameter.annotation is parameter.empty:
        _warn_untyped(parameter, target=target, label=label)
        return Any
    holder = SimpleNamespace(__annotations__={parameter.name: parameter.annotation})
    try:
        return get_type_hints(holder, globalns=namespace, include_extras=True)[parameter.name]
    except Exception as error:
        cure = "Define or import the type at the top of the module, not only under TYPE_CHECKING."
        reason = f"its annotation {parameter.annotation!r} can't be resolved ({error})"
        raise InvalidTool(f"Tool {label} can't take the parameter {parameter.name!r}: {reason}.", cure=cure) from error


def mentions_type(annotation: Any, wanted: type) -> bool:
    return find_mention(annotation, wanted) is not None


def find_mention(annotation: Any, wanted: type) -> Any:
    """The type as it is in the annotation, such as `ToolContext[Shop]`; None if it is not there."""
    origin = get_origin(annotation)
    if wanted in (annotation, origin):
        return annotation
    if origin is Annotated:
        return find_mention(get_args(annotation)[0], wanted)
    if origin not in (Union, UnionType):
        return None
    inside = get_args(annotation)
    return next((mention for argument in inside if (mention := find_mention(argument, wanted)) is not None), None)


def _build_arguments(
    parameters: dict[str, tuple[Any, Any]], *, namespace: dict[str, Any], label: str
) -> ModelArguments:
    model = _only_model(parameters)
    names = {f"argument_{index}": name for index, name in enumerate(parameters)}
    try:
        if model is not None:
            model.model_rebuild(_types_namespace=namespace)
            return ModelArguments(model, whole=next(iter(parameters)))
        return ModelArguments(_build_model(parameters, names, namespace=namespace), names=names)
    except Exception as error:
        culprit, cause = _find_culprit(parameters, namespace=namespace) or (", ".join(parameters), error)
        reason = in_one_line(cause).rstrip(".")
        cure = "Use types that JSON can carry: str, int, list, dict, Literal, a pydantic model, a dataclass."
        raise InvalidTool(f"Tool {label} can't take the parameter {culprit!r}: {reason}.", cure=cure) from error


def _only_model(parameters: dict[str, tuple[Any, Any]]) -> type[BaseModel] | None:
    """The pydantic model whose fields are the arguments, if it is the only parameter, and required."""
    if len(parameters) != 1:
        return None
    [(annotation, default)] = parameters.values()
    if get_origin(annotation) is Annotated and all(isinstance(extra, FieldInfo) for extra in get_args(annotation)[1:]):
        annotation = get_args(annotation)[0]
    required = default.is_required() if isinstance(default, FieldInfo) else default is inspect.Parameter.empty
    if not isinstance(annotation, type) or not issubclass(annotation, BaseModel) or issubclass(annotation, RootModel):
        return None
    return annotation if required else None


def _build_model(
    parameters: dict[str, tuple[Any, Any]], names: dict[str, str], *, namespace: dict[str, Any]
) -> type[BaseModel]:
    # Parameters become aliases, since names such as `_id`, `schema` or `copy` can't be fields of a pydantic model.
    fields: dict[str, Any] = {}
    for field, name in names.items():
        annotation, default = parameters[name]
        base, *extras = get_args(annotation) if get_origin(annotation) is Annotated else (annotation,)
        # First of the extras: an alias of the user's own comes later, and wins.
        annotation = Annotated[(base, Field(alias=name), *extras)]
        fields[field] = annotation, PydanticUndefined if default is inspect.Parameter.empty else default
    model = create_model("Arguments", **fields)
    model.model_rebuild(_types_namespace=namespace)
    return model


def _find_culprit(parameters: dict[str, tuple[Any, Any]], *, namespace: dict[str, Any]) -> tuple[str, Exception] | None:
    """The parameter that pydantic can't handle, and its error: found by trying them one by one."""
    for name, parameter in parameters.items():
        try:
            object_schema(_build_model({name: parameter}, {"argument": name}, namespace=namespace))
        except Exception as error:  # noqa: BLE001 - pydantic and typing raise many kinds, and what they say is passed on
            return name, error
    return None
