"""Anthropic Messages: replies, whole or streamed.

One `Assembler` reads both: a whole message is read as one that starts with all of its blocks, so that both always
give the same Reply. Blocks keep their order. Fields that we do not know are kept unchanged, for they are sent back.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from everturn.errors import InvalidReply
from everturn.http.sse import Event
from everturn.providers import reading
from everturn.providers.base import Delta, Request, assistant_message
from everturn.providers.call_ids import call_ids
from everturn.providers.failures import ErrorInReply, error_in
from everturn.providers.finish_reasons import is_stop_text, stop_of
from everturn.providers.json_values import (
    a_count,
    a_dict,
    a_list,
    a_str,
    an_int,
    arguments_in,
    as_list,
    mend_texts,
    text_or_json,
)
from everturn.providers.reading import (
    MAX_CALLS,
    MAX_REPLY_NAME_CHARS,
    object_of,
    stop_texts,
    takes_arguments,
    unusable_reply,
)
from everturn.providers.reply_details import MAX_CHANGES, details_of
from everturn.providers.token_counts import count_tokens
from everturn.records import Opaque, Part, PartOfUsage, Reply, ServerToolUse, Stop, Text, Thinking, ToolCall, Usage
from everturn.text.utf8 import mend
from everturn.tools.provider_defined import member_name, names_beside

MAX_BLOCKS: Final = 4096

_OF_AN_INPUT: Final = ("input_transformations", "context_management")
"""What was changed in the request before the model saw it."""
_OF_A_MESSAGE: Final = ("id", "model", "stop_reason", "stop_sequence", "stop_details", "container", *_OF_AN_INPUT)

_DELTA_KINDS: dict[str, Any] = {"text": "text", "thinking": "thinking"}


def decode(body: object, request: Request) -> Reply:
    """The reply in the body of an answer that is not streamed. Raises InvalidReply, ErrorInReply."""
    assembler = Assembler(request)
    message = a_dict(body)
    assembler.check_error(message)
    if message.get("content") is None and message.get("stop_reason"):
        message = message | {"content": []}  # Ollama 0.17.4 has null for no blocks at all, as of a call that was cut
    if not message.get("content") and not isinstance(message.get("content"), list):
        raise assembler.invalid_reply("it holds no content")
    assembler.take_event({"type": "message_start", "message": message})
    assembler.take_event({"type": "message_stop"})
    return assembler.finish()


@dataclass(slots=True)
class _Block:
    """A content block as received so far: what it started with, and what was added since, by field."""

    start: dict[str, Any]
    pieces: dict[str, list[str]] = field(default_factory=dict)
    over: bool = False
    """Whether it came whole, or its end came."""
    closed: bool = False
    """Whether its end came."""

    @property
    def type(self) -> str:
        return a_str(self.start.get("type"))

    def add_piece(self, name: str, piece: str) -> None:
        self.pieces.setdefault(name, []).append(piece)

    def to_dict(self) -> dict[str, Any]:
        """The block, with all text that was added to it; `input` is left as it started."""
        texts = {name: a_str(self.start.get(name)) + "".join(pieces) for name, pieces in self.pieces.items()}
        texts.pop("input", None)
        return mend_texts(self.start | texts)  # type: ignore[no-any-return]

    def parse_arguments(self) -> tuple[dict[str, Any], str | None]:
        """The input, and its text if that is no JSON object. A streamed call without any has an empty text."""
        text = mend("".join(self.pieces.get("input", ())))
        if text.strip() in {"", "null"}:
            given = self.start.get("input") or {}
            if isinstance(given, dict):
                return mend_texts(given), None
            text = mend(text_or_json(given))  # as OpenAI's protocols write it
        arguments = arguments_in(text)
        if arguments is None:
            return {}, text
        return arguments, None

    def is_again(self, start: dict[str, Any]) -> bool:
        """Whether a start under this block's index is this block's, sent again."""
        same = all(self.start.get(name) == start.get(name) for name in ("type", "id"))
        return same and (not self.closed or bool(start.get("id")))


@dataclass(slots=True)
class Assembler:
    """Events of one stream in, one Reply out."""

    request: Request
    done: bool = False
    """Whether the stream said that it has ended."""
    _started: bool = False
    _blocks: list[_Block] = field(default_factory=list)
    _latest: dict[int, _Block] = field(default_factory=dict)
    """By index, the latest block under it. Some gateways give one index to several."""
    _message: dict[str, Any] = field(default_factory=dict)
    """The fields of the message as a whole: its id, why it stopped, its container."""
    _usage: dict[str, Any] = field(default_factory=dict)
    _may_begin_again: bool = False
    """Whether the message's start came once more, and no block since then said if the blocks come again, too."""

    @property
    def complete(self) -> bool:
        """Whether the whole reply has arrived, so that a connection that breaks now costs nothing."""
        return self.done

    @property
    def usage_so_far(self) -> Usage:
        """What the server has counted so far; nothing if it counts at the end."""
        return _read_usage(self._usage)

    def feed(self, event: Event) -> list[Delta]:
        """The deltas in the event. Raises ErrorInReply for an error, InvalidReply for anything that is not an event."""
        if self.done or not event.data.strip():
            return []
        if event.data.strip() == "[DONE]":  # of gateways, some of which send no message_stop
            self.done = bool(self._message.get("stop_reason"))
            return []
        data = object_of(event, self.request.model)
        self.check_error(data)
        if "type" not in data and event.name:
            data["type"] = event.name
        return self.take_event(data)

    def check_error(self, data: dict[str, Any]) -> None:
        """Raises ErrorInReply if `data`, an event or a whole body, is an error."""
        if error := error_in(data):
            raise ErrorInReply(error)

    def take_event(self, data: dict[str, Any]) -> list[Delta]:
        """Reads one event. Pings and unknown events are ignored."""
        match data.get("type"):
            case "message_start":
                deltas = self._start_message(a_dict(data.get("message")))
            case "content_block_start":
                index = an_int(data.get("index"))
                if index is None:
                    index = max(self._latest, default=-1) + 1
                deltas = self._start_block(index, a_dict(data.get("content_block")))
            case "content_block_stop":
                if block := self._block_of(data):
                    block.over = block.closed = True
                return []
            case "content_block_delta":
                deltas = self._extend_block(self._block_of(data), a_dict(data.get("delta")))
            case "message_delta":
                self._started = True
                self._message |= {k: v for k, v in a_dict(data.get("delta")).items() if v is not None}
                self._message |= {name: data[name] for name in _OF_AN_INPUT if data.get(name)}
                self._take_usage(data.get("usage"))
                return []
            case "message_stop":
                self.done = self._started
                return []
            case _:
                return []
        return [Delta(piece.kind, mend(piece.text)) for piece in deltas if piece.text]

    def finish(self) -> Reply:
        """The reply. Raises InvalidReply if the stream stopped in the middle, ErrorInReply if the context was full."""
        if not self._started:
            raise self.invalid_reply("it holds no message")
        if not self.done:
            raise self.invalid_reply("the stream ended in the middle")
        reason = a_str(self._message.get("stop_reason"))
        if not reason:
            # vLLM ends its streams in good order, with null, if it is stopped while it writes: there is no knowing
            # whether this is the whole reply.
            raise self.invalid_reply("it does not say why it stopped")
        stop = stop_of(reason, self.request.model)
        parts = self._reply_parts(stop)
        if stop not in {"length", "refused"} and any(isinstance(part, ToolCall) for part in parts):
            stop = "tool_calls"  # calls are answered, whatever reason goes with them
        return Reply(
            message=assistant_message(parts, request=self.request),
            stop=stop,
            usage=_read_usage(self._usage),
            by_others=_by_others(self._usage, self.request.model.model),
            model=self.request.model.name,
            response_id=reading.response_id(self._message.get("id")),
            details=self._reply_details(),
        )

    def _reply_details(self) -> dict[str, Any]:
        fallbacks = [block.start for block in self._blocks if block.type == "fallback"]
        served_by = self._message.get("model")
        if fallbacks:
            served_by = a_dict(fallbacks[-1].get("to")).get("model") or served_by
        speed = self._usage.get("speed")
        geo = a_str(self._usage.get("inference_geo"))
        return details_of(
            self.request.model,
            served_by=served_by,
            tier=self._usage.get("service_tier"),
            speed=None if speed == "standard" else speed,
            inference_geo=None if geo in {"global", "not_available"} else geo,
            stop_details=self._message.get("stop_details"),
            stop_sequence=self._message.get("stop_sequence"),
            input_transformations=a_list(self._message.get("input_transformations"))[:MAX_CHANGES],
            applied_edits=a_list(a_dict(self._message.get("context_management")).get("applied_edits"))[:MAX_CHANGES],
        )

    def invalid_reply(self, what: str) -> InvalidReply:
        return unusable_reply(self.request.model, what)

    def _start_message(self, message: dict[str, Any]) -> list[Delta]:
        self._started = True
        if message.get("id") == self._message.get("id"):
            self._may_begin_again = True
            self._message |= {name: message[name] for name in _OF_A_MESSAGE if message.get(name) is not None}
        else:
            # Proxies that fail over splice a second message into the stream: what came of the first is void.
            self._blocks = []
            self._latest = {}
            self._message = {name: message.get(name) for name in _OF_A_MESSAGE}
            self._usage = {}
        self._take_usage(message.get("usage"))
        blocks = enumerate(map(_as_block, as_list(message.get("content") or [])))
        return [delta for index, block in blocks for delta in self._start_block(index, block, over=True)]

    def _block_of(self, data: dict[str, Any]) -> _Block | None:
        """The block that an event is about: of its index, or the latest."""
        index = an_int(data.get("index"))
        if index is None:
            index = max(self._latest, default=-1)
        return self._latest.get(index)

    def _start_block(self, index: int, start: dict[str, Any], *, over: bool = False) -> list[Delta]:
        if not start:
            raise self.invalid_reply("a block starts that is invalid")
        # llama.cpp (build 11549) sends message_start with its first token. If that is half a letter, nothing is sent
        # for it, and the stream begins with a block.
        self._started = True
        if self._may_begin_again and index in self._latest:
            self._blocks = []
            self._latest = {}
        self._may_begin_again = False
        if len(self._blocks) >= MAX_BLOCKS:
            raise self.invalid_reply(f"it holds more than {MAX_BLOCKS} blocks")
        block = _Block(dict(start), over=over)
        previous = self._latest.get(index)
        if previous and previous.is_again(start):
            self._blocks = [block if other is previous else other for other in self._blocks]
        else:
            self._blocks.append(block)
        self._latest[index] = block
        if kind := _DELTA_KINDS.get(block.type):
            return [Delta(kind, a_str(start.get(block.type)))]
        return []

    def _extend_block(self, block: _Block | None, delta: dict[str, Any]) -> list[Delta]:
        if block is None:
            raise self.invalid_reply("it continues a block that never started")
        self._may_begin_again = False
        match delta.get("type"):
            case "text_delta":
                return self._add_text(block, "text", delta)
            case "thinking_delta":
                return self._add_text(block, "thinking", delta)
            case "input_json_delta":
                piece = delta.get("partial_json")
                if piece is not None:
                    block.add_piece("input", text_or_json(piece))
            case "signature_delta":
                block.start["signature"] = a_str(delta.get("signature"))
            case "citations_delta":
                if not isinstance(block.start.get("citations"), list):
                    block.start["citations"] = []
                if citation := delta.get("citation"):
                    block.start["citations"].append(citation)
            case _:  # such as compaction_delta: fields of the block that come later
                for name, value in delta.items():
                    if isinstance(value, str) and isinstance(block.start.get(name), str) and name != "type":
                        block.add_piece(name, value)
                    elif value is not None and name != "type":
                        block.start[name] = value
        return []

    def _add_text(self, block: _Block, name: str, delta: dict[str, Any]) -> list[Delta]:
        text = a_str(delta.get(name))
        block.add_piece(name, text)
        return [Delta(_DELTA_KINDS[name], text)]

    def _take_usage(self, usage: object) -> None:
        # The counts of message_delta are cumulative. Some servers put 0 there for what they said at the start; one that
        # counts the input again means its zeros too, as after a compaction.
        counts = a_dict(usage)
        again = bool(counts.get("input_tokens"))
        self._usage |= {name: value for name, value in counts.items() if value or again or name not in self._usage}

    def _may_be_cut(self, block: _Block) -> bool:
        """Whether a call may have been cut off at a stop text. Claude says so; other servers say that it was a call."""
        if is_stop_text(a_str(self._message.get("stop_reason"))):
            return True
        silent = bool(self.request.model.base_url) and stop_texts(self.request)
        return silent and takes_arguments(self.request, a_str(block.start.get("name")))

    def _reply_parts(self, stop: Stop) -> list[Part]:
        blocks = self._blocks
        calls = [block for block in blocks if block.type == "tool_use"]
        if len(calls) > MAX_CALLS:
            raise self.invalid_reply(f"it holds more than {MAX_CALLS} tool calls")
        if stop == "refused":
            # Nobody shall run what a model was stopped at; unanswered, such a call would have to be made up for.
            blocks = [block for block in blocks if block.type != "tool_use"]
        given = [a_str(call.start.get("id")) for call in calls]
        request = self.request
        named = call_ids(given, request.messages, response_id=a_str(self._message.get("id")), hidden=request.hidden_ids)
        ids = iter(named)
        names: dict[str, str] = {}
        parts: list[Part] = []
        for block in blocks:
            cut_off = not block.over or (block is blocks[-1] and (stop == "length" or self._may_be_cut(block)))
            if block.type == "tool_use":
                parts += _tool_call(block, next(ids), request, cut_off=cut_off)
            else:
                parts += _block_parts(block, names)
        if container := mend_texts(a_dict(self._message.get("container"))):
            parts.append(Opaque(data={"container": container}))  # of no type, for it is no block
        return parts


