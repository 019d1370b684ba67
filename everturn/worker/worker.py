"""The worker: hosts agents, so that their conversations run here."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterable, Sequence
from contextlib import AsyncExitStack
from datetime import timedelta
from importlib.metadata import version
from pathlib import Path
from typing import Any, Self

from temporalio.worker import UnsandboxedWorkflowRunner

from everturn import durations
from everturn.activities.approvers import Approvers
from everturn.activities.attempts import Attempts
from everturn.activities.export_spans import export_spans
from everturn.activities.heartbeat import Heartbeats
from everturn.activities.journal import Journal, default_folder
from everturn.activities.keep_transcript import KeepTranscript
from everturn.activities.lost_tries import LostTries
from everturn.activities.mcp_toolsets import Toolsets
from everturn.activities.model_turns import ModelTurns
from everturn.activities.prefixes import Prefixes
from everturn.activities.tool_calls import ToolCalls
from everturn.activities.user_activities import ActivityThreads
from everturn.agent import Agent, with_sub_agents
from everturn.client.client import Client
from everturn.errors import InvalidAgent, InvalidSetting, Unreachable
from everturn.logs import get_logger
from everturn.prices import unpriced
from everturn.settings import Settings
from everturn.spelling import known_options
from everturn.storage.artifacts import Artifacts
from everturn.storage.unreadable import for_worker
from everturn.tools import user_code
from everturn.tools.read_result import read_result_tool
from everturn.worker.deployment import Deployment, of_settings, options
from everturn.worker.gen_ai_metrics import GenAiMetrics, TemporalMeter
from everturn.worker.metrics import Metrics
from everturn.worker.shutdown import drained
from everturn.worker.temporal_worker import TemporalWorker
from everturn.worker.trace_activities import TraceActivities
from everturn.worker.traces import Traces, traces_of
from everturn.workflows import ConversationWorkflow
from everturn.workflows.call_headers import CallHeaders
from everturn.workflows.eager_dispatch import EagerDispatch

STICKY_TIMEOUT = timedelta(seconds=2)
"""How long a conversation's next step waits for the worker that had it before another one takes it."""

BEAT_THROTTLE = timedelta(milliseconds=20)
"""Activities pace their beats themselves; the SDK need not."""

_log = get_logger("everturn.worker")


