"""The batches of the crash test: OpenAI's, on loopback, in the harness, which survives. Its lines are answered by the
stories' author, as live requests are; a batch ends now and then, and now and then its creation is not answered."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from itertools import groupby
from typing import Any

from pydantic_core import from_json

from everturn.testing.script import Call, Fail, Reply, Say, Slow, contents_of
from tests.crash.stories import Author
from tests.support.batch_server import EXPIRED, BatchServer, Json, Refused, Result

END_SECONDS = 0.6
"""From one look at the batches to the next, on average."""
LOST = 0.1
"""Of the creations, so many are not answered, beside those that workers' ends and the network cost."""
GATHER_SECONDS = "0.4"

ENVIRONMENT = {"OPENAI_API_KEY": "sk-crash", "EVERTURN_BATCH_SECONDS": GATHER_SECONDS}
"""Of workers."""


class Batches(BatchServer):
    def __init__(self, author: Author) -> None:
        super().__init__(self._play)
        self._author = author

    async def end_now_and_then(self, seed: int) -> None:
        """Until it is cancelled."""
        rng = random.Random(f"{seed}/batches")
        while True:
            await asyncio.sleep(rng.uniform(0.2, 1.8) * END_SECONDS)
            self.finish()
            self.lose_answers = int(rng.random() < LOST)

    def _play(self, body: Json) -> Result:
        messages = list(_chat_messages(body["input"]))
        turn = sum(message["role"] == "assistant" for message in messages)
        return _result_of(self._author(messages), turn)


def _chat_messages(items: list[Json]) -> Iterator[Json]:
    """The items of a response's input as the messages that Chat Completions would have: all that a model said in one
    reply is one message."""
    for role, group in groupby(items, key=_role_of):
        if role == "assistant":
            yield {"role": role, "content": [*group]}
        else:
            yield from ({"role": role, "content": item.get("content", item)} for item in group)


def _role_of(item: Json) -> str:
    if item.get("type") == "function_call_output":
        return "tool"
    return str(item.get("role", "assistant"))


def _result_of(reply: Reply, turn: int) -> Result:
    match reply:
        case Slow():
            return _result_of(reply.reply, turn)
        case Fail():
            return Refused(reply.status, "scripted", "The line was refused.")
        case str() | Call() | list():
            contents = contents_of(reply)
            calls = [item for item in contents if isinstance(item, Call)]
            text = "".join(item.text for item in contents if isinstance(item, Say))
            return [_call(item, f"call_{turn}_{index}") for index, item in enumerate(calls)] or text
        case _:
            return EXPIRED


def _call(item: Call, call_id: str) -> tuple[str, str, Any]:
    arguments = item.arguments
    return call_id, item.name, from_json(arguments) if isinstance(arguments, str) else dict(arguments)
