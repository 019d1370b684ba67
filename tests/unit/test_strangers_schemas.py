"""JSON schemas of servers and front ends: references that lead anywhere, and schemas that are none."""

from __future__ import annotations

from typing import Any

import pytest
from jsonschema import Draft202012Validator

from everturn.tools import unknown_names
from everturn.tools.arguments import InvalidArguments, SchemaArguments
from everturn.tools.mcp import invalid_lists
from everturn.validation.valid_schemas import valid_schema

TEXT, NUMBER = {"type": "string"}, {"type": "number"}
ROUND = {"$ref": "#/$defs/A"}


@pytest.mark.parametrize(
    ("kinds", "arguments", "place"),
    [
        ({"A": ROUND}, {"a": "NaN"}, None),
        ({"A": {"anyOf": [ROUND, ROUND, {"properties": {"n": NUMBER}}]}}, {"a": {"n": "NaN"}}, "a.n"),
        ({"A": {"$ref": "#/definitions/B"}}, {"a": "NaN"}, "a"),
        ({"A": {"$ref": "#/properties/b~1c/items"}}, {"a": "NaN"}, "a"),
        ({"A": {"$ref": "#"}}, {"a": {"b/c": [1, "NaN"]}}, "a.b/c[1]"),
        ({"A": {"anyOf": [{"$ref": "#/definitions/C"}]}}, {"a": "NaN"}, None),
    ],
)
def test_a_number_that_is_none_is_found_behind_any_reference(
    kinds: dict[str, Any], arguments: dict[str, Any], place: str | None
) -> None:
    schema = {
        "properties": {"a": ROUND, "b/c": {"items": NUMBER}},
        "$defs": kinds,
        "definitions": {"B": NUMBER, "C": {"anyOf": [NUMBER, TEXT]}},
    }
    checked = SchemaArguments(schema)
    if place is None:
        assert checked.validate(arguments) == arguments
        return
    with pytest.raises(InvalidArguments) as error:
        checked.validate(arguments)
    assert str(error.value) == f"{place}: a number has to be finite"


@pytest.mark.parametrize("kind", [ROUND, {"anyOf": [ROUND]}])
def test_a_type_that_is_only_itself_has_no_unknown_names(kind: dict[str, Any]) -> None:
    assert unknown_names.problems_within({"a": {"b": 1}}, {"properties": {"a": ROUND}, "$defs": {"A": kind}}) == []


@pytest.mark.parametrize(
    ("schema", "valid"),
    [
        ({"properties": [], "required": None, "description": None}, {"properties": {}}),
        (
            {"properties": {"a": {"type": "string", "required": True}, "b": {"required": False}}, "required": ["b"]},
            {"properties": {"a": TEXT, "b": {}}, "required": ["b", "a"]},
        ),
        ({"required": "name"}, {"required": ["name"]}),
        ({"dependentRequired": {"a": 5, "b": ["a"]}}, {"dependentRequired": {"b": ["a"]}}),
        ({"type": "number", "minimum": 0, "exclusiveMinimum": True}, {"type": "number", "exclusiveMinimum": 0}),
        ({"maximum": 9, "exclusiveMaximum": False}, {"maximum": 9}),
        (
            {"properties": {"a": {"type": "any"}, "b": "int", "c": 5}},
            {"properties": {"a": {}, "b": {"type": "integer"}, "c": {}}},
        ),
        ({"type": ["STRING", "null", "text"]}, {"type": ["string", "null"]}),
        ({"type": ["string", "any"], "enum": []}, {}),
        ({"enum": ["a", "b", "a", 1, True]}, {"enum": ["a", "b", 1, True]}),
        ({"anyOf": [], "items": [], "examples": "x", "allOf": [None]}, {"examples": ["x"], "allOf": [{}]}),
    ],
)
def test_a_schema_that_is_none_becomes_one(schema: dict[str, Any], valid: dict[str, Any]) -> None:
    assert valid_schema({"items": schema}) == {"items": valid}
    Draft202012Validator.check_schema(valid)


def test_what_is_valid_is_not_touched() -> None:
    schema = {
        "type": "object",
        "properties": {"required": {"type": ["string", "null"], "default": None, "enum": ["x", None]}, "type": True},
        "additionalProperties": False,
        "required": [],
    }
    assert valid_schema(schema) is schema


def test_a_tool_whose_schema_is_an_empty_array_or_in_capitals_can_be_called() -> None:
    listed = {
        "tools": [{"name": "a", "inputSchema": []}, {"name": "b", "inputSchema": {"type": "OBJECT", "required": None}}]
    }
    invalid_lists.mend(listed)
    assert [tool["inputSchema"]["type"] for tool in listed["tools"]] == ["object", "object"]
    assert SchemaArguments(listed["tools"][1]["inputSchema"]).validate({"a": 1}) == {"a": 1}
