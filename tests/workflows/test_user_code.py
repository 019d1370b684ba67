"""Tools, predicates and policies that hang, block, die or lie: their conversation gets over it, and so do others."""

from __future__ import annotations

import asyncio
import ctypes
import itertools
import os
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal, cast

import pytest
from pydantic import BaseModel, field_validator
from temporalio.api.common.v1 import Payload
from temporalio.converter import DataConverter, PayloadCodec

from everturn import Client, Conversation, ToolContext, tool
from everturn.activities.user_activities import ActivityThreads
from everturn.corrections import MAX_CORRECTIONS
from everturn.devserver import DevServer
from everturn.errors import Stalled
from everturn.heartbeats.beats_through_core import through_core
from everturn.lost_workers import poison_calls
from everturn.testing import ScriptedModel, call, fail, slow
from everturn.tools.tool import Tool
from everturn.tools.user_code import MOST_THREADS
from tests.support.agents import agent_on, hosting
from tests.support.bounds import Bounds, as_code
from tests.support.prepared import Program
from tests.support.transcripts import results_of
from tests.support.waiting import eventually, waiting

Scripted = Callable[..., ScriptedModel]

SHORT = timedelta(milliseconds=200)
WORKER = Path(__file__).parents[2] / "worker.py"


async def test_a_predicate_that_raises_what_is_no_error_has_no_reply_paid_for_twice(
    client: Client, scripted: Scripted
) -> None:
    def refund_tool(error: type[BaseException], is_async: bool) -> Tool[..., str]:
        async def later(_: dict[str, Any]) -> bool:
            raise error

        def at_once(_: dict[str, Any]) -> bool:
            raise error

        name = f"{error.__name__}_{'later' if is_async else 'at_once'}"
        return tool(lambda: "refunded", name=name, needs_approval=later if is_async else at_once)

    errors = (asyncio.CancelledError, KeyboardInterrupt, SystemExit, GeneratorExit)
    tools = [refund_tool(error, is_async) for error in errors for is_async in (False, True)]
    model = scripted([[call(refund.name) for refund in tools], "Done."])
    agent = agent_on(model, tools=tools)
    async with hosting(client, agent):
        conversation = await client.start(agent, "Go")
        await waiting(conversation, calls=len(tools))
        assert len(model.requests) == 1
        await conversation.approve("*")
        assert (await conversation.outcome()).text == "Done."
    assert [result.text for result in results_of(await conversation.transcript())] == ["refunded"] * len(tools)
    assert len(model.requests) == 2


@pytest.mark.long
async def test_one_call_whose_predicate_hangs_is_no_delay_for_the_others_of_its_reply(
    client: Client, scripted: Scripted, stuck: Callable[[], Any], bounds: Bounds
) -> None:
    bounds(quick_seconds=3.0)  # a busy machine takes a while for those that do not hang

    @tool(needs_approval=lambda arguments: stuck() if arguments["number"] < 40 else False)
    def refund(number: int) -> str:
        return f"refunded {number}"

    model = scripted([[call("refund", {"number": number}) for number in range(60)], "Done."])
    agent = agent_on(model, tools=[refund])
    async with hosting(client, agent):
        conversation = await client.start(agent, "Go")
        await waiting(conversation, calls=40)
        await conversation.deny("*")
        assert (await conversation.outcome()).text == "Done."
    ran = [result.text for result in results_of(await conversation.transcript()) if not result.is_error]
    assert ran == [f"refunded {number}" for number in range(40, 60)]
    assert len(model.requests) == 2


async def test_what_a_tool_does_to_itself_is_told_to_the_model(
    client: Client, scripted: Scripted, cached_conversations: int
) -> None:
    @tool
    async def give_up() -> None:
        task = asyncio.current_task()
        assert task
        task.cancel()
        await asyncio.sleep(60)

    @tool
    def interrupt() -> None:
        raise KeyboardInterrupt

    @tool
    def endless() -> Any:
        return itertools.count()

    @tool
    async def endless_later() -> Any:
        return {"numbers": itertools.count()}

    tools = [give_up, interrupt, endless, endless_later]
    agent = agent_on(scripted([[call(tool.name) for tool in tools], "Done."]), tools=tools)
    async with hosting(client, agent, cached_conversations=cached_conversations):
        conversation = await client.start(agent, "Go")
        assert (await conversation.outcome()).text == "Done."
    told = [result.text for result in results_of(await conversation.transcript())]
    for text, said in zip(told, ["CancelledError", "KeyboardInterrupt", "100,000", "100,000"], strict=True):
        assert said in text


