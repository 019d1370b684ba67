"""What a front end brings along with what its person says: tools that it runs itself, and what it shows.

It is a part of the message, so the history has it: other workers, later runs and forks know it, too. The model is
offered the tools, and reads what is shown, until a person says the next thing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from pydantic import JsonValue

from everturn.agent import Agent
from everturn.errors import InvalidTool
from everturn.records import Message, Part, Text
from everturn.tenants.metadata import as_text
from everturn.tools.client_tool import client_tool

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
