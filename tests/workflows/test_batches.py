"""Turns that wait for a provider's batch, on the real server: paid once, whatever is killed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from pydantic import BaseModel
from temporalio.client import WorkflowFailureError
from temporalio.exceptions import CancelledError

from everturn import Agent, Budget, Client, Conversation, Encryption, Model, ModelSettings, tool
from everturn.batching.records import BatchTurn
from everturn.batching.turns import collector_id
from everturn.cli.doctor_batches import batch_findings
from everturn.devserver import DevServer
from everturn.history import event_types
from everturn.testing import ScriptedModel
from tests.support.agents import hosting
from tests.support.batch_server import EXPIRED, MODELS, VENDORS, BatchServer, Refused, Vendor
from tests.support.bounds import Bounds
from tests.support.operators import reset_to, reset_to_the_last_workflow_task
from tests.support.prepared import Program, killed_at_the_end
from tests.support.tenant_budgets import spent
from tests.support.waiting import eventually, reaches, says_why

ROOT = Path(__file__).parents[2]

# It imports nothing of the tests: that would take longer than what it does.
WORKER = """
import asyncio, sys
from everturn import Agent, Client, Model, ModelSettings, Worker

async def main():
    address, task_queue, model, base_url = sys.argv[1:]
    client = await Client.connect(address, task_queue=task_queue)
    agent = Agent("clerk", model=Model(model, base_url=base_url), settings=ModelSettings(batch=True))
    await Worker(client, agents=[agent]).run()

asyncio.run(main())
"""


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, bounds: Bounds) -> None:
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY"):
        monkeypatch.setenv(name, "sk-test")
    monkeypatch.setenv("EVERTURN_BATCH_SECONDS", "0.3")
    bounds(batch_settle_seconds=1.0, batch_look_seconds=0.2, batch_poll_seconds=0.2)


def gather(monkeypatch: pytest.MonkeyPatch, turns: int) -> None:
    """A batch is sent as soon as it has so many turns, however long a busy machine takes to begin them."""
    monkeypatch.setenv("EVERTURN_BATCH_SECONDS", "300")
    monkeypatch.setenv("EVERTURN_BATCH_TURNS", str(turns))


@tool
def weather(city: str) -> str:
    return f"Rain in {city}."


class Place(BaseModel):
    city: str


def batched(model: str | Model, vendor: Vendor = "openai", **options: Any) -> Agent:
    """`model`: or the base URL of the vendor's."""
    if isinstance(model, str):
        model = Model(f"{vendor}:{MODELS[vendor]}", base_url=model)
    return Agent("clerk", model=model, tools=[weather], settings=ModelSettings(batch=True), **options)


@asynccontextmanager
async def worker_process(client: Client, provider: BatchServer, vendor: Vendor) -> AsyncIterator[Program]:
    address = client.temporal.service_client.config.target_host
    with killed_at_the_end(
        "-c", WORKER, address, client.task_queue, f"{vendor}:{MODELS[vendor]}", provider.base_url
    ) as process:
        yield process


def waits_in(conversation: Conversation, batch_id: str) -> Callable[[], Any]:
    async def waits() -> bool:
        status = await conversation.status()
        return status.state == "running" and f"batch {batch_id} of" in (status.cause or "")

    return waits


