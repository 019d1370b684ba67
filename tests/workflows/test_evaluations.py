"""Answers are judged once each, beside their conversations, whatever is killed: on the real server."""

from __future__ import annotations

import asyncio
import re
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import InMemoryLogRecordExporter, SimpleLogRecordProcessor
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from temporalio.worker import Replayer

from everturn import Client, Model, Traces, generate, names, tool
from everturn.client.belongings import _payloads_in
from everturn.corrections import MAX_CORRECTIONS
from everturn.errors import KeyMissing, Refused
from everturn.evals import Evaluated, JudgedAnswer, OnlineEvaluator
from everturn.evaluations.answer_search import LookPace
from everturn.evaluations.client import Evaluation, means_of
from everturn.evaluations.collector import EvaluationCollectorWorkflow
from everturn.evaluations.sampling import collector_id, evaluation_id
from everturn.evaluations.workflow import EvaluationWorkflow
from everturn.history.answers import find_answers, read_answer
from everturn.storage.data_converter import data_converter
from everturn.testing import ScriptedModel, call, say
from tests.support.agents import agent_on, hosting
from tests.support.bounds import Bounds, as_code
from tests.support.histories import runs_of
from tests.support.operators import delete
from tests.support.ports import free_port
from tests.support.prepared import killed_at_the_end
from tests.support.waiting import eventually, reaches, waiting

ROOT = Path(__file__).parents[2]

Scripted = Callable[..., ScriptedModel]

CHANCE = re.compile(rb"[0-9a-f]{32}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9]+\.[0-9]+")
"""Ids and times."""

OFTEN = LookPace(pause=0.2, silence=20.0)


@pytest.fixture(autouse=True)
def _looks_often(bounds: Bounds) -> None:
    bounds(look_pace=OFTEN, evaluator_delay_seconds=0.01)


async def judged(client: Client, conversation_id: str, *, count: int) -> list[Evaluation]:
    """The evaluations of a conversation, once there are so many."""

    async def enough() -> list[Evaluation]:
        found = await listed(client, conversation_id)
        return found if len(found) >= count else []

    evaluations: list[Evaluation] = await eventually(enough, what=f"{count} evaluations")
    assert len(evaluations) == count
    return evaluations


async def listed(client: Client, conversation_id: str) -> list[Evaluation]:
    return [evaluation async for evaluation in client.evaluations(conversation_id=conversation_id)]


@tool(effect="once", needs_approval=True)
def refund(cents: int) -> str:
    """Pays back."""
    return f"{cents} paid back"


def refunds(messages: list[dict[str, Any]]) -> Any:
    if messages[-1]["role"] == "tool":
        return say("I can't.", finish="length")
    return call("refund", {"cents": 500})


