"""A turn that waits in a provider's batch: what its conversation sends, says and asks for then."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError, ApplicationError

from everturn import names
from everturn.batching.records import BatchNotice, BatchTurn
from everturn.batching.waits import CURE, BatchWaits
from everturn.calls.causes import FailureCause, cause_of
from everturn.payloads import ModelRequest
from everturn.records import Message
from tests.support.played_runs import RUN_ID, WORKFLOW_ID, Command, PlayedRun, only

TURN = BatchTurn(collector="batches:openai", provider="openai", agent="clerk", model="m", round=2)
JOINS = ApplicationError("It can join a batch.", {"batch": TURN.model_dump(mode="json")}, type=names.BATCHED)
FOUR_DAYS = 4 * 86_400.0
FIRST = ModelRequest(agent="clerk", turn=3, position=4, delta=(Message.user("Hello"),), model="m")


@workflow.defn(name="Turns", sandboxed=False)
class Turns:
    """A conversation's turns, as far as batches are concerned: the one that fails is begun anew by `again`."""

    @workflow.init
    def __init__(self, request: Any) -> None:
        self._changes = 0
        self._waits = BatchWaits(on_change=self._count)
        self._request = request
        self._next: Any = None
        self._error: FailureCause | None = None

    def _count(self) -> None:
        self._changes += 1

    @workflow.run
    async def run(self, request: Any) -> None:
        while True:
            try:
                await self._turn(ModelRequest.model_validate(request))
                return
            except ActivityError as error:
                self._error = cause_of(error)
            await workflow.wait_condition(lambda: self._next is not None)
            request, self._next = self._next, None

    async def _turn(self, request: ModelRequest) -> None:
        request = self._waits.with_kept_notice(request)
        while True:
            try:
                await workflow.execute_activity(
                    names.CALL_MODEL,
                    request,
                    start_to_close_timeout=timedelta(minutes=1),
                    retry_policy=RetryPolicy(maximum_attempts=1),
                )
                return
            except ActivityError as error:
                request = await self._waits.wait_after(error, request)

    @workflow.signal
    def again(self, request: Any) -> None:
        self._next = request

    @workflow.signal(name=names.BATCH)
    def batch(self, *inputs: Any) -> None:
        self._waits.take_notice(*inputs)

    @workflow.query
    def shown(self) -> dict[str, Any]:
        waits = self._waits
        return {
            "cause": waits.cause,
            "cure": waits.cure,
            "collector": waits.collector,
            "joined_at": waits.joined_at,
            "holds_reply": waits.holds_reply,
            "changes": self._changes,
            "error": self._error.cause if self._error else "",
            "error_cure": self._error.cure if self._error else "",
        }


def model_call(commands: list[Command]) -> Command:
    """The activity that asks the model."""
    return only(commands, "schedule_activity")


def sent_signal(commands: list[Command]) -> Command:
    return only(commands, "signal_external_workflow_execution")


def join_in_vain(run: PlayedRun) -> list[Command]:
    """The turn is to join a batch whose collector has just ended."""
    join = sent_signal(run.fail(names.CALL_MODEL, JOINS).commands)
    return run.deliver(join, failed="no such workflow").commands


class Waiting:
    """A turn that has joined a batch."""

    def __init__(self) -> None:
        self.run = PlayedRun(Turns, FIRST).begin()
        self.join = sent_signal(self.run.fail(names.CALL_MODEL, JOINS).commands)
        self.line = self.join.input["id"]
        self.timer = only(self.run.deliver(self.join).commands, "start_timer")

    def notify(self, state: Any, **facts: Any) -> list[Command]:
        line = facts.pop("line", self.line)
        return self.run.signal(names.BATCH, BatchNotice(line=line, state=state, **facts)).commands

    @property
    def shown(self) -> Any:
        return self.run.query("shown")


def test_a_turn_joins_its_batch_as_one_line_and_waits() -> None:
    waiting = Waiting()
    target = waiting.join.attributes.workflow_execution.workflow_id
    assert (waiting.join.attributes.signal_name, target) == (names.JOIN_BATCH, "batches:openai")
    line = waiting.join.input
    assert (line["conversation"], line["run_id"], line["activity_id"]) == (WORKFLOW_ID, RUN_ID, "1")
    assert BatchTurn.model_validate(line["turn"]) == TURN
    assert (waiting.timer.seconds, waiting.timer.summary) == (FOUR_DAYS, "until its batch is over")


