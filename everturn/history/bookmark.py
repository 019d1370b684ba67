"""How far a run's history was read, so that a later read can go on from there."""

from __future__ import annotations

from typing import Any

from temporalio.api.history.v1 import HistoryEvent

from everturn.history import event_types

TRANSIENT = (event_types.WORKFLOW_TASK_SCHEDULED, event_types.WORKFLOW_TASK_STARTED)


class Bookmark:
    last = 0
    """The event that was read last."""
    token: bytes | None = None
    """The token of the page that holds the next event; None for the first page."""

    def go_past(self, event: HistoryEvent, pages: Any) -> None:
        # A long poll shows workflow tasks that are not in the history yet: their ids are used again.
        if event.event_type not in TRANSIENT:
            self.last = event.event_id
        # An interceptor of the application's may have put its own iterator in place of the pages.
        if (token := getattr(pages, "next_page_token", None)) and pages.current_page_index >= len(pages.current_page):
            self.token = token
