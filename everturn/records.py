"""What is said and done in a conversation, as frozen values.

Everything here crosses processes, deploys and years of histories. So: unknown fields are ignored, every new field has
a default, and defaults are not written (each costs history bytes). Light to import: pydantic and the standard library.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Literal, Self
from uuid import uuid4

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

from everturn.system.json_numbers import compact_json
from everturn.validation.names_of_other_libraries import no_attribute
from everturn.vendor_calls import read_call


class Record(BaseModel):
    """A frozen value that serialises without its defaults; a tag called `kind` is always written."""

    # A number that JSON does not have is refused where it comes in. One that gets here all the same is written as what
    # it is ("NaN"): null would mean something else.
    model_config = ConfigDict(frozen=True, extra="ignore", ser_json_inf_nan="strings")

    _defaults: ClassVar[tuple[tuple[str, Any], ...]] = ()

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        super().__pydantic_init_subclass__(**kwargs)
        cls._defaults = tuple(
            (name, field.get_default(call_default_factory=True, validated_data={}))
            for name, field in cls.model_fields.items()
            if not field.is_required() and name != "kind"
        )

    @model_serializer(mode="wrap")
    def _without_defaults(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        written: dict[str, Any] = write(self)
        values = self.__dict__
        for name, default in self._defaults:
            # Comparing two records is slow, and most values are the very default.
            if ((value := values[name]) is default or value == default) and name in written:
                del written[name]
        return written


class ClosedRecord(Record):
    """What somebody decides or asks for. A name in it that this code does not know is refused: it may be misspelt, or
    newer, and without it the rest would mean something else."""

    model_config = ConfigDict(extra="forbid")


def on_lines(texts: Sequence[str]) -> str:
    """Texts of their own as one text: "12" and "34" don't become 1234."""
    pieces: list[str] = []
    for text in texts:
        if pieces and text and not (pieces[-1].endswith("\n") or text.startswith("\n")):
            pieces.append("\n")
        if text:
            pieces.append(text)
    return "".join(pieces)


class PartRecord(Record):
    """What all parts have. `extra`: what a provider put beside the part, by its own names (signatures, citations, item
    ids). It goes back to the provider that made the message, as it came, and to no other."""

    extra: dict[str, JsonValue] = Field(default_factory=dict)


class Text(PartRecord):
    """What is said in words."""

    kind: Literal["text"] = "text"
    text: str


class Image(PartRecord):
    """A picture: either `data` (base64, with its `media_type`) or a `url`."""

    kind: Literal["image"] = "image"
    data: str | None = None
    url: str | None = None
    media_type: str | None = None
    """Such as 'image/png'; needed with `data`."""

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.data is None) == (self.url is None):
            raise ValueError("an Image takes either data= (base64) or url=, and not both")
        if self.data is not None and not self.media_type:
            raise ValueError("an Image with data= needs media_type=, such as 'image/png'")
        return self


class Document(PartRecord):
    """A file for the model to read, such as a PDF: either `data` (base64, with its `media_type`) or a `url`.

    A model that can't read it gets a text instead that says so: docs/reference/providers.md says which reads what.
    """

    kind: Literal["document"] = "document"
    data: str | None = None
    url: str | None = None
    media_type: str | None = None
    """Such as 'application/pdf'; needed with `data`."""
    name: str = ""
    """The file's name, if the model is to know it."""

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.data is None) == (self.url is None):
            raise ValueError("a Document takes either data= (base64) or url=, and not both")
        if self.data is not None and not self.media_type:
            raise ValueError("a Document with data= needs media_type=, such as 'application/pdf'")
        return self


class Thinking(PartRecord):
    """What the model thought, if its provider shows it. Only the provider that made it may see it again."""

    kind: Literal["thinking"] = "thinking"
    text: str


