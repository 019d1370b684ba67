"""Chat Completions: replies, whole or streamed, in every dialect that was seen (recordings, SDKs, issue threads).

One `Assembler` reads both: a whole message is taken as a single delta, so that both always give the same Reply.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from everturn.errors import InvalidReply
from everturn.providers.base import Delta, Request, assistant_message
from everturn.providers.failures import ErrorInReply
from everturn.providers.sse import Event
from everturn.providers.untrusted import a_count, a_dict, a_list, a_str, mend, mended, parse, write
from everturn.records import Part, Reply, Stop, Text, Thinking, ToolCall, Usage

MAX_CALLS = 512
"""In one reply. More are no plan but a loop in the model."""
MAX_NAME_CHARS = 256

_CALL_ID = re.compile(r"[\w.:/-]{1,128}", re.ASCII)
"""Ids that may stand in workflow state, activity ids and command lines. Some gateways pack kilobytes into theirs."""

_STOPS: dict[str, Stop] = {
    "length": "length",
    "max_tokens": "length",
    "model_length": "length",
    "content_filter": "filtered",
    "refusal": "refused",
}
"""What is not listed is the end: `stop`, and whatever servers put in its place."""

_GIVEN_UP = frozenset({"error", "insufficient_system_resource", "abort"})
"""Finish reasons of replies that the server itself broke off."""


def decode(body: object, request: Request) -> Reply:
    """The reply in the body of an answer that is not streamed. Raises InvalidReply, ErrorInReply."""
    assembler = Assembler(request)
    assembler.take(a_dict(body), whole=True)
    return assembler.finish()


@dataclass(slots=True)
class _Call:
    """A tool call as far as it has come."""

    index: int | None
    id: str
    name: str = ""
    pieces: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "".join(self.pieces)

    @property
    def complete(self) -> bool:
        return bool(self.pieces) and self.pieces[-1].endswith("}") and _object(self.text) is not None


@dataclass(slots=True)
class Assembler:
    """Events of one stream in, one Reply out."""

    request: Request
    done: bool = False
    """Whether the stream said that it is over. Some servers leave the connection open after that."""
    _answered: bool = False
    _finish: str = ""
    _text: list[str] = field(default_factory=list)
    _thinking: list[str] = field(default_factory=list)
    _refused: bool = False
    _calls: list[_Call] = field(default_factory=list)
    _usage: dict[str, Any] = field(default_factory=dict)
    _id: str = ""

    @property
    def complete(self) -> bool:
        """Whether the reply is all here, so that a connection that breaks now costs nothing."""
        return self._answered and (self.done or bool(self._finish))

    def feed(self, event: Event) -> list[Delta]:
        """What the event adds to the text. Raises ErrorInReply for an error, InvalidReply for what is no chunk."""
        data = event.data.strip()
        if data == "[DONE]":
            self.done = True
        if self.done or not data:
            return []
        try:
            chunk = parse(data)
        except ValueError as error:
            raise self._invalid(f"an event of the stream is not JSON ({error})") from None
        if event.name == "error":
            raise ErrorInReply(chunk)
        if not isinstance(chunk, dict):
            raise self._invalid("an event of the stream is no JSON object")
        return self.take(chunk)

    def take(self, chunk: dict[str, Any], *, whole: bool = False) -> list[Delta]:
        """Takes in one chunk of a stream, or a `whole` reply."""
        if chunk.get("error"):
            raise ErrorInReply(chunk)
        self._id = self._id or str(chunk.get("id") or "")
        choice = a_dict(next(iter(a_list(chunk.get("choices"))), None))
        for usage in (choice.get("usage"), a_dict(chunk.get("x_groq")).get("usage"), chunk.get("usage")):
            self._usage = a_dict(usage) or self._usage
        if not choice:
            return []
        self._answered = True
        self.done = self.done or whole
        self._finish = a_str(choice.get("finish_reason")) or self._finish
        delta = a_dict(choice.get("message" if whole else "delta"))
        for entry in a_list(delta.get("tool_calls")):
            self._take_call(a_dict(entry), whole=whole)
        deltas = [*self._take_thinking(delta), *self._take_text(delta)]
        return [Delta(piece.kind, mend(piece.text)) for piece in deltas if piece.text]

    def finish(self) -> Reply:
        """The reply. Raises InvalidReply where the stream stopped in the middle, or held no reply at all."""
        if not self._answered:
            raise self._invalid("it holds no choice")
        if not self.complete:
            raise self._invalid("the stream broke off in the middle")
        if self._finish in _GIVEN_UP:
            raise self._invalid(f"the server gave it up ({self._finish})")
        parts: list[Part] = []
        if thinking := mend("".join(self._thinking)):
            parts.append(Thinking(text=thinking))
        if text := mend("".join(self._text)):
            parts.append(Text(text=text))
        parts += self._tool_calls()
        return Reply(
            message=assistant_message(parts, request=self.request),
            stop=self._stop(),
            usage=_usage(self._usage),
            model=self.request.model.name,
            response_id=mend(self._id)[:MAX_NAME_CHARS] or None,
        )

    def _take_thinking(self, delta: dict[str, Any]) -> Iterator[Delta]:
        # Some servers send both names, with the same text.
        text = a_str(delta.get("reasoning_content")) or a_str(delta.get("reasoning"))
        blocks = [a_dict(block) for block in a_list(delta.get("content"))]
        for thought in [text, *(_thought(block) for block in blocks if block.get("type") == "thinking")]:
            self._thinking.append(thought)
            yield Delta("thinking", thought)

    def _take_text(self, delta: dict[str, Any]) -> Iterator[Delta]:
        content = delta.get("content")
        texts = [a_str(content), *(a_str(a_dict(block).get("text")) for block in a_list(content))]
        if refusal := a_str(delta.get("refusal")):
            self._refused = True
            texts.append(refusal)
        for text in texts:
            self._text.append(text)
            yield Delta("text", text)

    def _take_call(self, entry: dict[str, Any], *, whole: bool) -> None:
        """Takes in an entry of `tool_calls`: a new call, or more of one that is there."""
        function = entry.get("function")
        if not isinstance(function, dict):
            return  # a custom tool's call, which nobody declared
        index = entry.get("index")
        index = index if isinstance(index, int) else None
        call_id = str(entry["id"]) if entry.get("id") is not None else ""
        name, arguments = a_str(function.get("name")), function.get("arguments")
        call = None if whole else self._going_on(index, call_id, name)
        if call is None:
            if len(self._calls) >= MAX_CALLS:
                raise self._invalid(f"it holds more than {MAX_CALLS} tool calls")
            call = _Call(index, call_id)
            self._calls.append(call)
        call.id = call.id or call_id
        call.name += name if name != call.name else ""
        if arguments is not None:
            call.pieces.append(arguments if isinstance(arguments, str) else write(arguments).decode())

    def _going_on(self, index: int | None, call_id: str, name: str) -> _Call | None:
        """The call that an entry continues; None where the entry starts a new one.

        Servers number badly (Ollama: index 0 for every call; Mistral: no index) and name badly (no id; the name in
        every piece, or "" after the first). A continuation is what has no name of its own, or the same id, or comes
        while the arguments of a call of that name are not complete yet.
        """
        places = [call for call in self._calls if index is None or call.index == index]
        if index is None and call_id:
            places = [call for call in places if call.id == call_id] or ([] if name else places)
        if not places:
            return None
        latest = places[-1]
        if not name or (call_id and call_id == latest.id):
            return latest
        if (call_id and latest.id) or latest.complete:
            return None
        return latest

    def _tool_calls(self) -> list[ToolCall]:
        """The calls, each with an id that is new in the conversation, and the same however often this is read."""
        messages = self.request.messages
        used = {call.call_id for message in messages for call in message.tool_calls}
        turn = sum(message.role == "assistant" for message in messages)
        given: set[str] = set()
        calls: list[ToolCall] = []
        for number, call in enumerate(self._calls):
            call_id, provider_id = mend(call.id), None
            if call_id in used or not _CALL_ID.fullmatch(call_id):
                provider_id = call_id if call_id not in given else None
                call_id = _new_id(f"call_{turn}_{number}", used)
            used.add(call_id)
            given.add(mend(call.id))
            cut_off = self._finish in _STOPS and number == len(self._calls) - 1
            calls.append(_tool_call(call, call_id=call_id, provider_id=provider_id or None, cut_off=cut_off))
        return calls

    def _stop(self) -> Stop:
        stop = _STOPS.get(self._finish, "end")
        if self._calls and stop != "length":
            return "tool_calls"
        return "refused" if self._refused and stop == "end" else stop

    def _invalid(self, what: str) -> InvalidReply:
        model = self.request.model
        return InvalidReply(f"The reply of {model.name!r} is unusable: {what}.", provider=model.provider)


def _tool_call(call: _Call, *, call_id: str, provider_id: str | None, cut_off: bool) -> ToolCall:
    text = mend(call.text)
    # No arguments at all are {}, unless the reply was cut off before they came.
    arguments = {} if not text.strip() and not cut_off else _object(text)
    return ToolCall(
        call_id=call_id,
        name=mend(call.name)[:MAX_NAME_CHARS],
        arguments=arguments or {},
        provider_id=provider_id,
        unparsed=text if arguments is None else None,
    )


def _new_id(wanted: str, used: set[str]) -> str:
    new, tries = wanted, 1
    while new in used:
        tries += 1
        new = f"{wanted}_{tries}"
    return new


def _object(text: str) -> dict[str, Any] | None:
    """The JSON object in `text`; None where it holds anything else."""
    try:
        value = mended(parse(text))
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _thought(block: dict[str, Any]) -> str:
    """The text of Mistral's thinking block, which holds text blocks of its own."""
    thinking = block.get("thinking")
    inner: Sequence[Any] = a_list(thinking)
    return a_str(thinking) + "".join(a_str(a_dict(item).get("text")) for item in inner)


def _usage(usage: dict[str, Any]) -> Usage:
    prompt, completion = a_count(usage.get("prompt_tokens")), a_count(usage.get("completion_tokens"))
    asked, answered = a_dict(usage.get("prompt_tokens_details")), a_dict(usage.get("completion_tokens_details"))
    # In DeepSeek's, Moonshot's and Mistral's words after OpenAI's.
    cached = (
        asked.get("cached_tokens"),
        *map(usage.get, ("prompt_cache_hit_tokens", "cached_tokens", "num_cached_tokens")),
    )
    return Usage(
        input_tokens=prompt,
        # xAI's and Gemini's completion_tokens leave the reasoning out; their totals don't.
        output_tokens=max(completion, a_count(usage.get("total_tokens")) - prompt),
        cached_tokens=next(filter(None, map(a_count, cached)), 0),
        cache_write_tokens=a_count(asked.get("cache_write_tokens")),
        reasoning_tokens=a_count(answered.get("reasoning_tokens")),
    )
