"""The plugin: puts everturn onto a Temporal worker, beside what the application has there."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, Unpack, cast

import temporalio.client
import temporalio.worker
from temporalio.client import ClientConfig, WorkflowHistory
from temporalio.common import VersioningBehavior
from temporalio.converter import DataConverter
from temporalio.service import ConnectConfig, ServiceClient
from temporalio.worker import (
    Replayer,
    ReplayerConfig,
    UnsandboxedWorkflowRunner,
    WorkerConfig,
    WorkerDeploymentConfig,
    WorkflowInboundInterceptor,
    WorkflowReplayResult,
)
from temporalio.workflow import _Definition

from everturn import names
from everturn.activities.hosted_agents import HostedAgents
from everturn.batching.collector import BatchCollectorWorkflow
from everturn.budgets.workflow import TenantBudgetWorkflow
from everturn.client.worker_reports import plugin_name
from everturn.errors import InvalidSetting
from everturn.evaluations.collector import EvaluationCollectorWorkflow
from everturn.evaluations.workflow import EvaluationWorkflow
from everturn.limits import Limits
from everturn.logs import get_logger
from everturn.settings import Settings
from everturn.storage.codecs import with_encryption
from everturn.storage.composed_converter import own_client, shared_converter
from everturn.storage.encryption import Encryption
from everturn.storage.unreadable import for_replayer, for_worker
from everturn.temporal.versioned_queues import add_versioned_queue
from everturn.temporal.worker_roles import polled_by
from everturn.validation.spelling import known_options
from everturn.webhooks.delivery_workflow import WebhookWorkflow
from everturn.worker import clashes
from everturn.worker.config_warnings import DEFAULTS, warnings_of
from everturn.worker.given_agents import Agents
from everturn.worker.hosting import Hosting
from everturn.worker.options import HostedOptions, WorkerOptions
from everturn.worker.trace_activities import TraceActivities
from everturn.worker.unsandboxed_runner import ConversationRunner
from everturn.workflows.conversation import ConversationWorkflow

if TYPE_CHECKING:
    from temporalio.worker import WorkerConfig

ACTIVITIES_AT_ONCE: Final = 200
"""Model turns and tool calls at the same time; temporalio's own default is 100."""

WORKFLOW_TASKS_AT_ONCE: Final = 20
"""Conversations that take a step, or are replayed, at the same time; temporalio's own default is 100. They share one
interpreter, so more are no quicker. But a worker that begins with 60 conversations of 50 turns replays for 6 s: all at
once, none is done within the 5 s that the server waits for it, and each is replayed four times (decision 0040)."""

STICKY_TIMEOUT: Final = timedelta(seconds=2)
"""How long a conversation's next step waits for the worker that had it before another one takes it."""

BEAT_THROTTLE: Final = timedelta(milliseconds=20)
"""Activities pace their beats themselves; the SDK need not."""

MOST_THREADS_WITH_A_TUNER: Final = 10_000
"""A tuner says itself how many activities run at the same time. Threads are made as they are needed."""

BRING_A_CONVERTER: Final = frozenset({"OpenAIAgentsPlugin"})
"""Names of plugins that set a payload converter of their own, and refuse a client that has one other than temporalio's.
On workers and in everturn's client, everturn's converter is put beside theirs all the same."""

OUR_WORKFLOWS: Final = (ConversationWorkflow, TenantBudgetWorkflow, BatchCollectorWorkflow, WebhookWorkflow)
REPLAYED: Final = (*OUR_WORKFLOWS, EvaluationWorkflow, EvaluationCollectorWorkflow)
"""All of everturn's workflows. The last two have workers of their own: evaluations/worker.py."""

_NEWEST: Final = VersioningBehavior.AUTO_UPGRADE

_log = get_logger("everturn.worker")


