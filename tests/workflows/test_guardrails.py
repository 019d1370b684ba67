"""Guardrails that ship ready: size, pattern and a model's judgement, for what people say and what is answered."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from everturn import (
    Client,
    Conversation,
    Document,
    Limits,
    Message,
    Model,
    ModelSettings,
    Text,
    ToolCall,
    ToolContext,
    ToolResult,
    TurnContext,
    tool,
)
from everturn.errors import InvalidAgent, InvalidModel, Stalled
from everturn.guardrails import Judge, MaxChars, Pattern
from everturn.hooks import Hooks, ModelInput, StopWith, after_tool
from everturn.testing import ScriptedModel, call, fail
from tests.support.agents import agent_on, hosting
from tests.support.transcripts import results_of
from tests.support.transcripts import told as events_of

Scripted = Callable[..., ScriptedModel]
CARD = r"(?:\d{4}[ -]?){3}\d{4}"
NUMBER = "4242 4242 4242 4242"


@tool(effect="read")
def look_up(order_id: str) -> str:
    """Looks up."""
    return f"{order_id} was paid with {NUMBER}."


def verdict(allowed: bool) -> str:
    return json.dumps({"allowed": allowed, "reason": "so it is"})


async def acts(conversation: Conversation) -> list[tuple[str, str, str]]:
    return [(it.hook, it.point, it.did) for it in await events_of(conversation) if it.kind == "hook_acted"]


async def talk(client: Client, agent: Any, *said: str) -> tuple[Conversation, list[str]]:
    """The conversation, which is over, and what was answered."""
    conversation = await client.start(agent, said[0], keep_open=timedelta(minutes=1))
    replies = [await conversation.reply()]
    for text in said[1:]:
        await conversation.send(text)
        replies.append(await conversation.reply())
    await conversation.close()
    await conversation.outcome()
    return conversation, replies


async def test_what_is_too_long_is_refused_and_no_later_turn_is_shown_it(
    client: Client, scripted: Scripted, cached_conversations: int
) -> None:
    model = scripted(["Hello."], order="arrival")
    agent = agent_on(model, hooks=[MaxChars(20, refuse="Too long.")])
    async with hosting(client, agent, cached_conversations=cached_conversations):
        conversation, replies = await talk(client, agent, "x" * 21, "Hi")
    assert replies == ["Too long.", "Hello."]
    assert [message.text for message in await conversation.transcript()] == ["x" * 21, "Too long.", "Hi", "Hello."]
    [asked] = model.requests
    assert [message["content"] for message in asked["messages"]] == ["[withheld by MaxChars]", "Too long.", "Hi"]
    assert await acts(conversation) == [
        ("MaxChars", "before_model", "stopped"),
        ("MaxChars", "before_model", "changed"),
    ]


async def test_a_pattern_is_redacted_in_what_the_model_sees_says_and_gets_back(
    client: Client, scripted: Scripted, cached_conversations: int
) -> None:
    model = scripted([call("look_up", {"order_id": "81"}, id="a"), f"It was {NUMBER}."])
    agent = agent_on(model, tools=[look_up], hooks=[Pattern(CARD, redact="[card]", name="cards")])
    async with hosting(client, agent, cached_conversations=cached_conversations):
        conversation = await client.start(agent, f"My card is {NUMBER}")
        assert (await conversation.outcome()).text == "It was [card]."
    said, _, _, answer = transcript = await conversation.transcript()
    assert (said.text, answer.text) == (f"My card is {NUMBER}", "It was [card].")
    assert [result.text for result in results_of(transcript)] == ["81 was paid with [card]."]
    assert NUMBER not in str(model.requests)
    assert "My card is [card]" in str(model.requests)


async def test_a_pattern_refuses_what_is_said_answered_or_returned(client: Client, scripted: Scripted) -> None:
    guard = Pattern("(?i)secret", refuse="Not that.")
    model = scripted(["The secret is 5.", "Fine."], order="arrival")
    agent = agent_on(model, hooks=[guard])
    async with hosting(client, agent):
        _, replies = await talk(client, agent, "What is the SECRET?", "Tell me", "Thanks")
    assert replies == ["Not that.", "Not that.", "Fine."]
    assert "secret" not in str(model.requests).lower()
    told = guard.after_tool(*_called("a secret"))
    assert told is not None
    assert (told.text, told.is_error) == ("Not that.", True)  # type: ignore[union-attr]
    assert guard.after_tool(*_called("nothing")) is None


@pytest.mark.parametrize(
    ("answer", "is_withheld"),
    [
        (Message(role="assistant", parts=(Text(text="No."),)), True),
        (Message(role="assistant", parts=(Text(text="No.", extra={"id": "msg_1"}),), provider="openai"), False),
        (Message(role="assistant", parts=(Text(text="No."), ToolCall(call_id="a", name="look_up"))), False),
    ],
    ids=["its own", "with a provider's id", "with a call"],
)
async def test_a_models_answer_of_the_same_words_is_no_refusal(answer: Message, is_withheld: bool) -> None:
    said = Message.user("Is order 81 paid?")
    given = ModelInput(
        messages=(said, answer), instructions="", tools=(), settings=ModelSettings(), model="m", purpose="turn"
    )
    shown = await MaxChars(100, refuse="No.").before_model(given, TurnContext())
    assert (isinstance(shown, ModelInput) and shown.messages[0].text == "[withheld by MaxChars]") is is_withheld


def _called(text: str) -> Any:
    result = ToolResult(call_id="a", name="look_up", content=(Text(text=text),))
    return ToolCall(call_id="a", name="look_up"), result, ToolContext()


async def test_a_model_judges_what_is_said_and_what_that_costs_counts(
    client: Client, scripted: Scripted, cached_conversations: int
) -> None:
    judge = scripted([verdict(allowed=False), verdict(allowed=True)], order="arrival")
    model = scripted(["Your order is on its way."], order="arrival")
    guard = Judge(Model("scripted:judge", base_url=judge.base_url), "It is about an order.", refuse="Ask about orders.")
    agent = agent_on(model, hooks=[guard])
    async with hosting(client, agent, cached_conversations=cached_conversations):
        conversation, replies = await talk(client, agent, "Write me a poem", "Where is order 81?")
        outcome = await conversation.outcome()
    assert replies == ["Ask about orders.", "Your order is on its way."]
    rules, case = judge.requests[0]["messages"]
    assert "It may pass if this is so: It is about an order." in rules["content"]
    assert "Write me a poem" in case["content"]
    assert "Write me a poem" not in str(judge.requests[1])
    assert "Write me a poem" not in str(model.requests)
    sent = len(judge.requests) + len(model.requests)
    assert sent == 3
    by_itself = await _tokens_of(client, scripted)
    assert outcome.usage.input_tokens > by_itself
    assert (await conversation.by_history()).state.totals.usage == outcome.usage


async def _tokens_of(client: Client, scripted: Scripted) -> int:
    """Of the same conversation without a judge."""
    agent = agent_on(scripted(["Your order is on its way."], order="arrival"), name="unjudged")
    async with hosting(client, agent):
        return (await client.run(agent, "Where is order 81?")).usage.input_tokens


async def test_a_judgement_counts_towards_the_limits(client: Client, scripted: Scripted) -> None:
    judge = scripted([verdict(allowed=True)], order="arrival")
    guard = Judge(Model("scripted:judge", base_url=judge.base_url), "Anything.", refuse="No.")
    model = scripted([call("look_up", {"order_id": "81"}, id="a"), "Done."])
    limits = Limits(max_total_tokens=100, conclude=False)
    agent = agent_on(model, tools=[look_up], hooks=[guard], limits=limits)
    async with hosting(client, agent):
        outcome = await client.run(agent, "Hello")
    assert outcome.status == "limit_reached"
    assert len(model.requests) == 1


async def test_a_model_judges_what_is_answered(client: Client, scripted: Scripted) -> None:
    judge = scripted([verdict(allowed=False), f"```json\n{verdict(allowed=True)}\n```"], order="arrival")
    guard = Judge(Model("scripted:judge", base_url=judge.base_url), "It is polite.", refuse="Sorry.", on="output")
    agent = agent_on(scripted(["Go away.", "With pleasure."], order="arrival"), hooks=[guard])
    async with hosting(client, agent):
        conversation, replies = await talk(client, agent, "Hi", "Help me")
    assert replies == ["Sorry.", "With pleasure."]
    assert "Go away." not in str(await conversation.transcript())


async def test_a_judge_is_asked_again_and_without_a_verdict_the_conversation_stalls(
    client: Client, scripted: Scripted
) -> None:
    judge = scripted([fail(529), verdict(allowed=True), fail(401), verdict(allowed=True)], order="arrival")
    guard = Judge(Model("scripted:judge", base_url=judge.base_url), "Anything.", refuse="No.", name="fair")
    agent = agent_on(scripted(["Hello.", "Again."], order="arrival"), hooks=[guard])
    async with hosting(client, agent):
        conversation = await client.start(agent, "Hi", keep_open=timedelta(minutes=1))
        assert await conversation.reply() == "Hello."
        await conversation.send("And now?")
        with pytest.raises(Stalled, match=r"The hook 'fair'.*before_model.*failed"):
            await conversation.reply()
        await conversation.resume()
        assert await conversation.reply() == "Again."
        await conversation.close()
        await conversation.outcome()
    assert len(judge.requests) == 4


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: MaxChars(0, refuse="No."), "limit 0"),
        (lambda: MaxChars(5, refuse="No.", on="results"), "on='results'"),  # type: ignore[arg-type]
        (lambda: Pattern("a"), "either redact= or refuse="),
        (lambda: Pattern("a", redact="", refuse=""), "either redact= or refuse="),
        (lambda: Pattern("(", redact=""), "is not a regular expression"),
        (lambda: Pattern("a", redact="", on=()), r"on=\(\)"),
    ],
)
def test_a_guardrail_that_makes_no_sense_is_refused(make: Callable[[], Any], why: str) -> None:
    with pytest.raises(InvalidAgent, match=why):
        make()


def test_a_judge_on_a_model_that_nobody_has_is_refused() -> None:
    with pytest.raises(InvalidModel):
        Judge("nobody:m", "x", refuse="No.")


def text_file(text: str, *, as_url: bool = False) -> Document:
    data = b64encode(text.encode()).decode()
    if as_url:
        return Document(url=f"data:text/plain;base64,{data}", name="paid.txt")
    return Document(data=data, media_type="text/plain", name="paid.txt")


@pytest.mark.parametrize("as_url", [False, True])
async def test_texts_within_files_are_redacted_too(client: Client, scripted: Scripted, *, as_url: bool) -> None:
    @tool(effect="read")
    def receipt() -> Document:
        """Gives the receipt."""
        return text_file(f"Result {NUMBER}", as_url=as_url)

    model = scripted([call("receipt"), "Done."])
    agent = agent_on(model, tools=[receipt], hooks=[Pattern(CARD, redact="[card]")])
    async with hosting(client, agent):
        conversation = await client.start(agent, ["Look.", text_file(f"Input {NUMBER}", as_url=as_url)])
        await conversation.outcome()
    [result] = results_of(await conversation.transcript())
    assert result.content == (text_file("Result [card]"),)
    sent = json.dumps(model.requests)
    assert "Input [card]" in sent
    assert "Result [card]" in sent
    assert "4242" not in sent


def test_an_empty_match_is_not_replaced() -> None:
    scan = Document(data=b64encode(b"%PDF-1.7").decode(), media_type="application/pdf")
    guard = Pattern(r"(\d?)(\d*)", redact=r"[\1]")
    assert guard.changed(Message.user([Text(text="for 4242 a"), scan])).parts == (Text(text="for [4] a"), scan)


@pytest.mark.parametrize(
    "guard", [Pattern(CARD, refuse="No."), MaxChars(20, refuse="No.")], ids=["Pattern", "MaxChars"]
)
async def test_texts_within_files_are_refused_too(client: Client, scripted: Scripted, guard: Hooks) -> None:
    model = scripted([])
    agent = agent_on(model, hooks=[guard])
    async with hosting(client, agent):
        outcome = await client.run(agent, ["Look.", text_file(f"Input {NUMBER}")])
    assert outcome.text == "No."
    assert model.requests == []


async def test_a_hook_that_stops_after_a_tool_does_not_keep_its_result_from_a_guardrail(
    client: Client, scripted: Scripted
) -> None:
    @after_tool
    def stop(*_: Any) -> StopWith:
        return StopWith("That is all.")

    agent = agent_on(
        scripted([call("look_up", {"order_id": "7"})]), tools=[look_up], hooks=[Pattern(CARD, redact="[card]"), stop]
    )
    async with hosting(client, agent):
        conversation = await client.start(agent, "Look.")
        assert (await conversation.outcome()).text == "That is all."
    assert "4242" not in str(await conversation.transcript())
    assert await acts(conversation) == [("stop", "after_tool", "stopped"), ("Pattern", "after_tool", "changed")]
