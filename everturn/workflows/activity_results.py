"""Results of activities and child workflows, decoded: the SDK would fail the workflow if it can't read one.

Whether a result could be read is a part of the history. Other code, or a worker with another storage, may be able to
read it later; but the conversation went on without it, and has to do so in each replay.
"""

from __future__ import annotations

import asyncio
from typing import Any, NamedTuple, TypeVar, cast

from temporalio import workflow
from temporalio.common import RawValue

from everturn.calls.activity_outputs import value_in
from everturn.calls.pending_calls import READ_ELSEWHERE
from everturn.logs import workflow_log
from everturn.validation.explaining import why_unreadable
from everturn.workflows.cancellation import result_or_cancellation

V = TypeVar("V")


class UnreadableResult(Exception):
    def __init__(self, problem: str, raw: RawValue | None = None) -> None:
        super().__init__(problem)
        self.problem = problem
        self.raw = raw
        """To be read again, when a person has seen to it."""


class ActivityOutput(NamedTuple):
    """What a user's own activity returned, of whatever type."""

    value: Any


class ActivityResults:
    """Reads results. Each reading has a number, by which the history says that it failed."""

    def __init__(self) -> None:
        self._count = 0

    async def wait_for(self, handle: asyncio.Task[Any], kind: type[V], what: str) -> V:
        """The result of an activity or child that was started with `result_type=RawValue`. Raises Unreadable, and what
        the handle raises."""
        return self.read(await result_or_cancellation(handle), kind, what)

    def read_output(self, raw: RawValue | None, what: str) -> Any:
        """What a user's own activity returned. Raises Unreadable, here and in each replay."""
        return self.read(raw, ActivityOutput, what).value

    def read(self, raw: RawValue | None, kind: type[V], what: str) -> V:
        """Raises Unreadable, here and in each replay."""
        self._count += 1
        marker = f"unreadable {self._count}"
        replaying = workflow.unsafe.is_replaying()
        failed_before = replaying and workflow.patched(marker)
        value, problem = read_value(raw, kind)
        if failed_before:
            raise UnreadableResult(f"{what} can't be read: {problem or 'it could not, when it came'}", raw)
        if value is not None:
            return value
        if replaying:
            # Another worker could. This fails the workflow task, which one that can read it takes over.
            raise RuntimeError(f"{what} was read before, but this worker can't read it: {problem}. {READ_ELSEWHERE}")
        workflow.patched(marker)
        workflow_log("result.unreadable", level="error", what=what, why=problem)
        raise UnreadableResult(f"{what} can't be read: {problem}", raw)


def read_value(raw: RawValue | None, kind: type[V]) -> tuple[V | None, str]:
    """The value, or why it can't be read."""
    if issubclass(kind, ActivityOutput):
        output, problem = value_in(raw, workflow.payload_converter())
        if problem:
            return None, problem
        return cast("V", ActivityOutput(output)), ""
    if raw is None:
        return None, "it is empty"
    try:
        value = workflow.payload_converter().from_payload(raw.payload, kind)
    except Exception as error:  # noqa: BLE001 - converters raise all kinds
        return None, why_unreadable(error)
    if not isinstance(value, kind):  # an encoding such as `null` is of no type
        return None, f"it is a {type(value).__name__}"
    return value, ""
