"""Google's generateContent: replies, whole or streamed.

A chunk of a stream has the shape of a whole reply, so one `Assembler` reads both. Parts are kept unchanged and in
order: a part's signature goes back on that part, so signed parts are never joined with anything. Only pieces
of text without any other field are joined.

Data outside the parts (grounding, read URLs, citations) is kept as ServerToolUse at the reply's end. It is
not sent back: a request has no place for it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from everturn.errors import InvalidReply
from everturn.http.sse import Event
from everturn.providers import reading
from everturn.providers.base import Delta, Request, assistant_message
from everturn.providers.call_ids import call_ids
from everturn.providers.failures import ErrorInReply, error_in
from everturn.providers.finish_reasons import later_reason, plain_reason, stop_of
from everturn.providers.gemini.calls import PartialArguments, tool_names
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
from everturn.providers.reading import MAX_CALLS, MAX_REPLY_NAME_CHARS, unusable_reply, value_of
from everturn.providers.reply_details import details_of
from everturn.providers.token_counts import later_usage, of_modality
from everturn.records import Image, Opaque, Part, Reply, ServerToolUse, Stop, Text, TextKind, Thinking, ToolCall, Usage
from everturn.text.utf8 import mend
from everturn.tools.server_tools import CodeExecution

BESIDE: Final = {
    "groundingMetadata": "google_search",
    "urlContextMetadata": "url_context",
    "citationMetadata": "citations",
}
"""Fields beside the parts, and the name under which each is kept."""

_PLAIN: Final = frozenset({"content", "finishReason", "index"})
"""The only fields of most candidates: these come for every few words of a reply."""
_OF_A_CANDIDATE: Final = ("finishMessage", "safetyRatings")

_BY_PROMPT: Final = re.compile(r"gemini-[12](?![\d])")
"""Models whose searches are paid by the prompt, not by the query."""

_SERVER_PARTS = ("executableCode", "codeExecutionResult", "toolCall", "toolResponse")


def decode(body: object, request: Request) -> Reply:
    """The reply in a body that is no event stream: one reply, or the array of chunks that a stream without `alt=sse`
    is. Raises InvalidReply, ErrorInReply."""
    assembler = Assembler(request)
    if isinstance(body, list):
        for chunk in body:
            assembler.take_chunk(a_dict(chunk))
    else:
        assembler.take_chunk(a_dict(body))
        assembler.take_end()
    return assembler.finish()


@dataclass(slots=True)
class _Words:
    """Text or thought as received so far."""

    kind: TextKind
    extra: dict[str, Any]
    pieces: list[str] = field(default_factory=list)


@dataclass(slots=True)
class _Call:
    """A tool call as received so far. `open`: more of its arguments will come."""

    extra: dict[str, Any]
    id: str = ""
    name: str = ""
    arguments: Any = None
    partial: PartialArguments = field(default_factory=PartialArguments)
    open: bool = False


@dataclass(slots=True)
class Assembler:
    """Events of one stream in, one Reply out."""

    request: Request
    done: bool = False
    """Whether nothing more will come. Google's own streams don't say so: they end."""
    _answered: bool = False
    _finish: str = ""
    _blocked: bool = False
    _parts: list[_Words | _Call | Part] = field(default_factory=list)
    _latest: _Call | None = None
    _calls: int = 0
    _beside: dict[str, dict[str, Any]] = field(default_factory=dict)
    _usage: dict[str, Any] = field(default_factory=dict)
    _id: str = ""
    _reply_fields: dict[str, Any] = field(default_factory=dict)
    """About the reply as a whole: why it was filtered, which model answered, and logprobs."""

    @property
    def complete(self) -> bool:
        """Whether the whole reply has arrived, so that a connection that breaks now costs nothing.

        When Gemini runs code, it says STOP before the code and again after its use of the result: only the
        stream's end tells which was the last.
        """
        return self._is_over and (self.done or self._blocked or not (self._runs_code or self._awaits_code))

    @property
    def _is_over(self) -> bool:
        return self._blocked or (self._answered and (self.done or bool(self._finish)))

    @property
    def _runs_code(self) -> bool:
        return self._may_run_code or any(_is_code(part, "codeExecutionResult") for part in self._parts)

    @property
    def _may_run_code(self) -> bool:
        offered = any(isinstance(tool, CodeExecution) for tool in self.request.server_tools)
        return (
            offered
            or self._offers("codeExecution", "code_execution")
            or "cachedContent" in self.request.settings.extra  # which may have tools of its own
        )

    def _offers(self, *names: str) -> bool:
        return any(name in tool for tool in self.request.raw_tools for name in names)

    @property
    def _awaits_code(self) -> bool:
        """Whether the last part is code whose result is still missing. A file search looks like code, too, and no
        result of it is shown: what follows it is the text, or nothing."""
        searches = self._offers("fileSearch", "file_search") and not self._may_run_code
        if not self._parts or self.done or searches or plain_reason(self._finish) != "stop":
            return False
        return _is_code(self._parts[-1], "executableCode")

    @property
    def usage_so_far(self) -> Usage:
        """What the server has counted so far; nothing if it counts at the end."""
        return _read_usage(self._usage)

    def feed(self, event: Event) -> list[Delta]:
        """The deltas in the event. Raises ErrorInReply for an error, InvalidReply for anything that is not a chunk."""
        data = event.data.strip()
        if data == "[DONE]":  # from gateways only
            self.done = True
        if self.done or not data:
            return []
        chunks = as_list(value_of(event, self.request.model))
        if not all(isinstance(chunk, dict) for chunk in chunks):
            raise self._invalid_reply("an event of the stream is not a JSON object")
        return [delta for chunk in chunks for delta in self.take_chunk(chunk)]

    def take_chunk(self, chunk: dict[str, Any]) -> list[Delta]:
        """Reads one chunk of a stream, or a whole reply."""
        if (chunk.get("error") or not chunk.get("candidates")) and (error := error_in(chunk)):
            raise ErrorInReply(error)
        self._id = self._id or a_str(chunk.get("responseId"))
        usage = a_dict(chunk.get("usageMetadata"))
        if any(name.endswith("TokenCount") for name in usage):  # Vertex's first chunks name a traffic type only
            self._usage = later_usage(self._usage, usage)
        if version := chunk.get("modelVersion"):
            self._reply_fields["modelVersion"] = version
        if (feedback := chunk.get("promptFeedback")) and a_dict(feedback).get("blockReason"):
            self._blocked = True
            self._reply_fields["promptFeedback"] = feedback
        for candidate in map(a_dict, a_list(chunk.get("candidates"))):
            if candidate and not an_int(candidate.get("index")):
                return self._take_candidate(candidate)
        return []

    def take_end(self) -> None:
        """Nothing more comes after a body that is one reply. Raises InvalidReply if that is no whole one: "If empty,
        the model has not stopped generating tokens" (Candidate.finishReason)."""
        if self._answered and not self._is_over:
            raise self._invalid_reply("it does not say why it stopped")
        self.done = True

    def finish(self) -> Reply:
        """The reply. Raises InvalidReply if the stream stopped in the middle, or held no usable reply."""
        if not (self._answered or self._blocked):
            raise self._invalid_reply("it has no candidate")
        if not self._is_over or self._awaits_code:
            raise self._invalid_reply("the stream ended in the middle")
        stop = self._stop_reason()
        parts = self._finished_parts(stop)
        parts += [ServerToolUse(name=BESIDE[key], data={key: value}) for key, value in mend_texts(self._beside).items()]
        return Reply(
            message=assistant_message(parts, request=self.request),
            stop=self._final_stop(stop),
            usage=_read_usage(self._usage).model_copy(update={"web_searches": self._count_searches()}),
            model=self.request.model.name,
            response_id=reading.response_id(self._id),
            details=self._reply_details(),
        )

    def _count_searches(self) -> int:
        """What is paid for searching: since Gemini 3 each query, before that each prompt that was searched for, however
        often (ai.google.dev/gemini-api/docs/pricing, 2026-11)."""
        grounding = a_dict(self._beside.get("groundingMetadata"))
        queries = {query for query in a_list(grounding.get("webSearchQueries")) if a_str(query).strip()}
        served = a_str(self._reply_fields.get("modelVersion")) or self.request.model.model
        if _BY_PROMPT.search(served):
            return min(len(queries), 1)
        return len(queries)

    def _reply_details(self) -> dict[str, Any]:
        fields = dict(self._reply_fields)
        return details_of(
            self.request.model,
            served_by=fields.pop("modelVersion", ""),
            tier=self._usage.get("serviceTier") or self._usage.get("trafficType"),
            **fields,
        )

    def _take_candidate(self, candidate: dict[str, Any]) -> list[Delta]:
        self._answered = True
        self._finish = later_reason(self._finish, a_str(candidate.get("finishReason")))
        if not candidate.keys() <= _PLAIN:
            self._take_beside(candidate)
        parts = (a_dict(part) for part in a_list(a_dict(candidate.get("content")).get("parts")))
        return [delta for part in parts for delta in self._take_part(part) if delta.text]

    def _take_beside(self, candidate: dict[str, Any]) -> None:
        self._reply_fields |= {name: candidate[name] for name in _OF_A_CANDIDATE if candidate.get(name)}
        if logprobs := a_dict(candidate.get("logprobsResult")):
            self._take_logprobs(logprobs, candidate.get("avgLogprobs"))
        for key in BESIDE:
            if metadata := a_dict(candidate.get(key)):
                self._beside.setdefault(key, {}).update(metadata)

    def _take_logprobs(self, logprobs: dict[str, Any], average: object) -> None:
        """Logprobs that were asked for. A stream brings them in pieces."""
        all_of_them = self._reply_fields.setdefault("logprobsResult", {})
        for name, value in logprobs.items():
            if isinstance(value, list) and isinstance(known := all_of_them.setdefault(name, []), list):
                known.extend(value)
            else:
                all_of_them[name] = value
        if average is not None:
            self._reply_fields["avgLogprobs"] = average

    def _take_part(self, part: dict[str, Any]) -> Iterator[Delta]:
        if isinstance(part.get("functionCall"), dict):
            self._take_call(part)
        elif isinstance(part.get("text"), str):
            yield self._take_words(part)
        elif part.get("thought") is not True and (picture := _image_in(part)):  # a draft is no part of the answer
            self._parts.append(picture)
        elif name := next((name for name in _SERVER_PARTS if name in part), None):
            kind = a_str(a_dict(part[name]).get("toolType")).lower() or "code_execution"
            self._parts.append(ServerToolUse(name=mend(kind)[:MAX_REPLY_NAME_CHARS], data=mend_texts(part)))
        elif part:
            self._parts.append(Opaque(data=mend_texts(part)))

    def _take_words(self, part: dict[str, Any]) -> Delta:
        kind: TextKind = "thinking" if part.get("thought") is True else "text"
        text = part["text"]
        extra = {name: part[name] for name in part if name not in {"text", "thought"}}
        last = self._parts[-1] if self._parts else None
        if not extra and isinstance(last, _Words) and last.kind == kind and not last.extra:
            last.pieces.append(text)
        elif text or extra:
            self._parts.append(_Words(kind, extra, [text]))
        return Delta(kind, mend(text))

    def _take_call(self, part: dict[str, Any]) -> None:
        """Reads a `functionCall` part: a whole call, the start of one, or more of the call that is still open.

        Vertex sends calls in pieces if it is asked to: the name first, then arguments by their JSON paths, until a
        piece has no `willContinue`.
        """
        given = part["functionCall"]
        call_id = a_str(given.get("id"))
        name = a_str(given.get("name"))
        arguments = given.get("args")
        extra = {key: part[key] for key in part if key != "functionCall"}
        call = self._latest
        if call is None or not call.open or (name and (call_id or None) != call.id):
            if not (call_id or name or arguments or given.get("partialArgs") or extra):
                return  # the end of a call that has ended already
            self._calls += 1
            if self._calls > MAX_CALLS:
                raise self._invalid_reply(f"it holds more than {MAX_CALLS} tool calls")
            call = self._latest = _Call(extra, call_id, name)
            self._parts.append(call)
        else:
            call.extra |= extra
        if arguments is not None:
            call.arguments = arguments
        call.open = given.get("willContinue") is True
        try:
            for argument in a_list(given.get("partialArgs")):
                call.partial.add_argument(a_dict(argument))
        except ValueError as error:
            raise self._invalid_reply(f"a call's arguments can't be put together ({error})") from None

    def _finished_parts(self, stop: Stop) -> list[Part]:
        kept = [part for part in self._parts if not (isinstance(part, _Call) and part.open)]
        # A call that a limit or filter cut off is not to be run, and says nothing that can be sent back.
        if len(kept) < len(self._parts) and stop == "end":
            raise self._invalid_reply("a tool call is not complete")
        calls = [part for part in kept if isinstance(part, _Call)]
        request = self.request
        named = call_ids((call.id for call in calls), request.messages, response_id=self._id, hidden=request.hidden_ids)
        ids = iter(named)
        names = tool_names(self.request)
        parts: list[Part] = []
        for part in kept:
            if isinstance(part, _Call):
                cut_off = stop != "end" and part is calls[-1]
                parts.append(self._tool_call(part, *next(ids), names=names, cut_off=cut_off))
            elif isinstance(part, _Words):
                kind = Text if part.kind == "text" else Thinking
                parts.append(kind(text=mend("".join(part.pieces)), extra=mend_texts(part.extra)))
            else:
                parts.append(part)
        return parts

    def _tool_call(
        self, call: _Call, call_id: str, provider_id: str | None, *, names: dict[str, str], cut_off: bool
    ) -> ToolCall:
        name = reading.own_name(call.name, self.request)
        given = call.arguments
        if given is None or (isinstance(given, str) and not given.strip()):
            # No arguments are {}, unless the reply was cut off before they came.
            given = "" if cut_off and not call.partial else {}
        arguments: dict[str, Any] = {}
        unparsed: str | None = None
        if isinstance(given, dict):
            try:
                arguments = mend_texts(call.partial.put_onto(given))
            except ValueError as error:
                raise self._invalid_reply(f"a call's arguments can't be put together ({error})") from None
        else:
            text = mend(text_or_json(given))
            written = arguments_in(text)  # as OpenAI's protocols write them
            arguments = written or {}
            unparsed = text if written is None else None
        return ToolCall(
            call_id=call_id,
            name=names.get(name, name),
            arguments=arguments,
            provider_id=provider_id,
            unparsed=unparsed,
            extra=mend_texts(call.extra),
        )

    def _stop_reason(self) -> Stop:
        """Why it ended, calls or not. Raises InvalidReply or ErrorInReply if that makes it unusable."""
        if self._blocked:
            return "filtered"
        # The model's mistake is a call of an unknown tool: a result says so, and nothing is asked twice.
        unknown_tool = plain_reason(self._finish) == "unexpected_tool_call" and self.request.tools
        if unknown_tool and any(isinstance(part, _Call) for part in self._parts):
            return "end"
        if not self._finish:
            return "end"
        return stop_of(self._finish, self.request.model)

    def _final_stop(self, stop: Stop) -> Stop:
        if stop != "length" and any(isinstance(part, _Call) and not part.open for part in self._parts):
            return "tool_calls"
        return stop

    def _invalid_reply(self, what: str) -> InvalidReply:
        return unusable_reply(self.request.model, what)


