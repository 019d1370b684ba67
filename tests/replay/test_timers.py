"""A timer is about a call if its whole summary says so: others may begin with the same words."""

from __future__ import annotations

import json
from base64 import b64encode
from typing import Any

import pytest
from temporalio.client import WorkflowHistory

from everturn.events import ApprovalReminder
from everturn.history.event_reader import EventReader
from everturn.history.reader import HistoryReader
from everturn.history.steps import CallExpired, ReminderFired, Step
from everturn.storage.data_converter import data_converter
from tests.replay import HISTORIES


async def read(kind: str, summaries: dict[str, str]) -> list[Step]:
    """Its steps, with other summaries in the place of some."""
    content = json.loads((HISTORIES / f"{kind}.json").read_text())
    for event in content["events"]:
        if (written := event.get("userMetadata", {}).get("summary")) and "timerStartedEventAttributes" in event:
            for old, new in summaries.items():
                if written["data"] == _written(old):
                    written["data"] = _written(new)
    reader = HistoryReader(data_converter)
    return [await reader.read_event(event) for event in WorkflowHistory.from_json("timers", content).events]


def _written(summary: str) -> str:
    return b64encode(json.dumps(summary).encode()).decode()


def of_calls(steps: list[Step]) -> list[tuple[type[Any], str]]:
    return [(type(step), step.call_id) for step in steps if isinstance(step, CallExpired | ReminderFired)]


async def test_a_calls_reminder_and_expiry_are_read() -> None:
    assert of_calls(await read("approval_expired", {})) == [(ReminderFired, "a"), (CallExpired, "a")]


@pytest.mark.parametrize("other", ["reminder of the rent", "reminder of a bill", "reminder of ", "reminder of"])
async def test_another_timer_whose_summary_begins_alike_reminds_of_no_call(other: str) -> None:
    steps = await read("approval_expired", {"reminder of a": other})
    assert of_calls(steps) == [(CallExpired, "a")]
    reader = EventReader()
    events = [event for step in steps for event in reader.read_step(step, run_id="r")]
    assert [event for event in events if isinstance(event, ApprovalReminder)] == []
