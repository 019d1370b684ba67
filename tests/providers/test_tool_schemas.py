"""Schemas that providers refuse: rewritten where the meaning stays, and their arguments read back; else left out."""

from __future__ import annotations

from typing import Any

import pytest

from everturn import Message, Model, ToolCall
from everturn.providers import Request, ToolSpec
from everturn.providers.tool_schemas import fit_schemas, plain_property, undo_fit_schemas, with_items
from everturn.records import Reply
from everturn.tools.server_tools import UnsupportedParameter

TEXT, NUMBER = {"type": "string"}, {"type": "number"}
MODELS = ["openai-chat:gpt-5.5", "openai:gpt-5.5", "anthropic:claude-opus-4-8", "google:gemini-3-pro", "groq:x"]


def asked(schema: Any, model: str = "anthropic:claude-opus-4-8", description: str = "Find it.") -> Request:
    tool = ToolSpec("find", description, schema)
    return Request(model=Model(model), messages=(Message.user("Go."),), tools=(tool,))


def shown(schema: Any, model: str = "anthropic:claude-opus-4-8") -> tuple[dict[str, Any], str]:
    [tool] = fit_schemas(asked(schema, model)).tools
    return dict(tool.parameters), tool.description


A_OR_B = {"type": "object", "properties": {"a": TEXT, "b": NUMBER}}
CHOICE = [{"required": ["a"]}, {"required": ["b"]}]


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(
    ("schema", "properties", "required"),
    [
        ({**A_OR_B, "anyOf": CHOICE}, {"a": TEXT, "b": NUMBER}, None),
        ({**A_OR_B, "oneOf": CHOICE, "required": ["a"]}, {"a": TEXT, "b": NUMBER}, ["a"]),
        ({**A_OR_B, "not": {"required": ["a", "b"]}}, {"a": TEXT, "b": NUMBER}, None),
        ({**A_OR_B, "if": {"required": ["a"]}, "then": {"required": ["b"]}}, {"a": TEXT, "b": NUMBER}, None),
        (
            {
                "oneOf": [
                    {"type": "object", "properties": {"kind": {"const": "a"}, "a": TEXT}, "required": ["kind", "a"]},
                    {"$ref": "#/$defs/B"},
                ],
                "$defs": {"B": {"type": "object", "properties": {"kind": {"const": "b"}}, "required": ["kind"]}},
            },
            {"kind": {"anyOf": [{"const": "a"}, {"const": "b"}]}, "a": TEXT},
            ["kind"],
        ),
        (
            {"allOf": [{"properties": {"a": TEXT}, "required": ["a"]}, {"properties": {"b": NUMBER}}]},
            {"a": TEXT, "b": NUMBER},
            ["a"],
        ),
        ({"$ref": "#/$defs/It", "$defs": {"It": {**A_OR_B, "required": ["b"]}}}, {"a": TEXT, "b": NUMBER}, ["b"]),
        (
            {"$ref": "#/definitions/It", "definitions": {"It": {"$ref": "#/definitions/Its"}, "Its": A_OR_B}},
            {"a": TEXT, "b": NUMBER},
            None,
        ),
        ({"type": ["object", "null"], "properties": {"a": TEXT}}, {"a": TEXT}, None),
        ({"properties": {"a": TEXT}}, {"a": TEXT}, None),
    ],
)
def test_the_top_is_a_plain_object(model: str, schema: Any, properties: Any, required: Any) -> None:
    made, description = shown(schema, model)
    assert made["type"] == "object"
    assert not made.keys() & {"anyOf", "oneOf", "allOf", "not", "enum", "if", "then", "$ref"}
    assert (made["properties"], made.get("required")) == (properties, required)
    assert description.startswith("Find it.")
    if schema.keys() & {"anyOf", "oneOf", "not", "if"}:
        assert "The arguments have to fit" in description


