"""Evaluators: what a worker is given to judge answers with, and how what they return is read."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from typing import Any, Final

from everturn.errors import InvalidSetting
from everturn.evaluations import pydantic_evaluators
from everturn.evaluations.answers import JudgedAnswer
from everturn.evaluations.records import MAX_EXPLANATION_CHARS, MAX_LABEL_CHARS, MAX_RESULTS, EvaluationResult
from everturn.names import unversioned
from everturn.records import Usage
from everturn.text.shortening import clipped
from everturn.text.utf8 import mend
from everturn.validation import durations
from everturn.validation.spelling import known_fields

DEFAULT_TIMEOUT: Final = timedelta(minutes=2)

EVERY_ANSWER: Final = 1.0

_NAME: Final = re.compile(r"[\w.-]{1,64}", re.ASCII)


@known_fields(InvalidSetting)
@dataclass(frozen=True)
class Evaluated:
    """What an evaluator may return if a bare value does not say enough."""

    value: bool | float | str
    """A verdict, a score or a label."""
    reason: str = ""
    usage: Usage | None = None
    """Tokens that the evaluator has spent by another way than `everturn.generate`, which is counted by itself."""
    cost_usd: float | None = 0.0
    """What they cost; None if that is not known."""


class InvalidResult(Exception):
    """An evaluator returned what is no judgement."""


@known_fields(InvalidSetting)
@dataclass(frozen=True)
class OnlineEvaluator:
    """An evaluator with its options, for `Worker(evaluators=[...])`.

    - `evaluate`: a sync or async function of a JudgedAnswer that returns a bool, a number, a text, an Evaluated, a
      mapping of names to any of these, or None for an answer about which it has nothing to say; or an evaluator of
      pydantic-evals.
    - `name`: in results; None: the function's, or the evaluator's own. Letters, digits, `_`, `.` and `-`.
    - `version`: kept with each result, so that results of before a change can be told apart.
    - `sample`: the part of answers that it judges, from 0 to 1; None: the worker's.
    - `agents`: the names of the agents whose answers it judges. None: all, but for answers to calls of other agents.
    - `timeout`: of one try.

    Raises InvalidSetting.
    """

    evaluate: Any
    name: str = ""
    version: str = ""
    sample: float | None = None
    agents: Collection[str] | None = None
    timeout: timedelta = DEFAULT_TIMEOUT

    def __post_init__(self) -> None:
        judges = callable(self.evaluate) or pydantic_evaluators.is_evaluator(self.evaluate)
        if not judges or isinstance(self.evaluate, type):
            raise InvalidSetting(
                f"{self.evaluate!r:.100} is no evaluator.",
                cure="Give a function of a JudgedAnswer, or an evaluator of pydantic-evals: an instance, no class.",
            )
        if not self.name:
            object.__setattr__(self, "name", _own_name(self.evaluate))
        if not self.version and pydantic_evaluators.is_evaluator(self.evaluate):
            object.__setattr__(self, "version", self.evaluate.get_evaluator_version() or "")
        if not _NAME.fullmatch(self.name):
            raise InvalidSetting(
                f"An evaluator is named {self.name!r:.100}.",
                cure="Write OnlineEvaluator(evaluator, name=...), with letters, digits, '_', '.' and '-', 64 at most.",
            )
        if self.sample is not None:
            check_rate(f"The evaluator {self.name!r}", self.sample)
        if cure := durations.problem_of(self.timeout):
            raise InvalidSetting(f"The evaluator {self.name!r} has timeout={self.timeout!r}.", cure=cure)
        if isinstance(self.agents, str):
            raise InvalidSetting(
                f"The evaluator {self.name!r} has agents={self.agents!r}.", cure="Give a list of names."
            )

    def judges_agent(self, agent: str, *, is_question: bool) -> bool:
        """Whether it judges this agent's answers. `is_question`: the answer is to another agent's call."""
        if self.agents is None:
            return not is_question
        return agent in self.agents or unversioned(agent) in self.agents

    def call_of(self, answer: JudgedAnswer) -> Callable[[], Any]:
        """Judges the answer once called; sync or async, as the evaluator is."""
        if pydantic_evaluators.is_evaluator(self.evaluate):
            return pydantic_evaluators.call_of(self.evaluate, answer)
        return partial(self.evaluate, answer)


def _own_name(evaluate: Any) -> str:
    if pydantic_evaluators.is_evaluator(evaluate):
        return str(evaluate.get_default_evaluation_name())
    return str(getattr(evaluate, "__name__", type(evaluate).__name__))


def check_rate(owner: str, rate: object) -> float:
    """Raises InvalidSetting if this is no part of all answers."""
    if isinstance(rate, bool) or not isinstance(rate, int | float) or not 0 <= rate <= 1:
        raise InvalidSetting(f"{owner} has sample={rate!r:.100}.", cure="Give a number from 0 to 1: 0.05 is 5 %.")
    return float(rate)


def checked_evaluators(given: Sequence[Any], sample: float | None) -> Mapping[str, OnlineEvaluator]:
    """A worker's evaluators by name, each with its rate. Raises InvalidSetting."""
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise InvalidSetting(
            f"The worker has evaluators={given!r:.100}.",
            cure="Give a list: of functions of a JudgedAnswer, evaluators of pydantic-evals, or OnlineEvaluators.",
        )
    rate = EVERY_ANSWER
    if sample is not None:
        rate = check_rate("The worker", sample)
    evaluators: dict[str, OnlineEvaluator] = {}
    for item in given:
        evaluator = item if isinstance(item, OnlineEvaluator) else OnlineEvaluator(item)
        if evaluator.name in evaluators:
            raise InvalidSetting(
                f"Two evaluators are named {evaluator.name!r}.", cure="Write OnlineEvaluator(evaluator, name=...)."
            )
        evaluators[evaluator.name] = replace(evaluator, sample=rate if evaluator.sample is None else evaluator.sample)
    return evaluators


