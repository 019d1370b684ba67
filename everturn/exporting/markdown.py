"""Markdown, for people: everything that was said, every call with its arguments, every result in full."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import assert_never
from urllib.parse import quote

from everturn.calls.decision_records import VERDICTS
from everturn.exporting.reading import Exported, MessageFacts
from everturn.history.open_calls import IN_WORDS
from everturn.records import (
    CUT_OFF,
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
    return "\n\n".join([f"# {inline(exported.id)}", _facts_line(exported), *_message_blocks(exported)]) + "\n"


def _facts_line(exported: Exported) -> str:
    labels = exported.labels
    agents = dict.fromkeys([exported.agent, *(turn.agent for turn in exported.turns if turn.agent)])
    facts = [f"Agent {', then '.join(map(inline, agents))}", inline(exported.model), exported.status.replace("_", " ")]
    if "tenant" in labels:
        facts.append(f"for {inline(str(labels['tenant']))}")
    if "metadata" in labels:
        facts.append(inline(in_words(labels["metadata"])))
    if exported.started_at:
        facts.append(f"{exported.started_at:%Y-%m-%d %H:%M} UTC")
    facts += [f"{len(exported.turns)} turns", f"{exported.usage.total_tokens:,} tokens"]
    if exported.cost_usd:
        facts.append(f"{exported.cost_usd:.4f} USD")
    return " · ".join(fact for fact in facts if fact)


def _message_blocks(exported: Exported) -> Iterator[str]:
    for position, message in enumerate(exported.messages):
        yield f"## {_message_heading(message, exported.facts.get(position))}"
        for part in message.parts:
            yield _part_block(part)
        if (facts := exported.facts.get(position)) and facts.stop in CUT_OFF:
            yield f"*Not whole: {CUT_OFF[facts.stop]}.*"
    if exported.open_calls:
        yield "## Tools · not all have finished"
    for open_call in exported.open_calls:
        call = open_call.call
        if open_call.result:
            yield _result_block(open_call.result)
        else:
            yield f"**{inline(call.name)}** ({code(call.call_id)}) {IN_WORDS[open_call.state]}"


def _message_heading(message: Message, facts: MessageFacts | None) -> str:
    heading = inline(message.author) or _WHO[message.role]
    if message.cut_short:
        heading += " · cut short"
    if facts:
        heading += f" · turn {facts.turn} · {facts.at:%Y-%m-%d %H:%M:%S}"
    return heading


def _part_block(part: Part) -> str:
    match part:
        case Text():
            return part.text
        case Thinking():
            return "\n".join(f"> {line}" for line in part.text.splitlines())
        case ToolCall():
            arguments = part.unparsed or json_text(part.arguments, indent=2)
            return f"**{inline(part.name)}** ({code(part.call_id)})\n\n{_fenced_block(arguments, 'json')}"
        case ToolResult():
            return _result_block(part)
        case Image() | Document():
            return _file_reference(part)
        case ServerToolUse():
            content = _fenced_block(json_text(part.data, indent=2), "json")
            return f"**{inline(part.name)}** (run by the provider)\n\n{content}"
        case Opaque():
            return _fenced_block(json_text(part.data, indent=2), "json")
        case other:
            assert_never(other)


def _result_block(result: ToolResult) -> str:
    heading = f"**{inline(result.name)}** ({code(result.call_id)})"
    if result.is_error:
        heading += " failed"
    if result.decision:
        heading += f", {_decision_words(result.decision)}"
    content = [_fenced_block(part.text) if isinstance(part, Text) else _file_reference(part) for part in result.content]
    return "\n\n".join([heading, *content])


def _decision_words(decision: Decision) -> str:
    words = VERDICTS[decision.verdict]
    if decision.by_model:
        words += f" by the reviewer {inline(decision.by)}, no person"
    elif decision.by:
        words += f" by {inline(decision.by)}"
    if decision.at:
        words += f" at {decision.at}"
    if decision.note:
        words += f": {inline(decision.note)}"
    if decision.arguments is None:
        return words
    return f"{words}, with\n\n{_fenced_block(json_text(decision.arguments, indent=2), 'json')}"


def _file_reference(part: Image | Document) -> str:
    """What kind of file it is, and where it is. Its bytes are of no use to a reader."""
    if part.url:
        return f"![{part.kind}]({_BREAKS_OUT.sub(lambda match: quote(match[0]), part.url)})"
    return f"[{part.kind}: {inline(part.media_type or '')}, {len(part.data or '') * 3 // 4:,} bytes]"


def _fenced_block(text: str, language: str = "") -> str:
    """A block of code with the text unchanged. markdown.block, which is for a page, escapes characters; this does
    not."""
    fence = fence_for(text)
    return f"{fence}{language}\n{text}\n{fence}"
