"""Our evaluators of cases, each by itself."""

from __future__ import annotations

from typing import Any, cast

import pytest

from everturn.evals import CaseCall, CaseInputs, CaseStep
from everturn.evals.cases import Action, CaseOutcome

REFUND: dict[str, Any] = {"tool": "refund", "arguments": {"cents": 5}}


@pytest.mark.parametrize(("times", "is_right"), [(0, True), (1, True), (2, False)])
def test_a_denied_call_that_was_approved_later_may_be_made_as_often_as_it_was_approved(
    times: int, is_right: bool
) -> None:
    from pydantic_evals.evaluators import EvaluationReason, EvaluatorContext

    from everturn.evals.evaluators import DeniedCallsNotMade

    decisions = ("denied", "approved")
    calls = tuple(CaseCall(**REFUND, decision=decision) for decision in decisions)
    steps = (CaseStep(user="Refund"), *(CaseStep(assistant="", calls=(call,)) for call in calls))
    context: EvaluatorContext[Any, Any, Any] = EvaluatorContext(
        name="refund",
        inputs=CaseInputs(conversation="refund", agent="clerk", transcript=steps),
        metadata=None,
        expected_output=None,
        output=CaseOutcome(calls=(Action(**REFUND),) * times),
        duration=1,
        _span_tree=cast("Any", None),
        attributes={},
        metrics={},
    )
    judged = DeniedCallsNotMade().evaluate(context)
    assert isinstance(judged, EvaluationReason)
    assert judged.value is is_right
