"""A model turn, as an activity: what it asks with, and what it makes of the reply."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pydantic import BaseModel
from temporalio.client import Client
from temporalio.testing import ActivityEnvironment

from everturn import prices
from everturn.activities import model_turns
from everturn.activities.model_turns import ModelTurns
from everturn.activities.prefix_cache import PrefixCache, digest_of
from everturn.heartbeats.worker_heartbeats import Heartbeats
from everturn.live.heartbeat_text import TextStreaming
from everturn.lost_workers.journal import Journal
from everturn.payloads import ModelReply, ModelRequest
from everturn.records import Message, Text
from everturn.temporal.namespace import Namespace
from everturn.testing import ScriptedModel, call, say
from tests.support.agents import agent_on
from tests.support.bounds import Bounds


class Order(BaseModel):
    id: str
    state: str = "open"


class KnownNamespace:
    """A namespace of which all is known."""

    known = True

    async def indexed(self) -> bool:
        return False

    async def retention(self) -> None:
        return None


class Taken:
    """A client whose server takes every heartbeat."""

    def get_async_activity_handle(self, *, task_token: bytes) -> Taken:
        return self

    async def heartbeat(self, *details: Any) -> None: ...


async def turn(model: ScriptedModel, **options: Any) -> ModelReply:
    agent = agent_on(model, **options)
    heartbeats = Heartbeats(cast("Client", Taken()), Journal(Path("nowhere"), scope={}))
    namespace = cast("Namespace", KnownNamespace())
    turns = ModelTurns(
        {agent.name: agent},
        prefixes=PrefixCache(),
        heartbeats=heartbeats,
        namespace=namespace,
        streaming=TextStreaming(0.2),
    )
    request = ModelRequest(agent=agent.name, turn=1, delta=(Message.user("?"),))
    reply: ModelReply = await ActivityEnvironment().run(turns.call_model, request)
    return reply


@pytest.mark.parametrize(
    ("text", "output"), [('{"id": "81"}', {"id": "81", "state": "open"}), ("I don't know.", None)], ids=["fits", "not"]
)
async def test_a_final_reply_is_read_as_the_agents_output(
    scripted: Callable[..., ScriptedModel], text: str, output: Any
) -> None:
    model = scripted([text])
    assert (await turn(model, output=Order)).output == output
    assert model.requests[0]["response_format"]["json_schema"]["schema"]["properties"].keys() == {"id", "state"}


async def test_a_reply_that_wants_tools_or_was_cut_off_has_no_output(scripted: Callable[..., ScriptedModel]) -> None:
    for reply in (call("weather"), say('{"id": "81"}', finish="length")):
        assert (await turn(scripted([reply]), output=Order)).output is None


async def test_an_output_too_large_for_a_payload_is_left_to_the_text(
    scripted: Callable[..., ScriptedModel], bounds: Bounds
) -> None:
    bounds(output_bytes=5)
    assert (await turn(scripted(['{"id": "81"}']), output=Order)).output is None


async def test_an_output_nested_too_deeply_is_left_to_the_text(scripted: Callable[..., ScriptedModel]) -> None:
    reply = await turn(scripted(["[" * 150 + "]" * 150]), output=list[Any])
    assert (reply.output, reply.output_problem) == (None, "It is nested more than 100 levels deep.")


async def test_a_turn_says_what_it_cost_or_that_nobody_knows(
    scripted: Callable[..., ScriptedModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (await turn(scripted(["Hello."]))).cost_usd is None
    monkeypatch.setitem(prices._PRICED_AS, "scripted", "openai")
    monkeypatch.setattr(
        prices, "_price_function", lambda: lambda _name, _listed, usage, _context: usage.output_tokens / 1e6
    )
    assert (await turn(scripted([say("Hello.", usage={"prompt_tokens": 1, "completion_tokens": 2})]))).cost_usd == 2e-6


async def test_a_prefix_that_has_another_digest_is_remembered_under_its_own(
    scripted: Callable[..., ScriptedModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after an upgrade that writes a record differently: the history is the truth."""
    there = (Message.user("Hi."), Message(role="assistant", parts=(Text(text="Hello."),)))

    async def nothing(*_: Any, **__: Any) -> AsyncIterator[Any]:
        for step in ():
            yield step

    async def read(*_: Any) -> tuple[Message, ...]:
        return there

    monkeypatch.setattr(model_turns, "read_steps", nothing)
    monkeypatch.setattr(model_turns, "read_transcript", read)
    prefixes, agent = PrefixCache(), agent_on(scripted(lambda _: "Fine."))
    turns = ModelTurns(
        {agent.name: agent},
        prefixes=prefixes,
        heartbeats=Heartbeats(cast("Client", Taken()), Journal(Path("nowhere"), scope={})),
        namespace=cast("Namespace", KnownNamespace()),
        streaming=TextStreaming(0.2),
    )
    wrong = "d" * len(digest_of(there))
    request = ModelRequest(agent=agent.name, turn=2, position=2, digest=wrong, delta=(Message.user("And you?"),))
    environment = ActivityEnvironment(client=cast("Client", SimpleNamespace()))
    reply: ModelReply = await environment.run(turns.call_model, request)
    assert reply.digest
    assert not prefixes.knows(wrong)
    assert prefixes.knows(reply.digest)
    assert reply.digest == digest_of([*there, *request.delta, reply.message])
