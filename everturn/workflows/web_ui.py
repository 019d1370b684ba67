"""What the Temporal Web UI shows of a conversation without opening a payload. Pure functions.

The Web UI renders Markdown, so what models, tools and people wrote goes through text/markdown.py: it may not look like
ours.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence

from pydantic import JsonValue

from everturn import names
from everturn.calls.decision_records import VERDICTS
from everturn.payloads import Status, WaitingCall
from everturn.records import Decision, Message, in_dollars
from everturn.sizes import SUMMARY_BYTES
from everturn.text.markdown import block, code, inline, summary_bytes, written_json
from everturn.text.printable import printable_line
from everturn.text.shortening import clipped

SUMMARY_CHARS = 80
MESSAGE_CHARS = 200
ARGUMENTS_CHARS = 2_000
CAUSE_CHARS = 1_000
LATEST_LINES = 5
SHOWN_CALLS = 5
"""Calls that wait, or agents at work, that are shown whole, and calls of a message; of the others, only the number."""

MARKS = {
    "running": "▶️",
    "awaiting_approval": "✋",
    "awaiting_answer": "❓",
    "stalled": "🛑",
    "paused": "⏸️",
    "idle": "💤",
    "done": "✅",
}
_INDENTED = json.JSONEncoder(ensure_ascii=False, indent=2)
MOST_BYTES_A_CHARACTER = 6
"""Of a character as JSON."""


def one_line(text: str, limit: int = SUMMARY_CHARS) -> str:
    """The text on one line, at most `limit` characters long."""
    line = " ".join(text[: 2 * limit].split())  # of a long text, what can be shown
    if len(text) > 2 * limit:
        line += "…"
    return clipped(line, limit)


def summary_line(text: str) -> str:
    """One line that Temporal takes as a summary, whatever letters it is written in."""
    line = printable_line(text)
    if MOST_BYTES_A_CHARACTER * len(line) <= SUMMARY_BYTES or summary_bytes(line) <= SUMMARY_BYTES:
        return line
    while summary_bytes(f"{line}…") > SUMMARY_BYTES:
        line = line[: len(line) * 19 // 20]
    return f"{line}…"


def call_summary(
    tool: str,
    arguments: Mapping[str, JsonValue],
    decision: Decision | None = None,
    *,
    changed_by: str = "",
    visibility: names.VisibilityLevel = "full",
    beside: str = "",
) -> str:
    """A call as one would write it, and who allowed or changed it: `refund(order_id="81", cents=1200) · approved by
    ada`. `changed_by`: the hooks that did. `beside`: the name that the Web UI shows before it. If that is the tool's,
    it is not said twice, and the summary may be empty."""
    named = beside != tool
    if visibility == "minimal":
        return summary_line(one_line(tool)) if named else ""
    written = ", ".join(f"{name}={_short_json(value)}" for name, value in arguments.items())
    words = [one_line(f"{tool}({written})" if named else written)]
    if changed_by:
        words.append(f"changed by {one_line(changed_by, 40)}")
    if decision:
        words.append(_decision_words(decision))
    return summary_line(" · ".join(filter(None, words)))


def _short_json(value: JsonValue) -> str:
    """As JSON; of a long text, more than is shown."""
    if isinstance(value, str):
        value = value[: 2 * SUMMARY_CHARS]
    return json.dumps(value, ensure_ascii=False)


def _decision_words(decision: Decision) -> str:
    verdict = VERDICTS[decision.verdict]
    decided_by = one_line(decision.by, 40)
    if decision.by_policy:
        return f"{verdict} by the policy of {decided_by}" if decided_by else f"{verdict} by its policy"
    if decision.by_model:
        return f"{verdict} by the reviewer {decided_by}"
    if decision.arguments is not None:
        verdict = f"edited and {verdict}"
    return f"{verdict} by {decided_by}" if decided_by else verdict


def turn_summary(
    turn: int, model: str, *, agent: str = "", summarise: bool = False, delta: Iterable[Message] = ()
) -> str:
    """`turn 3 · claude-sonnet-5`; without the model if nobody has said yet which one it is. `agent`: who is in charge,
    if the conversation was handed on: `turn 3 · billing · claude-sonnet-5`. `delta`: what the model is told now. The
    line names the tools that failed, since the Web UI shows their activities as completed: `turn 3 · gpt-5.5 · refund
    failed`."""
    what = "a summary" if summarise else f"turn {turn}"
    name = model.partition(":")[2] or model
    line = one_line(" · ".join(word for word in (what, one_line(agent, 40), name) if word))
    if failed := ", ".join(dict.fromkeys(_failed_tools(delta))):
        line += f" · {one_line(failed, 40)} failed"
    return summary_line(line)


def _failed_tools(delta: Iterable[Message]) -> Iterator[str]:
    for result in (result for message in delta for result in message.tool_results):
        if result.is_error and not (result.decision and result.decision.verdict == "deny"):
            yield result.name or "a tool"


def current_details(
    status: Status, *, conversation_id: str, agent: str, model: str = "", latest_lines: Sequence[str] = ()
) -> str:
    """Markdown: what goes on, what waits for whom, the exact updates to send, and the `latest_lines` of the
    transcript."""
    blocks = [f"## {MARKS[status.state]} {inline(agent)}: {_state_words(status.state)}", _facts_line(status, model)]
    if status.cause:
        cause = one_line(status.cause, CAUSE_CHARS)
        cure = one_line(status.cure or "see the cause", CAUSE_CHARS)
        blocks += [f"**Cause:** {inline(cause)}", f"**Cure:** {inline(cure)}"]
    if status.state in ("stalled", "paused"):
        blocks += _update_text("To go on", names.RESUME, {}), *_in_a_terminal(conversation_id, names.RESUME, {})
    for call in status.waiting[:SHOWN_CALLS]:
        blocks += _waiting_call(call)
    if status.waiting:
        first = status.waiting[0]
        name, payload = next(_possible_decisions(first))[1:]
        blocks += _in_a_terminal(conversation_id, name, payload)
    if len(status.waiting) > 1:
        every_call = code(_json_text({"call_id": names.EVERY_CALL}))
        blocks += [f"{len(status.waiting)} calls wait. {every_call} decides on all of them."]
    for child in status.agents[:SHOWN_CALLS]:
        blocks += [f"### {code(child.agent)} is at work: see conversation {code(child.conversation_id)}"]
    if more := status.agents[SHOWN_CALLS:]:
        blocks += [f"{len(more)} more agents are at work."]
    if latest_lines:
        blocks += ["### Latest messages", "\n".join(f"- {line}" for line in latest_lines)]
    return "\n\n".join(blocks)


def without_content(status: Status) -> Status:
    """What goes on, without what anybody said or wrote."""
    waiting = tuple(call.model_copy(update={"arguments": {}, "why": ""}) for call in status.waiting)
    cause = "its status says what" if status.cause else None
    return status.model_copy(update={"waiting": waiting, "cause": cause, "cure": None})


def _facts_line(status: Status, model: str) -> str:
    usage = status.usage
    facts = [f"Turn {status.turn}"]
    if model:
        facts.append(code(model))
    facts.append(f"{usage.input_tokens:,} tokens in, {usage.output_tokens:,} out")
    if status.cost_usd:
        facts.append(f"{in_dollars(status.cost_usd)} USD")
    return " · ".join(facts)


def _waiting_call(call: WaitingCall) -> Iterator[str]:
    until = f", until {call.expires_at}" if call.expires_at else ""
    reason = call.why or f"for an {call.needs}"
    yield f"### {code(one_line(call.tool))} waits{until}: {inline(one_line(reason, CAUSE_CHARS))}"
    if call.arguments:
        yield block("json", _json_beginning(call.arguments))
    for reason, name, payload in _possible_decisions(call):
        yield _update_text(reason, name, payload)


def _json_beginning(arguments: Mapping[str, JsonValue]) -> str:
    """As JSON, and no more of it than is shown: a reply can have 1.5 MB of them, and a workflow task 2 s."""
    pieces: list[str] = []
    size = 0
    for piece in _INDENTED.iterencode(arguments):
        pieces.append(piece[: ARGUMENTS_CHARS + 1])
        if (size := size + len(piece)) > ARGUMENTS_CHARS:
            return f"{''.join(pieces)[:ARGUMENTS_CHARS]}\n[Cut: the first {ARGUMENTS_CHARS:,} characters are shown.]"
    return "".join(pieces)


def _possible_decisions(call: WaitingCall) -> Iterator[tuple[str, str, dict[str, str]]]:
    """What a person can do about a call: in words, the signal's name, and its input."""
    this = {"call_id": call.call_id}
    if call.needs == "approval":
        yield "To approve it", names.APPROVE, this
    else:
        yield "To answer it", names.ANSWER, {**this, "content": "the result"}
    yield "To deny it", names.DENY, {**this, "reason": "why not"}


