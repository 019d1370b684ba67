"""A start or a signal that a worker can't read: the conversation waits for a person, and loses nothing meanwhile."""

from __future__ import annotations

from typing import Any

import pytest

from everturn import names
from everturn.calls.unreadable_inputs import MOST_NAMED, STALLED_BY_SIGNALS, UNREADABLE_START
from everturn.carryover import REMEMBERED_IDS
from everturn.plans import UseResult
from everturn.records import ToolCall, ToolResult
from everturn.workflows.conversation import CLOSED_UNANSWERED
from tests.support.payloads import readable_elsewhere
from tests.support.played_runs import PlayedConversation, TaskFailed, patched, signalled

HANDED: dict[str, Any] = {"agent": "clerk", "keep_open": 60.0, "carry": {"turn": "many", "inbox": [{"of": "before"}]}}
"""What no version of today's can read."""

RULES = [{"tool": "pay", "then": "deny"}]


def handed(**carry: Any) -> PlayedConversation:
    return PlayedConversation({**HANDED, "carry": {**HANDED["carry"], **carry}}, continued="r")


def failure(run: PlayedConversation) -> str:
    (command,) = run.of_kind("fail_workflow_execution")
    assert command.attributes.failure.application_failure_info.type == names.INVALID_START
    return str(command.attributes.failure.message)


# ---------------------------------------------------------------- the start


@pytest.mark.parametrize(
    ("start", "problem"),
    [
        ({"message": "Hello"}, "agent: Field required"),
        ({"agent": "clerk"}, "message: it is required, unless the conversation is kept open"),
        ({"agent": "clerk", "message": [{"kind": "thinking", "text": "hm"}]}, "message: A user's message has no parts"),
        ({"agent": "clerk", "carry": 7}, "carry: "),
    ],
)
def test_a_first_start_that_makes_no_sense_ends_it(start: dict[str, Any], problem: str) -> None:
    message = failure(PlayedConversation(start).begin())
    assert message.startswith(f"This conversation can't start: {problem}")
    assert message.endswith("see docs/reference/wire.md.")
    assert ".. " not in message


@pytest.mark.parametrize(
    "start",
    [
        {"agent": "clerk", "keep_open": 0.0},
        {"agent": "clerk", "carry": {}, "message": [{"kind": "thinking", "text": "hm"}]},
    ],
)
def test_a_start_that_makes_sense_costs_no_marker(start: dict[str, Any]) -> None:
    run = PlayedConversation(start).begin()
    assert (run.of_kind("fail_workflow_execution"), run.patches) == ([], [])


def test_a_start_for_which_nothing_is_to_be_done_is_one_if_something_was_handed_on() -> None:
    assert PlayedConversation({"agent": "clerk", "carry": {}}).begin().outcome


def test_an_odd_first_message_is_refused() -> None:
    refused = PlayedConversation({"agent": "clerk", "message": [{"kind": "thinking", "text": "hm"}]}).begin()
    [failed] = refused.of_kind("fail_workflow_execution")
    assert "no parts of the kind 'thinking'" in failed.attributes.failure.message


def test_a_start_that_another_worker_can_read_is_left_to_it() -> None:
    with pytest.raises(TaskFailed, match="can't be fetched: the storage is away"):
        PlayedConversation(readable_elsewhere("the storage is away")).begin()


def test_what_was_handed_on_and_can_not_be_read_waits_for_a_person() -> None:
    run = handed().begin()
    assert (run.state, run.patches) == ("stalled", [UNREADABLE_START])
    assert run.status["cause"].startswith("The carry-over of the earlier run can't be read: carry.inbox")
    run.signal(names.RESUME)
    assert run.next_start == HANDED


def test_what_people_do_meanwhile_is_handed_on_beside_it() -> None:
    run = handed(message_ids=["m"]).begin()
    run.update(names.MESSAGE, text="Hello", message_id="n")
    run.signal(names.SET_POLICY, rules=RULES).signal(names.PAUSE).signal(names.RESUME, only_stalled=True)
    assert run.next_start
    carry = run.next_start["carry"]
    assert (carry["message_ids"], carry["paused"]) == (["m", "n"], True)
    assert [rule["tool"] for rule in carry["policy"]] == ["pay"]
    assert [carry["inbox"][0], carry["inbox"][1]["parts"][0]["text"]] == [{"of": "before"}, "Hello"]
    assert carry["turn"] == "many"


def test_only_so_many_ids_are_handed_on() -> None:
    before = [str(number) for number in range(REMEMBERED_IDS)]
    run = handed(message_ids=before).begin()
    run.signal(names.MESSAGE, text="Hello", message_id="n").signal(names.RESUME)
    assert (run.next_start or {})["carry"]["message_ids"] == [*before[1:], "n"]


def test_who_closes_what_can_not_be_read_ends_it() -> None:
    outcome = handed().begin().signal(names.CLOSE).outcome or {}
    assert (outcome["status"], outcome["reason"]) == ("cancelled", CLOSED_UNANSWERED)
    at_once = handed()
    outcome = at_once.task(signalled(names.CLOSE)).outcome or {}
    assert (outcome["status"], at_once.of_kind("start_timer")) == ("cancelled", [])


