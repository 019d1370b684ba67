"""Responses: replies, whole or streamed.

A stream's last event holds the response, and an item's last event the item: these are read, whatever the deltas
before them said. Only if a server sends neither, an item is put together from its deltas.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from everturn.errors import InvalidReply
from everturn.http.sse import Event
from everturn.providers import reading
from everturn.providers.base import Delta, Request, assistant_message
from everturn.providers.call_ids import call_ids
from everturn.providers.failures import ErrorInReply
from everturn.providers.json_values import a_count, a_dict, a_list, a_str
from everturn.providers.openai_responses.caller_run import Item, declared, given_id
from everturn.providers.openai_responses.items import call_of, is_call, parts_of
from everturn.providers.reading import MAX_CALLS, object_of, unusable
from everturn.providers.reply_details import details_of
from everturn.records import Part, Reply, Stop, Usage
from everturn.text.utf8 import mend

_LAST = frozenset({"response.completed", "response.incomplete", "response.failed", "response.cancelled"})
_LAST |= {"response.done"}
_DELTAS: dict[str, str] = {
    "response.output_text.delta": "text",
    "response.refusal.delta": "text",
    "response.reasoning_summary_text.delta": "thinking",
    "response.reasoning_text.delta": "thinking",
}
UNFINISHED = frozenset({"queued", "in_progress"})
_NO_ROOM = frozenset({"max_output_tokens", "max_tokens", ""})
_STOPS: dict[str, Stop] = {"content_filter": "filtered"}
"""Reasons of an incomplete response. A reason that is not listed means cut short, as `max_output_tokens` does."""


def decode(body: object, request: Request) -> Reply:
    """The reply in the body of an answer that is not streamed. Raises InvalidReply, ErrorInReply."""
    assembler = Assembler(request)
    assembler.take(a_dict(body))
    return assembler.finish()


@dataclass(slots=True)
class Assembler:
    """Events of one stream in, one Reply out."""

    request: Request
    done: bool = False
    """Whether the last event came, which holds the response."""
    response_id: str = ""
    """As the first events say it."""
    sequence: int = -1
    """The number of the last event."""
    resumed_after: int = -1
    """Events up to this number came before the connection broke: a server may send them again."""
    _response: dict[str, Any] = field(default_factory=dict)
    _started: dict[int, Item] = field(default_factory=dict)
    _finished: dict[int, Item] = field(default_factory=dict)
    """Items by their output_index: the ids of one item differ from event to event behind some proxies."""
    _pieces: dict[int, dict[tuple[str, int], list[str]]] = field(default_factory=dict)
    """The deltas of each item, by the kind of event and the block's index."""

    @property
    def complete(self) -> bool:
        """Whether the whole reply has arrived, so that a connection that breaks now costs nothing."""
        return self.done

    @property
    def usage_so_far(self) -> Usage:
        """What the server has counted so far; nothing if it counts at the end."""
        return _usage(a_dict(self._response.get("usage")))

    def feed(self, event: Event) -> list[Delta]:
        """The deltas in the event. Raises ErrorInReply for an error, InvalidReply for anything that is not an event."""
        data = event.data.strip()
        if self.done or not data or data == "[DONE]":
            return []
        said = object_of(event, self.request.model)
        kind = a_str(said.get("type")) or event.name
        if self._came_before(said):
            return []
        if kind == "error" or (said.get("error") and "response" not in said):
            raise ErrorInReply(said)
        if kind in _LAST:
            self.take(a_dict(said.get("response")), failed=kind == "response.failed", streamed=True)
            return []
        return self._take_event(kind, said)

    def _came_before(self, said: dict[str, Any]) -> bool:
        number = said.get("sequence_number")
        if isinstance(number, int):
            if number <= self.resumed_after:
                return True
            self.sequence = number
        self.response_id = self.response_id or a_str(a_dict(said.get("response")).get("id"))
        return False

    def take(self, response: dict[str, Any], *, failed: bool = False, streamed: bool = False) -> None:
        """Reads the response itself. Raises ErrorInReply if it failed."""
        status, error = a_str(response.get("status")), response.get("error")
        if failed or error or status in {"failed", "cancelled"}:
            raise ErrorInReply({"error": error or {"code": "server_error", "message": f"the response {status}"}})
        if status in UNFINISHED:
            raise self._invalid(f"the response is still {status!r}, but it was not asked for in the background")
        if not streamed and not isinstance(response.get("output"), list):
            raise self._invalid("it holds no output")
        self._response = response
        self.done = True

    def finish(self) -> Reply:
        """The reply. Raises InvalidReply if the stream stopped in the middle."""
        if not self.done:
            raise self._invalid("the stream ended in the middle")
        items = self._items()
        parts = self._parts(items)
        return Reply(
            message=assistant_message(parts, request=self.request),
            stop=self._stop(items),
            usage=_usage(a_dict(self._response.get("usage"))),
            model=self.request.model.name,
            response_id=reading.response_id(self._response.get("id")),
            details=self._details(),
        )

    def _details(self) -> dict[str, Any]:
        response = self._response
        why = a_dict(response.get("incomplete_details"))
        known = _NO_ROOM | _STOPS.keys()
        return details_of(
            self.request.model,
            served_by=response.get("model"),
            tier=response.get("service_tier"),
            incomplete_details=why if a_str(why.get("reason")) not in known else None,
        )

    def _take_event(self, kind: str, said: dict[str, Any]) -> list[Delta]:
        index = said.get("output_index")
        index = index if isinstance(index, int) else max([*self._started, *self._finished], default=0)
        if kind == "response.output_item.added":
            self._started[index] = a_dict(said.get("item"))
        elif kind == "response.output_item.done":
            self._finished[index] = a_dict(said.get("item"))
        elif kind == "response.reasoning_summary_part.added" and said.get("summary_index"):
            return [Delta("thinking", "\n\n")]
        elif kind.endswith(".delta") and (piece := a_str(said.get("delta"))):
            block = said.get("content_index")
            place = (kind, block if isinstance(block, int) else 0)
            self._pieces.setdefault(index, {}).setdefault(place, []).append(piece)
            match _DELTAS.get(kind):
                case "text":
                    return [Delta("text", mend(piece))]
                case "thinking":
                    return [Delta("thinking", mend(piece))]
        return []

    def _items(self) -> list[Item]:
        whole = [a_dict(item) for item in a_list(self._response.get("output"))]
        open_ones = self._started.keys() - self._finished.keys()
        # Some servers leave the items out of the last event, or some of them.
        if len(whole) >= len(self._finished) + len(open_ones) and (open_ones or len(whole) > len(self._finished)):
            return whole
        items = {index: self._filled(index) for index in open_ones} | self._finished
        found = [items[index] for index in sorted(items)]
        return [_sealed(item, whole[place] if place < len(whole) else {}) for place, item in enumerate(found)]

    def _filled(self, index: int) -> Item:
        """An item put together from its deltas, because its last event did not come."""
        pieces = {place: "".join(texts) for place, texts in self._pieces.get(index, {}).items()}
        status = "incomplete" if self._cut_short else "completed"
        item = self._started[index] | {"status": status}
        match item.get("type"):
            case "message":
                names = {"response.output_text.delta": "text", "response.refusal.delta": "refusal"}
                blocks = [(block, names[kind], text) for (kind, block), text in pieces.items() if kind in names]
                content = [{"type": _BLOCK_TYPES[name], name: text} for _, name, text in sorted(blocks)]
                return item | {"content": content or a_list(item.get("content"))}
            case "function_call":
                text = pieces.get(("response.function_call_arguments.delta", 0))
                return item | {"arguments": text} if text else item
            case _:
                return item

    @property
    def _cut_short(self) -> bool:
        return self._response.get("status") == "incomplete"

    def _parts(self, items: Sequence[Item]) -> list[Part]:
        """The parts, in the order of the items: a reasoning stays before what it led to."""
        ours = declared(self.request)
        calls = [item for item in items if is_call(item, ours)]
        if len(calls) > MAX_CALLS:
            raise self._invalid(f"it holds more than {MAX_CALLS} tool calls")
        given = [given_id(item) for item in calls]
        request = self.request
        named = call_ids(
            given, request.messages, response_id=a_str(self._response.get("id")), hidden=request.hidden_ids
        )
        ids = iter(named)
        parts: list[Part] = []
        for item in items:
            if is_call(item, ours):
                call_id, provider_id = next(ids)
                whole = item.get("status") == "completed" or not (self._cut_short and item is items[-1])
                cut_off = item.get("status") == "incomplete" or not whole
                parts.append(call_of(item, call_id=call_id, provider_id=provider_id, cut_off=cut_off))
            else:
                parts += parts_of(item, logprobs="top_logprobs" in self.request.settings.extra)
        return parts

    def _stop(self, items: Sequence[Item]) -> Stop:
        reason = a_str(a_dict(self._response.get("incomplete_details")).get("reason"))
        ours = declared(self.request)
        calls = [item for item in items if is_call(item, ours)]
        # Calls that came whole are answered, whatever else was left unsaid.
        if calls and not (self._cut_short and (reason in _NO_ROOM or calls[-1].get("status") != "completed")):
            return "tool_calls"
        if self._cut_short:
            return _STOPS.get(reason, "length")
        blocks = (a_dict(block) for item in items for block in a_list(item.get("content")))
        return "refused" if any(block.get("type") == "refusal" for block in blocks) else "end"

    def _invalid(self, what: str) -> InvalidReply:
        return unusable(self.request.model, what)


def _sealed(item: Item, same: Item) -> Item:
    """The item, with the encrypted content that only the response has for it: an item's last event may come early."""
    sealed = same.get("encrypted_content")
    if not sealed or item.get("encrypted_content") or item.get("type") != same.get("type"):
        return item
    return item | {"encrypted_content": sealed} if item.get("id") == same.get("id") else item


_BLOCK_TYPES = {"text": "output_text", "refusal": "refusal"}


def _usage(usage: dict[str, Any]) -> Usage:
    asked, answered = a_dict(usage.get("input_tokens_details")), a_dict(usage.get("output_tokens_details"))
    given, made = a_count(usage.get("input_tokens")), a_count(usage.get("output_tokens"))
    return Usage(
        input_tokens=given,
        output_tokens=max(made, a_count(usage.get("total_tokens")) - given),
        cached_tokens=a_count(asked.get("cached_tokens")),
        cache_write_tokens=a_count(asked.get("cache_write_tokens")),
        reasoning_tokens=a_count(answered.get("reasoning_tokens")),
    )
