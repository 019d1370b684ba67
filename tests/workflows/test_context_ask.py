"""`await context.ask(...)`: a tool asks a person, and goes on with the answer in another run of the same call."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from everturn import Client, Conversation, ToolContext, tool
from everturn.errors import NotAnswered, ToolFailed
from everturn.payloads import PersonsAnswer
from everturn.testing import ScriptedModel, call
from everturn.tools.context_ask import MAX_QUESTIONS, AsksPerson, Questions
from tests.support.agents import agent_on, hosting
from tests.support.bounds import Bounds
from tests.support.transcripts import results_of
from tests.support.waiting import eventually

Scripted = Callable[..., ScriptedModel]

DAYS = ("Monday", "Tuesday")

runs: list[str] = []


@pytest.fixture(autouse=True)
def _nothing_ran() -> None:
    runs.clear()


@tool(effect="once")
async def book(table: str, context: ToolContext) -> str:
    """Books a table, on a day that it asks for until that is one."""
    runs.append(context.idempotency_key)
    day = await context.ask(f"Which day for {table}?")
    while day not in DAYS:
        day = await context.ask(f"It is open on {' and '.join(DAYS)}. Which of them?")
    return f"{table} on {day} for {await context.ask('How many?')}"


@tool(effect="read")
def guess(context: ToolContext) -> str:
    """A sync one, which catches whatever it can."""
    runs.append("guess")
    try:
        return f"It is {context.ask('Which number?')}."
    except Exception:  # noqa: BLE001 - as tools do
        return "I could not ask."


@tool(effect="read", local=True, timeout=timedelta(seconds=10))
def peek(context: ToolContext) -> str:
    return f"You see {context.ask('What do you see?')}."


async def question(conversation: Conversation, words: str) -> str:
    """The id of the call, once it asks that."""

    async def asked() -> str:
        waiting = (await conversation.status()).waiting
        return next(
            (
                waiting_call.call_id
                for waiting_call in waiting
                if waiting_call.reason == "tool_asks" and words in waiting_call.why
            ),
            "",
        )

    return str(await eventually(asked))


async def told(conversation: Conversation) -> list[str]:
    return [result.text for result in results_of(await conversation.transcript())]


async def test_a_tool_asks_and_has_every_answer_in_its_next_run(
    client: Client, scripted: Scripted, cached_conversations: int
) -> None:
    agent = agent_on(scripted([call("book", {"table": "4"}), "Done."]), tools=[book])
    async with hosting(client, agent, cached_conversations=cached_conversations):
        conversation = await client.start(agent, "Book")
        answers = (("Which day", "Friday"), ("Which of them", "Sunday"), ("Which of them", "Monday"), ("How many", "3"))
        for number, (words, said) in enumerate(answers, 2):
            await conversation.answer(await question(conversation, words), said)
            await eventually(lambda number=number: len(runs) == number)
        assert (await conversation.outcome()).text == "Done."
    assert await told(conversation) == ["4 on Monday for 3"]
    assert len(runs) == 5
    assert len(set(runs)) == 1


@pytest.mark.parametrize("asking", [guess, peek])
async def test_a_sync_tool_a_local_one_and_one_that_catches_everything_ask_too(
    client: Client, scripted: Scripted, cached_conversations: int, asking: object
) -> None:
    name = asking.name  # type: ignore[attr-defined]
    agent = agent_on(scripted([call(name, {}), "Done."]), tools=[asking])
    async with hosting(client, agent, cached_conversations=cached_conversations):
        conversation = await client.start(agent, "Go")
        await conversation.answer(await question(conversation, "W"), "7")
        await conversation.outcome()
    assert await told(conversation) in (["It is 7."], ["You see 7."])


async def test_a_question_is_no_edit_that_did_not_fit(
    client: Client, scripted: Scripted, cached_conversations: int, bounds: Bounds
) -> None:
    bounds(refused_edits=1)

    @tool(effect="read", needs_approval=True)
    def pay(cents: int) -> str:
        return f"{cents} paid"

    agent = agent_on(scripted([[call("guess", {}), call("pay", {"cents": 1}, id="p")], "Done."]), tools=[guess, pay])
    async with hosting(client, agent, cached_conversations=cached_conversations):
        conversation = await client.start(agent, "Go")
        asking = await question(conversation, "Which number")
        await conversation.approve("p", {"cents": 2})
        await conversation.answer(asking, "7")
        await conversation.outcome()
    guessed, paid = await told(conversation)
    assert guessed == "It is 7."
    assert paid.endswith("2 paid")


async def test_whoever_would_not_answer_is_an_error_that_the_tool_or_the_model_may_see_to(
    client: Client, scripted: Scripted
) -> None:
    @tool(effect="read")
    async def careful(context: ToolContext) -> str:
        try:
            return await context.ask("Which?")
        except NotAnswered:
            return "any of them"

    calls = [call("careful", {}, id="a"), call("book", {"table": "4"}, id="b")]
    agent = agent_on(scripted([calls, "Done."]), tools=[careful, book])
    async with hosting(client, agent):
        conversation = await client.start(agent, "Go")
        for words in ("Which?", "Which day"):
            await conversation.deny(await question(conversation, words), "not today")
        await conversation.outcome()
    assert await told(conversation) == ["any of them", "The person who was asked 'Which day for 4?' would not answer."]


def test_a_test_of_a_tool_answers_itself_and_sees_what_is_asked() -> None:
    with pytest.raises(AsksPerson, match="Which number"):
        ToolContext().ask("Which number?")
    assert guess(context=ToolContext(ask=lambda _: "7")) == "It is 7."  # type: ignore[arg-type, return-value]


def test_a_question_that_can_not_be_written_is_mended() -> None:
    with pytest.raises(AsksPerson, match="Which\ufffd") as asked:
        Questions().ask_person("Which\ud800")
    assert asked.value.left["question"] == "Which\ufffd"


def test_questions_have_an_end() -> None:
    answer = None
    for number in range(MAX_QUESTIONS):
        with pytest.raises(AsksPerson) as asked:
            _all(Questions(answer), number + 1)
        answer = PersonsAnswer(action="accept", text=str(number), left=asked.value.left)
    with pytest.raises(ToolFailed, match="can't ask more"):
        _all(Questions(answer), MAX_QUESTIONS + 1)
    with pytest.raises(ToolFailed, match="more than"):
        Questions(PersonsAnswer(action="accept", text="x" * 60_000, left={"question": "a", "answers": {}})).ask_person(
            "b"
        )


def _all(questions: Questions, count: int) -> None:
    for _ in range(count):
        questions.ask_person("And?")
