"""What people have decided in advance: rules by tool and argument, as data. Pure functions.

A conversation follows its rules without a worker's help: so they are plain comparisons, and run no code of anybody's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal

from pydantic import (
    Field,
    JsonValue,
    PlainSerializer,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    field_validator,
    model_validator,
)

from everturn.names import unversioned
from everturn.records import ClosedRecord, Record
from everturn.sizes import MAX_NAME_CHARS, MAX_POLICY_BYTES, MAX_RULE_CHARS, size_of, storable_json
from everturn.system.json_numbers import place_of_odd_number

MAX_RULES = 100
"""Of a conversation."""

ANY_TOOL = "*"


def _keep_large_integer(given: Any, check: ValidatorFunctionWrapHandler) -> Any:
    """As a float, an integer beyond 2^53 would be another number."""
    number = check(given)
    if type(given) is int and number != given:
        return given
    return number


Bound = Annotated[
    float | None,
    Field(allow_inf_nan=False),
    WrapValidator(_keep_large_integer),
    PlainSerializer(lambda number: number, return_type=JsonValue),
]
"""JSON has no infinite numbers: they would be nothing for the next run."""


class Condition(Record):
    """Comparisons with an argument. If there are several, all have to hold."""

    equals: JsonValue = None
    one_of: tuple[JsonValue, ...] = ()
    at_most: Bound = None
    at_least: Bound = None
    below: Bound = None
    above: Bound = None
    starts_with: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _says_something(cls, given: Any) -> Any:
        """Refuses unknown names: a misspelt condition would hold for everything."""
        if isinstance(given, Condition):
            return given
        if not isinstance(given, Mapping) or not given:
            raise ValueError("a condition is an object such as {'at_most': 2000}")
        if unknown := set(given) - set(cls.model_fields):
            known = ", ".join(cls.model_fields)
            raise ValueError(f"there is no condition {min(map(str, unknown))!r}; there are {known}")
        if empty := [name for name, value in given.items() if value is None or value in ([], ())]:
            raise ValueError(f"the condition {empty[0]!r} has nothing to compare with")
        if endless := [name for name in ("equals", "one_of") if place_of_odd_number(given.get(name)) is not None]:
            raise ValueError(f"the condition {endless[0]!r} compares with a number that JSON does not have")
        return given

    def holds(self, value: JsonValue) -> bool | None:
        """Whether all hold; None if it can't be said: the value is missing, or of another kind than is compared."""
        verdicts = [_compare_with(name, getattr(self, name), value) for name in self.model_fields_set]
        return _all_hold(verdicts)


class Rule(ClosedRecord):
    """A rule that decides on the calls of a tool, if the conditions on their arguments hold."""

    tool: str = Field(min_length=1, max_length=MAX_NAME_CHARS)
    """Its name; `*`: every tool."""
    then: Literal["approve", "deny", "ask"]
    """Let the call run, deny it, or ask a person."""
    where: dict[str, Condition] = Field(default_factory=dict)
    """Conditions by the name of the argument; `customer.tier` is the field of `customer`. An argument that has that
    whole name counts only if there is no `customer`; if there is one, it can't be said whether the condition holds.
    For `customer.tier.of`, the same is true of `customer.tier`. Empty: any arguments."""
    agent: str = Field(default="", max_length=MAX_NAME_CHARS)
    """Whose tool it is: the name of an agent, of whatever version; empty: of any agent. A decision with `always` is
    about the tool of the agent that made the call."""
    reason: str = Field(default="", max_length=MAX_RULE_CHARS)
    """What the model is told, or the person who is asked."""
    by: str = Field(default="", max_length=MAX_NAME_CHARS)
    """Who said so: set by the conversation as it takes the rule."""

    _storable = field_validator("where", mode="before")(storable_json)

    def applies(self, tool: str, arguments: Mapping[str, JsonValue], *, agent: str = "") -> bool | None:
        """Whether the rule applies to a call by this agent; None if it can't be said."""
        if self.tool not in (ANY_TOOL, tool):
            return False
        if self.agent and unversioned(self.agent) != unversioned(agent):
            return False
        return conditions_hold(self.where, arguments)


def conditions_hold(where: Mapping[str, Condition], arguments: Mapping[str, JsonValue]) -> bool | None:
    """Whether all conditions on a call's arguments hold, by the names that `Rule.where` takes; None if it can't be
    said."""
    return _all_hold([condition.holds(_argument_at(arguments, name)) for name, condition in where.items()])


Policy = tuple[Rule, ...]


