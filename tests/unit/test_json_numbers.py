"""Numbers that JSON does not have: refused where they come in, with their place; written as texts where they go out."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, BeforeValidator, Field, ValidationError
from typing_extensions import TypedDict

from everturn import Agent, Budget, Limits, ModelSettings, ToolCall, tool
from everturn.activities.planning import plan_calls
from everturn.calls.decision_records import Answer, Approve
from everturn.cli.approval_prompt import NotEdited, parse_arguments
from everturn.errors import InvalidSetting, Refused
from everturn.payloads import Start
from everturn.plans import RefuseCall
from everturn.policy import Condition, Rule
from everturn.providers.json_values import object_in, write_json
from everturn.records import Outcome
from everturn.sizes import check_input
from everturn.system.json_numbers import NumberNotInJson, check_numbers, compact_json, parse_json
from everturn.tools.arguments import InvalidArguments
from everturn.tools.output_type import InvalidOutput, OutputType
from tests.support.vendors import agents, langchain_tools, pydantic_ai

NAN = math.nan
INF = math.inf


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity", "1e999", '{"a": [-1e400]}', '{"a": NaN}'])
def test_a_text_with_such_a_number_is_not_json(text: str) -> None:
    with pytest.raises(NumberNotInJson):
        parse_json(text)


@pytest.mark.parametrize("text", ["9007199254740993", "1" + "0" * 400, "1.5e308", '"NaN"', "-0.0"])
def test_any_other_number_is_read_exactly(text: str) -> None:
    assert parse_json(text) == json.loads(text)


@pytest.mark.parametrize(
    ("value", "place"),
    [
        (NAN, "it is NaN"),
        ({"a": INF}, "a is Infinity"),
        ({"a": [1, {"b": -INF}], "c": 1.5}, "a[1].b is -Infinity"),
        ([[NAN]], "[0][0] is NaN"),
    ],
)
def test_its_place_is_named(value: Any, place: str) -> None:
    with pytest.raises(NumberNotInJson, match="^" + place.replace("[", r"\[")):
        check_numbers(value)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"a": NAN, "b": [INF, -INF]}, '{"a":"NaN","b":["Infinity","-Infinity"]}'),
        ({"said": "NaN and Infinity"}, '{"said":"NaN and Infinity"}'),
        ({"id": 2**63 + 1}, '{"id":9223372036854775809}'),
    ],
)
def test_what_goes_out_has_it_as_a_text(value: Any, text: str) -> None:
    assert compact_json(value) == text
    assert json.loads(write_json(value)) == json.loads(text)
    if isinstance(value, dict):
        assert json.loads(ToolCall(call_id="c", name="n", arguments=value).model_dump_json())["arguments"] == (
            json.loads(text)
        )
        assert json.loads(Outcome(status="completed", output=value).model_dump_json())["output"] == json.loads(text)


# ---------------------------------------------------------------- arguments


class Money(BaseModel):
    amount: float
    limit: float = INF


@dataclass
class Point:
    x: float
    y: float = INF


class Typed(TypedDict):
    x: float


class Percentage(float):
    """A float of the user's own."""


REFUSED: dict[str, tuple[Any, Any]] = {
    "a float": (float, "NaN"),
    "a float that may be none": (float | None, "nan"),
    "within bounds": (Annotated[float, Field(ge=0, le=100)], "NaN"),
    "with a lower bound": (Annotated[float, Field(ge=0)], "Infinity"),
    "a list": (list[float], [1, "-inf"]),
    "a tuple": (tuple[float, float], [1, "1e999"]),
    "a set": (set[float], ["NaN"]),
    "a dict": (dict[str, float], {"a": "NaN"}),
    "a dict's keys": (dict[float, str], {"NaN": "a"}),
    "a model": (Money, {"amount": "infinity"}),
    "models in a list": (list[Money], [{"amount": 1}, {"amount": " NaN "}]),
    "a dataclass": (Point, {"x": "NaN"}),
    "a typed dict": (Typed, {"x": "NaN"}),
    "an int or a float": (int | float, "NaN"),
    "an integer beyond a double": (float, 10**400),
    "a number": (float, INF),
    "any value": (Any, {"a": [NAN]}),
    "a decimal": (Decimal, "NaN"),
    "a complex number": (complex, "nan+1j"),
    "a complex number, too large": (complex, "1+1e999j"),
}


