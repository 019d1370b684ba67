"""Workers with roles: model turns and tools on task queues of their own."""

from __future__ import annotations

import asyncio
import json
import logging
import subprocess
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
import temporalio.worker
from temporalio import workflow
from temporalio.api.enums.v1 import EventType
from temporalio.service import RPCError, RPCStatusCode

from everturn import Agent, Budget, Client, Conversation, EverturnPlugin, QueueLimit, RateLimit, Worker, tool
from everturn.client.pollers import find_pollers
from everturn.errors import InvalidSetting, Refused, Unreachable
from everturn.events import WorkerAwaited
from everturn.settings import Settings
from everturn.temporal.worker_roles import ROLES, Role
from everturn.tenants.priorities import budget_id
from everturn.testing import ScriptedModel, call
from everturn.worker.process import check
from tests.support.agents import agent_on, hosting, nowhere
from tests.support.prepared import Program
from tests.support.shell import Shell
from tests.support.waiting import eventually

Scripted = Callable[..., ScriptedModel]


@tool
def look_up(what: str) -> str:
    "Looks something up."
    return f"{what}: 42"


@tool(local=True, effect="read", timeout=timedelta(seconds=5))
def quick(what: str) -> str:
    "Looks something up, here."
    return f"{what}: 43"


async def beside(client: Client) -> Client:
    """A client for another worker: the SDK lets one have only one."""
    address = client.temporal.service_client.config.target_host
    return await Client.connect(address, task_queue=client.task_queue, by="tester")


async def scheduled(conversation: Conversation) -> list[tuple[str, str]]:
    """Its activities, each with the end of its task queue's name."""
    handle = conversation._client.temporal.get_workflow_handle(conversation.id)
    found = []
    async for event in handle.fetch_history_events():
        if event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED:
            about = event.activity_task_scheduled_event_attributes
            queue = about.task_queue.name.removeprefix(conversation._client.task_queue)
            found.append((about.activity_type.name, queue))
    return found


async def kinds(conversation: Conversation) -> Counter[str]:
    handle = conversation._client.temporal.get_workflow_handle(conversation.id)
    return Counter([EventType.Name(event.event_type) async for event in handle.fetch_history_events()])


CALLS = [call("look_up", {"what": "a"}, id="a1"), "Done."]


@pytest.mark.parametrize(
    ("fleet", "queues"),
    [
        ((("workflows",), ("models",), ("tools",)), ("-models", "-tools")),
        ((("workflows", "tools"), ("models",)), ("-models", "")),
        ((("workflows", "models"), ("tools",)), ("", "-tools")),
        ((None,), ("", "")),
    ],
    ids=["all apart", "models apart", "tools apart", "one queue"],
)
async def test_each_activity_goes_to_the_workers_of_its_role(
    client: Client,
    scripted: Scripted,
    cached_conversations: int,
    fleet: tuple[tuple[Role, ...] | None, ...],
    queues: tuple[str, str],
) -> None:
    agent = agent_on(scripted(CALLS), tools=[look_up])
    async with AsyncExitStack() as stack:
        for roles in fleet:
            worker = hosting(await beside(client), agent, roles=roles, cached_conversations=cached_conversations)
            await stack.enter_async_context(worker)
        conversation = await client.start(agent, "Go.")
        assert (await conversation.outcome()).text == "Done."
    models, tools = queues
    assert await scheduled(conversation) == [("call_model", models), ("look_up", tools), ("call_model", models)]


async def test_roles_cost_no_event(client: Client, scripted: Scripted) -> None:
    agent = agent_on(scripted(CALLS * 2), tools=[look_up])
    async with hosting(await beside(client), agent):
        one = await client.start(agent, "Go.")
        await one.outcome()
    fleet: list[tuple[Role]] = [("workflows",), ("models",), ("tools",)]
    async with AsyncExitStack() as stack:
        for roles in fleet:
            await stack.enter_async_context(hosting(await beside(client), agent, roles=roles))
        other = await client.start(agent, "Go.")
        await other.outcome()
    assert await kinds(one) == await kinds(other)


