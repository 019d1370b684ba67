"""A worker process: everturn's own activities and workflow, in the place of whose core there is sdk_core.py.

It can be killed, which it does not notice; cut off from the server for a while; or told to stop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from contextvars import Context, copy_context
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zlib import crc32

import temporalio.client
import temporalio.common
from temporalio.api.common.v1 import Payloads
from temporalio.api.enums.v1 import WorkflowTaskFailedCause
from temporalio.api.history.v1 import HistoryEvent
from temporalio.bridge.proto.activity_task import ActivityCancellationDetails, Cancel, Start
from temporalio.worker._activity import _ActivityWorker, _RunningActivity

from everturn import Agent, Client
from everturn.activities.activity_errors import UnexpectedErrors
from everturn.activities.agent_store import AgentStore, FindAgent
from everturn.activities.approvers import Approvers
from everturn.activities.attempts import Attempts
from everturn.activities.hosted_agents import HostedAgents
from everturn.activities.keep_transcript import KeepTranscript
from everturn.activities.mcp_toolsets import Toolsets
from everturn.activities.model_turns import ModelTurns
from everturn.activities.prefix_cache import PrefixCache
from everturn.activities.tool_calls import ToolCalls
from everturn.activities.tool_contexts import ToolContexts
from everturn.activities.tool_times import ToolTimes
from everturn.batching.sending import BatchSending
from everturn.batching.turns import BatchedTurns
from everturn.heartbeats.worker_heartbeats import Heartbeats
from everturn.live.heartbeat_text import TextStreaming
from everturn.lost_workers.journal import Journal
from everturn.lost_workers.poison_calls import LostTries
from everturn.settings import Settings
from everturn.storage.unreadable import for_worker
from everturn.tools import user_code
from everturn.worker.known_messages import KnownMessages
from tests.simulation.agents.ledger import set_worker
from tests.simulation.machines.machines import Machine, SimulatedJournal
from tests.simulation.temporal import workflow_tasks
from tests.simulation.temporal.activities import Activity
from tests.simulation.temporal.clock import wrong_by
from tests.simulation.temporal.dispatch import QUEUE
from tests.simulation.temporal.history import now
from tests.simulation.temporal.local_activities import HOLDS_SECONDS, run_local
from tests.simulation.temporal.runs import Run, Task
from tests.simulation.temporal.sdk_commands import Nondeterminism, TaskFailure
from tests.simulation.temporal.sdk_core import CachedRun
from tests.simulation.temporal.sealing import converter
from tests.simulation.temporal.server import Server
from tests.simulation.temporal.service import SimulatedService, find_activity

if TYPE_CHECKING:
    from temporalio.bridge.proto.activity_result import ActivityExecutionResult

_NO_METRICS = temporalio.common.MetricMeter.noop


class SimulatedWorker:
    def __init__(
        self,
        server: Server,
        name: str,
        agents: Sequence[Agent],
        *,
        cached: int,
        prefix_bytes: int,
        sealed: bool = False,
        stored: bool = False,
        wrong_by: float = 0.0,
        clocks_locals: bool = False,
        machine: Machine | None = None,
        settings: Settings | None = None,
    ) -> None:
        self._wrong_by = wrong_by
        self.clocks_locals = clocks_locals
        """Local activities have time-outs and delays, and hold their workflow task for as long as they take."""
        self.server = server
        self.name = name
        self._agents = agents
        self.alive = True
        self.draining = False
        self.cached = cached
        """So many runs it keeps in memory."""
        self.runs: dict[str, CachedRun] = {}
        self._cut_off: asyncio.Future[None] | None = None
        self._tasks: dict[asyncio.Task[Any], None] = {}
        self._running: dict[bytes, _RunningActivity] = {}
        self.locals_ended: dict[bytes, Any] = {}
        service = SimulatedService(server, worker=self)
        self._sealed = sealed
        temporal = temporalio.client.Client(service, data_converter=converter(sealed=sealed))
        self._client = for_worker(temporal)
        client = Client(temporal, task_queue=QUEUE)
        hosted: Mapping[str, Agent] = {agent.name: agent for agent in agents}
        if stored:
            hosted = HostedAgents({}, AgentStore(self._finding(hosted)), complete=lambda agent: agent)
        contexts = ToolContexts()
        contexts.deps = name
        self.prefixes = PrefixCache(prefix_bytes)
        self._known_messages = KnownMessages(self.prefixes)
        times = ToolTimes()
        self._machine = machine
        self._journal = machine.journal() if machine else Journal(Path("nowhere"), scope={})
        heartbeats = Heartbeats(temporal, self._journal)
        self._toolsets = toolsets = Toolsets(agents)
        turns = ModelTurns(
            hosted,
            prefixes=self.prefixes,
            heartbeats=heartbeats,
            namespace=client.namespace,
            streaming=TextStreaming(0.2),
            toolsets=toolsets,
            contexts=contexts,
            times=times,
            batches=BatchedTurns(temporal, task_queue=QUEUE, settings=settings or Settings()),
        )
        options: dict[str, Any] = {"prefixes": self.prefixes, "heartbeats": heartbeats, "contexts": contexts}
        options["toolsets"] = toolsets
        calls = ToolCalls(hosted, threads=user_code._threads, times=times, **options)
        self._activities = _ActivityWorker(
            bridge_worker=lambda: self,  # type: ignore[arg-type, return-value]
            task_queue=QUEUE,
            activities=[
                turns.call_model,
                turns.extend_prefix,
                Approvers(hosted, heartbeats=heartbeats, contexts=contexts).check_decision,
                KeepTranscript(heartbeats).keep_transcript,
                *calls.activities(),
                *BatchSending(hosted, turns, temporal, task_queue=QUEUE, heartbeats=heartbeats).activities(),
            ],
            activity_executor=None,
            shared_state_manager=None,
            data_converter=self._client.data_converter,
            interceptors=[Attempts(), UnexpectedErrors(), LostTries()],
            metric_meter=_NO_METRICS,
            client=self._client,
            encode_headers=False,
        )
        self._activities._running_activities = self._running

    def _finding(self, known: Mapping[str, Agent]) -> FindAgent:
        async def find(name: str, version: str | None) -> Agent | None:
            chance = self.server.chances.of("store", self.name)
            await asyncio.sleep(chance.choice((0.0, 0.3, 3.0)))
            if chance.random() < 0.2:
                raise RuntimeError("the store is away")
            return known.get(name)

        return find

    @property
    def polls(self) -> bool:
        """It asks for tasks."""
        return self.alive and not self.draining and self._cut_off is None

    def start(self) -> None:
        self.server.note(f"{self.name} begins")
        self.server.workers.append(self)
        if any(agent.mcp_servers for agent in self._agents):
            self._spawn(self._toolsets.__aenter__())
        self.server.polls(self)
        if self._machine and isinstance(self._journal, SimulatedJournal):
            self._machine.began(self, self._journal)

    # ------------------------------------------------------------ how it ends

    def kill(self) -> None:
        """As SIGKILL does: from now on, nothing that it does has an effect."""
        self.server.count("kills")
        self.server.note(f"{self.name} is killed")
        self._gone(killed=True)
        for task in list(self._tasks):
            task.cancel()

    def _gone(self, *, killed: bool = False) -> None:
        self.alive = False
        if self._machine:
            self._machine.ended(self, killed=killed)
        self.server.workers.remove(self)
        self.server.drop_mcp(self)
        self.forget_all()

    def forget_all(self) -> None:
        for run in self.runs.values():
            with suppress(Exception):
                run.evict()
        self.runs.clear()

    def cut_off(self, seconds: float) -> None:
        """The network is gone for a while. What it says meanwhile comes late."""
        if self._cut_off or not self.alive:
            return
        self.server.count("network cuts")
        self.server.note(f"{self.name} is cut off for {seconds:g} s")
        self._cut_off = asyncio.get_running_loop().create_future()
        self.server.later(self._back, seconds=seconds)

    def _back(self) -> None:
        if self._cut_off:
            self._cut_off.set_result(None)
            self._cut_off = None
            if self.alive:
                self.server.polls(self)

    async def connected(self) -> None:
        while self._cut_off:
            await asyncio.shield(self._cut_off)

    async def stop(self, *, within: float) -> None:
        """As SIGTERM does: what runs may end, and is handed over after `within` seconds."""
        if not self.alive or self.draining:
            return
        self.server.count("drains")
        self.server.note(f"{self.name} is told to stop within {within:g} s")
        self.draining = True
        if running := [one.task for one in self._running.values() if one.task]:
            await asyncio.wait(running, timeout=within)
        if not self.alive:
            return
        if self._activities._worker_shutdown_event:
            self._activities._worker_shutdown_event.set()
        for token in list(self._running):
            details = ActivityCancellationDetails(is_worker_shutdown=True)
            self._activities._handle_cancel_activity_task(token, Cancel(details=details))
        if left := [one.task for one in self._running.values() if one.task]:
            await asyncio.wait(left, timeout=30.0)
        if self.alive:
            self._gone()

    # ------------------------------------------------------------ workflow tasks

    def take_workflow_task(self, run: Run, task: Task, events: list[HistoryEvent]) -> None:
        self._spawn(self._workflow_task(run, task, events))

    def _spawn(self, work: Any) -> asyncio.Task[Any]:
        task = asyncio.get_running_loop().create_task(work, context=self._context())
        self._tasks[task] = None
        task.add_done_callback(lambda ended: self._tasks.pop(ended, None))
        return task

    def _context(self) -> Context:
        """In which it is as late as this machine's clock says."""
        context = copy_context()
        context.run(wrong_by.set, self._wrong_by)
        context.run(set_worker, self)
        return context

    async def _workflow_task(self, run: Run, task: Task, events: list[HistoryEvent]) -> None:
        self._known_messages.begin()
        cached = self._cached(run)
        try:
            todo = cached.replay(events)
            assert todo, f"run {run.id} has no task to do"
            before = cached.done
            cached.begin(todo, [update.request for update in task.updates])
            holds_until = self.server.loop.time() + HOLDS_SECONDS
            await self._work(self.server.latency(run.chance))
            while cached.locals and await self._run_locals(cached, run, holds_until):
                pass
        except (Nondeterminism, TaskFailure) as error:
            self.server.wrong(f"run {run.id} of {run.workflow_id!r}: its workflow task failed: {error}")
            self._forget(run)
            cause = WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_WORKFLOW_WORKER_UNHANDLED_FAILURE
            self.server.task_failed(run, task, cause)
            return
        await self.connected()
        if not self.alive:
            return
        commands, speculative, goes_on = cached.finished(), task.speculative, bool(cached.locals)
        if workflow_tasks.complete(self.server, run, task, self, commands, cached.rejected, goes_on=goes_on):
            if run.closed or (self.cached == 0 and not goes_on and _is_forgotten(run, task)):
                self._forget(run)
        elif speculative and not commands and task.speculative:
            cached.not_written(before)
        else:
            self._forget(run)

    async def _work(self, seconds: float) -> None:
        """What a task takes: things come in meanwhile."""
        if seconds:
            await asyncio.sleep(seconds)

    async def _run_locals(self, cached: CachedRun, run: Run, until: float) -> bool:
        """Runs local activities, as a part of their workflow task; the first that ends goes on with it. False if the
        task can't be held any longer."""
        for local in cached.locals.values():
            asked = local.asked.schedule_local_activity
            local.task = local.task or self._spawn(run_local(self, asked, cached, run))
        waiting = {local.task: seq for seq, local in cached.locals.items()}
        left = max(0.0, until - self.server.loop.time())
        ended, _ = await asyncio.wait(waiting, timeout=left, return_when=asyncio.FIRST_COMPLETED)
        for task in sorted(ended, key=lambda one: waiting[one]):
            if waiting[task] in cached.locals:  # else the first of them has made the others pointless
                cached.resolve_local(waiting[task], *task.result())
        return bool(ended)

    def began(self, token: bytes, start: Start) -> _RunningActivity:
        """A task of an activity, which is run from now on."""
        self._running[token] = running = _RunningActivity()
        running.task = self._spawn(self._activities._handle_start_activity_task(token, start, running))
        return running

    async def run_here(self, token: bytes, start: Start) -> None:
        """The same, within the task at hand."""
        self._running[token] = running = _RunningActivity()
        running.task = asyncio.current_task()
        await self._activities._handle_start_activity_task(token, start, running)

    def cancel_activity(self, token: bytes, why: Cancel) -> None:
        if token in self._running and not self._running[token].done:
            self._activities._handle_cancel_activity_task(token, why)

    def _cached(self, run: Run) -> CachedRun:
        if run.id not in self.runs:
            interceptors = [self._known_messages.interceptor]
            self.runs[run.id] = CachedRun(run.id, sealed=self._sealed, interceptors=interceptors)
            while len(self.runs) > max(1, self.cached):
                self.runs.pop(next(iter(self.runs))).evict()
            self.server.count("replays from the beginning")
        return self.runs[run.id]

    def _forget(self, run: Run) -> None:
        if cached := self.runs.pop(run.id, None):
            cached.evict()

    def ask(self, run: Run, name: str, arguments: Sequence[Any]) -> Any:
        """Answers a query."""
        cached = self._cached(run)
        cached.replay(run.history.events)
        return cached.query(name, arguments)

    # ------------------------------------------------------------ activities

    def take_activity(self, activity: Activity) -> None:
        asked = activity.asked
        start = Start(
            workflow_namespace="default",
            workflow_type=activity.run.type,
            activity_id=asked.activity_id,
            activity_type=activity.name,
            input=asked.input.payloads,
            heartbeat_details=activity.details.payloads,
            scheduled_time=activity.scheduled.event_time,
            current_attempt_scheduled_time=activity.scheduled.event_time,
            attempt=activity.attempt,
            schedule_to_close_timeout=asked.schedule_to_close_timeout,
            start_to_close_timeout=asked.start_to_close_timeout,
            heartbeat_timeout=asked.heartbeat_timeout,
            retry_policy=asked.retry_policy,
        )
        start.workflow_execution.workflow_id = activity.run.workflow_id
        start.workflow_execution.run_id = activity.run.id
        start.started_time.CopyFrom(now())
        self.began(activity.token, start)

    async def complete_activity_task(self, completion: Any) -> None:
        """Called by the SDK when an activity is over."""
        await self._say(completion.task_token, completion.result)

    async def _say(self, token: bytes, result: ActivityExecutionResult) -> None:
        if token.startswith(b"local/"):
            self.locals_ended[token] = result
            return
        await self.connected()
        if not self.alive:
            return
        try:
            activity = find_activity(self.server, token)
        except temporalio.service.RPCError:
            return  # it was given to somebody else, or is not wanted any more
        if activity.worker is not self:
            return
        if result.HasField("completed"):
            activity.complete(Payloads(payloads=[result.completed.result]))
        elif result.HasField("cancelled"):
            if activity.cancel_requested:
                activity.cancelled(Payloads())
            else:
                activity.failed(result.cancelled.failure)
        else:
            activity.failed(result.failed.failure)

    def record_activity_heartbeat(self, heartbeat: Any) -> None:
        """Called by the SDK when an activity has something to say."""
        self._spawn(self._beat(heartbeat.task_token, Payloads(payloads=heartbeat.details)))

    async def _beat(self, token: bytes, details: Payloads) -> None:
        await self.connected()
        if not self.alive:
            return
        try:
            activity = find_activity(self.server, token)
            activity.heartbeat(details)
            cancel = (
                Cancel(details=ActivityCancellationDetails(is_cancelled=True)) if activity.cancel_requested else None
            )
        except temporalio.service.RPCError:
            cancel = Cancel(details=ActivityCancellationDetails(is_not_found=True))
        if cancel:
            self.cancel_activity(token, cancel)


def _is_forgotten(run: Run, task: Task) -> bool:
    """Of what a worker keeps nothing of, one task in three: replays of all that went before take most of the time."""
    return crc32(f"{run.id}/{task.started_id}".encode()) % 3 == 0
