"""Chat Completions: a transcript as messages, in every dialect."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from everturn.providers.base import (
    NO_RESULT,
    Request,
    error_prefix,
    own_extra,
    plain_name,
    sent_arguments,
    with_extra,
)
from everturn.providers.call_ids import matching_id
from everturn.providers.catalog import Dialect, dialect_of
from everturn.providers.encoded_messages import EncodedMessages, WireItems, encoded_messages
from everturn.providers.json_values import a_dict, write_json
from everturn.providers.media import OFFICE, PDF, PICTURES, SOUNDS, can_take, file_name, in_words, medium_of, url_of
from everturn.providers.openai_chat.blocks import blocks_of
from everturn.providers.openai_chat.calls import LEGACY
from everturn.providers.openai_chat.media import IMAGES, find_sound, is_sound, pictures_beside, sound_expiry
from everturn.providers.pairing import Pairing
from everturn.records import Document, Image, Message, Opaque, Part, Text, Thinking, ToolCall, ToolResult, on_lines
from everturn.vendor_models.abilities import is_claude

NOT_OURS = "Error: this tool is not run here."
"""What the model reads for a call of a custom tool that nobody declared."""

CAME_IN = "came_in"
"""In a thought's `extra`: the field that it came in, if the server's dialect names none."""

UNKNOWN = "message"
"""In a part's `extra`: the other fields of the message that it came in, for a server that may be a gateway."""

MESSAGE_FIELDS = ("reasoning_details", "extra_content")
"""Fields that servers put beside a message and want back with it: OpenRouter's reasoning, Gemini's signatures."""


Encoded = dict[str, Any]


class ChatMessages(EncodedMessages):
    """A transcript's messages. Each result goes after its call; a call without one gets NO_RESULT."""

    def __init__(self) -> None:
        super().__init__()
        self.leading: tuple[str, ...] = ()
        """What system messages say before all others: many servers take only one of those, and that one first."""
        self._leads = True

    def _encode_messages(self, messages: Sequence[Message], request: Request) -> None:
        dialect = dialect_of(request.model)
        pairing = Pairing(messages, as_given=request.as_given)
        encoded: list[Encoded] = []
        for message in messages:
            if self._leads and message.role == "system":
                self.leading += (message.text,)
                continue
            self._leads = False
            encoded += self._encode_message(message, pairing, dialect, request)
        if dialect.user_after_tool:
            self.open += encoded
            return
        previous = self.open[-1]["role"] if self.open else ""
        self.open += _with_bridges(encoded, previous=previous)

    def _encode_message(
        self, message: Message, pairing: Pairing, dialect: Dialect, request: Request
    ) -> Iterator[Encoded]:
        same_provider = message.provider == request.model.provider
        match message.role:
            case "assistant":
                if same_provider:
                    self.good_until = min(self.good_until, sound_expiry(message, request.now))
                turn = _assistant_turn(message, pairing, dialect=dialect, same_provider=same_provider, now=request.now)
                # Claude takes no empty text, whatever stands before it; LiteLLM (1.110.2) writes one of its own.
                yield from (item for item in turn if not (is_claude(request.model.model) and _is_empty(item)))
            case "user":
                if user := _user_message(message, dialect, same_provider=same_provider):
                    yield user
            case "system":
                yield {"role": "system", "content": message.text}
            case "tool" if pairing.as_given:  # else each result goes after its call
                yield from _tool_messages(pairing.calls_after(message), pairing.results, dialect)
                yield from _pictures_of(pairing.calls_after(message), pairing.results, dialect)
            case _:
                pass


def encode_messages(request: Request, *, instructions: str) -> WireItems:
    """The request's messages, after a system message with the instructions."""
    messages = encoded_messages(request, ChatMessages, request.model)
    system = "\n\n".join(filter(None, [instructions, *messages.leading]))
    if not system:
        return messages.wire_items()
    return messages.wire_items([{"role": "system", "content": system}])


def _is_empty(encoded: Encoded) -> bool:
    return encoded == {"role": "assistant", "content": ""}


def _assistant_turn(
    message: Message, pairing: Pairing, *, dialect: Dialect, same_provider: bool, now: datetime | None
) -> Iterator[Encoded]:
    """The assistant's message, the results of its calls in their order, and the pictures in these results."""
    calls = pairing.calls_after(message)
    results = pairing.results
    yield _assistant_message(message, dialect=dialect, same_provider=same_provider, now=now)
    yield from _tool_messages(calls, results, dialect)
    if same_provider:
        for custom in _custom_calls(message):
            yield {"role": "tool", "tool_call_id": str(custom["id"]), "content": NOT_OURS}
    yield from _pictures_of(calls, results, dialect)


