"""Responses: replies, whole or streamed.

A stream's last event holds the response, and an item's last event the item: these are read, whatever the deltas
before them said. Only what a server leaves empty or out in both is put together from the deltas.
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
from everturn.providers.failures import ErrorInReply, error_in
from everturn.providers.finish_reasons import ending_of, stop_of
from everturn.providers.json_values import a_count, a_dict, a_list, a_str, an_int
from everturn.providers.openai_responses.caller_run import Item, declared_tools, given_id
from everturn.providers.openai_responses.items import call_of, is_call, parts_of
from everturn.providers.openai_responses.tool_usage import by_other_models, searches_of
from everturn.providers.reading import MAX_CALLS, object_of, unusable_reply
from everturn.providers.reply_details import MAX_CHANGES, details_of
from everturn.providers.reported_costs import reported_cost_usd
from everturn.providers.token_counts import count_tokens
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
_CUSTOM_INPUT = "response.custom_tool_call_input.delta"
_TEXT_OF_DONE = {
    "response.output_text.done": "text",
    "response.refusal.done": "refusal",
    "response.reasoning_summary_text.done": "text",
    "response.reasoning_text.done": "text",
    "response.function_call_arguments.done": "arguments",
    "response.custom_tool_call_input.done": "input",
}
_THOUGHTS = {
    "response.reasoning_summary_text.delta": ("summary", "summary_text"),
    "response.reasoning_text.delta": ("content", "reasoning_text"),
}
_TYPE_OF_ITEM = {
    "response.output_text.": "message",
    "response.refusal.": "message",
    "response.reasoning_summary_text.": "reasoning",
    "response.reasoning_text.": "reasoning",
    "response.function_call_arguments.": "function_call",
    "response.custom_tool_call_input.": "custom_tool_call",
}
"""The type of the item that an event is about, by what the event's kind begins with."""
_FIELD_OF_TEXT = {"message": "content", "function_call": "arguments", "custom_tool_call": "input"}
"""The field for which an item is there, by its type. A reasoning's is left as it came: it is sealed, and goes back."""
UNFINISHED = frozenset({"queued", "in_progress"})
_STATUSES = UNFINISHED | {"completed", "incomplete", "failed", "cancelled", ""}
_IDS = ("call_id", "id")


def decode(body: object, request: Request) -> Reply:
    """The reply in the body of an answer that is not streamed. Raises InvalidReply, ErrorInReply."""
    assembler = Assembler(request)
    response = a_dict(body)
    if "output" not in response and (error := error_in(response)):
        raise ErrorInReply(error)
    assembler.take_response(response)
    return assembler.finish()


@dataclass(slots=True)
class _ReceivedItem:
    """An item as received so far."""

    index: int
    started: Item | None = None
    finished: Item | None = None
    pieces: dict[tuple[str, int], list[str]] = field(default_factory=dict)
    """Its deltas, by the kind of event and the block's index."""
    never_began: bool = False
    """Whether there are only deltas of it so far."""

    @property
    def item(self) -> Item:
        return self.finished or self.started or {}

    def is_same(self, item: Item) -> bool:
        """Whether the item is this one, by its type and the ids that both have."""
        ours = self.item
        return ours.get("type") == item.get("type") and any(ours.get(name) == item.get(name) for name in _ids_of(item))

    def may_hold(self, item: Item, *, over: bool) -> bool:
        """Whether an item that comes under this one's index is this one. The ids of one item differ from event to event
        behind some proxies, until it is over."""
        if self.item.get("type") != item.get("type"):
            return False
        ours = a_str(self.item.get("call_id"))
        theirs = a_str(item.get("call_id"))
        if ours and theirs:
            return ours == theirs
        if not over:
            return True
        return not (_ids_of(self.item) and _ids_of(item)) and _without_ids(self.item) == _without_ids(item)


def _read_item(given: object) -> Item:
    """The item, which is a message if it has a role alone, as requests may have it."""
    item = a_dict(given)
    if not item.get("type") and item.get("role") == "assistant":
        return item | {"type": "message"}
    return item


def _is_item(item: Item) -> bool:
    """Whether it says what it is: what does not is nothing that could be shown, run or sent back."""
    return bool(a_str(item.get("type")) or a_str(item.get("role")))


def _ids_of(item: Item) -> list[str]:
    return [name for name in _IDS if item.get(name)]


