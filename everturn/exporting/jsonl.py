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
    it = exported
    whole: dict[str, Any] = {
        "kind": "conversation",
        **heading(it),
        **it.labels,
        "usage": tokens(it.usage),
        "cost_usd": it.cost_usd,
        "outcome": it.outcome.model_dump(mode="json", exclude={"tail"}) if it.outcome else None,
    }
    turns = [
        {
            "kind": "turn",
            "conversation": it.id,
            "turn": turn.turn,
            "summary": turn.kind == "summary",
            "agent": turn.agent,
            "model": turn.model,
            "started_at": iso(turn.started_at),
            "finished_at": iso(turn.finished_at),
            "stop": turn.stop,
            "usage": tokens(turn.usage),
            "cost_usd": turn.cost_usd,
            "details": turn.details,
        }
        for turn in it.turns
    ]
    messages = []
    for position, message in enumerate(it.messages):
        facts = it.facts.get(position)
        place = {"turn": facts.turn if facts else None, "at": iso(facts.at) if facts else None}
        said = message.model_dump(mode="json")
        messages.append({"kind": "message", "conversation": it.id, "position": position, **place, **said})
    calls = [{"kind": "open_call", "conversation": it.id, **one.as_json()} for one in it.open_calls]
    return "".join(json_text(line) + "\n" for line in (whole, *turns, *messages, *calls))


def heading(it: Exported) -> dict[str, Any]:
    """What every format says about a conversation first."""
    return {
        "id": it.id,
        "agent": it.agent,
        "model": it.model,
        "status": it.status,
        "started_at": iso(it.started_at),
        "ended_at": iso(it.ended_at),
    }


def iso(moment: datetime | None) -> str | None:
    """ISO 8601, UTC, to the millisecond."""
    return moment.isoformat(timespec="milliseconds") if moment else None


def tokens(usage: Usage) -> dict[str, int]:
    """All of its fields, so that readers don't need the class."""
    return {name: getattr(usage, name) for name in Usage.model_fields}
