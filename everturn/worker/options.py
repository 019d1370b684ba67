"""What a worker is told: the options as they are given, and as they hold once the settings have filled them in."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Literal, Self, TypedDict, TypeVar

from everturn.activities.hosted_agents import HostedAgents
from everturn.activities.prefix_cache import PrefixCache
from everturn.activities.tool_contexts import MakeDeps
from everturn.budgets.records import BudgetTerms, declared_budgets
from everturn.errors import InvalidSetting
from everturn.evaluations.online_evaluators import OnlineEvaluator, checked_evaluators
from everturn.heartbeats.profiles import PROFILES, HeartbeatProfile, ProfileName
from everturn.hooks import Hooks
from everturn.hooks import check_hooks as checked_hooks
from everturn.limits import Budget, RateLimit
from everturn.lost_workers.journal import default_folder
from everturn.providers.rate_limits.limit_queue import checked_limits, read_limits
from everturn.settings import Settings
from everturn.storage.artifacts import Artifacts
from everturn.temporal.namespace import Namespace
from everturn.temporal.worker_roles import ALL, Role, checked_roles
from everturn.validation import durations
from everturn.worker.given_agents import Agents, checked_prefix, given_agents
from everturn.worker.traces import Traces, traces_of

Option = TypeVar("Option")
Setting = TypeVar("Setting")


class WorkerOptions(TypedDict, total=False):
    """What Worker and EverturnPlugin take by keyword. An option that is left out, or None, is as the settings say."""

    deps: MakeDeps | None
    """A function that makes an async context manager. Each worker opens it when it starts (pools, clients) and closes
    it when it has drained. Tools and other functions find what it yields as `context.deps`."""
    cached_conversations: int | None
    """How many conversations stay in memory; more than run at the same time. None: EVERTURN_CACHED_CONVERSATIONS,
    1,000."""
    max_prefix_bytes: int | None
    """The memory for transcripts, in bytes. None: EVERTURN_MAX_PREFIX_MB, 256 MiB."""
    drain_timeout: timedelta | None
    """How long running activities may go on after a shutdown has begun, before they are handed over. None:
    EVERTURN_DRAIN_SECONDS, 100 s."""
    journals: Path | None
    """A folder that outlives the process: if the worker dies, others on the machine find there what it was running.
    None: one in the temporary folder."""
    artifacts: Artifacts | Path | str | None
    """Where tool results that are too large for a transcript are kept whole: a directory or a URL for fsspec. None:
    EVERTURN_ARTIFACTS, if set."""
    stream_every: timedelta | None
    """How often a turn that somebody follows sends its new text. None: EVERTURN_STREAM_SECONDS, or 0.2 s; if heartbeats
    are thrifty, with the ordinary ones."""
    heartbeats: ProfileName | None
    """How often it sends heartbeats. None: EVERTURN_HEARTBEATS, or thrifty on Temporal Cloud, which bills each one,
    and quick elsewhere."""
    local_tools: Literal["auto", "given"] | None
    """Which tools run within their conversation's workflow task. "given": those with `local=True`; "auto": `read` tools
    whose last runs were quick, too. An agent's or a tool's own `local` overrides it. None: EVERTURN_LOCAL_TOOLS, or
    "given"."""
    traces: Traces | bool | None
    """True, or Traces(...): answers, model turns, tool calls and approvals are spans of OpenTelemetry. None:
    EVERTURN_TRACES."""
    hooks: Sequence[Hooks]
    """For all its agents, before their own."""
    rate_limits: Mapping[str, RateLimit] | None
    """Providers' limits that are known, such as {"openai": RateLimit(rpm=500)}: all workers of the task queue share
    them. None: EVERTURN_RATE_LIMITS. Limits that are not known are found out."""
    budgets: Mapping[str, Budget] | None
    """What tenants may use, by tenant, such as {"acme": Budget(usd_per_day=50)}; "*" is for those that are not named.
    It holds until somebody sets another one. None: EVERTURN_TENANT_BUDGETS."""
    restored_at: datetime | None
    """If the server's database was restored from a backup: a moment between the backup and the start of the restored
    server. `once` calls that may have run in the lost part then wait for a person. None: EVERTURN_RESTORED_AT."""
    evaluators: Sequence[Any]
    """What judges answers once they are given: functions of a JudgedAnswer, evaluators of pydantic-evals, or
    OnlineEvaluators with options. Give all workers of a task queue the same. Conversations are not delayed, and hear
    nothing of it."""
    sample: float | None
    """The part of answers that is judged, from 0 to 1: 0.05 is 5 %. None: all."""
    roles: Collection[Role] | None
    """What the worker does: `workflows`, `models`, `tools`. What one with `workflows` leaves out, it sends to a task
    queue of its own, `<task_queue>-models` or `<task_queue>-tools`, which a worker with that role alone polls.
    `task_queue` is the conversations' queue for all of them. None: EVERTURN_ROLES, or all of it, on one queue."""


