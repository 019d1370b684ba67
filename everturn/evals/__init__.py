"""Reruns of recorded conversations against a candidate: another prompt, model or set of tools.

    reruns = await rerun(client, "order-81", agent=clerk, instructions="Be brief.")
    print(reruns.as_table())
    assert not reruns.failures(Thresholds(same_calls=0.95))

Calls are answered with what was recorded. No tool runs that may have an effect.
"""

from everturn.evals.comparison import ChangedCall, Comparison, Divergence, Reruns, Thresholds, compare
from everturn.evals.recorded import Recorded, RecordedCall, read_recorded
from everturn.evals.recorded_answers import Matcher, StandIn
from everturn.evals.reruns import rerun

__all__ = [
    "ChangedCall",
    "Comparison",
    "Divergence",
    "Matcher",
    "Recorded",
    "RecordedCall",
    "Reruns",
    "StandIn",
    "Thresholds",
    "compare",
    "read_recorded",
    "rerun",
]
