"""What every provider is given, and what it gives back. No Temporal in here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from everturn.models import Model, ModelSettings
from everturn.records import Message, Opaque, Part, ServerToolUse, Thinking
from everturn.servertools import ServerTool


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool as the model sees it; `parameters` is a JSON schema of type object."""

    name: str
    description: str = ""
    parameters: Mapping[str, Any] = field(default_factory=lambda: {"type": "object", "properties": {}})


@dataclass(frozen=True, slots=True)
class Request:
    """One question to a model: a transcript, tools and settings, independent of any protocol."""

    model: Model
    messages: Sequence[Message]
    instructions: str = ""
    tools: Sequence[ToolSpec] = ()
    server_tools: Sequence[ServerTool] = ()
    """Tools that the provider runs on its own side."""
    raw_tools: Sequence[Mapping[str, Any]] = ()
    """Provider dicts without a name of their own, passed through."""
    settings: ModelSettings = field(default_factory=ModelSettings)
    conversation_id: str | None = None
    output_schema: Mapping[str, Any] | None = None
    """The JSON schema that the final reply's text is to have, where the provider can hold the model to it."""
    conclude: bool = False
    """Tools are shown, since the transcript speaks of them, but may not be called."""


@dataclass(frozen=True, slots=True)
class Delta:
    """A piece of a streamed reply."""

    kind: Literal["text", "thinking"]
    text: str


def assistant_message(parts: Sequence[Part], *, request: Request) -> Message:
    """The reply's message, with its provider's name where a part holds what only that provider may see."""
    bound = any(part.extra or isinstance(part, Thinking | Opaque | ServerToolUse) for part in parts)
    return Message(role="assistant", parts=tuple(parts), provider=request.model.provider if bound else "")


OnDelta = Callable[[Delta], None]