async def test_an_evaluator_gets_the_answer_with_what_people_decided_and_its_result_is_found_by_score(
    client: Client, scripted: Scripted
) -> None:
    answers: list[JudgedAnswer] = []

    def does_refund(answer: JudgedAnswer) -> bool:
        answers.append(answer)
        return not any(call.decision and call.decision.verdict == "deny" for call in answer.calls)

    async def length(answer: JudgedAnswer) -> dict[str, Any]:
        return {"words": len(answer.text.split()), "tone": Evaluated("dry", reason="short")}

    agent = agent_on(scripted(refunds), tools=[refund], version="7")
    evaluators = [does_refund, OnlineEvaluator(length, version="b")]
    async with hosting(client, agent, evaluators=evaluators):
        conversation = await client.start(agent, "Pay me back", tenant="acme", metadata={"user": "jo"})
        (call_id,) = await waiting(conversation)
        await conversation.deny(call_id, reason="never")
        outcome = await conversation.outcome()
        found = {evaluation.evaluator: evaluation for evaluation in await judged(client, conversation.id, count=2)}

    (answer,) = answers
    assert (answer.input, answer.text, answer.agent, answer.turns) == ("Pay me back", "I can't.", "clerk@7", 2)
    assert (answer.tenant, answer.metadata, answer.stop) == ("acme", {"user": "jo"}, "length")
    assert answer.usage == outcome.usage
    (denied,) = answer.calls
    assert (denied.name, denied.arguments, denied.effect, denied.started_at) == ("refund", {"cents": 500}, "once", None)
    assert denied.decision
    assert denied.decision.note == "never"
    assert [(result.score, result.label) for result in found["does_refund"].results] == [(0.0, "fail")]
    assert [(result.name, result.score, result.label, result.reason) for result in found["length"].results] == [
        ("words", 2.0, "", ""),
        ("tone", None, "dry", "short"),
    ]
    assert (found["length"].version, found["length"].agent) == ("b", "clerk@7")

    # As the docs say: also by Temporal's own filter.
    query = "WorkflowType = 'Evaluation' AND EverturnScore < 0.5 AND EverturnAgent = 'clerk@7'"
    query += f" AND TaskQueue = '{client.task_queue}-evaluations'"
    rows = [row async for row in client.temporal.list_workflows(query)]
    assert [row.id for row in rows] == [found["does_refund"].id]
    low = [
        evaluation async for evaluation in client.evaluations(below=0.5, agent="clerk", conversation_id=conversation.id)
    ]
    assert low == [found["does_refund"]]
    assert [(mean.evaluator, mean.mean) for mean in means_of(found.values())] == [
        ("does_refund", 0.0),
        ("length/tone", None),
        ("length/words", 2.0),
    ]
    for row, workflow in (
        (rows[0].id, EvaluationWorkflow),
        (collector_id(client.task_queue), EvaluationCollectorWorkflow),
    ):
        history = await client.temporal.get_workflow_handle(row).fetch_history()
        await Replayer(workflows=[workflow], data_converter=data_converter).replay_workflow(history)


@pytest.mark.parametrize("events", [1000, 5], ids=["one run", "several runs"])
async def test_an_answer_begins_after_the_one_before_it_also_if_a_person_writes_while_its_call_waits(
    client: Client, scripted: Scripted, bounds: Bounds, events: int
) -> None:
    bounds(events=events)
    replies = ["Hello.", call("refund", {"cents": 500}, id="r1"), "I may not."]
    agent = agent_on(scripted(replies), tools=[refund])
    async with hosting(client, agent):
        conversation = await client.start(agent, "Hi", keep_open=timedelta(hours=1))
        await conversation.reply()
        await conversation.send("Pay me back")
        await waiting(conversation)
        await conversation.send("Please hurry!")
        await conversation.deny("r1", reason="never")
        await conversation.reply()
        await conversation.close()
        await conversation.outcome()
    described = await client.temporal.get_workflow_handle(conversation.id).describe()
    long_ago = datetime.now(UTC) - timedelta(hours=1)
    places = await find_answers(client.temporal, conversation.id, described.run_id, since=long_ago)
    answers = [await read_answer(client.temporal, conversation.id, place.run_id, place.turn) for place in places]
    answers.sort(key=lambda answer: answer.turn)
    assert [(answer.turn, answer.input, [call.name for call in answer.calls]) for answer in answers] == [
        (1, "Hi", []),
        (3, "Pay me back\nPlease hurry!", ["refund"]),
    ]


async def test_an_answer_begins_after_one_that_never_fitted_the_output_type(client: Client, scripted: Scripted) -> None:
    """The two were judged as one: with both questions, and with the calls and the cost of both."""

    @tool
    def look_up() -> str:
        return "nothing"

    usage = {"prompt_tokens": 10, "completion_tokens": 1, "total_tokens": 11}
    unfit = [say("much", usage=usage)] * (1 + MAX_CORRECTIONS)
    replies = [call("look_up"), *unfit, say("many", usage=usage), say("7", usage=usage)]
    agent = agent_on(scripted(replies, order="arrival"), tools=[look_up], output=int)
    async with hosting(client, agent):
        conversation = await client.start(agent, "How much is A?", keep_open=timedelta(hours=1))
        await reaches(conversation, "idle")
        await conversation.send("How much is B?")
        assert await conversation.reply() == 7
        await conversation.close()
        await conversation.outcome()
    described = await client.temporal.get_workflow_handle(conversation.id).describe()
    long_ago = datetime.now(UTC) - timedelta(hours=1)
    [place] = await find_answers(client.temporal, conversation.id, described.run_id, since=long_ago)
    answer = await read_answer(client.temporal, conversation.id, place.run_id, place.turn)
    assert (answer.input, answer.output, answer.calls) == ("How much is B?", 7, ())
    assert (answer.turns, answer.usage.output_tokens) == (2, 2), "with its own correction"


