"""Bad input, as tables: what models, model servers, tools and people may send. Each row has a name."""

from __future__ import annotations

import asyncio
import datetime
import gzip
import json
import math
from collections.abc import Callable
from decimal import Decimal
from typing import Any, NoReturn

from temporalio.api.common.v1 import Payload, Payloads

from everturn import Image, Text, ToolFailed
from everturn.testing import call, fail, garbage, say


def deep(levels: int, *, opening: str = '{"a":', closing: str = "}", core: str = "1") -> str:
    return opening * levels + core + closing * levels


# ---------------------------------------------------------------- tool calls of a reply

TOOL_CALLS: list[tuple[str, Any]] = [
    ("an empty name", call("", {})),
    ("a name of blanks", call("  ", {})),
    ("an unknown name", call("no_such_tool", {"x": 1})),
    ("a name with a newline", call("note\nnote", {})),
    ("a name of 500 characters", call("n" * 500, {})),
    ("a name in other letters", call("заметка✍️", {})),
    ("our own activity's name", call("call_model", {})),
    ("a path as a name", call("../../etc/passwd", {})),
    ("a name in capitals", call("NOTE", {})),
    ("no arguments", call("note", "")),
    ("half an object", call("note", '{"text": "half')),
    ("no JSON", call("note", "text=1")),
    ("a list", call("note", "[1, 2]")),
    ("null", call("note", "null")),
    ("a string", call("note", '"text"')),
    ("a number", call("note", "7")),
    ("an object in a string", call("note", json.dumps(json.dumps({"text": "twice"})))),
    ("an object with a tail", call("note", '{"text": "x"} and more')),
    ("two objects", call("note", '{"text": "x"}{"text": "y"}')),
    ("NaN", call("note", '{"count": NaN}')),
    ("Infinity", call("keep", '{"things": {"x": Infinity, "y": -Infinity}}')),
    ("a lone surrogate", call("note", '{"text": "\\ud800"}')),
    ("a surrogate as a key", call("keep", '{"things": {"\\udfff": 1}}')),
    ("a null character", call("note", '{"text": "a\\u0000b"}')),
    ("raw control characters", call("note", '{"text": "a\x01\nb"}')),
    ("an integer of 5,000 digits", call("note", f'{{"count": {"9" * 5000}}}')),
    ("a float that overflows", call("note", '{"count": 1e999}')),
    ("a field twice", call("note", '{"text": "a", "text": "b"}')),
    ("an unknown field", call("note", {"text": "a", "volume": 11})),
    ("a wrong type", call("note", {"text": {"a": 1}})),
    ("300,000 characters", call("note", {"text": "x" * 300_000})),
    ("30 levels", call("keep", f'{{"things": {deep(30)}}}')),
    ("200 levels", call("keep", f'{{"things": {deep(200)}}}')),
    ("100,000 levels", call("keep", f'{{"things": {deep(100_000)}}}')),
    ("100,000 open brackets", call("note", "[" * 100_000)),
    ("10,000 fields", call("keep", {"things": {f"k{number}": number for number in range(10_000)}})),
    ("two calls with one id", [call("note", {"text": "a"}, id="same"), call("note", {"text": "b"}, id="same")]),
    ("an id of an earlier reply", call("note", {"text": "c"}, id="same")),
    ("an empty id", [call("note", {}, id=""), call("note", {}, id="")]),
    ("an id of 10,000 characters", call("note", {}, id="i" * 10_000)),
    ("an id with odd characters", call("note", {}, id='a\n"*/☃')),
    ("the id that means all", call("note", {}, id="*")),
    ("a cut-off reply with a call", [say("I was going to", finish="length"), call("note", {"text": "x"})]),
    ("a finish reason in other letters", [say("hm", finish="ToolCalls"), call("note", {"text": "x"})]),
]

TOLD = {
    "an empty name": "True: There is no tool ''",
    "an unknown name": "The tools are: note, keep.",
    "half an object": "True: The arguments are not a JSON object",
    "a wrong type": "text: Input should be a valid string",
    "30 levels": "False: kept 1",
    "a list": "not a JSON object: it is a list",
    "200 levels": "True: The arguments are nested more than 100 levels deep",
    "100,000 levels": "True: The arguments are nested more than 100 levels deep",
    "100,000 open brackets": "True: The arguments are nested more than 100 levels deep",
    "two calls with one id": "noted 'a' 0",
    "the id that means all": "False: noted '' 0",
}


# ---------------------------------------------------------------- bodies of model servers


def chunk(delta: Any = None, **more: Any) -> dict[str, Any]:
    return {"id": "x", "object": "chat.completion.chunk", "choices": [{"index": 0, "delta": delta, **more}]}


