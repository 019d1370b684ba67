"""What pydantic-evals lacks, in its form: evaluators of what people decided, and of calls by their effect. Needs the
extra `evals`.

Each is an assertion with a reason. Where a case has nothing to say, it says nothing, and does not count.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from everturn.errors import InvalidSetting
from everturn.evals.cases import Action, CaseCall, CaseFacts, CaseInputs, CaseOutcome, Expected
from everturn.policy import same_json
from everturn.system.extras import install

try:
    from pydantic_evals.evaluators import EvaluationReason, Evaluator, EvaluatorContext, EvaluatorOutput
except ImportError:
    raise InvalidSetting(
        "everturn.evals.evaluators needs pydantic-evals, which is not installed.", cure=install("evals")
    ) from None

CaseContext = EvaluatorContext[CaseInputs, Expected, CaseFacts]

CaseEvaluator = Evaluator[CaseInputs, Expected, CaseFacts]

NOTHING_TO_SAY: Final[dict[str, Any]] = {}


@dataclass(repr=False)
class SameCalls(CaseEvaluator):
    """The candidate made the calls that are expected, and no other. In a case, edited calls are expected with the
    person's arguments, and denied ones are not. `in_order`: in this order, too."""

    in_order: bool = True

    def evaluate(self, ctx: CaseContext) -> EvaluatorOutput:
        expected = list(ctx.expected_output.calls if ctx.expected_output else ())
        actual = list(ctx.output.calls)
        lacking = _without(expected, actual)
        unexpected = _without(actual, expected)
        problems = [f"missing {_text(action)}" for action in lacking]
        problems += [f"not expected {_text(action)}" for action in unexpected]
        if self.in_order and not problems and [*map(_text, actual)] != [*map(_text, expected)]:
            problems.append("in another order")
        return _assertion(problems)


@dataclass(repr=False)
class DeniedCallsNotMade(CaseEvaluator):
    """The candidate did not make the calls that a person had denied. One that was denied, and later approved, may be
    made as often as it was approved."""

    def evaluate(self, ctx: CaseContext) -> EvaluatorOutput:
        denied = [call for call in ctx.inputs.calls if call.decision == "denied"]
        if not denied:
            return NOTHING_TO_SAY
        approved = [_approved(call) for call in ctx.inputs.calls if call.decision != "denied"]
        further = _without(ctx.output.calls, approved)
        return _assertion(
            f"made {_text(call)}, which a person had denied: {call.reason or 'no reason'}"
            for call in denied
            if _is_among(call, further)
        )


@dataclass(repr=False)
class EditedArgumentsUsed(CaseEvaluator):
    """The candidate made the calls that a person had edited with the person's arguments."""

    def evaluate(self, ctx: CaseContext) -> EvaluatorOutput:
        edited = [call for call in ctx.inputs.calls if call.edited_to is not None]
        if not edited:
            return NOTHING_TO_SAY
        right = [Action(tool=call.tool, arguments=call.edited_to or {}) for call in edited]
        return _assertion(f"did not make {_text(action)}" for action in _without(right, ctx.output.calls))


@dataclass(repr=False)
class NoOnceCallTwice(CaseEvaluator):
    """No tool with the effect `once` was called twice with the same arguments: not more often than is expected."""

    def evaluate(self, ctx: CaseContext) -> EvaluatorOutput:
        before = [call for call in ctx.inputs.calls_before if call.effect == "once" and call.decision != "denied"]
        actual = [_text(action) for action in ctx.output.calls if action.effect == "once"]
        earlier = [_text(call) for call in before]
        expected = [_text(action) for action in ctx.expected_output.calls] if ctx.expected_output else []
        repeated = []
        for text in dict.fromkeys(actual):
            times = actual.count(text) + earlier.count(text)
            if times > max(1, expected.count(text) + earlier.count(text)):
                repeated.append(f"{text} {times} times")
        return _assertion(repeated)


@dataclass(repr=False)
class ReadBeforeOnce(CaseEvaluator):
    """Before each call of a tool with the effect `once`, something was read, in an earlier reply: by a tool with the
    effect `read`, or by the tool `read_tool`. `once_tool`: only calls of this one are looked at."""

    read_tool: str | None = None
    once_tool: str | None = None

    def evaluate(self, ctx: CaseContext) -> EvaluatorOutput:
        once_calls = [action for action in ctx.output.calls if action.effect == "once"]
        if self.once_tool is not None:
            once_calls = [action for action in once_calls if action.tool == self.once_tool]
        if not once_calls:
            return NOTHING_TO_SAY
        had_read = any(map(self._reads, ctx.inputs.calls_before))
        turns = [action.turn or 0 for action in ctx.output.calls if self._reads(action)]
        blind = (
            []
            if had_read
            else [action for action in once_calls if not any(turn < (action.turn or 0) for turn in turns)]
        )
        return _assertion(f"nothing was read before {_text(action)}" for action in blind)

    def _reads(self, call: Action | CaseCall) -> bool:
        if self.read_tool is not None:
            return call.tool == self.read_tool
        return call.effect == "read"


@dataclass(repr=False)
class NotDiverged(CaseEvaluator):
    """The rerun came to its end: each call was answered, and nothing stalled."""

    def evaluate(self, ctx: CaseContext) -> EvaluatorOutput:
        if not isinstance(ctx.output, CaseOutcome):
            return NOTHING_TO_SAY
        ended = ctx.output.verdict in ("same calls", "other calls")
        return _assertion([] if ended else ctx.output.differences)


EVALUATORS: Final = (
    SameCalls,
    DeniedCallsNotMade,
    EditedArgumentsUsed,
    NoOnceCallTwice,
    ReadBeforeOnce,
    NotDiverged,
)
"""For `custom_evaluator_types`, if you load files by pydantic-evals alone."""


def _assertion(problems: Iterable[str]) -> EvaluationReason:
    listed = list(problems)
    return EvaluationReason(value=not listed, reason="; ".join(listed) or None)


def _approved(call: CaseCall) -> Action:
    """As it was made in the end."""
    return Action(tool=call.tool, arguments=call.arguments if call.edited_to is None else call.edited_to)


def _is_same(call: Action | CaseCall, other: Action | CaseCall) -> bool:
    return call.tool == other.tool and same_json(call.arguments, other.arguments)


def _is_among(call: Action | CaseCall, others: Iterable[Action]) -> bool:
    return any(_is_same(call, other) for other in others)


def _without(actions: Iterable[Action], counterparts: Iterable[Action]) -> list[Action]:
    """Those that have no counterpart; each of the others is one for one."""
    remaining = list(counterparts)
    unmatched: list[Action] = []
    for action in actions:
        place = next((place for place, other in enumerate(remaining) if _is_same(action, other)), None)
        if place is None:
            unmatched.append(action)
        else:
            del remaining[place]
    return unmatched


def _text(call: Action | CaseCall) -> str:
    return f"{call.tool}({json.dumps(call.arguments, ensure_ascii=False, sort_keys=True)})"