@pytest.mark.parametrize(("annotation", "sent"), REFUSED.values(), ids=REFUSED)
def test_no_such_number_becomes_an_argument(annotation: Any, sent: Any) -> None:
    def pay(amount: Any) -> str:
        """Pay."""
        return str(amount)

    pay.__annotations__["amount"] = annotation
    made = tool(pay)
    with pytest.raises(InvalidArguments, match="amount"):
        made.check({"amount": sent})
    with pytest.raises(InvalidArguments, match="amount"):
        made.arguments.as_json({"amount": sent})


def _unknown_as_nan(value: Any) -> Any:
    return NAN if value == "n/a" else value


TAKEN: dict[str, tuple[Any, Any]] = {
    "a text": (str, "NaN"),
    "a text or a number": (float | str, "NaN"),
    "a literal": (Literal["nan", "inf"], "nan"),
    "any value": (Any, "NaN"),
    "an exact integer": (int, 10**400),
    "what a validator makes": (Annotated[float, BeforeValidator(_unknown_as_nan)], "n/a"),
    "a default of the user's own": (Money, {"amount": 1}),
    "a dataclass's default": (Point, {"x": 1}),
}


@pytest.mark.parametrize(("annotation", "sent"), TAKEN.values(), ids=TAKEN)
def test_what_the_user_means_stays(annotation: Any, sent: Any) -> None:
    def show(value: Any, most: float = INF) -> str:
        """Show."""
        return str((value, most))

    show.__annotations__["value"] = annotation
    assert tool(show).check({"value": sent})["most"] == INF


def test_a_default_that_json_can_not_hold_is_no_null_for_an_activity_or_in_the_schema() -> None:
    def search(words: str, dearest: Annotated[float, Field(ge=-INF)] = INF, cheapest: float = 0.0) -> str:
        """Search."""
        return words

    made = tool(search)
    assert made.parameters["properties"] == {
        "words": {"type": "string"},
        "dearest": {"type": "number"},
        "cheapest": {"type": "number", "default": 0.0},
    }
    assert made.arguments.as_json({"words": "a"}) == {"words": "a"}
    with pytest.raises(InvalidArguments, match="dearest is Infinity"):
        made.arguments.as_json({"words": "a", "cheapest": 1})


AMOUNT = {"type": "object", "properties": {"amount": {"type": "number"}}, "required": ["amount"]}


def of_a_schema() -> Any:
    def pay(amount: Any) -> str:
        return str(amount)

    return tool(pay, parameters=AMOUNT)


def of_openai() -> Any:
    def pay(amount: float) -> str:
        return str(amount)

    return tool(agents.function_tool(pay))


def of_pydantic_ai() -> Any:
    def pay(context: pydantic_ai.RunContext[None], amount: float) -> str:
        return str(amount)

    return tool(pydantic_ai.Tool(pay))


def of_langchain() -> Any:
    def pay(amount: float) -> str:
        """Pay."""
        return str(amount)

    return tool(langchain_tools.tool(pay))


@pytest.mark.parametrize("make", [of_a_schema, of_openai, of_pydantic_ai, of_langchain])
def test_nor_an_argument_that_somebody_else_converts(make: Any) -> None:
    made = make()
    assert made.check({"amount": "5"}) == {"amount": "5"}
    for sent in ("NaN", "-Infinity", "1e999", 10**400, INF):
        with pytest.raises(InvalidArguments, match=r"amount.*: a number has to be finite"):
            made.check({"amount": sent})


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"type": "array", "items": {"type": "number"}}, [1, "NaN"]),
        ({"anyOf": [{"type": "number"}, {"type": "null"}]}, "NaN"),
        ({"type": ["number", "null"]}, "NaN"),
        ({"$ref": "#/$defs/Money"}, {"amount": "NaN"}),
        ({"anyOf": [{"$ref": "#/$defs/Money"}, {"type": "null"}]}, {"amount": "NaN"}),
        ({"type": "object", "additionalProperties": {"type": "number"}}, {"a": "NaN"}),
        ({"type": "array", "prefixItems": [{"type": "number"}]}, ["NaN"]),
    ],
)
def test_a_schema_says_where_a_number_is_wanted(schema: Any, value: Any) -> None:
    definitions = {"Money": {"type": "object", "properties": {"amount": {"type": "number"}}}}
    made = tool(
        lambda at: at, name="f", parameters={"properties": {"at": schema}, "required": ["at"], "$defs": definitions}
    )
    with pytest.raises(InvalidArguments, match="at"):
        made.check({"at": value})


