"""What people can do to a conversation, and why it is refused: each run is told what they send, without a server."""

from __future__ import annotations

import re
from typing import Any

import pytest

from everturn import names
from everturn.carryover import CarryOver
from everturn.payloads import Caller, Control
from everturn.plans import AwaitAnswer, RunTool, UseResult
from everturn.policy import MAX_RULES
from everturn.records import Text, ToolCall, ToolResult
from everturn.sizes import RUN_BYTES, SMALL_DECISION_BYTES
from everturn.workflows import message_dispatch
from tests.support.played_runs import PlayedConversation, Refused, signalled

PAY = ToolCall(call_id="a", name="pay", arguments={"cents": 5})
LOOK = ToolCall(call_id="b", name="look")
PAID = ToolResult(call_id="a", name="pay", content=(Text(text="paid"),))
ASK_FIRST = RunTool(call_id="a", approval="it asks")
ODD_PARTS = [{"kind": "thinking", "text": "hm"}]


def idle(**given: Any) -> PlayedConversation:
    return PlayedConversation(**{"keep_open": 60.0} | given).begin().reply("Hi.")


def at_work(**given: Any) -> PlayedConversation:
    return PlayedConversation(**{"keep_open": 60.0} | given).begin()


def waiting(**given: Any) -> PlayedConversation:
    """Its first call waits for an approval, and its second one for an answer from outside."""
    return at_work(**given).reply("", PAY, LOOK, plan=(ASK_FIRST, AwaitAnswer(call_id="b")))


def refusal(run: PlayedConversation, name: str, **payload: Any) -> str:
    with pytest.raises(Refused) as refused:
        run.update(name, **payload)
    return str(refused.value)


def ignored(run: PlayedConversation, name: str, **payload: Any) -> list[str]:
    """Why the signal was ignored, as the log says."""
    run.logged.clear()
    run.signal(name, **payload)
    whys = [re.search(r"^signal\.ignored .* why=(['\"])(.*)\1$", line) for line in run.logged]
    return [why[2] for why in whys if why]


def results(run: PlayedConversation) -> list[tuple[str, str]]:
    """What the open turn's model is told of the calls."""
    parts = [part for message in run.request()["delta"] for part in message["parts"] if part["kind"] == "tool_result"]
    return [(part["call_id"], "".join(piece["text"] for piece in part["content"])) for part in parts]


# ---------------------------------------------------------------- messages


def test_a_message_is_taken_once_by_its_id() -> None:
    run = idle()
    assert run.update(names.MESSAGE, text="Next", message_id="m") == {"taken": True}
    assert run.update(names.MESSAGE, text="Next", message_id="m") == {"taken": False}
    assert "message_id 'm' before" in refusal(run, names.MESSAGE, text="Other", message_id="m")
    run.signal(names.MESSAGE, text="Other", message_id="m")
    assert [line.split()[0] for line in run.logged] == ["message.not_taken"]
    run.reply("Yes.")
    assert run.state == "idle"


def test_a_message_with_the_id_of_one_that_says_the_same_is_no_matter() -> None:
    run = idle().signal(names.MESSAGE, text="Next", message_id="m").signal(names.MESSAGE, text="Next", message_id="m")
    assert run.logged == []


def test_a_message_without_content_says_so_though_its_id_is_known() -> None:
    run = idle()
    run.update(names.MESSAGE, text="Next", message_id="m")
    assert refusal(run, names.MESSAGE, message_id="m") == "A message needs text or parts."


def test_no_update_is_taken_while_it_closes_but_a_signal_is() -> None:
    run = at_work().signal(names.CLOSE)
    problem = "The conversation is closing and takes no more messages. Start another one."
    assert refusal(run, names.MESSAGE, text="More") == problem
    assert ignored(run, names.MESSAGE, text="Late") == []
    assert ignored(run, names.MESSAGE) == [problem]
    assert run.reply("Hi.").next_start


def test_a_message_of_kinds_that_no_user_sends_is_refused() -> None:
    run = idle()
    assert "no parts of the kind 'thinking'" in refusal(run, names.MESSAGE, parts=ODD_PARTS)
    assert len(ignored(run, names.MESSAGE, parts=ODD_PARTS)) == 1
    assert run.state == "idle"


