"""Results of activities and children, and what a history says of those that could not be read."""

from __future__ import annotations

from typing import Any

import pytest
from temporalio.common import RawValue

from everturn.carryover import PackedTranscript
from everturn.records import ToolResult
from everturn.workflows.activity_results import ActivityOutput, ActivityResults, UnreadableResult, read_value
from tests.support.fake_sdk import FakeSdk, Scheduled
from tests.support.payloads import of_unknown_encoding, payload_of

FOREIGN = RawValue(of_unknown_encoding())


def raw(value: Any) -> RawValue:
    return RawValue(payload_of(value))


@pytest.mark.parametrize(
    ("given", "kind", "problem"),
    [
        (None, PackedTranscript, "it is empty"),
        (raw(None), PackedTranscript, "it is a NoneType"),
        (raw(b"bytes"), PackedTranscript, "it is a bytes"),
    ],
)
def test_why_a_value_can_not_be_read(given: Any, kind: Any, problem: str, fake_sdk: FakeSdk) -> None:
    assert read_value(given, kind) == (None, problem)


def test_a_value_is_read_as_its_record(fake_sdk: FakeSdk) -> None:
    result = ToolResult(call_id="a")
    assert read_value(raw(result), ToolResult) == (result, "")
    value, problem = read_value(FOREIGN, ToolResult)
    assert (value, bool(problem)) == (None, True)


@pytest.mark.parametrize(("given", "value"), [(None, None), (raw(None), None), (raw(0), 0), (raw({"a": 1}), {"a": 1})])
def test_what_a_users_activity_returns_may_be_nothing(given: Any, value: Any, fake_sdk: FakeSdk) -> None:
    assert read_value(given, ActivityOutput) == ((value,), "")
    assert ActivityResults().read_output(given, "The result of pay") == value
    with pytest.raises(UnreadableResult, match="The result of pay can't be read: "):
        ActivityResults().read_output(FOREIGN, "The result of pay")


async def test_what_can_not_be_read_is_marked_and_may_be_read_again_later(fake_sdk: FakeSdk) -> None:
    results = ActivityResults()
    assert results.read(raw(ToolResult(call_id="a")), ToolResult, "The result") == ToolResult(call_id="a")
    with pytest.raises(UnreadableResult) as raised:
        results.read(FOREIGN, ToolResult, "The result")
    assert raised.value.raw == FOREIGN
    assert raised.value.problem.startswith("The result can't be read: ")
    assert fake_sdk.markers == ["unreadable 2"]


@pytest.mark.parametrize(
    ("given", "why"), [(raw(ToolResult(call_id="a")), "it could not, when it came"), (None, "it is empty")]
)
def test_a_replay_can_not_read_what_could_not_be_read_before(given: Any, why: str, fake_sdk: FakeSdk) -> None:
    fake_sdk.replaying, fake_sdk.patches = True, {"unreadable 1"}
    results = ActivityResults()
    with pytest.raises(UnreadableResult) as raised:
        results.read(given, ToolResult, "The result")
    assert (raised.value.problem, raised.value.raw) == (f"The result can't be read: {why}", given)
    assert results.read(raw(ToolResult(call_id="b")), ToolResult, "The next") == ToolResult(call_id="b")


def test_a_replay_on_a_worker_that_can_not_read_what_was_read_fails_its_workflow_task(fake_sdk: FakeSdk) -> None:
    fake_sdk.replaying, fake_sdk.patches = True, set()
    with pytest.raises(
        RuntimeError,
        match=r"^The result was read before, but this worker can't read it: it is empty\. If another version",
    ):
        ActivityResults().read(None, ToolResult, "The result")


async def test_a_result_is_waited_for(fake_sdk: FakeSdk) -> None:
    scheduled = Scheduled("pay", None, {})
    await scheduled.finish(ToolResult(call_id="a"))
    assert await ActivityResults().wait_for(scheduled.task, ToolResult, "The result") == ToolResult(call_id="a")
