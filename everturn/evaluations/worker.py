"""A worker beside the conversations' worker, in the same process, if that has evaluators.

It polls a task queue of its own, and has its own limit of activities at once: a judge that is slow, or hangs, takes no
place from a conversation. Workers without evaluators, and those of earlier versions, are never given its work.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import timedelta
from importlib.metadata import version
from typing import Any, Final, Self

import temporalio.client
import temporalio.worker
from temporalio.client import Client
from temporalio.common import MetricMeter, WorkflowIDConflictPolicy
from temporalio.service import RPCError
from temporalio.worker import UnsandboxedWorkflowRunner

from everturn import names
from everturn.evaluations.answer_search import THRIFTY, AnswerSearch, LookPace
from everturn.evaluations.collector import EvaluationCollectorWorkflow
from everturn.evaluations.judge_activity import JudgeActivities
from everturn.evaluations.left_off import left_off
from everturn.evaluations.online_evaluators import OnlineEvaluator
from everturn.evaluations.reports import EvaluationReports
from everturn.evaluations.sampling import collector_id, evaluations_queue
from everturn.evaluations.workflow import EvaluationWorkflow
from everturn.heartbeats.profiles import QUICK, HeartbeatProfile
from everturn.logs import get_logger
from everturn.storage.unreadable import for_worker
from everturn.temporal.namespace import Namespace
from everturn.temporal.task_timeout import TASK_TIMEOUT
from everturn.worker.options import HostedOptions
from everturn.worker.trace_activities import TraceActivities

AT_ONCE: Final = 10
"""Answers that one worker judges at the same time."""

CACHED: Final = 100
"""Evaluations that it keeps in memory: each takes two workflow tasks."""

STICKY_TIMEOUT: Final = timedelta(seconds=2)
"""How long the next step of one waits for the worker that had it, before another one takes it."""

DRAIN: Final = timedelta(seconds=10)
"""How long judges may go on once the worker is told to stop; another worker then asks them anew."""

KEEP_SECONDS: Final = 300.0
"""How often it is made sure that somebody looks for answers."""

PACE: Final = LookPace()

_log = get_logger("everturn.evaluations")


class EvaluationHosting:
    """Enter it once the conversations' worker begins."""

    def __init__(
        self,
        evaluators: Mapping[str, OnlineEvaluator],
        client: Client,
        *,
        task_queue: str,
        namespace: Namespace,
        reports: EvaluationReports,
        pace: LookPace,
        build_id: str,
    ) -> None:
        self._client = _without_plugins(client)
        self._task_queue = task_queue
        self._build_id = build_id
        search = AnswerSearch(evaluators, task_queue=task_queue, namespace=namespace, pace=pace)
        judging = JudgeActivities(evaluators, reports.observe_judgement)
        self._activities: list[Callable[..., Any]] = [search.look_for_answers, judging.judge_answer]
        self._running: list[asyncio.Task[Any]] = []
        self._worker: temporalio.worker.Worker | None = None

    @classmethod
    def for_worker(
        cls,
        hosted: HostedOptions,
        client: Client,
        *,
        task_queue: str,
        meter: MetricMeter | None,
        traces: TraceActivities | None,
        profile: HeartbeatProfile,
    ) -> Self | None:
        """None if the worker has no evaluators."""
        if not hosted.evaluators:
            return None
        return cls(
            hosted.evaluators,
            client,
            task_queue=task_queue,
            namespace=hosted.namespace or Namespace(client),
            reports=EvaluationReports(meter, traces),
            pace=PACE if profile is QUICK else THRIFTY,
            build_id=hosted.settings.build_id or version("everturn"),
        )

    async def __aenter__(self) -> Self:
        self._worker = temporalio.worker.Worker(
            for_worker(self._client),
            task_queue=evaluations_queue(self._task_queue),
            workflows=[EvaluationWorkflow, EvaluationCollectorWorkflow],
            activities=self._activities,
            workflow_runner=UnsandboxedWorkflowRunner(),
            max_concurrent_activities=AT_ONCE,
            max_cached_workflows=CACHED,
            sticky_queue_schedule_to_start_timeout=STICKY_TIMEOUT,
            graceful_shutdown_timeout=DRAIN,
            build_id=self._build_id,  # the SDK's own is a hash of all modules
        )
        self._running = [asyncio.create_task(self._run_worker(self._worker)), asyncio.create_task(self._keep_looking())]
        return self

    async def __aexit__(self, *_: object) -> None:
        working, keeping = self._running
        keeping.cancel()
        if self._worker and not working.done():
            with suppress(Exception):
                await self._worker.shutdown()
        await asyncio.wait(self._running)

    async def _run_worker(self, worker: temporalio.worker.Worker) -> None:
        """Until it is shut down. If Temporal no longer accepts it, conversations go on without it."""
        try:
            await worker.run()
        except Exception as error:  # noqa: BLE001 - no conversation is to suffer for it
            _log.error("evaluations.stopped", error=f"{type(error).__name__}: {error}"[:500])

    async def _keep_looking(self) -> None:
        while True:
            try:
                await self._start_collector()
            except RPCError as error:
                _log.warning("evaluations.not_looking", error=error.message)
            await asyncio.sleep(KEEP_SECONDS)

    async def _start_collector(self) -> None:
        collector = collector_id(self._task_queue)
        start = await left_off(self._client, collector)
        await self._client.start_workflow(
            names.EVALUATION_COLLECTOR,
            start.model_dump(mode="json"),
            id=collector,
            task_queue=evaluations_queue(self._task_queue),
            task_timeout=TASK_TIMEOUT,
            id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
        )


def _without_plugins(client: Client) -> Client:
    """The client on the same connection. A worker of a client with everturn's plugin would host agents."""
    config = client.config(active_config=True)
    config["plugins"] = []
    return temporalio.client.Client(**config)
