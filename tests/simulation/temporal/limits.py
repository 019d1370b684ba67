"""Temporal's limits: what passes one of them ends a run, or is retried for ever in silence."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from temporalio.api.common.v1 import Payloads
from temporalio.api.failure.v1 import Failure
from temporalio.api.history.v1 import HistoryEvent

if TYPE_CHECKING:
    from tests.simulation.temporal.runs import Run
    from tests.simulation.temporal.server import Server

PAYLOAD_BYTES = 2 * 1024**2
MESSAGE_BYTES = 4 * 1024**2
RUN_BYTES = 50 * 1024**2
RUN_EVENTS = 51_200
RUN_UPDATES = 2_000


def check(server: Server, run: Run) -> None:
    if run.history.bytes > RUN_BYTES or len(run.history) > RUN_EVENTS:
        server.wrong(f"run {run.id} has {len(run.history)} events with {run.history.bytes} bytes: the server ends it")
    if len(run.updates) > RUN_UPDATES:
        server.wrong(f"run {run.id} was sent {len(run.updates)} updates: the server takes no more")


def check_sent(server: Server, what: str, sent: Payloads | Failure) -> None:
    """What one request brings: a real server turns it down, or ends the activity that it comes from."""
    size = sent.ByteSize()
    if size > PAYLOAD_BYTES // 4:
        server.count("large payloads")
    if size > PAYLOAD_BYTES:
        server.wrong(f"{what} brings {size} bytes, over the {PAYLOAD_BYTES} of a payload")


def check_request(server: Server, rpc: str, request: Any) -> None:
    """Of those that people and programs send."""
    match rpc:
        case "start_workflow_execution" | "signal_workflow_execution":
            check_sent(server, rpc, request.input)
        case "update_workflow_execution":
            check_sent(server, rpc, request.request.input.args)
        case _:
            pass


def check_events(server: Server, run: Run, events: list[HistoryEvent]) -> None:
    """What one completed workflow task brings."""
    sizes = [event.ByteSize() for event in events]
    if max(sizes, default=0) > PAYLOAD_BYTES:
        server.wrong(f"run {run.id}: an event of {max(sizes)} bytes, over the {PAYLOAD_BYTES} of a payload")
    if sum(sizes) > MESSAGE_BYTES:
        server.wrong(f"run {run.id}: a workflow task of {sum(sizes)} bytes, over the {MESSAGE_BYTES} of a message")