def _is_code(part: object, name: str) -> bool:
    return isinstance(part, ServerToolUse) and isinstance(part.data, dict) and name in part.data


def _image_in(part: dict[str, Any]) -> Image | None:
    """The Image in a part that holds one. Other media are kept as they are."""
    inline = a_dict(part.get("inlineData"))
    data = a_str(inline.get("data"))
    media_type = a_str(inline.get("mimeType"))
    if not (data and media_type.startswith("image/") and inline.keys() == {"data", "mimeType"}):
        return None
    extra = {name: part[name] for name in part if name != "inlineData"}
    return Image(data=mend(data), media_type=mend(media_type), extra=mend_texts(extra))


def _read_usage(usage: dict[str, Any]) -> Usage:
    thoughts = a_count(usage.get("thoughtsTokenCount"))
    return Usage(
        # Cached tokens are in the prompt's count; what server-side tools put before the model is not.
        input_tokens=a_count(usage.get("promptTokenCount")) + a_count(usage.get("toolUsePromptTokenCount")),
        output_tokens=a_count(usage.get("candidatesTokenCount")) + thoughts,
        cached_tokens=a_count(usage.get("cachedContentTokenCount")),
        input_audio_tokens=of_modality(usage.get("promptTokensDetails"), "AUDIO"),
        cached_audio_tokens=of_modality(usage.get("cacheTokensDetails"), "AUDIO"),
        output_audio_tokens=of_modality(usage.get("candidatesTokensDetails"), "AUDIO"),
        output_image_tokens=of_modality(usage.get("candidatesTokensDetails"), "IMAGE"),
        reasoning_tokens=thoughts,
    )
