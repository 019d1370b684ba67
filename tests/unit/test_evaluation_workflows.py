"""Evaluations as workflows: one that judges an answer, and the one that looks for answers to judge. And a delivery to a
webhook, which is one activity, too."""

from __future__ import annotations

from typing import Any

import pytest
from temporalio.exceptions import ApplicationError

from everturn import names
from everturn.evaluations.collector import EvaluationCollectorWorkflow
from everturn.evaluations.records import EvaluationRequest, EvaluationResult, Judgement, LookingStart, LookResult
from everturn.evaluations.workflow import EvaluationWorkflow
from everturn.webhooks.delivery_workflow import WebhookWorkflow
from everturn.webhooks.records import WebhookMessage
from everturn.workflows import timeouts
from tests.support.activity_errors import timed_out
from tests.support.payloads import value_in
from tests.support.played_runs import BEGAN_AT, Command, PlayedRun, kinds, only

REQUEST = EvaluationRequest(
    conversation_id="talk", run_id="r", turn=3, answered_at=5.0, agent="clerk@1", evaluator="tone", version="v1"
)


def activity(commands: list[Command]) -> Command:
    return only(commands, "schedule_activity")


def seconds(duration: Any) -> float:
    return float(duration.ToTimedelta().total_seconds())


def judged(judgement: Judgement, **request: Any) -> list[Command]:
    run = PlayedRun(EvaluationWorkflow, REQUEST.model_copy(update=request)).begin()
    return run.complete(names.JUDGE_ANSWER, judgement).commands


def search_attributes(commands: list[Command]) -> dict[str, Any]:
    return only(commands, "upsert_workflow_search_attributes").search_attributes


# ---------------------------------------------------------------- one judgement


def test_an_answer_is_judged_by_an_activity_that_has_its_evaluators_time() -> None:
    request = REQUEST.model_copy(update={"timeout": 60.0, "silence": 8.0})
    judge = activity(PlayedRun(EvaluationWorkflow, request).begin().commands)
    assert (judge.activity_type, judge.summary) == (names.JUDGE_ANSWER, "tone")
    assert EvaluationRequest.model_validate(judge.input) == request
    assert seconds(judge.attributes.start_to_close_timeout) == 90, "half a minute more, to read the history"
    assert seconds(judge.attributes.heartbeat_timeout) == 8
    assert seconds(judge.attributes.retry_policy.initial_interval) == 1
    assert judge.attributes.retry_policy.maximum_attempts == 10


def test_a_judgement_is_the_result_and_the_memo() -> None:
    results = (EvaluationResult(name="tone", score=0.5, label="kind"),)
    commands = judged(Judgement(results=results, version="v2"))
    assert kinds(commands) == ["modify_workflow_properties", "complete_workflow_execution"]
    result = commands[-1].result
    assert (result["conversation_id"], result["version"]) == ("talk", "v2"), "of the evaluator that has judged"
    assert result["judgement"]["results"][0]["label"] == "kind"
    memo = commands[0].attributes.upserted_memo.fields
    assert {name: value_in(payload) for name, payload in memo.items()} == {names.EVALUATED: result}


def test_without_another_version_the_one_that_was_asked_for_has_judged() -> None:
    assert judged(Judgement())[-1].result["version"] == "v1"


@pytest.mark.parametrize("minimal", [False, True])
def test_a_judgement_is_searchable_if_the_namespace_has_the_attributes(*, minimal: bool) -> None:
    results = (EvaluationResult(name="tone", score=0.0, label="rude"), EvaluationResult(name="length", score=1.0))
    found = search_attributes(judged(Judgement(results=results, cost_usd=0.0), indexed=True, minimal=minimal))
    facts = {names.EVERTURN_STATUS: "judged", names.EVERTURN_SCORE: 0.0, names.EVERTURN_COST_USD: 0.0}
    assert found == facts | ({} if minimal else {names.EVERTURN_LABEL: "rude"})


def test_what_a_judgement_does_not_have_is_not_searchable() -> None:
    found = search_attributes(judged(Judgement(error="TooLong", cost_usd=None), indexed=True))
    assert found == {names.EVERTURN_STATUS: "failed"}


@pytest.mark.parametrize(
    ("cause", "error", "text"),
    [
        (ApplicationError("too long", type="TooLong"), "TooLong", "too long"),
        (ApplicationError("no type"), names.REFUSED, "no type"),
        (timed_out(), names.WORKER_LOST, "activity timed out"),
    ],
    ids=str,
)
def test_what_kept_an_evaluator_from_judging_is_its_result(cause: Any, error: str, text: str) -> None:
    run = PlayedRun(EvaluationWorkflow, REQUEST).begin()
    result = run.fail(names.JUDGE_ANSWER, cause).commands[-1].result
    assert result["judgement"]["error"] == error
    assert text in result["judgement"]["error_text"]


def test_of_a_long_error_the_beginning_is_kept() -> None:
    run = PlayedRun(EvaluationWorkflow, REQUEST).begin()
    failed = run.fail(names.JUDGE_ANSWER, ApplicationError("x" * 600, type="TooLong")).commands
    assert len(failed[-1].result["judgement"]["error_text"]) == 500


LACKED = ApplicationError("nobody has it", type=names.NOT_HOSTED)


