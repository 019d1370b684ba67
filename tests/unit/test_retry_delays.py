"""How soon a failed activity is tried again: a lost worker's at once, one that failed later and later."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput

from everturn import names
from everturn.activities.activity_errors import UnexpectedErrors
from everturn.activities.retry_delays import retry_delay
from everturn.heartbeats.profiles import PROFILES
from everturn.plans import RunTool
from everturn.workflows.timeouts import check_options, model_options, tool_activity_options

PROMISED = {"quick": timedelta(seconds=10), "thrifty": timedelta(seconds=15)}
"""docs/how-it-works.md, and decision 0032."""

CALL = RunTool(call_id="c1", timeout=9.0, patience=600.0, effect="idempotent")


@pytest.mark.parametrize("profile", PROFILES.values(), ids=PROFILES)
@pytest.mark.parametrize("options", [model_options(), check_options(), tool_activity_options(CALL)])
def test_a_lost_worker_is_replaced_as_soon_as_promised_however_often_the_activity_failed_before(
    profile: Any, options: dict[str, Any]
) -> None:
    # Temporal doubles its interval for each failure of any kind. `make crash SEED=2502` met a turn whose provider had
    # failed seven times, and whose worker was killed then: the next try came 30 s later.
    assert profile.timeout + options["retry_policy"].maximum_interval <= PROMISED[profile.name]


@pytest.mark.parametrize(("asked", "latest"), [(0.5, 0.75), (40.0, 60.0), (86_400.0, 86_430.0)])
def test_who_says_when_is_tried_then_and_little_later(asked: float, latest: float) -> None:
    delays = [retry_delay(asked, attempt=1, longest=timedelta(days=7)).total_seconds() for _ in range(200)]
    assert min(delays) >= asked
    assert max(delays) <= latest
    assert len(set(delays)) > 1, "not all at once"


class Fails(ActivityInboundInterceptor):
    def __init__(self, error: Exception) -> None:
        self.error = error

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:  # noqa: A002
        raise self.error


@pytest.mark.parametrize(("attempt", "seconds"), [(1, 0.2), (4, 1.6), (8, 25.6), (9, 30), (5000, 30)])
async def test_what_nobody_foresaw_is_tried_later_and_later(attempt: int, seconds: float) -> None:
    raised = await _raised(OSError("the disk is full"), attempt)
    assert isinstance(raised, ApplicationError)
    assert (raised.message, raised.type, raised.non_retryable) == ("the disk is full", "OSError", False)
    assert raised.next_retry_delay == timedelta(seconds=seconds)


async def test_an_error_that_says_itself_when_to_try_again_is_left_alone() -> None:
    own = ApplicationError("busy", next_retry_delay=timedelta(seconds=3))
    assert await _raised(own, attempt=8) is own


async def _raised(error: Exception, attempt: int) -> Exception:
    environment = ActivityEnvironment()
    environment.info = replace(environment.info, workflow_type=names.CONVERSATION, attempt=attempt)
    run = UnexpectedErrors().intercept_activity(Fails(error)).execute_activity
    with pytest.raises(Exception) as caught:
        await environment.run(run, ExecuteActivityInput(fn=print, args=[], executor=None, headers={}))
    return caught.value