@pytest.mark.parametrize("gone", [False, True])
async def test_an_answer_of_many_runs_is_judged_whole(
    client: Client, scripted: Scripted, bounds: Bounds, *, gone: bool
) -> None:
    """The one before it was cancelled in another run, and is no part of it. Of runs that are gone, nobody can tell."""
    bounds(events=20)

    @tool
    def look_up(word: str) -> str:
        return f"{word}!"

    usage = {"prompt_tokens": 10, "completion_tokens": 1, "total_tokens": 11}
    turns = [[say("", usage=usage), call("look_up", {"word": word})] for word in "abcdef"]
    replies = [call("refund", {"cents": 500}, id="r1"), *turns, say("Done.", usage=usage)]
    agent = agent_on(scripted(replies, order="arrival"), tools=[look_up, refund])
    async with hosting(client, agent):
        conversation = await client.start(agent, "Pay me back", keep_open=timedelta(hours=1))
        await waiting(conversation)
        await conversation.cancel_turn()
        await reaches(conversation, "idle")
        await conversation.send("Look up six words")
        assert await conversation.reply() == "Done."
        await conversation.close()
        await conversation.outcome()
    runs = await runs_of(client, conversation)
    assert len(runs) >= 3
    if gone:
        await delete(client, conversation, runs[-2])
    answer = await read_answer(client.temporal, conversation.id, runs[-1], turn=8)
    words = [asked.call.arguments.get("word") for asked in answer.calls if asked.call.name == "look_up"]
    known = [asked for asked in answer.calls if asked.effect and asked.started_at and asked.finished_at]
    assert words == [*"abcdef"]
    if gone:
        assert answer.turns == len(known) + 1 < 7
    else:
        assert (answer.input, answer.turns, answer.usage.output_tokens) == ("Look up six words", 7, 7)
        assert len(known) == len(answer.calls)
        assert answer.started_at < min(asked.started_at for asked in known if asked.started_at)


async def test_each_answer_of_an_open_conversation_is_judged_once_and_the_conversation_has_no_trace_of_it(
    client: Client, scripted: Scripted
) -> None:
    agent = agent_on(scripted(lambda messages: f"Answer {len(messages)}."))
    name = f"same-{uuid4().hex[:8]}"

    async def talk() -> list[bytes]:
        conversation = await client.start(agent, "One", id=name, keep_open=timedelta(hours=1), again=True)
        await conversation.reply()
        await conversation.send("Two")
        await conversation.reply()
        await conversation.close()
        await conversation.outcome()
        history = await client.temporal.get_workflow_handle(name).fetch_history()
        payloads = [payload.data for event in history.events for payload in _payloads_in(event)]
        return sorted(CHANCE.sub(b"*", payload) for payload in payloads)

    async with hosting(client, agent):
        without = await talk()
    asked: list[str] = []

    def remember(answer: JudgedAnswer) -> None:
        asked.append(answer.text)

    async with hosting(client, agent, evaluators=[remember]):
        assert await talk() == without
        found = await judged(client, name, count=2)
        assert {(one.turn, one.results) for one in found} == {(1, ()), (2, ())}
        collector = client.temporal.get_workflow_handle(collector_id(client.task_queue))
        looks = (await collector.describe()).history_length

        async def looked_again() -> bool:
            return (await collector.describe()).history_length > looks + 30

        await eventually(looked_again, what="it looks three times more")
    assert sorted(asked) == ["Answer 1.", "Answer 3."]
    assert len(await listed(client, name)) == 2
    assert [conversation.id async for conversation in client.conversations(search=names.EVALUATION_OF)] == []


