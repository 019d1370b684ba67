"""What a conversation does in moments that no recorded history has: each run here is told what happens, without a
server."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from temporalio.exceptions import ApplicationError

from everturn import names
from everturn.carryover import CarryOver, OpenReply, PackedTranscript, QuestionToPerson, StoredInRun
from everturn.limits import Limits
from everturn.packed_messages import pack
from everturn.payloads import Caller
from everturn.plans import AwaitAnswer, RunActivity, RunTool, UseResult
from everturn.records import Message, Text, ToolCall, ToolResult, Usage
from everturn.sizes import (
    MAX_INBOX_BYTES,
    MAX_OPEN_BYTES,
    MAX_OPEN_INBOX_BYTES,
    MAX_OUTCOME_BYTES,
    RUN_BYTES,
    size_of,
)
from everturn.workflows.conversation import CLOSED_UNANSWERED
from tests.support.bounds import Bounds
from tests.support.played_runs import PlayedConversation, Refused, signalled, workflow_cancelled

PAY = ToolCall(call_id="a", name="pay", arguments={"cents": 5})
PAID = ToolResult(call_id="a", name="pay", content=(Text(text="paid"),))
RUN_IT = RunTool(call_id="a", effect="once")
ASK_FIRST = RunTool(call_id="a", approval="it asks")
UNFIT: dict[str, Any] = {"output_problem": "it is no JSON"}


def texts(messages: list[dict[str, Any]]) -> list[str]:
    return [part["text"] for message in messages for part in message["parts"] if part["kind"] == "text"]


def asked_texts(run: PlayedConversation) -> list[str]:
    """What the open turn's model is asked with."""
    return texts(run.request().get("delta", []))


def waiting(**given: Any) -> PlayedConversation:
    """A conversation whose call waits for an approval."""
    run = PlayedConversation(**given).begin().reply("", PAY, plan=(ASK_FIRST,))
    assert run.state == "awaiting_approval"
    return run


def stalled(**given: Any) -> PlayedConversation:
    run = PlayedConversation(**given).begin().fail_turn(cure="Mend it.")
    assert run.state == "stalled"
    return run


# ---------------------------------------------------------------- how it ends


def test_a_conversation_that_is_not_kept_open_ends_with_its_reply() -> None:
    run = PlayedConversation().begin().reply("Hi.", usage=Usage(output_tokens=3), cost_usd=0.5)
    assert run.outcome == {
        "status": "completed",
        "text": "Hi.",
        "output": None,
        "turns": 1,
        "tool_calls": 0,
        "usage": {"output_tokens": 3},
        "cost_usd": 0.5,
    }


def test_a_workflow_that_is_cancelled_says_so() -> None:
    outcome = PlayedConversation().begin().cancel().outcome or {}
    assert (outcome["status"], outcome["reason"]) == ("cancelled", "the workflow was cancelled")


def test_a_workflow_that_is_cancelled_while_it_idles_says_so() -> None:
    outcome = PlayedConversation(keep_open=60.0).begin().reply("Hi.").cancel().outcome or {}
    assert (outcome["status"], outcome["text"]) == ("cancelled", "Hi.")


def test_a_turn_that_is_cancelled_ends_what_is_not_kept_open() -> None:
    run = PlayedConversation().begin().signal(names.CANCEL_TURN, by="ann")
    run.task(run.cancelled(names.CALL_MODEL))
    outcome = run.outcome or {}
    assert (outcome["status"], outcome["reason"]) == ("cancelled", "the turn was cancelled by ann")
    assert texts(outcome["tail"]) == ["Hello"]


def test_a_turn_that_is_cancelled_leaves_what_is_kept_open_idle() -> None:
    run = PlayedConversation(keep_open=60.0).begin().signal(names.CANCEL_TURN)
    run.task(run.cancelled(names.CALL_MODEL))
    assert (run.outcome, run.state) == (None, "idle")
    run.signal(names.MESSAGE, text="Next")
    assert asked_texts(run) == ["Hello", "Next"]


