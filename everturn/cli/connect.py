"""Connects a command to Temporal and to an agent: one that is hosted elsewhere, or one that this process hosts."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from everturn.errors import Ended, EverturnError, KeyMissing, Unreachable
from everturn.text.commands import command_about

if TYPE_CHECKING:
    from everturn.agent import Agent
    from everturn.cli.terminal import Screen
    from everturn.client.client import Client
    from everturn.client.conversation import Conversation
    from everturn.devserver import Endpoint
    from everturn.settings import Settings

DRAIN_TIMEOUT = timedelta(seconds=2)
"""Short, because somebody pressed Ctrl-C and waits."""

FIRST_LOOK_SECONDS = 1.0
"""How long a command goes without an answer before it looks whether there is a worker."""


@dataclass(frozen=True)
class AgentChoice:
    """The agent that the options choose: one made from them, or the name of one hosted elsewhere."""

    model: str | None
    tools: Sequence[Path]
    system: str
    agent: str | None

    @classmethod
    def from_options(
        cls, *, model: str | None, tools: Sequence[Path] | None, system: str, agent: str | None
    ) -> AgentChoice:
        """Raises typer.BadParameter if the options don't go together."""
        if agent and (tools or system):
            raise typer.BadParameter("it takes no --tool or --system: a hosted agent has its own", param_hint="--agent")
        if not agent and not model:
            how = "-m provider:name (`everturn models` lists them), or a hosted agent by --agent NAME"
            raise typer.BadParameter(f"which one? Name it with {how}", param_hint="--model")
        file = (agent or "").partition(":")[0]
        if file.endswith(".py") and Path(file).is_file():
            cure = f"host it by `everturn worker --agents {agent}`, and give the agent's name"
            raise typer.BadParameter(f"{agent} is a file: {cure}", param_hint="--agent")
        return cls(model, tools or (), system, agent)


@dataclass(frozen=True)
class Connection:
    client: Client
    agent: Agent | str
    """Only its name, if another process hosts it."""
    model: str | None
    """The model to ask in place of the agent's own."""
    prefix: str
    """What to put before a command for another terminal, so that it finds this server."""
    lasts: bool
    """Whether the server outlives this process."""


@asynccontextmanager
async def connect(
    choice: AgentChoice, conversation_id: str, *, screen: Screen, db: Path | None, joins: bool = False
) -> AsyncIterator[Connection]:
    """Everything that a conversation needs. If it starts a server and a worker, they end with the context. `joins`: a
    conversation of that id is taken as it is."""
    settings = _load_settings()
    if choice.agent:
        async with remote_client() as client:
            if not (joins and await _is_over(client, conversation_id)):
                await require_worker(client)
            yield Connection(client, choice.agent, choice.model, prefix="", lasts=True)
        return
    agent = make_agent(choice)
    quiet_logs(screen)
    from everturn.cli.server_watch import while_it_runs
    from everturn.client.client import Client
    from everturn.devserver import connect_or_start
    from everturn.worker.worker import Worker

    screen.show_busy("starting")
    async with AsyncExitStack() as stack:
        endpoint = await stack.enter_async_context(connect_or_start(db_filename=db))
        await stack.enter_async_context(while_it_runs(endpoint.server))
        # A task queue of its own: other workers don't know this agent, and this worker doesn't know theirs.
        queue = f"{settings.task_queue}-{conversation_id}"
        client = await Client.connect(task_queue=queue, **endpoint.options)
        await require_namespace(client)
        await stack.enter_async_context(Worker(client, agents=[agent], drain_timeout=DRAIN_TIMEOUT))
        yield Connection(client, agent, None, prefix=_command_prefix(endpoint), lasts=endpoint.server is None)


@asynccontextmanager
async def remote_client() -> AsyncIterator[Client]:
    """A client of the Temporal that the environment names, or else of one at the default address."""
    settings = _load_settings()
    quiet_logs(None)
    from everturn.client.client import Client

    yield await Client.connect(task_queue=settings.task_queue)


async def act_on(conversation_id: str, act: Callable[[Conversation], Awaitable[Any]]) -> Any:
    """Calls `act` with the conversation, and returns its result. Raises Ended, with the command that continues it."""
    async with remote_client() as client:
        looking = asyncio.create_task(_say_if_no_worker(client, conversation_id))
        try:
            return await act(client.conversation(conversation_id))
        except Ended as error:
            cure = f"`{command_about('send', conversation_id)} TEXT` continues it."
            raise Ended(error.message, cure=cure) from None
        finally:
            looking.cancel()