def _as_block(given: object) -> dict[str, Any]:
    """A block of a whole message's content, whose texts may come bare, as requests have them."""
    if isinstance(given, str):
        return {"type": "text", "text": given}
    return a_dict(given)


def _block_parts(block: _Block, names: dict[str, str]) -> Iterator[Part]:
    """The part for a block that is no call of ours; `names`: the server's tools so far, by the ids of their uses."""
    block_data = block.to_dict()
    kind = block.type
    match kind:
        case "text":
            if text := a_str(block_data.get("text")):
                yield Text(text=text, extra=_extra_fields(block_data, "text"))
        case "thinking":
            yield Thinking(text=a_str(block_data.get("thinking")), extra=_extra_fields(block_data, "thinking"))
        case _ if kind.endswith("_tool_use"):
            block_data["input"] = block.parse_arguments()[0]
            name = a_str(block_data.get("name"))[:MAX_REPLY_NAME_CHARS]
            names[a_str(block_data.get("id"))] = name
            yield ServerToolUse(name=name, data=block_data)
        case _ if kind.endswith("_tool_result"):
            named = names.get(a_str(block_data.get("tool_use_id"))) or kind.removesuffix("_tool_result")
            yield ServerToolUse(name=named[:MAX_REPLY_NAME_CHARS], data=block_data)
        case _:
            if "input" in block.pieces:
                block_data["input"] = block.parse_arguments()[0]
            yield Opaque(data=block_data)