def test_who_cancels_workflow_and_turn_at_once_has_cancelled_the_workflow() -> None:
    run = PlayedConversation(keep_open=60.0).begin()
    run.task(signalled(names.CANCEL_TURN), workflow_cancelled(), run.cancelled(names.CALL_MODEL))
    assert (run.outcome or {})["reason"] == "the workflow was cancelled"


def test_a_reply_that_comes_together_with_the_cancellation_of_its_turn_counts() -> None:
    run = PlayedConversation(keep_open=60.0).begin()
    run.task(signalled(names.CANCEL_TURN), run.replied("Hi."))
    assert texts(run.query(names.TRANSCRIPT)["messages"]) == ["Hello", "Hi."]
    assert run.state == "idle"


def test_a_result_that_hooks_are_to_see_ends_with_the_turn_that_is_cancelled_in_its_workflow_task() -> None:
    plan = RunActivity(call_id="a", activity="theirs", task_queue="queue", hooks_after=5.0)
    run = PlayedConversation(keep_open=60.0).begin().reply("", PAY, plan=(plan,))
    run.task(signalled(names.CANCEL_TURN, by="ann"), run.completed("theirs", {"paid": 5}))
    assert (run.state, run.activities) == ("idle", [])
    run.signal(names.MESSAGE, text="Next")
    (cut_short,) = run.request()["delta"][0]["parts"]
    assert cut_short["content"][0]["text"].startswith("This call was cut short: the turn was cancelled by ann.")


def test_the_failure_of_a_users_activity_that_comes_together_with_the_cancellation_of_its_turn_counts() -> None:
    plan = RunActivity(call_id="a", activity="theirs", task_queue="queue")
    run = PlayedConversation(keep_open=60.0).begin().reply("", PAY, plan=(plan,))
    declined = ApplicationError("card declined", type="Declined")
    run.task(signalled(names.CANCEL_TURN), run.failed("theirs", declined))
    assert run.state == "idle"
    (result,) = run.signal(names.MESSAGE, text="Next").request()["delta"][0]["parts"]
    assert (result["content"][0]["text"], result["is_error"]) == ("Declined: card declined", True)


@pytest.mark.parametrize(
    ("stop", "reason"),
    [("end", None), ("length", "the model's last reply is cut off: it reached the model's output limit (length)")],
)
def test_a_reply_that_is_not_whole_is_the_reason_beside_it(stop: str, reason: str | None) -> None:
    outcome = PlayedConversation().begin().reply("Hi.", stop=stop).outcome or {}
    assert (outcome["status"], outcome.get("reason")) == ("completed", reason)


def test_an_output_that_does_not_fit_is_asked_for_again_and_fails_at_last() -> None:
    run = PlayedConversation().begin().reply("{", **UNFIT)
    assert "it is no JSON" in asked_texts(run)[-1]
    run.reply("{", **UNFIT)
    assert run.outcome is None
    outcome = run.reply("{", **UNFIT).outcome or {}
    assert (outcome["status"], outcome["turns"]) == ("failed", 3)
    assert outcome["reason"] == "the last reply does not fit the output type: it is no JSON"


def test_an_output_that_fits_at_last_completes_it() -> None:
    outcome = PlayedConversation().begin().reply("{", **UNFIT).reply("{}", output={"a": 1}).outcome or {}
    assert (outcome["status"], outcome["output"]) == ("completed", {"a": 1})


def test_who_closes_it_during_a_turn_has_its_reply() -> None:
    run = PlayedConversation(keep_open=60.0).begin().signal(names.CLOSE)
    assert run.outcome is None
    outcome = run.reply("Hi.").outcome or {}
    assert (outcome["status"], outcome.get("reason"), outcome["text"]) == ("completed", None, "Hi.")


