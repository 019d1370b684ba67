"""Cases: what really happened, as files for git; and reruns of these files alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import uuid4

import yaml

from everturn import Client
from everturn.evals import Thresholds, collect_cases, read_cases, rerun
from everturn.guardrails import Pattern
from everturn.testing import call
from tests.support.agents import agent_on
from tests.support.decided_orders import FIND, REFUNDS, Scripted, decided, find_order, ran, refund
from tests.support.scripts import by_turn
from tests.support.transcripts import results_of
from tests.support.waiting import eventually


async def test_what_people_decided_becomes_what_is_expected_and_nobodys_data_leaves(
    client: Client, scripted: Scripted, tmp_path: Path
) -> None:
    agent_name = f"clerk-{uuid4().hex[:8]}"
    order = f"jane@example.com-{agent_name}"
    await decided(client, scripted, order, agent_name)
    folder = tmp_path / "cases"

    async def both() -> bool:
        return len([listed async for listed in client.conversations(agent=agent_name, ended=True)]) == 2

    await eventually(both)
    options: dict[str, Any] = {"agent": agent_name, "tenant": "acme", "metadata": {"vip": True}, "labels": ["denied"]}
    collected = await collect_cases(client, folder, **options)
    [file] = collected.written
    text = file.read_text()
    assert "jane" not in text + file.name
    assert "4111" not in text
    assert "tester" not in text, "who decided"
    whole, turn = read_cases(folder)
    assert whole.inputs.at_turn is None
    assert turn.inputs.at_turn == 2
    assert whole.metadata.labels == ("denied", "edited")
    assert [(action.tool, action.arguments) for action in whole.expected_output.calls] == [
        ("find_order", {"order_id": "81", "email": "[email]"}),
        ("refund", {"cents": 400}),
    ]
    assert [action.arguments for action in turn.expected_output.calls] == [{"cents": 400}]
    made = whole.inputs.calls
    assert [(step.decision, step.effect, step.reason) for step in made] == [
        (None, "read", ""),
        ("edited", "once", ""),
        ("denied", "once", "[email] has no right to it"),
    ]
    assert not (await collect_cases(client, folder, **options)).written, "a second export changed a file"
    loaded = yaml.safe_load(text)
    loaded["cases"][1]["evaluators"] = ["SameCalls"]
    file.write_text(yaml.safe_dump(loaded))
    more = await collect_cases(client, folder, **options, redact=["email", Pattern(r"Hello", redact="Hi")])
    assert [case.evaluators for case in read_cases(file)] == [[], ["SameCalls"]], "what a person added was lost"
    assert "4111" in file.read_text()
    assert len(more.cases) == 2
    await collect_cases(client, folder, agent=agent_name)
    assert len(list(folder.iterdir())) == 2
    assert "SameCalls" in file.read_text()
    await client.erase(order)
    erased = await collect_cases(client, folder, query=f"WorkflowId = 'plain-{order}'")
    assert erased.removed == (file,)
    assert not file.exists()


async def test_a_case_runs_where_its_conversation_is_not_and_the_edited_call_is_the_right_one(
    client: Client, scripted: Scripted, tmp_path: Path
) -> None:
    agent_name = f"clerk-{uuid4().hex[:8]}"
    order = f"order-{agent_name}"
    await decided(client, scripted, order, agent_name)
    await collect_cases(client, tmp_path, query=f"WorkflowId = '{order}'", redact=[])
    await client.erase(order)
    cases = read_cases(tmp_path)
    right = call("refund", {"cents": 400})
    same = agent_on(scripted(by_turn(FIND, REFUNDS, "Half of it.", "Bye.")), tools=[find_order, refund])
    learned = agent_on(scripted(by_turn(FIND, right, "Half of it.", "Bye.")), tools=[find_order, refund])
    reruns = await rerun(client, cases, agent=same)
    assert [compared.verdict for compared in reruns.comparisons] == ["same calls", "same calls"]
    assert not reruns.failures(Thresholds(same_calls=1, same_text=1))
    assert reruns.failures(Thresholds(uncorrected=3)) == [
        "calls that people had corrected: 4 made again; at most 3 may be"
    ]
    better = await rerun(client, cases, agent=learned)
    assert not better.failures(Thresholds(same_calls=1, uncorrected=0))
    whole = better.comparisons[0]
    assert [result.text for result in results_of(whole.rerun.messages)][1:] == ["refunded 400"]
    silent = agent_on(scripted(by_turn(FIND, "I can't.", "Bye.")), tools=[find_order, refund])
    for compared in (await rerun(client, cases, agent=silent)).comparisons:
        assert [missing.call.arguments for missing in compared.missing] == [{"cents": 500}]
    assert ran == []