def _without_ids(item: Item) -> Item:
    return {name: value for name, value in item.items() if name not in _IDS}


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
    _received: list[_ReceivedItem] = field(default_factory=list)
    _latest: dict[int, _ReceivedItem] = field(default_factory=dict)
    """By output_index, the latest item under it. Small servers give one index to several items."""

    @property
    def complete(self) -> bool:
        """Whether the whole reply has arrived, so that a connection that breaks now costs nothing."""
        return self.done

    @property
    def usage_so_far(self) -> Usage:
        """What the server has counted so far; nothing if it counts at the end."""
        return _read_usage(a_dict(self._response.get("usage")))

    def feed(self, event: Event) -> list[Delta]:
        """The deltas in the event. Raises ErrorInReply for an error, InvalidReply for anything that is not an event."""
        data = event.data.strip()
        if self.done or not data or data == "[DONE]":
            return []
        fields = object_of(event, self.request.model)
        kind = a_str(fields.get("type")) or event.name
        if self._came_before(fields):
            return []
        if kind == "error" or (fields.get("error") and "response" not in fields):
            raise ErrorInReply(fields)
        if not kind and (error := error_in(fields)):
            raise ErrorInReply(error)
        if kind in _LAST:
            self.take_response(a_dict(fields.get("response")), failed=kind == "response.failed", streamed=True)
            return []
        return self._take_event(kind, fields)

    def _came_before(self, fields: dict[str, Any]) -> bool:
        number = fields.get("sequence_number")
        if isinstance(number, int):
            if number <= self.resumed_after:
                return True
            self.sequence = number
        self.response_id = self.response_id or a_str(a_dict(fields.get("response")).get("id"))
        return False

    def take_response(self, response: dict[str, Any], *, failed: bool = False, streamed: bool = False) -> None:
        """Reads the response itself. Raises ErrorInReply if it failed."""
        status = a_str(response.get("status")).lower()
        error = response.get("error")
        if failed or error or status in {"failed", "cancelled"}:
            raise ErrorInReply({"error": error or {"code": "server_error", "message": f"the response {status}"}})
        if status in UNFINISHED:
            raise self._invalid_reply(f"the response is still {status!r}, but it was not asked for in the background")
        if status not in _STATUSES:
            raise self._invalid_reply(f"it has a status that everturn does not know ({status:.200})")
        if not streamed and not isinstance(response.get("output"), list):
            raise self._invalid_reply("it holds no output")
        self._response = response
        self.done = True

    def finish(self) -> Reply:
        """The reply. Raises InvalidReply if the stream stopped in the middle."""
        if not self.done:
            raise self._invalid_reply("the stream ended in the middle")
        items = self._all_items()
        parts = self._reply_parts(items)
        usage = a_dict(self._response.get("usage"))
        others = by_other_models(self._response, items, self.request)
        searches = {"web_searches": searches_of(self._response, items, self.request)}
        return Reply(
            message=assistant_message(parts, request=self.request),
            stop=self._final_stop(items),
            usage=sum((part.usage for part in others), _read_usage(usage)).model_copy(update=searches),
            by_others=others,
            cost_usd=reported_cost_usd(usage, self.request.model),
            model=self.request.model.name,
            response_id=reading.response_id(self._response.get("id")),
            details=self._reply_details(),
        )

    def _reply_details(self) -> dict[str, Any]:
        response = self._response
        details = a_dict(response.get("incomplete_details"))
        reason = a_str(details.get("reason"))
        if not reason or (ending_of(reason) in {"length", "filtered"} and reason != "max_messages"):
            details = {}
        return details_of(
            self.request.model,
            served_by=response.get("model"),
            tier=response.get("service_tier"),
            incomplete_details=details,
            input_transformations=a_list(response.get("input_transformations"))[:MAX_CHANGES],
        )

    def _take_event(self, kind: str, fields: dict[str, Any]) -> list[Delta]:
        item = _read_item(fields.get("item"))
        index = self._index_of(fields, item)
        if kind in {"response.output_item.added", "response.output_item.done"}:
            if _is_item(item):  # clients are meant to pass over an item that is null
                self._take_item(index, item, over=kind == "response.output_item.done")
        elif kind == "response.reasoning_summary_part.added" and fields.get("summary_index"):
            return [Delta("thinking", "\n\n")]
        elif text_field := _TEXT_OF_DONE.get(kind):
            # The whole text, of which some servers send no delta. An empty one takes back no delta.
            text = a_str(fields.get(text_field))
            if text and (received := self._find_received(kind.removesuffix("done"), index, fields)):
                received.pieces[kind.removesuffix("done") + "delta", _block_index(fields)] = [text]
        elif kind.endswith(".delta") and (piece := a_str(fields.get("delta"))):
            if received := self._find_received(kind.removesuffix("delta"), index, fields):
                received.pieces.setdefault((kind, _block_index(fields)), []).append(piece)
            match _DELTAS.get(kind):
                case "text":
                    return [Delta("text", mend(piece))]
                case "thinking":
                    return [Delta("thinking", mend(piece))]
        return []

    def _index_of(self, fields: dict[str, Any], item: Item) -> int:
        """Where an event belongs. Some servers leave the index out: then it is that of the item which the event names,
        or of the latest."""
        index = an_int(fields.get("output_index"))
        if index is not None:
            return index
        name = a_str(fields.get("item_id") or item.get("id"))
        of_name = (known_index for known_index, held in self._latest.items() if name and held.item.get("id") == name)
        latest = max(self._latest, default=0)
        if name and item and self._latest and all(held.item.get("id") != name for held in self._latest.values()):
            return latest + 1
        return next(of_name, latest)

    def _find_received(self, subject: str, index: int, fields: dict[str, Any]) -> _ReceivedItem | None:
        """The item that a piece of text belongs to: the one that the event names, or that of its index. If what has
        that index is no message, a message's text is that of the latest that is not over, or of one that never began.
        """
        latest = self._latest.get(index)
        kind = _TYPE_OF_ITEM.get(subject)
        name = fields.get("item_id")
        if name and not (latest and latest.item.get("id") == name):  # mostly it is the latest: no search for each piece
            for received in self._received:
                if received.item.get("id") == name and received.item.get("type") == kind:
                    return received
        if kind != "message" or (latest and latest.item.get("type") == kind):
            return latest
        for received in reversed(self._received):
            if received.item.get("type") == kind and not received.finished and (latest or received.index == index):
                return received
        received = _ReceivedItem(index, started={"type": "message", "content": []}, never_began=True)
        self._received.append(received)
        return received

    def _take_item(self, index: int, item: Item, *, over: bool) -> None:
        """Reads an item's first or last event. An item that is sent again, under whatever index, is the same item."""
        received = next((received for received in self._received if received.is_same(item)), None)
        if received is None:
            received = self._begun_late(index, item, over=over)
        latest = self._latest.get(index)
        if received is None and latest and latest.may_hold(item, over=latest.finished is not None):
            received = latest
        if received is None:
            received = _ReceivedItem(index)
            self._received.append(received)
        self._latest[index] = received
        if over:
            received.finished = item
        else:
            received.started = received.started or item

    def _begun_late(self, index: int, item: Item, *, over: bool) -> _ReceivedItem | None:
        """The deltas of this item, which came before it did: under its index, or with its text."""
        for received in self._received:
            if not received.never_began or item.get("type") != "message":
                continue
            if received.index == index or (over and _text_in(item) in {"", _text_in(self._fill_item(received))}):
                received.never_began = False
                received.started = None
                received.index = index
                return received
        return None

    def _all_items(self) -> list[Item]:
        whole_items = [item for item in map(_read_item, a_list(self._response.get("output"))) if _is_item(item)]
        in_order = sorted(self._received, key=lambda received: received.index)
        all_over = all(received.finished for received in in_order)
        # Some servers leave the items out of the last event, or some of them.
        if len(whole_items) > len(in_order):
            return whole_items
        if len(whole_items) == len(in_order) and not all_over:
            return [
                _fill_empty(item, self._fill_item(received))
                for item, received in zip(whole_items, in_order, strict=True)
            ]
        whole_items += [{}] * (len(in_order) - len(whole_items))
        return [self._final_item(received, item) for received, item in zip(in_order, whole_items, strict=True)]

    def _final_item(self, received: _ReceivedItem, whole_item: Item) -> Item:
        """The item as its last event has it, or else its deltas. If that leaves its text empty, the response may have
        it, or the deltas: an item's last event may come early."""
        filled = self._fill_item(received)
        item = _with_seal(received.finished or filled, whole_item)
        if item.get("id") == whole_item.get("id"):
            item = _fill_empty(item, whole_item)
        return _fill_empty(item, filled)

    def _fill_item(self, received: _ReceivedItem) -> Item:
        """An item put together from its deltas, because its last event did not come."""
        pieces = {where: "".join(texts) for where, texts in received.pieces.items()}
        status = "incomplete" if self._cut_short else "completed"
        item = received.item | {"status": status}
        match item.get("type"):
            case "message":
                names = {"response.output_text.delta": "text", "response.refusal.delta": "refusal"}
                blocks = [(block, names[kind], text) for (kind, block), text in pieces.items() if kind in names]
                content = [{"type": _BLOCK_TYPES[name], name: text} for _, name, text in sorted(blocks)]
                return item | {"content": content or a_list(item.get("content"))}
            case "function_call":
                text = pieces.get(("response.function_call_arguments.delta", 0)) or item.get("arguments")
                # Without its last event, a call without arguments may be one whose arguments are missing.
                if not text:
                    return item | {"status": "incomplete"}
                return item | {"arguments": text}
            case "custom_tool_call":
                return item | {"input": pieces.get((_CUSTOM_INPUT, 0)) or item.get("input")}
            case "reasoning":
                return item | _thoughts_of(pieces)
            case _:
                return item

    @property
    def _cut_short(self) -> bool:
        """Whether it ended before its end. llama.cpp (build 11549) calls a reply at its limit completed."""
        if a_str(self._response.get("status")).lower() == "incomplete":
            return True
        most = self.request.settings.max_output_tokens
        output_tokens = a_count(a_dict(self._response.get("usage")).get("output_tokens"))
        return most is not None and self.request.model.provider == "openresponses" and output_tokens >= most

    def _reply_parts(self, items: Sequence[Item]) -> list[Part]:
        """The parts, in the order of the items: a reasoning stays before what it led to."""
        ours = declared_tools(self.request)
        calls = [item for item in items if is_call(item, ours)]
        if len(calls) > MAX_CALLS:
            raise self._invalid_reply(f"it holds more than {MAX_CALLS} tool calls")
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
                bare = not (item.get("arguments") or item.get("input"))
                cut_off = item.get("status") == "incomplete" or not whole
                # An item that says it is still in progress is a server's habit, unless it lacks what it is about.
                cut_off = cut_off or (item.get("status") == "in_progress" and bare and item["type"] == "function_call")
                name = reading.own_name(a_str(item.get("name")), request)
                parts.append(call_of(item, name=name, call_id=call_id, provider_id=provider_id, cut_off=cut_off))
            else:
                parts += parts_of(item, logprobs="top_logprobs" in self.request.settings.extra)
        return parts

    def _final_stop(self, items: Sequence[Item]) -> Stop:
        reason = a_str(a_dict(self._response.get("incomplete_details")).get("reason"))
        # Whether the reply can be used at all, calls or not.
        stop = self._short_of(reason) if self._cut_short else "end"
        ours = declared_tools(self.request)
        calls = [item for item in items if is_call(item, ours)]
        no_room = not reason or (ending_of(reason) == "length" and reason != "max_messages")
        # Calls that came whole are answered, whatever else was left unsaid.
        if calls and not (self._cut_short and (no_room or calls[-1].get("status") != "completed")):
            return "tool_calls"
        if self._cut_short:
            return stop
        blocks = (a_dict(block) for item in items for block in a_list(item.get("content")))
        if any(block.get("type") == "refusal" for block in blocks):
            return "refused"
        return "end"

    def _short_of(self, reason: str) -> Stop:
        """Why an incomplete response is. A reason that is not known means cut short, as `max_output_tokens` does."""
        if ending_of(reason) in {"end", "unknown", "paused"}:
            return "length"
        return stop_of(reason, self.request.model)

    def _invalid_reply(self, what: str) -> InvalidReply:
        return unusable_reply(self.request.model, what)


