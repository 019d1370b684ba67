"""Traces, as a receiver of OTLP gets them from real workers: whole, and each span once."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace as api
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ParentBased
from temporalio import activity
from temporalio.client import Client as TemporalClient
from temporalio.contrib.opentelemetry import TracingInterceptor
from temporalio.exceptions import ApplicationError
from temporalio.worker import Worker as TemporalWorker

from everturn import Agent, Client, Limits, Traces, activity_tool, tool
from everturn.devserver import DevServer
from everturn.errors import InvalidSetting
from everturn.system.extras import install
from everturn.testing import ScriptedModel, call, fail
from tests.crash.workers import WorkerProcess
from tests.support.agents import agent_on, hosting
from tests.support.bounds import Bounds
from tests.support.operators import goes_on
from tests.support.otlp import Receiver
from tests.support.prepared import run
from tests.support.tools import refund
from tests.support.waiting import eventually, reaches, waiting

Scripted = Callable[..., ScriptedModel]


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as running:
        yield running


def provider_for(receiver: Receiver, **options: Any) -> TracerProvider:
    provider = TracerProvider(**options)
    # Long delays: what comes in does so because somebody waited for it.
    exporter = OTLPSpanExporter(endpoint=f"{receiver.endpoint}/v1/traces")
    provider.add_span_processor(BatchSpanProcessor(exporter, schedule_delay_millis=3_600_000))
    return provider


@pytest.fixture
async def provider(receiver: Receiver) -> AsyncIterator[TracerProvider]:
    made = provider_for(receiver)
    yield made
    await asyncio.to_thread(made.shutdown)


@tool
def add(a: int, b: int) -> int:
    return a + b


async def test_a_conversation_is_one_trace_of_turns_calls_and_the_answer(
    client: Client, scripted: Scripted, receiver: Receiver, provider: TracerProvider, cached_conversations: int
) -> None:
    model = scripted([[call("add", {"a": 1, "b": 2}), call("add", {"a": 3, "b": 4})], "Ten."])
    agent = agent_on(model, tools=[add])
    async with hosting(client, agent, traces=Traces(provider=provider), cached_conversations=cached_conversations):
        conversation = await client.start(agent, "Add them up.")
        assert await conversation.reply() == "Ten."
        outcome = await conversation.outcome()

    receiver.check()
    assert Counter(receiver.names) == Counter(["invoke_agent clerk", *2 * ["chat demo"], *2 * ["execute_tool add"]])
    assert len({span.trace_id for span in receiver.spans}) == 1
    answer = receiver.one("invoke_agent clerk")
    assert answer.parent_id == ""
    assert {span.parent_id for span in receiver.spans if span is not answer} == {answer.span_id}
    assert all(answer.begin <= span.begin and span.end <= answer.end for span in receiver.spans)
    assert answer.attributes["gen_ai.operation.name"] == "invoke_agent"
    assert answer.attributes["gen_ai.conversation.id"] == conversation.id
    assert answer.attributes["gen_ai.usage.input_tokens"] == outcome.usage.input_tokens
    assert answer.attributes["gen_ai.usage.output_tokens"] == outcome.usage.output_tokens

    first, last = sorted(receiver.named("chat"), key=lambda span: span.begin)
    assert first.kind == "client"
    assert first.attributes["gen_ai.provider.name"] == "scripted"
    assert first.attributes["gen_ai.request.model"] == "demo"
    assert first.attributes["gen_ai.response.finish_reasons"] == ["tool_call"]
    assert last.attributes["gen_ai.response.finish_reasons"] == ["stop"]
    assert (first.attributes["everturn.turn"], last.attributes["everturn.turn"]) == (1, 2)
    ids = {span.attributes["gen_ai.tool.call.id"] for span in receiver.named("execute_tool")}
    assert len(ids) == 2


async def test_what_is_said_stays_out_unless_it_is_asked_for(
    client: Client, scripted: Scripted, receiver: Receiver, provider: TracerProvider
) -> None:
    @tool
    def whisper(secret: str) -> str:
        if secret == "plum":
            raise ValueError("a plum in the error")
        return f"{secret} heard"

    script = [call("whisper", {"secret": "apple"}), call("whisper", {"secret": "plum"}), fail(400), "A pear."]
    agent = agent_on(scripted(script), tools=[whisper], instructions="Think of a quince.")
    async with hosting(client, agent, traces=Traces(provider=provider)):
        conversation = await client.start(agent, "I like melons.")
        await reaches(conversation, "stalled")
        await conversation.resume()
        assert await conversation.reply() == "A pear."
    assert len(receiver.named("execute_tool")) == 2
    said = repr(receiver.spans)
    assert not [word for word in ("apple", "plum", "pear", "quince", "melon") if word in said]

    receiver.spans.clear()
    agent = agent_on(scripted([*script[:1], "A pear."]), tools=[whisper], instructions="Think of a quince.")
    async with hosting(client, agent, traces=Traces(provider=provider, content=True)):
        await (await client.start(agent, "I like melons.")).reply()
    said = repr(receiver.spans)
    assert [word for word in ("apple heard", "pear", "quince", "melon") if word in said] == [
        "apple heard",
        "pear",
        "quince",
        "melon",
    ]
    assert receiver.one("execute_tool whisper").attributes["gen_ai.tool.call.arguments"] == '{"secret": "apple"}'
    answer = receiver.one("invoke_agent clerk").attributes
    assert "I like melons." in answer["gen_ai.input.messages"]
    assert "apple" not in answer["gen_ai.input.messages"], "what the answer itself added is in its turns"
    assert "A pear." in answer["gen_ai.output.messages"]
    for turn in receiver.named("chat"):
        (definition,) = json.loads(turn.attributes["gen_ai.tool.definitions"])
        assert definition == {"type": "function", **definition, "name": "whisper"}
        assert "secret" in definition["parameters"]["properties"]


async def test_a_wait_for_a_person_is_a_span_as_long_as_it_lasts(
    client: Client, scripted: Scripted, receiver: Receiver, provider: TracerProvider, cached_conversations: int
) -> None:
    model = scripted([[call("refund", {"order_id": "81", "cents": 5}, id=one) for one in ("a", "b", "c")], "Done."])
    agent = agent_on(model, tools=[refund])
    async with hosting(client, agent, traces=Traces(provider=provider), cached_conversations=cached_conversations):
        conversation = await client.start(agent, "Refund it.")
        await waiting(conversation, calls=3)
        await conversation.approve("a")
        await conversation.deny("b", reason="never")
        await conversation.answer("c", "paid by hand")
        assert await conversation.reply() == "Done."
    receiver.check()
    waits = {span.attributes["gen_ai.tool.call.id"]: span for span in receiver.named("await_")}
    assert {span.name for span in waits.values()} == {"await_approval refund"}
    verdicts = {one: span.attributes["everturn.decision.verdict"] for one, span in waits.items()}
    assert verdicts == {"a": "approve", "b": "deny", "c": "answer"}
    assert waits["a"].attributes["everturn.decision.by"] == "tester"
    assert waits["a"].attributes["everturn.wait.reason"] == "needs_approval"
    assert {span.parent_id for span in waits.values()} == {receiver.one("invoke_agent clerk").span_id}
    ran = receiver.one("execute_tool refund")
    first, _ = sorted(receiver.named("chat"), key=lambda span: span.begin)
    assert first.end <= waits["a"].begin + 1
    assert waits["a"].end <= ran.begin + 1


async def test_a_caller_is_the_parent_and_who_sends_later_is_linked(
    client: Client, scripted: Scripted, receiver: Receiver, provider: TracerProvider
) -> None:
    agent = agent_on(scripted(["One.", "Two."]))
    tracer = provider.get_tracer("test")
    async with hosting(client, agent, traces=Traces(provider=provider)):
        with tracer.start_as_current_span("POST /orders"):
            conversation = await client.start(agent, "First.", keep_open=timedelta(minutes=1))
        assert await conversation.reply() == "One."
        await reaches(conversation, "idle")  # what comes before is part of the first answer, which has been told
        with tracer.start_as_current_span("POST /orders/more"):
            await conversation.send("Second.")
        assert await conversation.reply() == "Two."
        await conversation.close()
        await conversation.outcome()
    await asyncio.to_thread(provider.force_flush)
    receiver.check()
    caller, later = receiver.one("POST /orders"), receiver.one("POST /orders/more")
    first, second = sorted(receiver.named("invoke_agent"), key=lambda span: span.begin)
    assert (first.trace_id, first.parent_id) == (second.trace_id, second.parent_id) == (caller.trace_id, caller.span_id)
    assert (first.links, second.links) == ((), ((later.trace_id, later.span_id),))


async def test_who_sends_while_a_turn_runs_is_linked_to_the_answer_that_takes_it(
    client: Client, scripted: Scripted, receiver: Receiver, provider: TracerProvider, cached_conversations: int
) -> None:
    """Once after the last request of an answer, and once before one of its turns."""
    asked, answer = threading.Semaphore(0), threading.Semaphore(0)

    def reply(messages: list[dict[str, Any]]) -> Any:
        asked.release()
        assert answer.acquire(timeout=180)
        return call("add", {"a": 1, "b": 2}) if messages[-1]["content"] == "First." else f"So much: {len(messages)}"

    tracer = provider.get_tracer("test")
    agent = agent_on(scripted(reply), tools=[add])
    traces = Traces(provider=provider)
    async with hosting(client, agent, traces=traces, cached_conversations=cached_conversations):
        conversation = await client.start(agent, "First.", keep_open=timedelta(minutes=1))
        for name in ("before the second turn", "after the last request"):
            assert await asyncio.to_thread(asked.acquire, timeout=180)
            with tracer.start_as_current_span(name):
                await conversation.send("And?")
            answer.release()
        assert await asyncio.to_thread(asked.acquire, timeout=180)
        answer.release()
        await reaches(conversation, "idle")
        await conversation.close()
        await conversation.outcome()
    await asyncio.to_thread(provider.force_flush)
    receiver.check()
    first, second = sorted(receiver.named("invoke_agent"), key=lambda span: span.begin)
    sent = {name: receiver.one(name) for name in ("before the second turn", "after the last request")}
    for answered, span in zip((first, second), sent.values(), strict=True):
        assert answered.links == ((span.trace_id, span.span_id),)


async def test_a_stall_and_a_pause_are_spans_as_long_as_they_last(
    client: Client, scripted: Scripted, receiver: Receiver, provider: TracerProvider, cached_conversations: int
) -> None:
    agent = agent_on(scripted([fail(401), "Hello.", "Bye."]))
    traces = Traces(provider=provider)
    async with hosting(client, agent, traces=traces, cached_conversations=cached_conversations):
        conversation = await client.start(agent, "Hi", keep_open=timedelta(minutes=1))
        await reaches(conversation, "stalled")
        await conversation.resume()
        assert await conversation.reply() == "Hello."
        await reaches(conversation, "idle")
        await conversation.pause()
        await conversation.send("And?")
        await reaches(conversation, "paused")  # asked after the message: it is taken by then, and waits
        await conversation.resume()
        assert await conversation.reply() == "Bye."
        await conversation.close()
        await conversation.outcome()
    receiver.check()
    answers = sorted(receiver.named("invoke_agent"), key=lambda span: span.begin)
    stalled, paused = receiver.one("await_resume stalled"), receiver.one("await_resume paused")
    failed, asked, last = sorted(receiver.named("chat"), key=lambda span: span.begin)
    assert failed.begin <= stalled.begin <= stalled.end <= asked.begin + 1
    assert asked.end <= paused.begin + 1
    assert paused.end <= last.begin + 1
    for span, answer in zip((stalled, paused), answers, strict=True):
        assert span.parent_id == answer.span_id
        assert span.attributes["everturn.decision.verdict"] == "resume"
        assert span.attributes["everturn.decision.by"] == "tester"
        assert "gen_ai.tool.name" not in span.attributes
    assert "401" not in str(stalled.attributes), "its cause is what the provider said"


@pytest.mark.long
async def test_a_stall_that_nobody_resumes_is_said_with_what_ended_it(
    client: Client, scripted: Scripted, receiver: Receiver, provider: TracerProvider
) -> None:
    agent = agent_on(scripted(lambda messages: "Hello." if len(messages) == 1 else fail(401)))
    traces = Traces(provider=provider)
    ended = {}
    async with hosting(client, agent, traces=traces):
        for how in ("cancel_turn", "close", "cancel"):
            conversation = await client.start(agent, "Hello?", keep_open=timedelta(minutes=1))
            assert await conversation.reply() == "Hello."
            await conversation.send("And?")
            await reaches(conversation, "stalled")
            match how:
                case "cancel_turn":
                    await conversation.cancel_turn()
                    await conversation.close()
                case "close":
                    await conversation.close()
                case _:
                    await client.temporal.get_workflow_handle(conversation.id).cancel()
            await conversation.outcome()
            ended[conversation.id] = "none" if how == "cancel" else how
    receiver.check()
    found = {
        span.attributes["gen_ai.conversation.id"]: span.attributes["everturn.decision.verdict"]
        for span in receiver.named("await_resume stalled")
    }
    assert found == ended


async def test_another_agent_is_a_part_of_the_answer_that_asks_it(
    client: Client, scripted: Scripted, receiver: Receiver, provider: TracerProvider
) -> None:
    helper = agent_on(scripted(["Forty-two."]), name="helper")
    agent = agent_on(scripted([call("helper", {"message": "How many?"}), "It is 42."]), tools=[helper])
    async with hosting(client, agent, traces=Traces(provider=provider)):
        assert await (await client.start(agent, "Ask.")).reply() == "It is 42."
    receiver.check()
    asked, asks = receiver.one("invoke_agent helper"), receiver.one("invoke_agent clerk")
    assert (asked.trace_id, asked.parent_id) == (asks.trace_id, asks.span_id)
    assert asked.attributes["gen_ai.conversation.id"] != asks.attributes["gen_ai.conversation.id"]


async def test_an_answer_that_no_reply_ends_is_said_all_the_same(
    client: Client, scripted: Scripted, receiver: Receiver, provider: TracerProvider, cached_conversations: int
) -> None:
    """A limit, a cancelled turn, a close while a call waits, a cancelled workflow."""
    ask = call("refund", {"order_id": "81", "cents": 5})
    agent = agent_on(scripted([ask, ask, ask, ask]), tools=[refund])
    limited = Limits(max_turns=1, conclude=False)
    async with hosting(client, agent, traces=Traces(provider=provider), cached_conversations=cached_conversations):
        at_limit = await client.start(agent, "Refund it.", limits=limited)
        await waiting(at_limit)
        await at_limit.deny()
        assert (await at_limit.outcome()).status == "limit_reached"

        cut = await client.start(agent, "Refund it.")
        await waiting(cut)
        await cut.cancel_turn()
        assert (await cut.outcome()).status == "cancelled"

        closed = await client.start(agent, "Refund it.")
        await waiting(closed)
        await closed.close()
        await closed.outcome()

        cancelled = await client.start(agent, "Refund it.")
        await waiting(cancelled)
        await client.temporal.get_workflow_handle(cancelled.id).cancel()
        assert (await cancelled.outcome()).status == "cancelled"
    receiver.check()
    ends = {
        span.attributes["gen_ai.conversation.id"]: span.attributes.get("error.type", "")
        for span in receiver.named("invoke_agent")
    }
    assert ends.keys() == {one.id for one in (at_limit, cut, closed, cancelled)}
    assert ends[at_limit.id] == "limit_reached"
    assert ends[cut.id] == ends[cancelled.id] == "cancelled"
    waits = {span.attributes["gen_ai.conversation.id"]: span for span in receiver.named("await_approval")}
    assert waits.keys() == ends.keys()
    assert waits[cut.id].attributes["everturn.decision.verdict"] == "none"
    assert waits[closed.id].attributes["everturn.decision.verdict"] == "deny"


async def test_an_activity_of_the_users_own_is_a_call_as_any_other(
    client: Client, scripted: Scripted, receiver: Receiver, provider: TracerProvider
) -> None:
    """Its worker need not trace, nor be in Python: how long it took, the conversation knows."""

    @activity.defn(name="Shop.Refund")
    async def shop_refund(order_id: str) -> str:
        if order_id == "82":
            raise ApplicationError("no such order", type="NoOrder", non_retryable=True)
        return "refunded"

    shop = activity_tool(shop_refund, name="shop_refund", task_queue=f"{client.task_queue}-shop", effect="idempotent")
    agent = agent_on(
        scripted([call("shop_refund", {"order_id": "81"}), call("shop_refund", {"order_id": "82"}), "Done."]),
        tools=[shop],
    )
    elsewhere = TemporalWorker(client.temporal, task_queue=f"{client.task_queue}-shop", activities=[shop_refund])
    async with hosting(client, agent, traces=Traces(provider=provider)), elsewhere:
        assert await (await client.start(agent, "Refund them.")).reply() == "Done."
    receiver.check()
    first, second = sorted(receiver.named("execute_tool shop_refund"), key=lambda span: span.begin)
    assert first.error == ""
    assert second.attributes["error.type"] == second.error != ""
    assert first.parent_id == second.parent_id == receiver.one("invoke_agent clerk").span_id
    assert len(receiver.spans) == 6


async def test_each_try_of_a_turn_is_a_span(
    client: Client, scripted: Scripted, receiver: Receiver, provider: TracerProvider
) -> None:
    agent = agent_on(scripted([fail(503, headers={"retry-after": "0"}), "Hello."]))
    async with hosting(client, agent, traces=Traces(provider=provider)):
        assert await (await client.start(agent, "Hi.")).reply() == "Hello."
    receiver.check()
    first, second = sorted(receiver.named("chat"), key=lambda span: span.begin)
    assert (first.attributes["everturn.attempt"], second.attributes["everturn.attempt"]) == (1, 2)
    assert first.error == first.attributes["error.type"] == "Unavailable"
    assert second.error == ""


async def test_a_run_that_goes_on_as_new_goes_on_in_its_trace(
    client: Client, scripted: Scripted, receiver: Receiver, provider: TracerProvider, bounds: Bounds
) -> None:
    """In the middle of an answer, and while a call waits."""
    bounds(updates=2)
    agent = agent_on(scripted([call("refund", {"order_id": "81", "cents": 5}, id="a"), "Done."]), tools=[refund])
    async with hosting(client, agent, traces=Traces(provider=provider)):
        conversation = await client.start(agent, "Refund it.")
        await waiting(conversation)
        first_run = await conversation.latest_run()
        await conversation.pause()
        await conversation.resume()
        await goes_on(conversation, first_run)
        await waiting(conversation)
        await conversation.approve("a")
        assert await conversation.reply() == "Done."
    receiver.check()
    assert Counter(receiver.names) == Counter(
        ["invoke_agent clerk", "chat demo", "chat demo", "await_approval refund", "execute_tool refund"]
    )
    assert len({span.trace_id for span in receiver.spans}) == 1
    assert len({span.attributes["temporalRunID"] for span in receiver.named("chat")}) == 2
    wait, answer = receiver.one("await_approval refund"), receiver.one("invoke_agent clerk")
    assert answer.begin <= wait.begin
    assert wait.parent_id == answer.span_id


async def test_a_trace_that_the_sampler_drops_costs_next_to_nothing(
    client: Client, scripted: Scripted, receiver: Receiver
) -> None:
    provider = provider_for(receiver, sampler=ParentBased(ALWAYS_OFF))
    seen: list[bool] = []

    @tool
    def within() -> str:
        seen.append(provider.get_tracer("tool").start_span("a tool's own").is_recording())
        return "ok"

    agent = agent_on(scripted([call("within"), "Done."]), tools=[within])
    async with hosting(client, agent, traces=Traces(provider=provider)):
        assert await (await client.start(agent, "Go.")).reply() == "Done."
    await asyncio.to_thread(provider.shutdown)
    assert receiver.spans == []
    assert seen == [False]


async def test_metrics_go_the_same_way(client: Client, scripted: Scripted, receiver: Receiver, tmp_path: Path) -> None:
    model = scripted([call("look_up", {"order_id": "81"}), "Done."])
    environment = {
        "EVERTURN_TRACES": "on",
        "OTEL_EXPORTER_OTLP_ENDPOINT": receiver.endpoint,
        "TRACED_FOLDER": str(tmp_path),
    }
    agents = "tests/support/traced_agents.py"
    worker = WorkerProcess(client, model, tmp_path, agents=agents, environment=environment)
    try:
        assert await (await client.start("clerk", "Order 81 arrived broken.")).reply() == "Done."
    finally:
        assert await asyncio.to_thread(worker.stop) == 0
    duration, tokens = "gen_ai.client.operation.duration", "gen_ai.client.token.usage"
    assert receiver.counts == {
        (duration, "chat", "demo"): 2,
        (duration, "execute_tool", "demo", "look_up"): 1,
        (tokens, "chat", "demo", "input"): 2,
        (tokens, "chat", "demo", "output"): 2,
    }
    assert "Traceback" not in worker.log.read_text()
    receiver.check()
    assert {span.service for span in receiver.spans} == {"everturn"}


async def test_a_tools_own_spans_are_within_its_own(
    client: Client, scripted: Scripted, receiver: Receiver, provider: TracerProvider
) -> None:
    @tool
    def by_thread() -> str:
        with provider.get_tracer("tool").start_as_current_span("SELECT orders"):
            return "ok"

    @tool
    async def in_loop() -> str:
        with provider.get_tracer("tool").start_as_current_span("GET /orders"):
            return "ok"

    agent = agent_on(scripted([[call("by_thread"), call("in_loop")], "Done."]), tools=[by_thread, in_loop])
    async with hosting(client, agent, traces=Traces(provider=provider)):
        assert await (await client.start(agent, "Go.")).reply() == "Done."
    receiver.check()
    assert receiver.one("SELECT orders").parent_id == receiver.one("execute_tool by_thread").span_id
    assert receiver.one("GET /orders").parent_id == receiver.one("execute_tool in_loop").span_id


async def test_beside_temporals_own_tracing_nothing_is_doubled_and_the_parent_is_the_same(
    client: Client, scripted: Scripted, receiver: Receiver, provider: TracerProvider
) -> None:
    tracer = provider.get_tracer("temporal")
    config = client.temporal.config()
    config["interceptors"] = [TracingInterceptor(tracer)]
    both = Client(TemporalClient(**config), task_queue=client.task_queue, by="tester")
    agent = agent_on(scripted([call("add", {"a": 1, "b": 2}), "Three."]), tools=[add])
    async with hosting(both, agent, traces=Traces(provider=provider)):
        with tracer.start_as_current_span("POST /orders"):
            conversation = await both.start(agent, "Add.")
        assert await conversation.reply() == "Three."
        await conversation.outcome()
        # Without our client, the caller is known by Temporal's header.
        with tracer.start_as_current_span("from elsewhere"):
            handle = await both.temporal.start_workflow(
                "Conversation",
                {"agent": "clerk", "message": "x"},
                id=f"{conversation.id}-2",
                task_queue=both.task_queue,
            )
        await handle.result()
    await asyncio.to_thread(provider.force_flush)
    ours = [span for span in receiver.spans if span.scope == "everturn"]
    ids = Counter(span.span_id for span in receiver.spans)
    assert max(ids.values()) == 1
    caller, elsewhere = receiver.one("POST /orders"), receiver.one("from elsewhere")
    first, second = sorted(receiver.named("invoke_agent"), key=lambda span: span.begin)
    assert (first.trace_id, first.parent_id) == (caller.trace_id, caller.span_id)
    assert second.trace_id == elsewhere.trace_id
    started = [span for span in receiver.named("StartWorkflow:") if span.trace_id == caller.trace_id]
    assert [span.parent_id for span in started] == [caller.span_id]
    assert {span.trace_id for span in ours} == {caller.trace_id, elsewhere.trace_id}
    assert [span.name for span in ours if span.trace_id == caller.trace_id].count("execute_tool add") == 1


PLUGIN = """
import asyncio, sys
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from temporalio.client import Client
from temporalio.contrib.opentelemetry import OpenTelemetryPlugin, create_tracer_provider
from temporalio.worker import Worker
from everturn import Agent, EverturnPlugin, Traces

