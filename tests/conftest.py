"""What the tests share: a real Temporal server, a real model server, and workers as users start them."""

from __future__ import annotations

import asyncio
import inspect
import os
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import settings
from temporalio.worker import Replayer, UnsandboxedWorkflowRunner

from everturn import Agent, Client, Conversation, Model, Worker
from everturn.conversion import data_converter
from everturn.devserver import DevServer
from everturn.testing import ScriptedModel
from everturn.workflows import ConversationWorkflow, carry

# How long an example takes is the machine's business.
settings.register_profile("any machine", deadline=None)
settings.load_profile("any machine")

WAIT_SECONDS = 30.0

BUSY_SECONDS = 1.2
"""Longer than what is sent meanwhile takes."""


@pytest.fixture(autouse=True)
def _no_settings_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(("EVERTURN_", "TEMPORAL_")):
            monkeypatch.delenv(name)


@pytest.fixture(autouse=True)
def _long_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever another test did to the bounds of a run."""
    monkeypatch.setattr(carry, "MAX_EVENTS", 2_000)
    monkeypatch.setattr(carry, "MAX_PACKED_BYTES", 48_000)


@pytest.fixture(scope="session")
async def server() -> AsyncIterator[DevServer]:
    settings = {
        # A run that continues as new within a second is held back until that is over: for tests, that is a long time.
        "history.workflowIdReuseMinimalInterval": '"0s"',
        # Five failures of a workflow task take 20 seconds.
        "system.numConsecutiveWorkflowTaskProblemsToTriggerSearchAttribute": "2",
    }
    async with DevServer(dynamic_config=settings) as running:
        yield running


@pytest.fixture
async def client(server: DevServer) -> AsyncIterator[Client]:
    """A client with a task queue of its own. Afterwards, whatever was started there is replayed, event by event."""
    client = await Client.connect(server.address, task_queue=f"test-{uuid4().hex[:8]}", by="tester")
    yield client
    await replay_all(client)


async def replay_all(client: Client) -> None:
    replayer = Replayer(
        workflows=[ConversationWorkflow],
        workflow_runner=UnsandboxedWorkflowRunner(),
        data_converter=data_converter,
    )
    for conversation_id in _started.pop(client.task_queue, []):
        history = await client.temporal.get_workflow_handle(conversation_id).fetch_history()
        await replayer.replay_workflow(history)


_started: dict[str, list[str]] = {}


@pytest.fixture(autouse=True)
def _remember_what_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    start = Client._start

    async def remembering(self: Client, *args: Any, **options: Any) -> Conversation:
        conversation = await start(self, *args, **options)
        _started.setdefault(self.task_queue, []).append(conversation.id)
        return conversation

    monkeypatch.setattr(Client, "_start", remembering)


@pytest.fixture
def scripted() -> Iterator[Callable[..., ScriptedModel]]:
    """Starts scripted models: `model = scripted(["Hello."])`."""
    running: list[ScriptedModel] = []

    def start(script: Any, **options: Any) -> ScriptedModel:
        running.append(ScriptedModel(script, **options).start())
        return running[-1]

    yield start
    for model in running:
        model.stop()


@pytest.fixture(params=[1000, 0], ids=["cached", "replaying"])
def cached_conversations(request: pytest.FixtureRequest) -> int:
    """With 0, a worker keeps no conversation in memory: every workflow task replays the history."""
    return int(request.param)


def agent_on(model: ScriptedModel, *, tools: Sequence[Any] = (), name: str = "clerk", **options: Any) -> Agent:
    return Agent(name, model=Model("scripted:demo", base_url=model.base_url), tools=tools, **options)


def hosting(client: Client, *agents: Agent, **options: Any) -> Worker:
    """A worker that does not wait for long, if a test leaves it with something that never ends."""
    return Worker(client, agents=agents, **{"drain_timeout": timedelta(seconds=20), **options})


async def eventually(
    condition: Callable[[], Any | Awaitable[Any]], *, seconds: float = WAIT_SECONDS, what: str = ""
) -> Any:
    """The condition's value as soon as it is true; fails where it does not become so in time."""
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if inspect.isawaitable(value):
            value = await value
        if value:
            return value
        assert time.monotonic() < deadline, f"not so within {seconds} s: {what or inspect.getsource(condition)}"
        await asyncio.sleep(0.02)


def busy_in(
    monkeypatch: pytest.MonkeyPatch, owner: type, name: str, *, when: Callable[..., bool] = lambda *_: True
) -> threading.Event:
    """Keeps the worker busy in that method of a workflow, once: what comes in meanwhile, the next workflow task brings
    together. Set as soon as the worker is in it."""
    method, busy = getattr(owner, name), threading.Event()

    def slowly(self: Any, *args: Any, **options: Any) -> Any:
        if not busy.is_set() and when(*args):
            busy.set()
            time.sleep(BUSY_SECONDS)
        return method(self, *args, **options)

    monkeypatch.setattr(owner, name, slowly)
    return busy


async def completed_activities(client: Client, conversation: Conversation) -> int:
    """How many activities of the latest run brought a result."""
    history = await client.temporal.get_workflow_handle(conversation.id).fetch_history()
    return sum(event.HasField("activity_task_completed_event_attributes") for event in history.events)


async def nothing_runs(client: Client, conversation: Conversation) -> None:
    """Returns once every activity that was begun has ended, whether the conversation has seen its end or not."""
    handle = client.temporal.get_workflow_handle(conversation.id)

    async def no_activity() -> bool:
        return not (await handle.describe()).raw_description.pending_activities

    await eventually(no_activity, what="no activity runs")


async def waiting(conversation: Conversation, *, calls: int = 1) -> tuple[str, ...]:
    """The ids of the calls that wait, once there are so many."""

    async def enough() -> tuple[str, ...]:
        status = await conversation.status()
        return tuple(call.call_id for call in status.waiting) if len(status.waiting) >= calls else ()

    return tuple(await eventually(enough, what=f"{calls} calls wait"))
