"""What can be a tool of the user's own activities, and what is refused when it is made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
from pydantic import BaseModel
from temporalio import activity
from temporalio.common import RawValue, RetryPolicy

from everturn import Agent, Tool, ToolContext, activity_tool, tool
from everturn.errors import InvalidTool
from everturn.plans import RetryPlan, RunActivity


class Order(BaseModel):
    id: str
    cents: int = 5


@dataclass
class Parcel:
    to: str
    kilos: float = 1.0


@activity.defn
async def ship(parcel: Parcel, fast: bool = False, note: str = "") -> str:
    """Ship a parcel.

    Args:
        fast: By air.
    """
    return parcel.to


@activity.defn(name="Shop.Pay")
def pay(order: Order) -> None:
    """Pay an order."""


@activity.defn
async def nothing() -> None: ...


@activity.defn(dynamic=True)
async def anything(args: Sequence[RawValue]) -> None: ...


@activity.defn
async def asks(context: ToolContext) -> None: ...


def test_the_model_sees_the_signature_and_the_docstring() -> None:
    made = activity_tool(ship)
    assert (made.name, made.description) == ("ship", "Ship a parcel.")
    assert list(made.parameters["properties"]) == ["parcel", "fast", "note"]
    assert made.parameters["properties"]["fast"]["description"] == "By air."
    assert made.parameters["required"] == ["parcel"]
    assert made.activity
    assert made.activity.by_position == ("parcel", "fast", "note")
    assert made.activity.hosted == ship
    assert activity_tool(ship, task_queue="far").activity.hosted is None  # type: ignore[union-attr]
    assert isinstance(made, Tool)


@pytest.mark.parametrize(
    ("made", "given", "inputs"),
    [
        (
            activity_tool(ship),
            {"parcel": {"to": "Bern"}},
            {"parcel": {"to": "Bern", "kilos": 1.0}, "fast": False, "note": ""},
        ),
        (
            activity_tool(ship),
            {"parcel": {"to": "Bern", "kilos": "2"}, "note": "x"},
            {"parcel": {"to": "Bern", "kilos": 2.0}, "fast": False, "note": "x"},
        ),
        (activity_tool(pay, name="pay"), {"id": "81"}, {"id": "81", "cents": 5}),
        (activity_tool(nothing), {}, {}),
        (activity_tool("x", task_queue="q", schema=Order), {"id": "81"}, {"id": "81", "cents": 5}),
        (activity_tool("x", task_queue="q", schema={"properties": {"a": {}}}), {"a": {"b": 1}}, {"a": {"b": 1}}),
    ],
)
async def test_arguments_become_what_the_activitys_types_want(
    made: Tool, given: dict[str, Any], inputs: dict[str, Any]
) -> None:
    assert await made.inputs(given) == inputs


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda: activity_tool("pay", schema={}), "has a name and no task_queue"),
        (lambda: activity_tool("pay", task_queue="q"), "has a name and no schema"),
        (lambda: activity_tool("", task_queue="q", schema={}), "has '' as the activity's name"),
        (lambda: activity_tool("pay", task_queue=" ", schema={}), "has ' ' as task_queue"),
        (lambda: activity_tool("pay", task_queue="q" * 2000, schema={}), "as task_queue"),
        (lambda: activity_tool("Shop.Pay", task_queue="q", schema={}), "'Shop.Pay' is not a valid name for a tool"),
        (lambda: activity_tool(pay), "Give it one with tool|'Shop.Pay' is not a valid name for a tool"),
        (lambda: activity_tool(lambda: 1), "is no activity"),
        (lambda: activity_tool(anything), "is a dynamic activity, which has no name"),
        (lambda: activity_tool(tool(lambda: 1, name="p")), "is already a tool"),
        (lambda: activity_tool(asks), "takes a ToolContext, which an activity is not given"),
        (
            lambda: activity_tool(ship, by_position=["parcel"]),
            "has by_position, but its signature gives the order already",
        ),
        (lambda: activity_tool("x", task_queue="q", schema={}, by_position=["a"]), "'a' in by_position, which"),
        (lambda: activity_tool("x", task_queue="q", schema={}, by_position="ab"), "by_position='ab'"),
        (lambda: activity_tool("x", task_queue="q", schema={"type": "string"}), "has schema="),
        (lambda: activity_tool("x", task_queue="q", schema={"properties": None}), "has schema="),
        (lambda: activity_tool(ship, effect="once", retry=RetryPolicy()), "has retry= and effect='once'"),
        (lambda: activity_tool(ship, retry=3), "has retry=3"),  # type: ignore[arg-type]
        (lambda: activity_tool(ship, retry=RetryPolicy(backoff_coefficient=0.1)), "has retry="),
        (lambda: activity_tool(ship, heartbeat_timeout=5), "has heartbeat_timeout=5"),  # type: ignore[arg-type]
        (lambda: activity_tool(ship, timeout=timedelta()), "has timeout="),
        (lambda: activity_tool(ship, queue="q"), "has no option 'queue'"),  # type: ignore[call-arg]
        (lambda: activity_tool(ship, effect="twice"), "has effect='twice'"),  # type: ignore[arg-type]
    ],
)
def test_what_can_not_be_is_refused_with_the_cure(make: Any, problem: str) -> None:
    with pytest.raises(InvalidTool, match=problem):
        make()


def test_a_plan_holds_all_that_schedules_it() -> None:
    retry = RetryPolicy(maximum_attempts=3, maximum_interval=timedelta(seconds=9), non_retryable_error_types=["Gone"])
    made = activity_tool(ship, task_queue="far", retry=retry)
    assert made.activity
    assert made.activity.retry == RetryPlan(
        maximum_attempts=3, maximum_interval=9.0, non_retryable_error_types=("Gone",)
    )
    plan = RunActivity(call_id="a", activity="ship", task_queue="far", retry=made.activity.retry)
    assert RunActivity.model_validate_json(plan.model_dump_json()) == plan


def test_an_agent_takes_it_beside_functions() -> None:
    agent = Agent("clerk", model="scripted:demo", tools=[activity_tool(ship), activity_tool(pay, name="pay")])
    assert [tool.name for tool in agent.tools] == ["ship", "pay"]
