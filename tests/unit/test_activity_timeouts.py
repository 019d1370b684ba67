"""How long Temporal lets each kind of activity wait, run and be tried."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from temporalio import workflow

from everturn.plans import RetryPlan, RunActivity, RunNexus, RunTool
from everturn.validation.durations import LONGEST
from everturn.workflows import timeouts

WEEK = timedelta(days=7)


def seconds(number: float) -> timedelta:
    return timedelta(seconds=number)


def of_users(*, awaited: bool = True, **plan: Any) -> dict[str, Any]:
    return timeouts.user_activity_options(
        RunActivity(**{"call_id": "a", "activity": "Pay", "timeout": 60.0, "patience": 600.0} | plan), awaited=awaited
    )


def test_a_users_activity_without_retries_is_tried_once_and_its_conversation_bounds_the_rest() -> None:
    options = of_users(task_queue="theirs")
    assert (options["task_queue"], options["retry_policy"].maximum_attempts) == ("theirs", 1)
    assert options["schedule_to_close_timeout"] is None
    assert options["start_to_close_timeout"] == seconds(60)


def test_one_try_of_a_users_activity_may_take_longer_than_its_patience() -> None:
    assert of_users(retry=RetryPlan(), timeout=900.0)["schedule_to_close_timeout"] == WEEK + seconds(900)


@pytest.mark.parametrize(("given", "timeout"), [(None, None), (7.0, seconds(7))])
def test_a_users_activity_has_its_own_heartbeats(given: float | None, timeout: timedelta | None) -> None:
    assert of_users(heartbeat_timeout=given)["heartbeat_timeout"] == timeout


def test_a_users_activity_is_retried_as_its_own_policy_says() -> None:
    plan = RetryPlan(
        initial_interval=3.0,
        backoff_coefficient=1.5,
        maximum_interval=9.0,
        maximum_attempts=4,
        non_retryable_error_types=("Fraud",),
    )
    policy = of_users(retry=plan)["retry_policy"]
    assert (policy.initial_interval, policy.backoff_coefficient, policy.maximum_interval) == (
        seconds(3),
        1.5,
        seconds(9),
    )
    assert (policy.maximum_attempts, list(policy.non_retryable_error_types)) == (4, ["Fraud"])
    plain = of_users(retry=RetryPlan())["retry_policy"]
    assert (plain.initial_interval, plain.maximum_interval, plain.maximum_attempts) == (seconds(1), None, 0)
    assert plain.non_retryable_error_types is None


def test_what_is_longer_than_temporal_counts_is_as_long_as_it_counts() -> None:
    options = of_users(retry=RetryPlan(maximum_interval=1e12), timeout=1e12, heartbeat_timeout=1e12)
    assert options["start_to_close_timeout"] == options["heartbeat_timeout"] == LONGEST
    assert options["retry_policy"].maximum_interval == LONGEST


@pytest.mark.parametrize("retried", [False, True])
def test_a_tool_that_may_not_run_twice_is_tried_once(*, retried: bool) -> None:
    effect: Any = "idempotent" if retried else "once"
    plan = RunTool(call_id="a", effect=effect, timeout=900.0, patience=600.0)
    options = timeouts.tool_activity_options(plan)
    assert (options["retry_policy"].maximum_attempts == 1) is not retried
    later = timeouts.HEARTBEAT_TIMEOUT
    assert options["schedule_to_close_timeout"] == WEEK + seconds(900) + later, "a whole try, at least"
    assert options["heartbeat_timeout"] == later


def test_a_tool_that_was_quick_so_far_holds_its_conversation_up_for_a_second() -> None:
    options = timeouts.local_options(RunTool(call_id="a", hurried=True, timeout=60.0))
    assert options["schedule_to_close_timeout"] == seconds(1)
    assert options["retry_policy"].maximum_attempts == 1
    assert "start_to_close_timeout" not in options


def test_a_local_tool_is_tried_on_by_the_servers_timer_once_delays_are_long() -> None:
    options = timeouts.local_options(RunTool(call_id="a", timeout=60.0, patience=600.0))
    assert options["local_retry_threshold"] == seconds(2)
    policy = options["retry_policy"]
    assert (policy.initial_interval, policy.maximum_interval, policy.maximum_attempts) == (seconds(0.2), seconds(30), 0)


def test_a_nexus_operation_waits_for_a_handler_for_as_long_as_a_tool_for_a_worker() -> None:
    plan = RunNexus(call_id="a", endpoint="shop", service="s", operation="o", timeout=60.0)
    options = timeouts.operation_options(plan)
    assert (options["start_to_close_timeout"], options["schedule_to_close_timeout"]) == (
        seconds(60),
        WEEK + seconds(60),
    )
    assert options["cancellation_type"] == workflow.NexusOperationCancellationType.WAIT_COMPLETED


def test_a_cancelled_turn_waits_for_what_its_model_has_said_and_for_nothing_else() -> None:
    kinds = workflow.ActivityCancellationType
    turn, prefix = timeouts.model_options(), timeouts.prefix_options()
    assert turn.pop("cancellation_type") == kinds.WAIT_CANCELLATION_COMPLETED
    assert prefix.pop("cancellation_type") == kinds.TRY_CANCEL
    assert turn == prefix
    assert turn["start_to_close_timeout"] == timedelta(hours=6)


def test_a_batch_is_tried_for_as_long_as_it_takes_and_a_lost_worker_is_noticed() -> None:
    options = timeouts.batch_options()
    assert options["schedule_to_start_timeout"] is None
    assert options["start_to_close_timeout"] == timedelta(hours=1)
    assert options["heartbeat_timeout"] == timeouts.HEARTBEAT_TIMEOUT
    policy = options["retry_policy"]
    assert (policy.initial_interval, policy.maximum_interval, policy.maximum_attempts) == (seconds(0.2), seconds(2), 0)
    assert timeouts.batch_options(seconds(3))["schedule_to_start_timeout"] == seconds(3)


def test_hooks_that_check_have_half_a_minute() -> None:
    assert timeouts.check_options()["start_to_close_timeout"] == seconds(30)
    assert timeouts.check_options()["heartbeat_timeout"] == timeouts.HEARTBEAT_TIMEOUT
