"""A conversation's state as one value: what messages, replies, limits and people make of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from everturn.budgets.records import BudgetNote
from everturn.calls.pending_calls import PendingCall
from everturn.carryover import (
    Beginning,
    CarryOver,
    OpenReply,
    PackedTranscript,
    QuestionToPerson,
    StoredInRun,
    TranscriptView,
    WorkerFacts,
)
from everturn.heartbeats.details import SeenReply
from everturn.limits import Limits
from everturn.payloads import Control, MessageIn, ModelReply, Start
from everturn.plans import AwaitAnswer, RunTool
from everturn.policy import Rule
from everturn.records import (
    OWN_AUTHOR,
    Message,
    Stop,
    Successor,
    Text,
    ToolCall,
    ToolResult,
    Usage,
)
from everturn.sizes import MAX_INBOX_BYTES, MAX_LAST_TEXT_BYTES, size_of
from everturn.state import State


def new(**given: Any) -> State:
    return State(Start(agent="clerk", **given), run_began=100.0)


def next_run(carried: dict[str, Any] | None = None, **given: Any) -> State:
    """A state that begins with what an earlier run has handed on."""
    return new(carry=CarryOver(**(carried or {})), **given)


def reply(text: str = "", *calls: ToolCall, stop: Stop = "end", **facts: Any) -> ModelReply:
    parts = (*((Text(text=text),) if text else ()), *calls)
    return ModelReply(message=Message(role="assistant", parts=parts), stop=stop, **facts)


def cut_reply(text: str = "", **facts: Any) -> ModelReply:
    """Of a turn that was cancelled."""
    parts = (Text(text=text),) if text else ()
    return ModelReply(message=Message(role="assistant", parts=parts, cut_short=True), **facts)


def call(call_id: str = "a") -> ToolCall:
    return ToolCall(call_id=call_id, name="pay")


def result(call_id: str = "a", **more: Any) -> ToolResult:
    return ToolResult(call_id=call_id, name="pay", content=(Text(text="done"),), **more)


def answering(text: str = "Hello", **given: Any) -> State:
    """A state whose first turn waits for its reply."""
    state = new(message=text, keep_open=60.0, **given)
    state.begin_answer()
    state.begin_turn(messages=1)
    return state


def answered(**given: Any) -> State:
    state = answering(**given)
    state.take_reply(reply("Hi."))
    state.end_answer()
    return state


def waits(state: State, call_id: str = "a", **question: Any) -> None:
    """A call begins to wait for a person."""
    asked = QuestionToPerson(call_id=call_id, reason="needs_approval", **question)
    state.pending[call_id] = PendingCall(call(call_id), RunTool(call_id=call_id, approval="it asks"), asked)


def waits_for_answer(state: State, call_id: str = "b") -> None:
    asked = QuestionToPerson(call_id=call_id, reason="asks_user")
    state.pending[call_id] = PendingCall(call(call_id), AwaitAnswer(call_id=call_id), asked)


def texts(messages: list[Message]) -> list[str]:
    return [message.text for message in messages]


# ---------------------------------------------------------------- how a run begins


def test_a_run_has_the_rules_of_its_start_or_those_that_were_handed_on() -> None:
    own, theirs, later = (Rule(tool=name, then="deny") for name in ("own", "theirs", "later"))
    assert new(policy=(own,), inherited=(theirs,)).rules == (theirs, own)
    handed = next_run({"policy": (later,)}, policy=(own,), inherited=(theirs,))
    assert handed.rules == (later,)


def test_only_an_answer_that_is_owed_keeps_its_choice_of_tools() -> None:
    owed = next_run({"tools": ("look",), "owed": True})
    assert (owed.tools, owed.answering) == (("look",), True)
    rested = next_run({"tools": ("look",)})
    assert (rested.tools, rested.answering) == (None, False)


@pytest.mark.parametrize(("carried", "asked"), [("openai:later", "openai:later"), ("", "openai:first")])
def test_the_model_that_somebody_chose_last_is_asked(carried: str, asked: str) -> None:
    state = next_run({"model": carried}, model="openai:first")
    assert (state.model.name, state.model.first) == (asked, asked)


@pytest.mark.parametrize(
    ("carried", "final"),
    [
        ({}, False),
        ({"length": 2, "started_at": 5.0}, False),
        ({"length": 2}, True),
        ({"length": 2, "owed": True}, False),
        ({"length": 1}, True),
        ({"origin": StoredInRun(run_id="r")}, True),
        ({"origin": StoredInRun(run_id="r"), "owed": True}, False),
    ],
)
def test_only_a_fork_or_another_life_begins_with_a_final_reply(carried: dict[str, Any], *, final: bool) -> None:
    """And only if no answer is owed."""
    assert next_run(carried).last_reply.final is final


@pytest.mark.parametrize("has_open", [False, True])
@pytest.mark.parametrize("has_results", [False, True])
def test_a_reply_whose_calls_are_open_or_unseen_belongs_to_the_answer(*, has_open: bool, has_results: bool) -> None:
    unseen = (Message(role="tool", parts=(result(),)) if has_results else Message.user("?"),)
    state = next_run({"unseen": unseen, "open": OpenReply() if has_open else None})
    assert state.last_reply.in_answer is (has_open or has_results)


def test_calls_that_waited_in_the_run_before_wait_in_this_one() -> None:
    plan = RunTool(call_id="b", approval="it asks")
    question = QuestionToPerson(call_id="b", since=7.0, reason="needs_approval")
    state = next_run({"open": OpenReply(calls=(call("a"), call("b")), plan=(plan,), waits=(question,), limit="so far")})
    assert [(each.call.call_id, each.asked.since) for each in state.pending.values()] == [("b", 7.0)]
    assert state.limit == "so far"


def test_what_a_conversation_was_begun_with_stays_what_it_was() -> None:
    began = Beginning(agent="first", text="Once")
    state = next_run({"began": began}, message="Hello")
    assert state.carry_over(earlier=PackedTranscript(data=""), keep_by=None).began == began
    first = new(message="Hello").carry_over(earlier=PackedTranscript(data=""), keep_by=None).began
    assert first is not None
    assert (first.agent, first.text) == ("clerk", "Hello")


def test_the_agents_limits_hold_as_far_as_the_conversation_has_none_of_its_own() -> None:
    facts = WorkerFacts(limits={"max_turns": 7, "max_tool_calls": 5})
    state = next_run({"facts": facts}, limits=Limits(max_turns=3))
    assert (state.limits.max_turns, state.limits.max_tool_calls) == (3, 5)


def test_the_message_of_the_start_comes_after_those_that_were_handed_on_and_counts_by_its_id() -> None:
    state = next_run({"inbox": (Message.user("first"),), "message_ids": ("x",)}, message="second", message_id="y")
    assert texts(state.inbox.messages) == ["first", "second"]
    assert state.has_taken(["x", "y"])
    assert not state.has_taken(["x", "z"])
    assert texts(next_run({"message_ids": ("x",)}, message="again", message_id="x").inbox.messages) == []


def test_what_changes_in_place_is_named() -> None:
    """Readers of histories copy it, and go back to it."""
    state = new()
    parts = (state.prefix, state.unseen, state.inbox, state.totals, state.last_reply, state.model)
    assert all(part in state.drawers for part in parts)


# ---------------------------------------------------------------- messages


def test_an_answer_that_is_cancelled_before_its_first_turn_takes_the_messages_it_was_to() -> None:
    state = new(keep_open=60.0)
    for text in ("one", "two"):
        state.receive_message(Message.user(text))
    state.begin_answer()
    state.receive_message(Message.user("three"))
    state.cancel(Control())
    state.end_answer()
    assert (texts(state.unseen.messages), texts(state.inbox.messages)) == (["one", "two"], ["three"])
    assert state.inbox.unanswered == 0


def test_an_answer_that_is_cancelled_after_its_first_turn_leaves_the_messages_that_came_since() -> None:
    state = answering()
    state.receive_message(Message.user("two"))
    state.cancel(Control())
    state.end_answer()
    assert (texts(state.unseen.messages), texts(state.inbox.messages)) == (["Hello"], ["two"])


def test_an_answer_that_was_not_cancelled_takes_no_messages_as_it_ends() -> None:
    state = new(keep_open=60.0)
    state.receive_message(Message.user("one"))
    state.begin_answer()
    state.end_answer()
    assert (texts(state.unseen.messages), texts(state.inbox.messages)) == ([], ["one"])
    assert state.inbox.unanswered == 0


def test_of_long_messages_a_cancelled_answer_takes_as_many_as_its_turn_would_have_and_one_at_least() -> None:
    half = "x" * (MAX_INBOX_BYTES // 2 - 1_000)
    for given, taken in (([half] * 3, 2), (["x" * 2 * MAX_INBOX_BYTES, "small"], 1)):
        state = new(keep_open=60.0)
        for text in given:
            state.receive_message(Message.user(text))
        state.begin_answer()
        state.cancel(Control())
        state.end_answer()
        assert (len(state.unseen.messages), len(state.inbox.messages)) == (taken, len(given) - taken)


def test_a_message_that_comes_while_it_closes_is_for_the_next_run() -> None:
    state = new(keep_open=60.0)
    state.receive_message(Message.user("before"))
    state.close()
    state.receive_message(Message.user("late"))
    assert (texts(state.inbox.messages), texts(state.inbox.late)) == (["before"], ["late"])


@pytest.mark.parametrize("closing", [False, True])
def test_only_a_conversation_that_closes_has_its_inbox_filled_up(*, closing: bool) -> None:
    """One that goes on answers them in turns."""
    state = new(keep_open=60.0)
    state.receive_message(Message.user("x" * MAX_INBOX_BYTES))
    if closing:
        state.close()
    message = MessageIn(text="one more")
    assert bool(state.message_problem(message, size_of(message))) is closing


# ---------------------------------------------------------------- answers and turns


def test_a_new_answer_begins_anew_and_one_that_is_owed_goes_on() -> None:
    fresh = next_run({"handoffs": 3, "length": 2, "unseen": (Message(role="tool", parts=(result(),)),)})
    fresh.receive_message(Message.user("Hello"))
    fresh.begin_answer()
    assert (fresh.in_charge.handoffs, fresh.inbox.unanswered) == (0, 1)
    assert (fresh.last_reply.final, fresh.last_reply.in_answer) == (False, False)
    owed = next_run({"handoffs": 3, "owed": True, "unseen": (Message(role="tool", parts=(result(),)),)})
    owed.receive_message(Message.user("Hello"))
    owed.begin_answer()
    assert (owed.in_charge.handoffs, owed.inbox.unanswered) == (3, 0)
    assert (owed.last_reply.final, owed.last_reply.in_answer) == (False, True)


def test_a_final_reply_is_none_any_more_once_a_next_answer_begins() -> None:
    state = answered()
    assert state.last_reply.final
    state.receive_message(Message.user("Next"))
    state.begin_answer()
    assert not state.last_reply.final
    assert not state.last_reply.in_answer


def test_a_turn_takes_so_many_messages_and_is_asked_again_with_the_same() -> None:
    state = new(keep_open=60.0, model="openai:first")
    for text in ("one", "two", "three"):
        state.receive_message(Message.user(text))
    state.begin_answer()
    state.begin_turn(messages=2)
    assert (texts(state.unseen.messages), texts(state.inbox.messages)) == (["one", "two"], ["three"])
    assert (state.turn, state.inbox.unanswered) == (1, 0)
    state.fall_back("openai:second")
    state.begin_turn(messages=1, limit="so far")
    assert (texts(state.unseen.messages), state.turn, state.limit) == (["one", "two"], 1, "so far")
    assert state.model.first == "openai:first"
    state.begin_fallbacks_anew()
    assert state.model.name == "openai:first"


def test_a_summary_leaves_the_messages_unanswered() -> None:
    state = new(message="Hello", keep_open=60.0)
    state.receive_message(Message.user("And more"))
    state.begin_answer()
    state.begin_turn(summarise=True)
    assert (state.inbox.unanswered, texts(state.inbox.messages), state.turn) == (2, ["Hello", "And more"], 1)


def test_the_last_message_that_names_tools_says_which_there_are() -> None:
    state = new(keep_open=60.0)
    named: list[tuple[str, ...] | None] = [("look",), (), None]
    for tools in named:
        state.receive_message(Message.user("?").model_copy(update={"tools": tools}))
    state.begin_answer()
    state.begin_turn(messages=1)
    chosen = [state.tools]
    state.take_reply(reply("", call()))
    state.begin_turn(messages=2)
    chosen.append(state.tools)
    assert chosen == [("look",), ()]
    state.take_reply(reply("Done."))
    state.end_answer()
    assert state.tools is None


def test_a_whole_reply_makes_all_that_it_answers_a_part_of_the_prefix() -> None:
    told: list[list[str]] = []
    start = Start(agent="clerk", message="Hello", keep_open=60.0, carry=CarryOver(length=5))
    state = State(start, run_began=0.0, on_prefix=lambda messages: told.append(texts([*messages])))
    state.begin_answer()
    state.begin_turn(messages=1)
    state.take_reply(reply("Hi.", digest="d"))
    assert (state.prefix.position, state.prefix.base, state.prefix.digest) == (7, 5, "d")
    assert told == [["Hello", "Hi."]]
    assert state.unseen.messages == []
    assert not state.reply_awaited


@pytest.mark.parametrize(("stop", "kept"), [("tool_calls", "end"), ("length", "length"), ("end", "end")])
def test_calls_are_no_reason_why_a_reply_is_not_whole(stop: Stop, kept: Stop) -> None:
    state = answering()
    state.take_reply(reply("Hi.", stop=stop))
    assert state.last_reply.stop == kept


def test_a_reply_with_calls_is_not_final_and_counts_them() -> None:
    state = answering()
    plan = tuple(RunTool(call_id=call_id) for call_id in ("a", "b"))
    state.take_reply(reply("", call("a"), call("b"), plan=plan, summary_due=True))
    assert (state.last_reply.final, state.last_reply.in_answer, state.totals.tool_calls) == (False, True, 2)
    assert state.summary_due


def test_what_a_cancelled_turn_brings_is_not_its_answer() -> None:
    state = answering()
    state.take_reply(cut_reply("So f", usage=Usage(output_tokens=3), cost_usd=0.5))
    assert (state.last_reply.cut_text, state.last_reply.final, state.last_reply.text) == ("So f", False, "")
    assert (state.prefix.position, state.reply_awaited, state.totals.usage.output_tokens) == (2, False, 3)


def test_what_people_saw_of_a_cancelled_turn_is_kept_and_counted_once() -> None:
    seen = SeenReply(turn=1, text="So f", usage=Usage(output_tokens=3), cost_usd=0.5)
    state = answering()
    state.take_seen(seen)
    state.end_answer()
    assert (texts(state.unseen.messages), state.last_reply.cut_text) == (["Hello", "So f"], "So f")
    assert (state.totals.usage.output_tokens, state.totals.cost_usd) == (3, 0.5)
    counted = answering()
    counted.take_seen(seen)
    counted.take_reply(cut_reply(usage=Usage(output_tokens=4), cost_usd=0.75))  # the provider has counted it
    counted.end_answer()
    assert (texts(counted.unseen.messages), counted.prefix.position) == (["Hello", "So f"], 0)
    assert (counted.totals.usage.output_tokens, counted.totals.cost_usd) == (4, 0.75)


def test_what_was_seen_of_a_reply_that_came_whole_is_not_said_twice() -> None:
    state = answering()
    state.take_seen(SeenReply(turn=1, text="Hi"))
    state.take_reply(reply("Hi."))
    state.end_answer()
    assert state.unseen.messages == []
    assert state.last_reply.cut_text == ""


def test_an_answer_that_has_ended_leaves_nothing_for_the_next_one() -> None:
    state = answering()
    state.take_seen(SeenReply(turn=1, text="So f"))
    waits(state)
    state.last_reply.corrections = 2
    state.end_answer()
    assert (state.answering, state.reply_awaited, state.pending, state.last_reply.corrections) == (False, False, {}, 0)
    state.reply_awaited = True
    state.end_answer()
    assert texts(state.unseen.messages) == ["Hello", "So f"]


@pytest.mark.parametrize(("text", "length", "tokens"), [("In short", 1, 5), ("", 0, 0)])
def test_a_summary_comes_before_what_the_model_has_not_seen(text: str, length: int, tokens: int) -> None:
    """One without a text changes nothing."""
    state = answering()
    state.summary_due = True
    budget = BudgetNote(run="r")
    state.take_summary(reply(text, usage=Usage(output_tokens=5), budget=budget, digest="d"))
    assert (state.prefix.position, state.totals.usage.output_tokens) == (length, tokens)
    assert (texts(state.unseen.messages), state.summary_due, state.reply_awaited) == (["Hello"], False, False)
    assert state.totals.budget == budget


@pytest.mark.parametrize("shown", [None, TranscriptView(trim_before=3)])
def test_a_reply_without_a_view_leaves_it_as_it_was(shown: TranscriptView | None) -> None:
    before = TranscriptView(trim_before=1)
    state = next_run({"view": before})
    state.take_reply(reply("Hi.", view=shown))
    assert state.view == (shown or before)


def test_a_reply_is_corrected_twice_in_a_row() -> None:
    state = answering()
    asked: list[bool] = []
    for _ in range(3):
        state.take_reply(reply("{", output_problem="it is no JSON"))
        asked.append(state.ask_for_correction())
    assert asked == [True, True, False]
    state.end_answer()
    state.begin_answer()
    state.take_reply(reply("{", output_problem="it is no JSON"))
    assert state.ask_for_correction()
    (message,) = state.unseen.messages
    assert message.author == OWN_AUTHOR
    assert "it is no JSON" in message.text


def test_a_reply_that_fits_is_not_corrected() -> None:
    state = answering()
    state.take_reply(reply("{}"))
    assert not state.ask_for_correction()
    assert state.unseen.messages == []


# ---------------------------------------------------------------- results


def test_results_are_in_events_if_their_calls_recorded_them_or_a_turn_has_brought_them() -> None:
    before = (Message(role="tool", parts=(result("handed"),)),)
    state = next_run({"unseen": before})
    state.take_results((result("a"), result("b"), result("c")), recorded=["a"], from_outputs=["b"])
    assert state.unseen.recorded == {"a"}
    known = [state.unseen.in_events]
    state.unseen.note_in_events()
    known.append(state.unseen.in_events)
    state.take_reply(reply("Hi."))
    state.take_results((result("handed"), result("a")))
    known.append(state.unseen.in_events)
    assert known == [("handed", "a", "b"), ("handed", "a", "b", "c"), ()]


def test_the_unseen_become_a_part_of_the_prefix_without_a_reply() -> None:
    state = next_run({"length": 3, "unseen": (Message.user("?"), Message(role="tool", parts=(result(),)))})
    state.take_in_unseen("d")
    assert (state.prefix.position, state.prefix.digest, state.unseen.messages) == (5, "d", [])


def test_messages_that_were_brought_along_need_not_be_brought_again() -> None:
    state = next_run({"keep_by": 7.0, "earlier": StoredInRun(run_id="r")})
    state.prefix.take_earlier(PackedTranscript(data=""))
    assert (state.prefix.keep_by, state.prefix.earlier) == (None, PackedTranscript(data=""))


def test_a_result_without_a_successor_hands_nothing_over() -> None:
    state = answering(model="openai:chosen")
    state.summary_due = True
    state.take_results((result("a"),))
    assert (state.agent, state.model.name, state.summary_due) == ("clerk", "openai:chosen", True)
    state.take_results((result("b"), result("c", successor=Successor(agent="expert")), result("d")))
    assert (state.agent, state.model.name, state.summary_due) == ("expert", "", False)


@pytest.mark.parametrize("handed_on", [False, True])
def test_limits_and_webhook_stay_those_of_the_first_agent(*, handed_on: bool) -> None:
    state = new()
    state.take_facts(WorkerFacts(limits={"max_turns": 7}, model="openai:first"))
    if handed_on:
        state.follow_handoffs([result(successor=Successor(agent="expert"))])
    state.take_facts(WorkerFacts(limits={"max_turns": 9}, model="openai:second"))
    assert (state.limits.max_turns, state.asked_model) == (7 if handed_on else 9, "openai:second")


def test_the_first_facts_are_taken_whoever_is_in_charge() -> None:
    state = next_run({"agent": "expert"})
    assert state.asked_model == ""
    state.take_facts(WorkerFacts(limits={"max_turns": 7}))
    assert state.limits.max_turns == 7


# ---------------------------------------------------------------- what people steer


def test_a_conversation_is_paused_once() -> None:
    state = new()
    assert state.pause_problem() is None
    state.pause()
    assert state.pause_problem() == "The conversation is already paused."
    state.close()
    assert state.pause_problem() == "The conversation is closing: it ends once what runs now has finished."


@pytest.mark.parametrize("stalled", [False, True])
@pytest.mark.parametrize("paused", [False, True])
@pytest.mark.parametrize("only_stalled", [False, True])
def test_what_is_stalled_or_paused_can_be_resumed(*, stalled: bool, paused: bool, only_stalled: bool) -> None:
    state = new()
    if stalled:
        state.begin_stall("why", None)
    state.paused = paused
    control = Control(only_stalled=only_stalled)
    possible = stalled or (paused and not only_stalled)
    assert (state.resume_problem(control) is None) is possible
    state.resume(control)
    assert (state.stall, state.paused) == (None, paused and only_stalled)


@pytest.mark.parametrize(("model", "possible"), [("openai:m", True), ("openai", False), (None, True)])
def test_a_conversation_is_resumed_with_a_model_that_can_be(model: str | None, *, possible: bool) -> None:
    state = new(model="openai:first")
    state.pause()
    control = Control(model=model)
    assert (state.resume_problem(control) is None) is possible
    state.resume(control)
    assert (state.model.name, state.model.first) == ((model, model) if model else ("openai:first", "openai:first"))


@pytest.mark.parametrize(
    ("without_deciding", "pending", "refused"),
    [
        (False, "approval", False),
        (True, "approval", True),
        (True, "answer", False),
        (True, "both", True),
        (True, "", False),
    ],
)
def test_who_may_not_decide_can_not_deny_by_cancelling(without_deciding: bool, pending: str, *, refused: bool) -> None:
    state = answering()
    if pending in ("approval", "both"):
        waits(state)
    if pending in ("answer", "both"):
        waits_for_answer(state)
    control = Control(without_deciding=without_deciding)
    assert bool(state.cancel_problem(control)) is refused
    assert bool(state.denial_problem(control)) is refused
    state.end_answer()
    assert state.cancel_problem(control) == "No turn is running."
    assert state.denial_problem(control) is None


@pytest.mark.parametrize(
    ("control", "words"),
    [
        (Control(), "the turn was cancelled"),
        (Control(by="ann"), "the turn was cancelled by ann"),
        (Control(reason="enough"), "the turn was cancelled (enough)"),
        (Control(by="ann", reason="enough"), "the turn was cancelled by ann (enough)"),
    ],
)
def test_it_is_said_who_cancelled_a_turn_and_why(control: Control, words: str) -> None:
    state = answering()
    state.pause()
    state.begin_stall("why", None)
    state.cancel(control)
    assert (state.cancelled, state.paused, state.stall) == (words, False, None)
    state.end_answer()
    state.begin_answer()
    assert state.cancelled == ""


def test_a_stalled_or_cancelled_conversation_gives_its_place_in_the_budget_back() -> None:
    for cancelled in (False, True):
        state = next_run({"budget": BudgetNote(asked_until=9.0)})
        if cancelled:
            state.cancel(Control())
        else:
            state.begin_stall("why", "cure")
        assert state.totals.budget == BudgetNote()
    state = new()
    state.begin_stall("why", "cure")
    assert state.totals.budget is None


@pytest.mark.parametrize(("stalled", "paused", "abandoned"), [(0, 0, False), (1, 0, True), (0, 1, True), (1, 1, True)])
def test_a_conversation_that_is_closed_while_it_is_held_is_abandoned(
    stalled: int, paused: int, *, abandoned: bool
) -> None:
    state = answering()
    if stalled:
        state.begin_stall("why", None)
    state.paused = bool(paused)
    state.close()
    assert (state.closing, state.abandoned, state.paused, state.stall) == (True, abandoned, False, None)
    state.close()
    assert state.abandoned is abandoned


# ---------------------------------------------------------------- what is read off it


@pytest.mark.parametrize("keep_open", [None, 0.0, 60.0])
def test_only_a_conversation_that_is_kept_open_idles(keep_open: float | None) -> None:
    state = new(keep_open=keep_open)
    kept = keep_open is not None
    assert (state.is_idle, state.name) == (kept, "idle" if kept else "running")
    state.receive_message(Message.user("Hello"))
    assert (state.is_idle, state.name) == (False, "running")
    state.begin_answer()
    state.begin_turn(messages=1)
    assert (state.is_idle, state.name) == (False, "running")
    state.take_reply(reply("Hi."))
    state.end_answer()
    assert state.is_idle is kept
    state.end()
    assert (state.is_idle, state.name) == (False, "done")


def test_what_holds_a_conversation_up_most_is_its_name() -> None:
    state = answering()
    names = []
    steps: list[Callable[[], None]] = [
        lambda: waits_for_answer(state),
        lambda: waits(state),
        state.pause,
        lambda: state.begin_stall("why", None),
        state.end,
    ]
    for step in steps:
        step()
        names.append(state.name)
    assert names == ["awaiting_answer", "awaiting_approval", "paused", "stalled", "done"]


def test_every_message_has_its_final_reply_only_after_the_last_one() -> None:
    state = answered()
    assert state.is_answered
    state.close()
    state.receive_message(Message.user("late"))
    assert not state.is_answered
    state.take_up_again(200.0)
    assert (state.is_answered, state.totals.started_at) == (False, 200.0)
    other = answered()
    other.receive_message(Message.user("more"))
    assert not other.is_answered
    assert not answering().is_answered
    cut = answered()
    cut.cancelled = "the turn was cancelled"
    assert not cut.is_answered


@pytest.mark.parametrize("closing", [False, True])
@pytest.mark.parametrize("says", ["nothing", "a result", "something"])
def test_a_conversation_that_was_closed_is_over_with_its_summary_if_nobody_said_more(
    says: str, *, closing: bool
) -> None:
    state = next_run()
    if says == "a result":
        state.take_results((result(),))
    if says == "something":
        state.unseen.messages.append(Message.user("Hello"))
    if closing:
        state.close()
    assert state.is_over_with_summary is (closing and says != "something")


@pytest.mark.parametrize(("conclude", "ends"), [(True, False), (False, True)])
def test_a_limit_ends_a_conversation_that_is_not_to_conclude(conclude: bool, *, ends: bool) -> None:
    state = next_run({"turn": 2}, limits=Limits(max_turns=2, conclude=conclude))
    assert state.limit_reached(100.0) == "the limit of 2 turns"
    assert bool(state.limit_that_ends(100.0)) is ends


def test_the_limit_of_time_is_counted_from_the_beginning() -> None:
    state = new(limits=Limits.model_validate({"max_duration": "PT60S"}))
    assert state.limit_reached(159.0) is None
    assert state.limit_reached(160.0)


# ---------------------------------------------------------------- what goes on from here


def handed_on(state: State, **about: Any) -> CarryOver:
    return state.carry_over(**{"earlier": PackedTranscript(data=""), "keep_by": None} | about)


@pytest.mark.parametrize(("earlier", "by"), [(PackedTranscript(data=""), None), (StoredInRun(run_id="r"), 9.0)])
def test_only_messages_that_are_elsewhere_have_to_be_brought_along(earlier: Any, by: float | None) -> None:
    assert handed_on(new(), earlier=earlier, keep_by=9.0).keep_by == by


def test_a_turn_without_its_reply_is_begun_again_by_the_next_run() -> None:
    state = answering()
    assert (state.turn, handed_on(state).turn) == (1, 0)
    state.take_reply(reply("Hi."))
    assert handed_on(state).turn == 1


def test_what_the_model_said_is_whole_only_beside_its_open_calls() -> None:
    state = answering()
    state.take_reply(reply("x" * 2 * MAX_LAST_TEXT_BYTES, call()))
    assert handed_on(state, reply=OpenReply()).last_text == state.last_reply.text
    shortened = handed_on(state).last_text
    assert size_of(shortened) <= MAX_LAST_TEXT_BYTES + 2
    assert shortened.startswith("xxx")


def test_the_next_run_knows_which_turn_made_the_calls_whose_results_are_unseen() -> None:
    state = next_run({"turn": 4})
    state.begin_turn()
    state.take_reply(reply("", call()))
    assert handed_on(state).called_in == 0  # no result is there yet
    state.take_results((result(),))
    state.begin_turn(summarise=True)
    state.take_summary(reply("In short"))
    assert (state.turn, handed_on(state).called_in) == (6, 5)
    later = next_run({"turn": 6, "called_in": 5, "unseen": tuple(state.unseen.messages)})
    assert handed_on(later).called_in == 5
    earlier = next_run({"turn": 6, "unseen": tuple(state.unseen.messages)})
    assert handed_on(earlier).called_in == 6
