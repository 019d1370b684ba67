"""Schemas that providers refuse: rewritten where the meaning stays, and their arguments read back; else left out."""

from __future__ import annotations

import json
from typing import Any

import pytest

from everturn import Message, Model, ToolCall
from everturn.providers import Request, ToolSpec
from everturn.providers.tool_schemas import fit_schemas, plain_property, undo_fit_schemas, with_items
from everturn.records import Reply
from everturn.tools.server_tools import UnsupportedParameter
from everturn.validation.schema_references import resolved

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
        # What refers to itself says nothing more the second time.
        (
            {"allOf": [{"$ref": "#/$defs/A"}], "$defs": {"A": {**A_OR_B, "allOf": [{"$ref": "#/$defs/A"}]}}},
            {"a": TEXT, "b": NUMBER},
            None,
        ),
        (
            {"$ref": "#/$defs/A", "$defs": {"A": {"anyOf": [{"$ref": "#/$defs/A"}, {"anyOf": [A_OR_B]}]}}},
            {"a": TEXT, "b": NUMBER},
            None,
        ),
        # References as JSON pointers may be written.
        ({"$ref": "#/$defs/Page%5B~1it%5D", "$defs": {"Page[/it]": A_OR_B}}, {"a": TEXT, "b": NUMBER}, None),
        ({"oneOf": [{"type": ["object", "null"], "properties": {"a": TEXT}}]}, {"a": TEXT}, None),
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


def test_conditions_that_stand_beside_each_other_are_not_mixed() -> None:
    cases = [
        {"if": {"required": ["a"]}, "then": {"required": ["b"]}},
        {"if": {"required": ["b"]}, "else": {"required": ["c"]}},
        {"not": {"required": ["c"]}},
        {"not": {"required": ["d"]}},
    ]
    _, description = shown({**A_OR_B, "allOf": cases})
    rule = json.loads(description.partition("too: ")[2])
    joined = [{name: value for name, value in rule.items() if name != "allOf"}, *rule["allOf"]]
    assert joined == [{**cases[0], **cases[2]}, cases[1], cases[3]]


@pytest.mark.parametrize("rewritten", [{"anyOf": [{"required": ["b"]}]}, {}])
def test_a_reference_to_a_place_that_moves_still_leads_there(rewritten: dict[str, Any]) -> None:
    """As .NET and zod write a type that comes twice or holds itself."""
    parent = {"type": "object", "properties": {"$name": TEXT, "again": {"$ref": "#/properties/$parent"}}}
    schema = {"type": "object", "properties": {"$parent": parent, "b": {"$ref": "#/properties/$parent"}}, **rewritten}
    fitted, _ = shown(schema)
    definition = resolved(fitted["properties"]["b"], fitted)
    [name] = [name for name in definition["properties"] if name != "again"]
    assert plain_property("$name") == name
    assert resolved(definition["properties"]["again"], fitted) is definition
    sent = ToolCall(call_id="c", name="find", arguments={"b": {name: "x", "again": {name: "y"}}})
    reply = Reply(message=Message(role="assistant", parts=(sent,)), stop="tool_calls", model="m")
    [read] = undo_fit_schemas(reply, asked(schema)).message.tool_calls
    assert read.arguments == {"b": {"$name": "x", "again": {"$name": "y"}}}


def test_a_schema_is_rewritten_once_for_all_turns() -> None:
    schema = {**A_OR_B, "anyOf": CHOICE}
    first, later = (fit_schemas(asked(schema, description=text)).tools[0] for text in ("Find.", "Find it."))
    assert first.parameters is later.parameters
    assert first.description.partition("\n")[0] == "Find."


def test_what_is_required_goes_by_the_new_names_wherever_it_stands() -> None:
    inner = {
        "type": "object",
        "properties": {"$a": TEXT, "$b": TEXT},
        "anyOf": [{"required": ["$a"]}],
        "dependentRequired": {"$a": ["$b"]},
    }
    fitted, _ = shown({"type": "object", "properties": {"in": inner}})
    a = plain_property("$a")
    b = plain_property("$b")
    inside = fitted["properties"]["in"]
    assert (inside["anyOf"], inside["dependentRequired"]) == ([{"required": [a]}], {a: [b]})


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#/$defs/0", "$defs": {f"{n}": {"allOf": [{"$ref": f"#/$defs/{n + 1}"}] * 2} for n in range(40)}},
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
