"""A worker that knows what came before a turn finds the results that it lacks at the end of the history."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from temporalio.service import RPCError, RPCStatusCode, WorkflowService

from everturn import Client, tool
from everturn.activities.prefix_cache import PrefixCache
from everturn.testing import ScriptedModel, call
from tests.support.agents import agent_on, hosting
from tests.support.transcripts import results_of

Scripted = Callable[..., ScriptedModel]

TURNS, CALLS, RESULT_BYTES = 8, 6, 4_000
MOST_BYTES = 64_000
"""Of history, for a turn."""


class Reads:
    """The bytes of each answer with a part of a history, read forwards and backwards, as they came."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.whole: list[int] = []
        self.ends: list[int] = []
        for name, sizes in (
            ("get_workflow_execution_history", self.whole),
            ("get_workflow_execution_history_reverse", self.ends),
        ):
            monkeypatch.setattr(WorkflowService, name, _counted(getattr(WorkflowService, name), sizes))


def _counted(method: Any, sizes: list[int]) -> Any:
    async def counting(service: Any, *args: Any, **options: Any) -> Any:
        answer = await method(service, *args, **options)
        sizes.append(answer.ByteSize())
        return answer

    return counting


@pytest.fixture
def _forgetful(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if each call ran on another worker."""
    monkeypatch.setattr(PrefixCache, "remember_result", lambda *_: None)


@pytest.mark.long
@pytest.mark.parametrize("local", [False, True], ids=["in their events", "in their markers"])
@pytest.mark.usefixtures("_forgetful")
async def test_the_results_of_a_reply_with_six_calls_are_found_without_the_rest_of_the_history(
    client: Client, scripted: Scripted, monkeypatch: pytest.MonkeyPatch, local: bool
) -> None:
    @tool(effect="read", timeout=timedelta(seconds=5), local=local)
    def look(number: int) -> str:
        return f"{number:08}" * (RESULT_BYTES // 8)

    script: list[Any] = [
        [call("look", {"number": turn * CALLS + n}, id=f"c{n}") for n in range(CALLS)] for turn in range(TURNS)
    ]
    model = scripted([*script, "Done."])
    agent = agent_on(model, tools=[look])
    async with hosting(client, agent) as worker:
        with monkeypatch.context() as patch:
            reads = Reads(patch)
            conversation = await client.start(agent, "Look")
            await client.temporal.get_workflow_handle(conversation.id).result()
            whole, ends = len(reads.whole), reads.ends
        assert worker.prefixes.misses == TURNS
        results = results_of(await conversation.transcript())
    assert [result.text for result in results] == [f"{n:08}" * (RESULT_BYTES // 8) for n in range(TURNS * CALLS)]
    messages = [len(request["messages"]) for request in model.requests]
    assert messages == [1 + turn * (CALLS + 1) for turn in range(TURNS + 1)]
    assert whole <= 3, "who waits for the end reads, and no turn"
    assert len(ends) >= TURNS
    assert sum(ends) <= TURNS * MOST_BYTES, "as many in the last turn as in the first"


@pytest.mark.usefixtures("_forgetful")
async def test_a_server_that_reads_no_history_from_its_end_is_asked_for_all_of_it(
    client: Client, scripted: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def unknown(*_: Any, **__: Any) -> None:
        raise RPCError("unknown method", RPCStatusCode.UNIMPLEMENTED, b"")

    monkeypatch.setattr(WorkflowService, "get_workflow_execution_history_reverse", unknown)

    @tool
    def look() -> str:
        return "x" * RESULT_BYTES

    agent = agent_on(scripted([call("look"), call("look"), "Done."]), tools=[look])
    async with hosting(client, agent) as worker:
        outcome = await client.run(agent, "Look")
        assert worker.prefixes.misses == 2
    assert (outcome.text, outcome.tool_calls) == ("Done.", 2)