def _tool_messages(calls: Iterable[ToolCall], results: Mapping[str, ToolResult], dialect: Dialect) -> Iterator[Encoded]:
    for call in calls:
        result = results.get(call.call_id)
        content = _result_text(result, dialect) if result else NO_RESULT
        if _is_legacy(call):
            yield {"role": "function", "name": plain_name(call.name), "content": content}
            continue
        encoded: Encoded = {"role": "tool", "tool_call_id": _wire_id(call, dialect)}
        if _is_servers(call):
            encoded["name"] = call.name
        elif dialect.gateway:
            encoded["name"] = plain_name(call.name)
        yield encoded | {"content": content}


def _pictures_of(calls: Iterable[ToolCall], results: Mapping[str, ToolResult], dialect: Dialect) -> Iterator[Encoded]:
    """The results' media that a tool message can't hold."""
    for call in calls:
        result = results.get(call.call_id)
        if result and (media := _shown_apart(result, dialect)):
            label = Text(text=f"From the result of {call.name} ({_wire_id(call, dialect)}):")
            yield {"role": "user", "content": _encode_content((label, *media), dialect)}


def _assistant_message(message: Message, *, dialect: Dialect, same_provider: bool, now: datetime | None) -> Encoded:
    sound = ""
    spoken = frozenset[int]()
    if same_provider:
        sound, spoken = find_sound(message, now)
    images: list[Encoded] = []
    if same_provider and dialect.images:
        images = pictures_beside(message)
    text = "".join(
        _part_text(part)
        for place, part in enumerate(message.parts)
        if not (part.extra and (place in spoken or is_sound(part) or (images and IMAGES in part.extra)))
    )
    # Another provider's thoughts are not sent.
    thinking = [part for part in message.parts if same_provider and isinstance(part, Thinking)]
    thoughts = "".join(part.text for part in thinking)
    encoded: Encoded = {"role": "assistant", "content": text}
    entries = [
        _encode_call(part, dialect, same_provider=same_provider) for part in message.parts if isinstance(part, ToolCall)
    ]
    if same_provider:
        entries += _custom_calls(message)
    if entries:
        encoded["content"] = text or None
        if same_provider and any(entry.get("type") == LEGACY for entry in entries):
            encoded["function_call"] = entries[0]["function"]
        else:
            encoded["tool_calls"] = entries
        came_in = next((part.extra[CAME_IN] for part in thinking if CAME_IN in part.extra), "")
        if (field := dialect.reasoning_field or str(came_in)) and (thoughts or dialect.reasoning_required):
            encoded[field] = thoughts  # if it is required, an empty one will do
    if dialect.thinking_blocks and thoughts:
        encoded["content"] = [{"type": "thinking", "thinking": [{"type": "text", "text": thoughts}]}]
        if text:
            encoded["content"].append({"type": "text", "text": text})
    if same_provider and (blocks := blocks_of(message)):
        encoded["content"] = blocks
    if sound:
        encoded |= {"audio": {"id": sound}, "content": text or None}
    if images:
        encoded["images"] = images
    if same_provider:
        for part in message.parts:
            if part.extra and not isinstance(part, ToolCall):
                encoded |= {name: part.extra[name] for name in MESSAGE_FIELDS if name in part.extra}
                if dialect.gateway:
                    encoded = a_dict(part.extra.get(UNKNOWN)) | encoded
    return encoded


def _custom_calls(message: Message) -> list[Encoded]:
    """The custom tools' calls in a message of this server's own, sent back as they came."""
    kept = [a_dict(part.data) for part in message.parts if isinstance(part, Opaque)]
    return [data for data in kept if data.get("type") == "custom" and data.get("id")]


def _encode_call(call: ToolCall, dialect: Dialect, *, same_provider: bool) -> Encoded:
    call_id = _wire_id(call, dialect)
    name = call.name if same_provider and _is_servers(call) else plain_name(call.name)
    if same_provider and call.extra.get("type") == "custom":
        text: Any = call.unparsed
        if text is None:
            text = call.arguments.get("input", "")
        custom = {**a_dict(call.extra.get("custom")), "name": name, "input": text}
        return {"id": call_id, "type": "custom", "custom": custom}
    function = {"name": name, "arguments": write_json(sent_arguments(call)).decode()}
    entry: Encoded = {"id": call_id, "type": "function", "function": function}
    if not (same_provider and call.extra):
        return entry
    entry["function"] = a_dict(call.extra.get("function")) | function
    return call.extra | entry | {"type": call.extra.get("type", "function")}