# ---------------------------------------------------------------- what they return


def read_evaluated(name: str, returned: Any) -> dict[str, Evaluated]:
    """What an evaluator returned, by the names of its results. Raises InvalidResult."""
    if returned is None:
        return {}
    if not isinstance(returned, Mapping):
        return {name: _as_evaluated(returned)}
    if len(returned) > MAX_RESULTS:
        raise InvalidResult(f"it returned {len(returned)} results, and may return {MAX_RESULTS}")
    return {str(key): _as_evaluated(value) for key, value in returned.items()}


def _as_evaluated(value: Any) -> Evaluated:
    if isinstance(value, Evaluated):
        return value
    return Evaluated(*pydantic_evaluators.value_and_reason(value))


def results_of(evaluated: Mapping[str, Evaluated]) -> tuple[EvaluationResult, ...]:
    """Raises InvalidResult."""
    return tuple(_read_result(name, value) for name, value in evaluated.items())


def _read_result(name: str, evaluated: Evaluated) -> EvaluationResult:
    _check_spending(evaluated)
    score, label = _score_and_label(evaluated.value)
    return EvaluationResult(
        name=clipped(mend(name), MAX_LABEL_CHARS),
        score=score,
        label=clipped(mend(label), MAX_LABEL_CHARS),
        reason=clipped(mend(str(evaluated.reason or "")), MAX_EXPLANATION_CHARS),
    )


def _check_spending(evaluated: Evaluated) -> None:
    """What can't be a cost is none: Temporal's index takes no NaN, and a mean of costs with one is one."""
    cost = evaluated.cost_usd
    if cost is not None and (not _is_finite(cost) or cost < 0):
        raise InvalidResult(f"it returned cost_usd={cost!r:.100}, which is neither None nor an amount of dollars")
    if not isinstance(evaluated.usage, Usage | None):
        raise InvalidResult(f"it returned usage={evaluated.usage!r:.100}, which is neither None nor a Usage")


def _score_and_label(value: object) -> tuple[float | None, str]:
    match value:
        case bool():
            return float(value), "pass" if value else "fail"
        case int() | float() if _is_finite(value):
            return float(value), ""
        case str():
            return None, value
    raise InvalidResult(f"it returned {value!r:.100}, which is no bool, number, text, Evaluated or mapping of these")


def _is_finite(value: object) -> bool:
    """Whether it is a number, and a double can hold it."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # an int that is too large
        return False