async def test_a_policy_that_hangs_stops_nobody_else_and_lets_nobody_decide(
    client: Client, scripted: Scripted, stuck: Callable[[], Any], bounds: Bounds
) -> None:
    bounds(quick_seconds=1.0)
    asked = threading.Event()

    def approvers(*_: Any) -> bool:
        asked.set()
        return bool(stuck())

    @tool(needs_approval=True)
    def refund() -> str: ...

    careful = agent_on(scripted([call("refund"), "Done."]), tools=[refund], approvers=approvers, name="careful")
    other = agent_on(scripted(["Hello."]), name="other")
    async with hosting(client, careful, other):
        conversation = await client.start(careful, "Go")
        (call_id,) = await waiting(conversation)
        deciding = asyncio.create_task(conversation.approve(call_id))
        await eventually(asked.is_set)
        assert (await client.run(other, "Hello")).text == "Hello."
        assert not deciding.done() or deciding.exception() is None
        await asyncio.wait({deciding})
        await eventually(lambda: refused(conversation), what="the policy has failed")
        await conversation.cancel_turn()
        await conversation.outcome()


async def refused(conversation: Conversation) -> bool:
    waits = (await conversation.status()).waiting
    return bool(waits) and "may not decide: the policy failed with TookTooLong" in waits[0].why


@pytest.mark.parametrize("how", ["hangs", "exits"])
async def test_a_validator_of_the_output_that_never_answers_has_the_reply_refused(
    client: Client, scripted: Scripted, stuck: Callable[[], Any], bounds: Bounds, how: str
) -> None:
    bounds(quick_seconds=0.3)

    class Label(BaseModel):
        text: str

        @field_validator("text")
        @classmethod
        def is_known(cls, text: str) -> str:
            if how == "exits":
                raise SystemExit(1)
            stuck()
            return text

    model = scripted(['{"text": "a"}'] * 5)
    agent = agent_on(model, output=Label)
    async with hosting(client, agent):
        outcome = await client.run(agent, "Go")
    assert outcome.status == "failed"
    assert "could not be checked" in (outcome.reason or "")
    assert len(model.requests) == 1 + MAX_CORRECTIONS


