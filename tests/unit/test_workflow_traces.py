"""What a conversation notes for whoever traces it, and which of it a model turn, a call and the next run are given."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from temporalio import workflow
from temporalio.api.common.v1 import Payload
from temporalio.exceptions import ActivityError, ApplicationError
from temporalio.exceptions import TimeoutError as TimedOut

from everturn import names
from everturn.calls.pending_calls import PendingCall
from everturn.carryover import CarryOver, QuestionToPerson
from everturn.payloads import ModelReply, Start
from everturn.plans import RunTool
from everturn.records import Decision, Message, ToolCall, ToolResult, Usage
from everturn.sizes import MAX_SPAN_NAME_BYTES, MAX_WAITS_BYTES, size_of
from everturn.state import State
from everturn.storage.data_converter import data_converter
from everturn.tracing import MAX_LINKS, MAX_OVER, CarriedTrace, TraceContext, WaitSpan
from everturn.workflows.tracing import HEADER, Tracing
from tests.support.activity_errors import activity_error

CALLER = TraceContext(traceparent=f"00-{'a' * 32}-{'b' * 16}-01", tracestate="of=caller")
OTHER = TraceContext(traceparent=f"00-{'c' * 32}-{'d' * 16}-01", tracestate="of=other")
CALL = ToolCall(call_id="c1", name="pay")
PENDING = PendingCall(CALL, RunTool(call_id="c1"), QuestionToPerson(call_id="c1", reason="needs_approval", since=5.0))
FINAL = Message(role="assistant", parts=())


class Conversation:
    """One that is traced. Its clock stands at 100."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        self.headers: dict[str, Payload] = {}
        self.exported: list[Any] = []
        self.export_fails = False
        self.state = State(Start(agent="clerk"), run_began=0.0)
        self.state.turn = 3
        monkeypatch.setattr(workflow, "time", lambda: self.now)
        monkeypatch.setattr(workflow, "info", lambda: SimpleNamespace(headers=self.headers))
        monkeypatch.setattr(workflow, "payload_converter", lambda: data_converter.payload_converter)
        monkeypatch.setattr(workflow, "execute_local_activity", self._export)

    async def _export(self, name: str, rest: Any, **options: Any) -> None:
        self.exported.append((name, rest, options))
        if self.export_fails:
            raise ApplicationError("its exporter hangs")

    def traced(self, *, caller: TraceContext | None = None, carried: CarriedTrace | None = None) -> Tracing:
        start = Start(agent="clerk", trace=caller)
        return Tracing(self.state, start, CarryOver(trace=carried), chain_id="chain")

    def after(self, traced: Any, *, caller: TraceContext | None = None, answering: bool = True) -> Tracing:
        """With an answer at hand, whose last turn said so of its traces."""
        one = self.traced(caller=caller)
        if answering:
            one.begin_answer()
        if traced != "unknown":
            said = None if traced == "off" else traced
            one.take_reply(ModelReply(message=FINAL, traced=said), ends=False)
        return one


@pytest.fixture
def conversation(monkeypatch: pytest.MonkeyPatch) -> Conversation:
    return Conversation(monkeypatch)


def waits(one: Tracing) -> tuple[WaitSpan, ...]:
    carried = one.carried()
    assert carried
    return carried.trace.waits


# ---------------------------------------------------------------- the answer at hand


async def test_an_answer_begins_once_and_counts_what_is_spent_from_then_on(conversation: Conversation) -> None:
    conversation.state.totals.add_usage(Usage(input_tokens=10), 0.5)
    one = conversation.traced()
    conversation.state.totals.add_usage(Usage(input_tokens=5), 0.25)
    one.begin_answer()
    conversation.state.totals.add_usage(Usage(input_tokens=3), 0.125)
    conversation.now, conversation.state.turn = 200.0, 4
    one.begin_answer()
    given = one.of_turn()
    assert given
    assert given.answer
    assert (given.answer.turn, given.answer.since) == (4, 100.0)
    assert (given.answer.usage.input_tokens, given.answer.cost_usd) == (3, 0.125)


@pytest.mark.parametrize("unknown", ["before", "since"])
async def test_what_an_answer_costs_is_not_known_if_a_price_is_not(unknown: str, conversation: Conversation) -> None:
    one = conversation.traced()
    if unknown == "before":
        conversation.state.totals.add_usage(Usage(), None)
    one.begin_answer()
    conversation.state.totals.add_usage(Usage(), None if unknown == "since" else 0.5)
    given = one.of_turn()
    assert given
    assert given.answer
    assert given.answer.cost_usd is None


