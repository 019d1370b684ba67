"""What a person who approves a call is shown of what the call leaves out."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field

from everturn import tool
from everturn.tools.argument_defaults import MOST_SHOWN, find_defaults


class Amount(BaseModel):
    cents: int
    currency: str = "EUR"


class Card(BaseModel):
    kind: Literal["card"]
    three_d_secure: bool = False


class Transfer(BaseModel):
    kind: Literal["transfer"] = "transfer"
    instant: bool = True


class Node(BaseModel):
    note: str | None = None
    weight: int = 1
    next: Node | None = None


@tool
def pay(
    amount: Amount,
    tip: Amount = Amount(cents=0),  # noqa: B008 - a default of the schema
    items: list[Amount] = Field(default=[]),  # noqa: B008
    by: Annotated[Card | Transfer, Field(discriminator="kind")] | None = None,
    accounts: dict[str, Amount | None] | None = None,
    node: Node | None = None,
) -> str:
    """Pays."""
    return ""


TIP: dict[str, Any] = {"tip": {"cents": 0, "currency": "EUR"}}
GIVEN: dict[str, Any] = {"amount": {"cents": 5, "currency": "USD"}, "tip": {"cents": 0, "currency": ""}, "items": []}


@pytest.mark.parametrize(
    ("arguments", "defaults"),
    [
        (GIVEN, {}),
        ({"amount": {"cents": 5}, "items": []}, {"amount.currency": "EUR", **TIP}),
        ({**GIVEN, "items": [{"cents": 5, "currency": "USD"}, {"cents": 5}]}, {"items[1].currency": "EUR"}),
        ({**GIVEN, "by": {"kind": "card"}}, {"by.three_d_secure": False}),
        ({**GIVEN, "by": {"kind": "transfer"}}, {"by.instant": True}),
        ({**GIVEN, "accounts": {"a.b": {"cents": 5}, "c": None}}, {"accounts.a.b.currency": "EUR"}),
        ({**GIVEN, "node": {"next": {"weight": 2, "next": {}}}}, {"node.weight": 1, "node.next.next.weight": 1}),
    ],
)
def test_defaults_are_found_at_any_depth(arguments: dict[str, Any], defaults: dict[str, Any]) -> None:
    assert pay.defaults_for(arguments) == defaults


def test_they_are_found_in_a_union_whose_types_are_listed() -> None:
    money = {"type": ["object", "null"], "properties": {"currency": {"default": "EUR"}}}
    schema = {"properties": {"amount": {"anyOf": [money, {"type": ["array", "null"]}]}}}
    assert find_defaults(schema, {"amount": {}}) == {"amount.currency": "EUR"}


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}},
        {"anyOf": [{"$ref": "#"}, {"$ref": "#"}]},
        {"properties": {"a": {"default": {}, "$ref": "#"}}},
        {"properties": {"a": 5, "b": []}, "additionalProperties": True},
        {"properties": [], "allOf": [[]], "items": 5},
    ],
)
def test_schemas_of_strangers_make_it_neither_fail_nor_go_on_for_ever(schema: dict[str, Any]) -> None:
    assert len(find_defaults(schema, {"x": {"y": [1]}, "b": {}})) <= MOST_SHOWN
