"""Markdown, for people: everything that was said, every call with its arguments, every result in full."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import assert_never
from urllib.parse import quote

from everturn.calls.decisions import VERDICTS
from everturn.exporting.reading import Exported, MessageFacts
from everturn.history.open_calls import IN_WORDS
from everturn.records import (
    Decision,
    Document,
    Image,
    Message,
    Opaque,
    Part,
    ServerToolUse,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)
from everturn.tenants.metadata import in_words
from everturn.text.json_text import json_text
from everturn.text.markdown import code, fence_for, inline

_WHO = {"user": "User", "assistant": "Assistant", "tool": "Tools", "system": "System"}
_BREAKS_OUT = re.compile(r"[\s()<>\\]")
"""Characters that would end a link inside an address."""


def to_markdown(exported: Exported) -> str:
    """The conversation for people to read: the facts about it, and the transcript."""
    return "\n\n".join([f"# {inline(exported.id)}", _facts(exported), *_messages(exported)]) + "\n"


def _facts(it: Exported) -> str:
    agents = dict.fromkeys([it.agent, *(turn.agent for turn in it.turns if turn.agent)])
    told = [f"Agent {', then '.join(map(inline, agents))}", inline(it.model), it.status.replace("_", " ")]
    told += [f"for {inline(str(it.labels['tenant']))}"] if "tenant" in it.labels else []
    told += [inline(in_words(it.labels["metadata"]))] if "metadata" in it.labels else []
    told += [f"{it.started_at:%Y-%m-%d %H:%M} UTC"] if it.started_at else []
    told += [f"{len(it.turns)} turns", f"{it.usage.total_tokens:,} tokens"]
    told += [f"{it.cost_usd:.4f} USD"] if it.cost_usd else []
    return " · ".join(fact for fact in told if fact)


def _messages(it: Exported) -> Iterator[str]:
    for position, message in enumerate(it.messages):
        yield f"## {_heading(message, it.facts.get(position))}"
        for part in message.parts:
            yield _part(part)
    if it.open_calls:
        yield "## Tools · not all have finished"
    for call in it.open_calls:
        place = f"**{inline(call.call.name)}** ({code(call.call.call_id)})"
        yield _result(call.result) if call.result else f"{place} {IN_WORDS[call.state]}"


def _heading(message: Message, facts: MessageFacts | None) -> str:
    who = inline(message.author) or _WHO[message.role]
    who += " · cut short" if message.cut_short else ""
    return who + (f" · turn {facts.turn} · {facts.at:%Y-%m-%d %H:%M:%S}" if facts else "")


def _part(part: Part) -> str:
    match part:
        case Text():
            return part.text
        case Thinking():
            return "\n".join(f"> {line}" for line in part.text.splitlines())
        case ToolCall():
            arguments = part.unparsed or json_text(part.arguments, indent=2)
            return f"**{inline(part.name)}** ({code(part.call_id)})\n\n{_fenced(arguments, 'json')}"
        case ToolResult():
            return _result(part)
        case Image() | Document():
            return _file(part)
        case ServerToolUse():
            return f"**{inline(part.name)}** (run by the provider)\n\n{_fenced(json_text(part.data, indent=2), 'json')}"
        case Opaque():
            return _fenced(json_text(part.data, indent=2), "json")
        case other:
            assert_never(other)


def _result(result: ToolResult) -> str:
    told = f"**{inline(result.name)}** ({code(result.call_id)})" + (" failed" if result.is_error else "")
    told += f", {_decision(result.decision)}" if result.decision else ""
    content = [_fenced(part.text) if isinstance(part, Text) else _file(part) for part in result.content]
    return "\n\n".join([told, *content])


def _decision(decision: Decision) -> str:
    said = VERDICTS[decision.verdict] + (f" by {inline(decision.by)}" if decision.by else "")
    said += f" at {decision.at}" if decision.at else ""
    said += f": {inline(decision.note)}" if decision.note else ""
    if decision.arguments is None:
        return said
    return f"{said}, with\n\n{_fenced(json_text(decision.arguments, indent=2), 'json')}"


def _file(part: Image | Document) -> str:
    """What kind of file it is, and where it is. Its bytes are of no use to a reader."""
    if part.url:
        return f"![{part.kind}]({_BREAKS_OUT.sub(lambda found: quote(found[0]), part.url)})"
    return f"[{part.kind}: {inline(part.media_type or '')}, {len(part.data or '') * 3 // 4:,} bytes]"


def _fenced(text: str, language: str = "") -> str:
    """A block of code with the text unchanged. markdown.block, which is for a page, escapes characters; this does
    not."""
    fence = fence_for(text)
    return f"{fence}{language}\n{text}\n{fence}"