def stream(*events: Any, done: bool = True, newline: str = "\n") -> Any:
    lines = [f"data: {event if isinstance(event, str) else json.dumps(event)}{newline}{newline}" for event in events]
    text = "".join(lines) + (f"data: [DONE]{newline}{newline}" if done else "")
    return garbage(text.encode("utf-8", "surrogatepass"), content_type="text/event-stream")


HI = chunk({"role": "assistant", "content": "Fine."})
END = chunk({}, finish_reason="stop")

BODIES: list[tuple[str, Any]] = [
    ("nothing", garbage(b"")),
    ("nothing, as a stream", garbage(b"", content_type="text/event-stream")),
    ("HTML", garbage(b"<html><body>Bad gateway</body></html>", content_type="text/html")),
    ("HTML that calls itself JSON", garbage()),
    ("an empty object", garbage(b"{}")),
    ("a list", garbage(b"[]")),
    ("null", garbage(b"null")),
    ("half an object", garbage(b'{"choices": [{"mess')),
    ("an error in a 200", garbage(b'{"error": {"message": "overloaded", "code": 529}}')),
    ("no choices", garbage(b'{"choices": []}')),
    ("choices of null", garbage(b'{"choices": null}')),
    ("a message of null", garbage(b'{"choices": [{"message": null}]}')),
    ("a gzip nobody announced", garbage(gzip.compress(b"{}"))),
    ("no UTF-8", garbage(b"\xff\xfe\xfa\x00", content_type="text/event-stream")),
    ("only the end of a stream", stream()),
    ("a stream without an end", stream(HI, done=False)),
    ("a stream without a reason", stream(HI)),
    ("an unknown finish reason", [say("hm", finish="because"), call("note", {"text": "x"})]),
    ("a stream cut in the middle of an event", garbage(b'data: {"choices": [{"de', content_type="text/event-stream")),
    ("events that are no JSON", stream("{nope", "hello")),
    ("events that are no objects", stream("[]", "1", "null", '"x"')),
    ("an error in a stream", stream({"error": {"message": "internal", "type": "server_error"}})),
    ("an error in the middle of a stream", stream(HI, {"error": {"message": "internal"}})),
    ("an error that is a string", stream({"error": "boom"})),
    ("a delta of null", stream(chunk(None), END)),
    ("a delta that is a list", stream(chunk([1]), END)),
    ("choices that are an object", stream({"choices": {"0": 1}})),
    ("content that is a number", stream(chunk({"content": 7}), END)),
    ("content that is a list", stream(chunk({"content": [{"type": "text", "text": "x"}]}), END)),
    ("tool_calls of null", stream(HI, chunk({"tool_calls": None}), END)),
    ("tool_calls that are no list", stream(chunk({"tool_calls": "x"}), END)),
    ("a tool call that is null", stream(chunk({"tool_calls": [None]}), END)),
    ("a tool call without a function", stream(chunk({"tool_calls": [{"index": 0, "id": "a"}]}), END)),
    ("a tool call with an index of text", stream(chunk({"tool_calls": [{"index": "first", "id": "a"}]}), END)),
    ("a tool call with an index of a billion", stream(chunk({"tool_calls": [{"index": 10**9, "id": "a"}]}), END)),
    ("usage that is text", stream(HI, END, {"choices": [], "usage": "much"})),
    ("usage below zero", stream(HI, END, {"choices": [], "usage": {"prompt_tokens": -5, "completion_tokens": "x"}})),
    ("usage of null", stream(HI, END, {"choices": [], "usage": {"prompt_tokens": None}})),
    ("a BOM and CRLF", garbage("\ufeffdata: x\r\n\r\n".encode(), content_type="text/event-stream")),
    ("comments only", garbage(b": ping\n\n" * 1000, content_type="text/event-stream")),
    ("100,000 empty lines", garbage(b"\n" * 100_000, content_type="text/event-stream")),
    ("a line of 3 MB", stream(chunk({"content": "x" * 3_000_000}), END)),
    ("a reply of 2 MB in pieces", stream(*[chunk({"content": "x" * 20_000})] * 100, END)),
    ("100,000 levels", garbage(deep(100_000).encode())),
    ("a lone surrogate", garbage(b'data: {"choices": [{"delta": {"content": "\\ud800"}}]}\n\n')),
    ("NaN", garbage(b'{"choices": NaN}')),
    ("an empty 500", fail(500, body=b"")),
    ("a 500 of 5 MB", fail(500, body=b"x" * 5_000_000)),
    ("a 502 in HTML", fail(502, body="<html>Bad gateway</html>", headers={"content-type": "text/html"})),
    ("a 529", fail(529, body={"error": None})),
    ("a 429 with a Retry-After that is none", fail(429, headers={"retry-after": "soon"})),
    ("a 429 with a Retry-After below zero", fail(429, headers={"retry-after": "-5"})),
    ("a 408", fail(408)),
    ("a 409", fail(409)),
    ("a 301 to nowhere", fail(301, headers={"location": "/elsewhere"})),
    ("a 204", fail(204, body=b"")),
    ("a 400 that is a list", fail(400, body="[1, 2]")),
    ("a 400 with control characters", fail(400, "bad \x1b[31mred\x1b[0m\u202e")),
    ("a 401", fail(401)),
    ("a 403 in HTML", fail(403, body="<html>Forbidden</html>")),
    ("a 404", fail(404)),
    ("a 413", fail(413)),
    ("a 418", fail(418)),
    ("a 999", fail(999)),
]

