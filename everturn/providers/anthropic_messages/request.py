"""Anthropic Messages: requests. Settings and tools are put into words in `options.py`.

A reply that stopped as "paused" goes on when the transcript is sent again with it as the last message.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Self

from everturn.providers.anthropic_messages.options import encode_tools, option_fields
from everturn.providers.anthropic_messages.prompt_caching import mark_cached, marks_in
from everturn.providers.base import (
    NO_RESULT,
    NOTHING,
    Request,
    check_tools,
    may_call,
    own_extra,
    placeholder,
    plain_name,
    schema_in_words,
    sent_arguments,
    with_extra,
)
from everturn.providers.call_ids import matching_id
from everturn.providers.catalog import grammar_over_calls
from everturn.providers.encoded_messages import EncodedMessages, Item, encoded_messages
from everturn.providers.json_values import a_dict, a_str
from everturn.providers.media import PDF, PICTURES, UNREADABLE, can_take, is_picture, medium_of, text_of
from everturn.providers.pairing import Pairing
from everturn.records import Document, Image, Message, Opaque, Part, ServerToolUse, Text, Thinking, ToolCall, ToolResult
from everturn.tools.provider_defined import wire_name_of_member

PATH: Final = "/v1/messages"

NO_REASON: Final = "Error: no reason given."
"""What it reads for an error without text, which the API refuses too."""

CONTAINER_HOURS: Final = 1
"""How long after its expires_at a container is still sent. At that time it only goes to sleep, and it can be woken
for days; but a container that is really gone is a 500 that no retry cures (pydantic-ai#7833)."""

_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_THOUGHTS: Final = frozenset({"thinking", "redacted_thinking"})

_OF_CITATIONS: Final = frozenset({"file_id"})
"""Fields of a citation that only replies have, by the types of anthropic 2.11.0; tests/providers/test_request_types.py
walks all of them."""

_Block = dict[str, Any]
_Turn = tuple[str, list[_Block]]


def encode(request: Request) -> tuple[str, dict[str, Any]]:
    """The path under the base URL, and the body. Raises InvalidTool; warns of each setting that is left out."""
    check_tools(request)
    settings = request.settings
    encoded = encoded_messages(request, AnthropicTurns, request.model)
    if not request.as_given:
        encoded.begin_with_a_user()
    body: dict[str, Any] = {"model": request.model.model}
    # All system messages go first: older models refuse them in mid-conversation.
    over_calls = request.output_schema is not None and grammar_over_calls(request.model)
    texts = [request.instructions, *encoded.system]
    options = option_fields(request, thoughtless=encoded.is_thoughtless())
    held = "format" in options.get("output_config", {})
    if request.output_schema is not None and (over_calls or not held):
        texts.insert(1, schema_in_words(request))
    if system := "\n\n".join(text for text in texts if text.strip()):
        body["system"] = system
    body["messages"] = encoded.wire_items()
    if offered := encode_tools(request):
        body["tools"] = offered
    body |= options
    if over_calls and may_call(request):
        output = body.pop("output_config", {})
        output.pop("format", None)
        if output:
            body["output_config"] = output
    if container := _usable_container(encoded, now=request.now):
        body["container"] = container
    if settings.stream:
        body["stream"] = True
    if settings.cache and "cache_control" not in settings.extra:
        mark_cached(body, marked=encoded.marked)
    merged = body | settings.extra
    if isinstance(also := settings.extra.get("output_config"), dict):
        merged["output_config"] = body.get("output_config", {}) | also  # two settings of ours share this field
    if container and isinstance(also := settings.extra.get("container"), dict) and not also.get("id"):
        merged["container"] = also | {"id": container}  # skills are loaded into the container that is there
    return PATH, merged


class AnthropicTurns(EncodedMessages):
    """User's and assistant's turns, alternating."""

    open: list[_Turn]

    def __init__(self) -> None:
        super().__init__()
        self.system: tuple[str, ...] = ()
        """What system messages say."""
        self.pending = False
        """Whether a server's tool is still running in the last turn."""
        self.container: dict[str, Any] | None = None
        """The latest one in which the provider ran code."""
        self.marked = 0
        """How many cache breakpoints are in the turns that are written."""
        self._thoughtless = True
        """Whether the written turns end like that (see `is_thoughtless`), if none of the others says it."""

    def as_item(self, opened: _Turn) -> Item:
        role, content = opened
        return {"role": role, "content": content}

    def branch(self) -> Self:
        copied = super().branch()
        copied.open = [(role, list(blocks)) for role, blocks in self.open]
        return copied

    def _encode_messages(self, messages: Sequence[Message], request: Request) -> None:
        provider = request.model.provider
        results = {
            result.call_id: (result, message.provider == provider)
            for message in messages
            for result in message.tool_results
        }
        pairing = Pairing(messages, as_given=request.as_given)
        pairs, self.pending = _server_pairs(messages, provider)
        for message in messages:
            same_provider = message.provider == provider
            if message.role == "assistant":
                blocks = list(_assistant_blocks(message, same_provider=same_provider, pairs=pairs))
                while blocks and a_str(blocks[-1].get("type")) in _THOUGHTS:
                    blocks.pop()  # of a reply that was cut off, or empty: a thought that nothing follows is refused
                _add_blocks(self.open, "assistant", blocks)
                if same_provider and (container := _container_in(message)) is not None:
                    self.container = container
            _add_blocks(self.open, "user", _result_blocks(pairing.calls_after(message), results))
            if message.role == "user":
                content = list(_content_blocks(message.parts, same_provider=same_provider))
                if not (content or pairing.has_answers(message)):
                    content = [_text_block(NOTHING)]
                _add_blocks(self.open, "user", content)
            elif message.role == "system":
                self.system += (message.text,)

    def can_close_after(self, messages: Sequence[Message], request: Request) -> bool:
        return not _server_pairs(messages, request.model.provider)[1]

    def close_messages(self, messages: Sequence[Message], texts: Sequence[bytes]) -> None:
        if self.open:
            self.begin_with_a_user()
        for role, blocks in self.open[: self._first_open()]:
            self.marked += marks_in(blocks)
            self._thoughtless = _is_thoughtless_after(role, blocks, before=self._thoughtless)
        super().close_messages(messages, texts)

    def _first_open(self) -> int:
        """The last two user's turns get breakpoints."""
        users = [place for place, (role, _) in enumerate(self.open) if role == "user"]
        if len(users) < 2:
            return 0
        return users[-2]

    def begin_with_a_user(self) -> None:
        if not self.written and (not self.open or self.open[0][0] == "assistant"):
            self.open.insert(0, ("user", [_text_block(NOTHING)]))

    def is_thoughtless(self) -> bool:
        """Whether the turns end among the calls and results of a turn in which this provider's model never thought."""
        turns = self.open
        if turns and turns[-1][0] == "user":
            if not all(block["type"] == "tool_result" for block in turns[-1][1][:1]):
                return False  # a user's words begin a turn, unless they came last, with the results
            turns = turns[:-1]
        thoughtless = self._thoughtless
        for role, blocks in turns:
            thoughtless = _is_thoughtless_after(role, blocks, before=thoughtless)
        return thoughtless


def _is_thoughtless_after(role: str, blocks: Sequence[_Block], *, before: bool) -> bool:
    if role == "assistant":
        return before and a_str(blocks[0].get("type")) not in _THOUGHTS
    return before or not all(block["type"] == "tool_result" for block in blocks)  # a user's words begin a turn


def _add_blocks(turns: list[_Turn], role: str, blocks: Iterable[_Block]) -> None:
    """Adds blocks to the last turn if it has this role, since the API wants roles to alternate."""
    new_blocks = blocks if isinstance(blocks, list) else list(blocks)
    if new_blocks and turns and turns[-1][0] == role:
        turns[-1][1].extend(new_blocks)
    elif new_blocks:
        turns.append((role, new_blocks))


def _server_pairs(messages: Sequence[Message], provider: str) -> tuple[frozenset[str], bool]:
    """The ids of the server's tool uses that may be sent, and whether one of them has no result yet.

    A use is sent with its result, and neither without the other. A use that is still running (the reply was paused, or
    its code called a tool of ours) may be sent only until a user has said something else.
    """
    uses: set[str] = set()
    done: set[str] = set()
    latest_calls: set[str] = set()
    for message in messages:
        if message.role == "user":
            latest_calls = set()
        elif message.role == "assistant":
            blocks = list(_server_blocks(message, provider))
            started = {a_str(block.get("id")) for block in blocks if "tool_use_id" not in block}
            latest_calls |= started
            uses |= started
            done |= {a_str(block["tool_use_id"]) for block in blocks if "tool_use_id" in block}
    waiting = latest_calls - done
    return frozenset((uses & done) | waiting), bool(waiting)


def _server_blocks(message: Message, provider: str) -> Iterator[_Block]:
    if message.provider != provider:
        return
    for part in message.parts:
        if isinstance(part, ServerToolUse) and isinstance(part.data, dict):
            yield part.data


def _assistant_blocks(message: Message, *, same_provider: bool, pairs: frozenset[str]) -> Iterator[_Block]:
    """The assistant's blocks in their order; of another provider's message, only what every provider may see."""
    for part in message.parts:
        extra = own_extra(part, same_provider=same_provider)
        match part:
            case Text(text=text) if text.strip():  # the API refuses what is blank, even from its own models
                yield _as_input(with_extra(_text_block(text), extra))
            case ToolCall():
                yield _encode_call(part, extra, pairs)
            case Thinking(text=text) if extra.get("signature"):  # without one, it was cut off and is refused
                yield with_extra({"type": "thinking", "thinking": text}, extra)
            case ServerToolUse(data=dict() as data) if same_provider:
                if a_str(data.get("tool_use_id") or data.get("id")) in pairs:
                    yield _as_input(data)
            case Opaque(data=dict() as data) if same_provider and "type" in data:
                yield _as_input(data)
            case _:
                pass


def _as_input(block: _Block) -> _Block:
    """The block without what only replies have, in it and in the blocks of its content."""
    content = block.get("content")
    if isinstance(content, list) and any("citations" in a_dict(inner) for inner in content):
        inside = [_as_input(inner) if isinstance(inner, dict) else inner for inner in content]
        block = block | {"content": inside}
    citations = block.get("citations")
    if not isinstance(citations, list):
        return dict(block)
    lean = [
        {name: value for name, value in citation.items() if name not in _OF_CITATIONS}
        for citation in map(a_dict, citations)
        if citation
    ]
    return block | {"citations": lean}


def _encode_call(call: ToolCall, extra: dict[str, Any], pairs: frozenset[str]) -> _Block:
    name = wire_name_of_member(a_str(extra.get("toolset_name")), plain_name(call.name, most=128))
    block: _Block = {"type": "tool_use", "id": _wire_id(call.call_id), "name": name, "input": sent_arguments(call)}
    block = with_extra(block, extra)
    caller = a_dict(block.get("caller"))
    if "tool_id" in caller and caller["tool_id"] not in pairs:
        del block["caller"]
    return block


def _wire_id(call_id: str) -> str:
    return matching_id(call_id, _ID, prefix="call_", digits=24)


def _result_blocks(calls: Sequence[ToolCall], results: Mapping[str, tuple[ToolResult, bool]]) -> Iterator[_Block]:
    """The results of a turn's calls, in the calls' order, all in one message; then the media of failed calls."""
    blocks_after: list[_Block] = []
    for call in calls:
        result, same_provider = results.get(call.call_id, (None, False))
        if result is None:
            missing = ToolResult(call_id=call.call_id, content=(Text(text=NO_RESULT),), is_error=True)
            yield _encode_result(missing, same_provider=False)
            continue
        yield _encode_result(result, same_provider=same_provider)
        if result.is_error and (media := list(_content_blocks(_not_texts(result)))):
            blocks_after += [_text_block(f"From the result of {call.name} ({_wire_id(call.call_id)}):"), *media]
    yield from blocks_after


def _encode_result(result: ToolResult, *, same_provider: bool) -> _Block:
    text = result.text
    if not text.strip():
        text = ""
    block: _Block = {"type": "tool_result", "tool_use_id": _wire_id(result.call_id)}
    if result.is_error:  # holds text only, and must hold some
        block |= {"content": text or NO_REASON, "is_error": True}
    elif _not_texts(result) or (same_provider and any(part.extra for part in result.content)):
        blocks = list(_content_blocks(result.content, same_provider=same_provider))
        block["content"] = blocks or ""  # an empty list is refused, this is not
    else:
        block["content"] = text
    if same_provider:
        return block | result.extra
    return block


def _not_texts(result: ToolResult) -> list[Image | Document]:
    return [part for part in result.content if not isinstance(part, Text)]


def _content_blocks(parts: Iterable[Part], *, same_provider: bool = False) -> Iterator[_Block]:
    """What a user's message or a result says. A part's `extra`, such as cache_control, is for this provider's own."""
    for part in parts:
        extra = own_extra(part, same_provider=same_provider)
        match part:
            case Text(text=text) if text.strip():
                yield with_extra(_text_block(text), extra)
            case Image() | Document():
                block = _media_block(part)
                if block["type"] == "text":
                    extra = {}  # it belongs to the medium, which this stands for
                yield with_extra(block, extra)
            case Opaque(data=dict() as data) if same_provider and "type" in data:
                yield dict(data)
            case _:
                pass


def _text_block(text: str) -> _Block:
    return {"type": "text", "text": text}


def _media_block(part: Image | Document) -> _Block:
    media_type, data = medium_of(part)
    if data == "":
        return _text_block(placeholder(part, UNREADABLE))
    if is_picture(part):
        if not can_take(part, PICTURES):
            return _text_block(placeholder(part))
        return {"type": "image", "source": _media_source(part, media_type, data)}
    assert isinstance(part, Document)
    block: _Block = {"type": "document"}
    if can_take(part, frozenset({PDF})):
        block["source"] = _media_source(part, media_type, data)
    else:
        text = text_of(part)
        if not text.strip():
            return _text_block(placeholder(part))
        block["source"] = {"type": "text", "media_type": "text/plain", "data": text}
    if part.name:
        block["title"] = part.name
    return block


def _media_source(part: Image | Document, media_type: str, data: str | None) -> dict[str, Any]:
    if data is None:
        return {"type": "url", "url": part.url}
    return {"type": "base64", "media_type": media_type, "data": data}


def _usable_container(encoded: AnthropicTurns, *, now: datetime | None) -> str | None:
    """The latest container, if it can still be used; code that waits for a result of ours needs it in any case."""
    container = encoded.container or {}
    name = a_str(container.get("id"))
    if name and (encoded.pending or _is_fresh(a_str(container.get("expires_at")), now)):
        return name
    return None


def _container_in(message: Message) -> dict[str, Any] | None:
    for part in message.parts:
        if isinstance(part, Opaque) and isinstance(part.data, dict) and "type" not in part.data:
            return a_dict(part.data.get("container"))
    return None


def _is_fresh(expires_at: str, now: datetime | None) -> bool:
    """True if in doubt. If the container is gone, the API's error says the provider's time. The request is then sent
    again, and after that without the container."""
    try:
        expires = datetime.fromisoformat(expires_at)
    except ValueError:
        return True  # it does not say
    if not expires.tzinfo:
        expires = expires.replace(tzinfo=UTC)
    return now is None or now < expires + timedelta(hours=CONTAINER_HOURS)
