"""Typed input: what a model has to give to another agent, as a tool of its or as it hands the conversation on."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Literal

import pytest
from pydantic import BaseModel, Field, field_validator

from everturn import Agent, Client, HandOff, ToolCall, ToolContext
from everturn.errors import InvalidAgent
from everturn.hooks import DenyCall, before_tool
from everturn.testing import ScriptedModel, call
from tests.support.agents import agent_on, hosting
from tests.support.transcripts import results_of
from tests.support.waiting import waiting

Scripted = Callable[..., ScriptedModel]


class Translation(BaseModel):
    text: str = Field(min_length=1)
    to: Literal["es", "fr"] = "es"

    @field_validator("text")
    @classmethod
    def _is_no_secret(cls, text: str) -> str:
        if "secret" in text:
            raise ValueError("secrets are not translated")
        return text


ESCALATION = {"type": "object", "properties": {"reason": {"type": "string"}}, "required": ["reason"]}


async def test_an_agent_is_asked_with_what_its_type_says(
    client: Client, scripted: Scripted, cached_conversations: int
) -> None:
    asks = [
        call("translator", {"text": "a secret"}, id="c1"),
        call("translator", {"text": "é", "to": "de"}, id="c2"),
        [call("translator", {"text": "Good day, é"}, id="c3"), call("translator", {"text": "a", "to": "fr"}, id="c4")],
        "Done.",
    ]
    model = scripted(asks)
    below = agent_on(scripted(["Buen día"]), name="translator", input=Translation)
    editor = agent_on(model, name="editor", tools=[below])
    async with hosting(client, editor, cached_conversations=cached_conversations):
        conversation = await client.start(editor, "Translate")
        assert await conversation.reply() == "Done."
        secret, foreign, first, second = results_of(await conversation.transcript())
        said = [(await client.conversation(f"{conversation.id}.{one}").transcript())[0].text for one in ("c3", "c4")]
    [offered] = [tool["function"] for tool in model.requests[0]["tools"]]
    assert set(offered["parameters"]["properties"]) == {"text", "to"}
    assert (secret.is_error, "secrets are not translated" in secret.text) == (True, True)
    assert (foreign.is_error, "to: " in foreign.text) == (True, True)
    assert [first.text, second.text] == ["Buen día"] * 2
    assert [json.loads(one) for one in said] == [{"text": "Good day, é", "to": "es"}, {"text": "a", "to": "fr"}]
    assert "é" in said[0]


async def test_a_handoff_says_what_its_type_says(client: Client, scripted: Scripted, cached_conversations: int) -> None:
    seen: list[Translation] = []

    @before_tool(tools=("transfer_to_translator",))
    def on_handoff(given: ToolCall, context: ToolContext) -> DenyCall | None:
        seen.append(Translation.model_validate(given.arguments))
        return None

    hands = [
        call("transfer_to_translator", {"to": "fr"}, id="h1"),
        call("transfer_to_translator", {"text": "Good day"}, id="h2"),
    ]
    second = scripted(["Buen día"], order="arrival")
    below = agent_on(second, name="translator")
    triage = agent_on(
        scripted(hands, order="arrival"),
        name="triage",
        handoff_to=[HandOff(below, input=Translation)],
        hooks=[on_handoff],
    )
    async with hosting(client, triage, cached_conversations=cached_conversations):
        conversation = await client.start(triage, "Translate")
        assert await conversation.reply() == "Buen día"
        refused, handed = results_of(await conversation.transcript())
    assert (refused.is_error, "text: " in refused.text) == (True, True)
    assert '{"text": "Good day", "to": "es"}' in handed.text
    assert '{\\"text\\": \\"Good day\\"' in json.dumps(second.requests[0]["messages"])
    assert seen == [Translation(text="Good day")]


async def test_a_person_may_edit_what_a_handoff_says(client: Client, scripted: Scripted) -> None:
    below = agent_on(scripted(["Sorted out."], order="arrival"), name="manager")
    handoff = HandOff(below, name="escalate", needs_approval=True, input=ESCALATION)
    triage = agent_on(scripted([call("escalate", {"reason": "angry"}, id="h1")]), name="triage", handoff_to=[handoff])
    async with hosting(client, triage):
        conversation = await client.start(triage, "Help!")
        await waiting(conversation)
        await conversation.approve("h1", arguments={"reason": "waits for weeks"})
        assert await conversation.reply() == "Sorted out."
        [handed] = results_of(await conversation.transcript())
    assert '{"reason": "waits for weeks"}' in handed.text
    assert "angry" not in handed.text


@pytest.mark.parametrize("wrong", ["text", 7, str, {"type": "array"}])
def test_what_can_be_no_input_is_refused(wrong: Any) -> None:
    with pytest.raises(InvalidAgent, match="Agent 'clerk' has input="):
        Agent("clerk", model="scripted:demo", input=wrong)
    with pytest.raises(InvalidAgent, match="HandOff to 'billing' has input="):
        HandOff("billing", input=wrong)