async def main(address, queue):
    provider = create_tracer_provider()
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)
    clerk = Agent("clerk", model="scripted:demo")
    client = await Client.connect(address, plugins=[OpenTelemetryPlugin(add_temporal_spans=True)])
    async with Worker(client, task_queue=queue, plugins=[EverturnPlugin(agents=[clerk], traces=True)]):
        with trace.get_tracer("app").start_as_current_span("POST /orders"):
            started = {"agent": "clerk", "message": "Hi"}
            handle = await client.start_workflow("Conversation", started, id=f"{queue}-own", task_queue=queue)
        print((await handle.result())["text"])
    provider.force_flush()

asyncio.run(main(*sys.argv[1:]))
"""


async def test_beside_temporals_own_plugin_the_same(
    client: Client, server: DevServer, scripted: Scripted, receiver: Receiver, tmp_path: Path
) -> None:
    """In a process of its own: the plugin speaks to the process's one provider."""
    program = tmp_path / "application.py"
    program.write_text(PLUGIN)
    environment = {
        **os.environ,
        "SCRIPTED_BASE_URL": scripted(["Hello."]).base_url,
        "OTEL_EXPORTER_OTLP_ENDPOINT": receiver.endpoint,
    }
    ran = await asyncio.to_thread(run, str(program), server.address, client.task_queue, env=environment)
    assert (ran.returncode, ran.stdout.strip()) == (0, "Hello."), ran.stderr
    receiver.check()
    caller, answer = receiver.one("POST /orders"), receiver.one("invoke_agent clerk")
    assert answer.trace_id == caller.trace_id
    began = receiver.one("StartWorkflow:Conversation")
    assert began.parent_id == caller.span_id
    assert answer.parent_id in (caller.span_id, began.span_id)
    assert max(Counter(span.span_id for span in receiver.spans).values()) == 1
    assert Counter(span.name for span in receiver.spans if span.scope == "everturn") == Counter(
        ["invoke_agent clerk", "chat demo"]
    )


