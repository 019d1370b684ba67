"""With an Agent that has an `output` type, the client's doors give values of that type."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest
from pydantic import BaseModel

from everturn import Client, Conversation, Limits
from everturn.client.followed_reply import FollowedReply
from everturn.corrections import MAX_CORRECTIONS
from everturn.errors import ConversationError, Ended
from everturn.records import Outcome
from everturn.testing import ScriptedModel, call, fail
from tests.support.agents import agent_on, hosting
from tests.support.tools import note
from tests.support.waiting import reaches

Scripted = Callable[..., ScriptedModel]


class Invoice(BaseModel):
    cents: int


HOUR = timedelta(hours=1)


async def test_each_door_gives_the_agents_own_type(client: Client, scripted: Scripted) -> None:
    judge = agent_on(scripted(['{"cents": 1}', '{"cents": 2}', '{"cents": 3}']), name="judge", output=Invoice)
    async with hosting(client, judge):
        ran = await client.run(judge, "How much?", id=f"{client.task_queue}-run")
        assert (ran.value, ran.output) == (Invoice(cents=1), {"cents": 1})
        by_id = client.conversation(ran.id)
        assert ((await by_id.outcome()).output, await by_id.reply()) == ({"cents": 1}, '{"cents": 1}')
        again = client.conversation(ran.id, agent=judge)
        assert (await again.reply(), (await again.outcome()).value) == (Invoice(cents=1), Invoice(cents=1))
        assert isinstance(await again.outcome(), Outcome)

        held = await client.start(judge, "How much?", id=f"{client.task_queue}-held", keep_open=HOUR)
        assert await held.reply() == Invoice(cents=1)
        sent = await client.send(judge, "And now?", id=held.id)
        assert await sent.run_tools([]) == Invoice(cents=2)
        assert await held.reply() == Invoice(cents=2)  # once more, from a history that is read already
        fork = await held.fork(1, f"{client.task_queue}-fork", message="And there?")
        assert await fork.reply() == Invoice(cents=2)
        await held.close()
        await fork.close()
        assert (await held.outcome()).value == Invoice(cents=2)


async def test_a_reply_that_never_fits_is_no_value(client: Client, scripted: Scripted) -> None:
    judge = agent_on(scripted(["much"] * 3), name="judge", output=Invoice)
    async with hosting(client, judge):
        outcome = await client.run(judge, "How much?", id=f"{client.task_queue}-never")
        assert (outcome.status, outcome.value, outcome.text) == ("failed", None, "much")
        ended = client.conversation(outcome.id, agent=judge)
        with pytest.raises(Ended, match="ended without an output: the last reply does not fit"):
            await ended.reply()
        async with FollowedReply(ended) as answer:
            assert answer.rest
            assert answer.rest.why == "unfit"


async def test_a_conversation_stays_open_after_a_reply_that_never_fits_and_says_so(
    client: Client, scripted: Scripted
) -> None:
    unfit = ["much"] * (1 + MAX_CORRECTIONS)
    judge = agent_on(scripted([*unfit, '{"cents": 7}'], order="arrival"), name="judge", output=Invoice)
    async with hosting(client, judge):
        conversation = await client.start(judge, "How much?", keep_open=HOUR)
        for _ in range(2):  # once more, from a history that is read already
            with pytest.raises(
                Ended, match="ended without an output: the last reply does not fit the output type: Inv"
            ):
                await conversation.reply()
        assert await client.conversation(conversation.id).reply() == "much"
        async with FollowedReply(conversation) as answer:
            assert answer.rest
            assert answer.rest.why == "unfit"
            assert answer.rest.cause.startswith("the last reply does not fit the output type: Inv")
        await conversation.send("And now?")
        assert await conversation.reply() == Invoice(cents=7)
        await conversation.close()
        assert (await conversation.outcome()).value == Invoice(cents=7)


async def test_a_conclusion_is_the_same_value_to_who_waits_and_to_who_comes_later(
    client: Client, scripted: Scripted
) -> None:
    model = scripted([call("note", {"number": 1}), '{"cents": 5}'], order="arrival")
    agent = agent_on(model, tools=[note], output=Invoice, limits=Limits(max_turns=1))
    async with hosting(client, agent):
        conversation = await client.start(agent, "How much?")
        outcome = await conversation.outcome()
        assert (outcome.status, outcome.output) == ("limit_reached", {"cents": 5})
        assert await conversation.reply() == Invoice(cents=5)
        assert await client.conversation(conversation.id, agent=agent).reply() == Invoice(cents=5)


async def test_an_answer_stays_a_value_though_the_idle_workflow_is_cancelled(
    client: Client, scripted: Scripted
) -> None:
    agent = agent_on(scripted(['{"cents": 5}']), output=Invoice)
    async with hosting(client, agent):
        conversation = await client.start(agent, "How much?", keep_open=HOUR)
        assert await conversation.reply() == Invoice(cents=5)
        await client.temporal.get_workflow_handle(conversation.id).cancel()
        assert (await conversation.outcome()).status == "cancelled"
        assert await conversation.reply() == Invoice(cents=5)


@pytest.mark.parametrize("next_answer", [False, True], ids=["in-its-correction", "in-the-next-answer"])
@pytest.mark.parametrize(
    ("end", "reason"),
    [
        (Conversation.cancel_turn, "the turn was cancelled by tester"),
        (Conversation.close, "the conversation was closed before it was answered"),
    ],
    ids=["cancel_turn", "close"],
)
async def test_what_people_end_after_a_reply_that_does_not_fit_is_cancelled(
    client: Client, scripted: Scripted, end: Callable[[Conversation], Awaitable[Any]], reason: str, *, next_answer: bool
) -> None:
    """It had failed, over a reply that was to be corrected, or that is of an earlier answer."""
    unfit = ["much"] * (1 + MAX_CORRECTIONS if next_answer else 1)
    judge = agent_on(scripted([*unfit, fail(400)], order="arrival"), name="judge", output=Invoice)
    async with hosting(client, judge):
        conversation = await client.start(judge, "How much?", keep_open=HOUR)
        if next_answer:
            await reaches(conversation, "idle")
            await conversation.send("And now?")
        await reaches(conversation, "stalled")
        await end(conversation)
        if end is Conversation.cancel_turn:
            await reaches(conversation, "idle")
            await conversation.close()
        outcome = await conversation.outcome()
    assert (outcome.status, outcome.reason, outcome.value) == ("cancelled", reason, None)


@pytest.mark.parametrize(("output", "text"), [(None, "In words."), (list[int], "[7]")])
async def test_what_the_agent_answers_that_took_over_is_told_apart(
    output: Any, text: str, client: Client, scripted: Scripted
) -> None:
    below = agent_on(scripted([text], order="arrival"), name="below", output=output)
    script = [call("transfer_to_below", {}, id="h1")]
    judge = agent_on(scripted(script, order="arrival"), name="judge", output=Invoice, handoff_to=[below])
    async with hosting(client, judge):
        conversation = await client.start(judge, "How much?")
        with pytest.raises(ConversationError, match="can't be read as the output type of the agent 'judge'"):
            await conversation.reply()
        if output is None:
            assert (await conversation.outcome()).value is None
        else:
            outcome = await conversation.outcome()
            assert outcome.output == [7]
            with pytest.raises(ConversationError, match="can't be read"):
                _ = outcome.value
        assert (await client.conversation(conversation.id).outcome()).text == text
