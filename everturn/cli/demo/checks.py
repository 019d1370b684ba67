"""Checks that everything really happened: the files on the disk against the transcript, line by line.

Effects are checked strictly, whichever model played: what was reported as done is on the disk exactly once, and nothing
else is. What the model decides to do is known beforehand only for the scripted model.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from everturn.cli.demo.kill import JOURNAL, Kill
from everturn.records import Message, ToolCall, ToolResult, results_in

if TYPE_CHECKING:
    from everturn.cli.demo.stage import Stage

BOOKINGS: Final = {"2026-101": 20340, "2026-102": 50895, "2026-103": 17675, "2026-105": 76200}
"""The cents of each invoice that adds up."""
SUM: Final = "1,651.10"
DUE: Final = "2026-102"


@dataclass(frozen=True)
class Check:
    happened: bool
    text: str


@dataclass(frozen=True)
class PlayedDemo:
    """A demo that was played, with everything to check."""

    conversation_id: str
    chain_id: str
    messages: Sequence[Message]
    kill: Kill | None
    second_tries: Sequence[datetime]

    def effective_calls(self, tool: str) -> Iterator[tuple[ToolCall, ToolResult]]:
        """The calls of a tool that took effect, each with its result."""
        results = results_in(self.messages)
        for message in self.messages:
            for call in message.tool_calls:
                result = results.get(call.call_id)
                if call.name == tool and result is not None and not result.is_error:
                    yield call, result


def check_demo(stage: Stage, played: PlayedDemo) -> list[Check]:
    return [
        _check_kill(played),
        _check_journal(stage, played),
        _check_payments(stage, played),
        _check_report(stage, played),
        _check_transcript(played),
    ]


def _check_kill(played: PlayedDemo) -> Check:
    kill = played.kill
    if kill is None:
        return Check(False, "the worker was to be killed in the middle of a tool, but the moment never came")
    after = [(moment - kill.killed_at).total_seconds() for moment in played.second_tries]
    if kill.status != -9 or not after:
        return Check(False, f"the worker ended with {kill.status}, and {len(after)} calls were run again")
    calls = "1 call was" if len(after) == 1 else f"{len(after)} calls were"
    return Check(True, f"the worker was killed (SIGKILL); {calls} run again, {min(after):.1f} s after the kill")


def _check_journal(stage: Stage, played: PlayedDemo) -> Check:
    rows = stage.read_rows(JOURNAL)
    wanted = [
        (_journal_key(played, call), *_effective_arguments(call, result, "invoice", "cents"))
        for call, result in played.effective_calls("book")
    ]
    there = [(key, invoice, cents) for key, invoice, _, cents in rows]
    booked = {invoice: int(cents) for _, invoice, cents in there}
    once = Counter(there) == Counter(wanted) and len(wanted) > 0
    if not once or (stage.is_scripted and booked != BOOKINGS):
        return Check(False, f"{JOURNAL} has {_list_rows(there)}, where there should be {_list_rows(wanted)}, each once")
    before = 0
    if played.kill:
        before = played.kill.lines_before
    when = f"{before} before the kill, {len(rows) - before} after"
    return Check(True, f"{len(rows)} effects in {JOURNAL} for {len(wanted)} bookings, each exactly once ({when})")


def _check_payments(stage: Stage, played: PlayedDemo) -> Check:
    rows = stage.read_rows("payments.csv")
    paid = list(played.effective_calls("pay"))
    wanted = [
        (_journal_key(played, call), *_effective_arguments(call, result, "invoice", "iban", "cents"))
        for call, result in paid
    ]
    denied = any(
        result.name == "pay" and result.decision and result.decision.verdict != "approve"
        for result in results_in(played.messages).values()
    )
    there = [tuple(row) for row in rows]
    expected = not stage.is_scripted or denied or [row[1] for row in rows] == [DUE]
    unapproved = [call.call_id for call, result in paid if not result.decision]
    if Counter(there) != Counter(wanted) or not expected or unapproved:
        return Check(
            False, f"payments.csv has {_list_rows(there)}, where there should be {_list_rows(wanted)}, each approved"
        )
    if not rows:
        return Check(True, "0 payments in payments.csv: none was approved")
    count = "1 payment" if len(rows) == 1 else f"{len(rows)} payments"
    return Check(True, f"{count} in payments.csv, approved and made exactly once")


def _check_report(stage: Stage, played: PlayedDemo) -> Check:
    path = stage.books / "report.md"
    written = [
        str(_effective_arguments(call, result, "markdown")[0])
        for call, result in played.effective_calls("write_report")
    ]
    wrong = Check(False, "report.md is not what the model wrote")
    if not written or not path.exists():
        return wrong
    text = path.read_text()
    if text != written[-1] or (stage.is_scripted and SUM not in text):
        return wrong
    sum_note = f", with the sum of {SUM} EUR" if SUM in text else ""
    return Check(True, f"report.md is there, {len(text.splitlines())} lines{sum_note}")


def _check_transcript(played: PlayedDemo) -> Check:
    """Each reply's calls are answered in their order, in the very next message; and a reply in words ends it."""
    calls = 0
    for message, following in zip(played.messages, [*played.messages[1:], None], strict=True):
        call_ids = [call.call_id for call in message.tool_calls]
        calls += len(call_ids)
        result_ids: list[str] = []
        if following:
            result_ids = [result.call_id for result in following.tool_results]
        if call_ids and call_ids != result_ids:
            return Check(False, f"the transcript lacks a pair: {call_ids} were asked for, {result_ids} came back")
    unfinished = Check(False, "the transcript does not end with a reply in words")
    if not played.messages:
        return unfinished
    last = played.messages[-1]
    if last.role != "assistant" or last.tool_calls or not last.text:
        return unfinished
    return Check(True, f"the transcript is complete: {len(played.messages)} messages, {calls} calls, {calls} results")


def _journal_key(played: PlayedDemo, call: ToolCall) -> str:
    return f"{played.conversation_id}:{played.chain_id}:{call.call_id}"


def _effective_arguments(call: ToolCall, result: ToolResult, *names: str) -> tuple[str, ...]:
    """The arguments that the call ran with: the model's, or those that a person put in their place."""
    arguments: dict[str, Any] = call.arguments
    if result.decision and result.decision.arguments is not None:
        arguments = result.decision.arguments
    return tuple(str(arguments.get(name)) for name in names)


def _list_rows(rows: Sequence[tuple[str, ...]]) -> str:
    return "; ".join(" ".join(row) for row in rows) or "nothing"