@pytest.mark.parametrize("left", [0, SMALL_DECISION_BYTES])
def test_what_is_large_is_refused_by_a_run_that_is_full(left: int) -> None:
    run = at_work()
    run.history_bytes = RUN_BYTES - left
    problem = refusal(run, names.MESSAGE, text="x" * (SMALL_DECISION_BYTES + 1_000))
    assert f"this run has only {left:,} left" in problem
    assert run.update(names.MESSAGE, text="small") == {"taken": True}
    run.signal(names.MESSAGE, text="x" * (SMALL_DECISION_BYTES + 1_000))  # it is in the history already
    carry = (run.reply("Hi.").next_start or {})["carry"]
    assert len(carry["inbox"]) == 2


def test_an_answer_is_linked_to_where_its_messages_were_sent_from_once() -> None:
    trace = {"traceparent": f"00-{'a' * 32}-{'b' * 16}-01"}
    run = at_work()
    for _ in range(2):
        run.signal(names.MESSAGE, text="Next", message_id="m", trace=trace)
    run.reply("Hi.", traced="sampled")
    assert len(run.request()["trace"]["answer"]["links"]) == 1


@pytest.mark.parametrize(("before", "said", "after"), [(False, True, True), (True, False, False), (True, None, True)])
def test_a_message_may_say_whether_somebody_follows_the_text(before: bool, said: bool | None, after: bool) -> None:
    run = idle(stream=before).signal(names.MESSAGE, text="Next", stream=said)
    assert run.request().get("stream", False) is after


# ---------------------------------------------------------------- decisions


def test_an_approved_call_runs_and_a_denied_one_does_not() -> None:
    run = waiting()
    assert run.state == "awaiting_approval"
    assert run.update(names.APPROVE, call_id="a", by="ann") == {"call_ids": ["a"]}
    assert (run.activities, run.state) == (["pay"], "awaiting_answer")
    assert run.update(names.DENY, call_id="b", by="ann", reason="no need") == {"call_ids": ["b"]}
    run.complete("pay", PAID)
    assert results(run) == [
        ("a", "paid"),
        ("b", "This call was denied by ann. Its client had it already, and may have run it. Reason: no need"),
    ]


@pytest.mark.parametrize("is_error", [False, True])
def test_an_answer_is_the_result_of_its_call(*, is_error: bool) -> None:
    run = waiting()
    assert run.update(names.ANSWER, call_id="b", content="seen", by="ann", is_error=is_error) == {"call_ids": ["b"]}
    run.update(names.DENY, call_id="a")
    (part,) = (part for message in run.request()["delta"] for part in message["parts"] if part["call_id"] == "b")
    decision = {name: value for name, value in part["decision"].items() if name != "at"}
    assert (part["content"][0]["text"], part.get("is_error", False)) == ("seen", is_error)
    assert decision == {"verdict": "answer", "by": "ann"}


def test_a_decision_that_is_of_the_wrong_kind_is_refused() -> None:
    run = waiting()
    assert "runs outside: answer or deny it" in refusal(run, names.APPROVE, call_id="b")
    assert refusal(run, names.APPROVE, call_id="c").startswith("No call 'c' waits; these do: 'a', 'b'.")
    run.update(names.APPROVE, call_id="a", by="ann")
    assert refusal(run, names.APPROVE, call_id="a").startswith("Call 'a' was already decided: approve by ann at 2026")


def test_a_decision_for_always_is_a_rule_and_decides_on_others() -> None:
    calls = (PAY, PAY.model_copy(update={"call_id": "b"}))
    run = at_work().reply("", *calls, plan=(ASK_FIRST, RunTool(call_id="b", approval="it asks")))
    run.update(names.DENY, call_id="a", by="ann", always=True)
    assert [(rule["tool"], rule["then"], rule["by"]) for rule in run.status["policy"]] == [("pay", "deny", "ann")]
    assert [call_id for call_id, _ in results(run)] == ["a", "b"]


def test_a_decision_for_once_leaves_the_others_alone() -> None:
    calls = (PAY, PAY.model_copy(update={"call_id": "b"}))
    run = at_work().reply("", *calls, plan=(ASK_FIRST, RunTool(call_id="b", approval="it asks")))
    run.update(names.DENY, call_id="a")
    assert ([call["call_id"] for call in run.status["waiting"]], run.status["policy"]) == (["b"], [])


DENY_MUCH = [{"tool": "pay", "then": "deny", "where": {"cents": {"above": 10}}}]