class ToolCall(PartRecord):
    """What the model asks for."""

    kind: Literal["tool_call"] = "tool_call"
    call_id: str
    """Unique within the conversation."""
    name: str
    """As the model gave it: there may be no such tool."""
    arguments: dict[str, JsonValue] = Field(default_factory=dict)
    """As the model gave them, before any validation."""
    provider_id: str | None = None
    """The id as the provider gave it, kept only if it had to be replaced."""
    unparsed: str | None = None
    """The argument text as received, kept only if it is no JSON object, or holds a number that JSON does not have."""

    @property
    def id(self) -> str:
        """The `call_id`, by the name that most libraries use."""
        return self.call_id

    @property
    def arguments_json(self) -> str:
        """The arguments as JSON text, as most vendors write them; the text as received if it is no JSON object."""
        if self.unparsed is not None:
            return self.unparsed
        return compact_json(self.arguments)

    @classmethod
    def parse(cls, given: object) -> ToolCall:
        """The tool call in what a vendor's API or SDK gave, as an object or a dict.

        Takes OpenAI's Chat and Responses calls (a custom tool's text becomes the argument `input`), Anthropic's
        tool_use and server_tool_use, Gemini's functionCall (the part, or what is in it), a dict of `name` and
        `arguments` (or `args`, `input`, `parameters`), and a ToolCall. If the vendor gives no id, one is made up.
        Raises TypeError, naming what it got, for anything else.
        """
        if isinstance(given, ToolCall):
            return given
        if isinstance(given, Mapping) and given.get("kind") == "tool_call":
            return cls.model_validate(given)
        call = read_call(given)
        return cls(
            call_id=call.id or f"call_{uuid4().hex[:24]}",
            name=call.name,
            arguments=call.arguments or {},
            unparsed=call.unparsed,
            extra=call.extra,
        )


ApproveOrDeny = Literal["approve", "deny"]
"""What a person, a rule or the clock can say to a call that waits. People can answer it, too."""


class Decision(Record):
    """A human's decision on a tool call: made once, for this call, with who made it and when."""

    verdict: Literal["approve", "deny", "answer"]
    by: str = ""
    at: str = ""
    """When the conversation took it: ISO 8601, UTC."""
    note: str | None = None
    arguments: dict[str, JsonValue] | None = None
    """The arguments that the human put in place of the model's; None if they were left alone."""
    by_policy: bool = False
    """A rule that this person had made before decided."""
    by_model: bool = False
    """No person decided, but a model, the agent's Reviewer: `by` is `model:` and its name. The note is its reason."""

    @property
    def is_told(self) -> bool:
        """Whether the model is told of this approval. It is told in a part of its own, before the tool's result."""
        noted = bool(self.note) and not self.by_model
        return self.verdict == "approve" and (self.arguments is not None or noted)


HookPoint = Literal["before_model", "after_model", "before_tool", "after_tool"]


class HookAction(Record):
    """What a hook did. It is recorded with the model's reply or the tool's result."""

    hook: str
    point: HookPoint
    did: Literal["changed", "denied", "asked", "answered", "stopped", "failed"]
    call_id: str = ""
    why: str = ""
    """The reason in words, or the answer that the hook gave after a tool."""


ResultPart = Annotated[Text | Image | Document, Field(discriminator="kind")]


class Successor(Record):
    """The agent that a conversation was handed over to, and which part of the conversation it is shown."""

    agent: str
    keep_from: int = 0
    """The messages before this position are not shown to it."""
    tools_from: int = 0
    """Tool calls before this position, and their results, are not shown to it either."""


class ToolResult(PartRecord):
    """What the model gets back for the ToolCall with the same `call_id`."""

    kind: Literal["tool_result"] = "tool_result"
    call_id: str
    name: str = ""
    content: tuple[ResultPart, ...] = ()
    """Text, Image and Document parts."""
    is_error: bool = False
    """The tool failed, or did not run: the content says why."""
    decision: Decision | None = None
    """The person's word on the call, if there was one."""
    hooks: tuple[HookAction, ...] = ()
    successor: Successor | None = None
    """The agent that the call handed the conversation over to."""

    @property
    def text(self) -> str:
        """The text parts, each on a line of its own."""
        return on_lines([part.text for part in self.content if part.kind == "text"])

    @property
    def by_hook(self) -> bool:
        """A `before_tool` hook gave it, and nothing ran."""
        return any(action.did == "answered" for action in self.hooks)

    @classmethod
    def cut_short(cls, call: ToolCall, why: str, *, running: bool = False) -> Self:
        """The result that the model gets for a call that was cut short. `running`: the call may have taken effect."""
        doubt = " It was running: it may or may not have taken effect." if running else ""
        text = Text(text=f"This call was cut short: {why}.{doubt}")
        return cls(call_id=call.call_id, name=call.name, content=(text,), is_error=True)


class ServerToolUse(PartRecord):
    """A call of a tool that the provider ran itself, or its result; `data` is the block or item as received."""

    kind: Literal["server_tool_use"] = "server_tool_use"
    name: str
    data: JsonValue = None


class Opaque(PartRecord):
    """A block or item of a kind that we do not know, kept as it came."""

    kind: Literal["opaque"] = "opaque"
    data: JsonValue = None


Part = Annotated[
    Text | Image | Document | Thinking | ToolCall | ToolResult | ServerToolUse | Opaque, Field(discriminator="kind")
]


TextKind = Literal["text", "thinking"]
"""What a model says to its user, or only to itself."""


