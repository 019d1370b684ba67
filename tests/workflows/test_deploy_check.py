"""Before a deploy: do the new agents fit what runs?"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from temporalio import workflow

from everturn import Agent, Client, tool
from everturn.client.conversations_by_query import find_matching
from everturn.testing import ScriptedModel, call
from everturn.testing.replay import Diverged, replay_all
from everturn.worker.deploy_check import find_conflicts, group_conflicts
from everturn.workflows.conversation import ConversationWorkflow
from tests.support.agents import agent_on, hosting
from tests.support.scripts import ONE
from tests.support.shell import Shell
from tests.support.tools import refund
from tests.support.waiting import eventually, waiting

Scripted = Callable[..., ScriptedModel]


@tool(name="refund", effect="once")
def refund_by_number(number: int) -> str:
    return "refunded"


@tool(name="refund", effect="read")
def refund_read(order_id: str, cents: int) -> str:
    return "refunded"


@pytest.mark.parametrize(
    ("name", "tools", "problem"),
    [
        ("clerk", [refund], None),
        ("other", [refund], "its agent 'clerk' is not hosted; these are: other"),
        ("clerk", [], "call 'a' is for the tool refund, which agent 'clerk' no longer has"),
        ("clerk", [refund_by_number], "call 'a' no longer fits the schema of refund: number: Field required"),
        ("clerk", [refund_read], "call 'a' was planned with effect 'once', and refund has 'read'"),
    ],
)
async def test_a_deploy_that_does_not_fit_a_running_conversation_is_found(
    client: Client, scripted: Scripted, name: str, tools: list[object], problem: str | None
) -> None:
    agent = agent_on(scripted(ONE), tools=[refund])
    deploy = Agent(name, model="scripted:new", tools=tools)  # type: ignore[arg-type]
    async with hosting(client, agent):
        conversation = await client.start(agent, "Go")
        await waiting(conversation)

        async def found() -> list[tuple[str, str]]:
            return [(conflict.conversation, conflict.problem) async for conflict in find_conflicts(client, [deploy])]

        if problem is None:
            assert await found() == []
        else:
            # The list of what runs is the visibility store's, which comes a moment later.
            assert await eventually(found) == [(conversation.id, problem)]
        await conversation.close()
        await conversation.outcome()


async def test_calls_that_are_over_conflict_with_nothing(client: Client, scripted: Scripted) -> None:
    two = [call("refund", {"order_id": "81", "cents": 5}, id=one) for one in "ab"]
    agent = agent_on(scripted([two, "Done."]), tools=[refund])
    async with hosting(client, agent):
        conversation = await client.start(agent, "Go", keep_open=timedelta(minutes=1))
        await waiting(conversation, calls=2)

        async def found(name: str) -> list[str]:
            return [conflict.problem async for conflict in find_conflicts(client, [Agent(name, model="scripted:new")])]

        await conversation.deny("a")
        (problem,) = await eventually(lambda: found("clerk"))
        assert problem.startswith("call 'b' is for the tool refund")
        await conversation.cancel_turn()
        assert await found("clerk") == []
        assert len(await found("other")) == 1, "the conversation is still looked at"
        await conversation.close()
        await conversation.outcome()


async def test_code_that_would_not_replay_what_runs_is_found(
    client: Client, scripted: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = agent_on(scripted(ONE), tools=[refund])
    async with hosting(client, agent):
        conversation = await client.start(agent, "Go")
        await waiting(conversation)

        async def found() -> list[tuple[str, str]]:
            return [(conflict.conversation, conflict.problem) async for conflict in find_conflicts(client, [agent])]

        async def with_a_timer_first(self: ConversationWorkflow) -> bool:
            await workflow.sleep(1)
            return False

        assert await found() == []
        with monkeypatch.context() as new_code:
            new_code.setattr(ConversationWorkflow, "_next_message", with_a_timer_first)
            [(where, problem)] = await eventually(found)
        assert where == conversation.id
        assert problem.startswith("diverges: ")
        await conversation.close()
        await conversation.outcome()


async def test_conversations_with_the_same_conflict_are_one_finding(
    client: Client, scripted: Scripted, shell: Shell, tmp_path: Path
) -> None:
    agent = agent_on(scripted(lambda messages: call("refund", {"order_id": "81", "cents": 5})), tools=[refund])
    (tmp_path / "new.py").write_text("from everturn import Agent\n\nclerk = Agent('clerk', model='scripted:new')\n")
    shell.environment["EVERTURN_TASK_QUEUE"] = client.task_queue
    async with hosting(client, agent):
        begun = [await client.start(agent, "Go") for _ in range(6)]
        for conversation in begun:
            await waiting(conversation)
        ids = {one.id for one in begun}

        async def all_found() -> bool:
            groups = group_conflicts(
                [conflict async for conflict in find_conflicts(client, [Agent("clerk", model="scripted:new")])]
            )
            return [{*group.conversations} for group in groups] == [ids]

        await eventually(all_found)
        done = shell.run("doctor", "--against", "new.py:clerk", "--json")
        (finding,) = [record for record in json.loads(done.stdout) if record["part"] == "deploy"]
        first, *others = finding["conversations"]
        assert {first, *others} == ids
        assert finding["state"] == "wrong"
        assert finding["detail"].startswith(f"{first}: call ")
        assert finding["detail"].endswith(
            f"is for the tool refund, which agent 'clerk' no longer has (5 more like it: {', '.join(others[:3])} and "
            "2 more)"
        )
        sampled = shell.run("doctor", "--against", "new.py:clerk", "--sample", "2", "--json")
        (finding,) = [record for record in json.loads(sampled.stdout) if record["part"] == "deploy"]
        assert len(finding["conversations"]) == 2
        for conversation in begun:
            await conversation.close()
            await conversation.outcome()


async def test_many_are_replayed_at_once_and_what_diverges_alike_is_told_once(
    client: Client, scripted: Scripted, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = agent_on(scripted(lambda messages: "Hi."), name=f"greeter-{client.task_queue}")
    async with hosting(client, agent):
        ids = {(await client.start(agent, "Hi")).id for _ in range(5)}
        for id_ in ids:
            await client.conversation(id_).outcome()
    query = f"TaskQueue = '{client.task_queue}'"

    async def all_listed() -> bool:
        return {execution.id async for execution in find_matching(client.temporal, query)} == ids

    await eventually(all_listed)
    done = shell.run("replay", "--query", query)
    assert (done.returncode, done.stdout.startswith("OK 5 of 5 runs (")) == (0, True), done
    assert shell.json("replay", "--query", query, "--sample", "2")["ok"] == 2
    refused = shell.run("replay", "--query", "Nonsense = 3")
    assert refused.returncode == 1
    assert "Temporal can't read the query 'Nonsense = 3'" in refused.stderr

    async def with_a_timer_first(self: ConversationWorkflow) -> bool:
        await workflow.sleep(1)
        return False

    with monkeypatch.context() as new_code:
        new_code.setattr(ConversationWorkflow, "_next_message", with_a_timer_first)
        replays = [replay async for replay in replay_all(client, find_matching(client.temporal, query), at_once=3)]
    problems = [replay.problem for replay in replays if isinstance(replay.problem, Diverged)]
    assert {replay.history.workflow_id for replay in replays if replay.problem} == ids
    assert len({problem.kind for problem in problems}) == 1
    again = [replay async for replay in replay_all(client, find_matching(client.temporal, query))]
    assert [replay.problem for replay in again] == [None] * 5