TAKEN_AS_REPLIES = {"content that is a list", "a line of 3 MB", "a reply of 2 MB in pieces"}
"""What is not asked again, since it is a reply: the text of its blocks is taken."""


# ---------------------------------------------------------------- what tools return and raise


def raising(error: BaseException) -> Callable[[], NoReturn]:
    def throw() -> NoReturn:
        raise error

    return throw


def circular() -> Any:
    loop: dict[str, Any] = {}
    loop["self"] = loop
    return loop


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


class Thing: ...


def recurse() -> Any:
    return recurse()


RAN = "error: The tool ran, and what it did stands: do not call it again to get its result, which can't be shown. "

RESULTS: list[tuple[str, Callable[[], Any], str]] = [
    # name, what the tool does, what the model is told
    ("nothing", lambda: None, "(no output)"),
    ("an empty text", lambda: "", "(no output)"),
    ("a text of 2 MB", lambda: "x" * 2_000_000, "Cut: "),
    ("a text of 2 MB in UTF-8", lambda: "€" * 700_000, "Cut: "),
    ("a dict of 3 MB", lambda: {f"key{n}": "v" * 90 for n in range(30_000)}, "Cut: "),
    ("a list of 100,000 numbers", lambda: list(range(100_000)), "[0,1,2"),
    ("a lone surrogate", lambda: "a\ud800b", "a�b"),
    ("a surrogate as a key", lambda: {"\udfff": "\ud800"}, "�"),
    ("a null character", lambda: "a\x00b", "a\x00b"),
    ("NaN and Infinity", lambda: [math.nan, math.inf, -math.inf], '["NaN","Infinity","-Infinity"]'),
    ("an integer of 5,000 digits", lambda: 10**5000, "error: "),
    ("5,000 levels", lambda: nested(5_000), "error: "),
    ("itself", circular, "error: "),
    ("bytes", lambda: b"\x00\xff", f"{RAN}The tool returned a bytes"),
    ("bytes in a dict", lambda: {"data": b"\xff\xfe"}, ""),
    ("a set", lambda: {1}, "[1]"),
    ("an object", Thing, f"{RAN}The tool returned a Thing"),
    ("a class", lambda: Thing, "error: "),
    ("a function", lambda: raising, "error: "),
    ("a generator", lambda: (n for n in range(3)), ""),
    ("an exception", lambda: ValueError("returned"), "error: "),
    ("a date", lambda: datetime.date(2026, 1, 2), "2026-01-02"),
    ("a decimal", lambda: Decimal("1.10"), "1.10"),
    ("keys that are no text", lambda: {(1, 2): 3, None: 4}, ""),
    ("an image of 2 MB", lambda: Image(data="A" * 2_000_000, media_type="image/png"), "too large"),
    ("200 images", lambda: [Image(data="A" * 20_000, media_type="image/png")] * 200, ""),
    (
        "a list of parts and others",
        lambda: [Text(text="a"), 7],
        f"{RAN}The tool returned a list with parts",
    ),
    ("an error", raising(ValueError("no such order")), "error: ValueError: no such order"),
    ("a ToolFailed", raising(ToolFailed("not today")), "error: not today"),
    ("an error of 1 MB", raising(ValueError("x" * 1_000_000)), "error: ValueError: xxx"),
    ("an error that can't be said", raising(Unspeakable()), "error: Unspeakable"),
    ("an error with surrogates", raising(ValueError("\ud800")), "error: ValueError: �"),
    ("a group of errors", raising(ExceptionGroup("two", [ValueError("1"), ValueError("2")])), "error: ExceptionGroup"),
    ("endless recursion", recurse, "error: RecursionError"),
    ("no memory", raising(MemoryError()), "error: MemoryError"),
    ("a time-out of its own", raising(TimeoutError("the bank")), "error: TimeoutError: the bank"),
    ("a StopIteration", raising(StopIteration()), "error: "),
    ("a SystemExit", raising(SystemExit(3)), "error: "),
]

