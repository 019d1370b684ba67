"""Chat Completions: joins the pieces of a reply's tool calls, in every dialect that was seen."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Final

from everturn.providers.base import Request
from everturn.providers.json_values import a_dict, a_str, an_int, arguments_in, mend_texts, object_in, text_or_json
from everturn.providers.reading import MAX_CALLS, unusable_reply
from everturn.records import ToolCall
from everturn.text.utf8 import mend

_SIGNS = re.compile(r'\\.|["{}]', re.DOTALL)
"""The signs that show whether a place in JSON is inside a string or braces. An escape matches first, to skip it."""

_OF_A_CALL = frozenset({"index", "id", "type", "function", "custom"})
"""The fields of a call that we read. Any other field is kept and sent back, such as Gemini's signatures."""

_OF_A_FUNCTION = frozenset({"name", "arguments", "input"})
"""The same for what is inside of `function`: Portkey puts Gemini's signatures there."""

LEGACY: Final = "function_call"
"""The `type` in the extra of a call that came as `function_call`, the form before `tool_calls`."""

_USUAL = (None, "", "function", "custom")
"""Types of calls that need not be kept."""


@dataclass(slots=True)
class _Braces:
    """Tracks strings and braces in the text received so far."""

    broken: bool = False
    _seen: int = 0
    """How many pieces were read."""
    _depth: int = 0
    _quoted: bool = False
    _rest: str = ""
    """A backslash at the end of a piece, whose other half is still to come."""

    def closed_by(self, pieces: list[str]) -> bool:
        """Whether the last piece ends with the brace that closes the first one."""
        for piece in pieces[self._seen :]:
            self._count_braces(self._rest + piece)
        self._seen = len(pieces)
        return bool(pieces) and not self._depth and not self._quoted and pieces[-1].endswith("}")

    def _count_braces(self, text: str) -> None:
        self._rest = ""
        if (len(text) - len(text.rstrip("\\"))) % 2 == 1:
            self._rest = "\\"
            text = text[:-1]
        for match in _SIGNS.finditer(text):
            if match[0] == '"':
                self._quoted = not self._quoted
            elif not self._quoted:
                self._depth += {"{": 1, "}": -1}.get(match[0], 0)


@dataclass(slots=True)
class PartialCall:
    """A tool call as received so far."""

    index: int | None
    id: str
    custom: bool = False
    """A custom tool's, which takes a text. One that nobody declared is kept, and never dispatched."""
    name: str = ""
    pieces: list[str] = field(default_factory=list)
    extra: dict[str, Any] = field(default_factory=dict)
    inner: dict[str, Any] = field(default_factory=dict)
    """Fields beside the function's name and arguments."""
    _braces: _Braces = field(default_factory=_Braces)

    @property
    def text(self) -> str:
        return "".join(self.pieces)

    @property
    def is_complete(self) -> bool:
        """Whether the arguments are a whole object by now. The text is parsed only once for that."""
        if self._braces.broken or not self._braces.closed_by(self.pieces):
            return False
        self._braces.broken = object_in(self.text) is None  # and nothing that may follow mends it
        return not self._braces.broken


