"""Chat Completions: replies, whole or streamed, in every dialect that was seen (recordings, SDKs, issue threads).

One `Assembler` reads both: a whole message is read as a single delta, so that both always give the same Reply.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from everturn.errors import InvalidReply
from everturn.http.sse import Event
from everturn.providers import reading
from everturn.providers.base import Delta, Request, assistant_message
from everturn.providers.call_ids import call_ids
from everturn.providers.catalog import row_of
from everturn.providers.failures import ErrorInReply, error_in
from everturn.providers.finish_reasons import ending_of, is_stop_text, later_reason, stop_of
from everturn.providers.json_values import (
    a_count,
    a_dict,
    a_list,
    a_str,
    an_int,
    as_list,
    mend_texts,
    text_or_json,
    write_json,
)
from everturn.providers.openai_chat.blocks import Blocks, is_blocks, thought_in
from everturn.providers.openai_chat.calls import PartialCall, PartialCalls, tool_call
from everturn.providers.openai_chat.media import Media
from everturn.providers.openai_chat.messages import CAME_IN, UNKNOWN
from everturn.providers.reading import MAX_REPLY_NAME_CHARS, object_of, stop_texts, takes_arguments, unusable_reply
from everturn.providers.reply_details import details_of
from everturn.providers.reported_costs import reported_cost_usd
from everturn.providers.token_counts import count_tokens, later_usage
from everturn.records import Opaque, Part, Reply, ServerToolUse, Stop, Text, Thinking, Usage
from everturn.text.utf8 import mend
from everturn.tools.provider_defined import custom_names

_MATCHED = ("stop_reason", "matched_stop")
"""Fields of a choice in which vLLM and SGLang say which stop text came up; null or a token's number if none did."""

_OF_A_MESSAGE = frozenset(
    {
        *(
            "role",
            "content",
            "refusal",
            "tool_calls",
            "function_call",
            "executed_tools",
            "annotations",
            "audio",
            "images",
        ),
        *("reasoning_content", "reasoning", "reasoning_details", "extra_content"),
        # Said of a reply, and no part of it: Azure's `context`, vLLM's tokens, SGLang's states.
        *("name", "id", "object", "index", "error", "parsed", "logprobs", "context", "token_ids", "hidden_states"),
    }
)
"""The fields of a message that we read, or leave out. Any other goes back: gateways keep signatures there, such as
LiteLLM's `thinking_blocks` and GitHub Copilot's `reasoning_opaque`."""


_SOURCES = ("citations", "search_results")
"""What Perplexity, and gateways before other searching models, put beside the choices: what [1] in the text is."""


def decode(body: object, request: Request) -> Reply:
    """The reply in the body of an answer that is not streamed. Raises InvalidReply, ErrorInReply."""
    assembler = Assembler(request)
    assembler.take_chunk(a_dict(body), is_whole_reply=True)
    reply = assembler.finish()
    if assembler.broke_off:
        raise unusable_reply(request.model, "it does not say why it stopped")
    return reply