async def test_a_receiver_that_stands_still_holds_nothing_up_for_long(
    client: Client, scripted: Scripted, receiver: Receiver, provider: TracerProvider, capsys: pytest.CaptureFixture[str]
) -> None:
    receiver.stands_still.clear()
    agent = agent_on(scripted([*[call("add", {"a": 1, "b": 2})] * 5, "Done."]), tools=[add])
    traces = Traces(provider=provider, export_within=timedelta(milliseconds=50))
    async with hosting(client, agent, traces=traces):
        assert await (await client.start(agent, "Go.")).reply() == "Done."
        receiver.stands_still.set()
    await asyncio.to_thread(provider.force_flush)
    receiver.check()
    assert Counter(receiver.names) == Counter(["invoke_agent clerk", *6 * ["chat demo"], *5 * ["execute_tool add"]])


@pytest.mark.parametrize("context", [{"traceparent": "00-nonsense"}, "text", {"traceparent": 7}, {}, 3])
async def test_a_caller_whose_context_is_none_is_none(
    client: Client, scripted: Scripted, receiver: Receiver, provider: TracerProvider, context: Any
) -> None:
    agent = agent_on(scripted(["Hello."]))
    async with hosting(client, agent, traces=Traces(provider=provider)):
        await client.temporal.execute_workflow(
            "Conversation",
            {"agent": "clerk", "message": "Hi.", "trace": context},
            id=f"odd-{client.task_queue}",
            task_queue=client.task_queue,
        )
    assert receiver.one("invoke_agent clerk").parent_id == ""