def test_who_closes_it_before_a_correction_wants_none() -> None:
    run = PlayedConversation().begin().signal(names.CLOSE).reply("{", **UNFIT)
    assert (run.outcome or {})["status"] == "failed"
    corrected = PlayedConversation().begin().reply("{", **UNFIT).signal(names.CLOSE).fail_turn()
    outcome = corrected.outcome or {}
    assert (outcome["status"], outcome["reason"]) == ("cancelled", CLOSED_UNANSWERED)


def test_who_closes_it_between_turns_has_no_answer() -> None:
    run = PlayedConversation(keep_open=60.0).begin().reply("I pay.", PAY, plan=(RUN_IT,)).signal(names.CLOSE)
    assert run.outcome is None  # the call runs
    outcome = run.complete("pay", PAID).outcome or {}
    assert (outcome["status"], outcome["reason"]) == ("completed", CLOSED_UNANSWERED)
    assert outcome["text"] == "I pay."
    assert [part["call_id"] for message in outcome["tail"] for part in message["parts"]] == ["a"]


def test_a_conversation_that_is_closed_while_it_idles_is_simply_over() -> None:
    outcome = PlayedConversation(keep_open=60.0).begin().reply("Hi.").signal(names.CLOSE).outcome or {}
    assert (outcome["status"], outcome.get("reason")) == ("completed", None)


def test_a_conversation_that_nobody_has_said_anything_to_is_simply_over() -> None:
    outcome = PlayedConversation(message=(), keep_open=60.0).begin().signal(names.CLOSE).outcome or {}
    assert (outcome["status"], outcome.get("reason"), outcome["turns"]) == ("completed", None, 0)


def test_a_conversation_that_has_idled_for_its_time_is_over() -> None:
    run = PlayedConversation(keep_open=60.0).begin().reply("Hi.")
    assert [timer.seconds for timer in run.timers] == [60.0]
    assert (run.fire(*run.timers).outcome or {})["status"] == "completed"


def test_the_longest_time_to_idle_is_one_that_a_timer_can_have() -> None:
    run = PlayedConversation(keep_open=1e300).begin().reply("Hi.")
    assert [timer.seconds for timer in run.timers] == [timedelta(days=36_500).total_seconds()]


def test_messages_that_wait_as_a_held_conversation_is_closed_stay_unanswered() -> None:
    for run in (
        stalled(),
        PlayedConversation().begin().signal(names.PAUSE).reply("", PAY, plan=(UseResult(call_id="a", result=PAID),)),
    ):
        run.signal(names.MESSAGE, text="More").signal(names.CLOSE)
        outcome = run.outcome or {}
        assert (outcome["status"], outcome["reason"]) == ("cancelled", CLOSED_UNANSWERED)
        assert texts(outcome["tail"])[-1:] == ["More"]


def test_a_final_reply_is_an_answer_though_it_was_paused_as_it_was_closed() -> None:
    run = PlayedConversation(keep_open=60.0).begin().signal(names.PAUSE).reply("Hi.")
    outcome = run.signal(names.CLOSE).outcome or {}
    assert (outcome["status"], outcome.get("reason")) == ("completed", None)


def test_a_message_that_comes_as_it_closes_is_answered_by_a_next_run() -> None:
    run = PlayedConversation(keep_open=60.0).begin().signal(names.CLOSE).signal(names.MESSAGE, text="Late")
    run.reply("Hi.")
    assert run.outcome is None
    carry = (run.next_start or {})["carry"]
    assert (texts(carry["inbox"]), carry.get("owed", False)) == (["Late"], False)
    assert carry["started_at"] == run.now.timestamp()
    again = PlayedConversation(run.next_start, continued=run.run_id).begin()
    assert asked_texts(again) == ["Late"]


@pytest.mark.parametrize(("room", "whole"), [(10_000, True), (1_000, False), (None, True)])
def test_an_outcome_has_the_room_that_the_caller_has(room: int | None, *, whole: bool) -> None:
    run = PlayedConversation(caller=Caller(conversation_id="c", call_id="a", room=room)).begin()
    outcome = run.reply("x" * 5_000).outcome or {}
    assert (outcome["text"] == "x" * 5_000) is whole
    assert size_of(outcome["text"]) <= (room or MAX_OUTCOME_BYTES) + 2