async def _say_if_no_worker(client: Client, conversation_id: str) -> None:
    """Says on stderr that nobody answers, if no worker polls the conversation's task queue. Raises nothing."""
    from temporalio.service import RPCError

    from everturn.client.unpolled_queue import AwaitedQueue, nobody_at
    from everturn.temporal import any_status
    from everturn.temporal.temporal_errors import WORKER_TIMEOUT_SECONDS

    await asyncio.sleep(FIRST_LOOK_SECONDS)
    try:
        described = await any_status.describe(client.temporal, conversation_id)
    except RPCError:
        return  # the command itself will say so
    queue = AwaitedQueue(described.task_queue, None)
    if unattended := await nobody_at(client.temporal, queue, conversation_id):
        words = f"{unattended.cause} {unattended.cure} Waiting {WORKER_TIMEOUT_SECONDS:.0f} s for it ..."
        typer.echo(words, err=True)


async def require_namespace(client: Client) -> None:
    """Raises Unreachable if Temporal does not know the namespace or denies us access: no worker could run there."""
    from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
    from temporalio.service import RPCError, RPCStatusCode

    from everturn.temporal.temporal_errors import unknown_namespace

    name = client.temporal.namespace
    try:
        await client.temporal.workflow_service.describe_namespace(DescribeNamespaceRequest(namespace=name))
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND:
            raise unknown_namespace(client.temporal) from error
        raise Unreachable(
            f"Temporal refuses access to the namespace {name!r}: {error.message.rstrip('.')}.",
            cure="Check TEMPORAL_NAMESPACE, and TEMPORAL_API_KEY if it needs one. `everturn doctor` tests both.",
        ) from error


async def _is_over(client: Client, conversation_id: str) -> bool:
    """Whether there is a conversation of that id, and it has its outcome: no worker is needed for that."""
    from temporalio.service import RPCError

    from everturn.temporal import any_status
    from everturn.temporal.temporal_errors import not_found

    try:
        return any_status.is_over(await any_status.describe(client.temporal, conversation_id))
    except RPCError as error:
        if not_found(error):
            return False
        raise


async def require_worker(client: Client) -> None:
    """Raises Unreachable if no worker would pick up a conversation: it would wait in silence."""
    from everturn.client.pollers import find_pollers

    if not await find_pollers(client.temporal, client.task_queue):
        address = client.temporal.service_client.config.target_host
        raise Unreachable(
            f"No worker polls the task queue {client.task_queue!r} at {address}.",
            cure="Start one that hosts the agent: everturn worker --agents FILE.py.",
        )


def make_agent(choice: AgentChoice) -> Agent:
    """The agent that the options describe, checked as far as it can be before anything starts."""
    assert choice.model is not None  # AgentChoice.from_options
    from everturn.models import Model
    from everturn.providers.catalog import resolve_endpoint

    try:
        resolve_endpoint(Model(choice.model))
    except KeyMissing as error:
        # Here the worker is this process; "where the worker runs" would puzzle.
        variable = error.variables[0]
        raise EverturnError(
            f"No key for {choice.model!r}: {variable} is not set.",
            cure=f"Set {variable}, or use another model: `everturn models` lists them.",
        ) from None
    from everturn.agent import Agent
    from everturn.loading import load_tools

    tools = [tool for path in choice.tools for tool in load_tools(path)]
    return Agent("assistant", model=choice.model, instructions=choice.system, tools=tools)


def quiet_logs(screen: Screen | None) -> None:
    """Shows only errors of the log (without a screen, only critical ones), unless the environment configures it."""
    from everturn import logs

    settings = _load_settings()
    if {"EVERTURN_LOG", "EVERTURN_LOG_LEVEL"} & os.environ.keys():
        logs.configure(format=settings.log, level=settings.log_level)
    else:
        logging.getLogger().handlers[:] = [_ScreenHandler(screen)]
    logs.forward_core_logs()


class _ScreenHandler(logging.Handler):
    def __init__(self, screen: Screen | None) -> None:
        super().__init__(logging.ERROR if screen else logging.CRITICAL)
        self._screen = screen

    def emit(self, record: logging.LogRecord) -> None:
        if self._screen:
            message = record.getMessage().partition(" ({'")[0]
            if record.exc_info and record.exc_info[1]:
                message += f": {record.exc_info[1]!r}"
            self._screen.print_line(f"! {record.name}: {message}"[:500], style="red")


def _load_settings() -> Settings:
    from everturn.settings import Settings

    return Settings.load()


def _command_prefix(endpoint: Endpoint) -> str:
    if not endpoint.server:
        return ""
    return f"TEMPORAL_ADDRESS={endpoint.address} "
