"""What the log says of conversations: each line names the one that it is about, with turn, call and try."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest

from everturn import Client, Retry, ToolContext, tool
from everturn.testing import ScriptedModel, call, fail
from tests.support.agents import agent_on, hosting
from tests.support.waiting import eventually, waiting

Scripted = Callable[..., ScriptedModel]


def _lines(caplog: pytest.LogCaptureFixture, *loggers: str) -> list[dict[str, Any]]:
    return [record.everturn for record in caplog.records if record.name in loggers]  # type: ignore[attr-defined]


async def test_every_line_of_an_activity_names_conversation_turn_call_and_try(
    client: Client, scripted: Scripted, caplog: pytest.LogCaptureFixture
) -> None:
    tries: list[int] = []

    @tool(needs_approval=True)
    def refund(context: ToolContext) -> str:
        context.log.info("refund.looked")
        tries.append(1)
        if len(tries) == 1:
            raise Retry("The till is locked.", after=0.01)
        return "refunded"

    def broken(*_: Any) -> bool:
        raise OSError("no policy")

    allowed: list[bool] = []
    model = scripted([fail(503), call("refund"), "Done."], order="arrival")
    agent = agent_on(model, tools=[refund], approvers=lambda *given: bool(allowed) or broken(*given))
    with caplog.at_level(logging.INFO):
        async with hosting(client, agent) as worker:
            conversation = await client.start(agent, "Go")
            await waiting(conversation)
            await conversation.approve()
            await eventually(lambda: "approvers.failed" in caplog.text)
            await waiting(conversation)
            allowed.append(True)
            worker.prefixes.clear()
            await conversation.approve()
            assert (await conversation.outcome()).text == "Done."
    turns = _lines(caplog, "everturn.turn")
    calls = _lines(caplog, "everturn.tool", "everturn.decision")
    assert {turn["event"] for turn in turns} >= {"turn.failed", "turn.finished", "prefix.read"}
    assert {call["event"] for call in calls} >= {"refund.looked", "tool.retried", "tool.finished", "approvers.failed"}
    assert {(turn["conversation"], turn["turn"] in (1, 2), turn["attempt"] in (1, 2)) for turn in turns} == {
        (conversation.id, True, True)
    }
    assert {(call["conversation"], call["turn"], call["call"]) for call in calls} == {(conversation.id, 1, "call_0_0")}
    assert {call["attempt"] for call in calls} == {1, 2}


async def test_a_turn_that_waited_for_its_providers_limit_says_how_long(
    client: Client, scripted: Scripted, caplog: pytest.LogCaptureFixture
) -> None:
    model = scripted([fail(429, headers={"retry-after": "0.8"}), fail(503), "There."], order="arrival")
    agent = agent_on(model)
    with caplog.at_level(logging.INFO):
        async with hosting(client, agent):
            conversation = await client.start(agent, "Go")
            assert (await conversation.outcome()).text == "There."
    failed, finished = (line for line in _lines(caplog, "everturn.turn") if line["event"].startswith("turn."))
    assert (failed["event"], failed["attempt"]) == ("turn.failed", 1)
    assert failed["waited_seconds"] >= 0.7
    assert (finished["event"], finished["attempt"]) == ("turn.finished", 2)
    assert "waited_seconds" not in finished, "it is of one try"


async def test_a_line_of_the_workflow_names_conversation_and_turn(
    client: Client, scripted: Scripted, caplog: pytest.LogCaptureFixture
) -> None:
    @tool(needs_approval=True)
    def refund() -> str:
        return "refunded"

    agent = agent_on(scripted([call("refund"), "Done."]), tools=[refund])
    with caplog.at_level(logging.INFO):
        async with hosting(client, agent):
            conversation = await client.start(agent, "Go")
            await waiting(conversation)
            await client.temporal.get_workflow_handle(conversation.id).signal("approve", "not an object")
            await eventually(lambda: "signal.ignored" in caplog.text)
            await conversation.deny()
            await conversation.outcome()
    [line] = _lines(caplog, "everturn.workflow")
    assert (line["conversation"], line["turn"]) == (conversation.id, 1)


async def test_of_many_signals_that_are_passed_over_the_first_have_a_line_and_the_rest_a_number(
    client: Client, scripted: Callable[..., ScriptedModel], caplog: pytest.LogCaptureFixture
) -> None:
    """They all come in one workflow task, which has two seconds."""
    agent = agent_on(scripted(["Hello."]))
    conversation = await client.start(agent, "Hi")
    handle = client.temporal.get_workflow_handle(conversation.id)
    for _ in range(100):
        await handle.signal("pause", {"reason": 7})
    with caplog.at_level(logging.WARNING, logger="everturn.workflow"):
        async with hosting(client, agent):
            await conversation.outcome()
    lines = [record.getMessage() for record in caplog.records if "signal.ignored" in record.getMessage()]
    assert len(lines) == 21
    assert "more=80" in lines[-1]
