"""What a collector of batches does: when it sends one, whom it tells what, and when it ends."""

from __future__ import annotations

from typing import Any

import pytest
from temporalio.exceptions import ApplicationError, TimeoutType

from everturn import names
from everturn.batching.collector import BatchCollectorWorkflow
from everturn.batching.records import Batch, BatchLine, BatchTurn, CollectorStart, LeaveBatch, SentBatch
from tests.support.activity_errors import timed_out
from tests.support.played_runs import BEGAN_AT, Command, PlayedRun, kinds, only, signalled

HAND_BACK_FOR = 7 * 86_400.0
LACKED = ApplicationError("No worker hosts clerk.", {"cure": "Start one.", "left": {"k": 1}}, type=names.NOT_HOSTED)


def line(line_id: str, **turn: Any) -> BatchLine:
    facts = {"collector": "batches:openai", "provider": "openai", "agent": "clerk", "model": "m", "most_bytes": 1_000}
    turn_facts = BatchTurn(**facts | {"size": 1, "round": 2, "without_thoughts": True} | turn)
    return BatchLine(id=line_id, conversation=f"talk-{line_id}", run_id="r", activity_id="1", turn=turn_facts)


def collector(**start: Any) -> PlayedRun:
    return PlayedRun(BatchCollectorWorkflow, CollectorStart(provider="openai", **start)).begin()


def joined(run: PlayedRun, *lines: BatchLine) -> list[Command]:
    return run.task(*(signalled(names.JOIN_BATCH, each) for each in lines)).commands


def left(run: PlayedRun, line_id: str) -> list[Command]:
    return run.signal(names.LEAVE_BATCH, LeaveBatch(id=line_id)).commands


def timer(commands: list[Command]) -> Command:
    return only(commands, "start_timer")


def activity(commands: list[Command]) -> Command:
    return only(commands, "schedule_activity")


def ids(command: Command) -> list[str]:
    return [each["id"] for each in command.input["lines"]]


def notices(commands: list[Command]) -> dict[str, Any]:
    """By the conversation that each is for."""
    signals = [command for command in commands if command.kind == "signal_external_workflow_execution"]
    assert {signal.attributes.signal_name for signal in signals} <= {names.BATCH}
    return {signal.attributes.workflow_execution.workflow_id: signal.input for signal in signals}


def in_hand(*line_ids: str, batch_id: str = "b1") -> Batch:
    lines = tuple(line(line_id).model_copy(update={"number": n}) for n, line_id in enumerate(line_ids, 1))
    return Batch(name="ours", agent="clerk", model="m", lines=lines, batch_id=batch_id, sent_at=BEGAN_AT)


def sending(*line_ids: str) -> tuple[PlayedRun, Command]:
    """A collector that sends a batch of these lines, and the activity."""
    run = collector()
    return run, activity(joined(run, *(line(line_id, most_turns=len(line_ids)) for line_id in line_ids)))


def following(*line_ids: str) -> tuple[PlayedRun, Command]:
    run = collector(batches=(in_hand(*line_ids),))
    return run, activity(run.first_commands)


# ---------------------------------------------------------------- what is gathered


def test_a_collector_with_nothing_to_do_ends_after_an_hour() -> None:
    run = collector()
    idle = timer(run.first_commands)
    assert (kinds(run.first_commands), idle.seconds, idle.summary) == (["start_timer"], 3_600, "idle")
    assert kinds(run.fire(idle).commands) == ["complete_workflow_execution"]


def test_a_batch_is_sent_once_its_first_line_has_waited_for_long_enough() -> None:
    run = collector()
    due = timer(joined(run, line("a", gather_seconds=60.0)))
    assert (due.seconds, due.summary) == (60, "until the next batch is sent")
    run.pass_time(20)
    assert joined(run, line("b")) == []
    send = activity(run.fire(due).commands)
    assert (send.activity_type, send.summary, ids(send)) == (names.SEND_BATCH, "2 turns of clerk", ["a", "b"])
    assert (send.input["agent"], send.input["model"]) == ("clerk", "m")
    assert send.input["name"].startswith("everturn-")
    assert not send.attributes.HasField("schedule_to_start_timeout"), "what its tries have left would be lost"


def test_a_batch_that_is_full_is_sent_at_once() -> None:
    run = collector()
    assert "schedule_activity" not in kinds(joined(run, line("a", most_turns=2)))
    assert ids(activity(joined(run, line("b", most_turns=2)))) == ["a", "b"]


def test_a_line_that_may_not_wait_for_long_brings_the_batch_forward() -> None:
    run = collector()
    joined(run, line("a", gather_seconds=60.0))
    assert timer(joined(run, line("b", gather_seconds=5.0))).seconds == 5