@dataclass(frozen=True, kw_only=True)
class HostedOptions:
    """What the workers of a plugin have in common: the options as they hold."""

    agents: HostedAgents
    prefixes: PrefixCache
    journals: Path
    artifacts: Artifacts | None
    stream_seconds: float | None
    """None: as suits the heartbeats."""
    settings: Settings
    cached_conversations: int
    drain_timeout: timedelta
    heartbeats: HeartbeatProfile | None = None
    """None: as suits the server."""
    traces: Traces | None = None
    local_tools: Literal["auto", False] = False
    make_deps: MakeDeps | None = None
    rate_limits: Mapping[str, RateLimit] = field(default_factory=dict)
    """Those that are known, by provider."""
    budgets: Mapping[str, BudgetTerms] = field(default_factory=dict)
    """What the settings let tenants use."""
    restored_at: datetime | None = None
    """When the server's database was restored, if it was."""
    evaluators: Mapping[str, OnlineEvaluator] = field(default_factory=dict)
    """By name, each with its rate."""
    roles: frozenset[Role] = ALL
    namespace: Namespace | None = None
    """What a client knows of it already; None: it is asked."""

    @classmethod
    def from_options(cls, agents: Agents, options: WorkerOptions, *, prefix: str = "") -> Self:
        """The options, and for those that are not given what the settings say. Raises InvalidAgent, InvalidSetting."""
        settings = Settings.load()
        drain_timeout = _checked_duration("drain_timeout", options.get("drain_timeout"), may_be_zero=True)
        stream_every = _checked_duration("stream_every", options.get("stream_every"))
        artifacts = options.get("artifacts") or settings.artifacts
        if isinstance(artifacts, str | Path):
            artifacts = Artifacts.at(artifacts)
        hooks = checked_hooks("a worker", options.get("hooks", ()))
        deps = options.get("deps")
        rate_limits = options.get("rate_limits")
        return cls(
            agents=given_agents(agents, hooks=hooks, artifacts=artifacts, deps=deps, prefix=checked_prefix(prefix)),
            prefixes=PrefixCache(_option_or_setting(options.get("max_prefix_bytes"), settings.max_prefix_mb * 1024**2)),
            journals=options.get("journals") or default_folder(),
            artifacts=artifacts,
            stream_seconds=stream_every.total_seconds() if stream_every else settings.stream_seconds,
            settings=settings,
            cached_conversations=_option_or_setting(options.get("cached_conversations"), settings.cached_conversations),
            drain_timeout=_option_or_setting(drain_timeout, timedelta(seconds=settings.drain_seconds)),
            heartbeats=_find_profile(options.get("heartbeats") or settings.heartbeats),
            traces=traces_of(options.get("traces"), settings),
            local_tools=_find_local_tools(options.get("local_tools") or settings.local_tools),
            make_deps=deps,
            rate_limits=read_limits(settings.rate_limits) if rate_limits is None else checked_limits(rate_limits),
            budgets=declared_budgets(_option_or_setting(options.get("budgets"), settings.tenant_budgets)),
            restored_at=_checked_moment(options.get("restored_at")) or settings.restored_at,
            evaluators=checked_evaluators(options.get("evaluators") or (), options.get("sample")),
            roles=checked_roles(_option_or_setting(options.get("roles"), settings.roles)),
        )


def _option_or_setting(option: Option | None, setting: Setting) -> Option | Setting:
    if option is None:
        return setting
    return option


def _find_profile(name: ProfileName | None) -> HeartbeatProfile | None:
    if name is not None and name not in PROFILES:
        raise InvalidSetting(f"The worker has heartbeats={name!r}.", cure=f"The profiles are {' and '.join(PROFILES)}.")
    if not name:
        return None
    return PROFILES[name]


def _find_local_tools(which: str) -> Literal["auto", False]:
    if which == "auto":
        return "auto"
    if which != "given":
        raise InvalidSetting(f"The worker has local_tools={which!r}.", cure="It is 'auto' or 'given'.")
    return False


def _checked_moment(restored_at: datetime | None) -> datetime | None:
    if restored_at is not None and (not isinstance(restored_at, datetime) or restored_at.tzinfo is None):
        raise InvalidSetting(
            f"The worker has restored_at={restored_at!r}.", cure="Give a datetime with its time zone, such as UTC."
        )
    return restored_at


def _checked_duration(option: str, value: timedelta | None, *, may_be_zero: bool = False) -> timedelta | None:
    if value is not None and (cure := durations.problem_of(value, may_be_zero=may_be_zero)):
        raise InvalidSetting(f"The worker has {option}={value!r}.", cure=cure)
    return value
