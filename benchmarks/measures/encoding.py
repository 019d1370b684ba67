"""Encoding and writing one request by the length of its transcript, of which the last turn alone is new; beside the
same request encoded anew, and beside copying its bytes once. CPU of this process, without a server."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from statistics import median
from typing import TypeVar

from benchmarks.measures import Column, Measured, Plan
from benchmarks.rig import Rig
from everturn.activities.prefix_cache import PrefixCache, follow_prefix
from everturn.models import Model, ModelSettings
from everturn.providers.base import Request
from everturn.providers.catalog import row_of
from everturn.providers.encoded_messages import body_in_json
from everturn.providers.http import protocol_by_name
from everturn.providers.json_values import write_json
from everturn.records import Message, Text, ToolCall, ToolResult

T = TypeVar("T")
R = TypeVar("R")

LENGTHS_MB = (0.22, 1.1, 8.9)
RESULT_CHARS = 4_000
ROUNDS = 15
MODELS = {
    "Chat": "openai-chat:gpt-5.5",
    "Responses": "openai:gpt-5.5",
    "Messages": "anthropic:claude-opus-4-7",
    "Gemini": "google:gemini-3-pro",
}


async def measure(_rig: Rig, _plan: Plan) -> Measured:
    rows = {name: dict(_row(model)) for name, model in MODELS.items()}
    columns = [Column(f"new_{mb}", f"ms at {mb} MB", ".2f") for mb in LENGTHS_MB]
    columns += [Column(f"anew_{mb}", f"anew, {mb} MB", ".1f", better=None) for mb in LENGTHS_MB]
    columns += [Column(f"copy_{mb}", f"copying the bytes, {mb} MB", ".2f", better=None) for mb in LENGTHS_MB]
    return Measured(f"Encoding and writing a request ({ROUNDS} turns at each length)", columns, rows)


def _row(model: str) -> Iterator[tuple[str, float]]:
    for mb in LENGTHS_MB:
        request = Request(model=Model(model), messages=(), settings=ModelSettings())
        seconds: dict[str, list[float]] = {"new": [], "anew": [], "copy": []}
        turns = round(mb * 1e6 / (RESULT_CHARS + 200)) + ROUNDS
        for number, messages in enumerate(_turn_by_turn(turns), ROUNDS - turns):
            turn = replace(request, messages=messages)
            if number < 0:
                _encode(turn)  # what the worker remembers for the next
                continue
            body = _timed(seconds["new"], lambda turn: body_in_json(_encode(turn)), turn)
            _timed(seconds["anew"], lambda turn: write_json(_encode(turn)), replace(turn, messages=[*messages]))
            _timed(seconds["copy"], bytearray, body)
        yield from ((f"{what}_{mb}", median(own) * 1000) for what, own in seconds.items())


def _encode(request: Request) -> dict[str, object]:
    return protocol_by_name(row_of(request.model.provider).protocol).encode(request)[1]


def _turn_by_turn(turns: int) -> Iterator[Sequence[Message]]:
    """The transcripts, as a worker remembers them from turn to turn."""
    prefixes = PrefixCache()
    digest = ""
    new: list[Message] = [Message.user("Read the files.")]
    position = 0
    for turn in range(turns):
        prefix = prefixes.find(digest, position)
        assert prefix is not None
        messages = follow_prefix(prefix, new)
        yield messages
        call = ToolCall(call_id=f"call_{turn}", name="read_file", arguments={"path": f"src/file_{turn}.py"})
        exchange = [*new, Message(role="assistant", parts=(Text(text="I look."), call))]
        digest = prefixes.remember(digest, prefix, exchange)
        position += len(exchange)
        text = f"{turn:08}" * (RESULT_CHARS // 8)
        new = [Message(role="tool", parts=(ToolResult(call_id=call.call_id, content=(Text(text=text),)),))]


def _timed(seconds: list[float], work: Callable[[T], R], argument: T) -> R:
    """What the work returns. Adds the CPU that it took."""
    began = time.process_time()
    result = work(argument)
    seconds.append(time.process_time() - began)
    return result