def test_a_caller_with_more_room_than_a_payload_has_gets_no_more() -> None:
    run = PlayedConversation(caller=Caller(conversation_id="c", call_id="a", room=100 * MAX_OUTCOME_BYTES)).begin()
    outcome = run.reply("x" * (MAX_OUTCOME_BYTES + 50_000)).outcome or {}
    assert size_of(outcome["text"]) <= MAX_OUTCOME_BYTES + 2


# ---------------------------------------------------------------- limits


def test_at_a_limit_the_model_concludes_or_it_just_ends() -> None:
    again = (UseResult(call_id="a", result=PAID),)
    run = PlayedConversation(limits=Limits(max_turns=1)).begin().reply("", PAY, plan=again)
    assert run.request()["conclude"] == "the limit of 1 turns"
    outcome = run.reply("So far.").outcome or {}
    assert (outcome["status"], outcome["reason"], outcome["turns"]) == ("limit_reached", "the limit of 1 turns", 2)
    ended = PlayedConversation(limits=Limits(max_turns=1, conclude=False)).begin().reply("So far.", PAY, plan=again)
    outcome = ended.outcome or {}
    assert (outcome["status"], outcome["turns"], outcome["text"]) == ("limit_reached", 1, "So far.")


def test_a_concluding_turn_whose_calls_run_is_the_last_one() -> None:
    again = (UseResult(call_id="a", result=PAID),)
    run = PlayedConversation(limits=Limits(max_turns=1)).begin().reply("", PAY, plan=again)
    outcome = run.reply("", ToolCall(call_id="b", name="pay")).outcome or {}
    assert (outcome["status"], outcome["turns"]) == ("limit_reached", 2)


def test_a_turn_that_is_resumed_after_its_time_concludes() -> None:
    run = stalled(limits=Limits(max_duration=timedelta(seconds=60)))
    run.pass_time(60)
    run.signal(names.RESUME)
    assert run.request()["conclude"] == "the limit of 0:01:00"
    ended = stalled(limits=Limits(max_duration=timedelta(seconds=60), conclude=False))
    ended.pass_time(60)
    assert (ended.signal(names.RESUME).outcome or {})["status"] == "limit_reached"


def test_a_cancelled_turn_did_not_conclude() -> None:
    """The next message is looked at anew."""
    run = PlayedConversation(keep_open=60.0, limits=Limits(max_tool_calls=1)).begin()
    run.reply("", PAY, plan=(UseResult(call_id="a", result=PAID),))
    assert run.request()["conclude"]
    run.signal(names.CANCEL_TURN)
    run.task(run.cancelled(names.CALL_MODEL))
    assert run.state == "idle"
    assert run.outcome is None


# ---------------------------------------------------------------- summaries


def test_a_summary_is_a_turn_after_which_the_answer_goes_on() -> None:
    run = PlayedConversation().begin().reply("", PAY, plan=(UseResult(call_id="a", result=PAID),), summary_due=True)
    assert (run.request()["summarise"], run.request()["turn"], run.request().get("delta")) == (True, 2, None)
    run.reply("In short")
    request = run.request()
    assert (request.get("summarise"), request["turn"], request["position"]) == (None, 3, 3)
    assert [part["call_id"] for part in request["delta"][0]["parts"]] == ["a"]


def test_a_conversation_that_is_closed_during_a_summary_is_over_if_nobody_said_more() -> None:
    run = PlayedConversation(keep_open=60.0).begin()
    run.reply("", PAY, plan=(UseResult(call_id="a", result=PAID),), summary_due=True)
    run.signal(names.CLOSE).reply("In short")
    outcome = run.outcome or {}
    assert (outcome["status"], outcome["reason"]) == ("completed", CLOSED_UNANSWERED)


