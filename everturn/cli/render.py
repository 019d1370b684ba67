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
from everturn.calls.decision_records import VERDICTS
from everturn.history.open_calls import IN_WORDS, OpenCall
from everturn.payloads import AskedAgent, WaitingCall, address_of
from everturn.records import CUT_OFF, Decision, Message, Outcome, ToolCall, ToolResult, in_dollars
from everturn.records import Text as RecordText
from everturn.subagents.call_addresses import shortest_name
from everturn.text.printable import printable, printable_line
from everturn.text.shortening import clipped

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
    "batched": "cyan",
    "done": "green",
}


def one_line(text: str, limit: int) -> str:
    """The text on one line of at most `limit` characters."""
    return clipped(printable_line(text), limit)


def first_line(text: str, limit: int) -> str:
    """A text's first line, and how many more there are: at most `limit` characters."""
    lines = [line for line in printable(text).splitlines() if line.strip()]
    if not lines:
        return ""
    more = f" … {format_count(len(lines) - 1, 'more line')}" if len(lines) > 1 else ""
    return one_line(lines[0], max(limit - len(more), 20)) + more


def with_lead(lead: str, text: str, limit: int) -> str:
    """`one_line` of the text after the lead; empty if there is no text."""
    if not text:
        return ""
    return lead + one_line(text, limit)


def call_line(name: str, arguments: Mapping[str, Any], limit: int) -> str:
    """A call as in Python: `refund(order_id="81", cents=1200)`."""
    written = ", ".join(f"{key}={json.dumps(value, ensure_ascii=False)}" for key, value in arguments.items())
    return one_line(f"{name}({written})", limit)


def marked_text(kind: str, text: str | Text, *, indent: int = 0, style: str = "") -> Text:
    """A text with a mark in front. Its further lines are indented below the first."""
    line = Text(" " * indent)
    line.append(MARKS[kind], style=_STYLES[kind])
    if isinstance(text, str):
        text = Text(printable(text).replace("\n", "\n" + " " * (indent + 2)), style=style)
    return line.append(" ").append_text(text)


def arguments_block(call: ToolCall) -> Text:
    """All of the arguments, in full: a person who approves a call has to see what it will do."""
    written = printable(json.dumps(call.arguments, ensure_ascii=False, indent=2))
    return Text("\n".join("    " + line for line in written.splitlines()))


def ways_to_decide(conversation_id: str, call: WaitingCall, waiting: Iterable[WaitingCall]) -> list[str]:
    """The commands that decide on the call, one of those `waiting` there. If it may have run already, a second one
    gives its result instead."""
    place = place_of(conversation_id, call, waiting)
    approve = f"everturn approve {place}"
    answer = f"everturn answer {place} CONTENT"
    if call.needs == "answer":
        return [answer]
    if call.reason == "outcome_unknown":
        return [approve, answer]
    return [approve]


def place_of(conversation_id: str, call: WaitingCall, waiting: Iterable[WaitingCall]) -> str:
    """The conversation and the call, as commands take them."""
    return shlex.join([conversation_id, shortest_name(call, waiting)])


def path_prefix(path: Iterable[AskedAgent]) -> str:
    """The agents that led to a call, before its name: `helper › auditor › `. Empty for the conversation's own."""
    return "".join(f"{one_line(step.agent, 64)} › " for step in path)


def result_text(result: ToolResult) -> str:
    parts = [part.text if isinstance(part, RecordText) else f"[{part.kind}]" for part in result.content]
    # After an edit, the first part tells the model of it. The decision's own line has said that already.
    edited = result.decision is not None and result.decision.is_told and not result.is_error
    if edited and len(parts) > 1:
        parts = parts[1:]
    if not "".join(parts).strip():
        return "(nothing)"
    return "\n".join(parts)


def cut_off(replied: events.Replied) -> list[Text]:
    """That a reply is not whole; nothing if it is."""
    if replied.stop not in CUT_OFF:
        return []
    return [marked_text("trouble", CUT_OFF[replied.stop])]


