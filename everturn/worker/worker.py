"""The worker: hosts agents, so that their conversations run here."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Sequence
from dataclasses import replace
from importlib.metadata import version
from typing import Any, Self, Unpack

import temporalio.worker
from temporalio.worker import Interceptor, PollerBehavior, WorkerTuner

from everturn.activities.prefix_cache import PrefixCache
from everturn.client.client import Client, SyncClient
from everturn.errors import ConfigError, InvalidAgent, InvalidSetting, Unreachable
from everturn.temporal.namespace import require_namespace
from everturn.text.shortening import shortened
from everturn.validation.spelling import known_options
from everturn.worker.deployment import Deployment, of_settings, versioning_options
from everturn.worker.drain_deadline import drain_within
from everturn.worker.given_agents import Agents
from everturn.worker.hosting import Hosting
from everturn.worker.options import WorkerOptions
from everturn.worker.plugin import EverturnPlugin

LOOK_SECONDS = 0.005
"""Between two checks whether a worker that starts is running."""


class Worker:
    """Hosts agents on a task queue: `async with Worker(client, agents=[clerk]): ...`, or `await Worker(...).run()`; or
    `await worker.start()` and later `await worker.stop()`, in a notebook or a web application's lifespan. With a client
    of `Client.connect_sync()`, it is `with Worker(client, agents=[clerk]): ...`.

    Agents that are tools of others are hosted with them. Workers of one task queue may host different agents: a
    worker hands back work for agents that it lacks, and another takes it. It is a temporalio Worker with an
    EverturnPlugin; if you have a worker of your own, put the plugin onto that.

    - `agents`: a list; or an AgentStore, or its function, which finds agents by name and version when they are
      needed.
    - `task_queue`: the client's, unless given.
    - `max_concurrent_activities`: model turns and tool calls at the same time; None: 200, or as a `tuner` says. A sync
      tool runs in a thread of its own.
    - `deployment`: which version of the code this is, for Temporal's worker versioning; None: EVERTURN_DEPLOYMENT,
      if set.
    - `interceptors`, `tuner`, `workflow_task_poller_behavior`, `activity_task_poller_behavior`,
      `max_activities_per_second` (of this worker), `max_task_queue_activities_per_second` (of all): as temporalio's
      Worker takes them.
    - `options`: WorkerOptions, which EverturnPlugin takes, too.

    Raises InvalidAgent and InvalidSetting; starting it raises Unreachable, and InvalidSetting if the deps could not be
    opened.
    """

    @known_options("Worker", InvalidSetting, also=lambda: WorkerOptions.__annotations__)
    def __init__(
        self,
        client: Client | SyncClient,
        *,
        agents: Agents,
        task_queue: str | None = None,
        max_concurrent_activities: int | None = None,
        deployment: Deployment | None = None,
        interceptors: Sequence[Interceptor] = (),
        tuner: WorkerTuner | None = None,
        workflow_task_poller_behavior: PollerBehavior | None = None,
        activity_task_poller_behavior: PollerBehavior | None = None,
        max_activities_per_second: float | None = None,
        max_task_queue_activities_per_second: float | None = None,
        **options: Unpack[WorkerOptions],
    ) -> None:
        self._loop = client.loop if isinstance(client, SyncClient) else None
        """Of a sync client: `with` runs the worker there."""
        if isinstance(client, SyncClient):
            client = client.client
        if not isinstance(client, Client):
            raise InvalidSetting(
                f"Worker was given {client!r}, which is not an everturn.Client.",
                cure="Write Worker(await Client.connect(), ...), or "
                "Worker(Client(client), ...) for a client of temporalio.",
            )
        if tuner is not None and max_concurrent_activities is not None:
            raise InvalidSetting(
                "Worker was given both a tuner and max_concurrent_activities.",
                cure="Leave max_concurrent_activities out: the tuner decides.",
            )
        self._client = client
        self._plugin = EverturnPlugin(agents, **options)
        self._plugin.hosted = replace(self._plugin.hosted, namespace=client.namespace)
        if not self._plugin.hosted.agents:
            raise InvalidAgent("A worker needs at least one agent.", cure="Write Worker(client, agents=[...]).")
        settings = self._plugin.hosted.settings
        given = {
            "max_concurrent_activities": max_concurrent_activities,
            "tuner": tuner,
            "workflow_task_poller_behavior": workflow_task_poller_behavior,
            "activity_task_poller_behavior": activity_task_poller_behavior,
            "max_activities_per_second": max_activities_per_second,
            "max_task_queue_activities_per_second": max_task_queue_activities_per_second,
        }
        self._options: dict[str, Any] = {
            "task_queue": task_queue or client.task_queue,
            "interceptors": list(interceptors),
            **{name: value for name, value in given.items() if value is not None},
        }
        if versioned := deployment or of_settings(settings):
            self._options |= versioning_options(versioned)
        else:
            # It is in six events of each turn; the SDK's own would be a hash of 32 characters.
            self._options["build_id"] = settings.build_id or version("everturn")
        self._worker: temporalio.worker.Worker | None = None
        self._running: asyncio.Task[None] | None = None
        self._inside: asyncio.Task[Any] | None = None
        """The task that is in the worker's `async with` block."""

    @property
    def prefixes(self) -> PrefixCache:
        """Its memory of transcripts."""
        return self._plugin.hosted.prefixes

    # ------------------------------------------------------------ start and stop

    async def start(self) -> None:
        """Starts the worker; it works until `stop`. Raises Unreachable if Temporal does not accept it."""
        if self._running is not None:
            raise InvalidSetting("The worker was already started.", cure="Make a new Worker for each start.")
        await require_namespace(self._client.temporal)
        try:
            worker = temporalio.worker.Worker(self._client.temporal, plugins=[self._plugin], **self._options)
        except RuntimeError as error:  # the SDK has no other error for it
            raise InvalidSetting(
                f"Temporal's SDK makes no worker for the task queue {self._options['task_queue']!r}: "
                f"{_first_words(error)}.",
                cure="A client has one worker for each task queue. Stop the other one (`await worker.stop()`), or "
                "give this one a client of its own.",
            ) from None
        self._worker = worker
        self._running = asyncio.create_task(worker.run(), name="everturn worker")
        try:
            while not (worker.is_running or self._running.done()):  # noqa: ASYNC110 - temporalio has no event for it
                await asyncio.sleep(LOOK_SECONDS)
        except asyncio.CancelledError:
            self._running.cancel()
            raise
        config = worker.config(active_config=True)
        began = all(
            interceptor.began for interceptor in config.get("interceptors", ()) if isinstance(interceptor, Hosting)
        )
        if self._running.done() or not began:
            await self.stop()

    async def stop(self) -> None:
        """Drains the worker: what runs may finish, or is handed over, and nothing new starts. Raises Unreachable if
        the worker had ended by itself because Temporal no longer accepted it."""
        worker = self._worker
        running = self._running
        if worker is None or running is None:
            return
        stopping = asyncio.create_task(worker.shutdown())
        try:
            await asyncio.wait({running})
        except asyncio.CancelledError:
            running.cancel()
            raise
        finally:
            stopping.cancel()
        self._worker = self._running = None
        if running.cancelled():
            return
        error = running.exception()
        if isinstance(error, ConfigError):
            raise error
        if error:
            raise Unreachable(
                f"Temporal rejects this worker: {_first_words(error)}.", cure="`everturn doctor` checks the connection."
            ) from error

    def __enter__(self) -> Self:
        if self._loop is None:
            raise InvalidSetting(
                "Worker was used in a `with` block, and its client is not a sync one.",
                cure="Write `async with`, or make the client with Client.connect_sync().",
            )
        self._loop.run(self.start())
        return self

    def __exit__(self, *raised: object) -> None:
        from everturn.providers.connections import aclose

        assert self._loop is not None
        self._loop.run(self.stop())
        self._loop.run(aclose())

    async def __aenter__(self) -> Self:
        await self.start()
        self._inside = asyncio.current_task()
        if self._running:
            self._running.add_done_callback(self._cancel_block)
        return self

    async def __aexit__(self, *raised: object) -> None:
        self._inside = None
        try:
            await self.stop()
        except Unreachable as lost:
            # Nobody else is told why the block was cancelled; any other error of the block's is the more telling.
            error = raised[1] if raised else None
            if error is None or isinstance(error, asyncio.CancelledError):
                raise lost from lost.__cause__

    def _cancel_block(self, running: asyncio.Task[None]) -> None:
        """It ended by itself: so does the block."""
        if self._inside is not None and not running.cancelled() and running.exception():
            self._inside.cancel()

    async def run(self) -> None:
        """Works until SIGINT or SIGTERM, then drains: what runs may finish, or is handed over; nothing new starts. A
        second Ctrl-C or SIGTERM ends the process at once, with exit status 130 or 143."""
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop.set)
        try:
            with drain_within(within=self._plugin.hosted.drain_timeout):
                async with self:
                    await stop.wait()
        finally:
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(number)


def _first_words(error: BaseException) -> str:
    """Without most of the core's dump of the server's whole answer."""
    return shortened(" ".join(str(error).split()), max_bytes=200).rstrip(".")