async def test_a_reply_that_can_not_be_planned_stalls_and_is_not_paid_for_again(
    client: Client, scripted: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    @tool
    def look() -> str: ...

    async def faulty(*_: Any, **__: Any) -> None:
        raise RuntimeError("a fault of ours")

    monkeypatch.setattr("everturn.activities.model_turns.plan_calls", faulty)
    model = scripted([call("look"), "Done."])
    agent = agent_on(model, tools=[look])
    async with hosting(client, agent):
        conversation = await client.start(agent, "Go")
        with pytest.raises(Stalled, match="could not be planned: RuntimeError: a fault of ours"):
            await conversation.reply()
        assert len(model.requests) == 1
        await conversation.close()


async def test_a_call_for_which_no_thread_is_left_has_not_begun(
    client: Client, scripted: Scripted, stuck: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = ActivityThreads(MOST_THREADS)
    threads._most = 2
    monkeypatch.setattr("everturn.worker.hosting.ActivityThreads", lambda _: threads)

    @tool(timeout=SHORT, patience=SHORT)
    def hang() -> Any:
        return stuck()

    @tool(effect="once")
    def pay() -> str:
        return "paid"

    @tool(timeout=SHORT, patience=SHORT)
    def look() -> str:
        return "looked"

    agent = agent_on(
        scripted([[call("hang"), call("hang")], [call("look"), call("pay")], "Done."]), tools=[hang, pay, look]
    )
    async with hosting(client, agent):
        conversation = await client.start(agent, "Go")
        await waiting(conversation)
        (paying,) = (await conversation.status()).waiting
        assert paying.tool == "pay"
        assert paying.reason == "has_not_run"
        await conversation.deny(paying.call_id)
        await conversation.outcome()
        asked = [event async for event in conversation.events() if event.kind == "approval_requested"]
    assert [(one.reason, one.why) for one in asked] == [(paying.reason, paying.why)], "the status and events agree"
    hung, _, looked, _ = results_of(await conversation.transcript())
    assert "did not finish within" in hung.text
    assert "look has not run: no thread was free" in looked.text


async def test_a_worker_ends_though_a_tool_that_timed_out_still_blocks(
    client: Client, scripted: Scripted, stuck: Callable[[], Any]
) -> None:
    refusing = True

    @tool(timeout=SHORT, patience=SHORT)
    def hang() -> Any:
        return stuck()

    @tool(timeout=SHORT, patience=SHORT)
    async def refuse() -> None:
        while refusing:
            try:
                await asyncio.sleep(0.05)
            except asyncio.CancelledError:
                continue

    agent = agent_on(scripted([[call("hang"), call("refuse")], "Done."]), tools=[hang, refuse])
    async with asyncio.timeout(60):
        async with hosting(client, agent):
            assert (await client.run(agent, "Go")).text == "Done."
    refusing = False


async def test_tries_that_fail_are_not_taken_for_lost_ones(client: Client, scripted: Scripted, bounds: Bounds) -> None:
    bounds(lost_tries=2)
    failing = [fail(503, headers={"retry-after": "0.001"})] * 4
    agent = agent_on(scripted([*failing, "Done."]))
    async with hosting(client, agent):
        assert (await client.run(agent, "Go")).text == "Done."


async def test_a_tool_that_blocks_the_loop_for_too_long_is_lost_and_not_kept_alive_for_ever(
    client: Client, scripted: Scripted, bounds: Bounds
) -> None:
    bounds(stand_in_seconds=1.0, heartbeat_timeout=timedelta(seconds=2))
    attempts = []

    @tool
    async def block(context: ToolContext) -> str:
        attempts.append(context.attempt)
        if context.attempt == 1:
            time.sleep(4.5)  # more than both together: the server has given it up
        return f"done by try {context.attempt}"

    agent = agent_on(scripted([call("block"), "Done."]), tools=[block])
    async with hosting(client, agent):
        conversation = await client.start(agent, "Go")
        assert (await conversation.outcome()).text == "Done."
    (result,) = results_of(await conversation.transcript())
    assert attempts[0] == 1
    assert result.text == f"done by try {attempts[-1]}" != "done by try 1"


@pytest.mark.long
@pytest.mark.timeout(600)
async def test_a_tool_that_blocks_the_loop_costs_nothing_else_on_its_worker(
    client: Client, scripted: Scripted, bounds: Bounds
) -> None:
    """For longer than the SDK's core waits for a beat: the heartbeat timeout, and five seconds."""
    bounds(beat_seconds=0.4, heartbeat_timeout=timedelta(seconds=2))
    begun: Counter[str] = Counter()
    over = threading.Event()

    def script(messages: list[dict[str, Any]]) -> Any:
        said = messages[-1]["content"]
        if said == "think":
            begun["think"] += 1
            return slow("Thought.", until=over)
        return call(said) if messages[-1]["role"] == "user" else "Done."

    def wait(name: str) -> str:
        begun[name] += 1
        assert over.wait(60)
        return f"{name} is done"

    @tool(effect="once")
    def pay() -> str:
        return wait("pay")

    @tool(effect="idempotent")
    def store() -> str:
        return wait("store")

    @tool
    async def block() -> str:
        begun["block"] += 1
        time.sleep(9)
        over.set()
        return "blocked"

    agent = agent_on(scripted(script), tools=[pay, store, block])
    async with hosting(client, agent):
        beside = [await client.start(agent, said) for said in ("pay", "store", "think")]
        await eventually(lambda: len(begun) == 3)
        ended = await client.run(agent, "block")
        assert ended.text == "Done."
        outcomes = [await conversation.outcome() for conversation in beside]
    assert [outcome.text for outcome in outcomes] == ["Done.", "Done.", "Thought."]
    assert begun == {"pay": 1, "store": 1, "think": 1, "block": 1}


async def test_calls_that_wait_for_a_blocked_loop_run_once_and_nobody_is_asked(
    client: Client, scripted: Scripted, bounds: Bounds, caplog: pytest.LogCaptureFixture
) -> None:
    """Before their turn, the worker has them and has not begun them; after it, their results are still on their way."""
    bounds(beat_seconds=0.2, heartbeat_timeout=timedelta(seconds=3))
    begun: Counter[str] = Counter()

    def made(name: str, effect: Literal["read", "once"], seconds: float) -> Tool[[], str]:
        async def work() -> str:
            begun[name] += 1
            time.sleep(seconds)
            return "done"

        return tool(work, name=name, effect=effect)

    slow_ones = [made(f"slow_{n}", "read", 1.2) for n in range(4)]
    once_ones = [made(f"pay_{n}", "once", 0.0) for n in range(4)]
    tools = [*slow_ones, *once_ones]
    agent = agent_on(scripted([[call(tool.name) for tool in tools], "Done."]), tools=tools)
    async with hosting(client, agent):
        assert (await client.run(agent, "Go")).text == "Done."
    assert begun == dict.fromkeys((tool.name for tool in tools), 1)
    blocked = [record.getMessage() for record in caplog.records if "loop.blocked" in record.getMessage()]
    assert any("slow_" in line and "work, in test_user_code.py:" in line and "to_thread" in line for line in blocked)


async def test_a_call_whose_result_is_long_on_its_way_is_not_lost(
    server: DevServer, client: Client, scripted: Scripted, bounds: Bounds
) -> None:
    """A codec, or external storage, may take longer than the heartbeat timeout. The tool has taken effect by then."""
    bounds(beat_seconds=0.2, heartbeat_timeout=timedelta(seconds=1))

    class SlowCodec(PayloadCodec):
        async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
            if any(b"paid 1200" in payload.data and b"tool_result" in payload.data for payload in payloads):
                await asyncio.sleep(2.5)
            return list(payloads)

        async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
            return list(payloads)

    @tool(effect="once")
    def pay() -> str:
        return "paid 1200"

    agent = agent_on(scripted([call("pay"), "Done."]), tools=[pay])
    converter = replace(DataConverter.default, payload_codec=SlowCodec())
    slow_client = await Client.connect(server.address, task_queue=client.task_queue, data_converter=converter)
    async with hosting(slow_client, agent):
        conversation = await slow_client.start(agent, "Go")
        assert await conversation.reply() == "Done."
    (result,) = results_of(await conversation.transcript())
    assert result.text == "paid 1200"


async def test_tries_that_reach_a_worker_too_late_neither_ask_a_model_nor_count_as_lost(
    client: Client, scripted: Scripted, bounds: Bounds
) -> None:
    """The polls that a frozen worker has open go on taking tries. It wakes when most of them are long over."""
    bounds(stand_in_seconds=0.0, beat_seconds=0.3, heartbeat_timeout=timedelta(seconds=1), lost_tries=2)
    asked: list[str] = []
    over = threading.Event()

    def script(messages: list[dict[str, Any]]) -> Any:
        said = messages[-1]["content"]
        if said == "think":
            asked.append(said)
            return slow("Thought.", until=over)
        return call(said) if messages[-1]["role"] == "user" else "Done."

    @tool
    async def freeze(context: ToolContext) -> str:
        if context.attempt == 1:
            time.sleep(6)
            over.set()
        return "frozen"

    agent = agent_on(scripted(script), tools=[freeze])
    async with hosting(client, agent):
        thinking = await client.start(agent, "think")
        await eventually(lambda: asked)
        freezing = await client.start(agent, "freeze")
        assert (await thinking.outcome()).text == "Thought."
        await freezing.outcome()
    history = await client.temporal.get_workflow_handle(thinking.id).fetch_history()
    attempts = max(event.activity_task_started_event_attributes.attempt for event in history.events)
    assert attempts > 3, "most of them came too late"
    assert len(asked) == 2, "the first, and the one that was still its worker's"


async def test_the_sdk_lets_a_thread_beat_through_its_core(client: Client, scripted: Scripted) -> None:
    """If an update of temporalio breaks this, a loop that is blocked for over ten seconds loses its worker's work."""
    agent = agent_on(scripted(["Hi."]))
    async with hosting(client, agent) as worker:
        beat = through_core(worker._worker)
        assert beat is not None
        beat(b"no such activity", [])
    assert through_core(cast("Any", SimpleNamespace())) is None, "and without it, a worker works all the same"


async def test_a_tool_that_holds_the_gil_is_not_run_for_ever(
    client: Client, scripted: Scripted, bounds: Bounds
) -> None:
    bounds(lost_tries_of_a_tool=1, heartbeat_timeout=timedelta(seconds=2))
    tries = []

    @tool
    def hold() -> str:
        tries.append(1)
        ctypes.PyDLL(None).sleep(4)  # with the GIL, unlike CDLL: no thread runs, and nothing beats
        return "held"

    agent = agent_on(scripted([call("hold"), "Done."]), tools=[hold])
    async with hosting(client, agent):
        conversation = await client.start(agent, "Go")
        assert (await conversation.outcome()).text == "Done."
    (result,) = results_of(await conversation.transcript())
    assert result.is_error
    assert "its worker was lost 1 times" in result.text
    assert len(tries) == 1


# ---------------------------------------------------------------- whole workers

AGENTS = """
import os, signal, threading, time
from datetime import timedelta
from everturn import Agent, tool
from everturn.heartbeats.beats_through_core import through_core

"""
MOST = 'int(os.environ["MOST"])'
AGENTS += as_code(lost_tries_of_a_tool=MOST, lost_tries_of_a_plan=MOST)
AGENTS += """

@tool
def kill() -> str:
    '''Takes the worker with it.'''
    with open(os.environ["KILLS"], "a") as kills:
        kills.write("x")
    os.kill(os.getpid(), signal.SIGKILL)

@tool(effect="read", local=True, timeout=timedelta(seconds=5))
def kill_here() -> str:
    '''Takes the worker with it, in its workflow task.'''
    return kill.function()

@tool
def work() -> str:
    '''Takes its time.'''
    time.sleep(1.0)
    return "worked"

@tool(needs_approval=lambda _: kill.function())
def ask_first() -> str:
    '''Has a predicate that takes the worker with it.'''
    return "done"

@tool(timeout=timedelta(seconds=0.2), patience=timedelta(seconds=0.2))
def hang() -> None:
    '''Never ends.'''
    threading.Event().wait()

clerk = Agent("clerk", model="scripted:demo", tools=[kill, kill_here, work, ask_first, hang])
"""


class Supervisor:
    """Starts a worker again whenever it dies, as process managers do."""

    def __init__(self, folder: Path, client: Client, model: ScriptedModel, *, most: int = 1) -> None:
        (folder / "agents.py").write_text(AGENTS)
        self.kills = folder / "kills"
        self._log = folder / "log"
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("EVERTURN_", "TEMPORAL_"))}
        self.environment = {
            **kept,
            "EVERTURN_LOG": "json",
            "TEMPORAL_ADDRESS": client.temporal.service_client.config.target_host,
            "EVERTURN_TASK_QUEUE": client.task_queue,
            "EVERTURN_AGENTS": str(folder / "agents.py"),
            "SCRIPTED_BASE_URL": model.base_url,
            "KILLS": str(self.kills),
            "MOST": str(most),
            "TMPDIR": str(folder),
        }

    async def __aenter__(self) -> Supervisor:
        self._stopped = False
        self._keeping = asyncio.create_task(self._keep())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._stopped = True
        self.worker.send_signal(signal.SIGTERM)
        await self._keeping

    async def _keep(self) -> None:
        while not self._stopped:
            with self._log.open("a") as log:
                self.worker = Program(str(WORKER), env=self.environment, stderr=log)
            try:
                self.status = await asyncio.to_thread(self.worker.wait, 250)
            finally:
                self.worker.kill()

    @property
    def killed(self) -> int:
        return len(self.kills.read_text()) if self.kills.exists() else 0


