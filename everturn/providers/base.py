"""What every provider takes and returns. No Temporal in here."""

from __future__ import annotations

import hashlib
import re
import warnings
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from pydantic_core import to_json

from everturn.errors import InvalidReply
from everturn.models import Model, ModelSettings
from everturn.records import (
    Document,
    Image,
    Message,
    Opaque,
    Part,
    ServerToolUse,
    TextKind,
    Thinking,
    ToolCall,
    ToolResult,
)
from everturn.text.shortening import shortened_line
from everturn.tools.options import ToolOptions
from everturn.tools.server_tools import ServerTool, UnsupportedParameter
from everturn.vendor_models import abilities

if TYPE_CHECKING:
    from everturn.tools.tool import Tool

NO_RESULT: Final = "Error: this call has no result."
"""What the model reads for a call that was never answered. Servers refuse a call without a result."""

NOTHING: Final = "(empty)"
"""What it reads for a user's message without content. Anthropic and Google refuse one."""

UNPARSED: Final = "INVALID_JSON"
"""The key under which a model sees arguments it wrote that were not a JSON object. Servers parse the arguments of
past calls, and refuse the whole request if they can't."""

MAX_PARTS: Final = 20_000
"""Most parts of one reply: texts, thoughts, calls and all others. Long replies have some hundreds."""

_MAX_CACHE_KEY_CHARS: Final = 64
_MAX_NAMED_CHARS: Final = 500


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool as the model sees it; `parameters` is a JSON schema of type object."""

    name: str
    description: str = ""
    parameters: Mapping[str, Any] = field(default_factory=lambda: {"type": "object", "properties": {}})
    options: ToolOptions = ToolOptions()  # noqa: RUF009 - frozen

    @classmethod
    def from_tool(cls, tool: Tool) -> ToolSpec:
        return cls(tool.name, tool.description, tool.parameters, tool.options)


def specs_of(tools: Iterable[Tool]) -> tuple[ToolSpec, ...]:
    """The tools as the model sees them. Tools that a provider defines itself are among the raw tools."""
    return tuple(ToolSpec.from_tool(tool) for tool in tools if not tool.provider_tool)


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
    """Provider dicts that have no class of ours, passed through."""
    settings: ModelSettings = field(default_factory=ModelSettings)
    conversation_id: str | None = None
    output_schema: Mapping[str, Any] | None = None
    """The JSON schema that the final reply's text is to have, if the provider can hold the model to it."""
    grammars: bool = True
    """Whether the provider may be asked to hold the model to `output_schema`; else the model reads it."""
    conclude: bool = False
    """Tools are shown, since the transcript speaks of them, but may not be called."""
    as_given: bool = False
    """The messages are pieces of a transcript: nothing is added to complete them."""
    hidden_ids: Container[str] = frozenset()
    """The ids of the conversation's calls that are not in `messages`, and maybe of others: a new call gets none of them
    either."""
    now: datetime | None = None
    """The time by the provider's clock; None if it is not known."""


@dataclass(frozen=True, slots=True)
class Delta:
    """A piece of a streamed reply."""

    kind: TextKind
    text: str


def may_call(request: Request) -> bool:
    """Whether the reply may hold calls."""
    tools = request.tools or request.server_tools or request.raw_tools
    return bool(tools) and not request.conclude and request.settings.tool_choice != "none"


def schema_in_words(request: Request) -> str:
    """The output's schema as an instruction, for a server that can't be held to it."""
    schema = to_json(request.output_schema).decode()
    return f"Write your final reply as one JSON object, and nothing else. It has to fit this JSON schema:\n{schema}"


def assistant_message(parts: Sequence[Part], *, request: Request) -> Message:
    """The reply's message. It has its provider's name if only that provider may see one of its parts."""
    if len(parts) > MAX_PARTS:
        raise InvalidReply(
            f"The reply of {request.model.name!r} is unusable: it holds {len(parts):,} parts, more than {MAX_PARTS:,}.",
            provider=request.model.provider,
        )
    provider = ""
    if any(part.extra or isinstance(part, Thinking | Opaque | ServerToolUse) for part in parts):
        provider = request.model.provider
    return Message(role="assistant", parts=tuple(parts), provider=provider)


OnDelta = Callable[[Delta], None]


def tool_options(model: Model, tool: ToolSpec, *names: str, callers: tuple[str, ...] = ()) -> dict[str, Any]:
    """The set ones of these options of a tool, in the provider's names; warns of the others."""
    known, unknown = tool.options.known_to(*names, callers=callers)
    for name in unknown:
        warn_unsupported(model, f"{name}= of the tool {tool.name!r}")
    return known


def warn_unsupported(model: Model, what: str, instead: str = "The request is sent without it.") -> None:
    """Warns that a setting has no effect with this model: `what` such as "stop"."""
    warnings.warn(UnsupportedParameter(f"{model.name} can't do {what}. {instead}"), stacklevel=3)


def check_tools(request: Request) -> None:
    """Raises InvalidTool before anything is sent, if it is known that the model does not take one of the tools."""
    abilities.check_tools(
        request.model,
        functions=[tool.name for tool in request.tools],
        server_tools=[type(tool).__name__ for tool in request.server_tools],
    )


def placeholder(part: Image | Document, reason: str = "which this model can't be shown") -> str:
    """The text that stands in for a part that can't be sent: `[document: bill.pdf, which ...]`."""
    address = part.url or ""
    if address.lstrip()[:5].lower() == "data:":
        address = address.partition(",")[0]  # the rest is the content
    name = address or part.media_type or ""
    if isinstance(part, Document):
        name = part.name or name
    if not name:
        return f"[{part.kind}: {reason}]"
    return f"[{part.kind}: {shortened_line(name, _MAX_NAMED_CHARS)}, {reason}]"


def own_extra(part: Part, *, same_provider: bool) -> dict[str, Any]:
    """A part's `extra` for the provider that it came from; nothing for any other."""
    if same_provider:
        return part.extra
    return {}


def sent_arguments(call: ToolCall) -> dict[str, Any]:
    """A call's arguments as a model reads them again."""
    if call.unparsed is None:
        return call.arguments
    return {UNPARSED: call.unparsed}


def with_extra(fields: dict[str, Any], extra: Mapping[str, Any]) -> dict[str, Any]:
    """A part as it is written, with its `extra` beside it: who wrote the extra can add fields, and change none."""
    if not extra:
        return fields
    return {**fields, **extra, **fields}


_NOT_IN_NAMES = re.compile(r"[^a-zA-Z0-9_-]")


def plain_name(name: str, *, most: int = 64, otherwise: str = "unknown") -> str:
    """With letters, digits, _ and - only, and of at most so many characters. Models make up names that servers then
    refuse to read back."""
    return _NOT_IN_NAMES.sub("_", name)[:most] or otherwise


def error_prefix(result: ToolResult, text: str) -> str:
    """What is put before a result's text if the protocol has no flag for errors; empty if the text begins with that
    word itself."""
    if result.is_error and not text.lower().startswith(("error:", "error ")):
        return "Error: "
    return ""


def cache_key(conversation_id: str) -> str:
    """OpenAI's prompt_cache_key: the conversation's id, or its hash if OpenAI would refuse the id as too long."""
    if len(conversation_id) <= _MAX_CACHE_KEY_CHARS:
        return conversation_id
    return hashlib.sha256(conversation_id.encode()).hexdigest()[:_MAX_CACHE_KEY_CHARS]
