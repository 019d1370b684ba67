"""Looks for answers to judge, from time to time: one for each task queue, for ever. It remembers up to when it has
looked, so what was answered while no worker with evaluators ran is judged once one does."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final

from temporalio import workflow
from temporalio.common import Priority, RetryPolicy

from everturn import names
from everturn.evaluations.records import LookingStart, LookRequest, LookResult
from everturn.workflows import continue_as_new, message_dispatch

LOOK_TIMEOUT: Final = timedelta(minutes=30)
SILENCE: Final = timedelta(seconds=15)
"""After which a worker that looks counts as lost."""

LONGEST_PAUSE: Final = timedelta(minutes=1)
"""Between two tries of a look that fails."""


# The sandbox guards user code from itself, and there is none in this workflow: test_determinism.py.
@workflow.defn(name=names.EVALUATION_COLLECTOR, sandboxed=False)
class EvaluationCollectorWorkflow:
    @workflow.run
    async def run(self, *inputs: Any) -> None:
        start = message_dispatch.require_input(LookingStart, inputs, otherwise="No answers can be looked for")
        since = start.since or workflow.time()
        first = start.first or since
        while True:
            looked = await _look_once(LookRequest(since=since, first=first))
            since = max(since, looked.until)
            if continue_as_new.is_due(updates=0, full=False):
                continue_as_new.begin_next_run(LookingStart(since=since, first=first).model_dump(mode="json"))
            if looked.pause > 0:
                await workflow.sleep(timedelta(seconds=looked.pause), summary="until the next look")


async def _look_once(look: LookRequest) -> LookResult:
    looked: LookResult = await workflow.execute_activity(
        names.LOOK_FOR_ANSWERS,
        look,
        result_type=LookResult,
        start_to_close_timeout=LOOK_TIMEOUT,
        heartbeat_timeout=SILENCE,
        retry_policy=RetryPolicy(initial_interval=timedelta(seconds=1), maximum_interval=LONGEST_PAUSE),
        priority=Priority(priority_key=1),  # before answers that wait to be judged
    )
    return looked