def test_the_rule_that_the_schema_lost_is_in_the_description() -> None:
    _, description = shown({**A_OR_B, "anyOf": CHOICE})
    rule = 'The arguments have to fit at least one of these JSON schemas: [{"required":["a"]},{"required":["b"]}]'
    assert description == f"Find it.\n\n{rule}"


@pytest.mark.parametrize(
    ("array", "items"),
    [
        ({"type": "array"}, {}),
        ({"type": "array", "items": True}, {}),
        ({"type": ["array", "null"]}, {}),
        ({"type": "array", "prefixItems": [NUMBER, NUMBER], "minItems": 2, "maxItems": 2}, NUMBER),
        ({"type": "array", "prefixItems": [NUMBER, TEXT], "items": False}, {"anyOf": [NUMBER, TEXT]}),
        ({"type": "array", "prefixItems": [NUMBER], "items": TEXT}, {"anyOf": [NUMBER, TEXT]}),
        ({"type": "array", "items": [NUMBER, TEXT]}, {"anyOf": [NUMBER, TEXT]}),
        ({"type": "array", "items": {"type": "array"}}, {"type": "array", "items": {}}),
    ],
)
@pytest.mark.parametrize("model", MODELS)
def test_each_array_says_what_it_holds(array: Any, items: Any, model: str) -> None:
    places = {
        "at": array,
        "deep": {"type": "object", "properties": {"at": array}},
        "either": {"anyOf": [array, {"type": "null"}]},
        "named": {"$ref": "#/$defs/At"},
    }
    made, _ = shown({"type": "object", "properties": places, "$defs": {"At": array}}, model)
    found = made["properties"]
    for one in (found["at"], found["deep"]["properties"]["at"], found["either"]["anyOf"][0], made["$defs"]["At"]):
        assert one["items"] == items
        assert "prefixItems" not in one


def test_a_tuples_length_and_order_are_said() -> None:
    made = with_items({"type": "array", "prefixItems": [NUMBER, TEXT], "description": "A place."})
    assert made["maxItems"] == 2
    assert made["description"] == 'A place. In this order: [{"type":"number"},{"type":"string"}]'


NAMES = {
    "type": "object",
    "properties": {
        "$filter": TEXT,
        "fine_name": TEXT,
        "größe": NUMBER,
        "x" * 80: TEXT,
        "inside": {"type": "object", "properties": {"a b": TEXT}},
        "list": {"type": "array", "items": {"$ref": "#/$defs/It"}},
        "maybe": {"anyOf": [{"$ref": "#/$defs/It"}, {"type": "null"}]},
        "by_key": {"type": "object", "additionalProperties": {"$ref": "#/$defs/It"}},
    },
    "required": ["$filter", "größe"],
    "$defs": {"It": {"type": "object", "properties": {"@id": TEXT, "next": {"$ref": "#/$defs/It"}}}},
}
GIVEN = {
    "$filter": "a",
    "fine_name": "b",
    "größe": 1,
    "x" * 80: "c",
    "inside": {"a b": "d"},
    "list": [{"@id": "e", "next": {"@id": "f"}}],
    "maybe": {"@id": "g"},
    "by_key": {"$odd key": {"@id": "h"}},
    "not known": 1,
}


def wired(value: Any, name: str = "") -> Any:
    if isinstance(value, dict):
        kept = {*value} if name == "by_key" else {"not known"}  # these are no properties
        return {key if key in kept else plain_property(key): wired(one, key) for key, one in value.items()}
    return [wired(one) for one in value] if isinstance(value, list) else value


