"""`activity_tool`: makes a tool of an existing activity, in any language."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Any

from pydantic import BaseModel

from everturn.errors import InvalidTool
from everturn.plans import RetryPlan
from everturn.sizes import MAX_ID_BYTES
from everturn.tools.arguments import ModelArguments, SchemaArguments
from everturn.tools.context import ToolContext
from everturn.tools.given_schema import given_arguments
from everturn.tools.options import ToolOptions
from everturn.tools.signature import describe_function, read_signature, unwrap_function
from everturn.tools.tool import DEFAULT_PATIENCE, DEFAULT_TIMEOUT, Effect, Predicate, Tool
from everturn.tools.user_activity import RetryPolicyLike, UserActivity
from everturn.validation import durations
from everturn.validation.spelling import known_options

_DEFINITION = "__temporal_activity_definition"
"""Where `@activity.defn` stores an activity's definition."""


@known_options("activity_tool()", InvalidTool)
def activity_tool(
    activity: Callable[..., Any] | str,
    /,
    *,
    task_queue: str | None = None,
    schema: Mapping[str, Any] | type[BaseModel] | None = None,
    by_position: Sequence[str] | None = None,
    name: str | None = None,
    description: str | None = None,
    needs_approval: bool | Predicate = False,
    effect: Effect = "idempotent",
    timeout: timedelta = DEFAULT_TIMEOUT,
    heartbeat_timeout: timedelta | None = None,
    patience: timedelta | None = None,
    retry: RetryPolicyLike | None = None,
    options: ToolOptions | Mapping[str, Any] | None = None,
) -> Tool:
    """Make a tool of an activity: it runs as it is, with its own input and output, wherever its workers are.

    - `activity`: a function with temporalio's `@activity.defn`, whose signature and docstring are what the model sees;
      or only the name of an activity, such as one in Go, Java or TypeScript.
    - `task_queue`: where its workers are. Without one, the agent's worker hosts the function; required for a name.
    - `schema`: the arguments, as a JSON schema of type object or a pydantic model. Required if `activity` is a
      name; for a function, it replaces the signature.
    - `by_position`: for a name, the arguments in the order in which the activity takes them. Without it, the activity
      takes one object; or nothing, if the schema has no properties.
    - `name`, `description`: of the tool, instead of the activity's name and docstring.
    - `needs_approval`, `effect`, `options`: as for `tool`. A `once` activity is never retried by itself.
    - `timeout`: of one try, by default 10 minutes: Temporal's start-to-close timeout.
    - `heartbeat_timeout`: how long the activity may be silent before its worker counts as lost; by default
      `timeout`.
    - `patience`: of all tries together, by default 30 minutes or, if that is longer, one timeout.
    - `retry`: Temporal's retry policy for all failures. Without one, the model is told of a
      failure at once, and only an activity that is lost with its worker is tried again, five times at most.

    Raises InvalidTool.
    """
    if isinstance(activity, str):
        place = f"activity_tool() of {activity}"
        function = None
        kind = activity
    else:
        place = f"activity_tool() of {describe_function(activity)}"
        function = activity
        kind = _type_of(activity, place=place)
    check_text(place, "the activity's name", kind)
    if task_queue is not None:
        check_text(place, "task_queue", task_queue)
    elif function is None:
        raise InvalidTool(
            f"{place} has a name and no task_queue.", cure="Write task_queue=: the queue that its workers poll."
        )
    arguments, described, positions = _read_input(function, schema, by_position, place=place)
    if heartbeat_timeout is not None and (problem := durations.problem_of(heartbeat_timeout)):
        raise InvalidTool(f"{place} has heartbeat_timeout={heartbeat_timeout!r}.", cure=problem)
    if retry is not None and effect == "once":
        raise InvalidTool(
            f"{place} has retry= and effect='once', which is never retried.",
            cure="Leave retry= out, or say effect='idempotent' if running it twice does no harm.",
        )
    retry_plan = None
    if retry is not None:
        retry_plan = _retry_plan(retry, place=place)
    if patience is None:
        patience = patience_for(timeout)
    return Tool(
        name=kind if name is None else name,
        description=described if description is None else description,
        arguments=arguments,
        function=function,
        needs_approval=needs_approval,
        effect=effect,
        timeout=timeout,
        patience=patience,
        options=ToolOptions.of(options, tool=name or kind),
        module=sys._getframe(2).f_globals.get("__name__", ""),
        activity=UserActivity(
            name=kind,
            task_queue=task_queue,
            by_position=positions,
            heartbeat_timeout=heartbeat_timeout,
            retry=retry_plan,
            function=function,
        ),
    )


