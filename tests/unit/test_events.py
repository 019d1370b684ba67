"""The values of events.py: what they share, whatever the kind."""

from __future__ import annotations

from typing import get_args

from everturn import events
from everturn.payloads import WaitingCall
from everturn.records import ToolCall, ToolResult

CALL = ToolCall(call_id="c1", name="refund", arguments={"cents": 5})


def test_a_tool_and_its_call_have_the_same_names_on_each_event_and_on_what_waits() -> None:
    kinds = get_args(get_args(events.Event)[0])
    about_a_call = [kind for kind in kinds if {"call", "result", "tool"} & {*kind.model_fields}]
    assert len(about_a_call) == 7
    whole = {"call": CALL, "result": ToolResult(call_id="c1", name="refund", content=())}
    for kind in about_a_call:
        values = {"turn": 1, "call_id": "c1", "tool": "refund", "cause": "lost", **whole}
        event = kind(**{name: value for name, value in values.items() if name in kind.model_fields})
        assert (event.tool, event.call_id) == ("refund", "c1"), kind
        assert kind.model_validate_json(event.model_dump_json()) == event, "the wire has each once"
        if "call" in kind.model_fields:
            assert event.arguments == CALL.arguments
            assert not {"tool", "call_id"} & {*event.model_dump()}
    assert {"tool", "call_id", "arguments"} <= {*WaitingCall.model_fields}
