"""What encoding a request and decoding a streamed reply cost in CPU, without network: `python -m benchmarks.codec`.

Exit status 1 where a bound is missed. Times are the best of several rounds: what the code costs, and not what else
the machine was doing.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence

from everturn.models import Model
from everturn.providers.base import Request
from everturn.providers.openai_chat import Assembler, encode
from everturn.providers.sse import Decoder
from everturn.providers.untrusted import write
from everturn.records import Message, Text, ToolCall, ToolResult

MESSAGES = 200
DELTAS = 2_000
ROUNDS = 20


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


def chunks(deltas: int) -> list[bytes]:
    """A streamed reply as OpenAI sends it, one event a read."""
    chunk = (
        '{"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"m","system_fingerprint":"fp",'
        '"choices":[{"index":0,"delta":{"content":" word"},"logprobs":null,"finish_reason":null}]}'
    )
    last = '{"id":"chatcmpl-1","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}'
    return [f"data: {data}\n\n".encode() for data in (*[chunk] * deltas, last, "[DONE]")]


def asking(messages: Sequence[Message]) -> Request:
    return Request(model=Model("openai-chat:m"), messages=messages, instructions="You are a clerk.")


def encode_all(messages: Sequence[Message]) -> bytes:
    return write(encode(asking(messages))[1])


def decode_all(received: Sequence[bytes]) -> str:
    decoder, assembler = Decoder(), Assembler(asking([Message.user("?")]))
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
    warm = transcript(MESSAGES)
    cold: list[Message] = []
    received = chunks(DELTAS)

    def forget() -> None:
        cold[:] = transcript(MESSAGES)

    rows = [
        (f"encode {MESSAGES} messages, none seen before", best(lambda: encode_all(cold), forget), 5.0),
        (f"encode {MESSAGES} messages, all seen before", best(lambda: encode_all(warm)), 1.0),
        (f"decode a streamed reply of {DELTAS:,} deltas", best(lambda: decode_all(received)), 40.0),
    ]
    for what, milliseconds, bound in rows:
        verdict = "ok" if milliseconds < bound else "TOO SLOW"
        print(f"{what:<58}{milliseconds:8.2f} ms   (bound {bound:.0f} ms)  {verdict}")
    return int(any(milliseconds >= bound for _, milliseconds, bound in rows))


if __name__ == "__main__":
    sys.exit(main())