def _type_of(function: object, *, place: str) -> str:
    if isinstance(function, Tool):
        raise InvalidTool(
            f"{function.name!r} is already a tool.", cure="Give the activity's own function, or its name."
        )
    name = getattr(getattr(function, _DEFINITION, None), "name", None)
    if not isinstance(name, str):
        problem = "no activity"
        if hasattr(function, _DEFINITION):
            problem = "a dynamic activity, which has no name"
        raise InvalidTool(
            f"{place} is {problem}.",
            cure="Write @activity.defn above the function, or make it a plain tool: tool(it).",
        )
    return name


def _read_input(
    function: Callable[..., Any] | None,
    schema: Mapping[str, Any] | type[BaseModel] | None,
    by_position: Sequence[str] | None,
    *,
    place: str,
) -> tuple[ModelArguments | SchemaArguments, str, tuple[str, ...] | None]:
    """The arguments, what is said about them, and the order in which the activity takes them."""
    if by_position is not None and (
        isinstance(by_position, str) or not all(isinstance(argument, str) for argument in by_position)
    ):
        raise InvalidTool(f"{place} has by_position={by_position!r}.", cure="Write by_position=['a', 'b'].")
    if function is not None and schema is None:
        if by_position is not None:
            raise InvalidTool(
                f"{place} has by_position, but its signature gives the order already.", cure="Leave it out."
            )
        signature = read_signature(_without_self(function), context_type=ToolContext)
        if signature.context_parameters:
            raise InvalidTool(
                f"{place} takes a ToolContext, which an activity is not given.",
                cure="Use temporalio's activity.info(): workflow_id, and an activity_id that names the call.",
            )
        return signature.arguments, signature.description, signature.arguments.order
    if schema is None:
        raise InvalidTool(
            f"{place} has a name and no schema.",
            cure="Write schema=: a JSON schema of type object, or a pydantic model.",
        )
    arguments = given_arguments(schema, place=place, option="schema")
    properties = arguments.schema["properties"]
    unknown = [argument for argument in by_position or () if argument not in properties]
    if unknown:
        raise InvalidTool(
            f"{place} has {unknown[0]!r} in by_position, which is not in its schema.",
            cure=f"Its properties are {', '.join(properties) or 'none'}.",
        )
    positions: tuple[str, ...] | None = None
    if by_position is not None:
        positions = tuple(by_position)
    elif not properties:
        positions = ()
    return arguments, arguments.schema.get("description", ""), positions


def _without_self(function: Callable[..., Any]) -> Callable[..., Any]:
    """Hides `self` of an unbound method: the activity's worker makes its object."""
    code = getattr(unwrap_function(function), "__code__", None)
    bound = getattr(function, "__self__", None) is not None
    named_self = code is not None and code.co_argcount > 0 and code.co_varnames[0] == "self"
    if named_self and not bound and "." in unwrap_function(function).__qualname__:
        return partial(function, None)
    return function


def _retry_plan(policy: RetryPolicyLike, *, place: str) -> RetryPlan:
    try:
        policy._validate()
        longest_seconds = None
        if policy.maximum_interval is not None:
            longest_seconds = policy.maximum_interval.total_seconds()
        return RetryPlan(
            initial_interval=policy.initial_interval.total_seconds(),
            backoff_coefficient=policy.backoff_coefficient,
            maximum_interval=longest_seconds,
            maximum_attempts=policy.maximum_attempts,
            non_retryable_error_types=tuple(policy.non_retryable_error_types or ()),
        )
    except (AttributeError, ValueError, TypeError) as error:
        raise InvalidTool(
            f"{place} has retry={policy!r} ({str(error) or type(error).__name__}).",
            cure="Write temporalio.common.RetryPolicy(maximum_attempts=3).",
        ) from error


def patience_for(timeout: object) -> timedelta:
    """The default patience: at least one timeout."""
    if not isinstance(timeout, timedelta):
        return DEFAULT_PATIENCE
    return max(DEFAULT_PATIENCE, timeout)


def check_text(place: str, what: str, value: object) -> None:
    if not isinstance(value, str) or not value.strip() or len(value) > MAX_ID_BYTES:
        raise InvalidTool(
            f"{place} has {value!r:.200} as {what}.", cure=f"Write a text of 1 to {MAX_ID_BYTES:,} characters."
        )
