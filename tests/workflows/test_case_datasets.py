"""pydantic-evals is the data set and the judge: its evaluators and ours, on reruns of cases."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

import yaml

from everturn import Client
from everturn.evals import CaseFacts, CaseInputs, Expected, collect_cases
from everturn.testing import call
from tests.support.agents import agent_on
from tests.support.decided_orders import FIND, REFUNDS, Scripted, decided, find_order, ran, refund
from tests.support.scripts import by_turn

RIGHT = call("refund", {"cents": 400})


async def test_its_evaluators_and_ours_judge_reruns_of_cases(
    client: Client, scripted: Scripted, tmp_path: Path
) -> None:
    from openai import AsyncOpenAI
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider
    from pydantic_evals import Dataset
    from pydantic_evals.evaluators import (
        ArgumentCorrectness,
        LLMJudge,
        MaxModelRequests,
        MaxToolCalls,
        ToolCorrectness,
        TrajectoryMatch,
    )

    from everturn.evals.datasets import candidate_task, load_dataset
    from everturn.evals.evaluators import (
        EVALUATORS,
        DeniedCallsNotMade,
        EditedArgumentsUsed,
        NoOnceCallTwice,
        NotDiverged,
        ReadBeforeOnce,
        SameCalls,
    )

    ours_of_all = [
        SameCalls(),
        DeniedCallsNotMade(),
        EditedArgumentsUsed(),
        NoOnceCallTwice(),
        ReadBeforeOnce(),
        NotDiverged(),
    ]
    agent_name = f"clerk-{uuid4().hex[:8]}"
    order = f"order-{agent_name}"
    await decided(client, scripted, order, agent_name)
    await collect_cases(client, tmp_path / "cases", query=f"WorkflowId = '{order}'", redact=["card"])
    [file] = (tmp_path / "cases").iterdir()
    alone = Dataset[CaseInputs, Expected, CaseFacts].from_file(file, custom_evaluator_types=EVALUATORS)
    assert [case.name for case in alone.cases] == [order, f"{order} turn 2"], "it reads a file without us"
    written = yaml.safe_load(file.read_text())
    written["cases"][1]["evaluators"] = [{"ReadBeforeOnce": {"read_tool": "find_order"}}]
    file.write_text(yaml.safe_dump(written))
    verdict = scripted(lambda _: call("final_result", {"reason": "It says so.", "pass": True, "score": 1.0}))
    theirs_client = AsyncOpenAI(base_url=verdict.base_url, api_key="none")
    judge = OpenAIChatModel("judge", provider=OpenAIProvider(openai_client=theirs_client))
    theirs = [
        ToolCorrectness(["find_order", "refund"]),
        TrajectoryMatch(["find_order", "refund"], order="exact"),
        ArgumentCorrectness("refund", {"cents": 400}),
        MaxToolCalls(2),
        MaxModelRequests(4),
        LLMJudge("It tells the person what was done.", model=judge, include_input=True, include_expected_output=True),
    ]
    dataset = load_dataset(tmp_path / "cases", evaluators=[*ours_of_all, *theirs])
    learned = agent_on(scripted(by_turn(FIND, RIGHT, "Half of it.", "Bye.")), tools=[find_order, refund])
    async with candidate_task(client, agent=learned) as task:
        report = await dataset.evaluate(task, progress=False)
    await theirs_client.close()
    whole, turn = report.cases
    assert [name for name, result in whole.assertions.items() if not result.value] == []
    assert whole.scores["TrajectoryMatch"].value == 1
    assert {type(ours).__name__ for ours in ours_of_all} <= set(whole.assertions)
    assert whole.metrics["requests"] == 4
    assert [name for name, result in turn.assertions.items() if not result.value] == ["ToolCorrectness"]
    assert "ReadBeforeOnce_2" in turn.assertions, "the file's own"
    assert whole.attributes["rerun"].startswith("rerun:")
    assert order in report.render(width=300)
    same = agent_on(scripted(by_turn(FIND, REFUNDS, "Half of it.", "Bye.")), tools=[find_order, refund])
    async with candidate_task(client, agent=same) as task:
        again = await load_dataset(file, evaluators=ours_of_all).evaluate(task, progress=False, repeat=2)
    for case in again.cases:
        failed = {name: result.reason for name, result in case.assertions.items() if not result.value}
        assert set(failed) == {"SameCalls", "DeniedCallsNotMade", "EditedArgumentsUsed"}
        assert failed["DeniedCallsNotMade"].endswith("a person had denied: jane@example.com has no right to it")
    assert len({case.attributes["rerun"] for case in again.cases}) == 4, "each repetition is a rerun of its own"
    twice = agent_on(scripted(by_turn(RIGHT, RIGHT, "Half of it.", "Bye.")), tools=[find_order, refund])
    async with candidate_task(client, agent=twice) as task:
        careless = await load_dataset(file, evaluators=[*ours_of_all, MaxToolCalls(1)]).evaluate(task, progress=False)
    red = {name for name, result in careless.cases[0].assertions.items() if not result.value}
    assert red == {"SameCalls", "NoOnceCallTwice", "ReadBeforeOnce", "NotDiverged", "MaxToolCalls"}
    assert ran == []
