"""What happens in a conversation, as lines for people. Pure: events and messages in, rich texts out.

Legible without colour: a mark says what kind of line it is. What models and tools write is untrusted: their control
characters never reach the terminal, and their text is never read as markup.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.text import Text

from everturn import events, names
from everturn.calls.decisions import VERDICTS
from everturn.client.agents_at_work import shortest_name
from everturn.history.open_calls import IN_WORDS, OpenCall
from everturn.payloads import AskedAgent, WaitingCall, address_of
from everturn.records import CUT_OFF, Decision, Message, Outcome, ToolCall, ToolResult, in_dollars
from everturn.records import Text as RecordText
from everturn.sizes import clipped
from everturn.text.printable import printable, printable_line

MARKS = {
    "user": "▸",
    "assistant": "●",
    "call": "→",
    "done": "✓",
    "failed": "✗",
    "waits": "◆",
    "trouble": "!",
    "end": "■",
    "open": "…",
}
_STYLES = {
    "user": "bold cyan",
    "assistant": "bold green",
    "call": "cyan",
    "done": "green",
    "failed": "red",
    "waits": "bold yellow",
    "trouble": "bold red",
    "end": "bold",
    "open": "cyan",
}
STATE_STYLES = {
    "awaiting_approval": "bold yellow",
    "awaiting_answer": "bold yellow",
    "stalled": "bold red",
    "stuck": "bold red",
    "failed": "red",
    "terminated": "red",
    "running": "cyan",
    "done": "green",
}


def folded(text: str, limit: int) -> str:
    """The text on one line of at most `limit` characters."""
    return clipped(printable_line(text), limit)


def first_line(text: str, limit: int) -> str:
    """A text's first line, and how many more there are: at most `limit` characters."""
    lines = [line for line in printable(text).splitlines() if line.strip()]
    more = f" … {count(len(lines) - 1, 'more line')}" if len(lines) > 1 else ""
    return folded(lines[0], max(limit - len(more), 20)) + more if lines else ""


def call_line(name: str, arguments: Mapping[str, Any], limit: int) -> str:
    """A call as in Python: `refund(order_id="81", cents=1200)`."""
    written = ", ".join(f"{key}={json.dumps(value, ensure_ascii=False)}" for key, value in arguments.items())
    return folded(f"{name}({written})", limit)


def marked(kind: str, text: str | Text, *, indent: int = 0, style: str = "") -> Text:
    """A text with a mark in front. Its further lines are indented below the first."""
    line = Text(" " * indent)
    line.append(MARKS[kind], style=_STYLES[kind])
    body = (
        text if isinstance(text, Text) else Text(printable(text).replace("\n", "\n" + " " * (indent + 2)), style=style)
    )
    return line.append(" ").append_text(body)


def arguments_block(call: ToolCall) -> Text:
    """All of the arguments, in full: a person who approves a call has to see what it will do."""
    written = printable(json.dumps(call.arguments, ensure_ascii=False, indent=2))
    return Text("\n".join("    " + line for line in written.splitlines()))


def ways_to_decide(conversation_id: str, waits: WaitingCall, waiting: Iterable[WaitingCall]) -> list[str]:
    """The commands that decide on the call, one of those `waiting` there. If it may have run already, a second one
    gives its result instead."""
    place = place_of(conversation_id, waits, waiting)
    approve, answer = f"everturn approve {place}", f"everturn answer {place} CONTENT"
    if waits.needs == "answer":
        return [answer]
    return [approve, answer] if waits.reason == "outcome_unknown" else [approve]


def place_of(conversation_id: str, waits: WaitingCall, waiting: Iterable[WaitingCall]) -> str:
    """The conversation and the call, as commands take them."""
    return shlex.join([conversation_id, shortest_name(waits, waiting)])


def by_agents(path: Iterable[AskedAgent]) -> str:
    """The agents that led to a call, before its name: `helper › auditor › `. Empty for the conversation's own."""
    return "".join(f"{folded(asked.agent, 64)} › " for asked in path)


def result_text(result: ToolResult) -> str:
    parts = [part.text if isinstance(part, RecordText) else f"[{part.kind}]" for part in result.content]
    # After an edit, the first part tells the model of it. The decision's own line has said that already.
    edited = result.decision is not None and result.decision.is_told and not result.is_error
    told = parts[1:] if edited and len(parts) > 1 else parts
    return "\n".join(told) if "".join(told).strip() else "(nothing)"


def cut_off(replied: events.Replied) -> list[Text]:
    """That a reply is not whole; nothing if it is."""
    return [marked("trouble", CUT_OFF[replied.stop])] if replied.stop in CUT_OFF else []


