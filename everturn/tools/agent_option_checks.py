"""Checks the options of an Agent: its name, models, output type and handoffs. Raises InvalidAgent for invalid ones."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pydantic import BaseModel, Field, PydanticUserError
from pydantic_core import SchemaError

from everturn.errors import InvalidAgent, InvalidTool
from everturn.models import Model, ModelSettings
from everturn.tools.arguments import ModelArguments, SchemaArguments
from everturn.tools.given_schema import given_arguments
from everturn.tools.handoff import AGENT_NAME, HandOff
from everturn.tools.mcp.config import McpServer
from everturn.tools.output_type import OutputType
from everturn.tools.server_tools import ServerTool
from everturn.tools.tool import Tool
from everturn.validation.explaining import in_one_line
from everturn.vendor_models.abilities import check_tools
from everturn.vendor_models.batches import check_batches
from everturn.vendor_models.plugins import check_provider

_NAME = re.compile(AGENT_NAME)


class _Ask(BaseModel):
    message: str = Field(
        min_length=1, description="Everything that it has to know. It sees nothing of this conversation."
    )


ASK = ModelArguments(_Ask)
"""The arguments of an agent that is used as a tool."""


def check_name(name: object) -> None:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InvalidAgent(
            f"{name!r} is not a valid name for an Agent.",
            cure="Use 1 to 64 letters, digits, dots, - and _, such as 'clerk'.",
        )


def check_version(name: str, version: object) -> None:
    if version is not None and (not isinstance(version, str) or not _NAME.fullmatch(version)):
        raise InvalidAgent(
            f"Agent {name!r} has version={version!r}.", cure="Take 1 to 64 letters, digits, dots, - and _, such as '7'."
        )


def check_type(name: str, option: str, value: object, wanted: type) -> None:
    if not isinstance(value, wanted):
        example = f"{wanted.__name__}(...)"
        if wanted is str:
            example = "'...'"
        raise InvalidAgent(
            f"Agent {name!r} has {option}={value!r}, {describe_type(value)}.", cure=f"Write {option}={example}."
        )


def models_of(name: str, first: object, others: object) -> list[Model]:
    """The model and the fallback models of an agent, in the order in which they are asked."""
    if isinstance(others, str) or not isinstance(others, Sequence):
        raise InvalidAgent(f"Agent {name!r} has fallback_models={others!r}.", cure="Write fallback_models=[...].")
    models = [model_of(name, "model", first), *(model_of(name, "fallback_models", model) for model in others)]
    known_as = [model.name for model in models]
    if twice := [model for model in known_as if known_as.count(model) > 1]:
        raise InvalidAgent(
            f"Agent {name!r} has the model {twice[0]!r} more than once in model and fallback_models.",
            cure="Give each model once.",
        )
    return models


def check_batched(name: str, models: Iterable[Model], settings: ModelSettings) -> None:
    """Raises InvalidSetting if the agent's turns are to wait for batches that one of its models does not have."""
    if not settings.batch:
        return
    if settings.background:
        raise InvalidAgent(
            f"Agent {name!r} has both batch=True and background=True.",
            cure="Leave out background=True: nobody holds a connection for a batch.",
        )
    for model in models:
        check_batches(model)


def model_of(name: str, option: str, value: object) -> Model:
    if isinstance(value, Model):
        return check_provider(value)
    if isinstance(value, str):
        return check_provider(Model(value))
    raise InvalidAgent(
        f"Agent {name!r} has {option}={value!r}, {describe_type(value)}.",
        cure="Write provider:name, such as 'openai:gpt-5.5', or Model('provider:name', base_url=...).",
    )


def check_taken_tools(
    models: Iterable[Model], tools: Iterable[Tool], served: Iterable[ServerTool], mcp_servers: Iterable[McpServer]
) -> None:
    """Raises InvalidTool if it is known that one of the models does not take the tools."""
    functions = [tool.name for tool in tools if not tool.provider_tool]
    functions += ["the tools of an McpServer" for _ in mcp_servers]
    for model in models:
        check_tools(model, functions=functions, server_tools=[type(tool).__name__ for tool in served])


def input_of(name: str, given: Any) -> ModelArguments | SchemaArguments | None:
    if given is None:
        return None
    try:
        return given_arguments(given, place=f"Agent {name!r}", option="input")
    except InvalidTool as error:
        raise InvalidAgent(error.message, cure=error.cure) from error


def output_of(name: str, output: Any) -> OutputType | None:
    if output is None:
        return None
    try:
        return OutputType.from_type(output)
    except (PydanticUserError, SchemaError, NameError, TypeError, ValueError) as error:
        raise InvalidAgent(
            f"Agent {name!r} has output={output!r}: {in_one_line(error).rstrip('.')}.",
            cure="Write a pydantic model, or a type that JSON can carry.",
        ) from error


def describe_type(value: object) -> str:
    return f"of type {type(value).__name__}"


def handoffs_of(name: str, value: Any, *, loop: str) -> tuple[HandOff, ...]:
    """Makes the HandOffs of `handoff_to`, which may hold agents, names and HandOffs."""
    if isinstance(value, str | HandOff) or not isinstance(value, Sequence):
        raise InvalidAgent(
            f"Agent {name!r} has handoff_to={value!r}, which is not a list.", cure="Write handoff_to=[...]."
        )
    handoffs = tuple(target if isinstance(target, HandOff) else HandOff(target) for target in value)
    targets = [target.to for target in handoffs]
    if name in targets:
        raise InvalidAgent(f"Agent {name!r} hands the conversation on to itself.", cure="Remove it from handoff_to.")
    if twice := [target for target in targets if targets.count(target) > 1]:
        raise InvalidAgent(f"Agent {name!r} has {twice[0]!r} more than once in handoff_to.", cure="Give each one once.")
    if handoffs and loop == "manual":
        raise InvalidAgent(
            f"Agent {name!r} has handoff_to and loop='manual', but with a manual loop no call runs by itself.",
            cure="Remove one of them.",
        )
    return handoffs


def is_raw(item: Mapping[str, Any]) -> bool:
    # Some providers name their own tools: {"type": "web_search_20250305", "name": "web_search"} is not for us to run.
    match item.get("type", "function"):
        case "function":
            return "function" not in item and "name" not in item
        case "custom":  # with `parameters`, it counts as a function
            return "parameters" not in item or "name" not in item
        case _:
            return True
