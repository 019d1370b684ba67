"""One world step by step, for a person who wants to know what went wrong in it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from temporalio.api.history.v1 import HistoryEvent

from tests.simulation.temporal.history import attributes, kind
from tests.simulation.world import Result

LONGEST = 1_500
"""Of a payload."""
LONGEST_TEXT = 200
"""Of one text in it: what is packed, or said at length, hides the rest."""

CALL = re.compile(r"\b(?:c\d+-\d+|t\d+-\d+|call_\w+|one|two|three)\b")


def story(result: Result) -> Iterator[str]:
    """A line for each event of each run, and for what happened outside of them, in the order of time."""
    draw = {name: value for name, value in vars(result.draw).items() if name != "seed"}
    yield f"seed {result.seed}: " + ", ".join(f"{name}={value}" for name, value in draw.items())
    lines = [
        (event.event_time.ToMicroseconds(), number, event.event_id, f"{conversation}/{number} {_line(event)}")
        for number, (conversation, events) in enumerate(result.histories)
        for event in events
    ]
    begun = min((at for at, *_ in lines), default=0)
    lines += [
        (int(at * 1e6), len(result.histories), number, f"  * {what}") for number, (at, what) in enumerate(result.notes)
    ]
    told = [f"{(at - begun) / 1e6:10.3f} s  {line}" for at, _, _, line in sorted(lines)]
    yield from told
    for number, (conversation, _) in enumerate(result.histories):
        yield f"{conversation}/{number} is run {result.runs[number]}"
    for call_id in dict.fromkeys(CALL.findall(" ".join(result.broken[:1]))):
        yield f"once more, what names {call_id}:"
        yield from (line for line in told if re.search(rf"\b{call_id}\b", line))
    for what in result.broken:
        yield f"BROKEN: {what}"
    if not result.broken:
        yield "every invariant holds"


def _line(event: HistoryEvent) -> str:
    return f"#{event.event_id} {kind(event)} {_said(event)}".rstrip()


def _said(event: HistoryEvent) -> str:
    given, said = attributes(event), []
    for name in ("activity_type", "signal_name", "timer_id", "marker_name", "workflow_id"):
        value = getattr(given, name, "")
        if value := getattr(value, "name", value):
            said.append(str(value))
    for name in ("scheduled_event_id", "started_event_id", "attempt"):
        if value := getattr(given, name, 0):
            said.append(f"{name.removesuffix('_event_id')} {value}")
    if event.HasField("user_metadata"):
        said.append(_json(event.user_metadata.summary.data))
    for name in ("input", "result"):
        value = getattr(given, name, None)
        said += [_json(payload.data) for payload in getattr(value, "payloads", ())]
    if event.HasField("workflow_execution_update_accepted_event_attributes"):
        request = given.accepted_request.input
        said += [request.name, *(_json(payload.data) for payload in request.args.payloads)]
    if getattr(given, "failure", None) is not None and given.failure.message:
        said.append(given.failure.message)
    return " ".join(said)


def _json(data: bytes) -> str:
    text = json.dumps(_short(json.loads(data or b"null")), ensure_ascii=False)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"


def _short(value: Any) -> Any:
    """What matters is there, however long something in it is."""
    if isinstance(value, str):
        return value if len(value) <= LONGEST_TEXT else f"{value[:LONGEST_TEXT]}… ({len(value):,} characters)"
    if isinstance(value, dict):
        packed = {"data": f"({len(value['data']):,} characters)"} if value.get("kind") == "packed" else {}
        return {name: _short(one) for name, one in (value | packed).items()}
    return [_short(one) for one in value] if isinstance(value, list) else value


def changes(one: Any, other: Any) -> dict[str, Any]:
    """What is different in a second draw."""
    return {name: value for name, value in vars(other).items() if getattr(one, name) != value}