WORKER = """
import asyncio, os, signal, sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from everturn import Agent, Client, Model, Worker
from everturn.evaluations import answer_search
from everturn.evaluations import judge_activity
from everturn.evaluations.answer_search import LookPace
{bounds}

address, task_queue, model, dies, log = sys.argv[1:]

def die():
    os.kill(os.getpid(), signal.SIGKILL)

def first(answer):
    with Path(log).open("a") as file:
        file.write("first\\n")
    if dies == "judging":
        die()
    return True

def second(answer):
    with Path(log).open("a") as file:
        file.write("second\\n")
    return 0.5

if dies == "looking":
    start = answer_search.AnswerSearch._start_evaluation
    async def start_one(*given):
        await start(*given)
        die()
    answer_search.AnswerSearch._start_evaluation = start_one
if dies == "reporting":
    judge = judge_activity._judge_answer
    async def judge_and_die(*given):
        await judge(*given)
        die()
    judge_activity._judge_answer = judge_and_die

async def main():
    client = await Client.connect(address, task_queue=task_queue)
    agent = Agent("clerk", model=Model("scripted:demo", base_url=model))
    await Worker(client, agents=[agent], evaluators=[first, second]).run()

asyncio.run(main())
"""


@contextmanager
def worker_process(code: str, client: Client, model: ScriptedModel, *arguments: str) -> Iterator[Any]:
    address = client.temporal.service_client.config.target_host
    with killed_at_the_end("-c", code, address, client.task_queue, model.base_url, *arguments) as process:
        yield process


async def test_workers_that_are_killed_at_any_step_leave_one_judgement_of_each_evaluator(
    client: Client, scripted: Scripted, tmp_path: Path
) -> None:
    """One after the other dies: when it has started one of two evaluations, in the middle of a judgement, and after a
    judgement, before Temporal hears of it."""
    model = scripted(lambda messages: "Hello.")
    log = tmp_path / "log"
    bounds = as_code(look_pace="LookPace(pause=0.2, silence=3.0)", look_silence="timedelta(seconds=3)")
    code = WORKER.replace("{bounds}", bounds)
    conversation_id = ""
    for dies in ("looking", "judging", "reporting"):
        with worker_process(code, client, model, dies, str(log)) as process:
            # Not client.run: the worker that is to answer it may have died of looking for what to judge by then.
            conversation_id = conversation_id or (await client.start("clerk", "Hi")).id
            assert await asyncio.to_thread(process.wait, 60) == -signal.SIGKILL
    with worker_process(code, client, model, "", str(log)):
        found = await judged(client, conversation_id, count=2)
    assert {(one.evaluator, one.score, one.error) for one in found} == {("first", 1.0, ""), ("second", 0.5, "")}
    query = f"TaskQueue = '{client.task_queue}-evaluations' AND WorkflowType = 'Evaluation'"
    assert (await client.temporal.count_workflows(query)).count == 2
    assert len(log.read_text().split()) >= 4, "judges were asked again"


async def test_what_was_answered_after_an_operator_ended_the_search_for_answers_is_judged(
    client: Client, scripted: Scripted
) -> None:
    agent = agent_on(scripted(lambda messages: "Done."))

    def is_done(answer: JudgedAnswer) -> bool:
        return answer.text == "Done."

    async with hosting(client, agent, evaluators=[is_done]):
        await judged(client, (await client.run(agent, "One")).id, count=1)
    await client.temporal.get_workflow_handle(collector_id(client.task_queue)).terminate()
    async with hosting(client, agent):
        second = await client.run(agent, "Two")
    async with hosting(client, agent, evaluators=[is_done]):
        await judged(client, second.id, count=1)