def _tool_call(block: _Block, ids: tuple[str, str | None], request: Request, *, cut_off: bool) -> Iterator[Part]:
    block_data = block.to_dict()
    name = reading.own_name(a_str(block_data.get("name")), request)
    if toolset := a_str(block_data.get("toolset_name")):
        used_names = names_beside(toolset, request.raw_tools, (tool.name for tool in request.tools))
        name = member_name(toolset, name, taken_names=used_names)
    arguments, unparsed = block.parse_arguments()
    said_nothing = not "".join(block.pieces.get("input", ())).strip()
    if cut_off and said_nothing and not arguments and unparsed is None:
        unparsed = ""  # no arguments are {}, unless the reply was cut off before they came
    yield ToolCall(
        call_id=ids[0],
        provider_id=ids[1],
        name=name,
        arguments=arguments,
        unparsed=unparsed,
        extra=_extra_fields(block_data, "id", "name", "input"),
    )


def _extra_fields(block: dict[str, Any], *known_fields: str) -> dict[str, Any]:
    """The fields that are not a block's own. Nulls are left out: they would cost history bytes in each message."""
    return {name: value for name, value in block.items() if name not in {"type", *known_fields} and value is not None}


_APART: Final = frozenset({"compaction", "advisor_message"})
"""Iterations that the counts of the message do not include: a summary, and what a second model advised."""


