"""More small changes of the code that survived `make mutants DRAWN=60`, drawn with another seed: each is seen here."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from temporalio.exceptions import ActivityError, ApplicationError, TimeoutType
from temporalio.exceptions import TimeoutError as TimedOut

from everturn import names
from everturn.calls import activity_outputs
from everturn.calls.pending_calls import PendingCall
from everturn.carryover import QuestionToPerson
from everturn.evaluations import workflow as evaluation_workflow
from everturn.limits import Limits
from everturn.payloads import Caller, Control, Start, ToolRequest
from everturn.plans import Expiry, RunActivity, RunPlan, RunTool
from everturn.policy import Rule
from everturn.records import Decision, Message, Reply, ToolCall
from everturn.sizes import (
    MARGIN_BYTES,
    MAX_EDIT_BYTES,
    MAX_PAYLOAD_BYTES,
    MAX_RESULT_BYTES,
    SUMMARY_BYTES,
    TEMPORAL_PAYLOAD_BYTES,
    size_of,
)
from everturn.state import State
from everturn.text.markdown import summary_bytes
from everturn.tracing import MAX_LINKS, TraceContext
from everturn.webhooks import conversation_events
from everturn.workflows import (
    activity_results,
    approvals,
    call_ledger,
    continue_as_new,
    conversation,
    history_space,
    message_dispatch,
    nexus_operations,
    sent_messages,
    start_input,
    timeouts,
    tool_calls,
    tool_results,
    tracing,
    user_activity_calls,
    visibility,
    web_ui,
)
from everturn.workflows.expiry import SHORTEST_SECONDS, decision_of_expiry
from tests.support.activity_errors import activity_error


@pytest.mark.parametrize(("turn", "awaited", "reached"), [(2, True, False), (2, False, True), (3, True, True)])
def test_a_turn_that_is_asked_once_more_does_not_count_as_one_before(turn: int, awaited: bool, reached: bool) -> None:
    """Also an even one, whose stall was resumed."""
    state = State(Start(agent="clerk", limits=Limits(max_turns=2)), run_began=0.0)
    state.turn, state.reply_awaited = turn, awaited
    assert (state.limit_reached(0.0) is not None) is reached


def test_an_answer_is_linked_to_the_last_of_many_traces() -> None:
    one: Any = SimpleNamespace(_caller=None, _links=[])
    for number in range(1, MAX_LINKS + 3):
        tracing.Tracing.note_message(one, TraceContext(traceparent=f"00-{number:032x}-{number:016x}-01"))
    assert [int(link.trace_id, 16) for link in one._links] == [*range(3, MAX_LINKS + 3)]


@pytest.mark.parametrize("beside", [0, 1])
def test_messages_go_along_with_an_unreadable_start_as_far_as_a_payload_has_room(beside: int) -> None:
    message = Message.user("x" * 1_000)
    handed: dict[str, Any] = {"carry": {"inbox": []}, "odd": ""}
    room = MAX_PAYLOAD_BYTES - MARGIN_BYTES - size_of((message,)) + beside
    handed["odd"] = "x" * (room - size_of(handed))
    state = State(Start(agent="clerk", keep_open=1.0), run_began=0.0)
    state.receive_message(message)
    left = start_input.StartInput(Start(agent="clerk"), handed=handed).handed_on(state)
    assert size_of(left) <= MAX_PAYLOAD_BYTES
    (kept,) = left["carry"]["inbox"]
    assert (kept["parts"][0]["text"] == "x" * 1_000) is (beside == 0)


@pytest.mark.parametrize(("shown", "model"), [("full", "openai:m"), ("minimal", "")])
def test_a_turns_summary_names_the_model_only_if_it_may_be_shown(shown: Any, model: str) -> None:
    state = State(Start(agent="clerk", visibility=shown), run_began=0.0)
    state.model.name = "openai:m"
    conversation: Any = SimpleNamespace(_state=state, _is_minimal=shown == "minimal", model="openai:other")
    assert visibility.VisibleState.turn_model.fget(conversation) == model  # type: ignore[attr-defined]


def test_what_an_activity_returns_leaves_room_for_its_approval_and_for_what_the_model_is_told_of_it() -> None:
    decision = Decision(verdict="approve", arguments={"text": "x" * 2 * MAX_EDIT_BYTES})
    request = ToolRequest(agent="clerk", turn=1, call_id="a", arguments={}, decision=decision)
    room = user_activity_calls._room_for_result(request)
    brought = activity_outputs.result_of("a", "Pay", "y" * TEMPORAL_PAYLOAD_BYTES, max_chars=10**9, room=room)
    recorded = tool_results.with_approval(brought, decision)
    assert abs(size_of(recorded) - MAX_RESULT_BYTES) < 1_000


@pytest.mark.parametrize(("beside", "whole"), [(0, True), (1, False)])
def test_a_summary_of_as_many_bytes_as_temporal_takes_is_whole(beside: int, *, whole: bool) -> None:
    line = "é" * ((SUMMARY_BYTES - 2) // 2) + "." * ((SUMMARY_BYTES - 2) % 2 + beside)
    assert summary_bytes(line) == SUMMARY_BYTES + beside
    assert (web_ui.summary_line(line) == line) is whole


@pytest.mark.parametrize(("then", "ruled"), [("approve", False), ("ask", True), ("deny", True)])
def test_a_worker_is_told_of_rules_that_may_hold_up_a_call(then: Any, *, ruled: bool) -> None:
    """People are then to be shown what the call would do."""
    state = State(Start(agent="clerk", policy=(Rule(tool="refund", then=then),)), run_began=0.0)
    assert sent_messages.next_request(state, summarise=False).ruled is ruled


def test_a_run_leaves_as_many_nexus_operations_behind_as_it_may() -> None:
    nobody: Any = None
    operations = nexus_operations.NexusOperations(nobody, nobody)
    operations._left += nexus_operations.MOST_LEFT
    assert not operations.is_full
    operations._left += 1
    assert operations.is_full


@pytest.mark.parametrize(
    ("changed", "due"),
    [
        ({}, False),
        ({"size": continue_as_new.MAX_HISTORY_BYTES - 1, "length": continue_as_new.MAX_EVENTS - 1}, False),
        ({"size": continue_as_new.MAX_HISTORY_BYTES}, True),
        ({"size": continue_as_new.MAX_HISTORY_BYTES + 1}, True),
        ({"length": continue_as_new.MAX_EVENTS + 1}, True),
        ({"updates": continue_as_new.MAX_UPDATES + 1}, True),
        ({"suggested": True}, True),
        ({"full": True}, True),
        ({"task_timeout": timedelta(hours=1), "ran_for": 5.0}, True),
        ({"task_timeout": timedelta(hours=1), "ran_for": 0.5}, False),
        ({"ran_for": 5.0}, False),
    ],
)
def test_a_run_ends_once_it_is_large_or_long(
    changed: dict[str, Any], *, due: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or has taken many updates, or the server suggests it."""
    before: dict[str, Any] = {"size": 0, "length": 0, "updates": 0, "suggested": False, "full": False, "ran_for": 0.0}
    facts = before | {"task_timeout": continue_as_new.TASK_TIMEOUT} | changed
    began = datetime(2026, 1, 1, tzinfo=UTC)
    run = SimpleNamespace(
        get_current_history_size=lambda: facts["size"],
        get_current_history_length=lambda: facts["length"],
        is_continue_as_new_suggested=lambda: facts["suggested"],
        task_timeout=facts["task_timeout"],
        workflow_start_time=began,
    )
    monkeypatch.setattr(continue_as_new.workflow, "info", lambda: run)
    monkeypatch.setattr(continue_as_new.workflow, "time", lambda: began.timestamp() + facts["ran_for"])
    assert continue_as_new.is_due(updates=facts["updates"], full=facts["full"]) is due