def test_a_worker_that_has_the_evaluator_is_waited_for() -> None:
    run = PlayedRun(EvaluationWorkflow, REQUEST).begin()
    pause = only(run.fail(names.JUDGE_ANSWER, LACKED).commands, "start_timer")
    assert (pause.seconds, pause.summary) == (5, "until a worker has the evaluator tone")
    pause = only(run.fire(pause).fail(names.JUDGE_ANSWER, LACKED).commands, "start_timer")
    assert pause.seconds == 10
    assert run.fire(pause).complete(names.JUDGE_ANSWER, Judgement()).commands[-1].kind == "complete_workflow_execution"


@pytest.mark.parametrize(("after", "ends"), [(3_599, False), (3_600, True)])
def test_a_worker_that_has_the_evaluator_is_waited_for_for_an_hour(after: float, *, ends: bool) -> None:
    run = PlayedRun(EvaluationWorkflow, REQUEST).begin()
    run.pass_time(after)
    commands = run.fail(names.JUDGE_ANSWER, LACKED).commands
    assert (commands[-1].kind == "complete_workflow_execution") is ends


def test_an_evaluation_whose_input_makes_no_sense_fails_and_says_so() -> None:
    (failed,) = PlayedRun(EvaluationWorkflow, {"turn": "x"}).begin().commands
    assert failed.attributes.failure.message.startswith("This can't be judged: ")


# ---------------------------------------------------------------- looking for answers


def looking(**start: Any) -> PlayedRun:
    return PlayedRun(EvaluationCollectorWorkflow, LookingStart(**start)).begin()


@pytest.mark.parametrize(
    ("start", "look"),
    [
        ({}, (BEGAN_AT, BEGAN_AT)),
        ({"since": 50.0}, (50.0, 50.0)),
        ({"since": 50.0, "first": 20.0}, (50.0, 20.0)),
    ],
)
def test_answers_count_from_when_they_were_first_looked_for(start: Any, look: tuple[float, float]) -> None:
    first = activity(looking(**start).first_commands)
    assert (first.input["since"], first.input["first"]) == look


def test_a_look_is_taken_before_answers_that_wait_to_be_judged() -> None:
    look = activity(looking().first_commands).attributes
    assert (look.activity_type, look.priority.priority_key) == (names.LOOK_FOR_ANSWERS, 1)
    assert (seconds(look.start_to_close_timeout), seconds(look.heartbeat_timeout)) == (1_800, 15)
    retry = look.retry_policy
    assert (seconds(retry.initial_interval), seconds(retry.maximum_interval), retry.maximum_attempts) == (1, 60, 0)


@pytest.mark.parametrize(("until", "since"), [(70.0, 70.0), (40.0, 50.0)])
def test_the_next_look_is_after_a_pause_from_where_the_last_one_came_to(until: float, since: float) -> None:
    run = looking(since=50.0, first=20.0)
    pause = only(run.complete(names.LOOK_FOR_ANSWERS, LookResult(until=until, pause=30.0)).commands, "start_timer")
    assert (pause.seconds, pause.summary) == (30, "until the next look")
    following = activity(run.fire(pause).commands).input
    assert (following["since"], following["first"]) == (since, 20.0)


def test_a_look_that_has_not_seen_everything_is_gone_on_with_at_once() -> None:
    run = looking(since=50.0)
    assert kinds(run.complete(names.LOOK_FOR_ANSWERS, LookResult(until=70.0, pause=0.0)).commands) == [
        "schedule_activity"
    ]
    run = looking(since=50.0)
    assert kinds(run.complete(names.LOOK_FOR_ANSWERS, LookResult(until=70.0, pause=0.5)).commands) == ["start_timer"]


def test_the_next_run_looks_on_from_there() -> None:
    run = looking(since=50.0, first=20.0)
    run.suggested = True
    commands = run.complete(names.LOOK_FOR_ANSWERS, LookResult(until=70.0, pause=30.0)).commands
    assert kinds(commands) == ["continue_as_new_workflow_execution"]
    assert commands[0].input == {"since": 70.0, "first": 20.0}


def test_looking_that_was_begun_with_nonsense_fails_and_says_so() -> None:
    (failed,) = PlayedRun(EvaluationCollectorWorkflow, {"since": "x"}).begin().commands
    assert failed.attributes.failure.message.startswith("No answers can be looked for: ")


# ---------------------------------------------------------------- a delivery


MESSAGE = WebhookMessage(id="msg_1", agent="clerk", type="conversation.done", timestamp="now", data={"turn": 3})


def test_a_message_to_a_webhook_is_sent_by_one_activity() -> None:
    run = PlayedRun(WebhookWorkflow, MESSAGE).begin()
    send = activity(run.first_commands)
    assert (send.activity_type, send.summary) == (names.SEND_WEBHOOK, "conversation.done")
    assert WebhookMessage.model_validate(send.input) == MESSAGE
    assert seconds(send.attributes.start_to_close_timeout) == 60
    assert send.attributes.heartbeat_timeout.ToTimedelta() == timeouts.HEARTBEAT_TIMEOUT
    assert kinds(run.complete(send).commands) == ["complete_workflow_execution"]


def test_a_delivery_fails_if_the_receiver_refuses_the_message() -> None:
    run = PlayedRun(WebhookWorkflow, MESSAGE).begin()
    assert kinds(run.fail(names.SEND_WEBHOOK, ApplicationError("410")).commands) == ["fail_workflow_execution"]


def test_a_delivery_of_nonsense_fails_and_says_so() -> None:
    (failed,) = PlayedRun(WebhookWorkflow, {"id": 7}).begin().commands
    assert failed.attributes.failure.message.startswith("This can't be sent: ")