def test_no_edit_goes_beyond_a_rule_that_denies() -> None:
    run = waiting(policy=DENY_MUCH)
    assert "denies pay with these arguments" in refusal(run, names.APPROVE, call_id="a", arguments={"cents": 11})
    assert len(ignored(run, names.APPROVE, call_id="a", arguments={"cents": 11})) == 1
    assert run.update(names.APPROVE, call_id="a", arguments={"cents": 10}) == {"call_ids": ["a"]}


def test_a_decision_that_comes_with_its_reply_waits_for_its_call() -> None:
    run = at_work()
    run.task(signalled(names.APPROVE, {"call_id": "a"}), run.replied("", PAY, plan=(ASK_FIRST,)))
    assert run.activities == ["pay"]


def test_a_decision_on_an_idle_conversation_is_for_no_call_to_come() -> None:
    assert len(ignored(idle(), names.APPROVE, call_id="a")) == 1


# ---------------------------------------------------------------- rules


def test_rules_are_replaced_and_decide_on_what_waits() -> None:
    run = waiting()
    assert run.update(names.SET_POLICY, rules=[{"tool": "pay", "then": "approve"}], by="ann") == {"rules": 1}
    assert (run.activities, run.status["policy"][0]["by"]) == (["pay"], "ann")
    assert run.update(names.SET_POLICY, rules=[]) == {"rules": 0}
    assert run.status["policy"] == []


def test_too_many_bytes_of_rules_are_refused() -> None:
    rules = [{"tool": f"{number:0>200}", "then": "ask"} for number in range(MAX_RULES)]
    assert "the limit is" in refusal(idle(), names.SET_POLICY, rules=rules)


def test_only_a_conversation_that_was_asked_inherits_rules() -> None:
    deny = [{"tool": "pay", "then": "deny"}]
    problem = "No other conversation asked for this one: use `set_policy`."
    assert refusal(waiting(), names.INHERIT_POLICY, rules=deny) == problem
    run = waiting(caller=Caller(conversation_id="c", call_id="x"), policy=[{"tool": "look", "then": "ask"}])
    assert run.update(names.INHERIT_POLICY, rules=deny) == {"rules": 2}
    assert "a" not in [call["call_id"] for call in run.status["waiting"]]


# ---------------------------------------------------------------- switches


def test_pause_and_resume_say_the_state_and_why_they_can_not_be() -> None:
    run = at_work()
    assert "nothing to resume" in refusal(run, names.RESUME)
    assert run.update(names.PAUSE) == {"state": "paused"}
    assert refusal(run, names.PAUSE) == "The conversation is already paused."
    assert run.update(names.RESUME) == {"state": "running"}


@pytest.mark.parametrize("held", ["paused", "stalled"])
def test_who_pauses_a_held_conversation_as_it_is_closed_does_not_hold_it_up(held: str) -> None:
    run = at_work()
    if held == "stalled":
        run.fail_turn()
    else:
        run.signal(names.PAUSE).reply("", PAY, plan=(UseResult(call_id="a", result=PAID),))
    assert run.state == held
    run.task(signalled(names.CLOSE), signalled(names.PAUSE))
    assert (run.outcome or {})["status"] == "cancelled"
    assert "closing" in run.logged[-1]


def test_a_conversation_that_is_closing_is_not_paused() -> None:
    run = at_work()
    run.update(names.CLOSE)
    assert refusal(run, names.PAUSE) == "The conversation is closing: it ends once what runs now has finished."
    assert run.fail_turn().outcome


def test_a_resume_that_comes_with_a_failure_is_for_its_stall() -> None:
    run = at_work()
    run.task(signalled(names.RESUME), run.turn_failed("Broken"))
    assert (run.state, run.activities) == ("running", [names.CALL_MODEL])


def test_who_pauses_after_a_resume_was_sent_has_the_last_word() -> None:
    run = at_work()
    run.task(signalled(names.RESUME, model="openai:gpt"), signalled(names.PAUSE), run.turn_failed("Broken"))
    assert (run.state, run.activities) == ("paused", [])
    run.signal(names.RESUME)
    assert (run.activities, run.request()["model"]) == ([names.CALL_MODEL], "openai:gpt")


def test_a_resume_with_a_model_that_is_none_is_for_no_stall() -> None:
    run = at_work()
    run.task(signalled(names.RESUME, model="gpt"), run.turn_failed("Broken"))
    assert run.state == "stalled"
    assert "There is no model 'gpt'" in run.logged[-1]


