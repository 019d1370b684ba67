"""Writes a scripted reply in the format of Chat Completions: one JSON object, or the events of a stream."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic_core import to_json

from everturn.testing.script import Call, Say, Whole, contents

CHUNK_CHARS = 32
"""How much text one event of a stream carries."""


def whole(reply: Whole, *, model: str, turn: int, prompt_bytes: int) -> bytes:
    """The body of a reply that is not streamed."""
    says, calls = _split(reply)
    message: dict[str, Any] = {"role": "assistant", "content": "".join(said.text for said in says) or None}
    if thinking := "".join(said.thinking for said in says):
        message["reasoning_content"] = thinking
    if calls:
        message["tool_calls"] = [_call(item, turn=turn, index=index) for index, item in enumerate(calls)]
    choice = {"index": 0, "message": message, "finish_reason": _finish(says, calls)}
    usage = _usage(says, calls, prompt_bytes=prompt_bytes)
    return to_json(_head(model, turn, "chat.completion") | {"choices": [choice], "usage": usage})


def events(reply: Whole, *, model: str, turn: int, prompt_bytes: int, usage: bool) -> Iterator[bytes]:
    """The events of a stream, each with its empty line. With `usage` there is a last one with the usage, as for
    include_usage."""
    says, calls = _split(reply)
    head = _head(model, turn, "chat.completion.chunk")

    def event(delta: Mapping[str, Any], finish: str | None = None) -> bytes:
        return _data(head | {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})

    yield event({"role": "assistant", "content": ""})
    for said in says:
        yield from (event({"reasoning_content": piece}) for piece in _pieces(said.thinking))
        yield from (event({"content": piece}) for piece in _pieces(said.text))
    for index, item in enumerate(calls):
        entry = _call(item, turn=turn, index=index)
        arguments = entry["function"]["arguments"]
        start = entry | {"index": index, "function": {"name": item.name, "arguments": ""}}
        yield event({"tool_calls": [start]})
        for piece in _pieces(arguments):
            yield event({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
    yield event({}, _finish(says, calls))
    if usage:
        yield _data(head | {"choices": [], "usage": _usage(says, calls, prompt_bytes=prompt_bytes)})
    yield b"data: [DONE]\n\n"


def _split(reply: Whole) -> tuple[list[Say], list[Call]]:
    items = contents(reply)
    return [item for item in items if isinstance(item, Say)], [item for item in items if isinstance(item, Call)]


def _head(model: str, turn: int, kind: str) -> dict[str, Any]:
    return {"id": f"chatcmpl-scripted-{turn}", "object": kind, "created": 0, "model": model}


def _call(item: Call, *, turn: int, index: int) -> dict[str, Any]:
    arguments = item.arguments if isinstance(item.arguments, str) else to_json(item.arguments).decode()
    # The same request gets the same ids: they follow from the position alone.
    call_id = item.id if item.id is not None else f"call_{turn}_{index}"
    return {"id": call_id, "type": "function", "function": {"name": item.name, "arguments": arguments}}


def _finish(says: list[Say], calls: list[Call]) -> str:
    given = next((said.finish for said in says if said.finish), None)
    return given or ("tool_calls" if calls else "stop")


def _usage(says: list[Say], calls: list[Call], *, prompt_bytes: int) -> Mapping[str, Any]:
    for said in says:
        if said.usage is not None:
            return said.usage
    prompt = prompt_bytes // 4 + 1
    completion = sum(len(said.text) + len(said.thinking) for said in says) // 4 + 12 * len(calls) + 1
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}


def _pieces(text: str) -> Iterator[str]:
    return (text[start : start + CHUNK_CHARS] for start in range(0, len(text), CHUNK_CHARS))


def _data(value: Mapping[str, Any]) -> bytes:
    return b"data: " + to_json(value) + b"\n\n"
