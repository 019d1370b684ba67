"""MCP's tools, results and questions as everturn's: what servers may say, and what is made of it."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from mcp import types

from everturn import Image, McpServer, McpTool, Text
from everturn.errors import ToolFailed
from everturn.payloads import PersonsAnswer
from everturn.sizes import MAX_LEFT_BYTES
from everturn.tools.context_ask import AsksPerson
from everturn.tools.mcp.connections import Running, ServerConnection
from everturn.tools.mcp.listing import known_as, tools_of
from everturn.tools.mcp.questions import MAX_QUESTIONS, Answers, AsksTooMuch, DoesNotFit, Elicitation
from everturn.tools.mcp.results import parts_of

NAMED = {"type": "object", "properties": {"name": {"type": "string"}}}


async def _never(*_: Any) -> None:
    raise AssertionError


def server(**options: Any) -> McpServer:
    return McpServer(command=["shop"], **options)


def listed(*names: str, **fields: Any) -> list[types.Tool]:
    return [types.Tool(name=name, input_schema=NAMED, **fields) for name in names]


@pytest.mark.parametrize(
    ("hints", "effect", "asks"),
    [
        (None, "once", False),
        (types.ToolAnnotations(), "once", False),
        (types.ToolAnnotations(read_only_hint=True, destructive_hint=True), "read", False),
        (types.ToolAnnotations(idempotent_hint=True), "idempotent", False),
        (types.ToolAnnotations(idempotent_hint=True, destructive_hint=True), "idempotent", True),
        (types.ToolAnnotations(destructive_hint=True), "once", True),
    ],
)
def test_annotations_say_the_effect_and_who_is_asked(
    hints: types.ToolAnnotations | None, effect: str, asks: bool
) -> None:
    [tool] = tools_of(server(), listed("a", annotations=hints), _never)
    assert (tool.effect, tool.needs_approval) == (effect, asks)


@pytest.mark.parametrize(
    ("makes", "support", "attaches"),
    [
        ("never", "required", False),
        ("asked", None, False),
        ("asked", "forbidden", False),
        ("asked", "optional", True),
        ("asked", "required", True),
        ("offered", None, True),
    ],
)
def test_only_tools_whose_calls_may_become_tasks_attach(makes: Any, support: Any, attaches: bool) -> None:
    execution = types.ToolExecution(task_support=support) if support else None
    [tool] = tools_of(server(), listed("a", execution=execution), _never, makes)
    assert tool.attaches == attaches


def test_overrides_go_before_what_the_server_says() -> None:
    said = McpTool(effect="read", needs_approval=True, name="b", description="Better.")
    [tool] = tools_of(server(prefix="at", overrides={"a": said}), listed("a", description="Bad."), _never)
    assert (tool.name, tool.effect, tool.needs_approval, tool.description) == ("at_b", "read", True, "Better.")


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("read_file", "read_file"),
        ("shop.count", "shop_count"),
        ("7up", "_7up"),
        ("résumé/write", "r_sum__write"),
        ("call_model", "call_model_86f0fa03"),
        ("x" * 70, "x" * 55 + "_"),
    ],
)
def test_names_are_what_models_take(name: str, known: str) -> None:
    made = known_as(server(), name)
    assert made.startswith(known)
    assert len(made) <= 64


def test_what_can_be_no_tool_is_left_out_and_said(caplog: pytest.LogCaptureFixture) -> None:
    found = [*listed("a.b", "a_b"), types.Tool(name="c", input_schema={"type": "string"}), *listed("d", "e")]
    made = tools_of(server(deny=["e"], allow=["a.b", "a_b", "c", "d", "nonsense"]), found, _never)
    assert [tool.name for tool in made] == ["a_b", "d"]
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 3
    assert "mcp.no_such_tool" in said[0]
    assert "names=['nonsense']" in said[0]
    assert "two tools are called 'a_b'" in said[1]
    assert "tool='c'" in said[2]


def _text(text: str) -> types.TextContent:
    return types.TextContent(type="text", text=text)


@pytest.mark.parametrize(
    ("content", "structured", "told"),
    [
        ([_text("3")], {"result": 3}, ["3"]),
        ([_text('{"a": 1}')], {"a": 1}, ['{"a": 1}']),
        ([_text("three")], {"count": 3, "said": "three"}, ["three"]),
        ([_text("three")], {"count": 3}, ["three", '{"count":3}']),
        ([_text("a"), _text("b")], {"result": ["a", "b"]}, ["a", "b"]),
        ([], {"count": 3}, ['{"count":3}']),
        ([], None, ["(no output)"]),
        ([_text("")], None, [""]),
    ],
)
def test_structured_content_is_told_unless_a_text_says_it(content: list[Any], structured: Any, told: list[str]) -> None:
    parts = parts_of(types.CallToolResult(content=content, structured_content=structured))
    assert [part.text for part in parts if isinstance(part, Text)] == told


def test_an_error_is_its_texts_and_a_block_of_a_later_protocol_is_json() -> None:
    with pytest.raises(ToolFailed, match="no lamp"):
        parts_of(types.CallToolResult(content=[_text("no lamp")], is_error=True))
    audio = types.AudioContent(type="audio", data="AAAA", mime_type="audio/wav")
    image = types.ImageContent(type="image", data="AAAA", mime_type="image/png")
    parts = parts_of(types.CallToolResult(content=[audio, image]))
    assert isinstance(parts[1], Image)
    assert not isinstance(parts[0], Text)


def form(**properties: Any) -> Elicitation:
    return Elicitation("Which?", {"type": "object", "properties": properties, "required": list(properties)[:1]})


@pytest.mark.parametrize(
    ("asked", "text", "content"),
    [
        (form(day={"type": "string"}), "7", {"day": "7"}),
        (form(size={"type": "integer"}), "7", {"size": 7}),
        (form(sure={"type": "boolean"}), "Yes", {"sure": True}),
        (form(tags={"type": "array", "items": {"type": "string"}}), "a", {"tags": ["a"]}),
        (form(a={"type": "string"}, b={"type": "integer"}), '{"a": "x"}', {"a": "x"}),
        (Elicitation("Go on?"), "whatever", {}),
    ],
)
def test_an_answer_is_what_the_form_wants(asked: Elicitation, text: str, content: dict[str, Any]) -> None:
    assert asked.content(text) == content


@pytest.mark.parametrize(
    ("asked", "text", "words"),
    [
        (form(size={"type": "integer"}), "large", "size: 'large' is not of type 'integer'"),
        (form(a={"type": "string"}, b={"type": "integer"}), "x", "write a JSON object with a, b"),
        (form(a={"type": "string"}, b={"type": "integer"}), '{"b": 1}', "'a' is a required property"),
        (form(a={"type": "string", "enum": ["x", "y"]}), "z", "'z' is not one of"),
        (form(a={"type": "string"}, b={"type": "integer"}), '{"a": "x", "c": 1}', "there is no 'c'"),
    ],
)
def test_an_answer_that_does_not_fit_says_why(asked: Elicitation, text: str, words: str) -> None:
    with pytest.raises(DoesNotFit, match=words):
        asked.content(text)


def test_a_question_is_put_in_words() -> None:
    choice = form(paper={"type": "string", "enum": ["red", "blue"]}, gift={"type": "boolean"})
    assert choice.in_words == "Which? (answer with JSON: paper: red or blue; gift: true or false, may be left out)"
    asked = types.ElicitRequestURLParams(message="Sign in.", url="https://x/y")
    assert Elicitation.of(asked).in_words == "Sign in. (at https://x/y: answer when you have done that)"


def test_questions_of_one_call_are_asked_one_after_the_other_and_answers_are_found_by_them() -> None:
    answers = Answers()
    answers.open = {"1": form(a={"type": "string"}), "2": form(b={"type": "integer"})}
    left = json.loads(json.dumps(answers.asks().left))
    with pytest.raises(AsksPerson) as asked:
        Answers.after(PersonsAnswer(action="accept", text="x", left=left))
    after = Answers.after(PersonsAnswer(action="decline", left=json.loads(json.dumps(asked.value.left))))
    assert after.responses() == {"1": {"action": "accept", "content": {"a": "x"}}, "2": {"action": "decline"}}


def test_a_server_that_asks_without_end_or_at_any_length_is_no_longer_asked_for() -> None:
    answers = Answers()
    answers.open = {"1": Elicitation("x" * (MAX_LEFT_BYTES + 1))}
    with pytest.raises(AsksTooMuch, match="bytes"):
        answers.asks()
    answers.open, answers.given = {"1": Elicitation("x")}, {str(n): {} for n in range(MAX_QUESTIONS)}
    with pytest.raises(AsksTooMuch, match="can't ask more"):
        answers.asks()


def test_what_an_answer_leaves_out_has_the_forms_default() -> None:
    form = {
        "type": "object",
        "properties": {"name": {"type": "string", "default": "Ann"}, "age": {"type": "integer"}},
        "required": ["name"],
    }
    asked = Elicitation("Who?", form)
    assert asked.content("{}") == {"name": "Ann"}
    assert asked.content('{"name": "Bo", "age": 3}') == {"name": "Bo", "age": 3}


@pytest.mark.parametrize("answered", [True, False], ids=["answered", "given-up"])
async def test_a_question_is_asked_of_the_only_call_that_may_have_asked_it(*, answered: bool) -> None:
    """The protocol of before 2026 does not say whose it is: that of a call that timed out is not the other one's."""
    connection = ServerConnection(server(), on_change=lambda: None)
    one, other = Running(), Running()
    connection._running = {one: None, other: None}
    asked = asyncio.create_task(connection._only_one())
    await asyncio.sleep(0)
    one.answered = answered
    del connection._running[one]
    async with connection._fewer:
        connection._fewer.notify_all()
    assert await asked is (other if answered else None)
    await connection.close()
