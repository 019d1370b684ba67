"""MCP's tools, results and questions as everturn's: what servers may say, and what is made of it."""

from __future__ import annotations

import asyncio
import json
from contextlib import nullcontext
from fnmatch import fnmatch
from typing import Any

import pytest
from mcp import types

from everturn import Document, Image, McpServer, McpTool, Text
from everturn.errors import ToolFailed
from everturn.payloads import PersonsAnswer
from everturn.sizes import MAX_LEFT_BYTES
from everturn.tools.arguments import InvalidArguments, SchemaArguments
from everturn.tools.context_ask import AsksPerson
from everturn.tools.mcp.connections import RunningCall, ServerConnection
from everturn.tools.mcp.listed_tools import tools_of
from everturn.tools.mcp.questions import MAX_QUESTIONS, Answers, AsksTooMuch, DoesNotFit, Elicitation
from everturn.tools.mcp.results import parts_of
from everturn.tools.mcp.tool_names import known_as

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


@pytest.mark.parametrize(
    ("own", "known"),
    [
        (["x.y", "x_y"], ["x_y_????????", "x_y"]),
        (["x.y", "x/y"], ["x_y_????????", "x_y_????????"]),
        (["x.y", "z"], ["x_y", "z"]),
        (["7up", "_7up"], ["_7up_????????", "_7up"]),
        (["b" * 70, "b" * 71], [f"{'b' * 55}_????????", f"{'b' * 55}_????????"]),
    ],
)
def test_a_changed_name_takes_nobodys_place(own: list[str], known: list[str]) -> None:
    for names in (own, own[::-1]):
        made = {tool.description: tool.name for tool in tools_of(server(), _described(names), _never)}
        assert len(set(made.values())) == len(own)
        assert all(fnmatch(made[name], pattern) for name, pattern in zip(own, known, strict=True)), made


def test_another_order_of_a_servers_list_is_none_of_its_tools() -> None:
    made = [tools_of(server(), listed(*names), _never) for names in (("b", "c", "a"), ("c", "a", "b"))]
    assert [[tool.name for tool in tools] for tools in made] == [["a", "b", "c"]] * 2


def _described(names: list[str]) -> list[types.Tool]:
    return [types.Tool(name=name, description=name, input_schema=NAMED) for name in names]


@pytest.mark.parametrize(
    ("schema", "name", "taken"),
    [
        ({}, "more", True),
        ({"additionalProperties": True}, "more", True),
        ({"additionalProperties": {}}, "more", True),
        ({"additionalProperties": {"type": "string"}}, "more", True),
        ({"additionalProperties": False}, "more", False),
        ({"additionalProperties": {"not": {}}}, "more", False),
        ({"additionalProperties": False}, "a", True),
        ({"additionalProperties": False, "patternProperties": {"^x-": {}}}, "x-more", True),
        ({"additionalProperties": False, "patternProperties": {"^x-": {}}}, "more", False),
        ({"additionalProperties": False, "patternProperties": {r"^\p{L}": {}}}, "more", True),
    ],
)
def test_a_schema_says_which_fields_may_come_beside_its_own(schema: Any, name: str, *, taken: bool) -> None:
    arguments = SchemaArguments({"type": "object", "properties": {"a": {}}, **schema})
    with nullcontext() if taken else pytest.raises(InvalidArguments, match="Unknown argument"):
        assert arguments.validate({name: 1}) == {name: 1}


def test_what_can_be_no_tool_is_left_out_and_said(caplog: pytest.LogCaptureFixture) -> None:
    found = [*listed("a", "a"), types.Tool(name="c", input_schema={"type": "string"}), *listed("d", "e")]
    made = tools_of(server(deny=["e"], allow=["a", "c", "d", "nonsense"]), found, _never)
    assert [tool.name for tool in made] == ["a", "d"]
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 3
    assert "mcp.no_such_tool" in said[0]
    assert "names=['nonsense']" in said[0]
    assert "two tools are called 'a'" in said[1]
    assert "tool='c'" in said[2]


def _text(text: str) -> types.TextContent:
    return types.TextContent(type="text", text=text)


