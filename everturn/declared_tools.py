"""What comes with a message: a front end's own tools, what it shows, and the names of the tools for the answer.

It is a part of the message, so the history has it: other workers, later runs and forks know it, too. The model is
offered a front end's tools, and reads what is shown, until a person says the next thing; the tools that a message names
are all that it is offered until the answer is complete.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from copy import copy
from typing import Any, Final

from pydantic import JsonValue

from everturn.agent import Agent
from everturn.errors import InvalidTool
from everturn.records import Message, Part, Text
from everturn.tenants.metadata import as_text
from everturn.tools.client_tool import client_tool
from everturn.tools.provider_defined import called_as
from everturn.tools.read_result import READ_RESULT
from everturn.tools.server_tools import ServerTool
from everturn.tools.tool import Tool
from everturn.validation.spelling import nearest_name

_ALWAYS_OFFERED: Final = frozenset({READ_RESULT})
"""It reads the rest of a result that was cut: whoever may call a tool may read all of its result."""
_WORDS: Final = re.compile(r"(?<=[a-z])(?=[A-Z])")

READER: Final = "ag-ui"
"""The reader of the `extra` of front ends' messages, of any protocol. It is no provider, so no model is shown the
`extra`."""

_TOOLS: Final = "declared_tools"
_SHOWN: Final = "shown_by_front_end"

MAX_DECLARED_TOOLS: Final = 100
"""A model is told of all of them in every turn."""


def check_declared(tools: Sequence[Mapping[str, Any]]) -> None:
    """Raises InvalidTool for tools that no agent can have."""
    if len(tools) > MAX_DECLARED_TOOLS:
        raise InvalidTool(f"The front end declares {len(tools)} tools.", cure=f"Declare at most {MAX_DECLARED_TOOLS}.")
    seen = set[str]()
    for tool in tools:
        declared = client_tool(tool, {}, place=f"The front end's tool {tool.get('name')!r:.80}")
        if declared.name in seen:
            raise InvalidTool(f"The front end declares {declared.name!r} twice.", cure="Declare each tool once.")
        seen.add(declared.name)
        if not all(isinstance(name, str) for name in declared.parameters.get("required", ())):
            raise InvalidTool(f"The front end's tool {declared.name!r} has no names in `required`.", cure="List names.")


def with_front_end(
    parts: Sequence[Part], *, tools: Sequence[Mapping[str, JsonValue]], on_screen: Sequence[tuple[str, JsonValue]]
) -> Message:
    """A user's message that declares these tools, and says what the front end shows: pairs of what it is, and its
    value."""
    message_parts = list(parts)
    if on_screen:
        lines = "\n".join(f"- {what}: {as_text(value)}" for what, value in on_screen)
        message_parts.append(
            Text(text=f"\n\nWhat the user's screen shows beside this message:\n{lines}", extra={_SHOWN: True})
        )
    if tools and message_parts:
        first = message_parts[0]
        message_parts[0] = first.model_copy(update={"extra": {**first.extra, _TOOLS: [dict(tool) for tool in tools]}})
    return Message(role="user", parts=tuple(message_parts), provider=READER if tools or on_screen else "")


def said_by_person(message: Message) -> tuple[Part, ...]:
    """The message's parts without what its front end brought along."""
    return tuple(part for part in message.parts if not part.extra.get(_SHOWN))


def with_declared_tools(agent: Agent, message: Message | None) -> Agent:
    """The agent with the tools that came with a person's last `message`; the same object if none did. A tool that the
    agent has itself stays as it is. Raises InvalidTool."""
    if message is None or message.provider != READER:
        return agent
    declared = [declared_tool for part in message.parts for declared_tool in _tools_in(part.extra.get(_TOOLS))]
    new = [declared_tool for declared_tool in declared if agent.tool(str(declared_tool.get("name"))) is None]
    if not new:
        return agent
    check_declared(new)
    return agent.for_turn(tools=[*agent.tools, *new])


