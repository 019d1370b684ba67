"""Reruns of recorded conversations against a candidate: another prompt, model or set of tools.

    reruns = await rerun(client, "order-81", agent=clerk, instructions="Be brief.")
    print(reruns.as_table())
    assert not reruns.failures(Thresholds(same_calls=0.95))

Calls are answered with what was recorded. No tool runs that may have an effect. `collect_cases` makes cases of
conversations, for git; `read_cases` reads them, and `rerun` takes them.
"""

from everturn.evals.case_files import read_cases, write_cases
from everturn.evals.cases import (
    Action,
    CaseCall,
    CaseFacts,
    CaseInputs,
    CaseStep,
    Expected,
    RecordedCase,
    cases_of,
)
from everturn.evals.collecting import Collected, collect_cases
from everturn.evals.comparison import ChangedCall, Comparison, Divergence, Reruns, Thresholds, compare
from everturn.evals.recorded import Recorded, RecordedCall, read_recorded
from everturn.evals.redaction import PATTERNS, Redactor, redact_case
from everturn.evals.rerun_answers import Matcher, StandIn
from everturn.evals.reruns import rerun
from everturn.evaluations.answers import AnsweredCall, JudgedAnswer
from everturn.evaluations.online_evaluators import Evaluated, OnlineEvaluator

__all__ = [
    "PATTERNS",
    "Action",
    "AnsweredCall",
    "CaseCall",
    "CaseFacts",
    "CaseInputs",
    "CaseStep",
    "ChangedCall",
    "Collected",
    "Comparison",
    "Divergence",
    "Evaluated",
    "Expected",
    "JudgedAnswer",
    "Matcher",
    "OnlineEvaluator",
    "Recorded",
    "RecordedCall",
    "RecordedCase",
    "Redactor",
    "Reruns",
    "StandIn",
    "Thresholds",
    "cases_of",
    "collect_cases",
    "compare",
    "read_cases",
    "read_recorded",
    "redact_case",
    "rerun",
    "write_cases",
]
