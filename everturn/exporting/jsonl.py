"""JSON lines: one for the conversation, one for each turn, one for each message."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from everturn.exporting.reading import Exported
from everturn.records import Usage
from everturn.text.json_text import json_text


def to_jsonl(exported: Exported) -> str:
    """Lines with a `kind`; all but the first also name their `conversation`. Messages are in the transcript's order,
    with all that they hold. The last lines are the calls of a reply whose results the transcript does not have yet."""
    conversation_line: dict[str, Any] = {
        "kind": "conversation",
        **heading_facts(exported),
        **exported.labels,
        "usage": usage_json(exported.usage),
        "cost_usd": exported.cost_usd,
        "outcome": exported.outcome and exported.outcome.model_dump(mode="json", exclude={"tail"}),
    }
    turns = [
        {
            "kind": "turn",
            "conversation": exported.id,
            "turn": turn.turn,
            "summary": turn.kind == "summary",
            "agent": turn.agent,
            "model": turn.model,
            "started_at": iso_time(turn.started_at),
            "finished_at": iso_time(turn.finished_at),
            "stop": turn.stop,
            "usage": usage_json(turn.usage),
            "cost_usd": turn.cost_usd,
            "details": turn.details,
        }
        for turn in exported.turns
    ]
    messages = []
    for position, message in enumerate(exported.messages):
        place: dict[str, Any] = {"turn": None, "at": None}
        if facts := exported.facts.get(position):
            place = {"turn": facts.turn, "at": iso_time(facts.at)}
        content = message.model_dump(mode="json")
        messages.append({"kind": "message", "conversation": exported.id, "position": position, **place, **content})
    calls = [{"kind": "open_call", "conversation": exported.id, **call.as_json()} for call in exported.open_calls]
    return "".join(json_text(line) + "\n" for line in (conversation_line, *turns, *messages, *calls))


def heading_facts(exported: Exported) -> dict[str, Any]:
    """What every format says about a conversation first."""
    return {
        "id": exported.id,
        "agent": exported.agent,
        "model": exported.model,
        "status": exported.status,
        "started_at": iso_time(exported.started_at),
        "ended_at": iso_time(exported.ended_at),
    }


def iso_time(moment: datetime | None) -> str | None:
    """ISO 8601, UTC, to the millisecond."""
    if not moment:
        return None
    return moment.isoformat(timespec="milliseconds")


def usage_json(usage: Usage) -> dict[str, int]:
    """All of its fields, so that readers don't need the class."""
    return {name: getattr(usage, name) for name in Usage.model_fields}