def test_a_turn_that_is_too_long_is_asked_again_after_a_summary() -> None:
    run = PlayedConversation().begin().fail_turn(too_long=True)
    assert run.request()["summarise"] is True
    run.reply("In short")
    assert asked_texts(run) == ["Hello"]
    assert run.request()["turn"] == 2


def test_a_summary_that_is_too_long_stalls() -> None:
    run = PlayedConversation().begin().fail_turn(too_long=True).fail_turn(too_long=True)
    assert run.state == "stalled"


# ---------------------------------------------------------------- turns that fail


def test_a_turn_that_fails_is_asked_again_with_its_fallback_at_once() -> None:
    run = PlayedConversation(model="openai:first").begin().fail_turn(fallback="openai:second")
    assert (run.request()["model"], run.request()["turn"], asked_texts(run)) == ("openai:second", 1, ["Hello"])
    run.fail_turn(cure="Mend it.")
    assert (run.state, run.status["cure"]) == ("stalled", "Mend it.")
    run.signal(names.RESUME)
    assert run.request()["model"] == "openai:first"


def test_a_turn_that_fails_while_it_closes_is_given_up() -> None:
    for details in ({}, {"fallback": "openai:second"}, {"too_long": True}):
        run = PlayedConversation().begin().signal(names.CLOSE).fail_turn(**details)
        outcome = run.outcome or {}
        assert (outcome["status"], outcome["reason"]) == ("cancelled", CLOSED_UNANSWERED)


def test_a_reply_that_can_not_be_read_is_read_again_and_then_asked_for_again() -> None:
    run = PlayedConversation(keep_open=60.0).begin()
    run.complete(names.CALL_MODEL, {"message": "nonsense"})
    assert run.state == "stalled"
    assert run.status["cause"].startswith("The reply of turn 1 can't be read: ")
    run.signal(names.RESUME)
    assert (run.state, run.request()["turn"]) == ("running", 1)


def test_a_reply_that_can_not_be_read_while_it_closes_is_given_up() -> None:
    run = PlayedConversation(keep_open=60.0).begin().signal(names.CLOSE)
    run.complete(names.CALL_MODEL, {"message": "nonsense"})
    assert (run.outcome or {})["reason"] == CLOSED_UNANSWERED
    later = PlayedConversation(keep_open=60.0).begin()
    later.complete(names.CALL_MODEL, {"message": "nonsense"}).signal(names.CLOSE)
    assert (later.outcome or {})["reason"] == CLOSED_UNANSWERED


def test_a_pause_begins_before_the_next_turn() -> None:
    run = PlayedConversation().begin().signal(names.PAUSE).reply("", PAY, plan=(UseResult(call_id="a", result=PAID),))
    assert (run.state, run.activities) == ("paused", [])
    assert run.signal(names.RESUME).activities == [names.CALL_MODEL]


# ---------------------------------------------------------------- what others see


def test_a_page_of_the_transcript_begins_where_it_is_asked_to_and_counts_the_unseen() -> None:
    run = PlayedConversation(keep_open=60.0).begin().reply("One.").signal(names.MESSAGE, text="Two?")
    page = run.query(names.TRANSCRIPT)
    assert (page["from"], page["total"], texts(page["messages"])) == (0, 3, ["Hello", "One.", "Two?"])
    page = run.query(names.TRANSCRIPT, **{"from": 1, "limit": 1})
    assert (page["from"], page["total"], texts(page["messages"])) == (1, 3, ["One."])
    page = run.query(names.TRANSCRIPT, **{"from": 2})
    assert (page["from"], texts(page["messages"])) == (2, ["Two?"])
    with pytest.raises(Refused):
        run.query(names.TRANSCRIPT, limit=0)