def rule_for(policy: Iterable[Rule], tool: str, arguments: Mapping[str, JsonValue], *, agent: str = "") -> Rule | None:
    """The rule that decides on a call: one that denies goes before one that asks, and that before one that approves;
    None if none does. If it can't be said whether a rule applies, a rule to approve does nothing, and for any other one
    a person is asked. `agent`: the one that made the call."""
    first_by_verdict: dict[str, Rule] = {}
    for rule in policy:
        applies = rule.applies(tool, arguments, agent=agent)
        if applies:
            first_by_verdict.setdefault(rule.then, rule)
        elif applies is None and rule.then != "approve":
            first_by_verdict.setdefault("ask", rule.model_copy(update={"then": "ask"}))
    return first_by_verdict.get("deny") or first_by_verdict.get("ask") or first_by_verdict.get("approve")


def problem(policy: Policy) -> str | None:
    """Why a conversation does not take these rules; None if it does."""
    if len(policy) > MAX_RULES:
        return f"There are {len(policy)} rules; the limit is {MAX_RULES}."
    if (size := size_of(policy)) > MAX_POLICY_BYTES:
        return f"The rules have {size:,} bytes of JSON; the limit is {MAX_POLICY_BYTES:,}."
    return None


def said_by(who: str, rules: Iterable[Rule], *, known: Policy) -> Policy:
    """The rules, each with who made it: those that are known already keep their own."""
    return tuple(rule if rule in known else rule.model_copy(update={"by": who[:MAX_NAME_CHARS]}) for rule in rules)


def with_rules(policy: Policy, more: Iterable[Rule]) -> Policy:
    """The old rules and the new ones. A new rule replaces an old one about the same calls."""
    new = [*more]
    kept = (rule for rule in policy if not any(_about_same_calls(rule, other) for other in new))
    return (*kept, *new)


def _about_same_calls(rule: Rule, other: Rule) -> bool:
    """Compared as JSON, since Python's 1 equals True."""
    if (rule.tool, rule.agent) != (other.tool, other.agent):
        return False
    fields = {"where"}
    return same_json(rule.model_dump(mode="json", include=fields), other.model_dump(mode="json", include=fields))


def same_json(first: JsonValue, second: JsonValue) -> bool:
    """Whether they are the same as JSON: 1 is 1.0, and not true."""
    return _same_as_json(first, second) is True


def _all_hold(verdicts: list[bool | None]) -> bool | None:
    if False in verdicts:
        return False
    return None if None in verdicts else True


def _argument_at(arguments: Mapping[str, JsonValue], name: str) -> JsonValue:
    """None for an argument that is missing or null. `customer.tier` is the field of `customer`: a model may make up an
    argument with that whole name, so such a one counts only if there is no `customer`, of whatever kind. Nor does
    anything count if there is a `customer.tier` beside `customer`: which of them is meant, nobody can say."""
    fields = name.split(".")
    beginnings = [".".join(fields[:count]) for count in range(1, len(fields) + 1)]
    match [beginning for beginning in beginnings if beginning in arguments]:
        case [only] if only == name:
            return arguments[name]
        case [only] if only == fields[0]:
            inside = arguments[only]
            return _argument_at(inside, name.removeprefix(f"{only}.")) if isinstance(inside, dict) else None
        case _:
            return None


def _compare_with(name: str, wanted: Any, value: JsonValue) -> bool | None:
    match name:
        case "equals":
            return _same_as_json(wanted, value)
        case "one_of":
            verdicts = [_same_as_json(option, value) for option in wanted]
            if True in verdicts:
                return True
            return None if None in verdicts else False
        case "starts_with":
            return value.startswith(wanted) if isinstance(value, str) else None
        case _:
            if isinstance(value, bool) or not isinstance(value, int | float):
                return None
            if place_of_odd_number(value) is not None:
                return None
            bounds = {"at_most": value <= wanted, "at_least": value >= wanted}
            return bool({**bounds, "below": value < wanted, "above": value > wanted}[name])


def _same_as_json(wanted: JsonValue, value: JsonValue) -> bool | None:
    """As JSON has it: true is not 1. None if they are of different kinds."""
    number = (int, float)
    if not (type(wanted) is type(value) or (type(wanted) in number and type(value) in number)):
        return None
    if isinstance(wanted, list) and isinstance(value, list):
        return len(wanted) == len(value) and all(
            _same_as_json(*both) is True for both in zip(wanted, value, strict=True)
        )
    if isinstance(wanted, dict) and isinstance(value, dict):
        return wanted.keys() == value.keys() and all(
            _same_as_json(wanted[name], value[name]) is True for name in wanted
        )
    return bool(wanted == value)
