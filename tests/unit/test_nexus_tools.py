"""What of a Nexus operation becomes a tool, and what is refused when it is made."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Annotated, Any

import nexusrpc
import nexusrpc.handler
import pytest
from pydantic import BaseModel, Field

from everturn import Agent, activity_tool, nexus_tool, tool
from everturn.activities.planning import plan_calls
from everturn.errors import InvalidTool
from everturn.plans import RunNexus
from everturn.records import ToolCall


@dataclass
class Refund:
    """Refund an order."""

    order_id: Annotated[str, Field(description="As in the shop.")]
    cents: int = 5
    notes: list[str] = field(default_factory=list)


@dataclass
class Empty:
    pass


class Order(BaseModel):
    id: str


@nexusrpc.service(name="ShopService")
class Shop:
    refund: nexusrpc.Operation[Refund, str]
    order: nexusrpc.Operation[Order, str]
    count: nexusrpc.Operation[int, int]
    now: nexusrpc.Operation[None, str]
    empty: nexusrpc.Operation[Empty, str]
    renamed: nexusrpc.Operation[int, int] = nexusrpc.Operation(name="new name")


@nexusrpc.service
class Other:
    refund: nexusrpc.Operation[Refund, str]


@nexusrpc.handler.service_handler(service=Other)
class Handler:
    @nexusrpc.handler.sync_operation
    async def refund(self, ctx: nexusrpc.handler.StartOperationContext, given: Refund) -> str:
        return ""


def made(operation: Any, **options: Any) -> Any:
    return nexus_tool(operation, **{"endpoint": "shop", "service": Shop, **options})


def test_the_model_sees_the_fields_of_the_input() -> None:
    refund = made(Shop.refund)
    assert (refund.name, refund.description) == ("refund", "Refund an order.")
    properties = refund.parameters["properties"]
    assert [*properties] == ["order_id", "cents", "notes"]
    assert properties["order_id"]["description"] == "As in the shop."
    assert refund.parameters["required"] == ["order_id"]
    assert [*made(Shop.order).parameters["properties"]] == ["id"]
    assert [*made(Shop.count).parameters["properties"]] == ["input"]
    assert made(Shop.now).parameters["properties"] == made(Shop.empty).parameters["properties"] == {}
    assert made(Shop.empty).description == ""
    assert not refund.is_function
    assert made(Handler.refund, service=Other).operation == made(Other.refund, service="Other").operation


@pytest.mark.parametrize(
    ("operation", "arguments", "wanted", "positions"),
    [
        (Shop.refund, {"order_id": "81"}, None, None),
        (Shop.refund, {"order_id": "81", "cents": "7"}, {"order_id": "81", "cents": 7}, None),
        (Shop.count, {"input": "3"}, {"input": 3}, ("input",)),
        (Shop.now, {}, None, ()),
        (Shop.order, {"id": "81"}, None, None),
    ],
)
async def test_the_plan_has_the_input_as_its_type_wants_it(
    operation: Any, arguments: dict[str, Any], wanted: dict[str, Any] | None, positions: tuple[str, ...] | None
) -> None:
    agent = Agent("clerk", model="scripted:demo", tools=[made(operation, timeout=timedelta(minutes=2))])
    [plan] = await plan_calls(
        agent, [ToolCall(call_id="a", name=agent.tools[0].name, arguments=arguments)], conclude=None
    )
    assert plan == RunNexus(
        call_id="a",
        endpoint="shop",
        service="ShopService",
        operation=operation.name,
        arguments=wanted,
        by_position=positions,
        timeout=120.0,
        max_chars=agent.limits.max_result_chars,
    )


@pytest.mark.parametrize(
    ("operation", "options", "said"),
    [
        ("refund", {}, "has a name and no schema"),
        ("", {"schema": {}}, "as the operation's name"),
        (Shop.refund, {"endpoint": " "}, "as endpoint"),
        (Shop.refund, {"service": Refund}, "which is not a Nexus service"),
        (Shop.refund, {"service": ""}, "as service"),
        (Shop.count, {"service": Other}, "the service 'Other' has no such operation"),
        (Shop.refund, {"effect": "once"}, "Temporal starts an operation again"),
        (Shop.refund, {"schema": {"type": "array"}}, "schema="),
        (Shop, {}, "is not a Nexus operation"),
        (test_the_model_sees_the_fields_of_the_input, {}, "is not a Nexus operation"),
        (tool(lambda: "", name="x", description="x"), {}, "is already a tool"),
        (Shop.refund, {"timeout": timedelta()}, "timeout"),
        (Shop.renamed, {}, "'new name'"),
    ],
)
def test_what_can_not_be_a_tool_is_refused_with_the_cure(operation: Any, options: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidTool, match=said):
        made(operation, **options)


def test_an_operation_is_no_activity() -> None:
    with pytest.raises(InvalidTool, match="is no activity"):
        activity_tool(Handler.refund)