def test_a_page_begins_with_the_first_message_that_is_in_memory() -> None:
    carry = CarryOver(length=7, earlier=StoredInRun(run_id="r"), inbox=(Message.user("Eight?"),))
    run = PlayedConversation(message=(), keep_open=60.0, carry=carry).begin().reply("Nine.")
    page = run.query(names.TRANSCRIPT, **{"from": 3, "limit": 1})
    assert (page["from"], page["total"], texts(page["messages"])) == (7, 9, ["Eight?"])
    page = run.query(names.TRANSCRIPT, **{"from": 8, "limit": 1})
    assert (page["from"], page["total"], texts(page["messages"])) == (8, 9, ["Nine."])


def test_a_status_says_what_a_stall_waits_for() -> None:
    run = stalled()
    assert (run.status["cause"], run.status["cure"]) == ("it failed", "Mend it.")
    run.signal(names.RESUME)
    assert (run.status["cause"], run.status["cure"]) == (None, None)


def test_a_status_says_which_worker_is_waited_for() -> None:
    run = PlayedConversation().begin().fail_turn(names.NOT_HOSTED, cure="Start one.")
    status = run.status
    assert (status["state"], status["cure"]) == ("running", "Start one.")
    assert status["cause"].startswith("it failed Waiting for one since 2026-01-01T00:00:0")
    assert run.request()["hand_back_for"] == 1800.0
    assert run.reply("Hi.").outcome


# ---------------------------------------------------------------- from run to run


def test_a_run_that_is_long_ends_between_turns_and_the_next_one_goes_on() -> None:
    run = PlayedConversation(keep_open=60.0).begin()
    run.suggested = True
    run.reply("", PAY, plan=(UseResult(call_id="a", result=PAID),))
    assert run.next_start
    carry = run.next_start["carry"]
    assert (carry["turn"], carry["owed"], carry["length"], carry["chain_id"]) == (1, True, 2, run.run_id)
    assert run.next_start.get("message", ()) == ()
    again = PlayedConversation(run.next_start, continued=run.run_id).begin()
    request = again.request()
    assert (request["turn"], request["position"]) == (2, 2)
    assert [part["call_id"] for part in request["delta"][0]["parts"]] == ["a"]


def test_a_run_does_not_end_with_a_final_reply_that_is_all() -> None:
    run = PlayedConversation().begin()
    run.suggested = True
    assert run.reply("Hi.").outcome


def test_a_run_ends_before_a_turn_that_is_asked_again() -> None:
    run = stalled()
    run.suggested = True
    run.signal(names.RESUME)
    assert run.next_start
    again = PlayedConversation(run.next_start, continued=run.run_id).begin()
    assert (again.request()["turn"], asked_texts(again)) == (1, ["Hello"])


def test_a_run_ends_while_its_calls_wait() -> None:
    run = waiting()
    run.suggested = True
    run.signal(names.PAUSE)
    assert run.next_start
    carry = run.next_start["carry"]
    assert [question["call_id"] for question in carry["open"]["waits"]] == ["a"]
    again = PlayedConversation(run.next_start, continued=run.run_id).begin()
    assert [call["call_id"] for call in again.status["waiting"]] == ["a"]
    assert again.patches == []
    again.signal(names.RESUME).signal(names.APPROVE, call_id="a")
    assert again.activities == ["pay"]


def test_a_run_with_a_call_at_work_goes_on() -> None:
    run = PlayedConversation().begin().reply("", PAY, plan=(RUN_IT,))
    run.suggested = True
    assert run.signal(names.PAUSE).next_start is None


def test_what_does_not_fit_the_next_run_waits_in_this_one(bounds: Bounds) -> None:
    bounds(open_bytes=100)
    run = waiting()
    run.suggested = True
    assert run.signal(names.PAUSE).next_start is None
    assert run.state == "paused"


def test_a_conversation_that_closes_is_not_moved() -> None:
    run = PlayedConversation(keep_open=60.0).begin().reply("", PAY, plan=(RUN_IT,)).signal(names.CLOSE)
    run.suggested = True
    assert run.complete("pay", PAID).next_start is None
    assert run.outcome