def _read_usage(usage: dict[str, Any]) -> Usage:
    """All tokens that are paid for."""
    apart = [_count_tokens(item) for item in _usage_iterations(usage) if a_str(item.get("type")) in _APART]
    return sum(apart, _count_tokens(usage))


def _by_others(usage: dict[str, Any], model: str) -> tuple[PartOfUsage, ...]:
    """What other models used: an advisor, and one that took over. The counts of the message are told apart only if
    they are the sum of their iterations."""
    iterations = _usage_iterations(usage)
    inside = [item for item in iterations if a_str(item.get("type")) not in _APART]
    whole = _count_tokens(usage)
    summed = sum(map(_count_tokens, inside), Usage())
    if (whole.input_tokens, whole.output_tokens) != (summed.input_tokens, summed.output_tokens):
        iterations = [item for item in iterations if a_str(item.get("type")) in _APART]
    return tuple(
        PartOfUsage(model=name, usage=_count_tokens(item))
        for item in iterations
        if (name := a_str(item.get("model"))) and not (name == model or name.startswith(f"{model}-20"))
    )


def _usage_iterations(usage: dict[str, Any]) -> list[dict[str, Any]]:
    return [a_dict(item) for item in a_list(usage.get("iterations"))]


def _count_tokens(usage: dict[str, Any]) -> Usage:
    if "input_tokens" not in usage and "prompt_tokens" in usage:  # as the server behind a gateway wrote it
        return count_tokens(usage, input_name="input_tokens", output_name="output_tokens")
    fresh, read, written = (
        a_count(usage.get(name)) for name in ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
    )
    created = a_dict(usage.get("cache_creation"))
    hour, minutes = (a_count(created.get(f"ephemeral_{ttl}_input_tokens")) for ttl in ("1h", "5m"))
    written = max(written, hour + minutes)
    return Usage(
        input_tokens=fresh + read + written,
        output_tokens=a_count(usage.get("output_tokens")),
        cached_tokens=read,
        cache_write_tokens=written,
        cache_write_1h_tokens=hour,
        reasoning_tokens=a_count(a_dict(usage.get("output_tokens_details")).get("thinking_tokens")),
        web_searches=a_count(a_dict(usage.get("server_tool_use")).get("web_search_requests")),
    )
