"""What a reviewer, a model, is asked about, and what of its answers counts: all else is left to a person."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from everturn import Agent, Model, ModelSettings, Reviewer, ToolCall, generate, tool
from everturn.activities.planning import plan_calls
from everturn.activities.tool_contexts import TurnSpending
from everturn.errors import ConfigError, InvalidAgent
from everturn.guardrails import Judge
from everturn.plans import GatedPlan, Review
from everturn.testing import ScriptedModel, fail, say, slow

Scripted = Callable[..., ScriptedModel]


@tool(needs_approval=True)
def refund(cents: int, currency: str = "EUR") -> str:
    """Gives money back."""
    return "refunded"


@tool(needs_approval=True, effect="once")
def pay(cents: int, *, currency: str = "EUR", note: str | None = None) -> str:
    """Pays."""
    return "paid"


def verdict(word: str, **more: Any) -> str:
    return json.dumps({"verdict": word, "reason": "as I see it", **more})


async def reviewed(judge: ScriptedModel, name: str = "refund", cents: int = 5, **rules: Any) -> Review | None:
    """What the plan of one call says."""
    model = Model("scripted:judge", base_url=judge.base_url)
    rules = {"model": model, "instructions": "Less than 10 dollars.", **rules}
    agent = Agent("clerk", model=model, tools=[refund, pay], reviewer=Reviewer(**rules))
    [plan] = await plan_calls(agent, [ToolCall(call_id="c", name=name, arguments={"cents": cents})], conclude=None)
    assert isinstance(plan, GatedPlan)
    assert plan.approval == f'{name} needs approval (by default: currency="EUR")'
    return plan.review


@pytest.mark.parametrize("word", ["approve", "deny"])
async def test_a_verdict_is_the_models_and_its_cost_is_counted(scripted: Scripted, word: str) -> None:
    spent = TurnSpending.of_this_turn()
    judge = scripted([say(verdict(word), usage={"prompt_tokens": 90, "completion_tokens": 10, "total_tokens": 100})])
    review = await reviewed(judge)
    assert review == Review(verdict=word, by="model:scripted:judge", reason="as I see it")  # type: ignore[arg-type]
    assert spent.usage.total_tokens == 100


@pytest.mark.parametrize(
    "reply",
    [
        verdict("ask_a_person"),
        verdict("Approve"),
        verdict("approve", sure=True),
        "approve",
        f"{verdict('approve')} {verdict('deny')}",
        '{"verdict": "deny", "v\\u0065rdict": "approve", "reason": "as I see it"}',
        say(verdict("approve"), finish="length"),
        fail(500),
        slow(verdict("approve"), until=threading.Event()),
    ],
)
async def test_what_is_no_clear_verdict_leaves_the_call_to_a_person(scripted: Scripted, reply: Any) -> None:
    judge = scripted([reply])
    assert await reviewed(judge, timeout=timedelta(seconds=2)) is None
    assert len(judge.requests) == 1


@pytest.mark.parametrize(
    ("name", "rules", "is_asked"),
    [
        ("refund", {}, True),
        ("refund", {"effects": ("read",)}, False),
        ("refund", {"tools": ["pay"]}, False),
        ("refund", {"where": {"refund": {"cents": {"at_most": 5}}}}, True),
        ("refund", {"where": {"refund": {"cents": {"below": 5}}}}, False),
        ("refund", {"where": {"refund": {"cents": {"starts_with": "5"}}}}, False),
        ("pay", {}, False),
        ("pay", {"tools": ["pay"]}, True),
    ],
)
async def test_it_is_asked_only_about_what_the_rules_allow(
    scripted: Scripted, name: str, rules: dict[str, Any], is_asked: bool
) -> None:
    judge = scripted([verdict("approve")])
    assert (await reviewed(judge, name, **rules) is not None) is is_asked
    assert ["currency" in str(request) for request in judge.requests] == [True] * is_asked, "the default that will run"


def test_an_argument_called_like_a_field_does_not_count_in_place_of_the_field() -> None:
    order = tool(lambda **_: "ok", name="order", description="Orders.", effect="read", parameters={"type": "object"})
    reviewer = Reviewer(
        model=Model("scripted:judge"), instructions="Small.", where={"order": {"o.cents": {"at_most": 5}}}
    )
    assert reviewer.may_decide(order, {"o": {"cents": 5}})
    assert not reviewer.may_decide(order, {"o": {"cents": 900}, "o.cents": 5})


async def test_who_decides_at_once_waits_for_no_batch() -> None:
    waits: dict[str, Any] = {"model": "openai:gpt-5.5", "settings": ModelSettings(batch=True)}
    with pytest.raises(ConfigError, match="at once, and was given batch=True"):
        Reviewer(instructions="All.", **waits)
    with pytest.raises(ConfigError, match="at once, and was given batch=True"):
        Judge(rule="Nothing rude.", refuse="No.", **waits)
    with pytest.raises(ConfigError, match="at once, and was given batch=True"):
        await generate(messages="Hi", **waits)


def test_a_rule_about_a_tool_that_is_not_there_is_refused() -> None:
    reviewer = Reviewer(model=Model("scripted:judge"), instructions="All.", where={"refnd": {}})
    with pytest.raises(InvalidAgent, match="rule about 'refnd', and the agent has no such tool"):
        Agent("clerk", model="scripted:demo", tools=[refund], reviewer=reviewer)
