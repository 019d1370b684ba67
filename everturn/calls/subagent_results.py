"""The outcome of a sub-agent's conversation, as the tool result that its caller gets."""

from __future__ import annotations

import json

from everturn.records import CUT_OFF, Outcome, Text, ToolResult
from everturn.sizes import MAX_RESULT_BYTES, MAX_RESULT_CHARS, shortened


def result_of(call_id: str, agent: str, outcome: Outcome) -> ToolResult:
    """All who read it get the same result: the conversation, a worker without memory, a client."""
    text = outcome.text if outcome.output is None else json.dumps(outcome.output, ensure_ascii=False)
    text = shortened(text, max_bytes=MAX_RESULT_BYTES, max_chars=MAX_RESULT_CHARS)
    if outcome.status != "completed":
        reason = outcome.reason or outcome.status
        text = f"{text}\n[{agent} did not finish: {reason}.]".strip()
    elif outcome.stop != "end":
        text = f"{text}\n[{agent}'s answer is not whole: {CUT_OFF.get(outcome.stop, outcome.stop)}.]".strip()
    failed = outcome.status in ("cancelled", "failed")
    content = (Text(text=text or f"[{agent} said nothing.]"),)
    return ToolResult(call_id=call_id, name=agent, content=content, is_error=failed)