class Worker:
    """Hosts agents on a task queue: `async with Worker(client, agents=[clerk]): ...`, or `await Worker(...).run()`.

    Agents that are tools of others are hosted with them. Workers of one task queue may host different agents: what one
    lacks, it hands back, and another takes it.

    - `task_queue`: the client's, unless given.
    - `cached_conversations`: how many keep their state in memory; it should exceed those that run at the same time.
      None: EVERTURN_CACHED_CONVERSATIONS, 1,000.
    - `max_prefix_bytes`: the memory for transcripts; None: EVERTURN_MAX_PREFIX_MB, 256 MiB.
    - `max_concurrent_activities`: model turns and tool calls at the same time. A sync tool runs in a thread of its own.
    - `drain_timeout`: how long running activities may go on after a shutdown has begun, before they are handed over;
      None: EVERTURN_DRAIN_SECONDS, 100 s.
    - `journals`: a folder that outlives the process, where other workers of the machine find what it had in hand when
      it dies.
    - `artifacts`: where tool results are kept whole that are too large for a transcript: a directory or a URL for
      fsspec; None: where EVERTURN_ARTIFACTS says, if it does.
    - `deployment`: which version of the code this is, for Temporal's worker versioning; None: what EVERTURN_DEPLOYMENT
      says, if it does.
    - `stream_every`: how often a turn that somebody follows as it is written says more; None: EVERTURN_STREAM_SECONDS,
      0.2 s.
    - `traces`: True, or Traces(...): answers, model turns, tool calls and approvals are spans of OpenTelemetry. None:
      as EVERTURN_TRACES says.

    Raises InvalidAgent and InvalidSetting; entering it raises Unreachable.
    """

    @known_options("Worker", InvalidSetting)
    def __init__(
        self,
        client: Client,
        *,
        agents: Sequence[Agent],
        task_queue: str | None = None,
        cached_conversations: int | None = None,
        max_prefix_bytes: int | None = None,
        max_concurrent_activities: int = 200,
        drain_timeout: timedelta | None = None,
        journals: Path | None = None,
        artifacts: Artifacts | Path | str | None = None,
        deployment: Deployment | None = None,
        stream_every: timedelta | None = None,
        traces: Traces | bool | None = None,
    ) -> None:
        if not isinstance(client, Client):
            raise InvalidSetting(
                f"Worker was given {client!r}, which is no everturn.Client.",
                cure="Write Worker(await Client.connect(), ...), or Worker(Client(it), ...) if it is temporalio's.",
            )
        self._client = client
        settings = Settings.load()
        if drain_timeout is None:
            drain_timeout = timedelta(seconds=settings.drain_seconds)
        _check_duration("drain_timeout", drain_timeout, may_be_zero=True)
        if stream_every is not None:
            _check_duration("stream_every", stream_every)
        self._stream_seconds = stream_every.total_seconds() if stream_every else settings.stream_seconds
        kept_at = artifacts or settings.artifacts
        self._artifacts = Artifacts.at(kept_at) if isinstance(kept_at, str | Path) else kept_at
        self._agents = {name: self._with_reader(agent) for name, agent in _hosted(agents).items()}
        self._task_queue = task_queue or client.task_queue
        cached = settings.cached_conversations if cached_conversations is None else cached_conversations
        wanted = traces_of(traces, settings)
        self._traces = TraceActivities(wanted, self._agents) if wanted else None
        self._options: dict[str, Any] = {
            "task_queue": self._task_queue,
            "max_cached_workflows": cached,
            "max_concurrent_activities": max_concurrent_activities,
            "graceful_shutdown_timeout": drain_timeout,
        }
        if versioned := deployment or of_settings(settings):
            self._options |= options(versioned)
        else:
            # It is in six events of each turn; the SDK's own would be a hash of 32 characters.
            self._options["build_id"] = settings.build_id or version("everturn")
        self._journals = journals or default_folder()
        self._threads = max_concurrent_activities
        self.prefixes = Prefixes(settings.max_prefix_mb * 1024**2 if max_prefix_bytes is None else max_prefix_bytes)
        self._stack = AsyncExitStack()
        self._fatal: BaseException | None = None

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            threads = stack.enter_context(ActivityThreads(self._threads + user_code.MOST_THREADS))
            journal = stack.enter_context(Journal(self._journals, scope=self._scope()))
            await journal.hand_back(self._client.temporal)
            watch = asyncio.create_task(journal.watch(self._client.temporal))
            stack.callback(watch.cancel)
            heartbeats = stack.enter_context(Heartbeats(self._client.temporal, journal))
            toolsets = await stack.enter_async_context(Toolsets(self._agents.values()))
            if self._traces:
                stack.push_async_callback(self._traces.close)
            turns = ModelTurns(
                self._agents,
                prefixes=self.prefixes,
                heartbeats=heartbeats,
                namespace=self._client.namespace,
                stream_seconds=self._stream_seconds,
                artifacts=self._artifacts,
                toolsets=toolsets,
            )
            calls = ToolCalls(
                self._agents,
                prefixes=self.prefixes,
                heartbeats=heartbeats,
                threads=threads,
                artifacts=self._artifacts,
                toolsets=toolsets,
            )
            await stack.enter_async_context(
                TemporalWorker(
                    for_worker(self._client.temporal),
                    workflows=[ConversationWorkflow],
                    activities=[
                        turns.call_model,
                        turns.extend_prefix,
                        Approvers(self._agents, heartbeats=heartbeats).check_decision,
                        KeepTranscript(heartbeats).keep_transcript,
                        export_spans,
                        *calls.activities(),
                    ],
                    activity_executor=threads,
                    # The sandbox guards user code from itself, and there is none in this workflow: test_determinism.py.
                    workflow_runner=UnsandboxedWorkflowRunner(),
                    sticky_queue_schedule_to_start_timeout=STICKY_TIMEOUT,
                    max_heartbeat_throttle_interval=BEAT_THROTTLE,
                    default_heartbeat_throttle_interval=BEAT_THROTTLE,
                    interceptors=[
                        Attempts(),
                        EagerDispatch(),
                        CallHeaders(),
                        LostTries(),
                        Metrics(self._client.temporal, task_queue=self._task_queue, prefixes=self.prefixes),
                        *([self._traces] if self._traces else []),
                        GenAiMetrics(
                            self._agents,
                            [
                                TemporalMeter(self._client.temporal, task_queue=self._task_queue),
                                *([self._traces.meter] if self._traces else []),
                            ],
                        ),
                    ],
                    on_fatal_error=self._remember,
                    **self._options,
                )
            )
            self._stack = stack.pop_all()
        for agent in self._agents.values():
            _warn_of_unknown_cost(agent)
        _log.info("worker.started", agents=sorted(self._agents), task_queue=self._task_queue)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()
        _log.info("worker.stopped")

    def _with_reader(self, agent: Agent) -> Agent:
        """The agent with the tool that reads what the store keeps, if there is one."""
        if self._artifacts is None:
            return agent
        return agent.with_tools(read_result_tool(self._artifacts, max_result_chars=agent.limits.max_result_chars))

    def _scope(self) -> dict[str, str]:
        temporal = self._client.temporal
        server = temporal.service_client.config.target_host
        return {"server": server, "namespace": temporal.namespace, "task_queue": self._task_queue}

    async def _remember(self, error: BaseException) -> None:
        self._fatal = error

    async def run(self) -> None:
        """Works until SIGINT or SIGTERM, then drains: what runs may finish, or is handed over; nothing new starts. A
        second Ctrl-C or SIGTERM ends the process at once, with exit status 130 or 143."""
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop.set)
        try:
            with drained(within=self._options["graceful_shutdown_timeout"]):
                async with self:
                    await stop.wait()
        except asyncio.CancelledError:
            # Temporal's worker cancels whoever runs it when the server will not have it.
            if self._fatal is None:
                raise
            raise Unreachable(
                f"Temporal does not take this worker: {self._fatal}.", cure="`everturn doctor` looks at the connection."
            ) from self._fatal
        finally:
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(number)