def test_a_conversation_that_is_closed_as_it_begins_is_not_moved() -> None:
    run = PlayedConversation()
    run.suggested = True
    run.task(signalled(names.CLOSE))
    assert (run.next_start, run.activities) == (None, [names.CALL_MODEL])


def about_to_hand_on_a_large_result(bounds: Bounds) -> PlayedConversation:
    bounds(handed_bytes=100)
    run = PlayedConversation(keep_open=60.0).begin()
    run.suggested = True
    large = PAID.model_copy(update={"content": (Text(text="x" * 200),)})
    return run.reply("", PAY, plan=(UseResult(call_id="a", result=large),), digest="d")


def test_large_results_become_a_part_of_the_prefix_before_a_run_ends(bounds: Bounds) -> None:
    run = about_to_hand_on_a_large_result(bounds)
    assert run.activities == [names.EXTEND_PREFIX]
    request = run.request(names.EXTEND_PREFIX)
    assert (request["turn"], request["position"], request["digest"]) == (2, 2, "d")
    run.complete(names.EXTEND_PREFIX, "later")
    carry = (run.next_start or {})["carry"]
    assert (carry["length"], carry["digest"], carry.get("unseen")) == (3, "later", None)


def test_a_digest_that_can_not_be_read_is_none(bounds: Bounds) -> None:
    run = about_to_hand_on_a_large_result(bounds)
    run.complete(names.EXTEND_PREFIX, 7)
    assert (run.next_start or {})["carry"].get("digest", "") == ""


def test_who_followed_the_text_follows_it_in_the_next_run() -> None:
    run = PlayedConversation(keep_open=60.0).begin().signal(names.MESSAGE, text="More", stream=True)
    run.suggested = True
    run.reply("Hi.")
    assert (run.next_start or {})["stream"] is True
    assert PlayedConversation(run.next_start, continued=run.run_id).begin().request()["stream"] is True


def test_an_open_reply_of_the_run_before_goes_first() -> None:
    open_reply = OpenReply(
        calls=(PAY,),
        plan=(AwaitAnswer(call_id="a"),),
        waits=(QuestionToPerson(call_id="a", reason="runs_outside", since=7.0),),
    )
    carry = CarryOver(open=open_reply, owed=True, turn=3, length=2, started_at=1.0, earlier=PackedTranscript(data=""))
    run = PlayedConversation(message=(), keep_open=60.0, carry=carry).begin()
    assert (run.state, run.activities) == ("awaiting_answer", [])
    run.signal(names.ANSWER, call_id="a", content="done")
    assert run.request()["turn"] == 4
    limited = carry.model_copy(update={"open": open_reply.model_copy(update={"limit": "the limit of 3 turns"})})
    run = PlayedConversation(message=(), carry=limited).begin().signal(names.ANSWER, call_id="a", content="done")
    assert (run.outcome or {})["status"] == "limit_reached"


def test_messages_of_earlier_runs_are_brought_along_in_time() -> None:
    carry = CarryOver(length=2, earlier=StoredInRun(run_id="r"), keep_by=1767225600.0 + 50, started_at=1.0)
    run = PlayedConversation(message=(), keep_open=600.0, carry=carry).begin()
    assert sorted(timer.seconds for timer in run.timers) == [49.0, 600.0]
    run.fire(*(timer for timer in run.timers if timer.seconds == 49.0))
    assert run.activities == [names.KEEP_TRANSCRIPT]
    run.complete(names.KEEP_TRANSCRIPT, PackedTranscript(data=""))
    assert run.state == "idle"


@pytest.mark.parametrize("how", ["failed", "unreadable"])
def test_messages_that_could_not_be_brought_along_do_not_end_it(how: str) -> None:
    carry = CarryOver(length=2, earlier=StoredInRun(run_id="r"), keep_by=7.0, started_at=1.0)
    run = PlayedConversation(message=(), keep_open=600.0, carry=carry).begin()
    due = [timer for timer in run.timers if timer.seconds < 1]
    if due:
        run.fire(*due)
    if how == "failed":
        run.fail(names.KEEP_TRANSCRIPT, ApplicationError("it failed", type="Gone"))
    else:
        run.complete(names.KEEP_TRANSCRIPT, 7)
    assert run.state == "idle"