def test_a_line_that_comes_twice_is_in_its_batch_once() -> None:
    run = collector()
    joined(run, line("a", gather_seconds=60.0))
    assert joined(run, line("a", gather_seconds=5.0)) == []
    assert run.query(names.BATCHES_QUERY) == {"provider": "openai", "gathered": 1, "batches": []}


def test_what_is_due_already_is_sent_a_millisecond_later() -> None:
    """Of what the run before gathered, one batch can't take all."""
    lines = tuple(line(line_id, most_turns=2) for line_id in "abc")
    run = collector(gathered=lines, gathered_since=(BEGAN_AT - 100,) * 3)
    assert ids(activity(run.first_commands)) == ["a", "b"]
    assert timer(run.first_commands).seconds == 0.001
    assert ids(activity(run.fire(timer(run.first_commands)).commands)) == ["c"]


def test_lines_wait_on_where_the_run_before_gathered_them() -> None:
    run = collector(gathered=(line("a", gather_seconds=60.0),), gathered_since=(BEGAN_AT - 20,))
    assert (timer(run.first_commands).seconds, run.query(names.BATCHES_QUERY)["gathered"]) == (40, 1)


def test_lines_of_two_models_are_in_two_batches() -> None:
    run = collector()
    due = timer(joined(run, line("a"), line("b", model="other")))
    sent = [command for command in run.fire(due).commands if command.kind == "schedule_activity"]
    assert [ids(send) for send in sent] == [["a"], ["b"]]
    assert sent[0].input["name"] != sent[1].input["name"]


def test_a_line_that_leaves_before_its_batch_is_sent_is_not_in_it() -> None:
    run = collector()
    due = timer(joined(run, line("a"), line("b")))
    assert left(run, "a") == []
    assert ids(activity(run.fire(due).commands)) == ["b"]


def test_if_all_lines_have_left_nothing_is_sent() -> None:
    run = collector()
    joined(run, line("a"))
    again = left(run, "a")
    assert (timer(again).seconds, timer(again).summary) == (3_600, "idle")
    assert run.query(names.BATCHES_QUERY)["gathered"] == 0


@pytest.mark.parametrize("name", [names.JOIN_BATCH, names.LEAVE_BATCH])
def test_a_signal_that_makes_no_sense_changes_nothing(name: str) -> None:
    run = collector()
    joined(run, line("a"))
    assert run.signal(name, "nonsense").commands == []
    assert run.query(names.BATCHES_QUERY)["gathered"] == 1


def test_a_collector_whose_input_makes_no_sense_fails_and_says_so() -> None:
    run = PlayedRun(BatchCollectorWorkflow, {"gathered": 7}).begin()
    failure = only(run.first_commands, "fail_workflow_execution").attributes.failure
    assert failure.message.startswith("These batches can't be collected: ")
    assert failure.application_failure_info.type == names.INVALID_START


# ---------------------------------------------------------------- a batch that is sent


def test_a_batch_that_was_sent_is_followed_with_its_lines_by_number() -> None:
    run, send = sending("a", "b")
    answered = run.complete(send, SentBatch(batch_id="b1", sent_at=BEGAN_AT, lines=("b", "a"))).commands
    follow = activity(answered)
    assert (follow.activity_type, follow.summary) == (names.FOLLOW_BATCH, "b1")
    assert [(each["id"], each["number"]) for each in follow.input["lines"]] == [("b", 1), ("a", 2)]
    assert (follow.input["batch_id"], follow.input["sent_at"]) == ("b1", BEGAN_AT)
    assert follow.attributes.schedule_to_start_timeout.ToTimedelta().total_seconds() == 300
    assert notices(answered) == {}, "the activity tells of it"
    facts = {"id": "b1", "model": "m", "turns": 2, "sent_at": BEGAN_AT}
    assert run.query(names.BATCHES_QUERY) == {"provider": "openai", "gathered": 0, "batches": [facts]}


def test_a_batch_counts_as_the_providers_only_once_it_was_sent() -> None:
    run, _ = sending("a")
    assert run.query(names.BATCHES_QUERY)["batches"] == []


def test_a_batch_that_is_over_is_nobodys_business_any_more() -> None:
    run, follow = following("a")
    assert run.complete(follow).commands == []
    assert run.query(names.BATCHES_QUERY)["batches"] == []
    assert kinds(run.fire(timer(run.first_commands)).commands) == ["complete_workflow_execution"]


def test_a_collector_does_not_end_while_a_batch_runs() -> None:
    run, _ = following("a")
    assert kinds(run.fire(timer(run.first_commands)).commands) == ["start_timer"]