class EventLines:
    """Turns events into lines. It remembers the calls, so that a result's line can name its call.

    `announce`: whether a call gets a line when it is made. A spinner that names the call makes that needless.
    """

    def __init__(self, *, width: int, announce: bool = True) -> None:
        self._width = width
        self._announce = announce
        self._calls: dict[str, ToolCall] = {}
        self._refused: set[str] = set()

    def lines_for(self, event: events.Event) -> list[Text]:
        match event:
            case events.MessageReceived():
                return [marked_text("user", event.message.text, style="bold")]
            case events.Replied():
                if not event.message.text:
                    return cut_off(event)
                return [marked_text("assistant", event.message.text), *cut_off(event)]
            case events.ToolCalled():
                return self._call_lines(event)
            case events.ApprovalRequested() | events.AnswerRequested():
                if event.path:  # its agent's other events are not shown here
                    self._calls[address_of(event.path, event.call.call_id)] = event.call
                line = self._call_text(event.call.call_id, path=event.path)
                return [marked_text("waits", f"{line} waits: {one_line(event.why, 200)}", indent=2)]
            case events.Decided():
                return [marked_text("waits", self._decision_line(event), indent=2)]
            case events.ToolFinished(result=result):
                if self._was_told(result):
                    return []
                return [self._finished_line(result)]
            case events.ToolLost():
                lost = f"{self._call_text(event.call_id, event.tool)} was lost: {one_line(event.cause, 200)}"
                return [marked_text("trouble", lost, indent=2)]
            case events.HookActed():
                call_text = f" {self._call_text(event.call_id)}" if event.call_id else ""
                hook = f"hook {one_line(event.hook, 64)} {event.did}{call_text}"
                return [marked_text("waits", hook + with_lead(": ", event.why, 200), indent=2)]
            case events.HandedOff():
                handoff = f"{one_line(event.by, 64)} handed the conversation on to {one_line(event.agent, 64)}"
                return [marked_text("call", handoff)]
            case events.Stalled():
                trouble = f"stalled in turn {event.turn}: {one_line(f'{event.cause} {event.cure}', 500)}"
                return [marked_text("trouble", trouble)]
            case events.TurnBatched(batch_id=batch_id, provider=provider):
                batch = with_lead("batch ", batch_id, 100) or with_lead("the next batch of ", provider, 64)
                return [marked_text("waits", f"turn {event.turn} waits for {batch}", indent=2)]
            case events.WorkerAwaited():
                return [marked_text("trouble", one_line(f"{event.cause} {event.cure}", 500), indent=2)]
            case events.Switched():
                return [marked_text("waits", one_line(event.name, 20) + with_lead(" by ", event.by, 60))]
            case events.Done():
                if event.outcome is None:
                    return [marked_text("end", one_line(event.why, 300))]
                return [marked_text("end", outcome_line(event.outcome))]
            case _:
                return []

    def remember_call(self, event: events.ToolCalled) -> None:
        """Remembers a call that gets no line of its own."""
        self._calls[event.call.call_id] = event.call

    def _call_lines(self, event: events.ToolCalled) -> list[Text]:
        self.remember_call(event)
        line = self._call_text(event.call.call_id)
        if event.refused is not None:
            self._refused.add(event.call.call_id)
            refusal = one_line(event.refused, self._width - len(line) - 8)
            return [_with_result(marked_text("failed", line, indent=2), refusal)]
        if not self._announce:
            return []
        return [marked_text("call", line, indent=2)]

    def _was_told(self, result: ToolResult) -> bool:
        """Whether a refusal's own line, or a person's denial, has said this already."""
        denied = (
            result.decision is not None and result.decision.verdict == "deny" and result.decision.by != names.THE_CLOCK
        )
        return denied or result.call_id in self._refused

    def _finished_line(self, result: ToolResult) -> Text:
        line = self._call_text(result.call_id, result.name)
        summary = first_line(result_text(result), max(self._width - len(line) - 8, 20))
        return _with_result(marked_text(_result_mark(result), line, indent=2), summary)

    def _decision_line(self, event: events.Decided) -> str:
        decided_by = event.by
        if event.by_policy:
            decided_by = f"the policy of {event.by}"
        elif event.by_model:
            decided_by = f"the reviewer {event.by}, no person"
        verdict = _verdict_words(event.verdict, decided_by, event.note)
        key = _call_key(event.call_id, event.path)
        call = self._calls.get(key)
        if call and event.arguments is not None:
            edited = self._calls[key] = call.model_copy(update={"arguments": event.arguments})
            return f"{verdict}, as {call_line(call.name, edited.arguments, max(self._width // 2, 30))}"
        return f"{verdict}: {self._line_of_decided(event)}"

    def _line_of_decided(self, event: events.Decided) -> str:
        if event.call_id == names.EVERY_CALL:
            return f"{path_prefix(event.path)}all that waits"
        return self._call_text(event.call_id, path=event.path)

    def _call_text(self, call_id: str, name: str = "", *, path: Sequence[AskedAgent] = ()) -> str:
        """`path`: of a sub-agent's call."""
        call = self._calls.get(_call_key(call_id, path))
        if call is None:
            return path_prefix(path) + one_line(name or call_id, 60)
        return path_prefix(path) + call_line(call.name, call.arguments, max(self._width // 2, 30))


def _call_key(call_id: str, path: Sequence[AskedAgent]) -> str:
    return address_of(path, call_id) if path else call_id


def transcript_lines(
    messages: Iterable[Message], *, width: int, max_chars: int = 0, full: bool = False, markdown: bool = False
) -> list[Text]:
    """A whole transcript. Calls and results are folded to one line each, unless `full`. Texts are in full, unless
    `max_chars` limits them. `markdown`: the model's Markdown is rendered."""
    lines: list[Text] = []
    for message in messages:
        if message.text and message.role in ("user", "assistant"):
            text = message.text
            if max_chars:
                text = one_line(text, max_chars)
            block = marked_text(message.role, text, style="bold" if message.role == "user" else "")
            if markdown and not max_chars and message.role == "assistant":
                block = marked_markdown(text, width=width)
            if message.cut_short:
                block.append(" … cut short", style="yellow")
            lines += [Text(), block]
            if message.role == "assistant" and message.author:
                lines.insert(-1, Text(f"{one_line(message.author, 64)}:", style="bold"))
        for call in message.tool_calls:
            lines += _transcript_call(call, width, full=full)
        for result in message.tool_results:
            lines += _transcript_result(result, width, full=full)
    return lines


def _transcript_call(call: ToolCall, width: int, *, full: bool) -> list[Text]:
    if not full:
        return [marked_text("call", call_line(call.name, call.arguments, width - 6), indent=2)]
    line = marked_text("call", one_line(call.name, 60), indent=2)
    if not call.arguments:
        return [line]
    return [line, arguments_block(call)]


def _transcript_result(result: ToolResult, width: int, *, full: bool) -> list[Text]:
    if full:
        return [_result_line(result, 0), _full_result(result)]
    return [_result_line(result, width)]


def open_call_lines(calls: Iterable[OpenCall], *, width: int, full: bool = False) -> list[Text]:
    """What has come of the calls of a reply that is not over."""
    lines: list[Text] = []
    for open_call in calls:
        if open_call.result:
            lines += _transcript_result(open_call.result, width, full=full)
        else:
            mark = "waits" if open_call.state == "waits" else "open"
            name = one_line(open_call.call.name, 40)
            lines.append(marked_text(mark, f"{name} {IN_WORDS[open_call.state]}", indent=4))
    return lines


def marked_markdown(text: str, *, width: int) -> Text:
    """The assistant's Markdown, rendered, with its mark in front."""
    from everturn.cli.markdown_text import markdown_lines

    return marked_text("assistant", Text("\n  ").join(markdown_lines(text, width=width - 2)))


def _full_result(result: ToolResult) -> Text:
    return Text("\n".join(" " * 6 + line for line in printable(result_text(result)).splitlines()))


def outcome_line(outcome: Outcome) -> str:
    """`completed · 4 turns · 3 tool calls · 1,125 tokens`"""
    facts = [outcome.status.replace("_", " ")]
    if outcome.reason:
        facts.append(one_line(outcome.reason, 200))
    facts += [format_count(outcome.turns, "turn"), format_count(outcome.tool_calls, "tool call")]
    facts.append(f"{outcome.usage.total_tokens:,} tokens")
    if outcome.cost_usd:
        facts.append(f"{in_dollars(outcome.cost_usd)} USD")
    return " · ".join(facts)


def table_lines(heading: Sequence[str], rows: Sequence[Sequence[Text | str]]) -> list[Text]:
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
    line = marked_text(_result_mark(result), Text(f"{one_line(result.name, 40)} "), indent=4)
    if decision := result.decision:
        line.append(f"[{_decision_words(decision)}] ", style="yellow")
    if not width:  # the text goes below
        return line
    return line.append(first_line(result_text(result), max(width - line.cell_len, 20)), style="dim")


def _result_mark(result: ToolResult) -> str:
    return "failed" if result.is_error else "done"


def _decision_words(decision: Decision) -> str:
    words = _verdict_words(decision.verdict, decision.by, decision.note)
    if decision.arguments is None:
        return words
    return f"{words}, with {one_line(json.dumps(decision.arguments, ensure_ascii=False), 200)}"


def _verdict_words(verdict: str, decided_by: str, note: str | None) -> str:
    words = VERDICTS.get(verdict, one_line(verdict, 20)) + with_lead(" by ", decided_by, 60)
    if note:
        words += f" ({one_line(note, 200)})"
    return words


def _with_result(line: Text, summary: str) -> Text:
    return line.append("  ").append(summary, style="dim")


def format_count(number: int, noun: str) -> str:
    if number == 1:
        return f"{number} {noun}"
    return f"{number} {noun}s"
