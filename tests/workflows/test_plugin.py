"""EverturnPlugin on an application's own worker: its workflows, activities, converter and settings stay as they are."""

from __future__ import annotations

import pickle
import uuid
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import temporalio.client
from temporalio import activity, workflow
from temporalio.client import WorkflowFailureError
from temporalio.common import RawValue
from temporalio.converter import DataConverter
from temporalio.worker import (
    Replayer,
    Worker,
    WorkerDeploymentConfig,
    WorkerDeploymentVersion,
)

import everturn
from everturn import Agent, Client, EverturnPlugin, tool
from everturn.devserver import DevServer
from everturn.errors import InvalidSetting, Unreachable
from everturn.events import ToolFinished, ToolStarted
from everturn.heartbeats import throttle
from everturn.records import Outcome
from everturn.storage.composed_converter import shared_converter
from everturn.storage.data_converter import data_converter, with_storage
from everturn.testing import ScriptedModel, call
from tests.support.agents import agent_on
from tests.support.applications import CONVERTERS, Seen
from tests.support.bounds import Bounds
from tests.support.transcripts import results_of, told
from tests.support.waiting import eventually, waiting
from tests.workflows.application import Checkout, Order, charge

Scripted = Callable[..., ScriptedModel]

SECRET = "the lamp is blue"


@tool
def look_up(order_id: str) -> str:
    """An order."""
    return f"{order_id}: {SECRET}"


@pytest.fixture
def clerk(scripted: Scripted) -> Agent:
    return agent_on(scripted([call("look_up", {"order_id": "81"}), f"It says: {SECRET}."]), tools=[look_up])


@workflow.defn(name="Counts", sandboxed=False)
class Counts:
    @workflow.run
    async def run(self) -> int:
        counted: int = await workflow.execute_activity(
            "count", start_to_close_timeout=timedelta(seconds=30), heartbeat_timeout=timedelta(seconds=20)
        )
        return counted


@workflow.defn(name="Mistaken", sandboxed=False)
class Mistaken:
    @workflow.run
    async def run(self) -> None:
        await workflow.execute_activity(
            "chrage",
            start_to_close_timeout=timedelta(seconds=30),
            retry_policy=temporalio.common.RetryPolicy(maximum_attempts=1),
        )


@workflow.defn(name="Waits", sandboxed=False)
class Waits:
    def __init__(self) -> None:
        self.said: list[str] = []

    @workflow.signal
    def say(self, text: str) -> None:
        self.said.append(text)

    @workflow.run
    async def run(self) -> list[str]:
        await workflow.wait_condition(lambda: bool(self.said))
        return self.said


def plugin_for(*agents: Agent, **options: Any) -> EverturnPlugin:
    return EverturnPlugin(agents=agents, **{"drain_timeout": timedelta(seconds=20), **options})


@pytest.mark.parametrize("on", ["the worker", "the client"])
@pytest.mark.parametrize("converter", CONVERTERS)
async def test_an_applications_workflow_and_a_conversation_share_worker_converter_and_interceptors(
    server: DevServer, clerk: Agent, converter: str, on: str
) -> None:
    queue, plugin = f"mine-{uuid.uuid4()}", plugin_for(clerk)
    theirs = await temporalio.client.Client.connect(
        server.address, data_converter=CONVERTERS[converter], plugins=[plugin] if on == "the client" else []
    )
    seen = Seen()
    async with Worker(
        theirs,
        task_queue=queue,
        workflows=[Checkout],
        activities=[charge],
        interceptors=[seen],
        plugins=[plugin] if on == "the worker" else [],
    ):
        client = Client(theirs, task_queue=queue, by="tester")
        order = await theirs.execute_workflow(Checkout.run, Order("81", 3490), id=f"{queue}-own", task_queue=queue)
        conversation = await client.start(clerk, "What is order 81?", keep_open=timedelta(minutes=5))
        assert await conversation.reply() == f"It says: {SECRET}."
        assert (await conversation.status()).turn == 2
        await conversation.close()
        outcome = await conversation.outcome()
        by_type = (
            await theirs.get_workflow_handle(conversation.id, result_type=Outcome).result()
            if on == "the client"
            else outcome
        )
        transcript = await conversation.transcript()
        kinds = [event.kind async for event in conversation.events()]
        histories = [await theirs.get_workflow_handle(one).fetch_history() for one in (f"{queue}-own", conversation.id)]
    assert order == Order("81", 3491)
    assert outcome.text == by_type.text == transcript[-1].text
    assert "tool_finished" in kinds
    assert set(seen.activities) == {"charge", "call_model", "look_up"}
    assert {"Checkout", "Conversation"} <= set(seen.workflows)
    if converter != "temporalio's own":
        assert not [history for history in histories if SECRET in history.to_json()], (
            "nothing goes past their converter"
        )
    # With the plugin, one replayer takes both.
    replayer = Replayer(
        workflows=[Checkout], data_converter=CONVERTERS[converter], interceptors=[Seen()], plugins=[plugin_for()]
    )
    for history in histories:
        await replayer.replay_workflow(history)