def _is_legacy(call: ToolCall) -> bool:
    """A call that came in the form before `tool_calls`. It has no id: its result goes by its name."""
    return call.extra.get("type") == LEGACY


def _is_servers(call: ToolCall) -> bool:
    """A tool of the server's own, which it runs once it has its arguments back: $web_search, of Moonshot."""
    return call.name.startswith("$")


def _wire_id(call: ToolCall, dialect: Dialect) -> str:
    return matching_id(call.provider_id or call.call_id, dialect.call_id, digits=9)


def _result_text(result: ToolResult, dialect: Dialect) -> str:
    """A tool message holds text only and has no flag for errors: everything else is put into words."""
    apart = _shown_apart(result, dialect)
    pieces = [
        f"[{part.kind}: in the next message]" if any(part is medium for medium in apart) else _part_text(part)
        for part in result.content
    ]
    text = on_lines(pieces)
    return error_prefix(result, text) + text


def _shown_apart(result: ToolResult, dialect: Dialect) -> tuple[Image | Document, ...]:
    """The media that follow in a user's message, since a tool message can't hold them."""
    return tuple(
        part
        for part in result.content
        if not isinstance(part, Text) and _media_block(part, dialect, same_provider=False)
    )


def _media_block(part: Image | Document, dialect: Dialect, *, same_provider: bool) -> Encoded | None:
    """The block for a picture, a file or a sound; None if the server takes none of this type."""
    media_type, data = medium_of(part)
    if isinstance(part, Image) or media_type in PICTURES:
        if not can_take(part, PICTURES):
            return None
        return {
            "type": "image_url",
            "image_url": with_extra({"url": url_of(part)}, own_extra(part, same_provider=same_provider)),
        }
    if data and dialect.sounds and (sound := SOUNDS.get(media_type)):
        return {"type": "input_audio", "input_audio": {"data": data, "format": sound}}
    if dialect.files == "document_url":
        return {"type": "document_url", "document_url": url_of(part)} if can_take(part, OFFICE) else None
    if dialect.files == "none" or (dialect.files == "data" and data is None) or not can_take(part, frozenset({PDF})):
        return None
    file = {"filename": file_name(part), "file_data": url_of(part)}
    return {"type": "file", "file": with_extra(file, own_extra(part, same_provider=same_provider))}


def _user_message(message: Message, dialect: Dialect, *, same_provider: bool) -> Encoded:
    """A user's message; empty if nothing in it can be sent. `same_provider`: what only this server knows may be in
    it."""
    kinds = (Text, Image, Document, Opaque) if same_provider else (Text, Image, Document)
    parts = [part for part in message.parts if isinstance(part, kinds)]
    if not parts:
        return {}
    return {"role": "user", "content": _encode_content(parts, dialect, same_provider=same_provider)}


def _encode_content(parts: Sequence[Part], dialect: Dialect, *, same_provider: bool = False) -> str | list[Encoded]:
    if all(isinstance(part, Text) and not (same_provider and part.extra) for part in parts):
        return on_lines([part.text for part in parts if isinstance(part, Text)])
    return [_encode_part(part, dialect, same_provider=same_provider) for part in parts]


def _encode_part(part: Part, dialect: Dialect, *, same_provider: bool) -> Encoded:
    match part:
        case Image() | Document():
            return _media_block(part, dialect, same_provider=same_provider) or {"type": "text", "text": in_words(part)}
        case Opaque(data=dict() as data):
            return data
        case _:
            return with_extra({"type": "text", "text": _part_text(part)}, own_extra(part, same_provider=same_provider))


def _part_text(part: Part) -> str:
    """A part as text: what it says, or that it is not shown; empty for what is for other eyes."""
    if isinstance(part, Text):
        return part.text
    if isinstance(part, Image | Document):
        return in_words(part)
    return ""


def _with_bridges(messages: Sequence[Encoded], *, previous: str) -> Iterator[Encoded]:
    """Mistral answers 400 (code 3230) to a user message right after a tool message. `previous`: the role before."""
    for message in messages:
        if previous == "tool" and message["role"] == "user":
            yield {"role": "assistant", "content": "OK"}
        previous = message["role"]
        yield message