async def test_one_trace_through_a_killed_worker_an_approval_and_a_new_run(
    client: Client, scripted: Scripted, receiver: Receiver, provider: TracerProvider, tmp_path: Path, bounds: Bounds
) -> None:
    bounds(events=35)
    script = [
        call("look_up", {"order_id": "81"}),
        call("pack", {"order_id": "81"}),
        call("refund", {"order_id": "81", "cents": 3490}),
        call("look_up", {"order_id": "82"}),
        call("bookkeeper", {"message": "Write down 34.90 EUR."}),
        "All done.",
    ]
    # Both agents ask one server: the second one's only reply is the one after its question.
    model = scripted(lambda messages: _reply(script, messages))
    environment = {
        "EVERTURN_TRACES": "on",
        "OTEL_EXPORTER_OTLP_ENDPOINT": receiver.endpoint,
        "OTEL_SERVICE_NAME": "orders",
        "TRACED_FOLDER": str(tmp_path),
        "TRACED_EVENTS": "35",
        # Nothing is exported by the clock: what a killed worker had said, it had waited for.
        "OTEL_BSP_SCHEDULE_DELAY": "3600000",
    }
    agents = "tests/support/traced_agents.py"

    def start() -> WorkerProcess:
        return WorkerProcess(client, model, tmp_path, agents=agents, environment=environment)

    workers = [start()]
    try:
        with provider.get_tracer("shop").start_as_current_span("POST /orders"):
            conversation = await client.start("clerk", "Order 81 arrived broken.")
        assert await asyncio.to_thread(workers[0].process.wait, 60) == -9
        workers.append(start())
        await eventually(lambda: workers[-1].started)  # else nobody answers who waits
        await waiting(conversation)
        await conversation.approve()
        assert await conversation.reply() == "All done."
        await conversation.outcome()
    finally:
        for worker in workers:
            worker.kill()
    await asyncio.to_thread(provider.force_flush)

    receiver.check()
    assert len({span.trace_id for span in receiver.spans}) == 1
    assert Counter(receiver.names) == Counter(
        [
            "POST /orders",
            "invoke_agent clerk",
            *6 * ["chat demo"],
            *2 * ["execute_tool look_up"],
            "execute_tool pack",
            "await_approval refund",
            "execute_tool refund",
            "invoke_agent bookkeeper",
            "chat books",
        ]
    )
    assert receiver.one("execute_tool pack").attributes["everturn.attempt"] == 2
    assert len({span.attributes["temporalRunID"] for span in receiver.named("chat demo")}) == 2
    assert {span.service for span in receiver.spans if span.scope == "everturn"} == {"orders"}
    assert receiver.one("invoke_agent clerk").parent_id == receiver.one("POST /orders").span_id