async def test_the_next_run_goes_on_with_the_answer_at_hand(conversation: Conversation) -> None:
    one = conversation.after("sampled", caller=CALLER)
    conversation.state.totals.add_usage(Usage(input_tokens=3), 0.125)
    one.note_wait(PENDING, None)
    one.note_message(OTHER)
    one.begin_answer()
    next_one = conversation.traced(carried=one.carried())
    assert next_one.carried() == one.carried()
    conversation.state.totals.add_usage(Usage(input_tokens=4), 0.125)
    assert next_one.of_turn() == one.of_turn()
    assert next_one.of_call() == one.of_call()
    given = next_one.of_turn()
    assert given
    assert given.answer
    assert (given.answer.usage.input_tokens, given.answer.cost_usd) == (7, 0.25)
    assert [link.trace_id for link in given.answer.links] == ["c" * 32]


async def test_the_next_run_knows_that_nothing_is_traced_by_itself(conversation: Conversation) -> None:
    assert conversation.after("off").carried() is None
    assert conversation.after("off", caller=CALLER).carried()
    assert conversation.after("unknown").carried()


@pytest.mark.parametrize(
    ("ends", "cut_short", "left"), [(True, False, False), (False, False, True), (True, True, True)]
)
async def test_an_answer_ends_with_its_last_reply(
    ends: bool, cut_short: bool, left: bool, conversation: Conversation
) -> None:
    one = conversation.after("unknown")
    message = Message(role="assistant", parts=(), cut_short=cut_short)
    one.take_reply(ModelReply(message=message, traced="sampled"), ends=ends)
    assert (one.of_call() is not None) is left


async def test_what_a_turn_has_exported_is_not_given_to_the_next(conversation: Conversation) -> None:
    one = conversation.after("sampled")
    one.note_wait(PENDING, None)
    one.end_answer("cancelled")
    one.begin_answer()
    carried = one.carried()
    assert carried
    assert (len(carried.trace.over), len(carried.trace.waits)) == (1, 1)
    one.take_reply(ModelReply(message=FINAL, traced="sampled"), ends=False)
    carried = one.carried()
    assert carried
    assert (carried.trace.over, carried.trace.waits) == ((), ())


@pytest.mark.parametrize(("traced", "noted"), [("sampled", 1), ("dropped", 0), ("unknown", 0)])
async def test_an_answer_that_no_reply_ended_is_noted_if_turns_are_exported(
    traced: Any, noted: int, conversation: Conversation
) -> None:
    one = conversation.after(traced)
    conversation.now = 107.0
    one.end_answer("limit_reached")
    one.end_answer("again")
    carried = one.carried()
    assert carried
    assert [(over.until, over.status) for over in carried.trace.over] == [(107.0, "limit_reached")] * noted
    assert carried.trace.answer is None


async def test_of_many_answers_that_no_reply_ended_the_last_are_kept(conversation: Conversation) -> None:
    one = conversation.after("sampled")
    for number in range(MAX_OVER + 1):
        one.begin_answer()
        one.end_answer(str(number))
    carried = one.carried()
    assert carried
    assert [over.status for over in carried.trace.over] == [str(number) for number in range(1, MAX_OVER + 1)]


# ---------------------------------------------------------------- messages of other traces


async def test_an_answer_is_linked_to_messages_of_other_traces_than_the_callers(conversation: Conversation) -> None:
    one = conversation.traced(caller=CALLER)
    before = TraceContext(traceparent=f"00-{'1' * 32}-{'d' * 16}-01")
    for context in (None, CALLER, OTHER, before):
        one.note_message(context)
    one.begin_answer()
    given = one.of_turn()
    assert given
    assert given.answer
    assert given.answer.links == (OTHER.model_copy(update={"tracestate": ""}), before)
    assert given.caller == CALLER
    one.end_answer("cancelled")
    one.begin_answer()
    given = one.of_turn()
    assert given
    assert given.answer
    assert given.answer.links == (), "the first one took it"


async def test_a_message_that_comes_while_an_answer_is_given_is_linked_to_it_by_its_next_turn(
    conversation: Conversation,
) -> None:
    one = conversation.after("unknown")
    one.note_message(OTHER)
    carried = one.carried()
    assert carried
    assert (carried.trace.answer and carried.trace.answer.links, len(carried.links)) == ((), 1)
    given = one.of_turn()
    assert given
    assert given.answer
    assert [link.trace_id for link in given.answer.links] == ["c" * 32]
    again = one.of_turn()
    assert again == given, "once"


