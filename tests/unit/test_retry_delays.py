"""How soon a failed activity is tried again: a lost worker's at once, one that failed later and later."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput

from everturn import names
from everturn.activities import fallbacks, patience
from everturn.activities.activity_errors import UnexpectedErrors
from everturn.activities.fallbacks import after_error
from everturn.activities.retry_delays import retry_delay
from everturn.errors import ConnectionFailed, InvalidReply, ProviderError, RateLimited
from everturn.heartbeats.profiles import PROFILES
from everturn.limits import Patience
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


class Tries:
    """The tries of one model turn, of which each is told what the ones before it left."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        self.seconds = 0.0
        """How long each try takes."""
        self._left: dict[str, Any] = {}
        monkeypatch.setattr(patience, "this_try", lambda: timedelta(seconds=self.seconds))
        for module in (fallbacks, patience):
            monkeypatch.setattr(module, "details_left", lambda: self._left)
        monkeypatch.setattr(patience, "leave_details", self._left.update)

    def fail(self, error: ProviderError, *, longest: timedelta = timedelta(minutes=30)) -> ApplicationError:
        self.count += 1
        environment = ActivityEnvironment()
        environment.info = replace(environment.info, attempt=self.count)
        return environment.run(lambda: after_error(error, Patience(model=longest), fallback="x:other"))

    def fail_for_good(self, seconds: float, kind: type[ProviderError] = InvalidReply) -> ApplicationError:
        self.seconds = seconds
        while (failure := self.fail(kind("it broke off"))) and not failure.non_retryable:
            pass
        return failure


@pytest.fixture
def tries(monkeypatch: pytest.MonkeyPatch) -> Tries:
    return Tries(monkeypatch)


@pytest.mark.parametrize("seconds", [61, 300])
def test_a_long_reply_that_breaks_off_is_asked_for_again_some_times(seconds: float, tries: Tries) -> None:
    failure = tries.fail_for_good(seconds)
    assert tries.count == 1 + fallbacks.LEAST_RETRIES_OF_INVALID_REPLIES
    assert failure.details[0]["fallback"] == "x:other"


def test_a_reply_that_is_invalid_at_once_is_asked_for_again_for_a_minute(tries: Tries) -> None:
    failure = tries.fail_for_good(0.1)
    assert 1 + fallbacks.LEAST_RETRIES_OF_INVALID_REPLIES < tries.count < 20
    assert re.search(r"\(tried \d+ times, for (0:00:[345]\d|0:01:00)\)$", failure.message), failure.message


def test_what_failed_before_is_not_held_against_a_reply_that_breaks_off(tries: Tries) -> None:
    tries.seconds = 30
    for _ in range(3):
        assert not tries.fail(RateLimited("slow down")).non_retryable
    tries.fail_for_good(1)
    assert tries.count == 3 + 1 + fallbacks.LEAST_RETRIES_OF_INVALID_REPLIES


@pytest.mark.parametrize("kind", [InvalidReply, ConnectionFailed])
def test_no_failure_is_retried_beyond_the_patience(kind: type[ProviderError], tries: Tries) -> None:
    tries.seconds = 75.4
    failure = tries.fail(kind("it broke off"), longest=timedelta(minutes=1))
    assert (failure.non_retryable, failure.message) == (True, "it broke off (tried once, for 0:01:15)")
    tries.fail_for_good(600, ConnectionFailed)
    assert tries.count == 1 + 3, "patience is half an hour"


async def _raised(error: Exception, attempt: int) -> Exception:
    environment = ActivityEnvironment()
    environment.info = replace(environment.info, workflow_type=names.CONVERSATION, attempt=attempt)
    run = UnexpectedErrors().intercept_activity(Fails(error)).execute_activity
    with pytest.raises(Exception) as caught:
        await environment.run(run, ExecuteActivityInput(fn=print, args=[], executor=None, headers={}))
    return caught.value
