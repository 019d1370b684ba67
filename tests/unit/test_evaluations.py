"""Which answers are judged, what evaluators are given and may return."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, Final

import pytest
from temporalio.testing import ActivityEnvironment

from everturn.errors import InvalidSetting
from everturn.evals import AnsweredCall, Evaluated, JudgedAnswer, OnlineEvaluator
from everturn.evaluations import answer_search
from everturn.evaluations.answer_search import AnswerSearch, LookPace
from everturn.evaluations.online_evaluators import InvalidResult, checked_evaluators, read_evaluated, results_of
from everturn.evaluations.records import LookRequest
from everturn.evaluations.sampling import (
    HOUR_SECONDS,
    evaluation_id,
    is_evaluation_of,
    may_be_sampled,
    sample_number,
)
from everturn.evaluations.spending import counted_spending
from everturn.history.answers import FoundAnswer
from everturn.records import ToolCall, ToolResult
from everturn.sizes import MAX_ID_BYTES
from everturn.tools import user_code
from tests.support.vendors import pydantic_evaluators

NOON = datetime(2026, 11, 27, 12, tzinfo=UTC)


def yes(answer: JudgedAnswer) -> bool:
    return True


def answer_with(*calls: AnsweredCall) -> JudgedAnswer:
    times = {"started_at": NOON, "finished_at": NOON + timedelta(seconds=3)}
    return JudgedAnswer(conversation_id="c", run_id="r", turn=2, agent="clerk", text="Done.", calls=calls, **times)


def call_of(name: str, *, ran: bool = True, is_error: bool = False, **arguments: Any) -> AnsweredCall:
    result = ToolResult(call_id=name, name=name, is_error=is_error)
    started_at = NOON if ran else None
    return AnsweredCall(
        call=ToolCall(call_id=name, name=name, arguments=arguments), result=result, started_at=started_at
    )


# ---------------------------------------------------------------- sampling


def test_the_hash_is_what_it_always_was() -> None:
    """Else a deploy would change what is judged; and whoever recomputes it would be wrong."""
    assert sample_number("order-81", NOON.timestamp()) == 0.13795424455656638
    assert sample_number("order-81", NOON.timestamp() + HOUR_SECONDS - 1) == sample_number("order-81", NOON.timestamp())
    assert sample_number("order-81", NOON.timestamp() + HOUR_SECONDS) != sample_number("order-81", NOON.timestamp())


@pytest.mark.parametrize("known", [False, True])
async def test_of_a_thousand_rows_of_the_index_those_are_judged_that_the_hash_says(
    monkeypatch: pytest.MonkeyPatch, known: bool
) -> None:
    at = NOON + timedelta(minutes=30)
    rows = {f"order-{number}": at + timedelta(minutes=number % 50) for number in range(1000)}  # in two hours
    started: list[str] = []
    read: list[str] = []

    async def find_answers(client: Any, conversation_id: str, run_id: str, *, since: datetime) -> list[FoundAnswer]:
        read.append(conversation_id)
        found = FoundAnswer(run_id, 1, rows[conversation_id], "clerk", answers_call=False, minimal=False)
        return [found] if found.given_at >= since else []

    async def list_workflows(query: str) -> AsyncIterator[Any]:
        if "CloseTime" in query:
            for conversation_id in rows:
                yield row_of(conversation_id)

    async def start_workflow(name: str, request: Any, *, id: str, **options: Any) -> None:  # noqa: A002
        started.append(request["conversation_id"])

    monkeypatch.setattr(answer_search, "find_answers", find_answers)
    client = SimpleNamespace(list_workflows=list_workflows, start_workflow=start_workflow)
    monkeypatch.setattr(answer_search.activity, "client", lambda: client)
    namespace = SimpleNamespace(indexed=asked(known), evaluations_searchable=asked(known))
    evaluators = checked_evaluators([OnlineEvaluator(yes, sample=0.05)], 0.5)
    search = AnswerSearch(evaluators, task_queue="q", namespace=namespace, pace=LookPace())  # type: ignore[arg-type]
    environment = ActivityEnvironment()
    environment.info = environment.default_info()
    end = NOON + timedelta(hours=1, minutes=30)
    environment.info = environment.info.__class__(**{**vars(environment.info), "started_time": end})
    look = LookRequest(since=at.timestamp(), first=NOON.timestamp())
    looked = await environment.run(search.look_for_answers, look)
    wanted = {name for name, given_at in rows.items() if sample_number(name, given_at.timestamp()) < 0.05}
    assert set(started) == wanted
    assert looked.started == len(wanted)
    assert 25 <= len(wanted) <= 75
    assert len(read) <= 2.5 * len(wanted), "the others' histories were not read"
    # The same rows again: there is nothing new in them.
    read.clear()
    await environment.run(search.look_for_answers, look)
    assert read == []


def row_of(conversation_id: str) -> Any:
    attributes = SimpleNamespace(get=lambda key: None)
    raw = SimpleNamespace(status=2)
    return SimpleNamespace(id=conversation_id, run_id="r", typed_search_attributes=attributes, raw_info=raw)


def asked(value: bool) -> Any:
    async def answer() -> bool:
        return value

    return answer


def test_an_id_says_whose_it_is_and_fits() -> None:
    for name in ("a", "a:b", "é" * 500):
        whole = evaluation_id(name, 3, NOON.timestamp(), "x" * 64)
        assert is_evaluation_of(whole, name)
        assert not is_evaluation_of(whole, name[:-1])
        assert len(whole.encode()) <= MAX_ID_BYTES
    assert evaluation_id("a", 3, 1.0, "x") != evaluation_id("a", 3, 1.000001, "x"), "a reset has made the turn anew"


def test_a_look_over_an_hours_end_asks_for_both_hours() -> None:
    names = [f"order-{number}" for number in range(300)]
    end = NOON.timestamp()
    both = {name for name in names if may_be_sampled(name, end - 5, end + 5, 0.1)}
    hours = [{name for name in names if sample_number(name, moment) < 0.1} for moment in (end - 5, end + 5)]
    assert both == hours[0] | hours[1]
    assert both != hours[0]


# ---------------------------------------------------------------- what they are, and return


@pytest.mark.parametrize(
    ("evaluators", "sample", "problem"),
    [
        (["no"], None, "no evaluator"),
        ([yes, yes], None, "Two evaluators"),
        ([lambda answer: True], None, "named '<lambda>'"),
        ([yes], 5, "sample=5"),
        ([yes], True, "sample=True"),
        (yes, None, "Give a list"),
    ],
)
def test_what_can_judge_nothing_is_refused(evaluators: Any, sample: Any, problem: str) -> None:
    with pytest.raises(InvalidSetting, match=problem):
        checked_evaluators(evaluators, sample)


def test_the_class_of_an_evaluator_is_refused() -> None:
    with pytest.raises(InvalidSetting, match="no class"):
        checked_evaluators([pydantic_evaluators.LLMJudge], None)


def test_an_evaluator_judges_answers_to_agents_only_if_it_is_told_to() -> None:
    assert OnlineEvaluator(yes).judges_agent("clerk@2", is_question=False)
    assert not OnlineEvaluator(yes).judges_agent("clerk@2", is_question=True)
    assert OnlineEvaluator(yes, agents=["clerk"]).judges_agent("clerk@2", is_question=True)
    assert not OnlineEvaluator(yes, agents=["clerk@1"]).judges_agent("clerk@2", is_question=False)


NO_COSTS: Final[list[Any]] = [float("nan"), float("inf"), -5, "1", True, 10**400]


@pytest.mark.parametrize(
    "value",
    [
        *([1], float("nan"), float("inf"), 10**400, {"a": object()}, {str(n): 1 for n in range(21)}),
        *(Evaluated(1, cost_usd=cost) for cost in NO_COSTS),
        Evaluated(1, usage={"input_tokens": 5}),  # type: ignore[arg-type]
    ],
)
def test_what_is_no_judgement_is_an_error(value: Any) -> None:
    with pytest.raises(InvalidResult):
        results_of(read_evaluated("x", value))


def test_what_no_payload_can_hold_is_mended() -> None:
    results = results_of(read_evaluated("x", {"\ud800": Evaluated("\ud800", reason="\ud800")}))
    mended = {"name": "\ufffd", "label": "\ufffd", "reason": "\ufffd"}
    assert [result.model_dump(mode="json") for result in results] == [mended]


# ---------------------------------------------------------------- pydantic-evals


async def judge(evaluator: Any, answer: JudgedAnswer) -> dict[str, Evaluated]:
    (online,) = checked_evaluators([evaluator], None).values()
    return read_evaluated(online.name, await user_code.call(online.call_of(answer), seconds=10))


async def test_evaluators_of_calls_see_those_that_ran() -> None:
    answer = answer_with(call_of("look_up", order="81"), call_of("refund", ran=False), call_of("bad", is_error=True))
    found = await judge(pydantic_evaluators.ToolCorrectness(expected_tools=["look_up"]), answer)
    assert found["ToolCorrectness"].value is True
    found = await judge(pydantic_evaluators.MaxToolCalls(1), answer)
    assert found["MaxToolCalls"].value is False
    assert found["MaxToolCalls"].reason
    found = await judge(
        pydantic_evaluators.ArgumentCorrectness(tool_name="look_up", expected_arguments={"order": "81"}), answer
    )
    assert found["ArgumentCorrectness"].value is True


async def test_an_llm_judge_is_asked_and_its_tokens_are_counted() -> None:
    from pydantic_ai.messages import ModelMessage, ModelResponse, ToolCallPart
    from pydantic_ai.models.function import AgentInfo, FunctionModel

    asked_with: list[ModelMessage] = []

    def reply(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        asked_with.extend(messages)
        grade = {"reason": "curt", "pass": False, "score": 0.25}
        return ModelResponse(parts=[ToolCallPart(info.output_tools[0].name, grade)])

    judged = pydantic_evaluators.LLMJudge("Polite", model=FunctionModel(reply), score={"include_reason": True})
    with counted_spending() as spending:
        found = await judge(judged, answer_with())
    assert {name: (one.value, one.reason) for name, one in found.items()} == {
        "LLMJudge_score": (0.25, "curt"),
        "LLMJudge_pass": (False, "curt"),
    }
    assert "Done." in str(asked_with)
    assert spending.usage.output_tokens > 0
    assert spending.cost_usd is None, "nobody knows what it costs"
    assert isinstance(judged.model, FunctionModel), "the user's own evaluator stays as it is"
