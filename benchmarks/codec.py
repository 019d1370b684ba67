"""What encoding a request and decoding a streamed reply cost in CPU, without network: `python -m benchmarks.codec`.

Exit status 1 where a bound is missed. Times are the best of several rounds: what the code costs, and not what else
the machine was doing.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from functools import partial

from everturn.http.sse import EventDecoder
from everturn.models import Model
from everturn.providers.base import Request
from everturn.providers.catalog import row_of
from everturn.providers.http import protocol_by_name
from everturn.providers.json_values import write_json
from everturn.records import Message, Text, ToolCall, ToolResult

MESSAGES = 200
DELTAS = 2_000
ROUNDS = 20

_CHAT = (
    '{"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"m","system_fingerprint":"fp",'
    '"choices":[{"index":0,"delta":{"content":" word"},"logprobs":null,"finish_reason":null}]}'
)
_CHAT_LAST = '{"id":"chatcmpl-1","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}'
_ITEM = '"item":{"type":"message","id":"msg_1","role":"assistant","status":"in_progress","content":[]}'
_RESPONSES = (
    '{"type":"response.output_text.delta","sequence_number":4,"item_id":"msg_1","output_index":0,"content_index":0,'
    '"delta":" word","logprobs":[],"obfuscation":"abcdefgh"}'
)
_GEMINI = (
    '{"candidates":[{"content":{"parts":[{"text":" word"}],"role":"model"},"index":0}],"modelVersion":"m",'
    '"usageMetadata":{"promptTokenCount":9,"totalTokenCount":9},"responseId":"r"}'
)
_GEMINI_LAST = '{"candidates":[{"content":{"parts":[{"text":""}],"role":"model"},"finishReason":"STOP"}]}'
STREAMS = {
    "openai-chat:m": ([], _CHAT, [_CHAT_LAST, "[DONE]"]),
    "openai:m": (
        [f'{{"type":"response.output_item.added","output_index":0,{_ITEM}}}'],
        _RESPONSES,
        ['{"type":"response.completed","response":{"id":"resp_1","status":"completed","output":[]}}'],
    ),
    "anthropic:m": (
        [
            '{"type":"message_start","message":{"id":"msg_1","content":[],"usage":{"input_tokens":9}}}',
            '{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}',
        ],
        '{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":" word"}}',
        [
            '{"type":"content_block_stop","index":0}',
            '{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":9}}',
            '{"type":"message_stop"}',
        ],
    ),
    "google:gemini-3-flash": ([], _GEMINI, [_GEMINI_LAST]),
}
"""For a model of each protocol, a streamed reply: the first events, a delta, the last events."""


def transcript(length: int) -> list[Message]:
    """Rounds of a question, two calls, their results (a kilobyte each) and an answer."""
    messages: list[Message] = []
    for turn in range(length // 4):
        calls = [
            ToolCall(
                call_id=f"call_{turn}_{number}", name="get_order", arguments={"id": f"{turn}-{number}", "deep": True}
            )
            for number in range(2)
        ]
        results = [
            ToolResult(call_id=call.call_id, name=call.name, content=(Text(text="shipped " * 128),)) for call in calls
        ]
        messages += [
            Message.user("What is the state of these two orders? " * 5),
            Message(role="assistant", parts=(Text(text="Let me look. " * 10), *calls)),
            Message(role="tool", parts=tuple(results)),
            Message(role="assistant", parts=(Text(text="Both are shipped. " * 20),)),
        ]
    return messages


def chunks(model: str, deltas: int) -> list[bytes]:
    """A streamed reply as the model's provider sends it, one event a read."""
    before, delta, after = STREAMS[model]
    return [f"data: {data}\n\n".encode() for data in (*before, *[delta] * deltas, *after)]


def asking(model: str, messages: Sequence[Message]) -> Request:
    return Request(model=Model(model), messages=messages, instructions="You are a clerk.")


def encode_all(model: str, messages: Sequence[Message]) -> bytes:
    request = asking(model, messages)
    return write_json(protocol_by_name(row_of(request.model.provider).protocol).encode(request)[1])


def decode_all(model: str, received: Sequence[bytes]) -> str:
    request = asking(model, [Message.user("?")])
    decoder, assembler = EventDecoder(), protocol_by_name(row_of(request.model.provider).protocol).Assembler(request)
    for chunk in received:
        for event in decoder.feed(chunk):
            assembler.feed(event)
    return assembler.finish().text


def best(run: Callable[[], object], prepare: Callable[[], object] = lambda: None) -> float:
    """Milliseconds of CPU, of the best of ROUNDS."""
    times = []
    for _ in range(ROUNDS):
        prepare()
        started = time.process_time()
        run()
        times.append(time.process_time() - started)
    return min(times) * 1000


def main() -> int:
    received = {model: chunks(model, DELTAS) for model in STREAMS}
    failed = False
    for model in STREAMS:
        warm, cold = transcript(MESSAGES), list[Message]()

        def forget(cold: list[Message] = cold) -> None:
            cold[:] = transcript(MESSAGES)

        assert len(decode_all(model, received[model])) == DELTAS * len(" word")
        rows = [
            (f"encode {MESSAGES} messages, none seen before", best(partial(encode_all, model, cold), forget), 5.0),
            (f"encode {MESSAGES} messages, all seen before", best(partial(encode_all, model, warm)), 5.0),
            (f"decode a streamed reply of {DELTAS:,} deltas", best(partial(decode_all, model, received[model])), 40.0),
        ]
        for what, milliseconds, bound in rows:
            verdict = "ok" if milliseconds < bound else "TOO SLOW"
            failed = failed or milliseconds >= bound
            print(f"{model:<24}{what:<46}{milliseconds:8.2f} ms   (bound {bound:.0f} ms)  {verdict}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