async def test_an_answer_is_linked_to_the_last_of_the_messages_that_came_before_and_meanwhile(
    conversation: Conversation,
) -> None:
    one = conversation.traced()
    contexts = [TraceContext(traceparent=f"00-{n:032x}-{n:016x}-01") for n in range(1, MAX_LINKS + 4)]
    for context in contexts[:-2]:
        one.note_message(context)
    one.begin_answer()
    for context in contexts[-2:]:
        one.note_message(context)
    given = one.of_turn()
    assert given
    assert given.answer
    assert given.answer.links == tuple(contexts[-MAX_LINKS:])


async def test_a_message_that_no_answer_has_taken_is_not_lost_by_a_turn_without_one(conversation: Conversation) -> None:
    one = conversation.traced()
    one.note_message(OTHER)
    given = one.of_turn()
    assert given
    assert given.answer is None
    one.begin_answer()
    given = one.of_turn()
    assert given
    assert given.answer
    assert len(given.answer.links) == 1


# ---------------------------------------------------------------- waits


async def test_a_calls_wait_has_who_decided_and_how(conversation: Conversation) -> None:
    one = conversation.after("unknown")
    one.note_wait(PENDING, Decision(verdict="approve", by="a" * (MAX_SPAN_NAME_BYTES + 1)))
    one.note_wait(PENDING, None)
    decided, cut_short = waits(one)
    assert (decided.call_id, decided.tool, decided.needs, decided.reason) == ("c1", "pay", "approval", "needs_approval")
    assert (decided.since, decided.until, decided.verdict, decided.answer) == (5.0, 100.0, "approve", 4)
    assert decided.by.startswith("aaaa")
    assert len(decided.by.encode()) <= MAX_SPAN_NAME_BYTES
    assert (cut_short.verdict, cut_short.by) == ("", "")


async def test_a_wait_in_no_answer_says_so(conversation: Conversation) -> None:
    one = conversation.traced()
    one.was_held("paused", since=1.0, ended="resume", resumed_by="a" * (MAX_SPAN_NAME_BYTES + 1))
    (wait,) = waits(one)
    assert (wait.answer, wait.needs, wait.reason, wait.since) == (0, "resume", "paused", 1.0)
    assert wait.verdict == "resume"
    assert len(wait.by.encode()) <= MAX_SPAN_NAME_BYTES


@pytest.mark.parametrize(("traced", "noted"), [("unknown", 1), ("sampled", 1), ("dropped", 0), ("off", 0)])
async def test_a_wait_is_noted_unless_the_last_turn_exported_nothing(
    traced: Any, noted: int, conversation: Conversation
) -> None:
    one = conversation.after(traced, caller=CALLER)
    one.note_wait(PENDING, None)
    assert len(waits(one)) == noted