def test_a_turn_that_waits_for_no_batch_says_nothing_of_one() -> None:
    run = PlayedRun(Turns, FIRST).begin()
    nothing = {"cause": None, "cure": None, "collector": "", "joined_at": "", "holds_reply": False}
    assert run.query("shown").items() >= (nothing | {"changes": 0}).items()


def test_it_says_what_it_waits_for_from_before_its_batch_is_sent_until_that_is_over() -> None:
    waiting = Waiting()
    since = "2026-01-01T00:00:00+00:00"
    shown = waiting.shown
    assert shown["cause"] == f"The turn waits for the next batch of openai, since {since}."
    assert (shown["cure"], shown["collector"], shown["joined_at"]) == (CURE, "batches:openai", since)
    assert shown["changes"] == 1
    waiting.notify("sent", batch_id="b1", sent_at="soon")
    shown = waiting.shown
    assert shown["cause"] == "The turn waits for batch b1 of openai, since soon."
    assert (shown["cure"], shown["joined_at"], shown["changes"]) == (CURE, since, 2)
    waiting.notify("ended", batch_id="b1", sent_at="soon", number=1)
    shown = waiting.shown
    assert (shown["cause"], shown["cure"], shown["collector"], shown["joined_at"]) == (None, None, "", "")
    assert shown["changes"] == 4


@pytest.mark.parametrize("batch_id", ["", "b1"])
def test_it_says_that_no_worker_takes_its_batch_and_what_to_do(batch_id: str) -> None:
    waiting = Waiting()
    waiting.notify("awaited", batch_id=batch_id, sent_at="soon", cause="Nobody hosts it.", cure="Start a worker.")
    waits = f"batch {batch_id} of openai, since soon" if batch_id else "the next batch of openai, since 2026"
    shown = waiting.shown
    assert shown["cause"].startswith(f"The turn waits for {waits}")
    assert shown["cause"].endswith(". Nobody hosts it.")
    assert shown["cure"] == "Start a worker."
    waiting.notify("sent", batch_id="b1", sent_at="soon")
    assert (waiting.shown["cause"][-11:], waiting.shown["cure"]) == ("since soon.", CURE)


@pytest.mark.parametrize("state", ["ended", "again", "failed"])
def test_once_its_batch_is_over_the_model_is_asked_with_what_became_of_it(state: Any) -> None:
    waiting = Waiting()
    request = model_call(waiting.notify(state, number=1)).input
    assert (request["batch"]["line"], request["batch"].get("state")) == (waiting.line, state)
    assert (request["position"], request["turn"]) == (4, 3)


def test_a_notice_of_another_line_changes_nothing() -> None:
    waiting = Waiting()
    assert waiting.notify("ended", line="of-a-run-before") == []
    assert waiting.shown["changes"] == 1
    assert waiting.run.signal(names.BATCH, "nonsense").commands == []
    assert "schedule_activity" in [command.kind for command in waiting.notify("ended")]


def test_a_notice_changes_nothing_while_nothing_waits() -> None:
    run = PlayedRun(Turns, FIRST).begin()
    assert run.signal(names.BATCH, BatchNotice(line="a", state="ended")).commands == []
    assert run.query("shown")["changes"] == 0


def test_of_two_notices_that_a_batch_is_over_the_first_counts() -> None:
    run = PlayedRun(Turns, FIRST).begin()
    join = sent_signal(run.fail(names.CALL_MODEL, JOINS).commands)
    line = join.input["id"]
    run.signal(names.BATCH, BatchNotice(line=line, state="ended", number=1))  # before its own signal has arrived
    run.signal(names.BATCH, BatchNotice(line=line, state="again"))
    assert model_call(run.deliver(join).commands).input["batch"]["state"] == "ended"


def test_a_turn_that_joins_again_does_so_as_another_line_that_was_told_nothing() -> None:
    waiting = Waiting()
    anew = model_call(waiting.notify("again", batch_id="b1", sent_at="soon"))
    waiting.run.pass_time(5)
    join = sent_signal(waiting.run.fail(anew, JOINS).commands)
    assert join.input["id"] != waiting.line
    assert join.input["activity_id"] == anew.attributes.activity_id
    waiting.run.deliver(join)
    assert waiting.shown["cause"] == "The turn waits for the next batch of openai, since 2026-01-01T00:00:05+00:00."


def test_a_cancelled_turn_leaves_its_batch() -> None:
    waiting = Waiting()
    leave = sent_signal(waiting.run.cancel().commands)
    assert (leave.attributes.signal_name, leave.input) == (names.LEAVE_BATCH, {"id": waiting.line})
    assert leave.attributes.workflow_execution.workflow_id == "batches:openai"