async def test_an_applications_activity_beats_no_more_often_than_without_the_plugin(
    client: Client, clerk: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[Any] = []

    flush = throttle._Throttle.flush

    def counted(self: Any) -> None:
        sent.append(self._kept)
        flush(self)

    monkeypatch.setattr(throttle._Throttle, "flush", counted)
    queue = client.task_queue
    async with Worker(
        client.temporal, task_queue=queue, workflows=[Checkout], activities=[charge], plugins=[plugin_for(clerk)]
    ):
        await client.temporal.execute_workflow(Checkout.run, Order("81", 1), id=f"{queue}-own", task_queue=queue)
    assert sent == [("charging", 1)], "of fifty; the next is due 16 s later"


async def test_a_failing_activity_leaves_its_last_word_to_the_next_try(client: Client, clerk: Agent) -> None:
    found: list[Any] = []

    @activity.defn(name="count")
    async def count() -> int:
        found.append(list(activity.info().heartbeat_details))
        for row in range(100):
            activity.heartbeat(row)
        if len(found) == 1:
            raise RuntimeError("once more")
        return len(found)

    queue = client.task_queue
    async with Worker(
        client.temporal, task_queue=queue, workflows=[Counts], activities=[count], plugins=[plugin_for(clerk)]
    ):
        assert await client.temporal.execute_workflow("Counts", id=f"{queue}-own", task_queue=queue) == 2
    assert found == [[], [99]]


# ---------------------------------------------------------------- settings


def config_of(client: Client, plugin: EverturnPlugin, **options: Any) -> dict[str, Any]:
    worker = Worker(client.temporal, task_queue=str(uuid.uuid4()), activities=[charge], plugins=[plugin], **options)
    return dict(worker.config(active_config=True))


async def test_it_sets_what_the_application_has_not_set(client: Client, clerk: Agent) -> None:
    config = config_of(client, EverturnPlugin(agents=[clerk]))
    assert config["sticky_queue_schedule_to_start_timeout"] == timedelta(seconds=2)
    assert config["graceful_shutdown_timeout"] == timedelta(seconds=100)
    assert config["max_concurrent_activities"] == 200
    assert config["max_concurrent_workflow_tasks"] == 20
    assert config["max_workflow_task_external_storage_concurrency"] == 1
    theirs: dict[str, Any] = {
        "sticky_queue_schedule_to_start_timeout": timedelta(seconds=20),
        "graceful_shutdown_timeout": timedelta(seconds=3),
        "max_concurrent_activities": 7,
        "max_concurrent_workflow_tasks": 9,
        "max_workflow_task_external_storage_concurrency": 5,
        "max_cached_workflows": 5,
        "max_heartbeat_throttle_interval": timedelta(seconds=30),
        "build_id": "theirs",
    }
    config = config_of(client, EverturnPlugin(agents=[clerk]), **theirs)
    assert {name: config[name] for name in theirs} == theirs


async def test_an_application_with_many_pollers_gets_as_many_workflow_tasks(client: Client, clerk: Agent) -> None:
    config = config_of(client, EverturnPlugin(agents=[clerk]), max_concurrent_workflow_task_polls=30)
    assert config["max_concurrent_workflow_tasks"] == 30


async def test_with_external_storage_payloads_are_stored_together(client: Client, clerk: Agent, tmp_path: Path) -> None:
    theirs: dict[str, Any] = {**client.temporal.config(), "data_converter": with_storage(data_converter, tmp_path)}
    config = config_of(Client(temporalio.client.Client(**theirs)), EverturnPlugin(agents=[clerk]))
    assert config["max_workflow_task_external_storage_concurrency"] == 3


async def test_what_a_setting_costs_conversations_is_logged(
    client: Client, clerk: Agent, caplog: pytest.LogCaptureFixture
) -> None:
    config_of(client, plugin_for(clerk))
    assert "worker.setting" not in caplog.text
    config_of(client, plugin_for(clerk), max_cached_workflows=3, no_remote_activities=True)
    assert "max_cached_workflows=3" in caplog.text
    assert "no_remote_activities=True" in caplog.text


async def test_without_agents_it_hosts_nothing(client: Client) -> None:
    config = config_of(client, EverturnPlugin())
    assert config["activities"] == [charge]
    assert not config.get("workflows")
    assert config["max_cached_workflows"] == 1000


async def test_a_worker_with_versioning_needs_no_behavior_for_all(client: Client, clerk: Agent) -> None:
    version = WorkerDeploymentVersion(deployment_name="shop", build_id="1")
    config = config_of(
        client, plugin_for(clerk), deployment_config=WorkerDeploymentConfig(version, use_worker_versioning=True)
    )
    definitions = [workflow._Definition.must_from_class(one) for one in config["workflows"]]
    behaviors = {
        definition.name: definition.versioning_behavior and definition.versioning_behavior.name
        for definition in definitions
    }
    assert behaviors == dict.fromkeys(("BatchCollector", "Conversation", "TenantBudget", "Webhook"), "AUTO_UPGRADE")


# ---------------------------------------------------------------- names that clash


@activity.defn(name="look_up")
async def own_look_up(order_id: str) -> str:
    return order_id


@activity.defn(name="call_model")
async def own_call_model() -> None: ...


@activity.defn(dynamic=True)
async def whatever(arguments: Sequence[RawValue]) -> None: ...


@workflow.defn(name="Conversation", sandboxed=False)
class OwnConversation:
    @workflow.run
    async def run(self) -> None: ...


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"activities": [own_look_up]}, "EverturnPlugin(prefix='agent_')"),
        ({"activities": [own_call_model]}, "@activity.defn(name='my_call_model')"),
        ({"activities": [whatever]}, "dynamic=True"),
        ({"workflows": [OwnConversation]}, "@workflow.defn(name='MyConversation')"),
    ],
    ids=["tool", "call_model", "dynamic", "workflow"],
)
async def test_names_that_clash_are_refused_with_the_cure(
    client: Client, clerk: Agent, options: dict[str, Any], said: str
) -> None:
    with pytest.raises(InvalidSetting) as error:
        Worker(client.temporal, task_queue="never", plugins=[plugin_for(clerk)], **options)
    assert said in str(error.value)
    assert "another task queue" in error.value.cure