def _reply(script: list[Any], messages: list[dict[str, Any]]) -> Any:
    if "Keep the books." in str(messages[0]):
        return "Written down."
    return script[sum(message["role"] == "assistant" for message in messages)]


def test_without_opentelemetry_one_line_says_what_to_install(server: DevServer, tmp_path: Path) -> None:
    (tmp_path / "opentelemetry.py").write_text("raise ImportError('it is not installed')")
    (tmp_path / "agents.py").write_text('from everturn import Agent\nclerk = Agent("clerk", model="scripted:demo")\n')
    done = subprocess.run(
        [sys.executable, "-m", "everturn", "worker", "--agents", str(tmp_path / "agents.py")],
        env={**os.environ, "PYTHONPATH": str(tmp_path), "EVERTURN_TRACES": "on", "TEMPORAL_ADDRESS": server.address},
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 1
    assert install("otel") in done.stderr
    assert "Traceback" not in done.stderr


def test_nothing_of_opentelemetry_is_imported_unless_it_is_asked_for() -> None:
    program = (
        "import sys, everturn.worker.worker, everturn.client.client, everturn.cli; "
        "print(*sorted(name for name in sys.modules if name.startswith('opentelemetry')))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=180, check=True)
    assert done.stdout.strip() == ""


def test_what_is_no_setting_for_traces_is_refused(client: Client) -> None:
    agent = Agent("clerk", model="scripted:demo")
    with pytest.raises(InvalidSetting, match="traces='yes'"):
        hosting(client, agent, traces="yes")
    with pytest.raises(InvalidSetting, match="export_within"):
        Traces(export_within=3)  # type: ignore[arg-type]
    with pytest.raises(InvalidSetting, match="NoOpTracerProvider"):
        hosting(client, agent, traces=Traces(provider=api.NoOpTracerProvider()))


@pytest.mark.parametrize("held_by", ["stall", "pause"])
async def test_a_worker_that_stops_lets_go_of_a_conversation_that_is_held_in_silence(
    client: Client, scripted: Callable[..., ScriptedModel], held_by: str
) -> None:
    """Nothing in it runs on: its memory is given back outside of the workflow, which has no clock there."""
    agent = agent_on(scripted([fail(401)] if held_by == "stall" else ["Hello."]))
    async with hosting(client, agent):
        conversation = await client.start(agent, "Go", keep_open=timedelta(minutes=1))
        if held_by == "pause":
            await conversation.reply()
            await conversation.pause()
            await conversation.send("And?")
        await reaches(conversation, "stalled" if held_by == "stall" else "paused")
    gc.collect()  # pytest fails a test for an exception that nobody could catch
    await client.temporal.get_workflow_handle(conversation.id).terminate()