def test_a_collector_that_says_nothing_for_four_days_is_gone() -> None:
    waiting = Waiting()
    notice = model_call(waiting.run.fire(waiting.timer).commands).input["batch"]
    assert (notice["line"], notice["state"]) == (waiting.line, "failed")
    assert notice["cause"] == "The batch's collector, 'batches:openai', has said nothing for 4 days."
    assert "paid twice" in notice["cure"]


def test_as_long_as_a_worker_is_waited_for_no_collector_counts_as_gone() -> None:
    waiting = Waiting()
    waiting.notify("awaited", cause="Nobody hosts it.")
    again = only(waiting.run.fire(waiting.timer).commands, "start_timer")
    assert again.seconds == FOUR_DAYS
    waiting.notify("sent", batch_id="b1")
    assert model_call(waiting.run.fire(again).commands).input["batch"]["state"] == "failed"


def test_a_turn_whose_collector_has_just_ended_asks_anew_five_times() -> None:
    run = PlayedRun(Turns, FIRST).begin()
    for _ in range(5):
        assert model_call(join_in_vain(run)).input.get("batch") is None
        assert run.query("shown")["cause"] is None
    assert join_in_vain(run) == []
    cause = "The batch's collector, 'batches:openai', could not be reached, 6 times in a row."
    shown = run.query("shown")
    assert (shown["error"], shown["error_cure"]) == (cause, "`resume` tries again.")
    run.signal("again", FIRST)
    assert model_call(join_in_vain(run)), "as often as before"


def test_collectors_that_have_just_ended_count_from_the_last_one_that_took_the_turn() -> None:
    waiting = Waiting()
    waiting.notify("again")
    for _ in range(5):
        assert model_call(join_in_vain(waiting.run))
    assert join_in_vain(waiting.run) == []


def stalled(error: ApplicationError, state: Any = "ended") -> PlayedRun:
    """A turn whose batch is over, and whose reply could not be read, for this error."""
    waiting = Waiting()
    waiting.run.fail(model_call(waiting.notify(state, batch_id="b1", number=1)), error)
    assert waiting.shown["error"].endswith(error.message)
    return waiting.run


KEPT = ApplicationError("The provider is away.", {"keeps_batch": True}, type="Unreachable")


@pytest.mark.parametrize(
    "error", [KEPT, *(ApplicationError("no", type=kind) for kind in (names.NOT_HOSTED, names.NOT_PREPARED))]
)
def test_a_reply_that_is_paid_and_could_not_be_read_is_read_when_the_turn_is_resumed(error: ApplicationError) -> None:
    run = stalled(error)
    assert run.query("shown")["holds_reply"]
    request = model_call(run.signal("again", FIRST).commands).input
    assert (request["batch"]["batch_id"], request["batch"]["state"]) == ("b1", "ended")
    assert not run.query("shown")["holds_reply"]


def test_a_turn_that_did_not_reach_the_model_is_one_whose_reply_is_unread() -> None:
    assert stalled(ApplicationError("no", type=names.MODEL_NOT_ASKED)).query("shown")["holds_reply"]


@pytest.mark.parametrize(("error", "state"), [(ApplicationError("no", type="Refused"), "ended"), (KEPT, "failed")])
def test_a_turn_that_has_no_reply_to_read_asks_anew(error: ApplicationError, state: Any) -> None:
    run = stalled(error, state)
    assert not run.query("shown")["holds_reply"]
    assert model_call(run.signal("again", FIRST).commands).input.get("batch") is None


@pytest.mark.parametrize("changed", [{"position": 5}, {"delta": (Message.user("Bye"),)}, {"model": "other"}])
def test_another_request_does_not_read_the_reply_of_that_turn(changed: Any) -> None:
    run = stalled(KEPT)
    other = FIRST.model_copy(update=changed)
    assert model_call(run.signal("again", other).commands).input.get("batch") is None
    assert not run.query("shown")["holds_reply"]


def test_an_error_that_is_not_about_a_batch_is_raised() -> None:
    run = PlayedRun(Turns, FIRST).begin()
    assert run.fail(names.CALL_MODEL, ApplicationError("The key is wrong.", type="AuthFailed")).commands == []
    shown = run.query("shown")
    assert (shown["error"].endswith("The key is wrong."), shown["holds_reply"]) == (True, False)