async def test_an_evaluator_that_fails_or_hangs_gives_a_judgement_that_says_so_and_holds_nobody_up(
    client: Client, scripted: Scripted, stuck: Callable[[], Any]
) -> None:
    tries: list[str] = []

    def broken(answer: JudgedAnswer) -> bool:
        tries.append(answer.text)
        raise LookupError("no such table")

    def hangs(answer: JudgedAnswer) -> None:
        stuck()

    def odd(answer: JudgedAnswer) -> Any:
        return [answer]

    agent = agent_on(scripted(lambda messages: "Hello."))
    evaluators = [broken, OnlineEvaluator(hangs, timeout=timedelta(seconds=0.2)), odd]
    async with hosting(client, agent, evaluators=evaluators):
        outcome = await client.run(agent, "Hi")
        found = {one.evaluator: one for one in await judged(client, outcome.id, count=3)}
    assert (found["broken"].error, found["broken"].error_text) == ("LookupError", "LookupError: no such table")
    assert len(tries) == 3
    assert (found["hangs"].error, found["hangs"].error_text) == ("TookTooLong", "it did not end within 0.2 s")
    assert found["odd"].error == "InvalidResult"
    assert all(one.score is None for one in found.values())


async def test_a_judgement_waits_for_the_judges_key_and_says_which_version_has_judged_after_a_deploy(
    client: Client, scripted: Scripted, monkeypatch: pytest.MonkeyPatch, bounds: Bounds
) -> None:
    bounds(evaluator_wait=timedelta(seconds=0.2))
    monkeypatch.delenv("JUDGE_KEY", raising=False)
    agent = agent_on(scripted(lambda messages: "Hello."))
    judge_model = Model("openai-chat:gpt-5.5", base_url=scripted(["0.25"]).base_url, key_env="JUDGE_KEY")
    has_no_key = asyncio.Event()
    is_interrupted = asyncio.Event()

    async def hangs(answer: JudgedAnswer) -> None:
        is_interrupted.set()
        await asyncio.Event().wait()

    async def score(answer: JudgedAnswer) -> float:
        try:
            return float((await generate(judge_model, answer.text)).text)
        except KeyMissing:
            has_no_key.set()
            raise

    def before_deploy(name: str) -> OnlineEvaluator:
        return OnlineEvaluator(hangs, name=name, version="1", timeout=timedelta(seconds=1))

    async with hosting(client, agent, evaluators=[before_deploy("judge"), before_deploy("slow")]):
        outcome = await client.run(agent, "Hi")
        await is_interrupted.wait()
    deployed = [
        OnlineEvaluator(score, name="judge", version="2"),
        OnlineEvaluator(hangs, name="slow", version="2", timeout=timedelta(minutes=10)),
    ]
    async with hosting(client, agent, evaluators=deployed):
        await has_no_key.wait()
        monkeypatch.setenv("JUDGE_KEY", "sk-1")
        evaluations = {evaluation.evaluator: evaluation for evaluation in await judged(client, outcome.id, count=2)}
    assert (evaluations["judge"].version, evaluations["judge"].score) == ("2", 0.25)
    assert (evaluations["slow"].version, evaluations["slow"].error) == ("2", "TookTooLong")


async def test_what_a_judge_costs_is_counted_with_its_judgement_also_of_tries_that_failed(
    client: Client, scripted: Scripted
) -> None:
    agent = agent_on(scripted(lambda messages: "Hello."))
    judge = Model("scripted:judge", base_url=scripted(lambda messages: "0.25").base_url)
    tries: list[str] = []

    async def score(answer: JudgedAnswer) -> float:
        reply = await generate(judge, answer.text)
        tries.append(reply.text)
        if len(tries) == 1:
            raise ConnectionError
        return float(reply.text)

    async with hosting(client, agent, evaluators=[score]):
        outcome = await client.run(agent, "Hi")
        (found,) = await judged(client, outcome.id, count=1)
    reply = await generate(judge, "Hello.")
    assert found.score == 0.25
    assert found.usage == reply.usage + reply.usage
    assert found.cost_usd is None, "nobody knows the price of a scripted model"


