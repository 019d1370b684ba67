"""The memory of prefixes against a model that always reads the history: what they ask is the same, byte for byte.

Two workers share a task queue and every workflow task may go to either. Their memories are small, and lose everything
now and then; replies fail and are asked for again; runs are short; conversations are forked from one another.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable
from typing import Any

import pytest

from everturn import Client, Conversation, Worker, tool
from everturn.activities.prefix_cache import digest_of
from everturn.carryover import CarryOver, PackedTranscript
from everturn.devserver import DevServer
from everturn.packed_messages import pack
from everturn.payloads import Start
from everturn.records import Message
from everturn.testing import ScriptedModel, call, cut, fail, say
from tests.support.agents import agent_on, hosting
from tests.support.bounds import Bounds
from tests.support.waiting import eventually

Scripted = Callable[..., ScriptedModel]
Messages = list[dict[str, Any]]

TURNS = 4
"""Until a message is answered."""
SIZES = (10, 2_500, 4_000)
"""Of results: written into the delta, and named by it."""


def script(seed: int, *, hitches: bool) -> Callable[[Messages], Any]:
    """Replies are made of what was said, so that the same transcript always goes on in the same way."""
    chance = random.Random(seed)

    def reply(messages: Messages) -> Any:
        if hitches and chance.random() < 0.2:
            return chance.choice([fail(503, headers={"retry-after": "0.01"}), cut()])
        fixed = random.Random(f"{seed} {len(messages)} {messages[0]['content']}")
        said = max(index for index, message in enumerate(messages) if message["role"] == "user")
        if sum(message["role"] == "assistant" for message in messages[said:]) >= TURNS:
            return say("Done.")
        return [
            call("fetch", {"number": fixed.randrange(10), "size": fixed.choice(SIZES)})
            for _ in range(fixed.choice([1, 1, 2]))
        ]

    return reply


def asked(model: ScriptedModel) -> set[str]:
    """The transcripts that the model was asked with."""
    return {json.dumps(request["messages"]) for request in model.requests}


async def fork(client: Client, messages: tuple[Message, ...], *, at: int, said: str, name: str) -> Conversation:
    """Another conversation, from behind message `at` on; its prefix may be in memory already."""
    prefix, unseen = messages[:at], tuple(message for message in messages[at : at + 1] if message.role == "tool")
    carried = CarryOver(
        earlier=PackedTranscript(data=pack(prefix)), length=len(prefix), digest=digest_of(prefix), unseen=unseen
    )
    await client._start_workflow(Start(agent="reader", message=said, carry=carried), name)
    return client.conversation(name)


async def talk(client: Client, name: str, roots: int) -> dict[str, tuple[Message, ...]]:
    """So many conversations, and four forks of each at the same time; their transcripts."""
    talks = {
        f"root {number}": await client.start("reader", f"root {number}", id=f"{name}-{number}")
        for number in range(roots)
    }
    await asyncio.gather(*(talk.outcome() for talk in talks.values()))
    told = {said: await one.transcript() for said, one in talks.items()}
    forks = {}
    for root, messages in told.items():
        replies = [index + 1 for index, message in enumerate(messages) if message.role == "assistant"]
        for number, at in enumerate((replies[-1], replies[-1], replies[2], replies[2])):
            said = f"fork {number} of {root}"
            forks[said] = await fork(client, messages, at=at, said=said, name=f"{name}-{root}-{number}")
    await asyncio.gather(*(fork.outcome() for fork in forks.values()))
    return told | {said: await one.transcript() for said, one in forks.items()}


@pytest.mark.long
@pytest.mark.parametrize(
    ("seed", "max_prefix_bytes", "roots"),
    [
        pytest.param(1, 200_000, 1, id="small"),
        pytest.param(1, 200_000, 2, id="small, two"),
        pytest.param(2, 5_000_000, 2, id="large, two"),
    ],
)
async def test_what_the_model_is_asked_does_not_depend_on_what_workers_remember(
    server: DevServer,
    client: Client,
    scripted: Scripted,
    bounds: Bounds,
    seed: int,
    max_prefix_bytes: int,
    roots: int,
) -> None:
    bounds(events=30)
    if seed % 2:
        bounds(packed_bytes=0)  # earlier messages stay in the histories of earlier runs

    @tool
    def fetch(number: int, size: int) -> str:
        return (f"item {number}: " + "é…x" * size)[:size]

    reader = scripted(script(seed, hitches=False))
    always_reads = agent_on(reader, tools=[fetch], name="reader")
    async with hosting(client, always_reads, max_prefix_bytes=0) as worker:
        expected = await talk(client, f"read-{client.task_queue}", roots)
        assert worker.prefixes.hits == 0

    model = scripted(script(seed, hitches=True))
    agent = agent_on(model, tools=[fetch], name="reader")
    chance = random.Random(seed)
    # Without a cache of conversations, no workflow task is bound to the worker that had the one before.
    options: dict[str, Any] = {"cached_conversations": 0, "max_prefix_bytes": max_prefix_bytes}
    another = await Client.connect(server.address, task_queue=client.task_queue)
    async with hosting(client, agent, **options) as first, hosting(another, agent, **options) as second:
        forgetting = asyncio.create_task(forget_now_and_then(chance, model, first, second))
        try:
            transcripts = await talk(client, f"memory-{client.task_queue}", roots)
        finally:
            forgetting.cancel()
        hits, misses = (sum(getattr(one.prefixes, what) for one in (first, second)) for what in ("hits", "misses"))

    assert transcripts == expected
    assert asked(model) == asked(reader)
    assert len(model.requests) > len(reader.requests)
    assert hits > 5
    assert misses > 3


@pytest.mark.long
async def test_a_worker_whose_memory_is_full_reads_no_more_histories_than_a_fresh_one(
    client: Client, scripted: Scripted
) -> None:
    @tool
    def fetch() -> str:
        return "x" * max(SIZES)

    agent = agent_on(scripted([*[call("fetch")] * 4, "Done."]), tools=[fetch])
    async with hosting(client, agent, max_prefix_bytes=300_000) as worker:
        memory = worker.prefixes
        for seasoned in (False, True):
            for number in range(1_000 if seasoned else 0):
                memory.remember("", (), (Message.user(f"{number} of another conversation"),))
            assert not seasoned or memory.bytes > 0.9 * memory.max_bytes
            memory.hits = memory.misses = 0
            await client.run(agent, "Go")
            assert (memory.hits, memory.misses) == (4, 0)


async def forget_now_and_then(chance: random.Random, model: ScriptedModel, *workers: Worker) -> None:
    """Each time that the model was asked some more, and so as often on a slow machine as on a fast one."""
    while True:
        then = len(model.requests) + chance.randint(15, 60)
        await eventually(lambda count=then: len(model.requests) >= count, seconds=600)
        chance.choice(workers).prefixes.clear()