async def test_a_guard_never_sees_one() -> None:
    asked = []

    @tool(needs_approval=lambda call: bool(asked.append(call)) or call["amount"] > 100)
    def pay(amount: float) -> str:
        """Pay."""
        return str(amount)

    agent = Agent("clerk", model="scripted:x", tools=[pay])
    for arguments, unparsed in (({"amount": "NaN"}, None), ({}, '{"amount": 1e999}'), ({}, '{"amount": NaN}')):
        call = ToolCall(call_id="1", name="pay", arguments=arguments, unparsed=unparsed)
        [plan] = await plan_calls(agent, [call], conclude=None)
        assert isinstance(plan, RefuseCall)
    assert asked == []


# ---------------------------------------------------------------- the other borders


@pytest.mark.parametrize(
    "text", ['{"amount": NaN}', '{"amount": 1e999}', '{"amount": [{"a": -1e999}]}', '{"half \\ud83d": 1e999}']
)
def test_a_models_arguments_with_one_are_no_object(text: str) -> None:
    assert object_in(text) is None


class Measured(BaseModel):
    x: float
    most: float = 1.0


@pytest.mark.parametrize(
    ("wanted", "text"),
    [
        (Measured, '{"x": "NaN"}'),
        (Measured, '{"x": 1e999}'),
        (Measured, '{"x": 1, "most": "inf"}'),
        (list[float], '{"result": ["NaN"]}'),
        (dict[str, float], '{"a": "NaN"}'),
        (dict[str, Any], '{"a": 1e999}'),
        (float | None, '{"result": "NaN"}'),
        (Money, '{"amount": 1}'),  # its default is infinite, and can't be recorded
    ],
)
def test_no_output_has_one(wanted: Any, text: str) -> None:
    with pytest.raises(InvalidOutput):
        OutputType.from_type(wanted).parse_reply(text)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Approve(call_id="c", arguments={"amount": NAN}),
        lambda: Approve(call_id="c", expected={"amount": INF}),
        lambda: Answer(call_id="c", content=NAN),
        lambda: Answer(call_id="c", content={"a": [INF]}),
        lambda: Answer.model_validate_json('{"call_id": "c", "content": 1e999}'),
        lambda: Start(agent="a", message="m", metadata={"order": NAN}),
        lambda: Condition(equals=NAN),
        lambda: Condition(one_of=(1, INF)),
        lambda: Condition(at_most=NAN),
        lambda: Condition.model_validate_json('{"above": 1e999}'),
        lambda: Rule(tool="t", then="approve", where={"a": {"below": INF}}),  # type: ignore[dict-item]
    ],
)
def test_nobody_sends_one(make: Any) -> None:
    with pytest.raises(ValidationError):
        make()


def test_a_python_program_is_told_before_it_is_sent() -> None:
    with pytest.raises(Refused, match=r"answer holds a number .* content.mean is NaN"):
        check_input("answer", {"call_id": "c", "content": {"mean": NAN}})


def test_nor_is_one_edited_in() -> None:
    with pytest.raises(NotEdited, match="1e999"):
        parse_arguments('{"cents": 1e999}')


@pytest.mark.parametrize("number", [NAN, INF])
@pytest.mark.parametrize(
    ("setting", "option"), [(Budget, "usd_per_month"), (Limits, "max_cost_usd"), (ModelSettings, "temperature")]
)
def test_a_setting_is_a_number_that_json_has(setting: Any, option: str, number: float) -> None:
    """As JSON, an infinite budget would become none at all, and a request could not be written."""
    with pytest.raises(InvalidSetting, match=f"{option}: Input should be a finite number"):
        setting(**{option: number})
