"""Small changes of the code that survived `make mutants DRAWN=60`: each is seen here."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import JsonValue
from temporalio.exceptions import (
    ApplicationError,
    TerminatedError,
    TimeoutType,
)
from temporalio.exceptions import (
    TimeoutError as TimedOut,
)

from everturn import names
from everturn.calls.decision_problems import decision_problem
from everturn.calls.decision_records import Approve, Deny
from everturn.carryover import PackedTranscript, StoredInRun
from everturn.limits import Limits
from everturn.payloads import Control, Start
from everturn.plans import RetryPlan, RunActivity, RunTool
from everturn.records import Message, ToolCall
from everturn.sizes import LOCAL_BYTES, MAX_INPUT_BYTES, MAX_NAME_CHARS, MOST_LOCAL, TASK_BYTES, size_of
from everturn.state import State
from everturn.subagents import workflow as subagents_workflow
from everturn.tracing import Trace
from everturn.workflows import (
    awaited_worker,
    call_ledger,
    commands,
    continue_as_new,
    eager_dispatch,
    early_decisions,
    history_space,
    message_dispatch,
    timeouts,
    tool_results,
    tracing,
    user_activity_calls,
    web_ui,
)
from everturn.workflows.recent_messages import RecentMessages
from tests.support.activity_errors import activity_error, child_error
from tests.support.bounds import Bounds


@pytest.mark.parametrize(("most", "made", "left"), [(None, 3, None), (7, 0, 7), (7, 2, 5), (7, 7, 0), (7, 9, 0)])
def test_as_many_calls_are_left_as_were_not_made(most: int | None, made: int, left: int | None) -> None:
    assert Limits(max_tool_calls=most).calls_left(made) == left


@pytest.mark.parametrize(("beside", "fits"), [(-1, False), (0, True), (1, True)])
def test_what_is_larger_than_the_bound_is_not_handed_over(beside: int, fits: bool, bounds: Bounds) -> None:
    handed = Start(agent="clerk", message="Hello")
    bounds(open_bytes=size_of(handed) + beside)
    assert continue_as_new.fits_with_open_calls(handed) is fits


def test_an_agent_whose_conversation_was_ended_could_not_answer_in_our_words() -> None:
    error = child_error(TerminatedError("Temporal's words"))
    told = tool_results.no_answer_result(ToolCall(call_id="a", name="helper"), error).text
    assert told.startswith("helper could not answer: ")
    assert "Temporal's words" not in told


@pytest.mark.parametrize(
    ("given", "handed"),
    [
        ({}, []),
        ({"a": 1}, [1]),
        ({"a": 1, "b": 2}, [1, 2]),
        ({"b": 2}, [None, 2]),
        ({"a": 1, "b": 2, "c": 3}, [1, 2, 3]),
        ({"c": 3}, [None, None, 3]),
    ],
)
def test_an_activity_takes_its_arguments_by_position_up_to_the_last_that_is_given(
    given: dict[str, JsonValue], handed: list[JsonValue]
) -> None:
    plan = RunActivity(call_id="a", activity="Pay", by_position=("a", "b", "c"))
    assert user_activity_calls._activity_inputs(plan, given) == handed


def test_temporal_ends_a_call_of_a_tool_only_after_it_should_have_ended_by_itself() -> None:
    plan = RunTool(call_id="a", timeout=60.0, patience=600.0)
    own, local = timeouts.tool_activity_options(plan), timeouts.local_options(plan)
    later = timeouts.HEARTBEAT_TIMEOUT
    assert own["start_to_close_timeout"] == local["start_to_close_timeout"] == timedelta(seconds=60) + later
    assert own["schedule_to_close_timeout"] == timedelta(days=7, seconds=600)
    assert local["schedule_to_close_timeout"] == timedelta(seconds=660) + later


@pytest.mark.parametrize(
    ("task_queue", "awaited", "in_queue"),
    [
        ("theirs", False, timedelta(seconds=10)),
        ("theirs", True, timedelta(days=7)),
        (None, False, timedelta(days=7)),
    ],
)
def test_all_tries_of_a_users_activity_are_bounded_by_its_patience_after_the_queue(
    task_queue: str | None, awaited: bool, in_queue: timedelta
) -> None:
    plan = RunActivity(
        call_id="a", activity="Pay", task_queue=task_queue, timeout=60.0, patience=600.0, retry=RetryPlan()
    )
    options = timeouts.user_activity_options(plan, awaited=awaited)
    assert options["schedule_to_start_timeout"] == in_queue
    assert options["start_to_close_timeout"] == timedelta(seconds=60)
    assert options["schedule_to_close_timeout"] == in_queue + timedelta(seconds=600)


@pytest.mark.parametrize(
    ("model", "problem"),
    [
        ("x" * 150, f"There is no model {'x' * 100!r}. Write provider:name, as in openai:gpt-5.5."),
        ("a:" + "b" * (MAX_NAME_CHARS - 2), None),
        ("a:" + "b" * (MAX_NAME_CHARS - 1), f"There is no model {'a:' + 'b' * 98!r}."),
    ],
)
def test_a_model_that_cannot_be_is_refused_by_its_name(model: str, problem: str | None) -> None:
    state = State(Start(agent="clerk"), run_began=0.0)
    state.pause()
    said = state.resume_problem(Control(model=model))
    assert said is None if problem is None else said is not None and said.startswith(problem)


@pytest.mark.parametrize(
    ("text", "line"),
    [("ab" + " " * 12 + "cd", "ab cd"), ("a b c d e f", "a b c d e…"), ("ab" + " " * 30 + "cd", "ab…")],
)
def test_a_text_is_shortened_after_its_spaces(text: str, line: str) -> None:
    assert web_ui.one_line(text, 10) == line


def test_a_message_with_an_id_is_taken_once() -> None:
    state = State(Start(agent="clerk"), run_began=0.0)
    said = Message.user("Hello")
    assert [
        state.receive_message(said, "a"),
        state.receive_message(said, "a"),
        state.receive_message(said, "b"),
        state.receive_message(said),
    ] == [
        True,
        False,
        True,
        True,
    ]


def test_a_decision_that_is_final_makes_only_those_on_its_call_too_late(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(early_decisions.workflow, "time", lambda: 7.0)
    early, told = early_decisions.EarlyDecisions(), dict[str, str]()
    for call_id in ("a", "b"):
        early.keep(call_id, lambda why, call_id=call_id: told.__setitem__(call_id, why), waits=True)  # type: ignore[misc]
    early.discard_late("".join("a"))
    assert told == {"a": "Call 'a' was not waiting for it."}
    assert early.any_to_take
    early.discard_late()
    assert list(told) == ["a", "b"]


@pytest.mark.parametrize(("ignored", "more"), [(1, []), (20, []), (21, [1]), (63, [43])])
async def test_of_many_ignored_signals_the_rest_is_counted(
    ignored: int, more: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    logged: list[dict[str, Any]] = []
    monkeypatch.setattr(message_dispatch, "workflow_log", lambda *_, **told: logged.append(told))
    signals = message_dispatch.Handlers(None, {})  # type: ignore[arg-type]
    for _ in range(ignored):
        signals._ignore_signal("approve", "why")
    await asyncio.sleep(0)
    assert [told["more"] for told in logged if "more" in told] == more
    assert len(logged) == min(ignored, message_dispatch.MOST_LOGGED) + len(more)


def test_of_a_long_argument_more_is_read_than_is_shown() -> None:
    spaces = " " * (web_ui.SUMMARY_CHARS + 10)
    assert web_ui.call_summary("note", {"text": f"{spaces}seen"}) == 'note(text=" seen")'


def test_of_many_calls_the_rest_is_counted() -> None:
    calls = tuple(ToolCall(call_id=str(number), name="look", arguments={}) for number in range(web_ui.SHOWN_CALLS + 3))
    assert next(web_ui.message_lines([Message(role="assistant", parts=calls)])).endswith(" and 3 more")
    assert "more" not in next(web_ui.message_lines([Message(role="assistant", parts=calls[: web_ui.SHOWN_CALLS])]))
    assert web_ui.SHOWN_CALLS == 5  # as docs and pictures show


class _Slept(Exception):
    """The budget waits for the next workflow task."""


async def test_results_that_have_just_come_count_until_the_next_workflow_task(monkeypatch: pytest.MonkeyPatch) -> None:
    run = SimpleNamespace(length=10, size=0)
    run.get_current_history_length, run.get_current_history_size = lambda: run.length, lambda: run.size

    async def sleep(*_: Any, **__: Any) -> None:
        raise _Slept

    monkeypatch.setattr(history_space.workflow, "info", lambda: run)
    monkeypatch.setattr(history_space.workflow, "sleep", sleep)
    space = history_space.HistorySpace()
    free = 1_500_000  # more than that is left for the second result than one payload
    run.size = history_space.RUN_BYTES - history_space.TEMPORAL_PAYLOAD_BYTES - free
    assert await space.allot_whole(request=0, other_calls=0)
    with space.promised("a", 1_000_000):
        pass
    assert await space.allot_whole(request=0, other_calls=0)
    with space.promised("b", 1_000_000):
        pass
    with pytest.raises(_Slept):
        await space.allot_whole(request=0, other_calls=0)
    run.length += 1  # they are in the history now
    assert await space.allot_whole(request=0, other_calls=0)


def test_a_prefix_that_is_far_too_long_is_not_packed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(continue_as_new.workflow, "info", lambda: SimpleNamespace(run_id="r"))
    words = "a" * (continue_as_new.LIKELY_TOO_LONG // 2)
    held: list[Message] = []
    monkeypatch.setattr(continue_as_new, "whole_prefix", lambda *_: held)
    state, recent = State(Start(agent="clerk"), run_began=0.0), RecentMessages("")
    held.append(Message.user(words))
    assert isinstance(continue_as_new._earlier_messages(state, recent), PackedTranscript)
    held.append(Message.user(words))
    assert isinstance(continue_as_new._earlier_messages(state, recent), StoredInRun)


# ---------------------------------------------------------------- those of `SEED=1 make mutants DRAWN=60`


def test_calls_that_run_or_have_results_are_not_to_come() -> None:
    ledger: Any = SimpleNamespace(calls=[1, 2, 3, 4], running={"a"}, results={"a": 1, "b": 2})
    assert vars(call_ledger.CallLedger)["to_come"].fget(ledger) == 2


@pytest.mark.parametrize(("others", "each"), [(1, LOCAL_BYTES), (MOST_LOCAL, history_space.LEAST_RESULT_BYTES)])
async def test_local_results_leave_room_for_as_many_as_run_at_once(
    others: int, each: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = SimpleNamespace(get_current_history_length=lambda: 10, get_current_history_size=lambda: 0)
    monkeypatch.setattr(history_space.workflow, "info", lambda: run)
    space = history_space.HistorySpace()
    assert await space.allot_share(request=1_000, other_calls=others, max_bytes=TASK_BYTES, local=True) == (
        TASK_BYTES - 1_000 - others * each
    )


@pytest.mark.parametrize(("passed", "again"), [(0.0, True), (39.0, True), (40.0, False), (99.0, False)])
async def test_a_lost_activity_is_tried_again_if_another_try_fits_into_its_patience(
    passed: float, again: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = RunActivity(call_id="a", activity="Pay", timeout=60.0, patience=100.0, effect="idempotent")
    tried: list[bool] = []
    lost = activity_error(TimedOut("lost", type=TimeoutType.HEARTBEAT, last_heartbeat_details=[]))
    now = [7.0]

    async def one_try(*_: Any, is_retried: bool) -> str:
        tried.append(is_retried)
        if len(tried) == 1:
            now[0] += passed
            raise lost
        return "done"

    monkeypatch.setattr(user_activity_calls.workflow, "time", lambda: now[0])
    calls: Any = SimpleNamespace(_try_once=one_try)
    call: Any = None
    assert await user_activity_calls.UserActivityCalls._run_with_retries(calls, call, call, plan) == "done"  # type: ignore[comparison-overlap]
    assert tried == [True, again]


@pytest.mark.parametrize("call_id", ["a", "#1", "!"])
def test_expected_arguments_are_refused_only_for_all_calls_at_once(call_id: str) -> None:
    asked: Any = SimpleNamespace(call=ToolCall(call_id=call_id, name="refund", arguments={"cents": 1}))
    about: dict[str, Any] = {"policy": (), "time": 7.0, "refused_edits": 0}
    one = Approve(call_id=call_id, expected={"cents": 1})
    assert decision_problem(one, [asked], **about) is None
    assert "different arguments" in (decision_problem(one.model_copy(update={"expected": {}}), [asked], **about) or "")
    all_of_them = one.model_copy(update={"call_id": "*"})
    assert decision_problem(all_of_them, [asked], **about) == "Expected arguments are for one call: name its call_id."


async def test_a_tool_is_waited_for_again_and_again_until_a_worker_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []

    async def wait_condition(_: Any, *, timeout: float, **__: Any) -> None:
        slept.append(timeout)
        raise TimeoutError

    monkeypatch.setattr(awaited_worker.workflow, "wait_condition", wait_condition)
    monkeypatch.setattr(awaited_worker.workflow, "now", lambda: datetime(2026, 1, 1, tzinfo=UTC))
    monkeypatch.setattr(awaited_worker, "by_the_queue", nullcontext)
    not_hosted = activity_error(ApplicationError("nobody", {}, type=names.NOT_HOSTED))
    left = iter([not_hosted] * 4)

    async def start(_: float | None) -> str:
        if error := next(left, None):
            raise error
        return "done"

    waits = awaited_worker.AwaitedWorker(Any, Any, lambda: None)
    assert await waits.run_when_hosted("call a", start, patience=1e6, retried=False) == "done"
    assert len(slept) == 4
    assert waits.cause is None


@pytest.mark.parametrize(
    ("told", "given"), [("off", None), ("dropped", Trace(chain_id="c")), ("unknown", Trace(chain_id="whole"))]
)
def test_a_turn_of_a_trace_that_is_dropped_is_told_whose_it_is(told: str, given: Trace | None) -> None:
    one: Any = SimpleNamespace(
        _told=told, _chain_id="c", _caller=None, _answer=None, _links=[], _current_trace=lambda: Trace(chain_id="whole")
    )
    assert tracing.Tracing.of_turn(one) == given


@pytest.mark.parametrize(("later", "cancelled"), [(False, True), (True, False)])
async def test_a_sub_agent_is_cancelled_before_it_has_begun_only_in_the_task_that_asks_for_it(
    later: bool, cancelled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = SimpleNamespace(length=10)
    monkeypatch.setattr(
        subagents_workflow.workflow, "info", lambda: SimpleNamespace(get_current_history_length=lambda: run.length)
    )

    async def nothing() -> None:
        pass

    monkeypatch.setattr(subagents_workflow, "let_results_arrive", nothing)
    came = asyncio.get_running_loop().create_future()
    stopped: list[str] = []

    async def start() -> Any:
        try:
            return await came
        except asyncio.CancelledError:
            stopped.append("before it began")
            raise

    asking = asyncio.create_task(subagents_workflow._wait_for_start(start()))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    run.length += later
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    await asyncio.sleep(0)
    assert stopped == (["before it began"] if cancelled else [])
    if later:  # the child is cancelled once it has begun
        child = asyncio.get_running_loop().create_future()
        came.set_result(child)
        with pytest.raises(asyncio.CancelledError):
            await child


def test_arguments_that_are_shown_end_at_their_limit_though_no_piece_ends_there() -> None:
    json_beginning = web_ui._json_beginning({"text": "x" * (web_ui.ARGUMENTS_CHARS + 1_000), "more": 1})
    beginning, _, notice = json_beginning.rpartition("\n")
    assert beginning.endswith("x")
    assert len(beginning) == web_ui.ARGUMENTS_CHARS
    assert notice == "[Cut: the first 2,000 characters are shown.]"


def test_after_a_summary_the_next_question_is_another_turn() -> None:
    state = State(Start(agent="clerk"), run_began=0.0)
    state.summary_due = state.reply_awaited = True
    reply: Any = SimpleNamespace(message=SimpleNamespace(parts=()), budget=None)
    state.take_summary(reply)
    assert (state.summary_due, state.reply_awaited) == (False, False)


def test_a_decision_that_another_one_holds_up_outlives_its_workflow_task(monkeypatch: pytest.MonkeyPatch) -> None:
    now, told = [7.0], list[tuple[str, str]]()
    monkeypatch.setattr(early_decisions.workflow, "time", lambda: now[0])
    early = early_decisions.EarlyDecisions()
    for name in ("a1", "a2", "b1"):
        early.keep(name[0], lambda why, name=name: told.append((name, why)), waits=False)  # type: ignore[misc]
    early.release("a", until=lambda: bool(told))
    assert told == [("a1", "")]
    now[0] = 8.0
    early.keep("c", lambda _: None, waits=False)
    assert told[1:] == [("b1", "Call 'b' was not waiting for it.")]
    early.release("a", until=lambda: False)
    assert told[2:] == [("a2", "")]


async def test_a_call_waits_if_the_running_ones_were_promised_what_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    run = SimpleNamespace(get_current_history_length=lambda: 10, get_current_history_size=lambda: 0)

    async def wait(_: Any) -> None:
        raise _Slept

    monkeypatch.setattr(history_space.workflow, "info", lambda: run)
    monkeypatch.setattr(history_space.workflow, "wait_condition", wait)
    space = history_space.HistorySpace()
    with space.promised("a", history_space.RUN_BYTES - history_space.FAIR_BYTES - 1_000):
        assert await space.allot_share(request=1_000, other_calls=0) == history_space.FAIR_BYTES
        with pytest.raises(_Slept):
            await space.allot_share(request=1_001, other_calls=0)
    run.get_current_history_size = lambda: history_space.RUN_BYTES  # nothing runs that could leave any of it
    assert await space.allot_share(request=1_000, other_calls=0) == history_space.LEAST_RESULT_BYTES


def refusal(approval: Approve, monkeypatch: pytest.MonkeyPatch, *, waiting: int = 1, left: int = 10**9) -> str | None:
    """Why the approval is refused, if so many calls wait and the run has so many bytes left."""
    monkeypatch.setattr(commands.workflow, "time", lambda: 7.0)
    monkeypatch.setattr(commands, "too_full_for", lambda size: f"no room for {size}" if size > left else "")
    approvals = SimpleNamespace(refused_edits=0, not_waiting_problem=lambda *_, **__: None)
    one: Any = SimpleNamespace(
        approvals=approvals,
        state=SimpleNamespace(policy=(), rules=(), agent="clerk"),
        _addressed_calls=lambda _: range(waiting),
    )
    return commands.Commands._decision_objection(one, approval)


def test_an_edit_goes_into_the_history_three_times(monkeypatch: pytest.MonkeyPatch) -> None:
    edited = Approve(call_id="a", arguments={"text": "x" * 1_000})
    size = size_of(edited)
    assert refusal(edited, monkeypatch, left=3 * size) is None
    assert refusal(edited, monkeypatch, left=3 * size - 1) == f"no room for {3 * size}"
    plain = Approve(call_id="a", note="x" * 1_000)  # which its event holds, and nothing else
    assert refusal(plain, monkeypatch, left=0) is None


def test_a_note_goes_along_with_each_call_that_it_approves(monkeypatch: pytest.MonkeyPatch) -> None:
    note = Approve(call_id="*", note="x" * 100_000)
    size = size_of(note)
    most = MAX_INPUT_BYTES // size
    assert refusal(note, monkeypatch, waiting=most) is None
    assert f"goes along with each of {most + 1} calls" in (refusal(note, monkeypatch, waiting=most + 1) or "")
    one_call = note.model_copy(update={"call_id": "a"})
    assert refusal(one_call, monkeypatch, waiting=1_000) is None
    small = Approve(call_id="*", note="x" * 5_000)
    assert refusal(small, monkeypatch, waiting=1_000) is None


def test_a_denial_and_an_answer_have_the_size_of_an_input_at_most() -> None:
    room = MAX_INPUT_BYTES - size_of(Deny(call_id="a", reason=""))
    for more, refused in ((-1, False), (0, False), (1, True), (1_000, True)):
        said = Deny(call_id="a", reason="x" * (room + more))
        assert bool(decision_problem(said, [], policy=(), time=7.0, refused_edits=0)) is refused


def test_after_the_block_activities_are_for_their_own_worker_again() -> None:
    asked: list[bool] = []
    taken: Any = SimpleNamespace(start_activity=lambda given: asked.append(given.disable_eager_execution))
    outbound = eager_dispatch._Outbound(taken)

    def start() -> None:
        given: Any = SimpleNamespace(disable_eager_execution=False)
        outbound.start_activity(given)

    start()
    with eager_dispatch.by_the_queue():
        start()
    start()
    assert asked == [False, True, False]


def test_arguments_are_indented_by_two() -> None:
    assert web_ui._json_beginning({"a": {"b": "é"}}) == '{\n  "a": {\n    "b": "é"\n  }\n}'
