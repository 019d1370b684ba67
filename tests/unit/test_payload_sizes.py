"""The ledger adds up: with all that is in it as large as it may be, in the worst letters, each payload fits.

The letters are zeros, which JSON writes with six bytes each; `full` is a record's text field at so many bytes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import cache
from typing import Any
from unittest.mock import patch

import pytest

from everturn import payloads
from everturn.activities import planning
from everturn.batching.records import MAX_BATCH_ID_CHARS, MAX_LINE_ID_CHARS, BatchNotice
from everturn.budgets.records import BudgetNote, UnreportedSpending
from everturn.calls.decision_records import Approve
from everturn.calls.pending_calls import PendingCall
from everturn.carryover import (
    REMEMBERED_IDS,
    Beginning,
    CarryOver,
    OpenReply,
    PackedTranscript,
    QuestionToPerson,
    StoredInRun,
    TranscriptView,
    WorkerFacts,
)
from everturn.heartbeats.details import LiveAt, SeenReply
from everturn.history.revival import next_life
from everturn.history.state_by_history import StateByHistory
from everturn.history.steps import MessageSent, RunStarted
from everturn.payloads import (
    AskedAgent,
    Caller,
    Control,
    DecisionCheck,
    JoinedConversation,
    JoinRequest,
    MessageIn,
    ModelReply,
    ModelRequest,
    Notify,
    PersonsAnswer,
    Start,
    Status,
    ToolRequest,
    TranscriptPage,
    WaitingCall,
    WaitNotice,
    WebhookTarget,
)
from everturn.plans import ActivityCall, AwaitAnswer, CheckedCall, Expiry, PlannedCall, RefuseCall, RunTool
from everturn.policy import Rule
from everturn.prompts import KNOWN, RecordedPrompt
from everturn.providers.reading import MAX_CALLS
from everturn.records import Decision, Document, HookAction, Message, Outcome, Record, Text, ToolCall, ToolResult, Usage
from everturn.sizes import (
    MARGIN_BYTES,
    MAX_ACTION_WHY_BYTES,
    MAX_ACTIONS_BYTES,
    MAX_ADDRESS_CHARS,
    MAX_BESIDE_REPLY_BYTES,
    MAX_CAUSE_BYTES,
    MAX_DELTA_BYTES,
    MAX_DETAILS_BYTES,
    MAX_EDIT_BYTES,
    MAX_HANDED_BYTES,
    MAX_HOOK_NAME_CHARS,
    MAX_ID_BYTES,
    MAX_INBOX_BYTES,
    MAX_INPUT_BYTES,
    MAX_KNOWN_ID_BYTES,
    MAX_LAST_TEXT_BYTES,
    MAX_LEFT_BYTES,
    MAX_METADATA_BYTES,
    MAX_NAME_CHARS,
    MAX_OUTCOME_BYTES,
    MAX_PACKED_ALONE_BYTES,
    MAX_PACKED_AT_START_BYTES,
    MAX_PACKED_BYTES,
    MAX_PAYLOAD_BYTES,
    MAX_POLICY_BYTES,
    MAX_PROMPT_BYTES,
    MAX_PROMPTS_BYTES,
    MAX_REASON_BYTES,
    MAX_REPLY_BYTES,
    MAX_RESULT_BYTES,
    MAX_SEEN_BYTES,
    MAX_STREAMED_BYTES,
    MAX_TOKEN_CHARS,
    MAX_WEBHOOK_BYTES,
    RUN_BYTES,
    TASK_BYTES,
    TEMPORAL_BUFFERED_BYTES,
    TEMPORAL_MESSAGE_BYTES,
    TEMPORAL_PAYLOAD_BYTES,
    TEMPORAL_RUN_BYTES,
    size_of,
)
from everturn.state import State
from everturn.temporal.ids import known_id
from everturn.tenants.metadata import LabelledInput
from everturn.text.shortening import shortened
from everturn.tracing import MAX_LINKS, MAX_OVER, AnswerSpan, CarriedTrace, Trace, TraceContext
from everturn.truncation import short_status, with_short_words
from everturn.webhooks.conversation_events import MOST_AGENTS, fitting_data
from everturn.worker.given_agents import MAX_PREFIX_CHARS
from everturn.workflows import sent_messages
from everturn.workflows.recent_messages import RecentMessages
from everturn.workflows.tracing import Tracing
from everturn.workflows.wait_notices import notice_of

ZERO = "\x00"
NAME = ZERO * MAX_NAME_CHARS
CONVERSATION_ID = ZERO * MAX_ID_BYTES
USAGE = Usage(input_tokens=10**30, output_tokens=10**30, cached_tokens=10**30, reasoning_tokens=10**30)
RUN_ID = "01a200e3-06d5-71a0-96c3-3e81afd96ef0"


def full(size: int) -> str:
    """A text of so many bytes as JSON."""
    return ZERO * (max(0, size - 2) // 6)


def call_id(number: int) -> str:
    return f"{number:0>128}"


def message(size: int, role: Any = "user") -> Message:
    empty = Message(role=role, parts=(Text(text=""),))
    return Message(role=role, parts=(Text(text=full(size - size_of(empty))),))


def calls(count: int, size: int, name: str = "save") -> tuple[ToolCall, ...]:
    """Of so many bytes together."""
    bare = ToolCall(call_id=call_id(0), name=name, arguments={"x": ""})
    text = full(size // count - size_of(bare) - 1)
    return tuple(ToolCall(call_id=call_id(number), name=name, arguments={"x": text}) for number in range(count))


def results(count: int, size: int, **more: Any) -> Message:
    """So many, each of so many bytes."""
    parts = (ToolResult(call_id=call_id(n), content=(Text(text=full(size)),), **more) for n in range(count))
    return Message(role="tool", parts=tuple(parts))


NOTE = BudgetNote(
    run=RUN_ID[:8],
    asked_until=1.23456789e300,
    untold=UnreportedSpending(
        since=10**9, run=RUN_ID[:8], turns=10**9, tokens=10**30, cost_usd=1.23456789e300, unpriced=10**9
    ),
)
LABELS = LabelledInput(tenant=NAME, metadata={"x": full(MAX_METADATA_BYTES - 8)}).labels
LIMITS: dict[str, Any] = {"max_turns": 10**18, "max_cost_usd": 1.23456789e300, "max_duration": 1e18}
FACTS = WorkerFacts(model=NAME, limits={"max_turns": 10**18}, indexed=True, retention=1e18)
IDS = tuple(known_id(f"{number:04}" + "🔥" * 496) for number in range(REMEMBERED_IDS))
DECISION = Decision(
    verdict="answer", by=full(MAX_INPUT_BYTES // 2 - 100), at=NAME[:30], note=full(MAX_INPUT_BYTES // 2)
)
EDIT = Decision(verdict="approve", at=NAME, by=NAME, arguments={"x": full(MAX_INPUT_BYTES - 10_000)})


HOOK = ZERO * MAX_HOOK_NAME_CHARS
ACTION = HookAction(
    hook=HOOK,
    point="before_tool",
    did="changed",
    call_id=call_id(1),
    why=full(MAX_ACTION_WHY_BYTES),
)
ACTIONS = (ACTION,) * (MAX_ACTIONS_BYTES // size_of(ACTION))


RULE = Rule(tool="t" * 64, then="approve", by=NAME, reason=ZERO * 1_000)
POLICY = (RULE,) * (MAX_POLICY_BYTES // size_of(RULE))


def test_what_everturn_takes_is_less_than_what_temporal_does() -> None:
    assert MAX_PAYLOAD_BYTES < TEMPORAL_PAYLOAD_BYTES
    assert TASK_BYTES + TEMPORAL_BUFFERED_BYTES + MAX_INPUT_BYTES < TEMPORAL_MESSAGE_BYTES
    assert RUN_BYTES < TEMPORAL_RUN_BYTES
    assert max(map(size_of, IDS)) <= MAX_KNOWN_ID_BYTES
    assert len(set(IDS)) == REMEMBERED_IDS
    assert [known_id(each) for each in IDS] == list(IDS), "whoever is handed one remembers the same"


# ---------------------------------------------------------------- a model turn

DELTAS: dict[str, list[Message]] = {
    "messages that fill a turn, and more": [message(MAX_INPUT_BYTES) for _ in range(6)],
    "one that was started with too much": [message(MAX_PAYLOAD_BYTES)],
    "long names": [Message.user([Document(url="x", name=full(300_000))]) for _ in range(8)],
    "what a provider put beside": [Message.user([Text(text="", extra={"x": full(300_000)})]) for _ in range(8)],
    "large answers of people": [results(20, 390_000)],
    "as many results as a reply can have": [results(MAX_CALLS, 2_000, name=ZERO * 100, is_error=True)],
    "with the words of who decided": [results(20, 10, decision=DECISION)],
    "answers that are files": [
        Message(
            role="tool",
            parts=(ToolResult(call_id="c", content=tuple(Document(url=f"{n}", name=full(900)) for n in range(3_000))),),
        )
    ],
    "very many parts": [Message.user([Text(text=ZERO * 10)] * 20_000)],
}


@pytest.mark.parametrize("unseen", DELTAS.values(), ids=DELTAS)
def test_a_model_request_fits(unseen: list[Message]) -> None:
    delta, named = sent_messages.next_delta(unanswered(unseen))
    written = size_of(request(delta, named)), size_of(delta)
    assert written[0] < MAX_PAYLOAD_BYTES
    assert written[1] <= MAX_DELTA_BYTES
    assert [one.role for one in delta] == [one.role for one in unseen]


def test_a_model_request_that_names_all_its_results_fits() -> None:
    ids = frozenset(call_id(number) for number in range(MAX_CALLS))
    state = unanswered([results(MAX_CALLS, 2_100), message(MAX_INBOX_BYTES)])
    state.unseen.recorded = ids
    delta, named = sent_messages.next_delta(state)
    assert len(named) == MAX_CALLS
    assert size_of(request(delta, named)) < MAX_PAYLOAD_BYTES
    assert delta[1].text == message(MAX_INBOX_BYTES).text


PLACE = TraceContext.from_ids("a" * 32, "b" * 16, sampled=True, tracestate='"' * 512)
LINKS = (PLACE.model_copy(update={"tracestate": ""}),) * MAX_LINKS


@cache
def traced() -> Trace:
    return asyncio.run(_traced())


async def _traced() -> Trace:
    """As much as a conversation notes between two turns."""
    tracing = Tracing(
        State(Start(agent=NAME), run_began=0.0), Start(agent=NAME, trace=PLACE), CarryOver(), chain_id=RUN_ID
    )
    call = ToolCall(call_id=call_id(0), name="n" * 64, arguments={})
    asked = QuestionToPerson(call_id=call_id(0), reason="outcome_unknown", since=1.23456789e9)
    answer = AnswerSpan(turn=10**9, since=1.23456789e9, links=LINKS, usage=USAGE, cost_usd=1.2345678e300)
    with patch("everturn.workflows.tracing.workflow.time", lambda: 1.23456789e9):
        for _ in range(MAX_CALLS):
            tracing.note_wait(PendingCall(call, RefuseCall(call_id=call_id(0), text=""), asked), DECISION)
        for _ in range(MAX_OVER + 1):
            tracing._answer, tracing._told = answer, "sampled"
            tracing.end_answer("limit_reached")
    tracing._answer = answer
    noted = tracing._current_trace()
    assert len(noted.over) == MAX_OVER
    assert len(noted.waits) > 30
    return noted


def unanswered(unseen: list[Message]) -> State:
    state = State(Start(agent=NAME, carry=CarryOver()), run_began=0.0)
    state.unseen.messages = unseen
    return state


def request(delta: Sequence[Message], named: Sequence[str]) -> ModelRequest:
    return ModelRequest(
        agent=NAME,
        turn=10**9,
        position=10**9,
        digest="0" * 32,
        delta=tuple(delta),
        named=tuple(named),
        model=NAME,
        conclude=f"the limit of {LIMITS['max_cost_usd']} USD",
        view=TranscriptView(trim_before=10**9, summary_at=10**9, keep_from=10**9),
        stream=True,
        calls_left=10**18,
        prompts=("0" * 16,) * KNOWN,
        prompt_room=MAX_PROMPTS_BYTES,
        limits_mark="0" * 8,
        budget=NOTE,
        **LABELS,
        hand_back_for=1e18,
        trace=traced(),
        live_at=LiveAt(url="x" * MAX_ADDRESS_CHARS, token="x" * MAX_TOKEN_CHARS),
    )


@pytest.mark.parametrize("text", [ZERO * 4_000, "x" * 4_000, f"There is no tool {ZERO * 90!r}. " + "x" * 3_900])
def test_a_model_reply_fits_with_its_plan(text: str) -> None:
    expiry = Expiry(after=1e18, remind_before=1e18)
    planned: list[PlannedCall] = [RefuseCall(call_id=call_id(n), text=text) for n in range(256)]
    planned += [AwaitAnswer(call_id=call_id(n), why=text, expiry=expiry) for n in range(256, 400)]
    planned += [
        RunTool(
            call_id=call_id(n),
            approval=f"{'n' * 64} needs approval",
            effect="once",
            policy=True,
            expiry=expiry,
            activity="n" * (64 + MAX_PREFIX_CHARS),
        )
        for n in range(400, 512)
    ]
    planned += [RefuseCall(call_id=call_id(n), text=text) for n in range(512, MAX_CALLS)]
    plan = planning._fit_plan(tuple(planned))
    assert size_of(plan) <= MAX_BESIDE_REPLY_BYTES
    assert len(plan) >= planning.MAX_PLANNED_CALLS
    assert size_of(reply(plan=plan)) < MAX_PAYLOAD_BYTES
    assert size_of(reply(output=full(MAX_BESIDE_REPLY_BYTES))) < MAX_PAYLOAD_BYTES
    assert size_of(reply(output_problem=full(MAX_CAUSE_BYTES))) < MAX_PAYLOAD_BYTES


def reply(**beside: Any) -> ModelReply:
    return ModelReply(
        message=message(MAX_REPLY_BYTES, "assistant"),
        digest="0" * 32,
        usage=USAGE,
        cost_usd=1.2345678e300,
        details={"x": full(MAX_DETAILS_BYTES)},
        hooks=ACTIONS,
        view=TranscriptView(trim_before=10**9, summary_at=10**9, keep_from=10**9),
        prompt=RecordedPrompt(digest="0" * 16, packed="x" * MAX_PROMPT_BYTES),
        facts=FACTS,
        budget=NOTE,
        traced="sampled",
        **beside,
    )


# ---------------------------------------------------------------- tool calls


@pytest.mark.parametrize(
    ("arguments", "decision"),
    [(full(MAX_REPLY_BYTES), DECISION), (full(MAX_INPUT_BYTES), EDIT)],
    ids=["the model's", "a person's"],
)
def test_what_a_call_is_run_and_checked_with_fits(arguments: str, decision: Decision) -> None:
    assert size_of(Approve(call_id="", note=DECISION.note, by=DECISION.by)) <= MAX_INPUT_BYTES
    run = ToolRequest(
        agent=NAME,
        turn=10**9,
        call_id=call_id(1),
        arguments={"x": arguments},
        decision=decision,
        room=MAX_RESULT_BYTES,
        chain_id=RUN_ID,
        reset_run=RUN_ID,
        hand_back_for=1e18,
        again=True,
        trace=PLACE,
        tool="t" * 64,
        **LABELS,
    )
    answer = PersonsAnswer(
        action="accept", text=full(MAX_INPUT_BYTES), by=full(MAX_REASON_BYTES), left={"asked": full(MAX_LEFT_BYTES)}
    )
    told = run.model_copy(update={"answer": answer, "decision": with_short_words(decision)})
    call = ToolCall(call_id=call_id(1), name="save", arguments={"x": full(MAX_REPLY_BYTES)})
    check = DecisionCheck(agent=NAME, call=call, decision=decision, turn=10**9, hand_back_for=1e18, **LABELS)
    stop = HookAction(hook=HOOK, point="after_tool", did="stopped", call_id=call_id(1), why=full(MAX_EDIT_BYTES))
    result = ToolResult(
        call_id=call_id(1),
        name=NAME,
        content=(Text(text=full(MAX_RESULT_BYTES)),),
        is_error=True,
        decision=decision,
        hooks=(*ACTIONS, stop),
    )
    assert max(map(size_of, (run, told, check, result))) < MAX_PAYLOAD_BYTES


def test_what_another_agent_is_asked_and_answers_fits() -> None:
    caller = Caller(conversation_id=CONVERSATION_ID, call_id=call_id(1), turn=10**9, room=MAX_OUTCOME_BYTES)
    asked = Start(agent=NAME, message=full(MAX_REPLY_BYTES), **LABELS, caller=caller, trace=PLACE)
    assert size_of(asked) < MAX_PAYLOAD_BYTES
    assert size_of(Control(reason="the conversation that asked was closed")) < MAX_PAYLOAD_BYTES


# ---------------------------------------------------------------- from run to run


def start(carry: CarryOver, text: str = "") -> Start:
    return Start(
        agent=NAME,
        message=text,
        message_id=ZERO * 500,
        provider="" if not text else "anthropic",
        keep_open=1e18,
        model=NAME,
        stream=True,
        **LABELS,
        caller=Caller(conversation_id=CONVERSATION_ID, call_id=call_id(1), turn=10**9, room=MAX_OUTCOME_BYTES),
        trace=PLACE,
        carry=carry,
    )


def handed(**more: Any) -> CarryOver:
    """All that every carry-over has."""
    beside: dict[str, Any] = {
        "keep_by": 1e18,
        "origin": StoredInRun(run_id=RUN_ID, conversation_id=CONVERSATION_ID),
        "length": 10**9,
        "digest": "0" * 32,
        "owed": True,
        "message_ids": IDS,
        "turn": 10**9,
        "tool_calls": 10**9,
        "usage": USAGE,
        "cost_usd": 1.2345678e300,
        "last_text": shortened(full(MAX_REPLY_BYTES), max_bytes=MAX_LAST_TEXT_BYTES),
        "started_at": 1e18,
        "facts": FACTS,
        "chain_id": RUN_ID,
        "reset_run": RUN_ID,
        "model": NAME,
        "paused": True,
        "policy": POLICY,
        "view": TranscriptView(trim_before=10**9, summary_at=10**9, keep_from=10**9),
        "summary_due": True,
        "budget": NOTE,
        "repairs": 2,
        "trace": CarriedTrace(
            trace=traced(), told="sampled", links=LINKS, usage_before=USAGE, cost_before=1.2345678e300
        ),
    }
    beside |= {"began": Beginning.from_message(NAME, message(MAX_INPUT_BYTES)), "last_stop": "filtered"}
    return CarryOver(**{**beside, **more})


def test_what_a_run_hands_to_the_next_fits() -> None:
    carry = handed(
        earlier=PackedTranscript(data="A" * MAX_PACKED_BYTES),
        unseen=(message(MAX_HANDED_BYTES, "tool"),),
        told=tuple(call_id(number) for number in range(MAX_HANDED_BYTES // 130)),
        inbox=tuple(message(MAX_INBOX_BYTES // 3) for _ in range(3)),
    )
    assert size_of(start(carry)) < MAX_PAYLOAD_BYTES
    joining = JoinRequest(conversation_id=CONVERSATION_ID, start=start(CarryOver(), full(MAX_INPUT_BYTES)), wait=True)
    assert size_of(joining) < MAX_PAYLOAD_BYTES


def test_what_a_conversation_is_revived_with_fits() -> None:
    """Whatever was said to it, and whatever its model said last."""
    by_history = StateByHistory(run_id=RUN_ID)
    carry = handed(earlier=StoredInRun(run_id=RUN_ID), length=0, message_ids=())
    at = datetime(2026, 1, 1, tzinfo=UTC)
    by_history.take_step(RunStarted(1, at, start(carry), previous_run_id=""))
    for number in range(9):
        by_history.take_step(MessageSent(2 + number, at, said(number)))
    by_history.take_in()
    state = by_history.state
    state.last_reply.text = full(MAX_REPLY_BYTES)
    state.facts = FACTS
    for one in IDS:
        state.inbox.taken_ids.take_id(one)
    transcript = [message(20_000) for _ in range(19)]
    made = next_life(state, transcript, origin=StoredInRun(run_id=RUN_ID, conversation_id=CONVERSATION_ID))
    assert len(made.unseen) == 19
    assert len(made.inbox) == len(state.inbox.messages) == 9
    assert size_of(made.inbox) > MAX_INBOX_BYTES * 0.9
    largest = made.model_copy(update={"earlier": PackedTranscript(data="A" * MAX_PACKED_AT_START_BYTES)})
    assert size_of(start(largest, full(MAX_INPUT_BYTES))) < MAX_PAYLOAD_BYTES
    assert size_of(PackedTranscript(data="A" * MAX_PACKED_ALONE_BYTES)) < MAX_PAYLOAD_BYTES


def said(number: int) -> MessageIn:
    return MessageIn(text=full(MAX_INPUT_BYTES - 2_000), message_id=f"{number}", trace=PLACE)


def test_an_open_reply_is_measured_whole() -> None:
    """What it adds to is the same as without it: it is handed on only if all of it has the room."""
    many = calls(MAX_CALLS, MAX_REPLY_BYTES)
    open_reply = OpenReply(
        calls=many, waits=tuple(QuestionToPerson(call_id=one.call_id, why=full(4_000)) for one in many)
    )
    assert size_of(start(handed(open=open_reply))) > MAX_PAYLOAD_BYTES  # and so it stays in its run


# ---------------------------------------------------------------- the end, and what others see


@pytest.mark.parametrize(
    ("room", "with_output"),
    [(MAX_OUTCOME_BYTES, True), (MAX_OUTCOME_BYTES, False), (400_000, True), (4_000, False)],
)
@pytest.mark.parametrize("unseen", DELTAS.values(), ids=DELTAS)
def test_an_outcome_fits(unseen: list[Message], room: int, *, with_output: bool) -> None:
    state = unanswered(unseen)
    state.last_reply.text, state.inbox.messages = full(MAX_REPLY_BYTES), [message(MAX_INPUT_BYTES)] * 20
    state.last_reply.output = full(MAX_BESIDE_REPLY_BYTES) if with_output else None
    text, output = sent_messages.last_reply(state, room)
    tail = sent_messages.outcome_tail(state, room=room - size_of(text) - size_of(output))
    outcome = Outcome(
        status="cancelled",
        text=text,
        output=output,
        turns=10**9,
        tool_calls=10**9,
        usage=USAGE,
        cost_usd=1.2345678e300,
        reason=f"the turn was cancelled by {full(MAX_REASON_BYTES)} ({full(MAX_REASON_BYTES)})",
        tail=tail,
    )
    written = size_of(outcome)
    assert written < MAX_PAYLOAD_BYTES
    assert written < room + 60_000
    assert (
        size_of(JoinedConversation(begun=True, outcome=outcome.model_copy(update={"id": CONVERSATION_ID})))
        < MAX_PAYLOAD_BYTES
    )


@pytest.mark.parametrize("count", [1, 5, 512])
def test_a_status_fits(count: int) -> None:
    status = Status(
        state="stalled",
        turn=10**9,
        waiting=tuple(
            WaitingCall(
                call_id=call.call_id, tool=call.name, arguments=call.arguments, why=full(60_000), since=NAME[:30]
            )
            for call in calls(count, MAX_REPLY_BYTES)
        ),
        agents=tuple(
            AskedAgent(call_id=call_id(n), agent=NAME, conversation_id=CONVERSATION_ID) for n in range(512 - count)
        ),
        usage=USAGE,
        policy=POLICY,
        cause=full(MAX_REPLY_BYTES),
        cure=full(MAX_REPLY_BYTES),
    )
    short = short_status(status)
    assert size_of(short.as_json()) < MAX_PAYLOAD_BYTES
    assert [waiting_call.arguments for waiting_call in short.waiting] == [
        waiting_call.arguments for waiting_call in status.waiting
    ]
    assert short.cause
    assert short.cause.endswith("characters are shown.]")


def test_what_another_workflow_is_told_of_calls_that_wait_fits() -> None:
    waiting = (
        WaitingCall(call_id=call.call_id, tool="t" * 64, arguments=call.arguments, why=full(60_000), since=NAME[:30])
        for call in calls(MAX_CALLS, MAX_REPLY_BYTES)
    )
    notify = Notify(workflow_id=CONVERSATION_ID, signal=NAME)
    notice = notice_of(waiting, conversation_id=CONVERSATION_ID, agent=NAME)
    assert isinstance(notice, WaitNotice)
    assert size_of(notice) < MAX_PAYLOAD_BYTES
    assert size_of(Start(agent=NAME, notify=notify)) < MARGIN_BYTES


def test_a_message_to_a_webhook_is_short_whatever_waits_and_so_is_the_way_to_a_sub_agent() -> None:
    every = [
        WaitingCall(call_id=call.call_id, tool="t" * 64, arguments=call.arguments, why=full(60_000), since=NAME[:30])
        for call in calls(MAX_CALLS, MAX_REPLY_BYTES)
    ]
    child = AskedAgent(call_id=call_id(1), agent="a" * 64, conversation_id="c" * MAX_ID_BYTES)
    target = WebhookTarget(
        agent="clerk", include=("arguments", "text"), conversation_id="c", path=(child,) * MOST_AGENTS
    )
    heading = {"conversation_id": "c", "path": [child.model_dump()] * MOST_AGENTS}
    outcome = {"status": "failed", "reason": full(MAX_REASON_BYTES), "text": full(MAX_OUTCOME_BYTES)}
    facts = {"waiting": every, "cause": full(MAX_CAUSE_BYTES), "outcome": outcome}
    assert size_of(fitting_data(heading, facts, target)) <= MAX_WEBHOOK_BYTES
    assert size_of(Start(agent="clerk", webhooks=(target,))) < MARGIN_BYTES


@pytest.mark.parametrize("unseen", DELTAS.values(), ids=DELTAS)
def test_a_page_fits(unseen: list[Message]) -> None:
    page = RecentMessages("").read_page(unseen, 0, TranscriptPage().limit)
    assert page
    assert size_of({"from": 10**9, "total": 10**9, "messages": page}) < MAX_PAYLOAD_BYTES


def test_what_is_looked_at_before_an_activity_of_the_users_own_fits() -> None:
    checked = CheckedCall(arguments={"text": full(MAX_REPLY_BYTES - 20)}, run_id=NAME)
    assert size_of(checked) < MAX_PAYLOAD_BYTES
    header = ActivityCall(turn=10**9, call_id=call_id(1), tool="t" * 64, awaited=True, own_queue=True, again=True)
    assert size_of(header) < 1_000


def test_what_was_seen_of_a_reply_fits_into_the_command_that_cuts_it_short() -> None:
    seen = SeenReply(turn=10**9, text=full(MAX_SEEN_BYTES), usage=Usage(input_tokens=10**9), cost_usd=0.1)
    assert size_of(Control(reason=full(MAX_REASON_BYTES), by=NAME, seen=seen)) < MAX_INPUT_BYTES
    with pytest.raises(ValueError, match="at most 240,000 bytes"):
        SeenReply(turn=1, text=full(MAX_SEEN_BYTES - 60), thinking="thought " * 10)


def test_what_an_earlier_version_sent_of_a_reply_is_taken_and_an_earlier_version_takes_what_is_sent() -> None:
    """They bounded it by 40,000 characters, and sent 32,000 with a notice."""
    assert SeenReply(turn=1, text=ZERO * 40_000).text == ZERO * 40_000
    assert MAX_STREAMED_BYTES < 40_000 - 100


def test_a_notice_of_a_batch_fits_into_a_signal() -> None:
    long = "\U0001f525" * MAX_CAUSE_BYTES
    notice = BatchNotice(line="x" * MAX_LINE_ID_CHARS, batch_id="x" * MAX_BATCH_ID_CHARS, cause=long, cure=long)
    assert size_of(notice) < MAX_INPUT_BYTES


def test_the_records_that_cross_are_those_above() -> None:
    """A new one belongs here, too."""
    mine = {name for name, one in vars(payloads).items() if isinstance(one, type) and issubclass(one, Record)}
    seen = {name for name in mine if name in globals()}
    # Sent by people, and measured as they come.
    assert LabelledInput in ModelRequest.mro()
    assert mine - seen == {"ClosedRecord", "WebhookFacts", "Withdrawal"}