PIXELS = "iVBORw0KGgo" * 30
LONG = "A red lamp. " * 30
BLOCKS = [{"type": "text", "text": "Here:"}, {"type": "image", "data": PIXELS, "mimeType": "image/png"}]


def _file(uri: str, text: str) -> types.EmbeddedResource:
    return types.EmbeddedResource(type="resource", resource=types.TextResourceContents(uri=uri, text=text))


def _picture() -> types.ImageContent:
    return types.ImageContent(type="image", data=PIXELS, mime_type="image/png")


@pytest.mark.parametrize(
    ("content", "structured", "told"),
    [
        ([_text("3")], {"result": 3}, ["3"]),
        ([_text('{"a": 1}')], {"a": 1}, ['{"a": 1}']),
        ([_text("three")], {"count": 3}, ["three", '{"count":3}']),
        ([], {"count": 3}, ['{"count":3}']),
        ([], None, ["(no output)"]),
        ([], {"result": None}, ["(no output)"]),
        ([], {"result": []}, ['{"result":[]}']),
        ([_text("")], None, [""]),
        # A text says one field of several, or what looks like it: the others are told, too.
        ([_text("three")], {"count": 3, "said": "three"}, ["three", '{"count":3,"said":"three"}']),
        ([_text("3")], {"count": 3, "left": 3}, ["3", '{"count":3,"left":3}']),
        ([_text("")], {"note": "", "count": 3}, ['{"note":"","count":3}']),
        ([_text(" "), _text("three")], {"count": 3}, ["three", '{"count":3}']),
        ([_text("1")], {"result": True}, ["1", '{"result":true}']),
        ([_text("a")], {"result": ["a", "b"]}, ["a", '{"result":["a","b"]}']),
        ([_text("a")], {"result": ["a", "a"]}, ["a", '{"result":["a","a"]}']),
        ([_text("b"), _text("a")], {"result": ["a", "b"]}, ["b", "a", '{"result":["a","b"]}']),
        ([_text("red lamp")], {"name": "red lamp", "also": {"name": "red lamp"}}, None),
        # The same once more, under a name, or in pieces.
        ([_text('[{"a": 1}]')], {"entities": [{"a": 1}]}, ['[{"a": 1}]', '{"entities":"(already shown)"}']),
        ([_text("a"), _text("b")], {"result": ["a", "b"]}, ["a", "b"]),
        ([_text("Two:"), _text('{"a": 1}'), _text("2")], {"result": [{"a": 1}, 2]}, ["Two:", '{"a": 1}', "2"]),
        ([_text("Made.")], {"message": "Made."}, ["Made.", '{"message":"Made."}']),
        ([_text("false")], {"deleted": False}, ["false", '{"deleted":false}']),
        ([_text(LONG)], {"text": LONG, "cut": False}, [LONG, '{"text":"(already shown)","cut":false}']),
        ([_text("Here:"), _picture()], {"result": BLOCKS}, ["Here:"]),
        # Several files say which is which; what a link is called is said, too.
        ([_file("x:/a", "3")], {"result": 3}, ["3"]),
        ([_file("x:/a", "3"), _file("x:/b", "3")], None, ["[resource x:/a]\n3", "[resource x:/b]\n3"]),
        (
            [_file("x:/a", "a"), _file("x:/b", "b")],
            {"result": ["a", "b"]},
            ["[resource x:/a]\na", "[resource x:/b]\nb"],
        ),
        (
            [types.ResourceLink(type="resource_link", uri="x:/81", name="81", title="The lamp")],
            None,
            ["[resource 81 'The lamp' at x:/81]"],
        ),
        ([_text("Here:"), _picture()], {"content": [{**one, "annotations": None} for one in BLOCKS]}, ["Here:"]),
        ([_picture()], {"result": BLOCKS[1]}, []),
        ([_picture()], {"png": PIXELS, "width": 3}, ['{"png":"(already shown)","width":3}']),
        ([_text(f'{{"png": "{PIXELS}"}}'), _picture()], {"png": PIXELS}, ['{"png": "(already shown)"}']),
        ([_picture()], {"url": f"data:image/png;base64,{PIXELS}"}, ['{"url":"data:image/png;base64,(already shown)"}']),
    ],
)
def test_a_result_is_told_whole_and_once(content: list[Any], structured: Any, told: list[str] | None) -> None:
    parts = parts_of(types.CallToolResult(content=content, structured_content=structured))
    if told is None:
        told = [content[0].text, json.dumps(structured, separators=(",", ":"))]
    assert [part.text for part in parts if isinstance(part, Text)] == told
    assert [part.data for part in parts if isinstance(part, Image)] == [PIXELS] * (_picture() in content)


