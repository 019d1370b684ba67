"""The worker: hosts agents, so that their conversations run here."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from importlib.metadata import version
from pathlib import Path
from typing import Any, Self

import temporalio.worker
from temporalio.worker import Interceptor, PollerBehavior, WorkerTuner

from everturn.activities.prefix_cache import PrefixCache
from everturn.activities.tool_contexts import MakeDeps
from everturn.client.client import Client
from everturn.errors import ConfigError, InvalidAgent, InvalidSetting, Unreachable
from everturn.hooks import Hooks
from everturn.limits import Budget, RateLimit
from everturn.settings import Settings
from everturn.sizes import shortened
from everturn.storage.artifacts import Artifacts
from everturn.temporal.heartbeat_profiles import ProfileName
from everturn.temporal.namespace import require_namespace
from everturn.temporal.worker_roles import Role
from everturn.validation.spelling import known_options
from everturn.worker.deployment import Deployment, of_settings, options
from everturn.worker.drain_deadline import drained
from everturn.worker.given_agents import Agents
from everturn.worker.hosting import Hosting
from everturn.worker.plugin import EverturnPlugin
from everturn.worker.traces import Traces

LOOK_SECONDS = 0.005
"""Between two checks whether a worker that starts is running."""


class Worker:
    """Hosts agents on a task queue: `async with Worker(client, agents=[clerk]): ...`, or `await Worker(...).run()`; or
    `await worker.start()` and later `await worker.stop()`, in a notebook or a web application's lifespan.

    Agents that are tools of others are hosted with them. Workers of one task queue may host different agents: a
    worker hands back work for agents that it lacks, and another takes it. It is a temporalio Worker with an
    EverturnPlugin; if you have a worker of your own, put the plugin onto that.

    - `task_queue`: the client's, unless given.
    - `roles`: what this worker does: `workflows`, `models`, `tools`. None: all of it, on one queue.
      What a worker with `workflows` leaves out, it sends to a task queue of its own, `<task_queue>-models` or
      `<task_queue>-tools`, and a worker with that role alone polls it. All are given the same `task_queue`.
    - `agents`: a list; or an AgentStore, or its function, which finds agents by name and version when they are
      needed.
    - `deps`: a function that makes an async context manager. It is opened when the worker starts, and closed when
      the worker has drained. Tools and other functions find what it yields (pools, clients) as `context.deps`.
    - `cached_conversations`: how many conversations stay in memory; it should exceed those that run at the same
      time.
      None: EVERTURN_CACHED_CONVERSATIONS, 1,000.
    - `max_prefix_bytes`: the memory for transcripts; None: EVERTURN_MAX_PREFIX_MB, 256 MiB.
    - `max_concurrent_activities`: model turns and tool calls at the same time; None: 200, or as a `tuner` says. A sync
      tool runs in a thread of its own.
    - `drain_timeout`: how long running activities may go on after a shutdown has begun, before they are handed over;
      None: EVERTURN_DRAIN_SECONDS, 100 s.
    - `journals`: a folder that outlives the process. If the worker dies, other workers on the machine find there
      what it was running.
    - `artifacts`: where to keep tool results that are too large for a transcript: a directory or a URL for fsspec;
      None: EVERTURN_ARTIFACTS, if set.
    - `deployment`: which version of the code this is, for Temporal's worker versioning; None: EVERTURN_DEPLOYMENT,
      if set.
    - `stream_every`: how often a turn that somebody follows sends its new text; None: EVERTURN_STREAM_SECONDS,
      or 0.2 s; if heartbeats are thrifty, with the ordinary ones.
    - `heartbeats`: how often it sends heartbeats, "quick" or "thrifty". None: EVERTURN_HEARTBEATS, or thrifty on
      Temporal Cloud, which bills each one, and quick elsewhere.
    - `traces`: True, or Traces(...): answers, model turns, tool calls and approvals are spans of OpenTelemetry. None:
      as EVERTURN_TRACES says.
    - `hooks`: for all its agents, before their own.
    - `rate_limits`: providers' limits that are known, such as {"openai": RateLimit(rpm=500)}: all workers of the task
      queue share them; None: EVERTURN_RATE_LIMITS. Limits that are not known are found out.
    - `budgets`: what tenants may use, by tenant, such as {"acme": Budget(usd_per_day=50)}; "*" is for those that are
      not named. It holds until somebody sets another one. None: EVERTURN_TENANT_BUDGETS.
    - `restored_at`: if the server's database was restored from a backup, a moment between the backup and the start of
      the restored server. `once` calls that may have run in the lost part then wait for a person. None:
      EVERTURN_RESTORED_AT, if set.
    - `interceptors`, `tuner`, `workflow_task_poller_behavior`, `activity_task_poller_behavior`,
      `max_activities_per_second` (of this worker), `max_task_queue_activities_per_second` (of all): as temporalio's
      Worker takes them.

    Raises InvalidAgent and InvalidSetting; starting it raises Unreachable, and InvalidSetting if the deps could not be
    opened.
    """

    @known_options("Worker", InvalidSetting)
    def __init__(
        self,
        client: Client,
        *,
        agents: Agents,
        deps: MakeDeps | None = None,
        task_queue: str | None = None,
        cached_conversations: int | None = None,
        max_prefix_bytes: int | None = None,
        max_concurrent_activities: int | None = None,
        drain_timeout: timedelta | None = None,
        journals: Path | None = None,
        artifacts: Artifacts | Path | str | None = None,
        deployment: Deployment | None = None,
        stream_every: timedelta | None = None,
        heartbeats: ProfileName | None = None,
        traces: Traces | bool | None = None,
        hooks: Sequence[Hooks] = (),
        rate_limits: Mapping[str, RateLimit] | None = None,
        budgets: Mapping[str, Budget] | None = None,
        restored_at: datetime | None = None,
        roles: Collection[Role] | None = None,
        interceptors: Sequence[Interceptor] = (),
        tuner: WorkerTuner | None = None,
        workflow_task_poller_behavior: PollerBehavior | None = None,
        activity_task_poller_behavior: PollerBehavior | None = None,
        max_activities_per_second: float | None = None,
        max_task_queue_activities_per_second: float | None = None,
    ) -> None:
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
        self._plugin = EverturnPlugin(
            agents,
            deps=deps,
            cached_conversations=cached_conversations,
            max_prefix_bytes=max_prefix_bytes,
            drain_timeout=drain_timeout,
            journals=journals,
            artifacts=artifacts,
            stream_every=stream_every,
            heartbeats=heartbeats,
            traces=traces,
            hooks=hooks,
            rate_limits=rate_limits,
            budgets=budgets,
            restored_at=restored_at,
            roles=roles,
        )
        self._plugin.hosted = replace(self._plugin.hosted, namespace=client.namespace)
        if not self._plugin.hosted.agents:
            raise InvalidAgent("A worker needs at least one agent.", cure="Write Worker(client, agents=[...]).")
        settings = Settings.load()
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
            self._options |= options(versioned)
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
        self._worker, self._running = worker, asyncio.create_task(worker.run(), name="everturn worker")
        try:
            while not (worker.is_running or self._running.done()):  # noqa: ASYNC110 - temporalio has no event for it
                await asyncio.sleep(LOOK_SECONDS)
        except asyncio.CancelledError:
            self._running.cancel()
            raise
        config = worker.config(active_config=True)
        began = all(one.began for one in config.get("interceptors", ()) if isinstance(one, Hosting))
        if self._running.done() or not began:
            await self.stop()

    async def stop(self) -> None:
        """Drains the worker: what runs may finish, or is handed over, and nothing new starts. Raises Unreachable if
        the worker had ended by itself because Temporal no longer accepted it."""
        worker, running = self._worker, self._running
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

    async def __aenter__(self) -> Self:
        await self.start()
        self._inside = asyncio.current_task()
        if self._running:
            self._running.add_done_callback(self._ended)
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

    def _ended(self, running: asyncio.Task[None]) -> None:
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
            with drained(within=self._plugin.drain_timeout):
                async with self:
                    await stop.wait()
        finally:
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(number)


def _first_words(error: BaseException) -> str:
    """Without most of the core's dump of the server's whole answer."""
    return shortened(" ".join(str(error).split()), max_bytes=200).rstrip(".")