@dataclass(slots=True)
class Assembler:
    """Events of one stream in, one Reply out."""

    request: Request
    done: bool = False
    """Whether the stream said that it has ended. Some servers leave the connection open after that."""
    _index: Any = None
    """The index of the choice that is read."""
    _whole_message: dict[str, Any] = field(default_factory=dict)
    """A stream's message, of a gateway that sends no deltas, or empty ones."""
    _answered: bool = False
    _said_something: bool = False
    """Whether a delta had at least one field, even an empty one."""
    _finish: str = ""
    _text: list[str] = field(default_factory=list)
    _thinking: list[str] = field(default_factory=list)
    _refused: bool = False
    _calls: PartialCalls = field(default_factory=PartialCalls)
    _null_calls: bool = False
    """Whether a null stands in a list of calls: beside a text it says nothing, alone it may be a call that was lost."""
    _ran: dict[Any, dict[str, Any]] = field(default_factory=dict)
    """Groq's own tools that it ran, by their numbers."""
    _reasoning: list[Any] = field(default_factory=list)
    """OpenRouter's reasoning_details."""
    _came_in: str = ""
    """The field in which thoughts come as plain text; the details then only repeat them."""
    _annotations: list[Any] = field(default_factory=list)
    _beside: dict[str, Any] = field(default_factory=dict)
    """Gemini's extra_content."""
    _unknown: dict[str, Any] = field(default_factory=dict)
    """Other fields of the message."""
    _blocks: Blocks = field(default_factory=Blocks)
    """The content, if it came as blocks."""
    _stop_text: bool | None = None
    """Whether the server says that a stop text came up; None if it does not say."""
    _usage: dict[str, Any] = field(default_factory=dict)
    _id: str = ""
    _media: Media | None = None
    _reply_fields: dict[str, Any] = field(default_factory=dict)
    """About the reply as a whole: fields of chunks, and `logprobs`."""

    @property
    def complete(self) -> bool:
        """Whether the whole reply has arrived, so that a connection that breaks now costs nothing."""
        return self._answered and (self.done or bool(self._finish))

    @property
    def broke_off(self) -> bool:
        """Whether its server left off before it counted and gave a reason. Ollama 0.17.4 does so in silence where a
        model repeats a token 30 times. A server that only leaves one of the two out says nothing by it."""
        return not self._finish and self._usage.get("completion_tokens") == 0

    @property
    def usage_so_far(self) -> Usage:
        """What the server has counted so far; nothing if it counts at the end."""
        return _read_usage(self._usage)

    def feed(self, event: Event) -> list[Delta]:
        """The deltas in the event. Raises ErrorInReply for an error, InvalidReply for anything that is not a chunk."""
        data = event.data.strip()
        if data == "[DONE]":
            self.done = True
        if self.done or not data:
            return []
        return self.take_chunk(object_of(event, self.request.model))

    def take_chunk(self, chunk: dict[str, Any], *, is_whole_reply: bool = False) -> list[Delta]:
        """Reads one chunk of a stream, or the whole reply if `is_whole_reply`."""
        # Called for every few letters of a reply: it checks only fields that are there, not all that are possible.
        choices = chunk.get("choices")
        if (chunk.get("error") or not choices or "x_groq" in chunk) and (error := error_in(chunk)):
            raise ErrorInReply(error)
        if not self._id:
            self._id = str(chunk.get("id") or "")
            self._reply_fields |= {name: chunk[name] for name in ("model", "provider") if chunk.get(name)}
        if chunk.get("service_tier"):
            self._reply_fields["service_tier"] = chunk["service_tier"]
        if "citations" in chunk or "search_results" in chunk:  # all so far, in each chunk
            self._reply_fields |= {name: chunk[name] for name in _SOURCES if chunk.get(name)}
        choice: dict[str, Any] = {}
        if isinstance(choices, list) and choices:
            first = choices[0]
            if type(first) is dict and self._index is not None and first.get("index") == self._index:
                choice = first
            else:
                choice = self._find_choice(choices)
        if chunk.get("usage") or "usage" in choice or "x_groq" in chunk:
            for usage in (choice.get("usage"), a_dict(chunk.get("x_groq")).get("usage"), chunk.get("usage")):
                self._usage = later_usage(self._usage, usage)
        if not choice:
            return []
        self._answered = True
        self.done = self.done or is_whole_reply
        if choice.get("error"):
            raise ErrorInReply({"error": choice["error"]})
        if finish := choice.get("finish_reason"):
            self._finish = later_reason(self._finish, self._finish_reason(finish, choice))
        if choice.get("logprobs") or choice.get("content_filter_results"):
            self._take_beside(choice)
        field_of_delta = "message" if is_whole_reply else "delta"
        delta = choice.get(field_of_delta)
        if "message" in choice and not is_whole_reply:
            self._whole_message = a_dict(choice["message"]) or self._whole_message
        if delta is None:
            return []
        if not isinstance(delta, dict):
            raise self._invalid_reply(f"its {field_of_delta} is not a JSON object")
        return self._take_delta(delta, is_whole_reply=is_whole_reply)

    def _finish_reason(self, finish: object, choice: dict[str, Any]) -> str:
        """Why the reply ended. If the common field says that all is well, what the model's own provider said counts:
        OpenRouter has it beside that, LiteLLM one level below."""
        # SGLang's own form is an object; a number, as of protobuf's enums, is nothing that could be looked up.
        reason = a_str(a_dict(finish).get("type")) or text_or_json(finish)
        matched = next((choice[name] for name in _MATCHED if name in choice), ...)
        own_reason = a_dict(choice.get("provider_specific_fields")).get("native_finish_reason")
        native = a_str(choice.get("native_finish_reason")) or a_str(own_reason)
        by_reason = is_stop_text(reason) or is_stop_text(native)
        if matched is not ... or by_reason:
            # Of a gateway, the same field may hold what Claude calls it: end_turn.
            is_text = bool(a_str(matched)) and ending_of(a_str(matched)) == "unknown"
            self._stop_text = is_text or by_reason or a_str(matched) in self.request.settings.stop
        if ending_of(reason) == "end" and ending_of(native) not in {"end", "paused", "unknown"}:
            return native
        return reason

    def _find_choice(self, choices: list[Any]) -> dict[str, Any]:
        """Of several replies to one question (`n`), which come interleaved, always the same one; else empty."""
        if self._index is None and (first := a_dict(choices[0])):
            several = a_count(self.request.settings.extra.get("n")) > 1
            self._index = 0 if several else _index_of(first) or 0
        return next((choice for choice in map(a_dict, choices) if _index_of(choice) in {None, self._index}), {})

    def _take_delta(self, delta: dict[str, Any], *, is_whole_reply: bool) -> list[Delta]:
        deltas: list[Delta] = []
        self._said_something = self._said_something or bool(delta)
        for name, value in delta.items():
            if not value and not (name == "content" and is_whole_reply and self._is_json(value)):
                continue
            match name:
                case "content" if isinstance(value, str):
                    if self._blocks:
                        self._blocks.add_text(value)
                    else:
                        self._text.append(value)
                    deltas.append(Delta("text", mend(value)))
                case "content" if is_blocks(value) or is_blocks([value]):
                    deltas += self._take_blocks(as_list(value), is_whole_reply=is_whole_reply)
                case "content" if self._is_json(value):
                    # Cloudflare's JSON mode: the object itself, where others send its text.
                    deltas.append(self._add_text(write_json(value).decode()))
                case "content" if isinstance(value, list):
                    # Bare texts, of which gateways make lists; else no block that could be read.
                    deltas += map(self._add_text, filter(None, map(a_str, value)))
                case "refusal" if isinstance(value, str):
                    self._refused = True
                    if value != delta.get("content"):  # gateways give it under both names
                        deltas.append(self._add_text(value))
                case "reasoning_content" | "reasoning" | "reasoning_details":
                    deltas += self._take_thinking(name, value, delta)
                case "tool_calls" if isinstance(value, list | dict):
                    for entry in as_list(value):
                        if entry is None:
                            self._null_calls = True
                        else:
                            self._calls.add_entry(a_dict(entry), request=self.request, is_whole_reply=is_whole_reply)
                case "function_call" if isinstance(value, dict):
                    self._calls.add_legacy_entry(value, request=self.request, is_whole_reply=is_whole_reply)
                case "error":
                    raise ErrorInReply({"error": value})
                case "content" | "tool_calls":
                    raise self._invalid_reply(f"its {name} can't be of type {type(value).__name__}")
                case "executed_tools":
                    for number, entry in enumerate(map(a_dict, a_list(value))):
                        self._ran[str(entry.get("index", number))] = entry
                case "annotations":
                    self._annotations += a_list(value)
                case "audio" if isinstance(value, dict):
                    if words := self._media_so_far.take_audio(value):
                        deltas.append(Delta("text", mend(words)))
                case "images":
                    self._media_so_far.take_images(a_list(value), beside=True)
                case "extra_content":
                    self._beside |= a_dict(value)
                case _ if name not in _OF_A_MESSAGE:
                    self._unknown[name] = _join_values(self._unknown.get(name), value)
                    if name == "thinking_blocks" and not (delta.get("reasoning_content") or delta.get("reasoning")):
                        deltas += self._take_signed(a_list(value))
        return deltas

    def _add_text(self, text: str) -> Delta:
        self._text.append(text)
        return Delta("text", mend(text))

    def _is_json(self, content: object) -> bool:
        """Whether a content that is no text is the output that was asked for, as JSON. An empty list says nothing."""
        wants_json = self.request.output_schema is not None or "response_format" in self.request.settings.extra
        return isinstance(content, dict) or (wants_json and content is not None and content not in ("", []))

    def finish(self) -> Reply:
        """The reply. Raises InvalidReply if the stream stopped in the middle, or held no reply at all."""
        if not self._answered:
            raise self._invalid_reply("it holds no choice")
        if not self.complete:
            raise self._invalid_reply("the stream ended in the middle")
        if self._whole_message and not self._has_content:
            self._take_delta(self._whole_message, is_whole_reply=True)
        stop: Stop = "end"
        if self._finish:
            stop = stop_of(self._finish, self.request.model)
        if not self._said_something and stop == "end":
            raise self._invalid_reply("it holds no message")
        if self._calls.bare or (self._null_calls and not self._has_content):
            raise self._invalid_reply("it holds a tool call without a function")
        self._calls.drop_repeated()
        return Reply(
            message=assistant_message([*self._content_parts(), *self._call_parts(stop)], request=self.request),
            stop=self._final_stop(stop),
            usage=_read_usage(self._usage),
            cost_usd=reported_cost_usd(self._usage, self.request.model),
            model=self.request.model.name,
            response_id=reading.response_id(self._id),
            details=self._reply_details(),
        )

    @property
    def _has_content(self) -> bool:
        """Whether anything came that a whole message would say again."""
        return bool(self._text or self._thinking or self._blocks or self._calls.calls or self._media)

    def _reply_details(self) -> dict[str, Any]:
        fields = dict(self._reply_fields)
        return details_of(
            self.request.model, served_by=fields.pop("model", ""), tier=fields.pop("service_tier", ""), **fields
        )

    def _take_thinking(self, name: str, value: Any, delta: dict[str, Any]) -> Iterator[Delta]:
        # Some servers send two or three of these names, with the same text.
        plain = next((field for field in ("reasoning_content", "reasoning") if thought_in(delta.get(field))), "")
        if a_str(delta.get(plain)):  # what came in another form is shown, but can't go back as a text
            self._came_in = self._came_in or plain
        if name == "reasoning_details":
            details = [detail for detail in a_list(value) if isinstance(detail, dict)]
            for detail in details:
                _merge_detail(self._reasoning, detail)
            if self._came_in or plain:
                return
            value = "".join(a_str(detail.get("text")) or a_str(detail.get("summary")) for detail in details)
        elif name == "reasoning" and plain != "reasoning":
            return
        if thought := thought_in(value):
            self._thinking.append(thought)
            yield Delta("thinking", mend(thought))

    def _take_blocks(self, blocks: list[Any], *, is_whole_reply: bool) -> Iterator[Delta]:
        """A content that is a list, such as Mistral's thoughts and texts."""
        if not self._blocks and self._text:
            self._blocks.add_text("".join(self._text))
            self._text.clear()
        for block in map(a_dict, blocks):
            if block.get("type") == "image_url":
                self._media_so_far.take_images([block], beside=False)
            elif block.get("type") == "refusal" and (text := a_str(block.get("refusal"))):
                self._refused = True
                self._blocks.add_text(text)
                yield Delta("text", mend(text))
            elif block and (delta := self._blocks.add_block(block, is_whole_reply=is_whole_reply)):
                yield delta

    def _take_signed(self, blocks: list[Any]) -> Iterator[Delta]:
        """The thoughts of signed blocks beside the content, if nothing else shows them."""
        for block in map(a_dict, blocks):
            if thought := a_str(block.get("thinking")):
                self._thinking.append(thought)
                yield Delta("thinking", mend(thought))

    @property
    def _media_so_far(self) -> Media:
        self._media = self._media or Media(self.request)
        return self._media

    def _take_beside(self, choice: dict[str, Any]) -> None:
        """Other fields of a choice: logprobs, in pieces, and Azure's filters if one of them removed something."""
        details = self._reply_fields
        for name, tokens in a_dict(choice.get("logprobs")).items():
            if isinstance(tokens, list):
                details.setdefault("logprobs", {}).setdefault(name, []).extend(tokens)
        filters = a_dict(choice.get("content_filter_results"))
        if any(a_dict(verdict).get("filtered") for verdict in filters.values()):
            details["content_filter_results"] = filters

    def _content_parts(self) -> Iterator[Part]:
        """Thoughts, tools that the server ran, and text: each with the fields that the server put beside it."""
        text = mend("".join(self._text))
        thinking = mend("".join(self._thinking))
        if self._blocks.is_plain:
            text = self._blocks.text_of("text") + text
            thinking += self._blocks.text_of("thinking")
        extra_fields: dict[str, Any] = {}
        if self._beside:
            extra_fields["extra_content"] = mend_texts(self._beside)
        if self._unknown:
            extra_fields[UNKNOWN] = mend_texts(self._unknown)
        thoughts: dict[str, Any] = {}
        if self._reasoning:
            thoughts["reasoning_details"] = mend_texts(self._reasoning)
        if not text:
            thoughts |= extra_fields
        # OpenRouter's `reasoning` only says its details again, and is not wanted back beside them.
        again = self._came_in == "reasoning" and bool(self._reasoning)
        if self._came_in and not again and not row_of(self.request.model.provider).dialect.reasoning_field:
            thoughts[CAME_IN] = self._came_in
        if thinking or thoughts:
            yield Thinking(text=thinking, extra=thoughts)
        for ran in self._ran.values():
            yield ServerToolUse(
                name=mend(a_str(ran.get("type")))[:MAX_REPLY_NAME_CHARS] or "tool", data=mend_texts(ran)
            )
        if not self._blocks.is_plain:
            yield from self._blocks.as_parts()
        if text:
            if self._annotations:
                extra_fields["annotations"] = mend_texts(self._annotations)
            yield Text(text=text, extra=extra_fields)
        if self._media:
            yield from self._media.as_parts()

    def _call_parts(self, stop: Stop) -> Iterator[Part]:
        """The calls, each with an id that is new in the conversation, and the same each time this is read."""
        our_calls = self._our_calls()
        cut = stop != "end" or self._stop_text is True
        request = self.request
        named = call_ids(
            [call.id for call in our_calls], request.messages, response_id=self._id, hidden=request.hidden_ids
        )
        ids = iter(named)
        for call in self._calls.calls:
            if call not in our_calls:
                custom = {"name": mend(call.name)[:MAX_REPLY_NAME_CHARS], "input": mend(call.text)}
                yield Opaque(data={**mend_texts(call.extra), "id": mend(call.id), "type": "custom", "custom": custom})
                continue
            call_id, provider_id = next(ids)
            is_last = call is our_calls[-1]
            yield tool_call(
                call,
                name=reading.own_name(call.name, request),
                call_id=call_id,
                provider_id=provider_id,
                cut_off=cut and is_last,
                bare_is_whole=not is_last or self._bare_is_whole(call),
            )

    def _bare_is_whole(self, call: PartialCall) -> bool:
        """Whether a last call without arguments is one that has none. It may also be one that a stop text cut off, or a
        server that was stopped: only some say so."""
        if not self._finish:
            return False
        may_be_cut = bool(stop_texts(self.request)) and self._stop_text is None
        return not may_be_cut or not takes_arguments(self.request, mend(call.name))

    def _our_calls(self) -> list[PartialCall]:
        """The calls that we have to answer: of functions, and of the custom tools that we declared."""
        declared = custom_names(self.request.raw_tools)
        return [call for call in self._calls.calls if not call.custom or mend(call.name) in declared]

    def _final_stop(self, stop: Stop) -> Stop:
        if stop != "length" and self._our_calls():
            return "tool_calls"
        if self._refused and stop == "end":
            return "refused"
        return stop

    def _invalid_reply(self, what: str) -> InvalidReply:
        return unusable_reply(self.request.model, what)


