"""A fork has said and heard what its conversation had by the end of a turn, and goes its own way from there."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta

import pytest

from everturn import Client, Conversation, Limits, Message, tool
from everturn.agent_settings import Compaction
from everturn.errors import AlreadyStarted, InvalidModel, NotFound, Refused
from everturn.testing import ScriptedModel, call
from tests.support.agents import agent_on, hosting
from tests.support.bounds import Bounds
from tests.support.histories import runs_of
from tests.support.scripts import page, pages, reader
from tests.support.tools import note, read_page
from tests.support.transcripts import results_of
from tests.support.waiting import eventually, reaches, waiting

Scripted = Callable[..., ScriptedModel]

KEEP_OPEN = timedelta(minutes=5)


def roles(transcript: tuple[Message, ...]) -> str:
    return " ".join(message.role for message in transcript)


async def forked_at(conversation: Conversation, turn: int) -> tuple[Conversation, tuple[Message, ...]]:
    """The fork once it is over, and its transcript."""
    fork = await conversation.fork(at_turn=turn)
    if (await fork.status()).state == "idle":
        await fork.close()
    await fork.outcome()
    return fork, await fork.transcript()


async def test_a_fork_in_the_middle_goes_on_by_itself_with_the_same_beginning(
    client: Client, scripted: Scripted, cached_conversations: int
) -> None:
    model = scripted(pages(2))
    agent = agent_on(model, tools=[read_page])
    async with hosting(client, agent, cached_conversations=cached_conversations) as worker:
        conversation = await client.start(agent, "Read it all")
        outcome = await conversation.outcome()
        before, asked = await conversation.transcript(), len(model.requests)
        fork = await conversation.fork(at_turn=1)
        assert await fork.reply() == "Read."
        forked = await fork.outcome()
        # Its prefix is the one that the worker has of the conversation itself: found by its digest.
        assert (worker.prefixes.misses, len(model.requests) - asked) == (0, 2)
    assert await fork.transcript() == await conversation.transcript() == before
    assert (forked.turns, forked.tool_calls) == (outcome.turns, outcome.tool_calls) == (3, 2)
    assert forked.usage == outcome.usage
    assert fork.id.startswith(f"{conversation.id}-turn-1-")


async def test_a_fork_behind_a_final_reply_waits_for_its_next_message(
    client: Client, scripted: Scripted, cached_conversations: int
) -> None:
    agent = agent_on(scripted(["One.", "Two.", "Three."]))
    async with hosting(client, agent, cached_conversations=cached_conversations):
        conversation = await client.start(agent, "1", keep_open=KEEP_OPEN)
        await conversation.reply()
        await conversation.send("2")
        await conversation.reply()
        fork = await conversation.fork(at_turn=1, id=f"{conversation.id}-other")
        assert fork.id == f"{conversation.id}-other"
        assert await fork.reply() == "One."
        await reaches(fork, "idle")
        await fork.send("Or 2?")
        assert await fork.reply() == "Two."
        assert [message.text for message in await fork.transcript()] == ["1", "One.", "Or 2?", "Two."]
        assert [message.text for message in await conversation.transcript()] == ["1", "One.", "2", "Two."]
        with pytest.raises(AlreadyStarted):
            await conversation.fork(at_turn=1, id=fork.id)
        await fork.close()
        await conversation.close()
        assert (await fork.outcome()).text == (await conversation.outcome()).text == "Two."


async def test_a_fork_may_have_another_result_other_words_or_another_model(
    client: Client, scripted: Scripted, cached_conversations: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = scripted([call("note", {"number": 1}, id="n"), "Noted.", "Once more."])
    monkeypatch.setenv("SCRIPTED_BASE_URL", model.base_url)  # for the other one
    agent = agent_on(model, tools=[note])
    async with hosting(client, agent, cached_conversations=cached_conversations):
        conversation = await client.start(agent, "Note it")
        await conversation.outcome()
        before = await conversation.transcript()

        other = await conversation.fork(1, results={"n": "the disk is full"})
        await other.outcome()
        assert [result.text for result in results_of(await other.transcript())] == ["the disk is full"]

        said = await conversation.fork(2, message="And now?")
        assert await said.reply() == "Once more."
        assert (await said.outcome()).turns == 3, "it ends with its reply, as its origin did"

        anew = await conversation.fork(0, message="Note it well", model="scripted:other")
        await anew.outcome()
        assert [message.text for message in await anew.transcript() if message.role == "user"] == ["Note it well"]
        handle = client.temporal.get_workflow_handle(anew.id)
        assert "turn 1 · other" in [
            event.user_metadata.summary.data.decode().strip('"')
            async for event in handle.fetch_history_events()
            if event.HasField("user_metadata")
        ]
        for wrong, why in (({"results": {"x": ""}}, "no call 'x'"), ({"message": " "}, "The message is empty")):
            with pytest.raises(Refused, match=why):
                await conversation.fork(1, **wrong)  # type: ignore[arg-type]
        with pytest.raises(InvalidModel):
            await conversation.fork(1, model="nonsense")
    assert await conversation.transcript() == before


async def test_a_conversation_that_ended_with_its_reply_has_forks_that_wait(client: Client, scripted: Scripted) -> None:
    agent = agent_on(scripted(["One.", "Two."]))
    async with hosting(client, agent):
        conversation = await client.start(agent, "1")
        await conversation.outcome()
        fork = await conversation.fork(at_turn=1)
        await fork.send("2")
        assert await fork.reply() == "Two."
        await fork.close()
        assert (await fork.outcome()).turns == 2
    assert roles(await conversation.transcript()) == "user assistant"


@pytest.mark.long_if(lambda packed_chars, fork_chars: not (packed_chars and fork_chars))
@pytest.mark.parametrize("packed_chars", [48_000, 0], ids=["packed", "in earlier runs"])
@pytest.mark.parametrize("fork_chars", [400_000, 0], ids=["small", "large"])
async def test_any_turn_of_a_long_conversation_can_be_forked(
    client: Client, scripted: Scripted, bounds: Bounds, packed_chars: int, fork_chars: int
) -> None:
    """Across its runs; and where the transcript is too large for a payload it is read from where it is."""
    bounds(events=12, packed_bytes=packed_chars, begun_with_bytes=fork_chars)
    agent = agent_on(scripted(pages(4)), tools=[read_page])
    async with hosting(client, agent) as worker:
        conversation = await client.start(agent, "Read it all")
        await conversation.outcome()
        transcript = await conversation.transcript()
        worker.prefixes.clear()
        forks = await asyncio.gather(*(forked_at(conversation, turn) for turn in (1, 3, 5)))
        assert [told == transcript for _, told in forks] == [True] * 3
        assert len(await runs_of(client, conversation)) > 2
        # A fork of a fork, at a turn that was long before.
        again, told = await forked_at(forks[1][0], 2)
        assert told == transcript
        assert (await again.outcome()).turns == 5


async def test_a_fork_of_a_long_conversation_brings_its_messages_into_its_own_history(
    client: Client, scripted: Scripted, bounds: Bounds
) -> None:
    bounds(begun_with_bytes=0)
    agent = agent_on(scripted(pages(1)), tools=[read_page])
    async with hosting(client, agent):
        conversation = await client.start(agent, "Read it all")
        await conversation.outcome()
        fork = await conversation.fork(at_turn=2)
        handle = client.temporal.get_workflow_handle(fork.id)

        async def kept() -> bool:
            return b'"kind":"packed"' in b"".join(
                [fetch_history_event.SerializeToString() async for fetch_history_event in handle.fetch_history_events()]
            )

        await eventually(kept)
        assert await fork.transcript() == await conversation.transcript()
        await fork.close()
        await fork.outcome()


async def test_results_of_any_size_are_in_a_fork(client: Client, scripted: Scripted) -> None:
    @tool
    def read_page(number: int) -> str:
        return page(number, 199_000)

    calls = [call("read_page", {"number": number}) for number in range(6)]
    agent = agent_on(scripted([calls, "Read."]), tools=[read_page])
    async with hosting(client, agent):
        conversation = await client.start(agent, "Read it all")
        await conversation.outcome()
        _, told = await forked_at(conversation, 1)
    assert told == await conversation.transcript()
    assert [len(result.text) for result in results_of(told)] == [199_000] * 6


async def test_a_running_conversation_is_forked_and_runs_on(client: Client, scripted: Scripted) -> None:
    may_end = asyncio.Event()

    @tool
    async def linger() -> str:
        await may_end.wait()
        return "lingered"

    agent = agent_on(
        scripted([call("read_page", {"number": 0}), call("linger", id="l"), "Done."]), tools=[read_page, linger]
    )
    async with hosting(client, agent):
        conversation = await client.start(agent, "Go")
        async for event in conversation.events():
            if event.kind == "tool_started" and event.tool == "linger":
                break
        with pytest.raises(
            Refused,
            match=r"at turn 2: not all of its calls have results yet \('l'\)\. Wait for turn 3, or fork at turn 1",
        ):
            await conversation.fork(at_turn=2)
        with pytest.raises(Refused, match=r"its last reply is that of turn 2\. Fork at turn 1\.$"):
            await conversation.fork(at_turn=3)
        fork = await conversation.fork(at_turn=1)
        may_end.set()
        assert await conversation.reply() == await fork.reply() == "Done."
        assert (await forked_at(conversation, 2))[1] == await conversation.transcript() == await fork.transcript()


async def test_calls_that_were_cut_short_have_results_too(client: Client, scripted: Scripted) -> None:
    @tool(needs_approval=True)
    def refund(cents: int) -> str:
        return "never"

    agent = agent_on(scripted([call("refund", {"cents": 5}), "Then not."]), tools=[refund])
    async with hosting(client, agent):
        conversation = await client.start(agent, "Refund", limits=Limits(max_turns=1, conclude=False))
        await waiting(conversation)
        for turn in (1, 5):  # nothing is offered that would be refused, such as turn 0
            with pytest.raises(Refused) as refused:
                await conversation.fork(at_turn=turn)
            assert refused.value.cure == "Wait for turn 2."
        await conversation.close()
        await conversation.outcome()
        _, told = await forked_at(conversation, 1)
    assert [result.text for result in results_of(told)] == [
        "This call was denied by tester and did not run. Reason: The conversation was closed."
    ]


async def test_a_turn_that_is_not_there_is_refused_in_words(client: Client, scripted: Scripted) -> None:
    why = {
        0: "has no turn 0. Turns count from 1",
        -3: "has no turn -3",
        2: "can't be forked at turn 2: its last reply is that of turn 1. Fork at turn 1.",
        10**9: "its last reply is that of turn 1",
    }
    refused: dict[int, str] = {}
    agent = agent_on(scripted(["Hello."]))
    async with hosting(client, agent):
        conversation = await client.start(agent, "Hi")
        await conversation.outcome()
        for turn in why:
            with pytest.raises(Refused) as refusal:
                await conversation.fork(at_turn=turn)
            refused[turn] = str(refusal.value)
    assert {turn: refused[turn] for turn in why if why[turn] not in refused[turn]} == {}


async def test_a_conversation_that_is_not_there_or_has_not_replied_can_not_be_forked(client: Client) -> None:
    with pytest.raises(NotFound, match="There is no conversation 'nobody'"):
        await client.conversation("nobody").fork(at_turn=1)
    conversation = await client.start("nobody's agent", "Hi", id="unhosted")
    with pytest.raises(Refused, match=r"at turn 1: the model has not replied yet\. Wait for the first reply"):
        await conversation.fork(at_turn=1)
    await client.temporal.get_workflow_handle(conversation.id).terminate()


@pytest.mark.long
async def test_a_revived_conversation_is_forked_at_a_turn_before(client: Client, scripted: Scripted) -> None:
    agent = agent_on(scripted([call("read_page", {"number": 0}), "One.", "Two."]), tools=[read_page])
    async with hosting(client, agent):
        conversation = await client.start(agent, "1")
        await conversation.outcome()
        await client.send(agent, "2", id=conversation.id)
        await conversation.outcome()
        whole = await conversation.transcript()
        for turn, messages in ((1, 4), (2, 4), (3, 6)):
            assert (await forked_at(conversation, turn))[1] == whole[:messages]


async def test_a_fork_is_shown_what_its_conversation_was_shown(client: Client, scripted: Scripted) -> None:
    """Where the model was shown a summary, the fork's is too; a turn that wrote one is none to fork at."""
    model = scripted(reader(10, wordy=True))
    agent = agent_on(model, tools=[note], compaction=Compaction(window_tokens=1_500, keep_messages=3))
    async with hosting(client, agent):
        conversation = await client.start(agent, "Read it all")
        await conversation.outcome()
        summaries = [event.turn async for event in conversation.events() if event.kind == "compacted" and event.summary]
        assert len(summaries) > 1
        asked = model.requests[-1]["messages"]
        with pytest.raises(Refused, match="in that turn, the model only wrote a summary"):
            await conversation.fork(at_turn=summaries[0])
        for turn in (summaries[0] - 1, summaries[0] + 1, summaries[-1] - 1):
            _, told = await forked_at(conversation, turn)
            assert told == await conversation.transcript()
            assert model.requests[-1]["messages"] == asked
