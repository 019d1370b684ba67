"""Rules by tool and argument: which one decides on a call."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from everturn.budgets.records import SetBudget
from everturn.calls.decision_records import Answer, Approve, Deny, SetPolicy
from everturn.payloads import Control, MessageIn
from everturn.policy import MAX_RULES, Rule, problem, rule_for, with_rules
from everturn.records import Record
from everturn.validation.explaining import explain


def rule(then: Any, tool: str = "refund", **where: Any) -> Rule:
    return Rule.model_validate({"tool": tool, "then": then, "where": where})


@pytest.mark.parametrize(
    ("condition", "value", "expected"),
    [
        ({"at_most": 2000}, 2000, True),
        ({"at_most": 2000}, 2000.5, False),
        ({"below": 20}, 20, False),
        ({"above": 20}, 21, True),
        ({"at_least": 1, "at_most": 5}, 6, False),
        ({"at_most": 2000}, "100", None),
        ({"at_most": 2000}, True, None),
        ({"at_most": 2000}, None, None),
        ({"at_most": 2000}, float("nan"), None),
        ({"above": 2000}, float("inf"), None),
        ({"equals": "EUR"}, "EUR", True),
        ({"equals": 1}, True, None),
        ({"equals": [1, {"a": 2}]}, [1, {"a": 2.0}], True),
        ({"equals": [1]}, [True], False),
        ({"equals": {"a": True}}, {"a": 1}, False),
        ({"equals": {"a": 1}}, {"a": 1, "b": 2}, False),
        ({"one_of": [[1], [2]]}, [True], False),
        ({"equals": True}, 1, None),
        ({"one_of": ["a", 1]}, "c", None),
        ({"above": 20}, 10**400, True),
        ({"equals": "EUR"}, None, None),
        ({"one_of": ["a", "b"]}, "b", True),
        ({"one_of": ["a", "b"]}, "c", False),
        ({"starts_with": "/tmp/"}, "/tmp/x", True),
        ({"starts_with": "/tmp/"}, ["/tmp/"], None),
    ],
)
def test_a_condition_holds_does_not_or_can_t_be_said(condition: Any, value: Any, expected: bool | None) -> None:
    [found] = rule("ask", x=condition).where.values()
    assert found.holds(value) is expected


def test_one_that_denies_goes_before_one_that_asks_and_that_before_one_that_approves() -> None:
    policy = (
        rule("approve"),
        rule("ask", cents={"above": 500}),
        rule("deny", cents={"above": 900}),
    )
    verdicts = {cents: rule_for(policy, "refund", {"cents": cents}) for cents in (100, 600, 1000)}
    assert {cents: found and found.then for cents, found in verdicts.items()} == {
        100: "approve",
        600: "ask",
        1000: "deny",
    }
    assert rule_for(policy, "other", {"cents": 1000}) is None


@pytest.mark.parametrize("arguments", [{}, {"cents": "1000"}, {"cents": None}, {"cents": [1000]}])
def test_arguments_that_can_t_be_compared_are_not_let_through(arguments: Any) -> None:
    denies = rule_for((rule("deny", cents={"above": 900}),), "refund", arguments)
    assert denies is not None
    assert denies.then == "ask"
    assert rule_for((rule("approve", cents={"at_most": 900}),), "refund", arguments) is None


def test_a_rule_may_be_for_every_tool_and_look_inside_of_an_argument() -> None:
    policy = (rule("deny", tool="*", **{"customer.tier": {"equals": "blocked"}}),)
    assert rule_for(policy, "anything", {"customer": {"tier": "blocked"}}) is not None
    assert rule_for(policy, "anything", {"customer": {"tier": "gold"}}) is None
    assert rule_for(policy, "anything", {"customer.tier": "blocked"}) is not None


def test_an_argument_that_a_model_made_up_beside_the_one_that_is_meant_decides_nothing() -> None:
    tier = {"customer.tier": {"equals": "gold"}}
    approve, deny = rule("approve", **tier), rule("deny", **tier)
    both = {"customer": {"tier": "none"}, "customer.tier": "gold"}
    assert rule_for((approve,), "refund", both) is None
    found = rule_for((deny,), "refund", both)
    assert found is not None
    assert found.then == "ask"
    assert rule_for((approve,), "refund", {"customer.tier": "gold"}) == approve
    assert rule_for((approve,), "refund", {"customer": {"tier": "gold"}}) == approve


@pytest.mark.parametrize("inside", ["gold", None, [{"tier": "gold"}], 5, {}, {"tier": "none"}, {"tier.of": "gold"}])
def test_an_argument_called_like_a_field_does_not_count_beside_what_it_would_be_a_field_of(inside: Any) -> None:
    arguments = {"customer": inside, "customer.tier": "gold"}
    for name in ("customer.tier", "customer.tier.of"):
        approve, deny = (rule(then, **{name: {"equals": "gold"}}) for then in ("approve", "deny"))
        assert rule_for((approve,), "refund", arguments) is None
        decides = rule_for((deny,), "refund", arguments)
        assert decides is None or decides.then == "ask"


def test_no_beginning_of_a_fields_name_counts_beside_another() -> None:
    approve = rule("approve", **{"customer.tier.of": {"equals": "gold"}})
    for beside in (
        {"customer.tier": {"of": "none"}},
        {"customer.tier": "gold"},
        {"customer": {"tier": {"of": "none"}}},
    ):
        assert rule_for((approve,), "refund", {"customer.tier.of": "gold", **beside}) is None
    for alone in (
        {"customer.tier.of": "gold"},
        {"customer": {"tier.of": "gold"}},
        {"customer": {"tier": {"of": "gold"}}},
    ):
        assert rule_for((approve,), "refund", alone) == approve


@pytest.mark.parametrize(
    ("whose", "agent", "applies"),
    [("", "clerk", True), ("clerk", "clerk", True), ("clerk", "clerk@7", True), ("clerk", "teller", False)],
)
def test_a_rule_may_name_the_agent_whose_tool_it_is_about(whose: str, agent: str, *, applies: bool) -> None:
    made = Rule(tool="refund", then="deny", agent=whose)
    assert (rule_for((made,), "refund", {}, agent=agent) is made) is applies
    assert [*with_rules((made,), [Rule(tool="refund", then="approve", agent=whose)])] != [made]
    assert with_rules((made,), [Rule(tool="refund", then="approve", agent="x")])[0] is made


@pytest.mark.parametrize("where", [{"cents": one} for one in ({"atmost": 5}, {}, 5, {"equals": None}, {"one_of": []})])
def test_a_condition_that_is_misspelt_is_refused(where: Any) -> None:
    with pytest.raises(ValidationError, match="condition"):
        rule("approve", **where)


RULE = {"tool": "refund", "then": "approve"}
CALL = {"call_id": "a"}


@pytest.mark.parametrize(
    ("kind", "payload", "named"),
    [
        (Rule, {**RULE, "wher": {"cents": {"at_most": 5}}}, "wher"),
        (SetPolicy, {"rules": [{**RULE, "agents": "clerk"}]}, "rules.0.agents"),
        (SetPolicy, {"rules": [], "bye": "ada"}, "bye"),
        (Approve, {**CALL, "argument": {"cents": 0}}, "argument"),
        (Approve, {**CALL, "always": {}}, "always: write true, or conditions"),
        (Approve, {**CALL, "always": "yes"}, "always: write true, or conditions"),
        (Deny, {**CALL, "note": "no"}, "note"),
        (Answer, {**CALL, "content": "x", "error": True}, "error"),
        (Control, {"only_stalle": True}, "only_stalle"),
        (MessageIn, {"text": "Hi", "tool": ["look"]}, "tool"),
        (SetBudget, {"budget": {"token_per_day": 1}}, "there is no limit 'token_per_day'"),
    ],
)
def test_what_is_misspelt_in_a_persons_word_is_refused(kind: type[Record], payload: Any, named: str) -> None:
    """Without it, the rest would mean something else, and mostly more."""
    with pytest.raises(ValidationError) as refused:
        kind.model_validate(payload)
    assert named in explain(refused.value)


def test_a_rule_takes_the_place_of_one_of_the_same_calls_and_there_are_not_too_many() -> None:
    policy = with_rules((rule("approve"), rule("deny", cents={"above": 5})), [rule("deny")])
    assert [one.then for one in policy] == ["deny", "deny"]
    assert problem(policy) is None
    assert "101 rules" in str(problem((rule("ask"),) * (MAX_RULES + 1)))
    assert "bytes" in str(problem((Rule(tool="x", then="ask", reason="y" * 1_000),) * 30))


def test_a_rule_about_true_does_not_take_the_place_of_one_about_1() -> None:
    denied = rule("deny", n={"equals": 1})
    assert with_rules((denied,), [rule("approve", n={"equals": True})])[0] == denied
    assert len(with_rules((denied,), [rule("approve", n={"equals": 1.0})])) == 1


def test_a_bound_beyond_2_to_the_53_stays_exact() -> None:
    written = rule("approve", n={"at_most": 2**53 + 3}).model_dump_json()
    read = Rule.model_validate_json(written)
    assert read.applies("refund", {"n": 2**53 + 3}) is True
    assert read.applies("refund", {"n": 2**53 + 4}) is False, "the nearest float"
