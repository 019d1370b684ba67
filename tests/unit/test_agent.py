"""Agents: checked when they are made, so that nothing is left to find out in a conversation."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from pydantic import BaseModel

from everturn.agent import Agent
from everturn.cli.doctor import _handoff_findings
from everturn.errors import EverturnError, InvalidAgent, InvalidModel, InvalidTool
from everturn.limits import Limits, Patience
from everturn.models import Model, ModelSettings
from everturn.tools.arguments import InvalidArguments
from everturn.tools.server_tools import CodeExecution, WebSearch, XSearch
from everturn.tools.tool import tool


class Widget: ...


class Order(BaseModel):
    """An order of a customer."""

    id: str


class Weird:
    def __init__(self) -> None:
        self.then = print


def refund(order: str) -> str:
    """Give money back."""
    return order


@tool(effect="once")
def pay(order: str) -> str:
    return order


def yields(city: str, *rest: str) -> str:
    return city


def clerk(**options: Any) -> Agent:
    return Agent("clerk", **{"model": "scripted:demo", **options})


def test_a_turns_tools_have_the_order_of_the_agents_own_and_then_that_of_their_names() -> None:
    pay_back, first, more = tool(refund, name="pay_back"), tool(refund, name="first"), {"name": "add", "parameters": {}}
    made = clerk(tools=[first, pay, XSearch()])
    for tools in ([pay_back, pay, more, first], [first, more, pay_back, pay]):
        assert [item.name for item in made.for_turn(tools=tools).tools] == ["first", "pay", "add", "pay_back"]
    for tools in ([WebSearch(), CodeExecution()], [CodeExecution(), WebSearch()]):
        served = made.for_turn(tools=tools).server_tools
        assert [type(item) for item in served] == [XSearch, CodeExecution, WebSearch]
    raw = {"type": "one", "a": 1}, {"type": "two", "b": 2}
    assert made.for_turn(tools=raw).raw_tools == made.for_turn(tools=raw[::-1]).raw_tools


def test_an_agent_keeps_what_it_was_given() -> None:
    made = Agent(
        "clerk",
        model=Model("openai-chat:qwen", base_url="http://localhost:1"),
        instructions="Be brief.",
        tools=[refund, pay],
        settings=ModelSettings(temperature=0),
        limits=Limits(max_turns=3),
        patience=Patience(),
        fallback_models=["scripted:demo", Model("scripted:other")],
    )
    assert (made.name, made.model.base_url, made.instructions) == ("clerk", "http://localhost:1", "Be brief.")
    assert [tool.name for tool in made.tools] == ["refund", "pay"]
    assert [fallback_model.name for fallback_model in made.fallback_models] == ["scripted:demo", "scripted:other"]
    assert (made.settings.temperature, made.limits.max_turns) == (0, 3)
    assert repr(made) == "<Agent 'clerk', openai-chat:qwen, tools: refund, pay>"


def test_an_agent_needs_only_a_name_and_a_model() -> None:
    made = clerk()
    assert (made.model, made.tools, made.raw_tools, made.output) == (Model("scripted:demo"), (), (), None)


def test_an_agent_is_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        clerk().name = "other"  # type: ignore[misc]


def test_a_tool_is_found_by_name() -> None:
    made = clerk(tools=[refund, pay])
    assert made.tool("pay") is pay
    assert made.tool("Pay") is None


def test_a_dict_with_a_name_is_run_by_the_client() -> None:
    schema = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    made = clerk(
        tools=[
            {"name": "ask", "description": "Ask the user.", "parameters": schema},
            {"type": "function", "name": "place", "parameters": Order},
            {"name": "wait"},
        ]
    )
    ask, place, wait = made.tools
    assert {tool.runs_on for tool in made.tools} == {"client"}
    assert (ask.description, ask.parameters) == ("Ask the user.", schema)
    assert place.description == "An order of a customer."
    assert place.parameters["required"] == ["id"]
    assert wait.parameters == {"type": "object", "properties": {}}
    assert wait.check({"anything": 1}) == {"anything": 1}
    for one in (ask, place):
        with pytest.raises(InvalidArguments, match="Field required"):
            one.check({})


def test_arguments_for_the_client_are_checked_by_name() -> None:
    schema = {"properties": {"city": {"type": "string"}}, "required": ["city"], "additionalProperties": False}
    [ask] = clerk(tools=[{"name": "ask", "parameters": schema}]).tools
    assert ask.check({"city": 3}) == {"city": 3}
    with pytest.raises(InvalidArguments) as caught:
        ask.check({"town": "Paris"})
    assert str(caught.value) == "city: Field required\ntown: Unknown argument; the arguments are city"


@pytest.mark.parametrize(
    "raw", [{"type": "web_search"}, {"google_search": {}}, {"type": "web_search_20250305", "name": "web_search"}]
)
def test_a_dict_of_the_providers_is_kept_apart(raw: dict[str, Any]) -> None:
    made = clerk(tools=[raw, refund])
    assert made.raw_tools == (raw,)
    assert [tool.name for tool in made.tools] == ["refund"]


@pytest.mark.parametrize(
    ("item", "said"),
    [
        (WebSearch, "WebSearch is a class. Write WebSearch()."),
        (CodeExecution, "CodeExecution is a class. Write CodeExecution()."),
        (Widget, "Widget is a class. Write Widget(...)."),
        ("refund", "'refund', of type str"),
        (None, "None, of type NoneType"),
        (Weird(), "of type Weird"),
        (lambda order: order, "tool(name='...')"),
        (yields, "'*rest'"),
        (Agent("v1.clerk", model="openai:gpt-5.5"), "'v1.clerk' is not a valid name for a tool"),
        (pay, "is called 'pay', like an earlier one. Give one of them another name"),
        ({"name": "pay"}, "is called 'pay'"),
        ({"name": "get weather"}, "'get weather' is not a valid name for a tool"),
        ({"name": "ask", "input_schema": {}}, "the key 'input_schema'. Write {'name'"),
        ({"name": "ask", "description": 1}, "description=1"),
        ({"name": "ask", "parameters": {"type": "string"}}, "a JSON schema of type object"),
        ({"name": "ask", "parameters": Weird}, "or a pydantic model"),
        ({"type": "function", "function": {"name": "ask"}}, "the key 'function'. Write {'name'"),
    ],
)
def test_what_is_no_tool_is_refused_by_place_and_with_a_cure(item: Any, said: str) -> None:
    with pytest.raises(InvalidTool) as caught:
        clerk(tools=[pay, item])
    assert str(caught.value).startswith("tools[1] of Agent 'clerk'")
    assert said in str(caught.value)


def test_tools_that_the_provider_runs_are_kept_apart() -> None:
    made = clerk(tools=[refund, WebSearch(max_uses=3), {"type": "file_search"}, CodeExecution()])
    assert made.server_tools == (WebSearch(max_uses=3), CodeExecution())
    assert [tool.name for tool in made.tools] == ["refund"]
    assert made.raw_tools == ({"type": "file_search"},)


def test_two_settings_of_one_server_tool_are_refused() -> None:
    with pytest.raises(InvalidTool, match=r"tools\[2\] of Agent 'clerk' is a second WebSearch"):
        clerk(tools=[WebSearch(), XSearch(), WebSearch(max_uses=1)])


@pytest.mark.parametrize("tools", [refund, pay, "refund", {"name": "ask"}, None, clerk(), WebSearch()])
def test_tools_are_a_list(tools: Any) -> None:
    with pytest.raises(InvalidTool, match=r"Write tools=\[\.\.\.\]"):
        clerk(tools=tools)


@pytest.mark.parametrize("name", ["a", "clerk.v2", "Clerk-2_b", "1", "a" * 64])
def test_names_of_letters_digits_dots_dashes_and_underscores_are_taken(name: str) -> None:
    assert Agent(name, model="scripted:demo").name == name


@pytest.mark.parametrize("name", ["", "a b", "a/b", "a" * 65, "ä", "a\n", None, 3])
def test_other_names_are_refused(name: Any) -> None:
    with pytest.raises(InvalidAgent, match="such as 'clerk'"):
        Agent(name, model="scripted:demo")


@pytest.mark.parametrize(
    ("options", "kind", "said"),
    [
        ({"model": "gpt"}, InvalidModel, "provider:name"),
        ({"model": None}, InvalidAgent, "provider:name"),
        ({"fallback_models": ["gpt"]}, InvalidModel, "provider:name"),
        ({"fallback_models": "scripted:demo"}, InvalidAgent, "fallback_models=[...]"),
        ({"fallback_models": 3}, InvalidAgent, "fallback_models=[...]"),
        ({"instructions": None}, InvalidAgent, "Write instructions='...'."),
        ({"settings": {"temperature": 0}}, InvalidAgent, "Write settings=ModelSettings(...)"),
        ({"limits": 3}, InvalidAgent, "Write limits=Limits(...)"),
        ({"patience": None}, InvalidAgent, "Write patience=Patience(...)"),
        ({"output": Weird}, InvalidAgent, "output="),
    ],
)
def test_options_of_another_type_are_refused(options: dict[str, Any], kind: type[EverturnError], said: str) -> None:
    with pytest.raises(kind) as caught:
        clerk(**options)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("output", "sent"), [(Order, {"id": "81"}), (list[Order], [{"id": "81"}]), (bool, True)])
def test_an_output_type_has_its_schema_and_its_reader(output: Any, sent: Any) -> None:
    made = clerk(output=output)
    assert made.output is output
    assert made.output_schema is not None
    assert made.output_adapter is not None
    assert made.output_adapter.dump_python(made.output_adapter.validate_python(sent), mode="json") == sent


def test_the_doctor_names_agents_that_a_conversation_may_be_handed_to_and_are_not_here() -> None:
    billing = Agent("billing", model="scripted:demo", handoff_to=["sales"])
    triage = Agent("triage", model="scripted:demo", handoff_to=[billing])
    [finding] = _handoff_findings([triage])
    assert (finding.part, finding.state) == ("handoffs of billing", "note")
    assert "'sales' is not among the agents here" in finding.detail
    assert _handoff_findings([triage, Agent("sales", model="scripted:demo")]) == []
