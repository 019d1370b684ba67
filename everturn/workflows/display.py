"""What the Temporal Web UI shows of a conversation without opening a payload. Pure functions."""

from __future__ import annotations

import json
from collections.abc import Mapping

from pydantic import JsonValue

from everturn.payloads import Status

SUMMARY_CHARS = 80
MARKS = {
    "running": "▶️",
    "awaiting_approval": "✋",
    "awaiting_answer": "❓",
    "stalled": "🛑",
    "paused": "⏸️",
    "idle": "💤",
    "done": "✅",
}


def shortened(text: str, limit: int = SUMMARY_CHARS) -> str:
    """The text on one line, at most `limit` characters long."""
    line = " ".join(text.split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


def call_summary(tool: str, arguments: Mapping[str, JsonValue]) -> str:
    """A call as one would write it: `refund(order_id="81", cents=1200)`."""
    written = ", ".join(f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in arguments.items())
    return shortened(f"{tool}({written})")


def turn_summary(turn: int, model: str, *, summarise: bool = False) -> str:
    what = "a summary" if summarise else f"turn {turn}"
    return shortened(f"{what} · {model}" if model else what)


def current_details(status: Status, *, conversation_id: str, agent: str, last_said: str) -> str:
    """Markdown: what goes on, what waits for whom, and the exact signal to send."""
    state = status.state.replace("_", " ")
    lines = [f"## {MARKS[status.state]} {agent}: {state}", f"Turn {status.turn}, {status.usage.total_tokens:,} tokens."]
    if status.cause:
        lines += [f"**Cause:** {status.cause}", f"**Cure:** {status.cure or 'see the cause'}"]
        lines += ["Then send the signal `resume` with input `{}`."]
    for waiting in status.waiting:
        lines += [
            f"### `{waiting.tool}` waits: {waiting.why or state}",
            f"```json\n{shortened(json.dumps(waiting.arguments, ensure_ascii=False), 2000)}\n```",
        ]
        if status.state == "awaiting_approval":
            lines += [_signal(conversation_id, "approve", {"call_id": waiting.call_id})]
            lines += [_signal(conversation_id, "deny", {"call_id": waiting.call_id, "reason": "…"})]
        else:
            lines += [_signal(conversation_id, "answer", {"call_id": waiting.call_id, "content": "…"})]
    if last_said:
        lines += [f"> {shortened(last_said, 500)}"]
    return "\n\n".join(lines)


def _signal(conversation_id: str, name: str, payload: dict[str, str]) -> str:
    text = json.dumps(payload, ensure_ascii=False)
    return (
        f"Signal `{name}` with input `{text}`, or:\n"
        f"```sh\ntemporal workflow signal --workflow-id {conversation_id!r} --name {name} --input '{text}'\n```"
    )