async def test_a_tool_that_kills_its_workers_is_given_up_and_its_neighbours_are_not(
    client: Client, scripted: Scripted, tmp_path: Path
) -> None:
    def script(messages: list[dict[str, Any]]) -> Any:
        return "Done." if messages[-1]["role"] == "tool" else call(messages[-1]["content"])

    most = poison_calls.IN_COMPANY + 1
    async with Supervisor(tmp_path, client, scripted(script), most=most) as supervised:
        killing = await client.start("clerk", "kill")
        working = [await client.start("clerk", "work") for _ in range(4)]
        outcome = await killing.outcome()
        assert outcome.text == "Done."
        # One more, if a worker was gone before it could say that the call ran alone.
        assert most <= supervised.killed <= most + 1
        for one in working:
            await one.outcome()
            (worked,) = results_of(await one.transcript())
            assert worked.text == "worked"
    (told,) = results_of(await killing.transcript())
    assert told.is_error
    assert f"its worker was lost {most} times" in told.text
    assert "may or may not have taken effect" in told.text


async def test_a_model_that_calls_a_given_up_tool_again_is_refused_until_a_user_speaks(
    client: Client, scripted: Scripted, tmp_path: Path
) -> None:
    def script(messages: list[dict[str, Any]]) -> Any:
        return "I stop." if "Continue without it." in str(messages[-1]["content"]) else call("kill")

    async with Supervisor(tmp_path, client, scripted(script)) as supervised:
        conversation = await client.start("clerk", "Go", keep_open=timedelta(minutes=5))
        assert await conversation.reply() == "I stop."
        assert supervised.killed == poison_calls.MOST_GIVEN_UP == 2
        await conversation.send("Try again.")
        assert await conversation.reply() == "I stop."
        assert supervised.killed == 4
        await conversation.close()
    told = [result.text for result in results_of(await conversation.transcript())]
    assert ["Continue without it." in text for text in told] == [False, False, True] * 2