def test_what_could_not_be_read_is_counted_from_one_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Histories have its marker."""
    markers: list[str] = []
    monkeypatch.setattr(activity_results.workflow.unsafe, "is_replaying", lambda: False)
    monkeypatch.setattr(activity_results.workflow, "patched", markers.append)
    monkeypatch.setattr(activity_results, "workflow_log", lambda *_, **__: None)
    results = activity_results.ActivityResults()
    for _ in range(2):
        with pytest.raises(activity_results.UnreadableResult):
            results.read(None, Reply, "The reply")
    assert markers == ["unreadable 1", "unreadable 2"]


@pytest.mark.parametrize("since", ["no rule", "a rule"])
async def test_a_call_that_was_looked_at_is_denied_only_by_a_rule_that_came_since(
    since: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rules = (Rule(tool="refund", then="deny"),)
    monkeypatch.setattr(tool_calls.workflow, "patched", lambda _: True)
    monkeypatch.setattr(tool_calls.workflow, "now", lambda: datetime(2026, 1, 1, tzinfo=UTC))
    calls: Any = SimpleNamespace(_state=SimpleNamespace(rules=rules, agent="clerk"))
    call = ToolCall(call_id="a", name="refund")
    before = rules if since == "no rule" else ()
    denial = await tool_calls.OpenCalls._denial_since(calls, before, call, RunTool(call_id="a"), None)
    assert bool(denial) is (since == "a rule")


@pytest.mark.parametrize(("turn", "owed", "sent"), [(4, False, True), (3, False, False), (3, True, True)])
def test_only_an_answer_that_was_not_told_is_told_while_it_idles(turn: int, *, owed: bool, sent: bool) -> None:
    """Not whatever changes then, such as its rules."""
    answers: list[int] = []
    events: Any = SimpleNamespace(
        _state=SimpleNamespace(stall=None, is_idle=True, turn=turn),
        _new_waits=SimpleNamespace(take=list),
        _stall=None,
        _answered_turn=3,
        _is_owed=owed,
        _send_answer=lambda: answers.append(turn),
    )
    conversation_events.Webhooks._send_new(events)
    assert bool(answers) is sent


def test_who_means_a_call_of_a_sub_agent_reads_how_many_are_at_work() -> None:
    at_work = {str(number): SimpleNamespace(conversation_id=f"talk-{number}") for number in range(12)}
    waiting: Any = SimpleNamespace(_agents_at_work=at_work)
    assert approvals.PendingApprovals._sub_agents_text(waiting).endswith("'talk-9' and 2 more.")


@pytest.mark.parametrize(("reason", "verdict"), [("needs_approval", "deny"), ("tool_asks", "answer")])
def test_an_expiry_needs_nobodys_leave(reason: Any, verdict: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(approvals.workflow, "now", lambda: datetime(2026, 1, 1, tzinfo=UTC))
    expiry = Expiry(after=50.0, verdict="deny")
    asked = QuestionToPerson(call_id="c", reason=reason, since=1_000.0)
    pending = PendingCall(ToolCall(call_id="c", name="pay"), RunPlan(call_id="c", expiry=expiry), asked)
    applied = decision_of_expiry(pending)
    assert (applied.decision.verdict, applied.by_rule) == (verdict, True)


@pytest.mark.parametrize(("after", "due"), [(-1, True), (0, True), (1, True), (2, False)])
def test_the_moment_before_a_call_expires_no_run_ends(
    after: int, *, due: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    monkeypatch.setattr(approvals.workflow, "now", lambda: now)
    early = SimpleNamespace(any_to_take=False)
    waits = SimpleNamespace(expires=now + after * timedelta(seconds=SHORTEST_SECONDS))
    waiting: Any = SimpleNamespace(_early=early, undecided={"a": SimpleNamespace(expires=None), "b": waits})
    assert vars(approvals.PendingApprovals)["decision_is_due"].fget(waiting) is due


def test_a_check_has_the_time_of_its_hooks_and_some_more() -> None:
    options = timeouts.result_check_options(12.0)
    assert options == timeouts.check_options() | {"start_to_close_timeout": timedelta(seconds=42)}


async def test_an_activity_that_is_always_lost_is_tried_five_times(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = RunActivity(call_id="a", activity="Pay", timeout=1.0, patience=1_000.0, effect="idempotent")
    tried: list[bool] = []

    async def one_try(*_: Any, is_retried: bool) -> str:
        tried.append(is_retried)
        raise activity_error(TimedOut("lost", type=TimeoutType.HEARTBEAT, last_heartbeat_details=[]))

    monkeypatch.setattr(user_activity_calls.workflow, "time", lambda: 7.0)
    calls: Any = SimpleNamespace(_try_once=one_try)
    call: Any = None
    with pytest.raises(ActivityError):
        await user_activity_calls.UserActivityCalls._run_with_retries(calls, call, call, plan)
    assert tried == [True] * 4 + [False]


def test_of_many_withdrawals_the_oldest_are_forgotten() -> None:
    handlers: Any = SimpleNamespace(_withdrawn={})
    for number in range(message_dispatch.MAX_WITHDRAWN + 2):
        message_dispatch.Handlers._withdraw_update(handlers, {"update_id": str(number)})
    assert (len(handlers._withdrawn), next(iter(handlers._withdrawn))) == (message_dispatch.MAX_WITHDRAWN, "2")


@pytest.mark.parametrize(
    ("call_id", "may"), [("aa", False), ("b", True), ("c", False), ("running", False), ("settled", False)]
)
def test_a_decision_may_come_before_its_call_waits(call_id: str, *, may: bool) -> None:
    """But not for a call that the reply does not have, or that runs or has its result."""
    calls = tuple(ToolCall(call_id=each, name="pay") for each in ("a", "b", "running", "settled"))
    ledger: Any = SimpleNamespace(calls=calls, results={"settled": None}, running={"running"})
    assert call_ledger.CallLedger.may_wait_later(ledger, call_id) is may
    ledger.calls = ()  # it may be of the next reply
    assert call_ledger.CallLedger.may_wait_later(ledger, call_id)


async def test_a_worker_that_has_the_evaluator_is_waited_for_ever_longer_for_an_hour(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [datetime(2026, 1, 1, tzinfo=UTC)]
    waits: list[timedelta] = []

    async def judge_once(_: Any) -> Any:
        raise activity_error(ApplicationError("nobody has it", type=names.NOT_HOSTED))

    async def sleep(wait: timedelta, *, summary: str) -> None:
        waits.append(wait)
        now[0] += wait

    monkeypatch.setattr(evaluation_workflow, "_judge_once", judge_once)
    monkeypatch.setattr(evaluation_workflow.workflow, "now", lambda: now[0])
    monkeypatch.setattr(evaluation_workflow.workflow, "sleep", sleep)
    request: Any = SimpleNamespace(evaluator="tone")
    judgement = await evaluation_workflow._judge_patiently(request)
    assert (judgement.error, "nobody has it" in (judgement.error_text or "")) == (names.NOT_HOSTED, True)
    assert [wait.total_seconds() for wait in waits[:7]] == [5, 10, 20, 40, 80, 160, 300]
    assert timedelta(hours=1) <= sum(waits, timedelta()) < timedelta(hours=1, minutes=5)


async def test_an_evaluator_that_refused_is_not_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def judge_once(_: Any) -> Any:
        raise activity_error(ApplicationError("too long", type="TooLong"))

    monkeypatch.setattr(evaluation_workflow, "_judge_once", judge_once)
    monkeypatch.setattr(evaluation_workflow.workflow, "now", lambda: datetime(2026, 1, 1, tzinfo=UTC))
    request: Any = SimpleNamespace(evaluator="tone")
    assert (await evaluation_workflow._judge_patiently(request)).error == "TooLong"


@pytest.mark.parametrize(("ended", "objection", "taken"), [("", None, 1), ("", "too late", 0), ("gone", None, 0)])
def test_a_signal_that_was_held_is_looked_at_again_when_it_is_taken(
    ended: str, objection: str | None, taken: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(message_dispatch, "workflow_log", lambda *_, **__: None)
    objections = iter(["not yet", objection])
    held: list[Any] = []
    payloads: list[Any] = []
    handlers: Any = SimpleNamespace(
        _owner=None,
        _find_lost=lambda *_: None,
        _check_input=lambda command, inputs: message_dispatch.Handlers._check_input(handlers, command, inputs),
        _ignore_signal=lambda *_: None,
    )
    command = message_dispatch.CommandType(
        Control,
        objection=lambda *_: next(objections),
        take=lambda _, payload: payloads.append(payload) or {},  # type: ignore[func-returns-value]
        hold=lambda _owner, _payload, take_late: held.append(take_late) is None,
    )
    message_dispatch.Handlers._take_command(handlers, names.RESUME, command, ({},))
    assert payloads == []
    held[0](ended)
    assert len(payloads) == taken


async def test_a_result_that_nobody_cuts_waits_until_another_one_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    run = SimpleNamespace(get_current_history_length=lambda: 10, get_current_history_size=lambda: 0)
    waited: list[bool] = []

    async def wait(condition: Any) -> None:
        waited.append(condition())
        del space._promised["a"]
        waited.append(condition())

    monkeypatch.setattr(history_space.workflow, "info", lambda: run)
    monkeypatch.setattr(history_space.workflow, "wait_condition", wait)
    space = history_space.HistorySpace()
    space._promised = {"a": history_space.RUN_BYTES, "b": 1}
    assert await space.allot_whole(request=0, other_calls=0) == TEMPORAL_PAYLOAD_BYTES
    assert waited == [False, True]


@pytest.mark.parametrize(("beside", "whole"), [(0, True), (1, False)])
def test_an_outcome_has_what_no_model_saw_as_far_as_the_caller_has_room(beside: int, *, whole: bool) -> None:
    """Beside the last reply's text and output, which go first."""
    message = Message.user("x" * 2_000)
    room = size_of("y" * 100) + size_of([1, 2]) + size_of((message,)) - beside
    start = Start(agent="clerk", caller=Caller(conversation_id="a", call_id="b", room=room))
    state = State(start, run_began=0.0)
    state.last_reply.text, state.last_reply.output = "y" * 100, [1, 2]
    state.inbox.messages.append(message)
    ending: Any = SimpleNamespace(_state=state, _cut_short=lambda _: None, _show_state=lambda: None)
    outcome = conversation.ConversationWorkflow._end_with(ending, "cancelled", reason="enough")
    assert (outcome.text, outcome.output) == ("y" * 100, [1, 2])
    assert (outcome.tail == (message,)) is whole