async def test_of_many_waits_the_last_are_kept(conversation: Conversation) -> None:
    one = conversation.traced()
    call = ToolCall(call_id="c1", name="p" * (MAX_WAITS_BYTES // 10))
    for number in range(15):
        asked = PENDING.asked.model_copy(update={"since": float(number)})
        one.note_wait(PendingCall(call, PENDING.plan, asked), None)
    kept = waits(one)
    assert [wait.since for wait in kept] == [float(number) for number in range(15 - len(kept), 15)]
    assert size_of(kept) <= MAX_WAITS_BYTES < size_of((*kept, kept[-1]))


async def test_the_last_wait_is_kept_however_large_it_is(conversation: Conversation) -> None:
    one = conversation.traced()
    large = ToolCall(call_id="c1", name="p" * MAX_WAITS_BYTES)
    for call in (CALL, large):
        one.note_wait(PendingCall(call, PENDING.plan, PENDING.asked), None)
    assert [wait.tool for wait in waits(one)] == [large.name]


@pytest.mark.parametrize(
    ("ended", "error"),
    [
        (ToolResult(call_id="c1", name="pay", content=()), ""),
        (ToolResult(call_id="c1", name="pay", content=(), is_error=True), "tool_error"),
        (activity_error(ApplicationError("no", type="NoMoney")), "NoMoney"),
        (activity_error(TimedOut("late", type=None, last_heartbeat_details=[])), "timeout"),
        (asyncio.CancelledError(), "cancelled"),
    ],
    ids=str,
)
async def test_a_users_own_activity_is_noted_with_how_it_ended(
    ended: Any, error: str, conversation: Conversation
) -> None:
    one = conversation.after("unknown")

    async def run() -> ToolResult:
        conversation.now = 130.0
        if isinstance(ended, BaseException):
            raise ended
        return ended  # type: ignore[no-any-return]

    if isinstance(ended, BaseException):
        with pytest.raises((ActivityError, asyncio.CancelledError)):
            await one.note_activity(CALL, run())
    else:
        assert await one.note_activity(CALL, run()) is ended
    (wait,) = waits(one)
    assert (wait.call_id, wait.tool, wait.needs, wait.error) == ("c1", "pay", "activity", error)
    assert (wait.since, wait.until) == (100.0, 130.0)


# ---------------------------------------------------------------- what is handed on


async def test_a_tools_span_has_a_parent_only_if_spans_are_exported(conversation: Conversation) -> None:
    parents = {said: conversation.after(said, caller=CALLER).of_call() for said in ("unknown", "off", "dropped")}
    assert set(parents.values()) == {None}
    parent = conversation.after("sampled", caller=CALLER).of_call()
    assert parent
    assert (parent.trace_id, parent.sampled, parent.tracestate) == ("a" * 32, True, "of=caller")
    assert conversation.after("sampled", answering=False).of_call() is None


async def test_another_agents_conversation_belongs_to_the_answer_or_to_the_caller(conversation: Conversation) -> None:
    for said in ("unknown", "off"):
        assert conversation.after(said, caller=CALLER).of_child() == CALLER
    for said, sampled in (("sampled", True), ("dropped", False)):
        child = conversation.after(said, caller=CALLER).of_child()
        assert child
        assert child != CALLER
        assert (child.trace_id, child.sampled) == ("a" * 32, sampled)


async def test_a_turn_is_given_the_caller_and_nothing_else_if_the_trace_is_dropped(conversation: Conversation) -> None:
    assert conversation.after("off", caller=CALLER).of_turn() is None
    given = conversation.after("dropped", caller=CALLER).of_turn()
    assert given
    assert (given.chain_id, given.caller, given.answer) == ("chain", CALLER, None)


# ---------------------------------------------------------------- the end


async def test_what_no_turn_will_export_is_exported_at_the_end(conversation: Conversation) -> None:
    one = conversation.after("sampled", caller=CALLER)
    conversation.state.model.name = "openai:m"
    conversation.export_fails = True
    await one.say_the_rest("cancelled")
    ((name, rest, options),) = conversation.exported
    assert (name, rest.agent, rest.trace.caller) == (names.EXPORT_SPANS, "clerk", CALLER)
    assert rest.model == conversation.state.asked_model
    assert [over.status for over in rest.trace.over] == ["cancelled"]
    assert (options["summary"], options["retry_policy"].maximum_attempts) == ("spans of the end", 1)
    assert options["schedule_to_close_timeout"] == timedelta(seconds=2), "it holds up the workflow task"


async def test_a_wait_alone_is_exported_at_the_end(conversation: Conversation) -> None:
    one = conversation.after("sampled", answering=False)
    one.note_wait(PENDING, None)
    await one.say_the_rest("closed")
    assert len(conversation.exported) == 1


@pytest.mark.parametrize(
    ("traced", "answering"), [("sampled", False), ("unknown", True), ("dropped", True), ("off", True)]
)
async def test_nothing_is_exported_at_the_end_if_there_is_nothing_or_no_trace(
    traced: Any, answering: bool, conversation: Conversation
) -> None:
    one = conversation.after(traced, answering=answering)
    if traced == "unknown":
        one.note_wait(PENDING, None)
    await one.say_the_rest("closed")
    assert conversation.exported == []


# ---------------------------------------------------------------- the caller of another client


@pytest.mark.parametrize(
    ("said", "caller"),
    [
        ({"traceparent": CALLER.traceparent}, CALLER.model_copy(update={"tracestate": ""})),
        ({"traceparent": "nonsense"}, None),
        ("nonsense", None),
        (None, None),
    ],
)
async def test_the_caller_is_known_by_the_header_of_temporals_own_tracing(
    said: Any, caller: TraceContext | None, conversation: Conversation
) -> None:
    conversation.headers[HEADER] = data_converter.payload_converter.to_payload(said)
    assert conversation.traced().of_child() == caller
    assert conversation.traced(caller=OTHER).of_child() == OTHER


async def test_a_header_that_can_not_be_read_is_no_caller(conversation: Conversation) -> None:
    conversation.headers[HEADER] = Payload(metadata={"encoding": b"of another converter"}, data=b"{")
    assert conversation.traced().of_child() is None
    conversation.headers.clear()
    assert conversation.traced().of_child() is None