@workflow.defn(name="LooksUp", sandboxed=False)
class LooksUp:
    @workflow.run
    async def run(self, order_id: str) -> str:
        options: Any = {"start_to_close_timeout": timedelta(seconds=30), "result_type": str}
        found: str = await workflow.execute_activity("look_up", order_id, **options)
        return found


@tool(effect="once", needs_approval=True)
def refund(order_id: str) -> str:
    """Refund an order."""
    return f"{order_id} refunded"


@tool(local=True, effect="read", timeout=timedelta(seconds=10))
def glance(order_id: str) -> str:
    """Look at an order, quickly."""
    return f"{order_id} seen"


async def test_with_a_prefix_a_tool_and_an_activity_have_one_name(
    client: Client, scripted: Scripted, cached_conversations: int
) -> None:
    script = [[call(one, {"order_id": "81"}, id=one) for one in ("look_up", "refund", "glance")], "Done."]
    agent = agent_on(scripted(script), tools=[look_up, refund, glance])
    queue = client.task_queue
    plugin = plugin_for(agent, prefix="agent_", cached_conversations=cached_conversations)
    async with Worker(
        client.temporal, task_queue=queue, workflows=[LooksUp], activities=[own_look_up], plugins=[plugin]
    ):
        assert await client.temporal.execute_workflow("LooksUp", "7", id=f"{queue}-own", task_queue=queue) == "7"
        conversation = await client.start(agent, "Go")
        assert await waiting(conversation) == ("refund",)
    # A worker without the prefix runs what was planned with it.
    async with everturn.Worker(client, agents=[agent], cached_conversations=cached_conversations):
        await conversation.approve("refund")
        assert (await conversation.outcome()).text == "Done."
    results = {result.name: result.text for result in results_of(await conversation.transcript())}
    assert results == {"look_up": f"81: {SECRET}", "refund": "81 refunded", "glance": "81 seen"}
    events = await told(conversation)
    assert {event.tool for event in events if isinstance(event, ToolStarted)} >= {"look_up", "refund"}
    assert {event.result.name for event in events if isinstance(event, ToolFinished)} == {"look_up", "refund", "glance"}
    history = await client.temporal.get_workflow_handle(conversation.id).fetch_history()
    types = {event.activity_task_scheduled_event_attributes.activity_type.name for event in history.events} - {""}
    assert types == {"call_model", "agent_look_up", "agent_refund"}


@pytest.mark.parametrize("prefix", ["with space", "ä", "x" * 33, "call_", "c", 7])
def test_a_prefix_that_will_not_do_is_refused(clerk: Agent, prefix: Any) -> None:
    with pytest.raises(InvalidSetting, match="prefix="):
        EverturnPlugin(agents=[clerk], prefix=prefix)