async def test_a_local_tool_runs_where_its_conversation_is(client: Client, scripted: Scripted) -> None:
    agent = agent_on(scripted([call("quick", {"what": "a"}, id="a1"), "Done."]), tools=[quick])
    workflows, models = (
        hosting(await beside(client), agent, roles=["workflows"]),
        hosting(await beside(client), agent, roles=["models"]),
    )
    async with workflows, models:
        conversation = await client.start(agent, "Go.")
        assert (await conversation.outcome()).text == "Done."
    assert await scheduled(conversation) == [("call_model", "-models"), ("call_model", "-models")]


async def test_a_conversation_goes_on_when_its_fleet_gets_roles_and_when_it_loses_them(
    client: Client, scripted: Scripted, cached_conversations: int
) -> None:
    agent = agent_on(scripted(["One.", "Two.", "Three."]), tools=[look_up])
    conversation = await client.start(agent, "1", keep_open=timedelta(minutes=5))
    async with hosting(await beside(client), agent, cached_conversations=cached_conversations):
        assert await conversation.reply() == "One."
    models = hosting(await beside(client), agent, roles=["models"])
    apart = hosting(
        await beside(client), agent, roles=["workflows", "tools"], cached_conversations=cached_conversations
    )
    async with models, apart:
        await conversation.send("2")
        assert await conversation.reply() == "Two."
    async with hosting(await beside(client), agent, cached_conversations=cached_conversations):
        await conversation.send("3")
        assert await conversation.reply() == "Three."
        await conversation.close()
        await conversation.outcome()
    assert [queue for _, queue in await scheduled(conversation)] == ["", "-models", ""]


# ------------------------------------------------------------ kills

