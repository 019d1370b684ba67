"""What the conversation could not read. It writes that down by two of Temporal's patches, which have no words."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Final

from temporalio.api.history.v1 import HistoryEvent

from everturn import names
from everturn.calls.unreadable_inputs import (
    DEPLOY_ITS_CODE,
    SEND_AGAIN,
    STALLED_BY_SIGNALS,
    UNREADABLE_START,
    signals_problem,
    start_problem,
)
from everturn.history.decoding import COMMANDS
from everturn.history.steps import InputUnreadable

PATCH: Final = "core_patch"
"""The name that the SDK gives the marker of `workflow.patched`."""


class PatchReader:
    def __init__(self) -> None:
        self.start_problem = ""
        """Why the run's start can't be read here."""
        self._signals: list[str] = []
        """The names of the signals so far that the conversation takes, which has numbered them."""

    def note_signal(self, name: str) -> None:
        if name == names.MESSAGE or name in COMMANDS:
            self._signals.append(name)

    def read_marker(self, marker: HistoryEvent, time: datetime) -> InputUnreadable | None:
        """Of a marker with the name PATCH."""
        data = marker.marker_recorded_event_attributes.details["patch-data"].payloads
        patch = str(json.loads(data[0].data).get("id")) if data else ""
        if patch == UNREADABLE_START:
            return InputUnreadable(
                marker.event_id, time, start_problem(self.start_problem), DEPLOY_ITS_CODE, start=True
            )
        if patch.startswith(STALLED_BY_SIGNALS):
            numbers = map(int, patch.removeprefix(STALLED_BY_SIGNALS).split(","))
            problem = signals_problem([self._signals[number - 1] for number in numbers], "")
            return InputUnreadable(marker.event_id, time, problem, SEND_AGAIN)
        return None