def _index_of(choice: dict[str, Any]) -> int | None:
    return an_int(choice.get("index"))


def _merge_detail(details: list[Any], detail: dict[str, Any]) -> None:
    """Adds a piece of OpenRouter's reasoning: to the block that it continues, or as a new one.

    Texts and summaries come in pieces, a signature after its text. What is encrypted comes whole. LiteLLM's
    thinking_blocks are the same.
    """
    last_detail = details[-1] if details and isinstance(details[-1], dict) else {}
    going_on = a_str(detail.get("type")) in {"reasoning.text", "reasoning.summary", "thinking"} and all(
        last_detail.get(name) == detail.get(name) for name in ("type", "index")
    )
    if not going_on or (last_detail.get("signature") and (detail.get("text") or detail.get("thinking"))):
        details.append(dict(detail))
        return
    for name, value in detail.items():
        if name in {"text", "summary", "thinking"} and isinstance(value, str):
            last_detail[name] = a_str(last_detail.get(name)) + value
        elif value is not None:
            last_detail[name] = value


def _join_values(known: Any, value: Any) -> Any:
    """A field of the message that we don't know, with what a further delta says of it."""
    if known is None or known == value:
        return value
    if isinstance(known, dict) and isinstance(value, dict):
        return {name: _join_values(known.get(name), value.get(name, known.get(name))) for name in {**known, **value}}
    if isinstance(known, str) and isinstance(value, str):
        return known + value
    if isinstance(known, list) and isinstance(value, list):
        blocks = [dict(item) if isinstance(item, dict) else item for item in known]
        for item in value:
            if isinstance(item, dict):
                _merge_detail(blocks, item)
            else:
                blocks.append(item)
        return blocks
    return value


def _read_usage(usage: dict[str, Any]) -> Usage:
    return count_tokens(usage, input_name="prompt_tokens", output_name="completion_tokens")