class EverturnPlugin(temporalio.client.Plugin, temporalio.worker.Plugin):
    """Hosts agents on the workers of an application: `Worker(client, plugins=[EverturnPlugin(agents=[clerk])], ...)`.

    Their workflows, activities, interceptors, data converter and codec stay as they are; conversations go through the
    interceptors and the codec, too. It sets the worker's settings that have temporalio's defaults, and logs a
    warning for given ones that slow conversations down.

    If you give it to a client (`Client.connect(plugins=[...])`), each worker of that client has it, and the client can
    start conversations like any workflow; without agents, it does only that. On a `Replayer`, conversations are
    replayed with the application's workflows. `WorkflowEnvironment` takes it like a client.

    - `agents`: a list; or an AgentStore or its function, which finds agents by name and version when they are needed.
    - `prefix`: put before a tool's name in its activity's name, as in `agent_look_up`. Use it if the application has an
      activity with the name of a tool. Models and people see the tool's name, Temporal the activity's.
    - `options`: WorkerOptions, as Worker takes them. `cached_conversations` is the worker's max_cached_workflows, and
      `drain_timeout` its graceful_shutdown_timeout.

    Raises InvalidAgent and InvalidSetting; so does making a worker that it doesn't fit.
    """

    @known_options("EverturnPlugin", InvalidSetting, also=lambda: WorkerOptions.__annotations__)
    def __init__(self, agents: Agents = (), *, prefix: str = "", **options: Unpack[WorkerOptions]) -> None:
        self.hosted = HostedOptions.from_options(agents, options, prefix=prefix)
        self._traces = self._make_traces()
        """For the next worker. Made here, so that a wrong setting raises here."""

    def _make_traces(self) -> TraceActivities | None:
        if self.hosted.traces is None:
            return None
        return TraceActivities(self.hosted.traces, self.hosted.agents, self.hosted.prefixes)

    def name(self) -> str:
        """Contains the names of the hosted agents: temporalio sends it to the server, where clients read it."""
        agents = self.hosted.agents
        if not agents:
            return names.PLUGIN
        hidden = self.hosted.settings.visibility == "minimal" or (
            isinstance(agents, HostedAgents) and agents.store is not None
        )
        return plugin_name(None if hidden else agents, roles=self.hosted.roles)

    # ------------------------------------------------------------ clients

    def configure_client(self, config: ClientConfig) -> ClientConfig:
        encryption = Encryption.of_settings(Settings.load())
        converter = config["data_converter"]
        if not any(later.name() in BRING_A_CONVERTER for later in _plugins_after(self, config["plugins"])):
            converter = shared_converter(converter)
        config["data_converter"] = with_encryption(converter, encryption)
        return config

    async def connect_service_client(
        self,
        config: ConnectConfig,
        next: Callable[[ConnectConfig], Awaitable[ServiceClient]],  # noqa: A002 - temporalio's name
    ) -> ServiceClient:
        return await next(config)

    # ------------------------------------------------------------ workers

    def configure_worker(self, config: WorkerConfig) -> WorkerConfig:
        client = config["client"]
        config["client"] = for_worker(client)
        if not self.hosted.agents:
            return config
        if self.hosted.artifacts:  # what is too large for a history is no less secret
            self.hosted.artifacts.encode_with(client.data_converter.payload_codec)
        given = dict(config)
        for name, value in self._default_settings(config).items():
            if _is_unset(config, name):
                cast("dict[str, Any]", config)[name] = value
        roles = self.hosted.roles
        conversations = config["task_queue"]
        config["task_queue"] = polled_by(conversations, roles)
        hosting = Hosting(
            self.hosted,
            own_client(client),
            task_queue=config["task_queue"],
            conversations=conversations,
            threads=config.get("max_concurrent_activities") or MOST_THREADS_WITH_A_TUNER,
            throttle_is_open=config["max_heartbeat_throttle_interval"] <= BEAT_THROTTLE,
            traces=self._traces or self._make_traces(),
        )
        self._traces = None
        application_activities = config.get("activities", ())
        # An activity of theirs may be a tool, too: it is there already.
        added = [activity for activity in hosting.activities if activity not in application_activities]
        clashes.refuse_clashes(given, added)
        clashes.refuse_roles(given, roles)
        if "workflows" in roles:
            if _versioning(config):
                add_versioned_queue(conversations)
            config["workflows"] = [*config.get("workflows", ()), *self._registered_workflows(config)]
            # What runs elsewhere is not polled for here; tools with local=True run here all the same.
            config["no_remote_activities"] = config.get("no_remote_activities", False) or roles == {"workflows"}
        config["activities"] = [*application_activities, *added]
        if config.get("activity_executor") is None:
            config["activity_executor"] = hosting.threads
        if config.get("workflow_task_executor") is None:
            config["workflow_task_executor"] = hosting.steps
        config["interceptors"] = [*config.get("interceptors", ()), hosting]
        _run_conversations(cast("dict[str, Any]", config), client.data_converter, *hosting.conversation_interceptors)
        for warning in warnings_of(given):
            _log.warning("worker.setting", setting=warning.setting, costs=warning.what, cure=warning.cure)
        return config

    def _default_settings(self, config: WorkerConfig) -> dict[str, Any]:
        """Values for worker settings that the application leaves at temporalio's defaults."""
        # An executor has as many threads as its application gave it: more activities would wait for one in silence.
        counted = config.get("tuner") is not None or config.get("activity_executor") is not None
        return {
            "max_cached_workflows": self.hosted.cached_conversations,
            "graceful_shutdown_timeout": self.hosted.drain_timeout,
            "sticky_queue_schedule_to_start_timeout": STICKY_TIMEOUT,
            "max_heartbeat_throttle_interval": BEAT_THROTTLE,
            "default_heartbeat_throttle_interval": BEAT_THROTTLE,
            "max_concurrent_activities": None if counted else ACTIVITIES_AT_ONCE,
            "max_concurrent_workflow_tasks": _tasks_at_once(config),
            "max_workflow_task_external_storage_concurrency": _payloads_at_once(config),
            # A reply's calls begin here at once, without a way through the server's queue. temporalio's default is 3.
            "max_eager_activity_reservations_per_workflow_task": max(
                (agent.limits.max_parallel_calls for agent in self.hosted.agents.values()),
                default=Limits().max_parallel_calls,  # of a store's agents, nobody knows them yet
            ),
        }

    def _registered_workflows(self, config: WorkerConfig) -> list[type]:
        """The workflows to register. On a worker with versioning but no default behavior, each has to have its own."""
        versioning = _versioning(config)
        if versioning is None or versioning.default_versioning_behavior is not VersioningBehavior.UNSPECIFIED:
            return list(OUR_WORKFLOWS)
        behavior = VersioningBehavior[self.hosted.settings.versioning.upper()]
        # A budget never ends, and no version of the code may have to stay for it.
        return [
            _with_versioning(ConversationWorkflow, behavior),
            *(_with_versioning(workflow, _NEWEST) for workflow in OUR_WORKFLOWS[1:]),
        ]

    async def run_worker(
        self,
        worker: temporalio.worker.Worker,
        next: Callable[[temporalio.worker.Worker], Awaitable[None]],  # noqa: A002 - temporalio's name
    ) -> None:
        async def run_next() -> None:
            await next(worker)

        config = worker.config(active_config=True)
        hostings = [interceptor for interceptor in config.get("interceptors", ()) if isinstance(interceptor, Hosting)]
        runner = config.get("unsandboxed_workflow_runner")
        if isinstance(runner, ConversationRunner):
            runner.release = worker._bridge_worker.request_workflow_eviction
        if self.hosted.agents:
            workflows = config.get("workflows", ())
            if workflows and all(issubclass(workflow, OUR_WORKFLOWS) for workflow in workflows):
                _let_take_its_time(worker)
                hostings[0].steps.only_ours = True
            hostings[0].heartbeats.take_from(worker)
            await hostings[0].run(run_next, stop=worker.shutdown)
        else:
            await run_next()

    # ------------------------------------------------------------ replays

    def configure_replayer(self, config: ReplayerConfig) -> ReplayerConfig:
        converter = config.get("data_converter") or DataConverter.default
        config["data_converter"] = for_replayer(shared_converter(converter))
        workflows = config.get("workflows", ())
        missing = [workflow for workflow in REPLAYED if workflow not in workflows]
        config["workflows"] = [*workflows, *missing]
        _run_conversations(cast("dict[str, Any]", config), converter)
        return config

    def run_replayer(
        self,
        replayer: Replayer,
        histories: AsyncIterator[WorkflowHistory],
        next: Callable[  # noqa: A002 - temporalio's name
            [Replayer, AsyncIterator[WorkflowHistory]],
            AbstractAsyncContextManager[AsyncIterator[WorkflowReplayResult]],
        ],
    ) -> AbstractAsyncContextManager[AsyncIterator[WorkflowReplayResult]]:
        return next(replayer, histories)


