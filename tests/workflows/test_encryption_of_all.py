"""Encryption with every other feature in use: hooks, policies, context, activities, Nexus, MCP, agents, steering, an
application's workflow. Each says a word of its own, and none of them is in the server's files."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import nexusrpc
import nexusrpc.handler
import pytest
from temporalio import activity, workflow
from temporalio.client import Client as TemporalClient
from temporalio.exceptions import ApplicationError
from temporalio.worker import Worker as TemporalWorker

import everturn
from everturn import (
    Agent,
    Client,
    Encryption,
    EverturnPlugin,
    ToolContext,
    activity_tool,
    nexus_tool,
    tool,
)
from everturn.devserver import DevServer
from everturn.hooks import AskApproval, DenyCall, after_tool, before_tool
from everturn.policy import Rule
from everturn.testing import ScriptedModel, call, fail
from everturn.tools.context_ask import AsksPerson, current_answer
from tests.support.agents import agent_on
from tests.support.mcp_shop_server import McpShop
from tests.support.nexus_endpoints import endpoint_to
from tests.support.nexus_shop import Receipt, Refund, Shop
from tests.support.transcripts import results_of
from tests.support.waiting import eventually, reaches

Scripted = Callable[..., ScriptedModel]

PLACES = ["message", "tenant", "metadata", "message_id"]
PLACES += ["hook_denies", "hook_asks", "hook_breaks", "hook_changes", "rule", "rule_value"]
PLACES += ["activity_input", "activity_result", "activity_error", "activity_beat", "progress"]
PLACES += ["nexus_input", "nexus_result", "nexus_error", "mcp_input", "question", "answer", "note"]
PLACES += ["asked", "helper_result", "provider", "pause", "cancel", "close", "reply"]
PLACES += ["workflow_message", "workflow_tenant", "workflow_reply"]


class Words(dict[str, str]):
    """By place, such as `note-3f9c...`, which stands nowhere else."""

    def __init__(self) -> None:
        super().__init__({place: f"{place}-{uuid4().hex}" for place in PLACES})

    def found_in(self, folder: Path) -> set[str]:
        written = [file.read_bytes() for file in folder.rglob("*") if file.is_file()]
        assert written
        return {place for place, word in self.items() if any(word.encode() in one for one in written)}


@pytest.fixture(scope="module")
async def filed(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[DevServer]:
    async with DevServer(db_filename=tmp_path_factory.mktemp("db") / "temporal.db") as running:
        yield running


def activities(said: Words) -> dict[str, Callable[..., Any]]:
    @activity.defn
    async def weigh(name: str) -> str:
        activity.heartbeat(said["activity_beat"])
        return said["activity_result"]

    @activity.defn
    async def burn(name: str) -> str:
        raise ApplicationError(said["activity_error"], said["activity_error"], non_retryable=True)

    return {"weigh": weigh, "burn": burn}


def nexus_handler(said: Words) -> Any:
    @nexusrpc.handler.service_handler(service=Shop)
    class Handler:
        @nexusrpc.handler.sync_operation
        async def refund(self, ctx: nexusrpc.handler.StartOperationContext, given: Refund) -> Receipt:
            return Receipt(said["nexus_result"], given.cents)

        @nexusrpc.handler.sync_operation
        async def fail(self, ctx: nexusrpc.handler.StartOperationContext, given: str) -> str:
            raise ApplicationError(said["nexus_error"], type="Closed", non_retryable=True)

        @nexusrpc.handler.sync_operation
        async def greet(self, ctx: nexusrpc.handler.StartOperationContext, given: str) -> str:
            return given

        @nexusrpc.handler.sync_operation
        async def now(self, ctx: nexusrpc.handler.StartOperationContext, given: None) -> str:
            return ""

        @nexusrpc.handler.sync_operation
        async def ship(self, ctx: nexusrpc.handler.StartOperationContext, given: str) -> str:
            return given

    return Handler()


def tools_with(said: Words, endpoint: str, folder: Path) -> list[Any]:
    @tool
    def plain(name: str) -> str:
        return f"plain {name}"

    @tool
    def pack(context: ToolContext) -> str:
        context.heartbeat(said["progress"])
        return "packed"

    @tool(effect="once")
    def book() -> str:
        given = current_answer()
        if given is None:
            raise AsksPerson(said["question"], carried={})
        return given.text

    server = McpShop(folder).stdio()
    made = activities(said)
    return [
        *(plain, pack, book, server),
        *(activity_tool(made[name], effect="read") for name in ("weigh", "burn")),
        *(nexus_tool(one, endpoint=endpoint, service=Shop) for one in (Shop.refund, Shop.fail)),
    ]


def hooks_of(said: Words) -> list[Any]:
    @before_tool(tools=["plain"])
    def looks(given: Any, context: ToolContext) -> Any:
        match given.arguments["name"]:
            case "denied":
                return DenyCall(said["hook_denies"])
            case "asked":
                return AskApproval(said["hook_asks"])
            case "broken":
                raise RuntimeError(said["hook_breaks"])
        return None

    @after_tool(tools=["plain"])
    def changes(given: Any, result: Any, context: ToolContext) -> str:
        return said["hook_changes"]

    return [looks, changes]


def script_of(said: Words, ruled: threading.Event) -> Callable[..., Any]:
    """Nothing is called before there are rules."""
    calls = [
        *(call("plain", {"name": name}, id=name) for name in ("denied", "asked", "broken", "ruled")),
        call("plain", {"name": said["rule_value"]}, id="value"),
        *(call(name, id=name) for name in ("pack", "book")),
        call("weigh", {"name": said["activity_input"]}, id="weigh"),
        call("burn", {"name": "x"}, id="burn"),
        call("refund", {"order_id": said["nexus_input"]}, id="refund"),
        call("fail", {"input": "x"}, id="fail"),
        call("find", {"name": said["mcp_input"]}, id="find"),
        call("helper", {"message": said["asked"]}, id="helper"),
    ]
    script = iter([calls, fail(400, said["provider"]), said["reply"]])

    def reply(messages: list[dict[str, Any]]) -> Any:
        assert ruled.wait(60)
        return next(script)

    return reply


@workflow.defn(sandboxed=False)
class Application:
    @workflow.run
    async def run(self, message: str, tenant: str) -> str:
        return (await everturn.workflow.ask("helper", message, tenant=tenant)).text


async def talk(client: Client, said: Words, scripted: Scripted, endpoint: str, folder: Path) -> str:
    """A conversation in which each word is said; its id."""
    helper = agent_on(
        scripted(lambda messages: said["workflow_reply" if "workflow" in str(messages[-1]) else "helper_result"]),
        name="helper",
    )
    agent: Agent = agent_on(
        scripted(script_of(said, ruled := threading.Event())),
        tools=[*tools_with(said, endpoint, folder), helper],
        hooks=hooks_of(said),
    )
    worker = TemporalWorker(
        client.temporal,
        task_queue=client.task_queue,
        workflows=[Application],
        nexus_service_handlers=[nexus_handler(said)],
        plugins=[EverturnPlugin(agents=[agent], drain_timeout=timedelta(seconds=20), journals=folder / "journals")],
    )
    async with worker:
        conversation = await client.start(
            agent,
            said["message"],
            id=f"all-{uuid4().hex}",
            keep_open=timedelta(minutes=5),
            message_id=said["message_id"],
            tenant=said["tenant"],
            metadata={"user": said["metadata"]},
        )
        rules = [
            Rule(tool="plain", then="deny", where={"name": {"equals": "ruled"}}, reason=said["rule"]),
            Rule(tool="plain", then="approve", where={"name": {"equals": said["rule_value"]}}),
        ]
        await conversation.set_policy(rules)
        ruled.set()
        for call_id in ("asked", "broken", "book"):
            await eventually(lambda call_id=call_id: _waits(conversation, call_id))
            if call_id == "book":
                await conversation.answer(call_id, said["answer"])
            else:
                await conversation.approve(call_id, note=said["note"])
        await reaches(conversation, "stalled")
        await conversation.pause(said["pause"])
        await conversation.cancel_turn(said["cancel"])
        await conversation.send("And now?")
        assert await conversation.reply() == said["reply"]
        await conversation.close(said["close"])
        await conversation.outcome()
        told = "\n".join(result.text for result in results_of(await conversation.transcript()))
        for place in ("hook_denies", "hook_changes", "rule", "activity_result", "activity_error", "nexus_result"):
            assert said[place] in told, place
        for place in ("nexus_error", "mcp_input", "answer", "helper_result"):
            assert said[place] in told, place
        answer = await client.temporal.execute_workflow(
            Application.run,
            args=[said["workflow_message"], said["workflow_tenant"]],
            id=f"application-{uuid4().hex}",
            task_queue=client.task_queue,
        )
        assert answer == said["workflow_reply"]
    return conversation.id


async def _waits(conversation: Any, call_id: str) -> bool:
    return call_id in [waiting_call.call_id for waiting_call in (await conversation.status()).waiting]


@pytest.mark.parametrize("encrypted", [False, True])
async def test_what_any_feature_says_is_in_no_file_of_the_server(
    filed: DevServer, scripted: Scripted, tmp_path: Path, encrypted: bool
) -> None:
    """Without encryption, it is: so the other run can fail."""
    said, queue = Words(), f"q-{uuid4().hex[:8]}"
    encryption = Encryption({"key-1": b"k" * 32}) if encrypted else None
    client = await Client.connect(filed.address, task_queue=queue, by="tester", encryption=encryption)
    assert isinstance(client.temporal, TemporalClient)
    await talk(client, said, scripted, await endpoint_to(client, queue), tmp_path)
    assert filed.db_filename
    # Heartbeats of what has ended are kept nowhere.
    kept = {*PLACES} - {"activity_beat", "progress"}
    assert said.found_in(filed.db_filename.parent) - {"activity_beat", "progress"} == (set() if encrypted else kept)
    if encrypted:
        assert said.found_in(filed.db_filename.parent) == set()


@pytest.mark.parametrize("start", ["a client", "a workflow"])
async def test_tenants_that_share_workers_fairly_are_not_named(
    filed: DevServer, scripted: Scripted, start: str
) -> None:
    """Both ways give a tenant the same key: it has one share."""
    queue = f"q-{uuid4().hex[:8]}"
    client = await Client.connect(filed.address, task_queue=queue, encryption=Encryption({"key-1": b"k" * 32}))
    agent = agent_on(scripted(["Hello."]), name="helper")
    plugin = EverturnPlugin(agents=[agent], drain_timeout=timedelta(seconds=20))
    worker = TemporalWorker(client.temporal, task_queue=queue, workflows=[Application], plugins=[plugin])
    async with worker:
        if start == "a client":
            conversation = await client.start(agent, "Hi", tenant="acme")
            await conversation.outcome()
            found = conversation.id
        else:
            own = f"application-{uuid4().hex}"
            await client.temporal.execute_workflow(Application.run, args=["Hi", "acme"], id=own, task_queue=queue)
            events = (await client.temporal.get_workflow_handle(own).fetch_history()).events
            [begun] = [e for e in events if e.HasField("start_child_workflow_execution_initiated_event_attributes")]
            found = begun.start_child_workflow_execution_initiated_event_attributes.workflow_id
    described = (await client.temporal.get_workflow_handle(found).describe()).raw_description
    key = described.workflow_execution_info.priority.fairness_key
    assert key == "bded55e7ce1c08f27738f8c77ec971e3", "a digest, the same each time"
    assert "acme" not in str(described)