async def test_a_local_tool_that_kills_its_workers_is_given_up(
    client: Client, scripted: Scripted, tmp_path: Path, bounds: Bounds
) -> None:
    bounds(task_timeout=timedelta(seconds=1))
    async with Supervisor(tmp_path, client, scripted([call("kill_here"), "Done."])) as supervised:
        conversation = await client.start("clerk", "Go")
        assert (await conversation.outcome()).text == "Done."
        # The first loss is the sticky queue's, as the server counts.
        assert supervised.killed <= 2
    (told,) = results_of(await conversation.transcript())
    assert "its worker was lost" in told.text


async def test_a_predicate_that_kills_its_workers_is_not_asked_for_ever(
    client: Client, scripted: Scripted, tmp_path: Path
) -> None:
    model = scripted([call("ask_first"), "Done."])
    async with Supervisor(tmp_path, client, model) as supervised:
        conversation = await client.start("clerk", "Go")
        await eventually(lambda: len(model.requests) == 2, seconds=200)
        (call_id,) = await waiting(conversation)
        assert supervised.killed == 1
        assert len(model.requests) == 2
        await conversation.approve(call_id)
        assert (await conversation.outcome()).text == "Done."


BLOCKED = """
import asyncio, sys, time
from datetime import timedelta
from everturn import Agent, Client, Worker, tool

"""
BLOCKED += as_code(grace_seconds=0.5)
BLOCKED += """

@tool
async def block() -> None:
    pass
    print("blocked", flush=True)
    while True:
        time.sleep(600)

async def main() -> None:
    client = await Client.connect()
    clerk = Agent("clerk", model="scripted:demo", tools=[block])
    await Worker(client, agents=[clerk], drain_timeout=timedelta(seconds=0.5)).run()

asyncio.run(main())
"""


async def test_sigterm_ends_a_worker_whose_event_loop_is_blocked(
    client: Client, scripted: Scripted, tmp_path: Path
) -> None:
    environment = Supervisor(tmp_path, client, scripted([call("block"), "Done."])).environment
    (tmp_path / "blocked.py").write_text(BLOCKED)
    with Program(
        str(tmp_path / "blocked.py"), env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as worker:
        try:
            conversation = await client.start("clerk", "Go")
            assert worker.stdout
            assert (await asyncio.to_thread(worker.stdout.readline)).strip() == "blocked"
            worker.send_signal(signal.SIGTERM)
            _, logged = await asyncio.to_thread(worker.communicate, timeout=180)
        finally:
            worker.kill()
    assert worker.returncode == 1
    assert "worker.stuck" in logged
    await client.temporal.get_workflow_handle(conversation.id).terminate()


async def test_sigterm_ends_a_worker_whose_tools_still_block(
    client: Client, scripted: Scripted, tmp_path: Path
) -> None:
    async with Supervisor(tmp_path, client, scripted([call("hang"), "Done."])) as supervised:
        assert (await (await client.start("clerk", "Go")).outcome()).text == "Done."
    assert supervised.status == 0