DOOMED = """
import asyncio, sys
from everturn import Agent, Budget, Client, Model, Worker, tool

address, queue, role, url = sys.argv[1:]

@tool(effect="idempotent")
async def look_up(what: str) -> str:
    "Looks something up."
    print("begun", flush=True)
    await asyncio.Event().wait()

async def main():
    client = await Client.connect(address, task_queue=queue)
    agent = Agent("clerk", model=Model("scripted:demo", base_url=url), tools=[look_up])
    async with Worker(client, agents=[agent], roles=[role]):
        print("started", flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


@pytest.mark.parametrize("killed", ROLES)
async def test_a_killed_worker_of_a_role_is_replaced_by_another_of_that_role(
    client: Client, scripted: Scripted, killed: Role, cached_conversations: int
) -> None:
    asked, answers, begun, ends = threading.Event(), threading.Event(), asyncio.Event(), asyncio.Event()

    def speak(messages: list[dict[str, Any]], body: dict[str, Any]) -> Any:
        asked.set()
        answers.wait()
        return "Done." if messages[-1]["role"] == "tool" else call("look_up", {"what": "a"}, id="a1")

    @tool(effect="idempotent")
    async def look_up(what: str) -> str:
        "Looks something up."
        begun.set()
        await ends.wait()
        return f"{what}: 42"

    model = scripted(speak)
    address = client.temporal.service_client.config.target_host
    doomed = Program("-c", DOOMED, address, client.task_queue, killed, model.base_url, stdout=subprocess.PIPE)

    async def says(word: str) -> None:
        assert doomed.stdout
        assert (await asyncio.to_thread(doomed.stdout.readline)).strip() == word

    async def start(stack: AsyncExitStack, role: Role) -> None:
        own = hosting(
            await beside(client),
            agent_on(model, tools=[look_up]),
            roles=[role],
            cached_conversations=cached_conversations,
        )
        await stack.enter_async_context(own)

    with doomed:
        async with AsyncExitStack() as stack:
            await says("started")
            for role in ROLES:
                if role != killed:
                    await start(stack, role)
            conversation = await client.start("clerk", "Go.")
            await asyncio.to_thread(asked.wait)
            if killed != "models":
                answers.set()
                await (says("begun") if killed == "tools" else begun.wait())
            doomed.kill()
            answers.set()
            ends.set()
            await start(stack, killed)
            assert (await conversation.outcome()).text == "Done."
    assert await scheduled(conversation) == [
        ("call_model", "-models"),
        ("look_up", "-tools"),
        ("call_model", "-models"),
    ]


async def test_a_tenants_budget_is_on_the_conversations_queue(client: Client, scripted: Scripted) -> None:
    agent, tenant = agent_on(scripted(CALLS), tools=[look_up]), f"acme-{uuid4().hex[:8]}"
    async with AsyncExitStack() as stack:
        for role in ROLES:
            budgets = {tenant: Budget(tokens_per_day=1_000_000)}
            worker = hosting(await beside(client), agent, roles=[role], budgets=budgets)
            await stack.enter_async_context(worker)
        conversation = await client.start(agent, "Go.", tenant=tenant)
        assert (await conversation.outcome()).text == "Done."

        async def counted() -> bool:
            status = await client.budget(tenant)
            return status is not None and status.turns == 2

        await eventually(counted)
        handle = client.temporal.get_workflow_handle(budget_id(tenant, encoded=False))
        assert (await handle.describe()).task_queue == client.task_queue
        await handle.terminate()


# ------------------------------------------------------------ what is said


async def test_a_role_without_a_worker_is_named_by_the_status_the_events_and_the_doctor(
    client: Client, scripted: Scripted, shell: Shell
) -> None:
    shell.environment["EVERTURN_TASK_QUEUE"] = client.task_queue
    agent = agent_on(scripted(CALLS), tools=[look_up])
    async with hosting(await beside(client), agent, roles=["workflows", "tools"]):
        conversation = await client.start(agent, "Go.")

        async def told() -> bool:
            cause = (await conversation.status()).cause or ""
            return f"No worker polls the task queue '{client.task_queue}-models' for models" in cause

        await eventually(told, what="the status says who lacks")
        status = await conversation.status()
        assert status.state == "running"
        assert "everturn worker --agents FILE.py --roles models" in (status.cure or "")
        async for event in conversation.events():
            if isinstance(event, WorkerAwaited):
                break
        assert f"'{client.task_queue}-models'" in event.cause

        async def known() -> bool:
            return "models" not in (await client.task_queues())[0].roles

        await eventually(known, what="the server shows what waits")
        findings = {one["part"]: one for one in await asyncio.to_thread(lambda: _doctor(shell))}
        assert findings["workers"]["state"] == "ok"
        assert findings["workers for models"]["state"] == "wrong"
        assert "--roles models" in findings["workers for models"]["cure"]
        async with hosting(await beside(client), agent, roles=["models"]):
            assert (await conversation.outcome()).text == "Done."
            findings = {one["part"]: one for one in await asyncio.to_thread(lambda: _doctor(shell))}
        assert findings["workers for models"]["state"] == "ok"


def _doctor(shell: Shell) -> Any:
    return json.loads(shell.run("doctor", "--json").stdout)


async def test_a_worker_of_a_role_is_healthy_if_it_polls_its_queue(
    client: Client, scripted: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEMPORAL_ADDRESS", client.temporal.service_client.config.target_host)
    monkeypatch.setenv("EVERTURN_TASK_QUEUE", client.task_queue)
    monkeypatch.setenv("EVERTURN_ROLES", "models")
    with pytest.raises(Unreachable, match="-models"):
        await check(Settings.load())
    async with hosting(client, agent_on(scripted([])), roles=["models"]):

        async def well() -> bool:
            try:
                await check(Settings.load())
            except Unreachable:
                return False
            return True

        await eventually(well)


async def test_workers_of_model_turns_share_a_known_limit(
    client: Client, scripted: Scripted, caplog: pytest.LogCaptureFixture
) -> None:
    agent = agent_on(scripted(CALLS), tools=[look_up])
    known = {"scripted": RateLimit(rpm=60_000)}
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(hosting(await beside(client), agent, roles=["workflows"]))
        await stack.enter_async_context(hosting(await beside(client), agent, roles=["tools"]))
        with caplog.at_level(logging.DEBUG):
            await stack.enter_async_context(hosting(await beside(client), agent, roles=["models"], rate_limits=known))
            await eventually(lambda: f"{client.task_queue}-models" in caplog.text and "limit.shared" in caplog.text)
    shared = [line for line in caplog.messages if "limit.shared" in line]
    assert shared
    assert "'workers': 0" not in shared[-1]


@pytest.mark.parametrize(
    ("roles", "cure"),
    [
        ((), "everything"),
        (("model",), "'models'"),
        ("workflows,tool", "'tools'"),
        (("models", "tools"), "a worker polls one task queue"),
    ],
)
def test_roles_that_make_no_worker_are_refused(roles: Any, cure: str) -> None:
    with pytest.raises(InvalidSetting) as refused:
        Worker(nowhere(), agents=[Agent("clerk", model="scripted:demo")], roles=roles)
    assert cure in refused.value.cure


@workflow.defn
class Mine:
    @workflow.run
    async def run(self) -> None: ...


async def test_an_applications_workflows_need_a_worker_with_that_role(client: Client) -> None:
    plugin = EverturnPlugin([Agent("clerk", model="scripted:demo")], roles=["tools"])
    with pytest.raises(InvalidSetting) as refused:
        temporalio.worker.Worker(client.temporal, task_queue="q", workflows=[Mine], plugins=[plugin])
    assert "tools" in refused.value.message


# ------------------------------------------------------------ limits of queues


async def test_the_servers_limit_holds_all_workers_of_a_queue(client: Client, scripted: Scripted, shell: Shell) -> None:
    shell.environment["EVERTURN_TASK_QUEUE"] = client.task_queue
    agent = agent_on(scripted(["Hello."] * 3))
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(hosting(await beside(client), agent, roles=["workflows", "tools"]))
        for _ in range(2):
            await stack.enter_async_context(hosting(await beside(client), agent, roles=["models"]))

        async def apart() -> bool:
            return len(await client.task_queues()) == 2

        await eventually(apart)
        await client.limit_task_queue("models", QueueLimit(per_second=0), reason="the provider is down")
        conversations = [await client.start(agent, "Hi") for _ in range(3)]

        async def held() -> bool:
            found = await client.task_queues()
            return [one.waiting for one in found if one.roles == ("models",)] == [3]

        await eventually(held, what="all turns wait")
        _, models = await client.task_queues()
        assert (models.limit.per_second, models.reason) == (0, "the provider is down")
        assert models.workers
        shown = await asyncio.to_thread(lambda: shell.run("queues").stdout)
        assert f"{client.task_queue}-models" in shown
        assert "0/s (the provider is down)" in shown
        done = await asyncio.to_thread(
            lambda: shell.json("queues", "models", "--per-second", "100", "--per-tenant", "9")
        )
        assert done[1]["limit"] == {"per_second": 100, "per_tenant_per_second": 9}
        assert [(await conversation.outcome()).text for conversation in conversations] == ["Hello."] * 3
        done = await asyncio.to_thread(lambda: shell.json("queues", "models", "--no-limit"))
        assert done[1]["limit"] == {"per_second": None, "per_tenant_per_second": None}


async def test_a_fleet_on_one_queue_has_no_queue_to_limit(client: Client, scripted: Scripted) -> None:
    async with hosting(client, agent_on(scripted([]))):
        [one] = await client.task_queues()
        assert one.roles == ROLES
        with pytest.raises(Refused) as refused:
            await client.limit_task_queue("models", QueueLimit(per_second=1))
    assert "--roles models" in refused.value.cure


async def test_a_server_that_knows_no_limits_says_so(
    client: Client, scripted: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def unknown(*_: Any, **__: Any) -> None:
        raise RPCError("unknown method UpdateTaskQueueConfig", RPCStatusCode.UNIMPLEMENTED, b"")

    async with hosting(await beside(client), agent_on(scripted([])), roles=["models"]):
        await eventually(lambda: find_pollers(client.temporal, f"{client.task_queue}-models", activities=True))
        monkeypatch.setattr(client.temporal.workflow_service, "update_task_queue_config", unknown)
        with pytest.raises(Refused) as refused:
            await client.limit_task_queue("models", QueueLimit(per_second=1))
    assert "UpdateTaskQueueConfig" in refused.value.cure