NO_ERRORS: list[tuple[str, Callable[[], Any], str]] = [
    ("a KeyboardInterrupt", raising(KeyboardInterrupt()), "error: RuntimeError: the function raised"),
    ("a GeneratorExit", raising(GeneratorExit()), "error: RuntimeError: the function raised"),
    (
        "a cancellation of its own",
        raising(asyncio.CancelledError()),
        "error: RuntimeError: the function raised",
    ),
]
"""What a tool may raise and Python does not count among the errors."""


# ---------------------------------------------------------------- what people send

COMMANDS = ["message", "approve", "deny", "answer", "pause", "resume", "cancel_turn", "close"]

JSON_PAYLOADS: dict[str, Any] = {
    "a text": "a",
    "a number": 7,
    "true": True,
    "a list": ["a"],
    "an empty list": [],
    "a list of objects": [{"call_id": "a"}],
    "a call that waits nowhere": {"call_id": "nobody", "content": "x"},
    "an id that is a number": {"call_id": 7, "text": 7},
    "an id that is null": {"call_id": None, "text": None},
    "an id that is an object": {"call_id": {}, "text": {}},
    "an id of 100,000 characters": {"call_id": "x" * 100_000, "content": "", "parts": "x"},
    "an empty id": {"call_id": "", "content": "", "text": ""},
    "arguments that are a list": {"call_id": "a", "arguments": [1], "reason": 7, "parts": [7]},
    "other fields only": {"callId": "a", "txt": "hello", "nonsense": [1, 2]},
    "450,000 characters": {"call_id": "nobody", "text": "x" * 450_000, "content": "x" * 450_000},
}


def raw(data: bytes, encoding: bytes = b"json/plain") -> Payloads:
    return Payloads(payloads=[Payload(metadata={"encoding": encoding}, data=data)])


RAW_PAYLOADS: dict[str, Payloads] = {
    **{
        name: raw(json.dumps(value).encode())
        for name, value in JSON_PAYLOADS.items()
        # The switches ignore unknown fields, so an object would be taken.
        if not isinstance(value, dict)
    },
    "NaN": raw(b"[NaN]"),
    "bytes": raw(b"\x00\x01", b"binary/plain"),
    "two inputs": Payloads(payloads=[*raw(b'"a"').payloads, *raw(b'"b"').payloads]),
}

NO_JSON: dict[str, Payloads] = {
    "an empty payload": raw(b""),
    "no JSON": raw(b"call_id: a"),
    "half an object": raw(b'{"call_id": "a'),
    "no UTF-8": raw(b'{"call_id": "\xff\xfe"}'),
    "100,000 levels": raw(deep(100_000).encode()),
    "a lone surrogate": raw(b'["\\ud800"]'),
    "an integer of 10,000 digits": raw(b"9" * 10_000),
}

UNREADABLE: dict[str, Payloads] = {
    "an unknown encoding": raw(b"x", b"binary/unheard-of"),
    "an encrypted payload without a codec": raw(b"\x01\x02\x03", b"binary/encrypted"),
    "protobuf in JSON": raw(b'{"a": 1}', b"json/protobuf"),
    "no encoding": Payloads(payloads=[Payload(data=b'"a"')]),
}

OF_ANOTHER_CODEC = {"an unknown encoding", "an encrypted payload without a codec", "no encoding"}
"""What a codec that we lack may have written is fine, perhaps: a matter of this client's settings."""

STARTS: dict[str, Payloads] = {
    "nothing": Payloads(),
    **RAW_PAYLOADS,
    **NO_JSON,
    "no agent": raw(b'{"message": "hi"}'),
    "an empty agent": raw(b'{"agent": "", "message": "hi"}'),
    "no message": raw(b'{"agent": "clerk"}'),
    "an empty message": raw(b'{"agent": "clerk", "message": ""}'),
    "a message that is a number": raw(b'{"agent": "clerk", "message": 7}'),
    "a part that is none": raw(b'{"agent": "clerk", "message": [{"kind": "nonsense"}]}'),
    "limits that are none": raw(b'{"agent": "clerk", "message": "hi", "limits": {"max_turns": 0}}'),
    "limits that do not exist": raw(b'{"agent": "clerk", "message": "hi", "limits": {"max_turn": 3}}'),
    "a time below zero": raw(b'{"agent": "clerk", "message": "hi", "keep_open": -1}'),
    "a time that is text": raw(b'{"agent": "clerk", "message": "hi", "keep_open": "long"}'),
    "a carry-over that is text": raw(b'{"agent": "clerk", "message": "hi", "carry": "x"}'),
}