@pytest.mark.parametrize("when", ["idle", "a call waits"])
def test_a_resume_is_not_kept_for_a_stall_that_nothing_runs_for(when: str) -> None:
    run = idle() if when == "idle" else waiting()
    assert len(ignored(run, names.RESUME)) == 1


def test_a_turn_is_cancelled_only_if_one_runs() -> None:
    run = idle()
    assert refusal(run, names.CANCEL_TURN) == "No turn is running."
    run = waiting()
    assert refusal(run, names.CANCEL_TURN, without_deciding=True) == "A call waits for somebody's decision."
    assert refusal(run, names.CLOSE, without_deciding=True) == "A call waits for somebody's decision."
    assert run.update(names.CANCEL_TURN) == {"state": "awaiting_approval"}
    assert run.state == "idle"


def test_a_conversation_that_is_closed_denies_what_waits() -> None:
    run = waiting()
    run.update(names.CLOSE, by="ann")
    outcome = run.outcome or {}
    decisions = [part["decision"] for message in outcome["tail"] for part in message["parts"]]
    assert [(decision["verdict"], decision["by"], decision["note"]) for decision in decisions] == [
        ("deny", "ann", "The conversation was closed.")
    ] * 2


def test_a_conversation_that_is_listed_as_paused_is_shown_as_it_runs_on() -> None:
    run = at_work(carry=CarryOver(facts={"indexed": True}), message="Hello")
    run.signal(names.PAUSE)
    run.signal(names.CLOSE)
    assert [shown[names.EVERTURN_STATUS] for shown in run.listed] == ["running", "paused", "running"]
    again = at_work(carry=CarryOver(facts={"indexed": True}), message="Hello").fail_turn()
    again.signal(names.RESUME)
    assert [shown[names.EVERTURN_STATUS] for shown in again.listed] == ["running", "stalled", "running"]


def test_an_answer_that_was_cancelled_as_a_run_begins_is_not_taken_up() -> None:
    carry = CarryOver(owed=True, turn=1, length=2, started_at=1.0, digest="d")
    run = PlayedConversation(message=(), keep_open=60.0, carry=carry)
    run.task(signalled(names.CANCEL_TURN))
    assert (run.scheduled, run.state) == ([], "idle")
    on = PlayedConversation(message=(), keep_open=60.0, carry=carry).begin()
    assert on.activities == [names.CALL_MODEL]


# ---------------------------------------------------------------- signals and updates of any kind


def test_a_signal_that_makes_no_sense_is_logged_and_changes_nothing() -> None:
    run = idle()
    assert ignored(run, names.MESSAGE, text=7)[0].startswith("text: ")
    (why,) = ignored(run, "aprove")
    assert why.startswith("there is no such signal; there are answer, approve, ")
    assert "withdraw" in why
    (why,) = ignored(run, names.WITHDRAW)
    assert why.startswith("update_id: ")
    assert run.state == "idle"


def test_an_update_that_makes_no_sense_is_refused() -> None:
    assert refusal(idle(), names.MESSAGE, text=7).startswith("text: ")


def test_an_update_that_was_withdrawn_is_not_taken() -> None:
    run = idle().signal(names.WITHDRAW, update_id="update-1")
    assert refusal(run, names.MESSAGE, text="Next") == "It was withdrawn."
    assert run.update(names.MESSAGE, text="Next") == {"taken": True}


@pytest.mark.parametrize(
    ("inputs", "problem"),
    [
        ((), ""),
        ((None,), ""),
        (({"reason": "enough"},), ""),
        (({}, {}), "it takes one input, got 2"),
        (("enough",), "its input is a JSON object, got 'enough'"),
        (([],), "its input is a JSON object, got []"),
        ((0,), "its input is a JSON object, got 0"),
        (("x" * 200,), f"its input is a JSON object, got '{'x' * 99}"),
    ],
)
def test_an_input_is_one_object_or_nothing(inputs: tuple[Any, ...], problem: str) -> None:
    if problem:
        with pytest.raises(ValueError, match=r"^.+$") as refused:
            message_dispatch.read_input(Control, inputs)
        assert str(refused.value) == problem
    else:
        message_dispatch.read_input(Control, inputs)


def test_results_that_hooks_gave_need_nobody() -> None:
    run = at_work().reply("", PAY, plan=(UseResult(call_id="a", result=PAID),))
    assert results(run) == [("a", "paid")]
