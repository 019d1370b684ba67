"""Workers are killed with SIGKILL, and the server too; the conversations go on, with nothing done twice."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from signal import SIGCONT, SIGINT, SIGSTOP, SIGTERM, Signals
from typing import Any

import pytest
from temporalio.api.enums.v1 import EventType, TimeoutType

from everturn import Client, Conversation
from everturn.devserver import DevServer
from everturn.testing import ScriptedModel, call, say
from tests.crash.workers import WorkerProcess, workers
from tests.support.histories import completed_activities
from tests.support.transcripts import results_of
from tests.support.waiting import eventually, waiting

NOTICED_WITHIN = timedelta(seconds=6)
"""Of silence, by default; then another worker takes over."""

Start = Callable[..., WorkerProcess]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


@pytest.fixture
def start(client: Client, model: ScriptedModel, folder: Path) -> Any:
    with workers(client, model, folder) as start:
        yield start


@pytest.fixture
def script() -> dict[int, Any]:
    """Replies by turn, which each test fills in."""
    return {}


@pytest.fixture
def model(script: dict[int, Any], scripted: Callable[..., ScriptedModel]) -> ScriptedModel:
    def pick(messages: list[dict[str, Any]]) -> Any:
        reply = script[sum(message["role"] == "assistant" for message in messages)]
        return reply() if callable(reply) else reply

    return scripted(pick)


def effects(folder: Path) -> list[list[str]]:
    """[tool, idempotency key, attempt, pid] of each run."""
    file = folder / "effects"
    return [line.split() for line in file.read_text().splitlines()] if file.exists() else []


async def started(worker: WorkerProcess) -> WorkerProcess:
    await eventually(lambda: worker.started)
    return worker


async def test_killed_in_a_model_turn_it_is_asked_again_and_nothing_before_it(
    client: Client, start: Start, model: ScriptedModel, script: dict[int, Any], folder: Path
) -> None:
    (folder / "may-end").touch()
    doomed: list[WorkerProcess] = []

    def hang() -> Any:
        if len([request for request in model.requests if len(request["messages"]) == 3]) == 1:
            time.sleep(60)  # until its worker is killed; the server breaks the connection at the end of the test
        return say("Done.")

    script.update({0: call("work"), 1: hang})
    doomed.append(await started(start("one machine")))
    conversation = await client.start("clerk", "Go")
    await eventually(lambda: len(model.requests) == 2)
    survivor = start("another")
    await started(survivor)
    doomed[0].kill()
    assert await conversation.reply() == "Done."
    history = await client.temporal.get_workflow_handle(conversation.id).fetch_history()
    asked = [event.activity_task_scheduled_event_attributes for event in history.events]
    assert {one.heartbeat_timeout.ToTimedelta() <= NOTICED_WITHIN for one in asked if one.activity_id} == {True}
    (lost,) = [one for event in history.events if (one := event.activity_task_started_event_attributes).attempt == 2]
    assert lost.last_failure.timeout_failure_info.timeout_type == TimeoutType.TIMEOUT_TYPE_HEARTBEAT
    assert [len(request["messages"]) for request in model.requests] == [1, 3, 3]
    assert [tool for tool, *_ in effects(folder)] == ["work"]


async def test_killed_in_an_idempotent_tool_it_runs_again_under_the_same_key(
    client: Client, start: Start, model: ScriptedModel, script: dict[int, Any], folder: Path
) -> None:
    script.update({0: call("work", id="w"), 1: "Done."})
    worker = await started(start())
    conversation = await client.start("clerk", "Go")
    await eventually(lambda: effects(folder))
    chain_id = (await conversation.status()).chain_id  # while a worker knows it
    worker.kill()
    (folder / "may-end").touch()
    start()
    assert await conversation.reply() == "Done."
    first, second = effects(folder)
    assert first[:2] == second[:2] == ["work", f"{conversation.id}:{chain_id}:w"]
    assert [result.text for result in results_of(await conversation.transcript())] == ["worked"]
    assert len(model.requests) == 2


async def test_killed_in_a_once_tool_it_never_runs_again_by_itself_and_a_human_decides(
    client: Client, start: Start, script: dict[int, Any], folder: Path
) -> None:
    """Three calls of one worker: each is decided in another way."""
    script.update({0: call("pay", id="p"), 1: "Done."})
    worker = await started(start())
    deciding = {decide: await client.start("clerk", "Go") for decide in ("approve", "answer", "deny")}
    await eventually(lambda: len(effects(folder)) == 3)
    worker.kill()
    start()
    for conversation in deciding.values():
        assert await waiting(conversation) == ("p",)
        (pay,) = (await conversation.status()).waiting
        assert pay.why.startswith("outcome unknown: its worker was lost")
    assert len(effects(folder)) == 3
    (folder / "may-end").touch()
    await deciding["approve"].approve("p")
    await deciding["answer"].answer("p", "the bank says: paid")
    await deciding["deny"].deny("p", reason="leave it")
    assert [await conversation.reply() for conversation in deciding.values()] == ["Done."] * 3
    texts = [results_of(await conversation.transcript())[0].text for conversation in deciding.values()]
    said = ["paid", "the bank says: paid", "The outcome of this call is unknown"]
    assert [words for words, text in zip(said, texts, strict=True) if words not in text] == []
    ran = Counter(key.split(":")[0] for _, key, *_ in effects(folder))
    assert ran == {one.id: 2 if decide == "approve" else 1 for decide, one in deciding.items()}


async def reported(client: Client, conversation: Conversation, count: int) -> bool:
    return await completed_activities(client, conversation) >= count


async def test_killed_between_turns_nothing_is_forgotten(
    client: Client, start: Start, script: dict[int, Any], folder: Path
) -> None:
    (folder / "may-end").touch()
    script.update({0: [call("pay", id="p"), call("work", id="w")], 1: "Done."})
    worker = await started(start())
    conversation = await client.start("clerk", "Go")
    await eventually(
        lambda: reported(client, conversation, 3)
    )  # the reply and both results: a tool that has not reported runs again
    worker.kill()
    start()
    assert await conversation.reply() == "Done."
    assert [result.text for result in results_of(await conversation.transcript())] == ["paid", "worked"]
    assert len(effects(folder)) == 2


async def test_the_model_is_shown_the_result_that_counts_and_not_that_of_a_worker_that_was_away(
    client: Client, start: Start, script: dict[int, Any], folder: Path, model: ScriptedModel
) -> None:
    script.update({0: call("survey", id="s"), 1: "Done."})
    away = await started(start())
    conversation = await client.start("clerk", "Go")
    await eventually(lambda: len(effects(folder)) == 1)
    away.process.send_signal(SIGSTOP)
    there = await started(start())
    await eventually(lambda: len(effects(folder)) == 2)
    away.process.send_signal(SIGCONT)
    (folder / f"{away.process.pid}-may-end").touch()
    await eventually((folder / f"{away.process.pid}-ended").exists)
    (folder / f"{there.process.pid}-may-end").touch()
    assert await conversation.reply() == "Done."
    [result] = results_of(await conversation.transcript())
    assert result.text.startswith(f"Of process {there.process.pid}.")
    assert result.text in str(model.requests[-1])


async def test_a_tool_that_blocks_the_event_loop_is_not_taken_for_dead(
    client: Client, start: Start, script: dict[int, Any], folder: Path
) -> None:
    script.update({0: [call("block", {"seconds": 8}), call("nap", {"seconds": 0.1})], 1: "Done."})
    await started(start())
    conversation = await client.start("clerk", "Go")
    assert await conversation.reply() == "Done."
    assert sorted(tool for tool, *_ in effects(folder)) == ["block", "nap"]
    assert "blocked" in {result.text for result in results_of(await conversation.transcript())}


async def test_a_worker_that_is_told_to_stop_finishes_what_runs(
    client: Client, start: Start, script: dict[int, Any], folder: Path
) -> None:
    script.update({0: call("pay"), 1: "Done."})
    worker = await started(start())
    conversation = await client.start("clerk", "Go")
    await eventually(lambda: effects(folder))
    stopping = asyncio.create_task(asyncio.to_thread(worker.stop))
    await eventually(lambda: "worker.draining" in worker.log.read_text())
    (folder / "may-end").touch()
    assert await stopping == 0, worker.log.read_text()
    start()
    assert await conversation.reply() == "Done."
    assert len(effects(folder)) == 1


@pytest.mark.parametrize(("first", "second"), [(SIGTERM, SIGINT), (SIGINT, SIGTERM), (SIGINT, SIGINT)])
async def test_a_worker_that_is_told_to_stop_twice_ends_at_once_and_another_takes_over(
    client: Client, start: Start, script: dict[int, Any], folder: Path, first: Signals, second: Signals
) -> None:
    script.update({0: call("work"), 1: "Done."})
    worker = await started(start())
    conversation = await client.start("clerk", "Go")
    await eventually(lambda: effects(folder))
    worker.process.send_signal(first)
    await eventually(lambda: "worker.draining" in worker.log.read_text())
    log = worker.log.read_text()
    assert "seconds=100.0" in log, "how much time is left"
    assert "A second Ctrl-C or SIGTERM ends them at once" in log
    worker.process.send_signal(second)
    await asyncio.to_thread(worker.process.wait, 30)  # the tool does not end, and the drain takes 100 s
    assert worker.process.returncode == 128 + second
    assert "worker.ended_at_once" in worker.log.read_text()
    (folder / "may-end").touch()
    start()
    assert await conversation.reply() == "Done."
    assert [tool for tool, *_ in effects(folder)] == ["work", "work"]


async def test_the_server_is_killed_and_comes_back_and_nobody_notices(
    tmp_path: Path, scripted: Callable[..., ScriptedModel]
) -> None:
    script = {n: call("nap", {"seconds": 0.2}) for n in range(5)}

    def pick(messages: list[dict[str, Any]]) -> Any:
        return script.get(sum(message["role"] == "assistant" for message in messages), "Done.")

    model = scripted(pick)
    async with DevServer(db_filename=tmp_path / "temporal.db") as server:
        client = await Client.connect(server.address)
        with workers(client, model, tmp_path) as start:
            await started(start())
            conversation = await client.start("clerk", "Go")
            reply = asyncio.create_task(conversation.reply())
            await eventually(lambda: len(model.requests) >= 3)
            await server.restart()
            assert await reply == "Done."
            assert len(results_of(await conversation.transcript())) == 5


async def test_a_worker_that_is_started_again_hands_back_at_once_what_it_had_in_hand(
    client: Client, start: Start, script: dict[int, Any], folder: Path
) -> None:
    script.update({0: [call("work", id="w"), call("pay", id="p")], 1: "Done."})
    worker = await started(start())
    conversation = await client.start("clerk", "Go")
    await eventually(lambda: len(effects(folder)) == 2)
    worker.kill()
    (folder / "may-end").touch()
    successor = await started(start())
    await eventually(lambda: "worker.handed_back" in successor.log.read_text())
    assert await waiting(conversation) == ("p",), "an outcome that is unknown is asked for, not tried again"
    await conversation.answer("p", "paid")
    assert await conversation.reply() == "Done."
    assert sorted(tool for tool, *_ in effects(folder)) == ["pay", "work", "work"]


async def test_a_worker_beside_the_one_that_dies_hands_back_at_once_what_that_had_in_hand(
    client: Client, start: Start, script: dict[int, Any], folder: Path
) -> None:
    script.update({0: [call("work", id="w"), call("pay", id="p")], 1: "Done."})
    workers = [await started(start()), await started(start())]
    conversation = await client.start("clerk", "Go")
    await eventually(lambda: len(effects(folder)) == 2)
    lost = {int(pid) for *_, pid in effects(folder)}
    for worker in workers:
        if worker.process.pid in lost:
            worker.kill()
    (folder / "may-end").touch()
    if len(lost) == 2:  # each had one of the calls
        await started(start())
    assert await waiting(conversation) == ("p",)
    await conversation.answer("p", "paid")
    assert await conversation.reply() == "Done."
    assert sorted(tool for tool, *_ in effects(folder)) == ["pay", "work", "work"]
    assert any("worker.handed_back" in worker.log.read_text() for worker in workers) or len(lost) == 2


async def test_lost_with_its_machine_a_worker_is_noticed_by_its_silence_and_then_nothing_waits_for_it(
    client: Client, start: Start, script: dict[int, Any], folder: Path
) -> None:
    script.update({0: call("work"), 1: "Done."})
    doomed = await started(start("one machine"))
    conversation = await client.start("clerk", "Go")
    await eventually(lambda: effects(folder))
    survivor = await started(start("another"))
    doomed.kill()
    (folder / "may-end").touch()
    assert (await conversation.outcome()).text == "Done."
    assert "worker.handed_back" not in survivor.log.read_text()
    history = await client.temporal.get_workflow_handle(conversation.id).fetch_history()
    kinds = [EventType.Name(event.event_type) for event in history.events]
    assert kinds[-1] == "EVENT_TYPE_WORKFLOW_EXECUTION_COMPLETED"
    assert "EVENT_TYPE_WORKFLOW_TASK_TIMED_OUT" not in kinds, "a step was offered to the worker that is gone"