def test_what_is_said_as_that_closes_takes_it_up_again() -> None:
    run = handed()
    run.task(signalled(names.CLOSE), signalled(names.MESSAGE, {"text": "Late"}))
    assert run.next_start
    assert run.next_start["carry"]["inbox"][1]["parts"][0]["text"] == "Late"


def test_a_replay_waits_as_it_did_and_does_not_where_it_did_not() -> None:
    known = handed().task(patched(UNREADABLE_START), replaying=True)
    assert known.state == "stalled"
    read = PlayedConversation({"agent": "clerk", "keep_open": 60.0, "carry": {}})
    read.task(patched(UNREADABLE_START), replaying=True)
    assert read.state == "stalled"
    assert "it could not, when the run began" in read.status["cause"]
    with pytest.raises(TaskFailed, match="Another version of the code has read the carry-over"):
        handed().task(replaying=True)
    assert PlayedConversation({"agent": "clerk", "keep_open": 60.0, "carry": {}}).task(replaying=True).state == "idle"


# ---------------------------------------------------------------- signals


def idle() -> PlayedConversation:
    return PlayedConversation(keep_open=60.0).begin().reply("Hi.")


def test_a_signal_that_another_worker_can_read_is_waited_for() -> None:
    run = idle().task(signalled(names.MESSAGE, readable_elsewhere("the storage is away")))
    assert (run.state, run.status["cause"]) == ("stalled", "A 'message' signal can't be read: the storage is away")
    assert run.patches == ["unreadable signal 1", f"{STALLED_BY_SIGNALS}1"]
    assert run.logged[0].startswith("signal.unreadable ")
    run.signal(names.RESUME)
    assert run.state == "idle"


def test_signals_are_counted_from_one_on_and_each_that_was_lost_is_named() -> None:
    run = idle().signal(names.PAUSE).signal(names.RESUME)
    run.task(*(signalled(names.MESSAGE, readable_elsewhere("away")) for _ in range(2)))
    assert run.patches == ["unreadable signal 3", "unreadable signal 4", f"{STALLED_BY_SIGNALS}3,4"]
    assert run.status["cause"] == "2 signals can't be read ('message', 'message'): away"


def test_of_many_lost_signals_the_others_have_a_stall_of_their_own() -> None:
    run = idle().task(*(signalled(names.MESSAGE, readable_elsewhere("away")) for _ in range(MOST_NAMED + 1)))
    assert f"{MOST_NAMED} signals" in run.status["cause"]
    run.signal(names.RESUME)
    assert run.status["cause"] == "A 'message' signal can't be read: away"


def test_a_signal_that_nobody_can_read_is_ignored() -> None:
    run = idle().task(signalled(names.MESSAGE, {"text": 7}))
    assert (run.state, run.patches) == ("idle", [])


def test_no_run_ends_before_its_lost_signals_were_seen() -> None:
    run = PlayedConversation(keep_open=60.0).begin()
    run.suggested = True
    run.task(signalled(names.MESSAGE, readable_elsewhere("away")), signalled(names.MESSAGE, {"text": "Next"}))
    assert run.reply("Hi.").next_start is None
    assert run.state == "stalled"
    assert run.signal(names.RESUME).next_start


def test_no_run_ends_between_turns_before_its_lost_signals_were_seen() -> None:
    run = PlayedConversation(keep_open=60.0).begin()
    run.suggested = True
    given = UseResult(call_id="a", result=ToolResult(call_id="a", name="pay"))
    pay = ToolCall(call_id="a", name="pay")
    run.task(signalled(names.MESSAGE, readable_elsewhere("away")), run.replied("", pay, plan=(given,)))
    assert (run.next_start, run.state) == (None, "stalled")
    assert run.signal(names.RESUME).next_start


def test_a_replay_loses_the_signals_that_were_lost() -> None:
    run = idle()
    run.task(patched("unreadable signal 1"), signalled(names.MESSAGE, {"text": "Next"}), replaying=True)
    assert run.state == "stalled"
    assert run.status["cause"] == "A 'message' signal can't be read: it could not, when it came"
    with pytest.raises(TaskFailed, match="was read before, but this worker can't read it: away"):
        idle().task(signalled(names.MESSAGE, readable_elsewhere("away")), replaying=True)
    assert idle().task(signalled(names.MESSAGE, {"text": "Next"}), replaying=True).state == "running"


def test_a_signal_that_was_lost_as_it_idles_ends_no_answer() -> None:
    run = idle().task(signalled(names.MESSAGE, readable_elsewhere("away")))
    run.signal(names.RESUME).signal(names.MESSAGE, text="Again")
    assert run.activities == [names.CALL_MODEL]
    run.reply("Yes.")
    assert [timer.seconds for timer in run.timers] == [60.0]
    assert run.fire(*run.timers).outcome