@dataclass(slots=True)
class PartialCalls:
    """The calls of one reply, as received so far."""

    calls: list[PartialCall] = field(default_factory=list)
    bare: dict[int | None, str] = field(default_factory=dict)
    """Entries of `tool_calls` without a function, by index, with their ids: a later entry may bring the function."""

    def add_entry(self, entry: dict[str, Any], *, request: Request, is_whole_reply: bool) -> None:
        """Reads an entry of `tool_calls`: a new call, or more of a known one."""
        function = entry.get("function")
        is_custom = not isinstance(function, dict)
        index = an_int(entry.get("index"))
        call_id = "" if entry.get("id") is None else str(entry["id"])
        if is_custom and not isinstance(entry.get("custom"), dict):
            if is_whole_reply or all(call.index != index for call in self.calls):
                self.bare[index] = call_id
            return
        if is_custom:
            fields = a_dict(entry["custom"])
            arguments = fields.get("input")
        else:
            fields = a_dict(function)
            arguments = fields.get("arguments")
        name = a_str(fields.get("name"))
        text = None if arguments is None else text_or_json(arguments)
        call = None if is_whole_reply else self._going_on(index, call_id, name, request)
        if call is None:
            if len(self.calls) >= MAX_CALLS:
                raise unusable_reply(request.model, f"it holds more than {MAX_CALLS} tool calls")
            if not (call_id or is_whole_reply):
                call_id = self.bare.pop(index, "")
            call = PartialCall(index, call_id, is_custom)
            self.calls.append(call)
        elif name and call.is_complete and call.text == text:
            return  # the whole call once more
        call.id = call.id or call_id
        if name != call.name:
            call.name += name
        if text is not None:
            call.pieces.append(text)
        if entry.get("type") not in _USUAL:  # Moonshot's own tools
            call.extra["type"] = entry["type"]
        if not entry.keys() <= _OF_A_CALL:
            call.extra |= {name: value for name, value in entry.items() if name not in _OF_A_CALL and value is not None}
        if not fields.keys() <= _OF_A_FUNCTION:
            call.inner |= {
                name: value for name, value in fields.items() if name not in _OF_A_FUNCTION and value is not None
            }

    def add_legacy_entry(self, function: dict[str, Any], *, request: Request, is_whole_reply: bool) -> None:
        """Reads `function_call`, the form before `tool_calls`."""
        entry = {"index": -1, "type": LEGACY, "function": function}
        self.add_entry(entry, request=request, is_whole_reply=is_whole_reply)

    def drop_repeated(self) -> None:
        """A server that sends `function_call` beside `tool_calls` says the same call twice; one whose fields are all
        null is none."""
        new = [call for call in self.calls if call.extra.get("type") != LEGACY]
        self.calls = new or [call for call in self.calls if call.name or call.pieces]

    def _going_on(self, index: int | None, call_id: str, name: str, request: Request) -> PartialCall | None:
        """The call that an entry continues; None if the entry starts a new one.

        Servers number badly (Ollama: index 0 for every call; Mistral: no index) and name badly (no id; the name in
        every piece, or "" after the first). An entry is a continuation if it has no name, or the same id, or comes
        while the arguments of the last call are not complete yet. The name of another tool starts a new one even then:
        the last call has no arguments.
        """
        places = [call for call in self.calls if index is None or call.index == index]
        if index is None and call_id:
            same = [call for call in places if call.id == call_id]
            if same or name:
                places = same
        if not places:
            return None
        latest = places[-1]
        if not name or (call_id and call_id == latest.id):
            return latest
        if (call_id and latest.id) or latest.is_complete:
            return None
        if name != latest.name and {latest.name, name} <= {tool.name for tool in request.tools}:
            return None
        return latest


def tool_call(
    call: PartialCall, *, name: str, call_id: str, provider_id: str | None, cut_off: bool, bare_is_whole: bool = True
) -> ToolCall:
    """`cut_off`: the reply may have ended in the middle of this call; `bare_is_whole`: no arguments at all are {}."""
    text = mend(call.text)
    extra = dict(call.extra)
    if call.inner:
        extra["custom" if call.custom else "function"] = call.inner
    extra = mend_texts(extra)
    arguments: dict[str, Any] | None
    if call.custom:
        arguments = None if cut_off else {"input": text}
        extra["type"] = "custom"
    # No arguments at all are {}, unless the reply was cut off before they came.
    elif not text.strip() and bare_is_whole and not cut_off:
        arguments = {}
    else:
        arguments = arguments_in(text)
    return ToolCall(
        call_id=call_id,
        name=name,
        arguments=arguments or {},
        provider_id=provider_id,
        unparsed=text if arguments is None else None,
        extra=extra,
    )