class Message(Record):
    """One thing said: by the `user`, by the `assistant`, or by `tool`s in answer to an assistant's calls.

    `system` is for `generate()`; a conversation takes its instructions from its Agent.
    """

    role: Literal["system", "user", "assistant", "tool"]
    parts: tuple[Part, ...]
    """Of the kinds Text, Image, Document, Thinking, ToolCall, ToolResult, ServerToolUse and Opaque."""
    author: str = ""
    """'everturn' if everturn, and no person, wrote a user's message. In a conversation that was handed over: the agent
    that wrote an assistant's message, if it was not the first agent."""
    summary: bool = False
    """It sums up the messages before it, and the model sees it in their place."""
    cut_short: bool = False
    """Its turn was cancelled while the model wrote it: the message is what people had seen by then."""
    bound_to: str = ""
    """Set if the provider had refused the thoughts of earlier messages, which it is not shown any more: a digest of the
    instructions and tools that this message was asked with."""
    provider: str = ""
    """The provider that made an assistant's message, such as 'anthropic'. Only set if a part holds something that no
    other provider may see: thinking, opaque parts, the provider's own tools, or an `extra`."""
    tools: tuple[str, ...] | None = None
    """Of a user's message: the names of the tools that the model is offered until the answer is complete; None: all."""

    @classmethod
    def user(cls, content: str | Iterable[Part]) -> Message:
        """A user's message from a text or from parts."""
        if isinstance(content, str):
            content = (Text(text=content),)
        return cls(role="user", parts=tuple(content))

    @property
    def text(self) -> str:
        """The text parts: of an assistant's message joined, since its provider may have cut them anywhere; of any
        other message each on a line of its own."""
        texts = [part.text for part in self.parts if part.kind == "text"]
        if self.role == "assistant":
            return "".join(texts)
        return on_lines(texts)

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        """The ToolCall parts, in order."""
        return tuple([part for part in self.parts if part.kind == "tool_call"])

    @property
    def tool_results(self) -> tuple[ToolResult, ...]:
        """The ToolResult parts, in order."""
        return tuple([part for part in self.parts if part.kind == "tool_result"])


OWN_AUTHOR: Final = "everturn"
"""Of the user messages that everturn writes itself: a summary, a correction, a note."""


def is_said_by_person(message: Message) -> bool:
    return message.role == "user" and not (message.author or message.summary)


def results_in(messages: Iterable[Message]) -> dict[str, ToolResult]:
    """The tool results of messages by call_id, in order."""
    return {part.call_id: part for message in messages for part in message.parts if part.kind == "tool_result"}


def tool_pairs(messages: Iterable[Message]) -> tuple[tuple[ToolCall, ToolResult], ...]:
    """Each call with its result, in the order of the calls. A call that has no result yet is left out."""
    calls: list[ToolCall] = []
    results: dict[int, ToolResult] = {}
    open_calls: dict[str, list[int]] = {}
    for message in messages:
        for part in message.parts:
            if part.kind == "tool_call":
                open_calls.setdefault(part.call_id, []).append(len(calls))
                calls.append(part)
            elif part.kind == "tool_result" and (places := open_calls.get(part.call_id)):
                results[places.pop(0)] = part  # ids of others may come again: the earliest is answered first
    return tuple((call, results[place]) for place, call in enumerate(calls) if place in results)


class Usage(Record):
    """Tokens, as the provider counted them. Two can be added."""

    input_tokens: int = 0
    """Cached ones included."""
    output_tokens: int = 0
    """Reasoning included."""
    cached_tokens: int = 0
    """Of the input: read from the provider's cache."""
    cache_write_tokens: int = 0
    """Of the input: written to the provider's cache."""
    cache_write_1h_tokens: int = 0
    """Of those: to be kept for an hour, at a higher price."""
    reasoning_tokens: int = 0
    """Of the output."""
    input_audio_tokens: int = 0
    """Of the input: sound."""
    cached_audio_tokens: int = 0
    """Of the cached ones: sound."""
    output_audio_tokens: int = 0
    """Of the output: sound."""
    output_image_tokens: int = 0
    """Of the output: pictures."""
    web_searches: int = 0
    """Searches by the provider's own tool, which are paid by the piece."""

    @property
    def total_tokens(self) -> int:
        """Input and output."""
        return self.input_tokens + self.output_tokens

    def __add__(self, other: Usage) -> Usage:
        return Usage(**{name: getattr(self, name) + getattr(other, name) for name in Usage.model_fields})

    def since(self, before: Usage) -> Usage:
        """What was used since the count was `before`."""
        return Usage(**{name: getattr(self, name) - getattr(before, name) for name in Usage.model_fields})