def _check_duration(option: str, value: object, *, may_be_zero: bool = False) -> None:
    if why := durations.problem(value, may_be_zero=may_be_zero):
        raise InvalidSetting(f"The worker has {option}={value!r}.", cure=why)


def _warn_of_unknown_cost(agent: Agent) -> None:
    limit = agent.limits.max_cost_usd
    if limit is not None and (models := unpriced([agent.model, *agent.fallback_models])):
        cure = "Install everturn[prices], or set Limits(max_total_tokens=)."
        _log.warning("cost.unknown", agent=agent.name, models=models, max_cost_usd=limit, effect="none", cure=cure)


def _hosted(agents: Sequence[Agent]) -> dict[str, Agent]:
    if isinstance(agents, Agent | str) or not isinstance(agents, Iterable):
        raise InvalidAgent(f"A worker was given agents={agents!r}, which is not a list.", cure="Write agents=[...].")
    agents = list(agents)
    if not agents:
        raise InvalidAgent("A worker needs at least one agent.", cure="Write Worker(client, agents=[...]).")
    for place, one in enumerate(agents):
        if not isinstance(one, Agent):
            raise InvalidAgent(
                f"agents[{place}] of a worker is {one!r}, of type {type(one).__name__}.", cure="Give an Agent."
            )
    return with_sub_agents(agents)
