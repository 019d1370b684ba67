"""The type of a last reply: a schema that providers take, and a reader that says what does not fit."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Annotated, Any, Literal

import pytest
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ValidationInfo,
    computed_field,
    field_serializer,
    field_validator,
    model_validator,
)

from everturn.agent import Agent
from everturn.providers.schema_strict import fits_strict
from everturn.tools.output_type import InvalidOutput


class Order(BaseModel):
    """An order."""

    id: str
    state: Literal["open", "shipped"]


class Report(BaseModel):
    orders: list[Order]
    total: float = Field(ge=0)


class Optional(BaseModel):
    note: str = "none"


class Tree(BaseModel):
    name: str
    children: list[Tree]


class Fussy(BaseModel):
    id: str

    @field_validator("id")
    @classmethod
    def _known(cls, value: str) -> str:  # noqa: ARG003 - pydantic's signature
        raise RuntimeError("the register is down")


class Aliased(BaseModel):
    order_id: str = Field(alias="orderId")


class TwoNames(BaseModel):
    order_id: str = Field(validation_alias="orderId", serialization_alias="order-id")


class ForPeople(BaseModel):
    cents: int

    @field_serializer("cents")
    def _in_words(self, value: int) -> str:
        return f"{value / 100} euros"


class HalfHidden(BaseModel):
    id: str
    key: str = Field(exclude=True)


@dataclass
class Point:
    x: int
    y: int


def agent(output: Any) -> Agent:
    return Agent("clerk", model="scripted:demo", output=output)


ORDER = {"id": "81", "state": "open"}


@pytest.mark.parametrize(
    ("output", "text", "value"),
    [
        (Order, '{"id": "81", "state": "open"}', ORDER),
        (Order, '```json\n{"id": "81", "state": "open"}\n```\n', ORDER),
        (Optional, "{}", {"note": "none"}),
        (Point, '{"x": 1, "y": 2}', {"x": 1, "y": 2}),
        (Tree, '{"name": "a", "children": []}', {"name": "a", "children": []}),
        (list[Order], '{"result": [{"id": "81", "state": "open"}]}', [ORDER]),
        (list[Order], '[{"id": "81", "state": "open"}]', [ORDER]),
        (bool, '{"result": true}', True),
        (str, '{"result": "yes"}', "yes"),
        (Order | None, '{"result": null}', None),
        (dict[str, int], '{"a": 1}', {"a": 1}),
    ],
)
def test_a_reply_becomes_a_value(output: Any, text: str, value: Any) -> None:
    made = agent(output)
    assert made.read_output(text) == value
    assert made.output_schema is not None
    assert made.output_schema["type"] == "object"


@pytest.mark.parametrize(
    ("output", "text"),
    [
        (Aliased, '{"orderId": "81"}'),
        (TwoNames, '{"orderId": "81"}'),
        (ForPeople, '{"cents": 500}'),
        (HalfHidden, '{"id": "81", "key": "k"}'),
        (list[Aliased], '[{"orderId": "81"}]'),
    ],
)
def test_what_is_recorded_is_what_the_type_reads(output: Any, text: str) -> None:
    made = agent(output)
    recorded = made.read_output(text)
    assert recorded == json.loads(text)
    assert made.output_adapter is not None
    made.output_adapter.validate_json(json.dumps(recorded))


@pytest.mark.parametrize(
    ("output", "text", "said"),
    [
        (Order, '{"id": "81"}', "state: Field required"),
        (Order, '{"id": "81", "state": "lost"}', "state: Input should be 'open' or 'shipped', got \"lost\""),
        (Order, "It is open.", "Invalid JSON"),
        (Order, "", "Invalid JSON"),
        (list[Order], "It is open.", "expected value"),
        (list[Order], '{"result": [{"id": "81"}]}', "[0].state: Field required"),
        (bool, '{"result": "perhaps"}', "valid boolean"),
        (Fussy, '{"id": "1"}', "RuntimeError: the register is down"),
        (dict[str, int], '{"a": "x"}', "a: Input should be a valid integer"),
    ],
)
def test_a_reply_that_does_not_fit_is_refused_in_words_for_the_model(output: Any, text: str, said: str) -> None:
    with pytest.raises(InvalidOutput) as caught:
        agent(output).read_output(text)
    assert said in str(caught.value)


def test_problems_are_bounded() -> None:
    with pytest.raises(InvalidOutput) as caught:
        agent(list[Order]).read_output('{"result": [' + ",".join(["{}"] * 50) + "]}")
    assert str(caught.value).endswith("… and 90 more")
    assert len(str(caught.value).splitlines()) == 11


def test_no_schema_says_what_nobody_asked_for() -> None:
    assert '"title"' not in json.dumps([agent(output).output_schema for output in (Tree, Report, Point, list[Order])])


def test_an_agent_without_an_output_type_reads_none() -> None:
    made = agent(None)
    assert (made.output_schema, made.output_adapter, made.read_output("{}")) == (None, None, None)


@pytest.mark.parametrize(
    ("output", "strict"),
    [(Order, True), (list[Order], True), (Tree, True), (Point, True), (bool, True), (Optional, False), (dict, False)],
)
def test_a_schema_is_strict_where_openai_takes_it_so(output: Any, strict: bool) -> None:
    schema = agent(output).output_schema
    assert schema is not None
    assert fits_strict(schema) is strict


CLOSED = {"type": "object", "additionalProperties": False}


@pytest.mark.parametrize(
    ("schema", "strict"),
    [
        ({**CLOSED, "properties": {}}, True),
        ({"type": "object", "properties": {}}, False),
        ({**CLOSED, "properties": {"a": {"type": "string"}}}, False),
        ({**CLOSED, "properties": {"a": {"type": "string"}}, "required": ["a"]}, True),
        ({**CLOSED, "properties": {"a": {"type": ["string", "null"]}}, "required": ["a"]}, True),
        ({**CLOSED, "properties": {"a": {"type": "string", "minLength": 1}}, "required": ["a"]}, False),
        ({**CLOSED, "properties": {"a": {"type": "string", "format": "uri"}}, "required": ["a"]}, False),
        ({**CLOSED, "properties": {"a": {"type": "string", "format": "date"}}, "required": ["a"]}, True),
        ({**CLOSED, "properties": {"a": {"type": "string", "pattern": "(?=x)"}}, "required": ["a"]}, False),
        ({**CLOSED, "properties": {"a": {"type": "string", "pattern": "^x$"}}, "required": ["a"]}, True),
        ({**CLOSED, "properties": {"a": {"type": "array"}}, "required": ["a"]}, False),
        ({**CLOSED, "properties": {"a": {}}, "required": ["a"]}, False),
        ({**CLOSED, "properties": {"a": {"$ref": "#/$defs/A", "description": "x"}}, "required": ["a"]}, False),
        ({**CLOSED, "properties": {"a": {"anyOf": [{"type": "null"}, {"type": "array"}]}}, "required": ["a"]}, False),
        ({**CLOSED, "properties": {}, "anyOf": []}, False),
        ({**CLOSED, "properties": {}, "$defs": {"A": {"type": "object"}}}, False),
        ({"type": "array", "items": {"type": "string"}}, False),
    ],
)
def test_the_strict_subset(schema: dict[str, Any], strict: bool) -> None:
    assert fits_strict(schema) is strict


class Aliased(BaseModel):
    cents: int = Field(alias="priceInCents")


class Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")
    day: date
    pair: tuple[int, int]

    @computed_field  # type: ignore[prop-decorator]
    @property
    def year(self) -> int:
        return self.day.year


class Written(BaseModel):
    cents: int

    @field_serializer("cents")
    def _in_euros(self, cents: int) -> str:
        return f"{cents / 100:.2f} EUR"


class WithDeps(BaseModel):
    note: str

    @model_validator(mode="after")
    def _known(self, info: ValidationInfo[Any]) -> WithDeps:
        info.context.deps.check(self.note)
        return self


class FieldWithDeps(BaseModel):
    note: str

    @field_validator("note")
    @classmethod
    def _known(cls, note: str, info: ValidationInfo[Any]) -> str:
        info.context.deps.check(note)
        return f"{note}!"


class Holder(BaseModel):
    inner: FieldWithDeps | None


Prefixed = Annotated[str, AfterValidator(lambda text: f"ORD-{text}")]


class Deps:
    def check(self, note: str) -> None: ...


class Turn:
    deps = Deps()


@pytest.mark.parametrize(
    ("output", "text", "value"),
    [
        (Order, json.dumps(ORDER), Order(id="81", state="open")),
        (Point, '{"x": 1, "y": 2}', Point(1, 2)),
        (list[Order], json.dumps({"result": [ORDER]}), [Order(id="81", state="open")]),
        (set[int], "[1, 1]", {1}),
        (Decimal, '{"result": "1.50"}', Decimal("1.50")),
        (Order | None, '{"result": null}', None),
        (Aliased, '{"priceInCents": 12}', Aliased(priceInCents=12)),
        (Strict, '{"day": "2026-11-27", "pair": [1, 2]}', Strict(day=date(2026, 11, 27), pair=(1, 2))),
        (Written, '{"cents": 1200}', Written(cents=1200)),
        (Prefixed, '{"result": "81"}', "ORD-81"),
        (WithDeps, '{"note": "a"}', WithDeps.model_construct(note="a")),
        (FieldWithDeps, '{"note": "a"}', FieldWithDeps.model_construct(note="a!")),
        (Holder, '{"inner": {"note": "a"}}', Holder(inner=FieldWithDeps.model_construct(note="a!"))),
        (list[WithDeps], '[{"note": "a"}]', [WithDeps.model_construct(note="a")]),
    ],
)
def test_an_output_is_of_the_agents_own_type_for_whoever_waited(output: Any, text: str, value: Any) -> None:
    judge = agent(output)
    recorded = judge.read_output(text, Turn())  # type: ignore[arg-type]
    typed = judge.typed_output(recorded, text)
    assert (type(typed), typed) == (type(value), value)


@pytest.mark.parametrize(("output", "text"), [(Order, json.dumps(ORDER)), (Aliased, '{"priceInCents": 12}')])
def test_a_text_that_was_cut_leaves_the_recorded_output(output: Any, text: str) -> None:
    judge = agent(output)
    assert judge.typed_output(judge.read_output(text), f"{text[:5]} …") == judge.typed_output(None, text)


@pytest.mark.parametrize(("recorded", "text"), [({"x": 1}, '{"x": 1}'), (None, "In words."), ("a", "a")])
def test_what_another_agent_has_answered_is_no_value_of_the_type(recorded: Any, text: str) -> None:
    with pytest.raises(InvalidOutput):
        agent(Order).typed_output(recorded, text)
