"""What one worker holds while it runs: the activities of its agents, the journal, heartbeats and memory."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import AsyncExitStack
from typing import Any, Final

from temporalio import activity
from temporalio.client import Client
from temporalio.common import MetricMeter
from temporalio.worker import (
    ActivityInboundInterceptor,
    Interceptor,
    WorkflowInboundInterceptor,
    WorkflowInterceptorClassInput,
)

from everturn import names
from everturn.activities.activity_errors import UnexpectedErrors
from everturn.activities.approvers import Approvers
from everturn.activities.attempts import Attempts
from everturn.activities.join_conversation import JoinConversation
from everturn.activities.keep_transcript import KeepTranscript
from everturn.activities.mcp_toolsets import Toolsets, check_installed
from everturn.activities.model_turns import ModelTurns
from everturn.activities.quarantine import Quarantine
from everturn.activities.result_checks import ResultChecks
from everturn.activities.tool_calls import ToolCalls
from everturn.activities.tool_contexts import ToolContexts
from everturn.activities.tool_times import ToolTimes
from everturn.activities.user_activities import ActivityThreads, is_users_own
from everturn.agent import Agent
from everturn.batching.sending import BatchSending
from everturn.batching.turns import BatchedTurns
from everturn.budgets.interceptor import TenantBudgets
from everturn.client import interpreter_exit
from everturn.client.pollers import find_pollers
from everturn.evaluations.worker import EvaluationHosting
from everturn.heartbeats.profile_choice import profile_for
from everturn.heartbeats.profile_interceptor import set_heartbeat_timeout
from everturn.heartbeats.profiles import QUICK
from everturn.heartbeats.throttle import ThrottledHeartbeats
from everturn.heartbeats.worker_heartbeats import Heartbeats
from everturn.live.configured_lane import lane_of
from everturn.live.heartbeat_text import TextStreaming
from everturn.live.live_addresses import announce_lane
from everturn.logs import get_logger, is_news
from everturn.lost_workers.journal import Journal
from everturn.lost_workers.poison_calls import LostTries
from everturn.prices import unpriced
from everturn.providers import model_call
from everturn.providers.rate_limits.limit_watch import LimitMetrics, watch_limits
from everturn.system import extras
from everturn.temporal.namespace import Namespace
from everturn.temporal.worker_roles import ALL, in_words
from everturn.text.iso_times import iso_time
from everturn.tools.user_code import MOST_THREADS
from everturn.webhooks.delivery_attempts import WebhookSending
from everturn.worker.child_tenants import HideTenants
from everturn.worker.gen_ai_metrics import GenAiMetrics, Sink, TemporalMeter
from everturn.worker.known_messages import KnownMessages
from everturn.worker.metrics import Metrics, meter_of
from everturn.worker.options import HostedOptions
from everturn.worker.role_queues import send_to_own_queues
from everturn.worker.trace_activities import TraceActivities, export_spans
from everturn.worker.workflow_steps import WorkflowSteps
from everturn.workflows.cancellation import CANCELLING

Work = Callable[[], Coroutine[Any, Any, None]]

AGAIN_SECONDS: Final = 1.0
"""A worker that was cancelled and has not ended by then is cancelled again."""

PREPARE_SECONDS: Final = 0.5
"""After its start, a worker imports what its first question to a model needs, if that was not asked before: what waits
for the worker comes first."""

STREAM_SECONDS: Final = 0.2
"""Between two beats of a turn that somebody follows, if heartbeats cost nothing."""

ASK_PROVIDERS: Final = (names.CALL_MODEL, names.SEND_BATCH, names.FOLLOW_BATCH, names.CANCEL_BATCH)

_log = get_logger("everturn.worker")


class Hosting(Interceptor):
    """One worker's interceptor. It sends the activities of conversations through everturn's own interceptors."""

    def __init__(
        self,
        hosted: HostedOptions,
        client: Client,
        *,
        task_queue: str,
        conversations: str,
        threads: int,
        throttle_is_open: bool,
        traces: TraceActivities | None,
    ) -> None:
        """`task_queue`: the one that it polls; `conversations`: the one where conversations are started."""
        self._task_queue = task_queue
        self._conversations = conversations
        self._roles = hosted.roles
        self.began = True
        """False once it is known that it can't: it stops as soon as it runs."""
        self._throttle_is_open = throttle_is_open
        self._agents = hosted.agents
        self._client = client
        self.threads = ActivityThreads(threads + MOST_THREADS)
        self.steps = WorkflowSteps()
        self._journal = Journal(
            hosted.journals, scope=journal_scope(client, task_queue), holds_conversations="workflows" in hosted.roles
        )
        self._profile = hosted.heartbeats or profile_for(None, client.service_client.config)
        self.heartbeats = Heartbeats(client, self._journal, self._profile)
        self._lane = lane_of(hosted.settings, client.data_converter)
        if any(agent.mcp_servers for agent in hosted.agents.values()):
            check_installed()
        self._toolsets = Toolsets(hosted.agents.values())
        self._contexts = ToolContexts(hosted.make_deps)
        self.known_messages = KnownMessages(hosted.prefixes)
        self.activities = self._make_activities(hosted, slots=threads)
        self._traces = traces
        meter = meter_of(client, task_queue=task_queue)
        self._metrics_setting = None if meter else hosted.settings.metrics
        """Set although Temporal's runtime shows its metrics to nobody."""
        self._known_limits = hosted.rate_limits
        self._restored_at = hosted.restored_at
        self._limit_metrics = LimitMetrics(meter) if meter else None
        self._evaluations = EvaluationHosting.for_worker(
            hosted, client, task_queue=conversations, meter=meter, traces=traces, profile=self._profile
        )
        self._budgets = TenantBudgets(client, task_queue=conversations, declared=hosted.budgets, pollers=find_pollers)
        # In this order, with the reasons that are in activities/model_turns.py.
        self._of_collectors: Sequence[Interceptor] = (Attempts(), UnexpectedErrors(), LostTries())
        self._interceptors: Sequence[Interceptor] = (
            *self._of_collectors,
            *_counting_interceptors(hosted, meter, traces),
            self._budgets,
        )

    def _make_activities(self, hosted: HostedOptions, *, slots: int) -> Sequence[Callable[..., Any]]:
        agents = hosted.agents
        heartbeats = self.heartbeats
        times = ToolTimes(local=hosted.local_tools)
        turns = ModelTurns(
            agents,
            prefixes=hosted.prefixes,
            heartbeats=heartbeats,
            namespace=hosted.namespace or Namespace(self._client),
            streaming=TextStreaming(
                hosted.stream_seconds or (STREAM_SECONDS if self._profile is QUICK else None), self._lane
            ),
            artifacts=hosted.artifacts,
            toolsets=self._toolsets,
            contexts=self._contexts,
            times=times,
            index_tenants=hosted.settings.index_tenants and not self._client.data_converter.payload_codec,
            batches=BatchedTurns(self._client, task_queue=self._conversations, settings=hosted.settings),
        )
        calls = ToolCalls(
            agents,
            prefixes=hosted.prefixes,
            heartbeats=heartbeats,
            threads=self.threads,
            artifacts=hosted.artifacts,
            toolsets=self._toolsets,
            contexts=self._contexts,
            times=times,
            quarantine=Quarantine(hosted.restored_at),
        )
        return [
            turns.call_model,
            turns.extend_prefix,
            Approvers(agents, heartbeats=heartbeats, contexts=self._contexts).check_decision,
            ResultChecks(agents, heartbeats=heartbeats, contexts=self._contexts).check_result,
            KeepTranscript(heartbeats).keep_transcript,
            JoinConversation(heartbeats).join_conversation,
            export_spans,
            *WebhookSending(
                agents, self._client, task_queue=self._conversations, heartbeats=heartbeats, slots=slots
            ).activities(),
            *BatchSending(
                agents, turns, self._client, task_queue=self._conversations, heartbeats=heartbeats
            ).activities(),
            *calls.activities(),
        ]

    @property
    def conversation_interceptors(self) -> Sequence[type[WorkflowInboundInterceptor]]:
        interceptors = [self.known_messages.interceptor]
        if self._profile is not QUICK:
            interceptors.append(set_heartbeat_timeout(self._profile.timeout, cancelled=self.heartbeats.hurry_run))
        if self._lane and "models" in self._roles:
            interceptors.append(announce_lane(self._lane))
        if self._roles != ALL:
            interceptors.append(send_to_own_queues(self._roles))
        return interceptors

    def workflow_interceptor_class(
        self,
        input: WorkflowInterceptorClassInput,  # noqa: A002 - temporalio's name
    ) -> type[WorkflowInboundInterceptor] | None:
        # A model turn that its conversation cancels need not wait for its next beat, if it runs here.
        input.unsafe_extern_functions[CANCELLING] = self.heartbeats.hurry_run
        return HideTenants if self._client.data_converter.payload_codec else None

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:  # noqa: A002
        info = activity.info()
        if is_users_own(info):
            self.heartbeats.begin_activity(info)
            if self._throttle_is_open:
                next = ThrottledHeartbeats(next)  # noqa: A001
        if info.workflow_type in names.BESIDE_CONVERSATIONS:
            for interceptor in reversed(self._of_collectors):
                next = interceptor.intercept_activity(next)  # noqa: A001
            return next
        if info.workflow_type != names.CONVERSATION:
            return next
        for interceptor in reversed(self._interceptors):
            next = interceptor.intercept_activity(next)  # noqa: A001
        return next

    async def run(self, work: Work, *, stop: Work) -> None:
        """Has the worker work, in `work`; `stop` stops it."""
        self.known_messages.begin()
        async with AsyncExitStack() as stack:
            stack.enter_context(self.threads)
            stack.callback(self.steps.shutdown, wait=False)
            stack.enter_context(self._journal)
            # Not awaited: so that what dead workers had in hand keeps no worker from starting.
            watch = asyncio.create_task(self._journal.watch_others(self._client))
            stack.callback(watch.cancel)
            limits = watch_limits(
                self._client,
                self._task_queue,
                self._known_limits,
                self._limit_metrics,
                activities="workflows" not in self._roles,
            )
            stack.callback(asyncio.create_task(limits).cancel)
            stack.enter_context(self.heartbeats)
            stack.push_async_callback(self._budgets.close)
            if self._lane:
                stack.push_async_callback(self._lane.close)
            if self._traces:
                stack.push_async_callback(self._traces.close)
            try:
                await stack.enter_async_context(self._contexts)
                await stack.enter_async_context(self._toolsets)
                if self._lane:
                    await self._lane.open()
            except BaseException:
                self.began = False
                # Whoever stops a worker waits until it has stopped; one that has never begun would never be done.
                stopping = asyncio.create_task(stop())
                await asyncio.wait({asyncio.create_task(work())})
                stopping.cancel()
                raise
            if self._evaluations:
                await stack.enter_async_context(self._evaluations)
            for agent in self._agents.values():
                _warn_of_unknown_cost(agent)
            if self._metrics_setting:
                cure = (
                    f"Call everturn.worker.metrics.expose({self._metrics_setting!r}) before the first client connects."
                )
                _log.warning("metrics.off", setting=f"EVERTURN_METRICS={self._metrics_setting}", cure=cure)
            leave_out_model_tracebacks()
            if "models" in self._roles:
                stack.callback(
                    asyncio.get_running_loop().call_later(PREPARE_SECONDS, model_call.import_protocols).cancel
                )
            more = {} if self._roles == ALL else {"roles": in_words(self._roles)}
            _log.info(
                "worker.started",
                agents=sorted(self._agents),
                task_queue=self._task_queue,
                heartbeats=self._profile.name,
                **more,
            )
            if self._restored_at:
                restored_at = iso_time(self._restored_at)
                effect = "once calls for messages of before wait for a person"
                _log.warning(
                    "worker.quarantine", restored_at=restored_at, effect=effect, cure="Once they are decided: unset it."
                )
            await _with_its_loop(work)
        _log.info("worker.stopped")


