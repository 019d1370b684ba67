"""The header of a user's own activity, by which it knows which call it serves."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from everturn import names
from everturn.plans import ActivityCall
from everturn.storage.data_converter import data_converter
from everturn.workflows.call_headers import CallHeaders, serving
from tests.support.fake_sdk import FakeSdk

SERVED = ActivityCall(turn=3, call_id="a", tool="pay", own_queue=True)


async def test_only_what_is_scheduled_for_a_call_has_its_header(fake_sdk: FakeSdk) -> None:
    scheduled: list[dict[str, Any]] = []
    outbound: list[Any] = []

    def take(given: Any) -> str:
        scheduled.append(given.headers)
        return "handle"

    inbound: Any = SimpleNamespace(init=outbound.append)
    nowhere: Any = SimpleNamespace(start_activity=take)
    CallHeaders(inbound).init(nowhere)

    def start() -> Any:
        given: Any = SimpleNamespace(headers={"theirs": b"kept"})
        return outbound[0].start_activity(given)

    assert start() == "handle"
    with serving(SERVED):
        start()
    start()
    before, served, after = scheduled
    assert before == after == {"theirs": b"kept"}
    assert served.keys() == {"theirs", names.CALL_HEADER}
    assert data_converter.payload_converter.from_payload(served[names.CALL_HEADER], ActivityCall) == SERVED