def test_names_that_anthropic_refuses_are_replaced_and_read_back() -> None:
    made, _ = shown(NAMES)
    names = [*made["properties"], *made["properties"]["inside"]["properties"], *made["$defs"]["It"]["properties"]]
    assert all(len(name) <= 64 and name.replace(".", "").replace("-", "").replace("_", "").isalnum() for name in names)
    assert len(set(names)) == len(names)
    assert made["required"] == [plain_property("$filter"), plain_property("größe")]
    assert made["properties"][plain_property("$filter")]["description"] == "(Named '$filter'.)"
    request = asked(NAMES)
    call = ToolCall(call_id="c1", name="find", arguments=wired(GIVEN))
    reply = Reply(message=Message(role="assistant", parts=(call,)))
    assert undo_fit_schemas(reply, request).tool_calls[0].arguments == GIVEN
    by_own_names = ToolCall(call_id="c1", name="find", arguments=GIVEN)
    own = Reply(message=Message(role="assistant", parts=(by_own_names,)))
    assert undo_fit_schemas(own, request) is own  # the model may know the real ones from earlier calls


IT = {"$ref": "#/$defs/It"}
QUOTED = {
    "type": "object",
    "properties": {
        "it": IT,
        "maybe": {"anyOf": [IT, {"type": "null"}]},
        "many": {"type": "array", "items": IT},
        "same": {"allOf": [IT], "description": "As `it`."},
        "or_text": {"anyOf": [IT, TEXT]},
        "text": TEXT,
        "any": {"description": "Whatever there is."},
    },
    "$defs": {"It": {"type": "object", "properties": {"city": TEXT, "next": IT}}},
}


@pytest.mark.parametrize(
    ("given", "read"),
    [
        ({"it": '{"city": "Paris"}'}, {"it": {"city": "Paris"}}),
        ({"it": {"next": ' {"next": "{}"}'}}, {"it": {"next": {"next": {}}}}),
        ({"maybe": '{"city": "{}"}'}, {"maybe": {"city": "{}"}}),
        ({"many": '[{"city": "Paris"}]'}, {"many": [{"city": "Paris"}]}),
        ({"many": ['{"city": "Paris"}', "Rome"]}, {"many": [{"city": "Paris"}, "Rome"]}),
        ({"same": '{"city": "Paris"}'}, {"same": {"city": "Paris"}}),
        *((kept, kept) for kept in ({"or_text": "{}"}, {"text": "[1]"}, {"any": "{}"}, {"unknown": "{}"})),
        *((kept, kept) for kept in ({"it": "Paris"}, {"it": "[]"}, {"it": '{"a": 1e999}'}, {"maybe": "null"})),
    ],
)
def test_an_object_that_a_server_wrote_as_a_text_is_read(given: dict[str, Any], read: dict[str, Any]) -> None:
    call = ToolCall(call_id="c1", name="find", arguments=given)
    reply = Reply(message=Message(role="assistant", parts=(call,)))
    assert undo_fit_schemas(reply, asked(QUOTED, "vllm:glm-5.3")).tool_calls[0].arguments == read


def test_other_providers_get_the_names_as_they_are() -> None:
    assert [*shown(NAMES, "openai:gpt-5.5")[0]["properties"]] == [*NAMES["properties"]]  # type: ignore[misc]


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#/$defs/Nowhere"},
        {"$ref": "https://schemas.example/it.json"},
        {"$ref": "#/$defs/A", "$defs": {"A": {"$ref": "#/$defs/A"}}},
        {"type": "array", "items": TEXT},
        {"anyOf": [{"type": "string"}, {"type": "null"}]},
    ],
)
def test_a_tool_that_can_not_be_described_is_left_out_by_name(schema: Any) -> None:
    with pytest.warns(UnsupportedParameter, match="the schema of the tool 'find' .*The tool is left out"):
        assert fit_schemas(asked(schema)).tools == ()


@pytest.mark.parametrize("model", MODELS)
def test_what_all_take_is_not_touched(model: str) -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"type": "array", "items": TEXT}, "b": {"$ref": "#/$defs/B"}},
        "$defs": {"B": {"type": "object", "properties": {"c": {"anyOf": [TEXT, NUMBER]}}}},
    }
    request = asked(schema, model)
    assert fit_schemas(request) is request