def test_a_run_is_due_by_its_updates_too(bounds: Bounds) -> None:
    bounds(updates=2)
    run = PlayedConversation(keep_open=60.0).begin()
    run.update(names.MESSAGE, text="one")
    run.update(names.MESSAGE, text="two")
    assert run.reply("Hi.").next_start


@pytest.mark.parametrize("beside", [0, 1])
def test_what_is_too_much_to_hand_on_is_not_kept_in_memory(beside: int, bounds: Bounds) -> None:
    before = pack([Message.user("before")])
    bounds(packed_bytes=len(before) - beside)
    carry = CarryOver(length=1, earlier=PackedTranscript(data=before), started_at=1.0)
    run = PlayedConversation(message=(), keep_open=60.0, carry=carry).begin()
    assert (run.conversation.messages_in_memory.prefix is None) is bool(beside)


def test_a_conversation_that_is_kept_open_for_no_time_is_over_at_once() -> None:
    run = PlayedConversation(keep_open=0.0).begin().reply("Hi.")
    assert (bool(run.outcome), run.timers) == (True, [])


def test_an_inbox_that_is_too_much_to_hand_on_is_answered_first() -> None:
    run = PlayedConversation(keep_open=60.0).begin()
    for _ in range(2):
        run.signal(names.MESSAGE, text="x" * (MAX_INBOX_BYTES * 3 // 5))
    run.suggested = True
    run.reply("Hi.")
    assert (run.next_start, run.activities) == (None, [names.CALL_MODEL])
    run.reply("One of them.")
    assert len((run.next_start or {})["carry"]["inbox"]) == 1


def test_a_full_run_whose_calls_wait_cuts_its_inbox_until_it_can_end() -> None:
    run = waiting(keep_open=60.0)
    for _ in range(3):
        run.signal(names.MESSAGE, text="x" * (MAX_OPEN_BYTES * 2 // 5 - 1_000))
    assert run.next_start is None
    run.history_bytes = RUN_BYTES
    run.signal(names.MESSAGE, text="small")
    assert run.next_start
    inbox = run.next_start["carry"]["inbox"]
    assert (len(inbox), size_of(inbox) <= MAX_OPEN_INBOX_BYTES) == (4, True)
    assert [question["call_id"] for question in run.next_start["carry"]["open"]["waits"]] == ["a"]


def test_a_closed_conversation_that_concludes_says_its_limit() -> None:
    run = PlayedConversation(keep_open=60.0, limits=Limits(max_turns=1)).begin()
    run.reply("", PAY, plan=(UseResult(call_id="a", result=PAID),)).signal(names.CLOSE)
    outcome = run.reply("So far.").outcome or {}
    assert (outcome["status"], outcome["reason"]) == ("limit_reached", "the limit of 1 turns")


def test_a_summary_that_ends_at_a_limit_says_which() -> None:
    limits = Limits(max_turns=2, conclude=False)
    run = PlayedConversation(keep_open=60.0, limits=limits).begin()
    run.reply("", PAY, plan=(UseResult(call_id="a", result=PAID),), summary_due=True).reply("In short")
    outcome = run.outcome or {}
    assert (outcome["status"], outcome["reason"], outcome["turns"]) == ("limit_reached", "the limit of 2 turns", 2)
    closed = PlayedConversation(keep_open=60.0, limits=limits).begin()
    closed.reply("", PAY, plan=(UseResult(call_id="a", result=PAID),), summary_due=True)
    outcome = closed.signal(names.CLOSE).reply("In short").outcome or {}
    assert (outcome["status"], outcome["reason"]) == ("limit_reached", "the limit of 2 turns")