def test_an_error_has_all_that_a_result_has() -> None:
    report = types.EmbeddedResource(
        type="resource",
        resource=types.BlobResourceContents(uri="file:///a.pdf", mime_type="application/pdf", blob="AAAA"),
    )
    with pytest.raises(ToolFailed) as failed:
        parts_of(
            types.CallToolResult(
                content=[_text("no lamp"), _picture(), report], structured_content={"code": 7}, is_error=True
            )
        )
    assert str(failed.value) == 'no lamp\n{"code":7}'
    assert [type(part) for part in failed.value.parts] == [Image, Document]
    with pytest.raises(ToolFailed, match="It failed"):
        parts_of(types.CallToolResult(content=[], is_error=True))


def test_audio_and_pictures_are_parts_of_their_kinds() -> None:
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
    assert asked.read_answer(text) == content


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
        asked.read_answer(text)


def test_a_question_is_put_in_words() -> None:
    choice = form(paper={"type": "string", "enum": ["red", "blue"]}, gift={"type": "boolean"})
    assert choice.in_words == "Which? (answer with JSON: paper: red or blue; gift: true or false, may be left out)"
    asked = types.ElicitRequestURLParams(message="Sign in.", url="https://x/y")
    assert Elicitation.from_params(asked).in_words == "Sign in. (at https://x/y: answer when you have done that)"


def test_questions_of_one_call_are_asked_one_after_the_other_and_answers_are_found_by_them() -> None:
    answers = Answers()
    answers.open = {"1": form(a={"type": "string"}), "2": form(b={"type": "integer"})}
    left = json.loads(json.dumps(answers.asking_error().left))
    with pytest.raises(AsksPerson) as asked:
        Answers.from_answer(PersonsAnswer(action="accept", text="x", left=left))
    after = Answers.from_answer(PersonsAnswer(action="decline", left=json.loads(json.dumps(asked.value.left))))
    assert after.responses() == {"1": {"action": "accept", "content": {"a": "x"}}, "2": {"action": "decline"}}


def test_a_server_that_asks_without_end_or_at_any_length_is_no_longer_asked_for() -> None:
    answers = Answers()
    answers.open = {"1": Elicitation("x" * (MAX_LEFT_BYTES + 1))}
    with pytest.raises(AsksTooMuch, match="bytes"):
        answers.asking_error()
    answers.open, answers.given = {"1": Elicitation("x")}, {str(n): {} for n in range(MAX_QUESTIONS)}
    with pytest.raises(AsksTooMuch, match="can't ask more"):
        answers.asking_error()


def test_what_an_answer_leaves_out_has_the_forms_default() -> None:
    form = {
        "type": "object",
        "properties": {"name": {"type": "string", "default": "Ann"}, "age": {"type": "integer"}},
        "required": ["name"],
    }
    asked = Elicitation("Who?", form)
    assert asked.read_answer("{}") == {"name": "Ann"}
    assert asked.read_answer('{"name": "Bo", "age": 3}') == {"name": "Bo", "age": 3}


@pytest.mark.parametrize("answered", [True, False], ids=["answered", "given-up"])
async def test_a_question_is_asked_of_the_only_call_that_may_have_asked_it(*, answered: bool) -> None:
    """The protocol of before 2026 does not say whose it is: that of a call that timed out is not the other one's."""
    connection = ServerConnection(server(), on_change=lambda: None)
    one, other = RunningCall(), RunningCall()
    connection._running = {one: None, other: None}
    asking_call = asyncio.create_task(connection._find_asking_call())
    await asyncio.sleep(0)
    one.answered = answered
    del connection._running[one]
    async with connection._fewer:
        connection._fewer.notify_all()
    assert await asking_call is (other if answered else None)
    await connection.close()