def _update_text(purpose: str, name: str, payload: Mapping[str, str]) -> str:
    # An update says if it was not taken, and why; a signal says nothing.
    # The input is alone, for it is copied; and it is short, for the Web UI cuts long lines off.
    input_block = block("json", _json_text(payload))
    return f"{purpose}: *More Actions*, *Send an Update*, `{name}`, with this input:\n\n{input_block}"


def _in_a_terminal(conversation_id: str, name: str, payload: Mapping[str, str]) -> Iterator[str]:
    yield "Or in a terminal:"
    options = {"workflow-id": conversation_id, "name": name, "input": _json_text(payload)}
    lines = (f"  --{option} {shlex.quote(value)}" for option, value in options.items())
    yield block("sh", " \\\n".join(["temporal workflow update execute", *lines]))
    yield f"A signal `{name}` does the same, but does not say whether it was accepted."


def message_lines(messages: Iterable[Message]) -> Iterator[str]:
    """The messages in short: a line for each, and for each result."""
    for message in messages:
        if results := message.tool_results:
            for result in results:
                tool = result.name or "tool"
                yield _message_line(f"{tool} failed" if result.is_error else tool, result.text)
        else:
            calls = message.tool_calls
            words = [_message_line(message.author or message.role, message.text)]
            words += [code(call_summary(call.name, call.arguments)) for call in calls[:SHOWN_CALLS]]
            if len(calls) > SHOWN_CALLS:
                words.append(f"and {len(calls) - SHOWN_CALLS} more")
            yield " ".join(words)


def _message_line(who: str, text: str) -> str:
    return f"**{inline(one_line(who))}:** {inline(one_line(text, MESSAGE_CHARS))}".rstrip()


def _state_words(state: str) -> str:
    return state.replace("_", " ")


def _json_text(payload: Mapping[str, str]) -> str:
    return written_json(payload)