class EventLines:
    """Turns events into lines. It remembers the calls, so that a result's line can name its call.

    `announce`: whether a call gets a line when it is made. A spinner that names the call makes that needless.
    """

    def __init__(self, *, width: int, announce: bool = True) -> None:
        self._width = width
        self._announce = announce
        self._calls: dict[str, ToolCall] = {}
        self._refused: set[str] = set()

    def of(self, event: events.Event) -> list[Text]:
        match event:
            case events.MessageReceived():
                return [marked("user", event.message.text, style="bold")]
            case events.Replied():
                replied = [marked("assistant", event.message.text)] if event.message.text else []
                return [*replied, *cut_off(event)]
            case events.ToolCalled():
                return self._called(event)
            case events.ApprovalRequested() | events.AnswerRequested():
                if event.path:  # its agent's other events are not shown here
                    self._calls[address_of(event.path, event.call.call_id)] = event.call
                line = self._line(event.call.call_id, path=event.path)
                return [marked("waits", f"{line} waits: {folded(event.why, 200)}", indent=2)]
            case events.Decided():
                return [marked("waits", self._decided(event), indent=2)]
            case events.ToolFinished(result=result):
                return [] if self._was_told(result) else [self._finished(result)]
            case events.ToolLost():
                lost = f"{self._line(event.call_id, event.tool)} was lost: {folded(event.cause, 200)}"
                return [marked("trouble", lost, indent=2)]
            case events.HookActed():
                of = f" {self._line(event.call_id)}" if event.call_id else ""
                why = f": {folded(event.why, 200)}" if event.why else ""
                return [marked("waits", f"hook {folded(event.hook, 64)} {event.did}{of}{why}", indent=2)]
            case events.HandedOff():
                told = f"{folded(event.by, 64)} handed the conversation on to {folded(event.agent, 64)}"
                return [marked("call", told)]
            case events.Stalled():
                trouble = f"stalled in turn {event.turn}: {folded(f'{event.cause} {event.cure}', 500)}"
                return [marked("trouble", trouble)]
            case events.WorkerAwaited():
                return [marked("trouble", folded(f"{event.cause} {event.cure}", 500), indent=2)]
            case events.Switched():
                by = f" by {folded(event.by, 60)}" if event.by else ""
                return [marked("waits", f"{folded(event.name, 20)}{by}")]
            case events.Done():
                return [marked("end", outcome_line(event.outcome) if event.outcome else folded(event.why, 300))]
            case _:
                return []

    def take(self, event: events.ToolCalled) -> None:
        """Remembers a call that gets no line of its own."""
        self._calls[event.call.call_id] = event.call

    def _called(self, event: events.ToolCalled) -> list[Text]:
        self.take(event)
        line = self._line(event.call.call_id)
        if event.refused is not None:
            self._refused.add(event.call.call_id)
            return [_with_result(marked("failed", line, indent=2), folded(event.refused, self._width - len(line) - 8))]
        return [marked("call", line, indent=2)] if self._announce else []

    def _was_told(self, result: ToolResult) -> bool:
        """Whether a refusal's own line, or a person's denial, has said this already."""
        denied = (
            result.decision is not None and result.decision.verdict == "deny" and result.decision.by != names.THE_CLOCK
        )
        return denied or result.call_id in self._refused

    def _finished(self, result: ToolResult) -> Text:
        line = self._line(result.call_id, result.name)
        told = first_line(result_text(result), max(self._width - len(line) - 8, 20))
        return _with_result(marked("failed" if result.is_error else "done", line, indent=2), told)

    def _decided(self, event: events.Decided) -> str:
        said = _said(event.verdict, f"the policy of {event.by}" if event.by_policy else event.by, event.note)
        key = address_of(event.path, event.call_id) if event.path else event.call_id
        call = self._calls.get(key)
        if call and event.arguments is not None:
            edited = self._calls[key] = call.model_copy(update={"arguments": event.arguments})
            return f"{said}, as {call_line(call.name, edited.arguments, max(self._width // 2, 30))}"
        return f"{said}: {self._line_of_decided(event)}"

    def _line_of_decided(self, event: events.Decided) -> str:
        if event.call_id == names.EVERY_CALL:
            return f"{by_agents(event.path)}all that waits"
        return self._line(event.call_id, path=event.path)

    def _line(self, call_id: str, name: str = "", *, path: Sequence[AskedAgent] = ()) -> str:
        """`path`: of a sub-agent's call."""
        call = self._calls.get(address_of(path, call_id) if path else call_id)
        if call is None:
            return by_agents(path) + folded(name or call_id, 60)
        return by_agents(path) + call_line(call.name, call.arguments, max(self._width // 2, 30))


def transcript_lines(
    messages: Iterable[Message], *, width: int, max_chars: int = 0, full: bool = False, markdown: bool = False
) -> list[Text]:
    """A whole transcript. Calls and results are folded to one line each, unless `full`. Texts are in full, unless
    `max_chars` limits them. `markdown`: the model's Markdown is rendered."""
    lines: list[Text] = []
    for message in messages:
        if message.text and message.role in ("user", "assistant"):
            text = folded(message.text, max_chars) if max_chars else message.text
            shown = marked(message.role, text, style="bold" if message.role == "user" else "")
            if markdown and not max_chars and message.role == "assistant":
                shown = marked_markdown(text, width=width)
            if message.cut_short:
                shown.append(" … cut short", style="yellow")
            lines += [Text(), shown]
            if message.role == "assistant" and message.author:
                lines.insert(-1, Text(f"{folded(message.author, 64)}:", style="bold"))
        for call in message.tool_calls:
            lines.append(
                marked(
                    "call", folded(call.name, 60) if full else call_line(call.name, call.arguments, width - 6), indent=2
                )
            )
            lines += [arguments_block(call)] if full and call.arguments else []
        for result in message.tool_results:
            lines.append(_result_line(result, 0 if full else width))
            lines += [_whole(result)] if full else []
    return lines


def open_call_lines(calls: Iterable[OpenCall], *, width: int, full: bool = False) -> list[Text]:
    """What has come of the calls of a reply that is not over."""
    lines: list[Text] = []
    for one in calls:
        if one.result:
            lines.append(_result_line(one.result, 0 if full else width))
            lines += [_whole(one.result)] if full else []
        else:
            mark = "waits" if one.state == "waits" else "open"
            lines.append(marked(mark, f"{folded(one.call.name, 40)} {IN_WORDS[one.state]}", indent=4))
    return lines


def marked_markdown(text: str, *, width: int) -> Text:
    """The assistant's Markdown, rendered, with its mark in front."""
    from everturn.cli.markdown_text import markdown_lines

    return marked("assistant", Text("\n  ").join(markdown_lines(text, width=width - 2)))


def _whole(result: ToolResult) -> Text:
    return Text("\n".join(" " * 6 + line for line in printable(result_text(result)).splitlines()))


def outcome_line(outcome: Outcome) -> str:
    """`completed · 4 turns · 3 tool calls · 1,125 tokens`"""
    facts = [outcome.status.replace("_", " ")]
    if outcome.reason:
        facts.append(folded(outcome.reason, 200))
    facts += [count(outcome.turns, "turn"), count(outcome.tool_calls, "tool call")]
    facts.append(f"{outcome.usage.total_tokens:,} tokens")
    if outcome.cost_usd:
        facts.append(f"{in_dollars(outcome.cost_usd)} USD")
    return " · ".join(facts)


def columns(heading: Sequence[str], rows: Sequence[Sequence[Text | str]]) -> list[Text]:
    """A table whose cells are never cut: a cut id could not be copied."""
    cells = [[Text(name, style="dim") for name in heading]]
    cells += [[cell if isinstance(cell, Text) else Text(printable(cell)) for cell in row] for row in rows]
    widths = [max(row[index].cell_len for row in cells) for index in range(len(heading))]
    lines = []
    for row in cells:
        line = Text()
        for cell, width in zip(row, widths, strict=True):
            line.append_text(cell).append(" " * (width - cell.cell_len + 2))
        line.rstrip()
        lines.append(line)
    return lines


def _result_line(result: ToolResult, width: int) -> Text:
    line = marked("failed" if result.is_error else "done", Text(f"{folded(result.name, 40)} "), indent=4)
    if decision := result.decision:
        line.append(f"[{_who(decision)}] ", style="yellow")
    if not width:  # the text goes below
        return line
    return line.append(first_line(result_text(result), max(width - line.cell_len, 20)), style="dim")


def _who(decision: Decision) -> str:
    said = _said(decision.verdict, decision.by, decision.note)
    if decision.arguments is None:
        return said
    return f"{said}, with {folded(json.dumps(decision.arguments, ensure_ascii=False), 200)}"


def _said(verdict: str, by: str, note: str | None) -> str:
    said = VERDICTS.get(verdict, folded(verdict, 20))
    return said + (f" by {folded(by, 60)}" if by else "") + (f" ({folded(note, 200)})" if note else "")


def _with_result(line: Text, told: str) -> Text:
    return line.append("  ").append(told, style="dim")


def count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