def _block_index(fields: dict[str, Any]) -> int:
    return an_int(fields.get("content_index")) or an_int(fields.get("summary_index")) or 0


def _thoughts_of(pieces: dict[tuple[str, int], str]) -> Item:
    """A reasoning's blocks, by its deltas."""
    blocks: Item = {}
    for (kind, _), text in sorted(pieces.items()):
        if block := _THOUGHTS.get(kind):
            field_name, block_type = block
            blocks.setdefault(field_name, []).append({"type": block_type, "text": text})
    return blocks


def _with_seal(item: Item, whole_item: Item) -> Item:
    """The item, with the encrypted content that only the response has for it: an item's last event may come early."""
    sealed = whole_item.get("encrypted_content")
    if not sealed or item.get("encrypted_content"):
        return item
    if item.get("type") != whole_item.get("type") or item.get("id") != whole_item.get("id"):
        return item
    return item | {"encrypted_content": sealed}


def _fill_empty(item: Item, fuller_item: Item) -> Item:
    """The item, with the text of the other, which is the same item, if its own is empty."""
    name = _FIELD_OF_TEXT.get(a_str(item.get("type")), "")
    if not fuller_item.get(name) or not _is_empty(item.get(name)) or fuller_item.get("type") != item["type"]:
        return item
    return item | {name: fuller_item[name]}


def _is_empty(content: object) -> bool:
    """Whether it is nothing, or a list of blocks with nothing in them."""
    if isinstance(content, list):
        return not any(text for block in content for name, text in a_dict(block).items() if name != "type")
    return not content


def _text_in(message: Item) -> str:
    blocks = map(a_dict, a_list(message.get("content")))
    return "".join(a_str(block.get("text")) or a_str(block.get("refusal")) for block in blocks)


_BLOCK_TYPES = {"text": "output_text", "refusal": "refusal"}


def _read_usage(usage: dict[str, Any]) -> Usage:
    return count_tokens(usage, input_name="input_tokens", output_name="output_tokens")
