"""Writes a scripted reply in the format of Chat Completions: one JSON object, or the events of a stream."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic_core import to_json

from everturn.testing.script import Call, Say, Whole, contents_of

CHUNK_CHARS = 32
"""How much text one event of a stream carries."""

MOST_CHUNKS = 1_000
"""Into how many events a text is cut. Of a longer one, each carries more: nobody looks at ten thousand of them."""


def whole_reply(reply: Whole, *, model: str, turn: int, prompt_bytes: int) -> bytes:
    """The body of a reply that is not streamed."""
    says, calls = _split_contents(reply)
    message: dict[str, Any] = {"role": "assistant", "content": "".join(spoken.text for spoken in says) or None}
    if thinking := "".join(spoken.thinking for spoken in says):
        message["reasoning_content"] = thinking
    if calls:
        message["tool_calls"] = [_tool_call(item, turn=turn, index=index) for index, item in enumerate(calls)]
    choice = {"index": 0, "message": message, "finish_reason": _finish_reason(says, calls)}
    usage = _usage_of(says, calls, prompt_bytes=prompt_bytes)
    return to_json(_reply_head(model, turn, "chat.completion") | {"choices": [choice], "usage": usage})


def reply_events(reply: Whole, *, model: str, turn: int, prompt_bytes: int, usage: bool) -> Iterator[bytes]:
    """The events of a stream, each with its empty line. With `usage` there is a last one with the usage, as for
    include_usage."""
    says, calls = _split_contents(reply)
    head = _reply_head(model, turn, "chat.completion.chunk")

    def make_event(delta: Mapping[str, Any], finish: str | None = None) -> bytes:
        return _data_event(head | {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})

    yield make_event({"role": "assistant", "content": ""})
    for spoken in says:
        yield from (make_event({"reasoning_content": piece}) for piece in _pieces_of(spoken.thinking))
        yield from (make_event({"content": piece}) for piece in _pieces_of(spoken.text))
    for index, item in enumerate(calls):
        entry = _tool_call(item, turn=turn, index=index)
        arguments = entry["function"]["arguments"]
        start = entry | {"index": index, "function": {"name": item.name, "arguments": ""}}
        yield make_event({"tool_calls": [start]})
        for piece in _pieces_of(arguments):
            yield make_event({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
    yield make_event({}, _finish_reason(says, calls))
    if usage:
        yield _data_event(head | {"choices": [], "usage": _usage_of(says, calls, prompt_bytes=prompt_bytes)})
    yield b"data: [DONE]\n\n"


def _split_contents(reply: Whole) -> tuple[list[Say], list[Call]]:
    items = contents_of(reply)
    return [item for item in items if isinstance(item, Say)], [item for item in items if isinstance(item, Call)]


def _reply_head(model: str, turn: int, kind: str) -> dict[str, Any]:
    return {"id": f"chatcmpl-scripted-{turn}", "object": kind, "created": 0, "model": model}


def _tool_call(item: Call, *, turn: int, index: int) -> dict[str, Any]:
    arguments = item.arguments
    if not isinstance(arguments, str):
        arguments = to_json(arguments).decode()
    # The same request gets the same ids: they follow from the position alone.
    call_id = item.id if item.id is not None else f"call_{turn}_{index}"
    return {"id": call_id, "type": "function", "function": {"name": item.name, "arguments": arguments}}


def _finish_reason(says: list[Say], calls: list[Call]) -> str:
    for spoken in says:
        if spoken.finish:
            return spoken.finish
    if calls:
        return "tool_calls"
    return "stop"


def _usage_of(says: list[Say], calls: list[Call], *, prompt_bytes: int) -> Mapping[str, Any]:
    for spoken in says:
        if spoken.usage is not None:
            return spoken.usage
    prompt = prompt_bytes // 4 + 1
    completion = sum(len(spoken.text) + len(spoken.thinking) for spoken in says) // 4 + 12 * len(calls) + 1
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}


def _pieces_of(text: str) -> Iterator[str]:
    chars = max(CHUNK_CHARS, -(-len(text) // MOST_CHUNKS))
    return (text[start : start + chars] for start in range(0, len(text), chars))


def _data_event(value: Mapping[str, Any]) -> bytes:
    return b"data: " + to_json(value) + b"\n\n"