@pytest.mark.long_if(lambda vendor: vendor != "openai")
@pytest.mark.parametrize("vendor", VENDORS)
async def test_turns_of_several_conversations_are_one_batch_whose_replies_reach_each(
    client: Client, vendor: Vendor, cached_conversations: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    gather(monkeypatch, 3)
    calls = iter(["Hi 0", "Hi 1", "Hi 2"])

    def reply(body: dict[str, Any]) -> Any:
        return ("call_1", "weather", {"city": "Rome"}) if "Rain in" not in str(body) and next(calls, "") else "Done."

    with BatchServer(reply) as provider:
        agent = batched(provider.base_url, vendor)
        async with hosting(client, agent, cached_conversations=cached_conversations):
            conversations = [await client.start(agent, f"Hi {number}") for number in range(3)]
            for batch_number in (1, 2):
                await eventually(lambda count=batch_number: len(provider.batches) == count)
                batch = [*provider.batches.values()][-1]
                await eventually(waits_in(conversations[0], batch.id))
                provider.finish()
            outcomes = [await conversation.outcome() for conversation in conversations]
    assert [(outcome.text, outcome.tool_calls, outcome.usage.total_tokens) for outcome in outcomes] == [
        ("Done.", 1, 30)
    ] * 3
    assert [len(batch.requests) for batch in provider.batches.values()] == [3, 3]
    assert not provider.live


@pytest.mark.parametrize("odd", [{"gather_seconds": float("nan")}, {"gather_seconds": 1e9}, {"most_turns": 0}])
def test_a_line_that_would_keep_others_waiting_for_ever_is_none(odd: dict[str, Any]) -> None:
    """A collector is reached by anybody's signal."""
    with pytest.raises(ValueError, match=next(iter(odd))):
        BatchTurn(collector="c", provider="openai", agent="clerk", model="openai:gpt-5.5", **odd)


STEPS = ("gathering", "creating", "created", "waiting", "reading")


@pytest.mark.long_if(lambda vendor, step: vendor == "openai-chat" or (vendor != "openai") == (step != "created"))
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("vendor", VENDORS)
async def test_a_worker_that_is_killed_at_any_step_leaves_a_turn_that_is_paid_once(
    client: Client, vendor: Vendor, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with BatchServer() as provider:
        agent = batched(provider.base_url, vendor)
        if step == "gathering":
            monkeypatch.setenv("EVERTURN_BATCH_SECONDS", "3")
        async with worker_process(client, provider, vendor) as doomed:
            match step:
                case "creating":
                    provider.before["creation"] = doomed.kill
                case "created":
                    provider.after["creation"] = doomed.kill
                case "reading":
                    provider.after["results"] = doomed.kill
            conversation = await client.start(agent, "Hi")
            if step == "gathering":
                await eventually(lambda: joined(client, agent))
                doomed.kill()
            if step in {"waiting", "reading"}:
                await eventually(lambda: provider.batches)
                await eventually(waits_in(conversation, next(iter(provider.batches))))
                if step == "waiting":
                    doomed.kill()
            if step in {"reading", "created"}:
                provider.finish()
            await asyncio.to_thread(doomed.wait, 120)
        provider.finish()
        provider.ends_at_once = True
        async with hosting(client, agent):
            assert (await conversation.outcome()).text == "Done."
    assert provider.paid == 1
    assert not provider.live


async def joined(client: Client, agent: Agent) -> bool:
    """Whether the collector has a turn. By the history: there may be no worker that answers a query."""
    handle = client.temporal.get_workflow_handle(collector_id(agent.model, client.task_queue))
    try:
        return event_types.WORKFLOW_EXECUTION_SIGNALED in [
            event.event_type async for event in handle.fetch_history_events()
        ]
    except Exception:  # noqa: BLE001 - it is not there yet
        return False


async def test_a_batch_of_claude_whose_creation_was_not_answered_is_waited_for_beside_anothers_of_the_same_size(
    client: Client,
) -> None:
    with BatchServer() as provider:
        agent = batched(provider.base_url, "anthropic")
        provider.lose_answers = 1
        async with hosting(client, agent):
            conversation = await client.start(agent, "Hi")
            await eventually(lambda: provider.batches)
            provider.begin("anthropic", "", {"of-another-program": {}})
            await eventually(lambda: provider.asked.count("GET /v1/messages/batches") > 2)
            assert len(provider.batches) == 2
            provider.finish()
            assert (await conversation.outcome()).text == "Done."
    assert len(provider.batches) == 2


@pytest.mark.parametrize("vendor", VENDORS)
@pytest.mark.long_if(lambda vendor: vendor != "google")
async def test_a_line_that_expires_is_put_into_the_next_batch(client: Client, vendor: Vendor) -> None:
    results = iter([EXPIRED, "Done."])
    with BatchServer(lambda _: next(results)) as provider:
        provider.ends_at_once = True
        agent = batched(provider.base_url, vendor)
        async with hosting(client, agent):
            assert (await client.run(agent, "Hi")).text == "Done."
    assert [len(batch.requests) for batch in provider.batches.values()] == [1, 1]


@pytest.mark.parametrize("vendor", VENDORS)
@pytest.mark.long_if(lambda vendor: vendor != "anthropic")
async def test_a_line_that_is_refused_stalls_its_conversation_and_no_other(client: Client, vendor: Vendor) -> None:
    def reply(body: dict[str, Any]) -> Any:
        return Refused(400, "invalid_request_error", "There is no field 'x'.") if "Bad" in str(body) else "Done."

    with BatchServer(reply) as provider:
        provider.ends_at_once = True
        agent = batched(provider.base_url, vendor)
        async with hosting(client, agent):
            good = await client.start(agent, "Good")
            bad = await client.start(agent, "Bad")
            assert (await good.outcome()).text == "Done."
            status = await reaches(bad, "stalled")
            assert "There is no field 'x'." in (status.cause or "")
            assert status.cure
            await bad.close()
            await bad.outcome()
    assert provider.paid == 2


SPOILT = {"Cut": "cut", "Null": "null", "Never": "always null"}
"""What becomes of the first results of these conversations, or of all."""


@pytest.mark.long_if(lambda vendor: vendor == "anthropic")
@pytest.mark.parametrize("vendor", ["openai", "anthropic"])
async def test_a_result_that_can_not_be_read_holds_up_no_other_turn_and_its_own_is_asked_again(
    client: Client, vendor: Vendor, monkeypatch: pytest.MonkeyPatch
) -> None:
    questions = ["Good", *SPOILT] if vendor == "openai" else ["Good", "Null"]
    monkeypatch.setenv("EVERTURN_BATCH_SECONDS", "1.5")  # for those that are asked again, if not all at once
    monkeypatch.setenv("EVERTURN_BATCH_TURNS", str(len(questions)))  # for all to be in the first batch
    spoilt: set[str] = set()

    def spoil(lines: list[bytes]) -> list[bytes]:
        return [spoilt_line(line) for line in lines]

    def spoilt_line(line: bytes) -> bytes:
        for question, how in SPOILT.items():
            if f"{question}." in line.decode() and (how.startswith("always") or question not in spoilt):
                spoilt.add(question)
                return _spoilt(line, cut=how == "cut")
        return line

    def question_of(body: dict[str, Any]) -> str:
        return next(question for question in questions if question in str(body.get("input", body.get("messages"))))

    with BatchServer(lambda body: f"{question_of(body)}.") as provider:
        provider.ends_at_once = True
        provider.spoil = spoil
        agent = batched(provider.base_url, vendor)
        async with hosting(client, agent):
            conversations = {question: await client.start(agent, question) for question in questions}
            never = conversations.pop("Never", None)
            for question, conversation in conversations.items():
                assert (await conversation.outcome()).text == f"{question}."
            if never:
                status = await reaches(never, "stalled")
                assert "its reply could not be used" in (status.cause or "")
                await never.close()
    first, *later = [[question_of(body) for body in batch.requests.values()] for batch in provider.batches.values()]
    assert sorted(first) == sorted(questions), "all are in one batch, whose good line is read in spite of the others"
    again = sorted(question for batch in later for question in batch)
    assert [question for question in again if question != "Never"] == sorted({*SPOILT} & conversations.keys())


def _spoilt(line: bytes, *, cut: bool) -> bytes:
    if cut:
        return line[:50]
    written = json.loads(line)
    if "response" in written:
        written["response"]["body"] = None
    else:
        written["result"]["message"] = None
    return json.dumps(written).encode()


async def test_a_line_whose_schema_is_refused_is_in_the_next_batch_without_it(client: Client) -> None:
    def reply(body: dict[str, Any]) -> Any:
        if "output_config" in body:
            return Refused(400, "invalid_request_error", "Schemas contains too many optional parameters (25)")
        return '{"city": "Paris"}'

    with BatchServer(reply) as provider:
        provider.ends_at_once = True
        agent = batched(provider.base_url, "anthropic", output=Place)
        async with hosting(client, agent):
            assert (await client.run(agent, "Where?")).output == {"city": "Paris"}
    assert [len(batch.requests) for batch in provider.batches.values()] == [1, 1]


async def test_a_server_without_batches_stalls_its_conversations_with_the_cause_and_the_workers_log_has_it(
    client: Client, scripted: Callable[..., ScriptedModel], caplog: pytest.LogCaptureFixture
) -> None:
    agent = batched(scripted(["Never."]).base_url)
    async with hosting(client, agent):
        conversation = await client.start(agent, "Hi")
        await reaches(conversation, "stalled")
        status = await conversation.status()
        await conversation.close()
        await conversation.outcome()
    assert "answered 404" in (status.cause or "")
    assert "base_url=" in (status.cure or "")
    assert "batch.not_sent" in caplog.text
    assert "turns=1" in caplog.text


async def test_a_turn_that_is_cancelled_leaves_its_batch_which_is_cancelled_with_the_last(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    gather(monkeypatch, 2)
    with BatchServer() as provider:
        agent = batched(provider.base_url)
        async with hosting(client, agent):
            first, second = [await client.start(agent, name, keep_open=timedelta(hours=1)) for name in ("One", "Two")]
            await eventually(lambda: provider.batches)
            [batch] = provider.batches.values()
            await eventually(waits_in(second, batch.id))
            await first.cancel_turn()
            await reaches(first, "idle")
            assert (await second.status()).state == "running"
            assert batch.state == "running"
            await second.cancel_turn()
            await eventually(lambda: batch.state == "cancelled")
            provider.ends_at_once = True
            for conversation in (first, second):
                await conversation.send("Again")
            for conversation in (first, second):
                assert await conversation.reply() == "Done."
                await conversation.close()
                await conversation.outcome()
    assert provider.paid == 4


async def test_a_turn_that_is_cancelled_while_its_batch_is_gathered_is_never_sent(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVERTURN_BATCH_SECONDS", "6")
    with BatchServer() as provider:
        provider.ends_at_once = True
        agent = batched(provider.base_url)
        async with hosting(client, agent):
            first = await client.start(agent, "One", keep_open=timedelta(hours=1))
            second = await client.start(agent, "Two")
            await eventually(lambda: joined(client, agent))
            await first.cancel_turn()
            assert (await second.outcome()).text == "Done."
            await first.close()
            await first.outcome()
    assert provider.paid == 1


# ------------------------------------------------------------ beside what else befalls a conversation


async def test_a_budget_has_no_place_taken_by_who_waits_and_lets_what_is_paid_be_read_at_its_price(
    client: Client, tenant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    gather(monkeypatch, 2)
    await client.set_budget(tenant, Budget(conversations=1))
    with BatchServer() as provider:
        agent = batched(provider.base_url)
        async with hosting(client, agent):
            conversations = [await client.start(agent, name, tenant=tenant) for name in ("One", "Two")]
            await eventually(lambda: provider.batches)
            [batch] = provider.batches.values()
            for conversation in conversations:
                await eventually(waits_in(conversation, batch.id))
            await client.set_budget(tenant, Budget(tokens_per_day=1))
            provider.finish()
            outcomes = [await conversation.outcome() for conversation in conversations]
            used = await spent(client, tenant)
    assert [outcome.text for outcome in outcomes] == ["Done."] * 2
    assert provider.paid == 2
    assert used.tokens == 30
    assert used.cost_usd == pytest.approx(sum(outcome.cost_usd or 0 for outcome in outcomes))
    assert used.cost_usd > 0


@pytest.mark.parametrize("when", ["gathered", "sent"])
async def test_a_conversation_that_is_reset_while_it_waits_has_the_reply_that_is_paid(
    client: Client, when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVERTURN_BATCH_SECONDS", "5" if when == "gathered" else "0.3")
    with BatchServer() as provider:
        agent = batched(provider.base_url)
        async with hosting(client, agent):
            conversation = await client.start(agent, "Hi")
            if when == "gathered":
                await eventually(lambda: joined(client, agent))
            else:
                await eventually(lambda: provider.batches)
                await eventually(waits_in(conversation, next(iter(provider.batches))))
            await reset_to_the_last_workflow_task(client, conversation)
            provider.ends_at_once = True
            provider.finish()
            assert (await conversation.outcome()).text == "Done."
    assert provider.paid == 1


@pytest.mark.parametrize("lacks", ["key", "other key", "agent"])
@pytest.mark.long_if(lambda lacks: lacks == "other key")
async def test_turns_whose_worker_is_gone_wait_with_cause_and_cure_until_one_with_the_key_comes(
    client: Client, lacks: str, monkeypatch: pytest.MonkeyPatch, bounds: Bounds
) -> None:
    bounds(quietly=timedelta(seconds=0.5))
    monkeypatch.setenv("TEMPORAL_ADDRESS", client.temporal.service_client.config.target_host)
    monkeypatch.setenv("EVERTURN_TASK_QUEUE", client.task_queue)
    monkeypatch.setenv("BATCH_KEY", "sk-1")
    with BatchServer() as provider:
        provider.key = "sk-1"
        agent = batched(Model("openai:gpt-5.5", base_url=provider.base_url, key_env="BATCH_KEY"))
        async with hosting(client, agent):
            conversation = await client.start(agent, "Hi")
            await eventually(lambda: provider.batches)
            await eventually(waits_in(conversation, "batch_1"))
        if lacks == "key":
            monkeypatch.delenv("BATCH_KEY")
        if lacks == "other key":
            monkeypatch.setenv("BATCH_KEY", "sk-2")
        who = Agent("another", model=agent.model) if lacks == "agent" else agent
        words = {"key": "BATCH_KEY", "other key": "key", "agent": "'clerk'"}[lacks]
        async with hosting(client, who):
            await eventually(lambda: says_why(conversation, words))
            assert await says_why(conversation, "batch_1")
            assert "worker" in ((await conversation.status()).cure or "")
            [finding] = await batch_findings()
            assert (finding.state, words in finding.detail) == ("wrong", True)
            provider.finish()
        monkeypatch.setenv("BATCH_KEY", "sk-1")
        async with hosting(client, agent):
            assert (await conversation.outcome()).text == "Done."
            assert await batch_findings() == []
            events = [event.kind async for event in conversation.events()]
    assert events.count("worker_awaited") == 1
    assert provider.paid == 1


@pytest.mark.long_if(lambda deploy: deploy == "other agents")
@pytest.mark.parametrize("deploy", ["no key", "other key", "other agents", "other agents for long", "not batched"])
async def test_a_reply_that_is_paid_is_read_whatever_the_next_worker_lacks(
    client: Client, deploy: str, monkeypatch: pytest.MonkeyPatch, bounds: Bounds
) -> None:
    bounds(quietly=timedelta(seconds=0.2))
    if deploy == "other agents for long":
        bounds(host_patience=timedelta(seconds=0.5), updates=1)  # with `resume`, a new run is due
    monkeypatch.setenv("BATCH_KEY", "sk-1")
    asked_for_results = asyncio.Event()
    loop = asyncio.get_running_loop()
    with BatchServer() as provider:
        provider.key = "sk-1"
        provider.before["results"] = lambda: loop.call_soon_threadsafe(asked_for_results.set)
        model = Model("openai:gpt-5.5", base_url=provider.base_url, key_env="BATCH_KEY")
        agent = batched(model, fallback_models=[provider.model("openai-chat")])
        async with hosting(client, agent):
            conversation = await client.start(agent, "Hi")
            await eventually(waits_in(conversation, "batch_1"))
            provider.finish()
            await asked_for_results.wait()
        if deploy == "no key":
            monkeypatch.delenv("BATCH_KEY")
        if deploy == "other key":
            monkeypatch.setenv("BATCH_KEY", "sk-2")
        if deploy == "not batched":
            agent = Agent("clerk", model=model, tools=[weather])
        else:
            async with hosting(client, Agent("another", model=model) if "agents" in deploy else agent):
                words = {"no key": "BATCH_KEY", "other key": "batch_1"}.get(deploy, "'clerk'")
                await eventually(lambda: says_why(conversation, words))
                assert "Start a worker" in ((await conversation.status()).cure or "")
                if deploy == "other agents for long":
                    await reaches(conversation, "stalled")
                    await conversation.resume()
        monkeypatch.setenv("BATCH_KEY", "sk-1")
        async with hosting(client, agent):
            assert (await conversation.outcome()).text == "Done."
    assert (provider.paid, provider.live) == (1, [])


@pytest.mark.parametrize("vendor", ["openai", "anthropic"])
async def test_a_batch_is_followed_and_read_after_a_deploy_that_gave_its_agent_another_model(
    client: Client, vendor: Vendor
) -> None:
    """With the one of before behind it, if it is of another provider."""
    with BatchServer() as provider, BatchServer() as other_provider:
        agent = batched(provider.base_url)
        async with hosting(client, agent):
            conversation = await client.start(agent, "Hi")
            await eventually(waits_in(conversation, "batch_1"))
        provider.finish()
        newer = Model("openai:gpt-5.4", base_url=provider.base_url)
        deployed = batched(newer)
        if vendor != "openai":
            deployed = batched(other_provider.model(vendor), fallback_models=[newer])
        async with hosting(client, deployed):
            assert (await conversation.outcome()).text == "Done."
    assert provider.paid == 1


async def test_a_collector_that_is_cancelled_hands_over_first_what_it_has(client: Client) -> None:
    with BatchServer() as provider:
        agent = batched(provider.base_url)
        async with hosting(client, agent):
            conversation = await client.start(agent, "Hi")
            await eventually(lambda: provider.batches)
            collector = client.temporal.get_workflow_handle(collector_id(agent.model, client.task_queue))
            await collector.cancel()
            await eventually(waits_in(conversation, "batch_1"))
            provider.finish()
            assert (await conversation.outcome()).text == "Done."
            with pytest.raises(WorkflowFailureError) as ended:
                await collector.result()
    assert isinstance(ended.value.cause, CancelledError)
    assert provider.paid == 1


async def test_whose_collector_an_operator_ended_is_told_so_also_once_another_one_runs(client: Client) -> None:
    with BatchServer() as provider:
        agent = batched(provider.base_url)
        async with hosting(client, agent):
            conversation = await client.start(agent, "Hi")
            await eventually(waits_in(conversation, "batch_1"))
            assert "goes on by itself" in str((await conversation.status()).cure)
            collector = collector_id(agent.model, client.task_queue)
            await client.temporal.get_workflow_handle(collector).terminate()
            await eventually(lambda: says_why(conversation, "is terminated: nobody will tell it"))
            provider.ends_at_once = True
            assert (await client.run(agent, "Ho")).text == "Done."
            status = await conversation.status()
            assert "another one does not know of the turn" in str(status.cause)
            assert "everturn cancel-turn" in str(status.cure)
            await conversation.cancel_turn()
            await conversation.outcome()


async def test_a_batch_that_a_killed_worker_had_created_is_found_although_others_have_handed_it_back(
    client: Client, bounds: Bounds
) -> None:
    bounds(quietly=timedelta(seconds=0.5))
    with BatchServer() as provider:
        async with worker_process(client, provider, "openai") as doomed:
            provider.after["creation"] = doomed.kill
            agent = batched(provider.base_url)
            conversation = await client.start(agent, "Hi")
            await asyncio.to_thread(doomed.wait, 120)
        async with hosting(client, Agent("another", model=agent.model)):
            await eventually(lambda: says_why(conversation, "'clerk'"))
        provider.ends_at_once = True
        provider.finish()
        async with hosting(client, agent):
            assert (await conversation.outcome()).text == "Done."
    assert provider.paid == 1


async def test_a_line_that_a_reset_orphans_is_not_sent_with_the_batch_that_was_gathered(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    gather(monkeypatch, 2)
    with BatchServer() as provider:
        provider.ends_at_once = True
        agent = batched(Model("openai:gpt-5.5", base_url=provider.base_url))
        async with hosting(client, agent):
            conversation = await client.start(agent, "Hi")
            await eventually(lambda: joined(client, agent))
            await reset_to(client, conversation, task=0)
            assert (await conversation.outcome()).text == "Done."
    assert provider.paid == 1


@pytest.fixture
async def sealed(server: DevServer) -> Client:
    return await Client.connect(
        server.address, task_queue=f"sealed-{uuid4().hex[:8]}", encryption=Encryption({"key-1": b"k" * 32})
    )


async def test_with_encrypted_payloads_a_collector_that_goes_on_as_a_new_run_hands_over_what_it_had_sent(
    sealed: Client, bounds: Bounds
) -> None:
    bounds(events=12)
    with BatchServer() as provider:
        agent = batched(provider.base_url)
        async with hosting(sealed, agent):
            first = await sealed.start(agent, "One")
            await eventually(lambda: provider.batches)
            collector = sealed.temporal.get_workflow_handle(collector_id(agent.model, sealed.task_queue))
            begun = (await collector.describe()).run_id
            second = await sealed.start(agent, "Two")
            await eventually(lambda: len(provider.batches) == 2)

            async def goes_on() -> bool:
                return (await collector.describe()).run_id != begun

            await eventually(goes_on)
            provider.finish()
            assert [(await conversation.outcome()).text for conversation in (first, second)] == ["Done."] * 2
    assert provider.paid == 2


async def test_who_is_paused_falls_back_after_a_refused_line_and_who_is_closed_has_its_reply(client: Client) -> None:
    def reply(body: dict[str, Any]) -> Any:
        is_refused = body["model"] == MODELS["openai"] and "Hold" in str(body)
        return Refused(400, "invalid_request_error", "No.") if is_refused else "Done."

    with BatchServer(reply) as provider:
        second = Model(f"openai:{MODELS['openai-chat']}", base_url=provider.base_url)
        agent = batched(provider.base_url, fallback_models=[second])
        async with hosting(client, agent):
            held = await client.start(agent, "Hold", keep_open=timedelta(hours=1))
            closed = await client.start(agent, "Close", keep_open=timedelta(hours=1))
            await eventually(lambda: provider.batches)
            await eventually(lambda: listed(client, "batched", held))
            await held.pause()
            await closed.close()
            provider.ends_at_once = True
            provider.finish()
            assert (await closed.outcome()).text == "Done."
            await reaches(held, "paused")
            await held.resume()
            assert await held.reply() == "Done."
            assert not await listed(client, "batched", held)
            await held.close()
            await held.outcome()
    assert provider.paid == 3


async def listed(client: Client, status: str, conversation: Conversation) -> bool:
    return conversation.id in [row.id async for row in client.conversations(status=status)]
