"""People decide on tool calls: by update and by signal, once each, and the record says who and when."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from temporalio.client import WorkflowUpdateFailedError

from everturn import Client, tool
from everturn.errors import Ended, Refused
from everturn.testing import ScriptedModel, call
from tests.support.agents import agent_on, hosting
from tests.support.operators import signal
from tests.support.scripts import ONE
from tests.support.tools import refund
from tests.support.transcripts import results_of
from tests.support.waiting import waiting

Scripted = Callable[..., ScriptedModel]


@tool(needs_approval=lambda arguments: arguments["cents"] > 100)
def tip(cents: int) -> str:
    return f"tipped {cents}"


TWO = [
    [call("refund", {"order_id": "81", "cents": 5}, id="a"), call("refund", {"order_id": "82", "cents": 6}, id="b")],
    "Done.",
]


async def test_an_approved_call_runs_and_its_result_says_who_approved(
    client: Client, scripted: Scripted, cached_conversations: int
) -> None:
    agent = agent_on(scripted(ONE), tools=[refund])
    async with hosting(client, agent, cached_conversations=cached_conversations):
        conversation = await client.start(agent, "Refund 81")
        assert await waiting(conversation) == ("a",)
        status = await conversation.status()
        assert status.state == "awaiting_approval"
        assert (status.waiting[0].tool, status.waiting[0].arguments) == ("refund", {"order_id": "81", "cents": 5})
        assert await conversation.approve("a") == ("a",)
        await conversation.outcome()
    (result,) = results_of(await conversation.transcript())
    assert result.text == "5 back for 81"
    assert result.decision is not None
    assert (result.decision.verdict, result.decision.by) == ("approve", "tester")
    assert result.decision.at.startswith("20")


async def test_edited_arguments_run_in_place_of_the_models_and_it_is_told(client: Client, scripted: Scripted) -> None:
    model = scripted(ONE)
    agent = agent_on(model, tools=[refund])
    async with hosting(client, agent):
        conversation = await client.start(agent, "Refund 81")
        await waiting(conversation)
        await conversation.approve("a", arguments={"order_id": "81", "cents": 4}, note="one less")
        await conversation.outcome()
    (result,) = results_of(await conversation.transcript())
    assert result.text.endswith("4 back for 81")
    told = str(model.requests[-1]["messages"][-1])
    assert "with other arguments" in told
    assert "one less" in told


async def test_edited_arguments_that_do_not_fit_put_the_call_back_and_nothing_runs(
    client: Client, scripted: Scripted, cached_conversations: int
) -> None:
    agent = agent_on(scripted(ONE), tools=[refund])
    async with hosting(client, agent, cached_conversations=cached_conversations):
        conversation = await client.start(agent, "Refund 81")
        await waiting(conversation)
        await conversation.approve("a", arguments={"order_id": "81", "cents": "many"})
        await waiting(conversation)
        (call_waiting,) = (await conversation.status()).waiting
        assert "the edited arguments do not fit: cents" in call_waiting.why
        await conversation.approve("a")
        await conversation.outcome()
    (result,) = results_of(await conversation.transcript())
    assert result.text == "5 back for 81"


async def test_a_denied_call_is_answered_not_dropped(
    client: Client, scripted: Scripted, cached_conversations: int
) -> None:
    agent = agent_on(scripted(ONE), tools=[refund])
    async with hosting(client, agent, cached_conversations=cached_conversations):
        conversation = await client.start(agent, "Refund 81")
        await waiting(conversation)
        await conversation.deny("a", reason="not ours")
        await conversation.outcome()
    (result,) = results_of(await conversation.transcript())
    assert result.is_error
    assert result.text == "This call was denied by tester and did not run. Reason: not ours"


async def test_a_person_can_answer_in_the_tools_place(client: Client, scripted: Scripted) -> None:
    agent = agent_on(scripted(ONE), tools=[refund])
    async with hosting(client, agent):
        conversation = await client.start(agent, "Refund 81")
        await waiting(conversation)
        await conversation.answer("a", {"refunded": 5, "by": "bank transfer"})
        await conversation.outcome()
    (result,) = results_of(await conversation.transcript())
    assert (result.text, result.is_error) == ('{"refunded": 5, "by": "bank transfer"}', False)


async def test_calls_of_one_reply_wait_independently_and_may_be_decided_at_once(
    client: Client, scripted: Scripted, cached_conversations: int
) -> None:
    agent = agent_on(scripted(TWO), tools=[refund])
    async with hosting(client, agent, cached_conversations=cached_conversations):
        conversation = await client.start(agent, "Refund both")
        assert await waiting(conversation, calls=2) == ("a", "b")
        await conversation.deny("b")
        assert await waiting(conversation) == ("a",)
        await conversation.approve("a")
        await conversation.outcome()
        denied_and_approved = [result.is_error for result in results_of(await conversation.transcript())]

        both = await client.start(agent, "Refund both")
        await waiting(both, calls=2)
        assert await both.approve() == ("a", "b")
        await both.outcome()
    assert denied_and_approved == [False, True]
    assert [result.text for result in results_of(await both.transcript())] == ["5 back for 81", "6 back for 82"]


async def test_of_two_people_the_first_decides_and_the_second_is_told_who_did(
    client: Client, scripted: Scripted
) -> None:
    agent = agent_on(scripted(TWO), tools=[refund])
    other = Client(client.temporal, task_queue=client.task_queue, by="somebody else")
    async with hosting(client, agent):
        conversation = await client.start(agent, "Refund both")
        await waiting(conversation, calls=2)
        both = [conversation.approve("a"), other.conversation(conversation.id).deny("a")]
        first, second = await asyncio.gather(*both, return_exceptions=True)
        assert (isinstance(first, Refused), isinstance(second, Refused)) in ((True, False), (False, True))
        refusal = first if isinstance(first, Refused) else second
        assert "was already decided" in str(refusal)
        assert ("by tester" in str(refusal)) or ("by somebody else" in str(refusal))
        await conversation.approve("b")
        await conversation.outcome()
    with pytest.raises(Ended, match=r"is over\. Call 'b' was already decided: approve by tester at 20") as over:
        await other.conversation(conversation.id).deny("b")
    assert "continues it" in over.value.cure
    for unknown in ("c", "*"):
        with pytest.raises(Ended) as over:
            await conversation.deny(unknown)
        assert "decided" not in over.value.message


async def test_who_comes_second_is_told_so_however_many_calls_were_decided_together(
    client: Client, scripted: Scripted
) -> None:
    calls = [call("refund", {"order_id": "81", "cents": 5}, id=f"c{number}") for number in range(300)]
    agent = agent_on(scripted([calls, "Then not."]), tools=[refund])
    async with hosting(client, agent):
        conversation = await client.start(agent, "Refund all", keep_open=timedelta(minutes=1))
        await waiting(conversation, calls=300)
        await conversation.deny()
        with pytest.raises(Refused, match="Call 'c0' was already decided: deny by tester"):
            await conversation.approve("c0")


async def test_a_predicate_decides_over_the_arguments(client: Client, scripted: Scripted) -> None:
    agent = agent_on(
        scripted([call("tip", {"cents": 100}), call("tip", {"cents": 101}, id="big"), "Done."]), tools=[tip]
    )
    async with hosting(client, agent):
        conversation = await client.start(agent, "Tip twice")
        assert await waiting(conversation) == ("big",)
        await conversation.approve("big")
        await conversation.outcome()
    assert [result.text for result in results_of(await conversation.transcript())] == ["tipped 100", "tipped 101"]


NAMES_NOTHING: list[tuple[str, Any]] = [
    ("approve", {"call_id": "nobody"}),
    ("approve", {}),
    ("approve", "a"),
    ("approve", ["a"]),
    ("approve", None),
    ("approve", {"call_id": 7}),
    ("approve", {"call_id": "a", "arguments": [1]}),
    ("deny", {"reason": "no call_id"}),
    ("answer", {"call_id": "a"}),
    ("message", {"text": ""}),
    ("message", {"parts": [{"kind": "nonsense"}]}),
    ("resume", {}),
    ("no_such_signal", {"call_id": "a"}),
]


async def test_signals_that_name_nothing_that_waits_change_nothing_and_are_logged(
    client: Client, scripted: Scripted, caplog: pytest.LogCaptureFixture
) -> None:
    agent = agent_on(scripted(ONE), tools=[refund])
    async with hosting(client, agent):
        conversation = await client.start(agent, "Refund 81")
        await waiting(conversation)
        before = await conversation.status()
        for name, payload in NAMES_NOTHING:
            caplog.clear()
            with caplog.at_level(logging.WARNING):
                await signal(conversation, name, payload)
                with pytest.raises(Refused):
                    await conversation.approve("nobody")  # answered only after the signal was handled
            assert await conversation.status() == before, (name, payload)
            assert "signal.ignored" in caplog.text, (name, payload)
            assert name in caplog.text
        await conversation.approve("a")
        assert (await conversation.outcome()).status == "completed"
    (result,) = results_of(await conversation.transcript())
    assert result.text == "5 back for 81"


REFUSED: list[tuple[str, Any, str]] = [
    ("approve", {"call_id": "nobody"}, "No call 'nobody' waits; these do: 'a'."),
    ("approve", {}, "call_id: Field required"),
    ("approve", "a", "its input is a JSON object, got 'a'"),
    ("approve", {"call_id": "*", "arguments": {}}, "name its call_id"),
    ("answer", {"call_id": "a"}, "an answer has content, or else parts"),
    ("message", {}, "A message needs text or parts."),
    ("resume", {}, "nothing to resume"),
]


async def test_an_update_that_can_not_be_taken_is_refused_with_the_reason(client: Client, scripted: Scripted) -> None:
    agent = agent_on(scripted(ONE), tools=[refund])
    async with hosting(client, agent):
        conversation = await client.start(agent, "Refund 81")
        await waiting(conversation)
        before = await conversation.status()
        handle = client.temporal.get_workflow_handle(conversation.id)
        for name, payload, why in REFUSED:
            with pytest.raises(WorkflowUpdateFailedError) as refused:
                await handle.execute_update(name, payload)
            assert why in str(refused.value.__cause__), (name, payload)
            assert await conversation.status() == before, (name, payload)
        await conversation.close()
        assert (await conversation.outcome()).status == "completed"
    (result,) = results_of(await conversation.transcript())
    assert "The conversation was closed." in result.text


async def test_a_call_that_runs_outside_waits_for_its_answer(client: Client, scripted: Scripted) -> None:
    look = {"name": "look", "description": "Look at the screen.", "parameters": {"type": "object", "properties": {}}}
    agent = agent_on(scripted([call("look", id="l"), "I see."]), tools=[look])
    async with hosting(client, agent):
        conversation = await client.start(agent, "Look")
        await waiting(conversation)
        assert (await conversation.status()).state == "awaiting_answer"
        with pytest.raises(Refused, match="runs outside"):
            await conversation.approve("l")
        await conversation.answer("l", "a cat")
        assert (await conversation.outcome()).text == "I see."
    (result,) = results_of(await conversation.transcript())
    assert result.text == "a cat"