def _tools_in(value: Any) -> list[Mapping[str, Any]]:
    if not isinstance(value, list):
        return []
    listed = [declared_tool for declared_tool in value if isinstance(declared_tool, Mapping)]
    return [
        {key: declared_tool[key] for key in ("name", "description", "parameters") if key in declared_tool}
        for declared_tool in listed
    ]


# ---------------------------------------------------------------- the tools that a message names


def tool_names(tools: Iterable[str | Tool] | None) -> tuple[str, ...] | None:
    """The names of what a caller gives as a message's `tools=`. Raises InvalidTool."""
    if tools is None:
        return None
    if isinstance(tools, str | Mapping) or not isinstance(tools, Iterable):
        raise InvalidTool(f"tools={tools!r:.100} is not a list of names.", cure='Write tools=["look_up"].')
    return tuple(dict.fromkeys(map(_name_of, tools)))


def _name_of(item: Any) -> str:
    if isinstance(item, Tool):
        return item.name
    if isinstance(item, str) and item:
        return item
    raise InvalidTool(
        f"tools= holds {item!r:.100}, which is no name of a tool.",
        cure="A message only chooses among the tools that its agent has on the worker: give their names.",
    )


def with_offered(agent: Agent, wanted: tuple[str, ...], *, lenient: bool = False) -> Agent:
    """The agent with only these of its tools. Raises InvalidTool for a name that it does not have, unless `lenient`."""
    if not lenient:
        check_offered(agent, wanted)
    if not wanted:
        return _without_calls(agent)
    offered = _ALWAYS_OFFERED.union(wanted)
    tools = tuple(tool for tool in agent.tools if tool.name in offered)
    choice = agent.settings.tool_choice
    settings = agent.settings
    if choice in _names_of_all(agent) - offered:  # it would force a tool that is not offered
        settings = settings.model_copy(update={"tool_choice": None})
    return _with_values(
        agent,
        tools=tools,
        server_tools=tuple(tool for tool in agent.server_tools if _server_name(tool) in offered),
        raw_tools=tuple(item for item in agent.raw_tools if offered.intersection(_raw_names(item))),
        settings=settings,
        _by_name={tool.name: tool for tool in tools},
    )


def check_offered(agent: Agent, wanted: Iterable[str]) -> None:
    """Raises InvalidTool for a name that the agent does not have."""
    known = _names_of_all(agent)
    for name in wanted:
        if name not in known:
            raise _unknown_tool(agent, name, known)


def _unknown_tool(agent: Agent, name: str, known: Collection[str]) -> InvalidTool:
    cure = "Name one of those."
    if near := nearest_name(name, known):
        cure = f"Did you mean {near!r}?"
    has = ", ".join(sorted(known)) or "no tools"
    return InvalidTool(f"The agent {agent.name!r} has no tool {name!r:.200}. It has {has:.1000}.", cure=cure)


def _without_calls(agent: Agent) -> Agent:
    """The tools stay in the request, so that what the provider has cached still fits, but none may be called. Those
    that the provider runs are left out: not every provider can be told not to run them."""
    settings = agent.settings.model_copy(update={"tool_choice": "none"})
    return _with_values(agent, server_tools=(), raw_tools=(), settings=settings, _by_name={})


def _with_values(agent: Agent, **values: Any) -> Agent:
    changed = copy(agent)
    vars(changed).update(values)
    return changed


def _names_of_all(agent: Agent) -> set[str]:
    known = {tool.name for tool in agent.tools}
    known.update(map(_server_name, agent.server_tools))
    for item in agent.raw_tools:
        known.update(_raw_names(item))
    return known


def _server_name(tool: ServerTool) -> str:
    """`web_search` for WebSearch()."""
    return _WORDS.sub("_", type(tool).__name__).lower()


def _raw_names(item: Mapping[str, Any]) -> tuple[str, ...]:
    """The names under which a model calls it; else its type, or its only key."""
    if calls := called_as(item):
        return calls
    kind = item.get("type")
    if isinstance(kind, str):
        return (kind,)
    return tuple(item)