async def test_two_plugins_that_host_are_refused(client: Client, clerk: Agent) -> None:
    with pytest.raises(InvalidSetting, match="Two EverturnPlugins"):
        Worker(client.temporal, task_queue="never", plugins=[plugin_for(clerk), plugin_for(clerk)])


async def test_an_activity_that_the_application_lacks_is_none_of_everturns(client: Client, clerk: Agent) -> None:
    queue = client.task_queue
    async with Worker(client.temporal, task_queue=queue, workflows=[Mistaken], plugins=[plugin_for(clerk)]):
        with pytest.raises(WorkflowFailureError) as error:
            await client.temporal.execute_workflow("Mistaken", id=f"{queue}-own", task_queue=queue)
    assert "Activity function chrage" in str(error.value.cause.__cause__)


# ---------------------------------------------------------------- everturn's own worker


async def test_a_worker_is_started_and_stopped_without_a_block(client: Client, clerk: Agent) -> None:
    seen = Seen()
    worker = everturn.Worker(
        client,
        agents=[clerk],
        interceptors=[seen],
        max_activities_per_second=1000.0,
        max_task_queue_activities_per_second=1000.0,
        workflow_task_poller_behavior=temporalio.worker.PollerBehaviorAutoscaling(),
        activity_task_poller_behavior=temporalio.worker.PollerBehaviorSimpleMaximum(2),
        tuner=temporalio.worker.WorkerTuner.create_fixed(workflow_slots=10, activity_slots=10),
    )
    await worker.stop()  # nothing to stop
    await worker.start()
    with pytest.raises(InvalidSetting, match="already started"):
        await worker.start()
    assert (await client.run(clerk, "Hi")).text == f"It says: {SECRET}."
    await worker.stop()
    await worker.stop()
    assert "call_model" in seen.activities
    await worker.start()  # a web application that is reloaded
    await worker.stop()


async def test_a_worker_that_temporal_does_not_take_says_so_as_it_starts(server: DevServer, clerk: Agent) -> None:
    client = await Client.connect(server.address, namespace="nowhere")
    with pytest.raises(Unreachable, match="has no namespace 'nowhere'"):
        await everturn.Worker(client, agents=[clerk]).start()
    with pytest.raises(Unreachable, match="has no namespace 'nowhere'"):
        async with everturn.Worker(client, agents=[clerk], task_queue="elsewhere"):
            raise AssertionError


async def test_a_tuner_and_a_number_are_too_much(client: Client, clerk: Agent) -> None:
    tuner = temporalio.worker.WorkerTuner.create_fixed()
    with pytest.raises(InvalidSetting, match="tuner"):
        everturn.Worker(client, agents=[clerk], tuner=tuner, max_concurrent_activities=7)


# ---------------------------------------------------------------- converters


def test_the_converter_of_a_shared_worker_goes_to_other_processes() -> None:
    for converter in CONVERTERS.values():
        shared = shared_converter(converter).payload_converter_class
        assert pickle.loads(pickle.dumps(shared)) is shared
        assert shared_converter(shared_converter(converter)).payload_converter_class is shared


def test_values_of_the_application_are_written_as_before() -> None:
    for converter in CONVERTERS.values():
        order = Order("81", 1)
        shared = shared_converter(converter).payload_converter
        assert shared.to_payloads([order, 3]) == converter.payload_converter.to_payloads([order, 3])
        assert shared.from_payloads(shared.to_payloads([order]), [Order]) == [order]


async def test_a_codec_that_fails_keeps_an_applications_signal(client: Client, clerk: Agent, bounds: Bounds) -> None:
    """everturn gives up on what it can't decode, and tells the conversation. Another workflow would lose the signal."""
    from tests.support.applications import Hiding

    bounds(unreadable_tries=1)

    class Failing(Hiding):
        failures = 2

        async def decode(self, payloads: Any) -> Any:
            if any(b"precious" in payload.data for payload in await super().decode(payloads)) and Failing.failures:
                Failing.failures -= 1
                raise ValueError("the key server is away")
            return await super().decode(payloads)

    theirs = await temporalio.client.Client.connect(
        client.temporal.service_client.config.target_host, data_converter=DataConverter(payload_codec=Failing())
    )
    queue = client.task_queue
    async with Worker(theirs, task_queue=queue, workflows=[Waits], plugins=[plugin_for(clerk)]):
        handle = await theirs.start_workflow(
            "Waits", id=f"{queue}-own", task_queue=queue, task_timeout=timedelta(seconds=1)
        )
        await handle.signal("say", "precious")
        await eventually(lambda: Failing.failures == 0)
        assert await handle.result() == ["precious"]