def _counting_interceptors(
    hosted: HostedOptions, meter: MetricMeter | None, traces: TraceActivities | None
) -> Iterator[Interceptor]:
    """`meter`: None if Temporal's runtime shows its metrics to nobody."""
    sinks: list[Sink] = []
    if meter:
        sinks.append(TemporalMeter(meter))
        yield Metrics(meter, prefixes=hosted.prefixes, tenants=hosted.settings.tenants_in_metrics)
    if traces:
        sinks.append(traces.meter)
        yield traces
    if sinks:
        yield GenAiMetrics(hosted.agents, sinks)


def journal_scope(client: Client, task_queue: str) -> dict[str, str]:
    """A worker hands back a dead worker's activities only if both have the same server, namespace and task queue."""
    server = client.service_client.config.target_host
    return {"server": server, "namespace": client.namespace, "task_queue": task_queue}


def names_of(activities: Sequence[Callable[..., Any]]) -> frozenset[str]:
    """The names under which they are called; the one that takes all others has none."""
    defined = (activity._Definition.must_from_callable(definition) for definition in activities)
    return frozenset(definition.name for definition in defined if definition.name)


async def _with_its_loop(work: Work) -> None:
    """Lets a program end even if it never leaves its worker.

    `asyncio.run` then cancels every task, also those that fetch the worker's tasks from Temporal. The worker waits for
    the tasks that were on their way, sometimes forever if it is not cancelled again. Activities are tasks of their own:
    they end by themselves, and report it. If only the worker is cancelled, it drains, for at most its drain timeout.
    """
    running = asyncio.create_task(work())
    try:
        await asyncio.wait({running})
    except asyncio.CancelledError:
        loop_ends = running.cancelling() > 0
        while not running.done():
            running.cancel()
            try:
                await asyncio.wait({running}, timeout=AGAIN_SECONDS if loop_ends else None)
            except asyncio.CancelledError:
                loop_ends = True
        raise
    finally:
        if running.cancelling():
            interpreter_exit.worker_was_cancelled()
    await running


def leave_out_model_tracebacks() -> None:
    """Of a model turn that failed, our own line is enough, also in a program that never called `logs.configure`:
    Temporal would add a traceback of fifty lines to "no key"."""
    logging.getLogger("temporalio.activity").addFilter(_is_no_model_traceback)


def _is_no_model_traceback(record: logging.LogRecord) -> bool:
    details = getattr(record, "temporal_activity", None)
    is_turn = isinstance(details, dict) and details.get("activity_type") in ASK_PROVIDERS
    return not is_turn or is_news(record)


def _warn_of_unknown_cost(agent: Agent) -> None:
    limit = agent.limits.max_cost_usd
    if limit is not None and (models := unpriced([agent.model, *agent.fallback_models])):
        cure = f"Run {extras.install('prices')}, or set Limits(max_total_tokens=)."
        _log.warning("cost.unknown", agent=agent.name, models=models, max_cost_usd=limit, effect="none", cure=cure)
