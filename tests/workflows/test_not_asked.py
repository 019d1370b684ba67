"""What a program did not think of stalls a conversation, with a cause; and what is tried again says why meanwhile. Both
were retried unseen."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib.metadata import EntryPoint
from typing import Any

import pytest

from everturn import Agent, Client, Conversation, ModelSettings
from everturn.providers import Request, Row, openai_chat
from everturn.testing import ScriptedModel, fail
from everturn.vendor_models import plugins
from tests.support.agents import agent_on, hosting
from tests.support.waiting import eventually

Scripted = Callable[..., ScriptedModel]


async def cause_of_the_stall(conversation: Conversation) -> str:
    async def cause() -> str:
        status = await conversation.status()
        return (status.cause or "") if status.state == "stalled" else ""

    return str(await eventually(cause, what="it is stalled"))


@pytest.mark.parametrize(
    ("name", "value"), [("X-Name", "Zoë"), ("X-Name", "a\r\nb: c"), ("Content-Length", "5"), ("a b", "c")]
)
async def test_a_header_that_none_can_be_is_said(client: Client, scripted: Scripted, name: str, value: str) -> None:
    settings = ModelSettings(extra={"extra_headers": {name: value}})
    async with hosting(client, agent_on(scripted(["Hello."]), settings=settings)):
        conversation = await client.start("clerk", "Go")
        cause = await cause_of_the_stall(conversation)
    assert "extra_headers" in cause
    assert repr(name) in cause


class UnitsByCurrency:
    """The protocol of a package with a bug: it can't write any request."""

    decode = staticmethod(openai_chat.decode)
    Assembler = openai_chat.Assembler

    def encode(self, request: Request) -> tuple[str, dict[str, Any]]:
        units = {"EUR": 100}
        return "/talk", {"units": units["USD"], "model": request.model.name}


ACME = Row(base_url="http://127.0.0.1:9/v1", protocol=UnitsByCurrency())


@pytest.fixture
def acme(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The provider of that package, as if it were installed."""
    point = EntryPoint(name="acme", value=f"{__name__}:ACME", group="everturn.providers")
    monkeypatch.setattr(
        "importlib.metadata.entry_points", lambda group: [point] if group == "everturn.providers" else []
    )
    plugins.forget_plugins()
    yield
    monkeypatch.undo()
    plugins.forget_plugins()


@pytest.mark.usefixtures("acme")
async def test_a_request_that_can_not_be_written_stalls(client: Client) -> None:
    agent = Agent("clerk", model="acme:any")
    async with hosting(client, agent):
        conversation = await client.start(agent, "Go")
        cause = await cause_of_the_stall(conversation)
    assert "The model could not be asked" in cause
    assert "KeyError" in cause
    assert "USD" in cause


async def test_a_turn_that_fails_again_and_again_says_why_while_it_runs(client: Client, scripted: Scripted) -> None:
    model = scripted(lambda messages: fail(503, "no machine is free", headers={"retry-after": "0.1"}))
    async with hosting(client, agent_on(model)):
        conversation = await client.start("clerk", "Go")

        async def cause() -> str:
            status = await conversation.status()
            return (status.cause or "") if status.state == "running" else ""

        found = await eventually(cause, what="the status says why the turn is tried again")
    assert found.startswith("Turn 1 is tried again (try ")
    assert "no machine is free" in found