def _versioning(config: WorkerConfig) -> WorkerDeploymentConfig | None:
    """None if the worker belongs to no version of a deployment."""
    deployment = config.get("deployment_config")
    if deployment is None or not deployment.use_worker_versioning:
        return None
    return deployment


def _with_versioning(workflow: type, behavior: VersioningBehavior) -> type:
    versioned = type(workflow.__name__, (workflow,), {})
    known = _Definition.must_from_class(workflow)
    setattr(versioned, "__temporal_workflow_definition", replace(known, cls=versioned, versioning_behavior=behavior))
    return versioned


def _plugins_after(plugin: object, plugins: Sequence[temporalio.client.Plugin]) -> Sequence[temporalio.client.Plugin]:
    """The plugins that are given after this one."""
    positions = [place for place, other in enumerate(plugins) if other is plugin]
    if not positions:
        return ()
    return plugins[positions[0] + 1 :]


def _let_take_its_time(worker: temporalio.worker.Worker) -> None:
    """Turns off the SDK's check for deadlocks: it takes a workflow task of 2 seconds for a deadlock in a user's code,
    and throws an exception into its thread. everturn's workflows run no code of a user's: they are only slow if the
    machine is busy, and an exception at the wrong moment can keep the worker from ever releasing the conversation. The
    server's timeout of the task stays. `debug_mode` would run the workflow on the event loop. A worker that also runs
    an application's workflows keeps the check."""
    workflows: Any = worker._workflow_worker
    assert hasattr(workflows, "_deadlock_timeout_seconds"), "temporalio has renamed it"
    workflows._deadlock_timeout_seconds = None


def _run_conversations(
    config: dict[str, Any], converter: DataConverter, *more: type[WorkflowInboundInterceptor]
) -> None:
    runner = config.get("unsandboxed_workflow_runner") or UnsandboxedWorkflowRunner()
    config["unsandboxed_workflow_runner"] = ConversationRunner(runner, converter, interceptors=more)


def _is_unset(config: WorkerConfig, name: str) -> bool:
    return bool(cast("dict[str, Any]", config).get(name) == DEFAULTS[name])


def _tasks_at_once(config: Mapping[str, Any]) -> int | None:
    """For a worker with this configuration that does not say itself; None if its tuner does."""
    if config.get("tuner") is not None:
        return None
    return max(WORKFLOW_TASKS_AT_ONCE, config.get("max_concurrent_workflow_task_polls") or 0)


def _payloads_at_once(config: WorkerConfig) -> int:
    """How many payloads of one workflow task are stored or fetched together, if there is an external storage. Without
    one there is nothing to wait for, and more than one would make an asyncio task of each payload, in each task."""
    if config["client"].data_converter.external_storage is None:
        return 1
    return config["max_workflow_task_external_storage_concurrency"]