async def test_erasing_a_conversation_erases_what_was_said_about_it_and_nothing_else(
    client: Client, scripted: Scripted
) -> None:
    agent = agent_on(scripted(lambda messages: "Hello."))

    def quotes(answer: JudgedAnswer) -> Evaluated:
        return Evaluated(True, reason=answer.text)

    name = f"e-{uuid4().hex[:6]}"
    async with hosting(client, agent, evaluators=[quotes]):
        for conversation_id in (name, f"{name}:b"):
            await client.run(agent, "Hi", id=conversation_id)
            await judged(client, conversation_id, count=1)
    erased = await client.erase(name)
    assert [(conversation.was, conversation.of, conversation.runs) for conversation in erased.conversations] == [
        ("named", "", 1),
        ("evaluation", name, 1),
    ]
    assert await listed(client, name) == []
    assert len(await listed(client, f"{name}:b")) == 1
    for reserved in (evaluation_id(name, 1, 0.0, "x"), collector_id("x")):
        with pytest.raises(Refused, match="begins with"):
            await client.start(agent, "Hi", id=reserved)


async def test_a_result_is_an_event_at_the_answers_span_and_its_reason_stays_out(
    client: Client, scripted: Scripted
) -> None:
    spans = InMemorySpanExporter()
    tracer = TracerProvider()
    tracer.add_span_processor(SimpleSpanProcessor(spans))
    logs = InMemoryLogRecordExporter()
    logger = LoggerProvider()
    logger.add_log_record_processor(SimpleLogRecordProcessor(logs))
    agent = agent_on(scripted(lambda messages: "Hello."), version="2")

    def polite(answer: JudgedAnswer) -> Evaluated:
        return Evaluated(True, reason=answer.text)

    traces = Traces(provider=tracer, logger_provider=logger)
    async with hosting(client, agent, evaluators=[polite], traces=traces):
        outcome = await client.run(agent, "Hi")
        await judged(client, outcome.id, count=1)
    named = {span.name: span for span in spans.get_finished_spans()}
    answer = named["invoke_agent clerk@2"].context
    (record,) = (data.log_record for data in logs.get_finished_logs())
    assert record.event_name == "gen_ai.evaluation.result"
    assert answer
    assert (record.trace_id, record.span_id) == (answer.trace_id, answer.span_id)
    parent = named["evaluate polite"].parent
    assert parent
    assert parent.span_id == answer.span_id
    assert dict(record.attributes or {}) == {
        "gen_ai.evaluation.name": "polite",
        "gen_ai.evaluation.score.value": 1.0,
        "gen_ai.evaluation.score.label": "pass",
        "gen_ai.conversation.id": outcome.id,
        "gen_ai.agent.name": "clerk",
        "gen_ai.agent.version": "2",
        "everturn.turn": 1,
        "everturn.evaluator": "polite",
    }


MEASURED = """
import asyncio, sys
from everturn import Agent, Client, Model, Worker
from everturn.evaluations.answer_search import LookPace
from everturn.worker.metrics import expose
{bounds}

def length(answer):
    return len(answer.text) / 10

def broken(answer):
    raise ValueError("it can't be judged")

async def main():
    address, task_queue, model, shown_at = sys.argv[1:]
    expose(shown_at)
    client = await Client.connect(address, task_queue=task_queue)
    agent = Agent("clerk", model=Model("scripted:demo", base_url=model))
    await Worker(client, agents=[agent], evaluators=[length, broken]).run()

asyncio.run(main())
"""


async def test_a_worker_process_shows_scores_and_failures_of_its_evaluators_to_prometheus(
    client: Client, scripted: Scripted
) -> None:
    shown_at = f"localhost:{free_port()}"
    code = MEASURED.format(bounds=as_code(look_pace=OFTEN, evaluator_delay_seconds=0.01))

    async def shows() -> bool:
        async with httpx.AsyncClient(timeout=10) as http:
            metrics = (await http.get(f"http://{shown_at}/metrics")).text
        counted = re.findall(r"^everturn_evaluations_total\{(.*)\} 1$", metrics, re.MULTILINE)
        labels = {tuple(sorted(re.findall(r'(?:agent|evaluator|outcome)="(\w+)"', line))) for line in counted}
        scored = re.findall(r"^everturn_evaluation_score_sum\{.*\} (\S+)$", metrics, re.MULTILINE)
        return labels == {("clerk", "judged", "length"), ("broken", "clerk", "failed")} and scored == ["0.5"]

    with worker_process(code, client, scripted(["Hello"]), shown_at):
        await client.run("clerk", "Hi")
        await eventually(shows, what="the scores are shown")
