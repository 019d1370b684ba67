"""Handing a conversation on to another agent: to whom, as which tool, and what that agent is shown of it."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from pydantic import BaseModel, Field

from everturn.errors import InvalidAgent, InvalidTool
from everturn.records import Message
from everturn.sizes import MAX_HANDOFF_NOTE_BYTES, size_of
from everturn.text.utf8 import mend
from everturn.tools.arguments import ModelArguments, SchemaArguments
from everturn.tools.context import ToolContext
from everturn.tools.given_schema import InputType, given_arguments
from everturn.tools.tool import Predicate, Tool
from everturn.tools.with_context import check_takes
from everturn.validation.spelling import known_fields, known_options

AGENT_NAME = r"[a-zA-Z0-9._-]{1,64}"
"""A regular expression for an agent's name, and for its version in a store."""

_AGENT = re.compile(rf"{AGENT_NAME}(@{AGENT_NAME})?")


@runtime_checkable
class _NamedAgent(Protocol):
    """An Agent, which this module can't import: `everturn.agent` imports this one."""

    name: str
    full_name: str
    description: str
    instructions: Any


@known_fields(InvalidAgent)
@dataclass(frozen=True, kw_only=True)
class Shown:
    """What the agent that takes over is shown of the conversation so far. Its handoffs are always shown."""

    last: int | None = None
    """From the last message of a user on (1), from the one before that on (2), and so on; None: from the beginning."""
    tools: bool = True
    """Whether it is shown the calls of the agents before it, and their results."""
    note: str = ""
    """A text in place of the messages that it is not shown: at most 24,000 bytes as JSON."""

    def __post_init__(self) -> None:
        if self.last is not None and (isinstance(self.last, bool) or not isinstance(self.last, int) or self.last < 1):
            raise InvalidAgent(f"Shown has last={self.last!r}.", cure="Write a number of 1 or more, or leave it out.")
        if not isinstance(self.tools, bool):
            raise InvalidAgent(f"Shown has tools={self.tools!r}.", cure="Write True or False.")
        note = mend(self.note) if isinstance(self.note, str) else None
        if note is None or size_of(note) - len('""') > MAX_HANDOFF_NOTE_BYTES:
            raise InvalidAgent(
                f"Shown has a note of type {type(self.note).__name__}, or one that is too long.",
                cure=f"Write a text of up to {MAX_HANDOFF_NOTE_BYTES:,} bytes as JSON.",
            )
        object.__setattr__(self, "note", note)


EVERYTHING = Shown()

Filter = (
    Callable[[Sequence[Message]], Shown | Awaitable[Shown]]
    | Callable[[Sequence[Message], ToolContext], Shown | Awaitable[Shown]]
)
"""Returns what the next agent is shown. Gets the transcript as the agent that hands on sees it, without its reply, and
the call's ToolContext if it takes one. Runs on a worker, once for each handoff."""


class _Handoff(BaseModel):
    message: str = Field(default="", description="What the next agent has to know. The user does not see it.")


_ARGUMENTS = ModelArguments(_Handoff)


@dataclass(frozen=True, init=False, eq=False)
class HandOff:
    """An agent that the conversation may be handed to: `Agent(..., handoff_to=[billing, HandOff("refunds")])`.

    - `to`: an Agent, or the name of one that workers host or have in their store. By name, two agents can hand on to
      each other.
    - `name`: of the tool that the model calls; `transfer_to_billing` unless given.
    - `description`: when to hand on; the agent's own unless given.
    - `filter`: what the next agent is shown: a Shown, or a function that returns one; None: all that this one is
      shown.
    - `needs_approval`: as of a tool.
    - `input`: what the model has to give as it hands on: a pydantic model, or a JSON schema. The next agent reads it as
      JSON. None: a `message` in words.

    Raises InvalidAgent.
    """

    to: str
    """The name of the agent that takes over."""
    agent: Any
    """The agent itself, if it was given and not only named."""
    name: str
    description: str
    filter: Shown | Filter
    needs_approval: bool | Predicate
    input: InputType | None

    @known_options("HandOff", InvalidAgent)
    def __init__(
        self,
        to: Any,
        *,
        name: str | None = None,
        description: str | None = None,
        filter: Shown | Filter | None = None,  # noqa: A002 - the word that people look for
        needs_approval: bool | Predicate = False,
        input: InputType | None = None,  # noqa: A002 - beside the `output` of agents
    ) -> None:
        agent = None
        target = to
        agent_description = ""
        if not isinstance(to, str):
            if not isinstance(to, _NamedAgent):
                raise InvalidAgent(f"HandOff was given {to!r}.", cure="Give an Agent, or the name of one.")
            agent = to
            target = to.full_name
            agent_description = to.description
        if not _AGENT.fullmatch(target):
            raise InvalidAgent(
                f"{target!r} is not an agent's name.", cure="Write the name that Agent(name) has, such as 'billing'."
            )
        about = f"Hand the conversation over to {target}, who then answers the user instead of you."
        about = f"{about} {agent_description}".strip()
        if filter is not None and not isinstance(filter, Shown):
            _check_filter(filter)
        if name is None:
            name = f"transfer_to_{re.sub(r'[^a-zA-Z0-9_-]', '_', target)}"[:64]
        vars(self).update(
            to=target,
            agent=agent,
            name=name,
            description=about if description is None else description,
            filter=EVERYTHING if filter is None else filter,
            needs_approval=needs_approval,
            input=input,
            _arguments=_ARGUMENTS if input is None else _arguments_of(target, input),
        )

    def as_tool(self) -> Tool:
        """Raises InvalidTool."""
        return Tool(
            name=self.name,
            description=self.description,
            arguments=vars(self)["_arguments"],
            needs_approval=self.needs_approval,
            handoff=self.to,
        )


def _arguments_of(target: str, given: Any) -> ModelArguments | SchemaArguments:
    try:
        return given_arguments(given, place=f"HandOff to {target!r}", option="input")
    except InvalidTool as error:
        raise InvalidAgent(error.message, cure=error.cure) from error


def _check_filter(function: Any) -> None:
    problem = "it can't be called"
    if callable(function):
        try:
            check_takes(function, (), context=ToolContext())
        except ValueError:  # a builtin without a readable signature
            return
        except TypeError as error:
            problem = str(error)
        else:
            return
    raise InvalidAgent(
        f"HandOff has filter={function!r}: {problem}.",
        cure="Write a Shown(...), or a function that takes the messages and, if it wants one, the ToolContext.",
    )