def cost_with(spent: float | None, more: float | None) -> float | None:
    """The sum in US dollars; None as soon as one of the prices is not known."""
    if spent is None or more is None:
        return None
    return spent + more


def in_dollars(usd: float) -> str:
    """The amount as text, such as '0.0125'. Less than a cent is written with two significant digits: '0.000023'."""
    return f"{usd:.4f}" if usd >= 0.01 or not usd else f"{Decimal(f'{usd:.2g}'):f}"


Stop = Literal["end", "tool_calls", "length", "filtered", "refused", "paused"]
"""See Reply.stop; `paused`: the provider goes on when it is asked again with this reply as the last message."""


CUT_OFF: Final[Mapping[Stop, str]] = {
    "length": "the model's last reply is cut off: it reached the model's output limit (length)",
    "filtered": "the model's last reply is cut off, or left out, by its provider's filter (filtered)",
    "refused": "the model refused to answer, or its provider did (refused)",
    "paused": "the model's last reply is not whole: its provider made a pause (paused)",
}
"""Why a reply is not the whole answer that was asked for, by how the model stopped."""


class PartOfUsage(Record):
    """What another model used for a reply: one that advised, or that took over."""

    model: str
    """Its name, without a provider."""
    usage: Usage


class Reply(Record):
    """One model reply, as any provider gives it."""

    message: Message
    stop: Stop = "end"
    """Why the model stopped: it was done (`end`), wants tools, ran out of tokens, a filter or it itself refused, or its
    provider made a pause."""
    usage: Usage = Usage()
    by_others: tuple[PartOfUsage, ...] = ()
    """Of the usage: what other models used, at their own prices."""
    cost_usd: float | None = None
    """What the provider says that it cost, in US dollars; None if it does not say it, and a price list has to."""
    model: str = ""
    """`provider:name`, as configured."""
    response_id: str | None = None
    """The provider's id of the reply."""
    details: dict[str, JsonValue] = Field(default_factory=dict)
    """What the provider says about the whole reply: `model`, if another one answered than was asked for;
    `service_tier`; and by its own names, why it was refused or filtered, and logprobs that were asked for."""

    @property
    def text(self) -> str:
        """The message's text parts, joined."""
        return self.message.text

    @property
    def is_empty(self) -> bool:
        """Whether the model ended its reply with nothing but thoughts. A conversation then asks it again, twice; after
        that, the conversation ends with the empty reply."""
        return self.stop == "end" and all(
            isinstance(part, Thinking) or (isinstance(part, Text) and not (part.text.strip() or part.extra))
            for part in self.message.parts
        )

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        """The message's ToolCall parts, in order."""
        return self.message.tool_calls


class Outcome(Record):
    """How a conversation ended: the result of its workflow."""

    status: Literal["completed", "limit_reached", "cancelled", "failed"]
    """`failed`: the last reply did not fit the Agent's `output` type, though it was asked for again."""
    text: str = ""
    """The last reply's text."""
    output: JsonValue = None
    """The last reply as the Agent's `output` type, in JSON."""
    turns: int = 0
    tool_calls: int = 0
    usage: Usage = Usage()
    """Of all turns together."""
    cost_usd: float | None = None
    """None if a price is not known."""
    reason: str | None = None
    """Why it ended, if it did not simply complete; and if it did, why its last reply is not whole."""
    stop: Stop = "end"
    """Why the model stopped in its last reply. Anything but `end` means that `text` is not the whole answer."""
    tail: tuple[Message, ...] = ()
    """What came after the last model turn and no model has seen: the results of calls that were cut short."""
    id: str = ""
    """The conversation's."""

    def tool_pairs(self, transcript: Iterable[Message]) -> tuple[tuple[ToolCall, ToolResult], ...]:
        """Each call of the conversation with its result, in the order of the calls: those in the transcript, as
        `await conversation.transcript()` has it, and those that were cut short at the end."""
        messages = tuple(transcript)
        known = results_in(messages)
        rest = (message for message in self.tail if not results_in((message,)).keys() & known.keys())
        return tool_pairs((*messages, *rest))

    if not TYPE_CHECKING:  # a type checker is to go on refusing what is not there

        def __getattr__(self, name: str) -> Any:
            try:
                return super().__getattr__(name)
            except AttributeError:
                raise no_attribute("Outcome", name) from None

    @model_serializer(mode="wrap")
    def _without_defaults(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        # The contract's fields are always there, for programs that read the result without this class.
        written: dict[str, Any] = write(self)
        if self.stop == "end":
            written.pop("stop", None)
        for name in ("reason", "tail", "id"):
            if not written.get(name):
                written.pop(name, None)
        return written