def test_lines_that_did_not_fit_are_in_another_batch() -> None:
    run, send = sending("a", "b")
    run.pass_time(30)
    answered = run.complete(send, SentBatch(batch_id="b1", lines=("a",), put_back=("b",))).commands
    assert ids(activity(answered)) == ["a"]
    due = timer(answered)
    assert due.seconds == 60, "gathered from then on"
    assert ids(activity(run.fire(due).commands)) == ["b"]


def test_a_line_that_has_left_does_not_come_into_another_batch() -> None:
    run, send = sending("a", "b", "c")
    left(run, "b")
    answered = run.complete(send, SentBatch(batch_id="b1", lines=("a",), put_back=("b", "c"))).commands
    assert (ids(activity(answered)), run.query(names.BATCHES_QUERY)["gathered"]) == (["a"], 1)


def test_a_line_whose_request_could_not_be_made_is_told_to_join_again() -> None:
    run, send = sending("a", "b", "c")
    left(run, "c")
    answered = run.complete(send, SentBatch(batch_id="b1", lines=("a",), again=("b", "c"))).commands
    notice = {"line": "b", "state": "again", "round": 2, "without_thoughts": True, "collector": "batches:openai"}
    assert notices(answered) == {"talk-b": notice}


def test_a_batch_without_lines_is_not_followed() -> None:
    run, send = sending("a")
    answered = run.complete(send, SentBatch(again=("a",))).commands
    afterwards = run.deliver(only(answered, "signal_external_workflow_execution")).commands
    assert "schedule_activity" not in kinds(answered + afterwards)
    assert kinds(run.cancel().commands)[-1] == "cancel_workflow_execution", "nothing is in hand"


def test_if_a_batch_can_not_be_sent_who_waits_is_told_why() -> None:
    run, send = sending("a", "b", "c")
    left(run, "b")
    answered = run.fail(send, ApplicationError("The key is wrong.", {"cure": "Set it."}, type="AuthFailed")).commands
    assert notices(answered).keys() == {"talk-a", "talk-c"}
    notice = notices(answered)["talk-a"]
    assert (notice["state"], notice["cause"], notice["cure"]) == ("failed", "The key is wrong.", "Set it.")
    assert "schedule_activity" not in kinds(answered)


def test_a_conversation_that_is_over_does_not_keep_others_from_being_told() -> None:
    run, send = sending("a", "b")
    answered = run.fail(send, ApplicationError("The key is wrong.")).commands
    first, second = (command for command in answered if command.kind == "signal_external_workflow_execution")
    assert run.deliver(first, failed="no such workflow").commands == []
    assert run.deliver(second).commands == []
    assert kinds(run.cancel().commands)[-1] == "cancel_workflow_execution", "nothing is in hand"


# ---------------------------------------------------------------- no worker for it


@pytest.mark.parametrize("sent", [False, True])
def test_if_no_worker_hosts_the_agent_who_waits_is_told_and_the_batch_waits_for_one(*, sent: bool) -> None:
    run, work = following("a", "b") if sent else sending("a", "b")
    left(run, "b")
    answered = run.fail(work, LACKED).commands
    notice = notices(answered)["talk-a"]
    assert notices(answered).keys() == {"talk-a"}
    assert (notice["state"], notice["cause"], notice["cure"]) == ("awaited", "No worker hosts clerk.", "Start one.")
    at = "2026-01-01T00:00:00+00:00" if sent else "1970-01-01T00:00:00+00:00"
    assert (notice.get("batch_id", ""), notice["sent_at"]) == ("b1" if sent else "", at)
    again = activity(run.deliver(only(answered, "signal_external_workflow_execution")).commands)
    assert (again.activity_type, again.summary) == (work.activity_type, work.summary)
    assert (ids(again), again.input["hand_back_for"], again.input["left"]) == (["a"], HAND_BACK_FOR, {"k": 1})
    assert not again.attributes.HasField("schedule_to_start_timeout")


def test_what_was_waited_for_goes_on_as_if_nothing_had_been() -> None:
    run, send = sending("a")
    again = activity(run.deliver(only(run.fail(send, LACKED).commands, "signal_external_workflow_execution")).commands)
    follow = activity(run.complete(again, SentBatch(batch_id="b1", sent_at=BEGAN_AT, lines=("a",))).commands)
    assert (follow.activity_type, follow.input["batch_id"]) == (names.FOLLOW_BATCH, "b1")


def test_if_no_worker_takes_a_batch_up_who_waits_is_told() -> None:
    run, follow = following("a")
    answered = run.fail(follow, timed_out(TimeoutType.SCHEDULE_TO_START)).commands
    notice = notices(answered)["talk-a"]
    assert (notice["state"], notice["cause"]) == ("awaited", "No worker has taken it up for 300 seconds.")
    assert notice["cure"].startswith("Start a worker that hosts the agent")


