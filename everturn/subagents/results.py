"""The outcome of a sub-agent's conversation, as the tool result that its caller gets."""

from __future__ import annotations

import json

from everturn.records import CUT_OFF, Outcome, Text, ToolResult
from everturn.sizes import MAX_RESULT_BYTES, MAX_RESULT_CHARS
from everturn.text.shortening import shortened


def result_of(call_id: str, agent: str, outcome: Outcome) -> ToolResult:
    """All who read it get the same result: the conversation, a worker without memory, a client."""
    text = outcome.text if outcome.output is None else json.dumps(outcome.output, ensure_ascii=False)
    text = shortened(text, max_bytes=MAX_RESULT_BYTES, max_chars=MAX_RESULT_CHARS)
    text = with_notice(text, agent, outcome)
    failed = outcome.status in ("cancelled", "failed")
    content = (Text(text=text or f"[{agent} said nothing.]"),)
    return ToolResult(call_id=call_id, name=agent, content=content, is_error=failed)


def with_notice(text: str, agent: str, outcome: Outcome) -> str:
    """The text, for a model, which is told if it is not the whole answer."""
    if outcome.status != "completed":
        return f"{text}\n[{agent} did not finish: {outcome.reason or outcome.status}.]".strip()
    if outcome.stop != "end":
        return f"{text}\n[{agent}'s answer is not whole: {CUT_OFF.get(outcome.stop, outcome.stop)}.]".strip()
    if outcome.reason:  # it was closed between two turns
        return f"{text}\n[{agent}'s answer is not whole: {outcome.reason}.]".strip()
    return text
