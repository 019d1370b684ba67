"""Why something failed: in the workflow, and for who reads its history, in the same words."""

from __future__ import annotations

import pytest
from temporalio.api.failure.v1 import Failure
from temporalio.converter import DataConverter
from temporalio.exceptions import (
    ActivityError,
    ApplicationError,
    CancelledError,
    FailureError,
    TimeoutError,  # noqa: A004 - Temporal's
    TimeoutType,
)

from everturn import names
from everturn.calls.causes import cause_of, read_cause


def caused(error: FailureError, by: BaseException | None = None) -> FailureError:
    error.__cause__ = by
    return error


def timed_out(kind: TimeoutType | None, last: BaseException | None = None) -> FailureError:
    return caused(TimeoutError("activity timeout", type=kind, last_heartbeat_details=[]), last)


SILENT = "its worker was lost, took too long, or could not reach Temporal"


def no_key() -> FailureError:
    inner = ApplicationError("key 'x' is missing", type="KeyError")
    details = {"cure": "Set one.", "fallback": "groq:x", "too_long": True}
    return caused(ApplicationError("No key for 'openai:x'.", details, type="KeyMissing"), inner)


def not_hosted() -> FailureError:
    return ApplicationError("No worker has the agent.", type=names.NOT_HOSTED)


@pytest.mark.parametrize(
    ("error", "cause", "kind", "cure"),
    [
        (no_key(), "No key for 'openai:x'.", "KeyMissing", "Set one."),
        (not_hosted(), "No worker has the agent.", names.NOT_HOSTED, ""),
        (
            timed_out(TimeoutType.HEARTBEAT),
            f"{SILENT} (heartbeat timeout)",
            "",
            "",
        ),
        (
            # A worker had it after the one that handed it back: whether the tool ran is not known.
            timed_out(TimeoutType.SCHEDULE_TO_CLOSE, not_hosted()),
            f"{SILENT} (schedule to close timeout)",
            "",
            "",
        ),
        (CancelledError("Cancelled by its parent"), "Cancelled by its parent", "", ""),
        (ApplicationError("No type", "no dict"), "No type", "", ""),
    ],
    ids=["with a cure", "handed back", "lost", "handed back, then lost", "cancelled", "somebody else's"],
)
async def test_a_failure_is_the_same_in_the_workflow_and_in_its_history(
    error: FailureError, cause: str, kind: str, cure: str
) -> None:
    raised = ActivityError(
        "Activity task failed",
        scheduled_event_id=5,
        started_event_id=6,
        identity="",
        activity_type="look",
        activity_id="1",
        retry_state=None,
    )
    failure, converter = Failure(), DataConverter()
    await converter.encode_failure(error, failure)
    found = cause_of(caused(raised, error))
    assert found == await read_cause(converter, failure)
    assert (found.cause, found.kind, found.cure, found.not_hosted) == (cause, kind, cure, kind == names.NOT_HOSTED)


def test_what_there_is_to_do_goes_with_the_cause() -> None:
    found = cause_of(no_key())
    assert (found.fallback, found.too_long) == ("groq:x", True)
