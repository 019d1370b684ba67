"""What type checkers make of an agent's `output`. Nothing runs: mypy reads it with `make check`, pyright in
tests/unit/test_types.py. What both refuse has a comment that would be one too many if they did not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal, assert_type

from pydantic import BaseModel, Field
from typing_extensions import TypedDict

import everturn
from everturn import Agent, Client, Conversation, EverturnPlugin
from everturn import Worker as EverturnWorker
from everturn.client.sync_conversation import SyncConversation
from everturn.client.typed_outcomes import OutcomeWithValue
from everturn.events import Event
from everturn.workflow import ChildConversation, TypedOutcome

MODEL = "openai:gpt-5.5"


class Invoice(BaseModel):
    cents: int


@dataclass
class Refund:
    cents: int


class Row(TypedDict):
    cents: int


async def of_a_model() -> None:
    agent = Agent("judge", model=MODEL, output=Invoice)
    assert_type(agent, Agent[Invoice])
    outcome = await everturn.workflow.ask(agent, "How much?")
    assert_type(outcome, TypedOutcome[Invoice])
    assert_type(outcome.output, Invoice | None)
    if outcome.output:
        assert_type(outcome.output.cents, int)
        print(outcome.output.cts)  # type: ignore[attr-defined]  # pyright: ignore
    print(outcome.output.cents)  # type: ignore[union-attr]  # pyright: ignore
    conversation = await everturn.workflow.start(agent, "How much?")
    assert_type(conversation, ChildConversation[Invoice])
    assert_type((await conversation.outcome()).output, Invoice | None)


async def at_the_front_door(client: Client) -> None:
    agent = Agent("judge", model=MODEL, output=Invoice)
    outcome = await client.run(agent, "How much?")
    assert_type(outcome, OutcomeWithValue[Invoice])
    assert_type(outcome.value, Invoice | None)
    print(outcome.value.cents)  # type: ignore[union-attr]  # pyright: ignore
    conversation = await client.start(agent, "How much?")
    assert_type(conversation, Conversation[Invoice])
    assert_type(await conversation.reply(), Invoice)
    assert_type(await conversation.run_tools([]), Invoice)
    assert_type((await conversation.outcome()).value, Invoice | None)
    print((await conversation.reply()).cts)  # type: ignore[attr-defined]  # pyright: ignore
    assert_type(await client.send(agent, "And now?", id="judged"), Conversation[Invoice])
    assert_type(client.conversation("judged", agent=agent), Conversation[Invoice])
    assert_type(await conversation.fork(1), Conversation[Invoice])


async def at_the_front_door_by_name(client: Client) -> None:
    outcome = await client.run("judge", "How much?")
    assert_type(outcome, OutcomeWithValue[Any])
    conversation: Conversation = await client.start("judge", "How much?")
    text: str = await conversation.reply()
    outcome = await client.conversation("judged").outcome()
    print(outcome.output, text)


def without_asyncio() -> None:
    agent = Agent("judge", model=MODEL, output=Invoice)
    with Client.connect_sync() as client, EverturnWorker(client, agents=[agent]):
        assert_type(client.run(agent, "How much?"), OutcomeWithValue[Invoice])
        conversation = client.start(agent, "How much?", id="judged")
        assert_type(conversation, SyncConversation[Invoice])
        assert_type(conversation.reply(), Invoice)
        assert_type(conversation.outcome().value, Invoice | None)
        assert_type(conversation.approve("c1"), tuple[str, ...])
        conversation.approve(7)  # type: ignore[arg-type]  # pyright: ignore
        client.run(agent, "How much?", ids="judged")  # type: ignore[call-arg]  # pyright: ignore
        for event in conversation.events():
            assert_type(event, Event)
            if event.kind == "approval_requested" or event.kind == "tool_started" or event.kind == "tool_finished":
                assert_type(event.tool, str)
        assert_type(client.conversation("judged", agent=agent), SyncConversation[Invoice])


async def of_other_types() -> None:
    assert_type(Agent("a", model=MODEL, output=Refund), Agent[Refund])
    assert_type(Agent("a", model=MODEL, output=Row), Agent[Row])
    assert_type(Agent("a", model=MODEL, output=int), Agent[int])
    assert_type(Agent("a", model=MODEL, output=list[Invoice]), Agent[list[Invoice]])
    assert_type(Agent("a", model=MODEL, output=dict[str, int]), Agent[dict[str, int]])
    assert_type(Agent("a", model=MODEL, output=Invoice | Refund), Agent[Invoice | Refund])
    assert_type(Agent("a", model=MODEL, output=Literal["yes", "no"]), Agent[Literal["yes", "no"]])
    assert_type(Agent("a", model=MODEL, output=Annotated[int, Field(gt=0)]), Agent[int])


async def of_none() -> None:
    plain: Agent = Agent("clerk", model=MODEL)
    assert_type((await everturn.workflow.ask(plain, "Hello")).output, Any | None)
    assert_type((await everturn.workflow.ask("clerk", "Hello")).output, Any | None)


def is_an_agent_as_any_other() -> None:
    judge = Agent("judge", model=MODEL, output=Invoice)
    clerk = Agent("clerk", model=MODEL, tools=[judge])
    EverturnPlugin(agents=[judge, clerk])
    every: list[Agent] = [judge, clerk]
    EverturnPlugin(agents=every)
    assert_type(judge.named("other"), Agent[Invoice])