@pytest.mark.parametrize("cause", [timed_out(TimeoutType.START_TO_CLOSE), ApplicationError("gone", type="BatchGone")])
def test_a_batch_that_can_not_be_followed_has_failed(cause: Any) -> None:
    run, follow = following("a")
    answered = run.fail(follow, cause).commands
    assert notices(answered)["talk-a"]["state"] == "failed"
    assert "schedule_activity" not in kinds(answered)
    run.deliver(only(answered, "signal_external_workflow_execution"))
    assert run.query(names.BATCHES_QUERY)["batches"] == []


# ---------------------------------------------------------------- nobody waits for it


def test_a_batch_that_nobody_waits_for_is_cancelled_with_all_its_lines() -> None:
    run, follow = following("a", "b")
    assert left(run, "a") == []
    assert run.query(names.BATCHES_QUERY)["batches"][0]["turns"] == 1
    ended = left(run, "b")
    assert only(ended, "request_cancel_activity").attributes.seq == follow.attributes.seq
    cancel = activity(ended)
    assert (cancel.activity_type, cancel.summary, ids(cancel)) == (names.CANCEL_BATCH, "b1", ["a", "b"])
    run.complete(cancel)
    assert run.query(names.BATCHES_QUERY)["batches"] == []


def test_who_leaves_one_batch_leaves_no_other() -> None:
    second = in_hand("b", batch_id="b2").model_copy(update={"name": "second"})
    run = collector(batches=(in_hand("a"), second))
    assert [command.summary for command in left(run, "a") if command.kind == "schedule_activity"] == ["b1"]
    assert {batch["id"] for batch in run.query(names.BATCHES_QUERY)["batches"]} == {"b1", "b2"}


def test_a_batch_that_was_sent_for_nobody_is_cancelled_at_once() -> None:
    run, send = sending("a")
    left(run, "a")
    answered = run.complete(send, SentBatch(batch_id="b1", sent_at=BEGAN_AT, lines=("a",))).commands
    *_, last = (command for command in answered if command.kind == "schedule_activity")
    assert last.activity_type == names.CANCEL_BATCH


# ---------------------------------------------------------------- its end, and its next run


def test_a_cancelled_collector_ends_at_once_if_nothing_is_in_hand() -> None:
    assert kinds(collector().cancel().commands)[-1] == "cancel_workflow_execution"


def test_a_cancelled_collector_sends_what_it_has_gathered_and_ends_when_that_is_over() -> None:
    run = collector()
    joined(run, line("a"))
    due = timer(run.cancel().commands)
    send = activity(run.fire(due).commands)
    follow = activity(run.complete(send, SentBatch(batch_id="b1", lines=("a",))).commands)
    assert kinds(run.complete(follow).commands)[-1] == "cancel_workflow_execution"


def test_a_cancelled_collector_ends_once_the_last_line_has_left() -> None:
    run = collector()
    joined(run, line("a"))
    run.cancel()
    assert kinds(left(run, "a"))[-1] == "cancel_workflow_execution"


def test_the_next_run_has_what_is_gathered_and_what_is_with_the_provider() -> None:
    run, _ = following("a", "b")
    run.pass_time(7)
    joined(run, line("c"))
    left(run, "b")
    run.suggested = True
    handed = only(left(run, "unknown"), "continue_as_new_workflow_execution").input
    assert handed["provider"] == "openai"
    assert [each["id"] for each in handed["gathered"]] == ["c"]
    assert handed["gathered_since"] == [BEGAN_AT + 7]
    (batch,) = handed["batches"]
    assert (batch["batch_id"], [each["id"] for each in batch["lines"]]) == ("b1", ["a"])


def test_a_run_that_is_long_enough_goes_on_by_itself() -> None:
    """It is no other signal that it waits for."""
    run = collector()
    run.suggested = True
    assert kinds(joined(run, line("a")))[-1] == "continue_as_new_workflow_execution"


def test_no_run_ends_while_a_batch_is_sent_or_cancelled() -> None:
    """The activity would go on, and the next run would do the same."""
    run, send = sending("a")
    run.suggested = True
    assert "continue_as_new_workflow_execution" not in kinds(joined(run, line("b")))
    sent = run.complete(send, SentBatch(batch_id="b1", lines=("a",))).commands
    assert "continue_as_new_workflow_execution" in kinds(sent)
    run, _ = following("a")
    cancel = activity(left(run, "a"))
    run.suggested = True
    assert "continue_as_new_workflow_execution" not in kinds(joined(run, line("b")))
    assert "continue_as_new_workflow_execution" in kinds(run.complete(cancel).commands)
