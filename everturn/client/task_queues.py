"""The task queues of a fleet: their workers, what waits there, and the limits that the server keeps for them."""

from __future__ import annotations

import asyncio
from dataclasses import asdict, dataclass
from typing import Any, Final

from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.taskqueue.v1 import RateLimit, RateLimitConfig, TaskQueue, TaskQueueConfig
from temporalio.api.workflowservice.v1 import (
    DescribeTaskQueueRequest,
    DescribeTaskQueueResponse,
    UpdateTaskQueueConfigRequest,
)
from temporalio.service import RPCError, RPCStatusCode

from everturn.client.client_base import ClientBase
from everturn.client.pollers import find_pollers, roles_elsewhere, sorted_out
from everturn.errors import InvalidSetting, Refused
from everturn.limits import QueueLimit
from everturn.temporal.worker_roles import ROLES, Role, own_queue

ACTIVITIES: Final = TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY

NO_LIMITS: Final = "Limits of task queues need a newer Temporal server: one that has UpdateTaskQueueConfig (1.32 does)."


@dataclass(frozen=True, kw_only=True)
class QueueStatus:
    """A task queue of the fleet, as the server sees it."""

    name: str
    roles: tuple[Role, ...]
    """What its workers do."""
    workers: tuple[str, ...]
    """The identities of those that poll it: `pid@host`."""
    waiting: int
    """Tasks that no worker has taken yet. The server counts roughly, and some seconds late."""
    waiting_activities: int
    """Those of them that are activities."""
    limit: QueueLimit
    reason: str = ""
    """Why the limit was set."""

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "limit": self.limit.model_dump()}


class QueuesClient(ClientBase):
    """The part of a client that is about task queues."""

    async def task_queues(self) -> tuple[QueueStatus, ...]:
        """The conversations' queue; and those of model turns and tools, if workers have roles. Raises Unreachable."""
        apart = await self._roles_apart()
        here = tuple(role for role in ROLES if role not in apart)
        queues = await asyncio.gather(
            self._queue_status(self.task_queue, here),
            *(self._queue_status(own_queue(self.task_queue, role), (role,)) for role in ROLES if role in apart),
        )
        return tuple(queues)

    async def limit_task_queue(self, role: Role, limit: QueueLimit | None, *, reason: str = "") -> None:
        """Sets the limit of the queue of a role, `models` or `tools`, in place of the one before; None takes it away.
        The server keeps it, and holds all workers to it at once. `reason`: is shown with it. Raises Refused if the
        fleet has no such queue or the server knows no limits, InvalidSetting, and Unreachable."""
        if role not in ("models", "tools"):
            raise InvalidSetting(
                f"{role!r:.100} is no role whose task queue has a limit.", cure="Give 'models' or 'tools'."
            )
        if role not in await self._roles_apart():
            raise Refused(
                f"No worker leaves {role} to others: they run on the task queue {self.task_queue!r}, where workers "
                "start them without asking the server.",
                cure=f"Start workers for {role} (everturn worker --agents FILE.py --roles {role}), and the others "
                "without that role.",
            )
        wanted = limit or QueueLimit()
        request = UpdateTaskQueueConfigRequest(
            namespace=self.temporal.namespace,
            identity=self.by,
            task_queue=own_queue(self.task_queue, role),
            task_queue_type=ACTIVITIES,
            update_queue_rate_limit=_limit_update(wanted.per_second, reason),
            update_fairness_key_rate_limit_default=_limit_update(wanted.per_tenant_per_second, reason),
        )
        try:
            await self.temporal.workflow_service.update_task_queue_config(request, retry=True)
        except RPCError as error:
            if error.status is RPCStatusCode.UNIMPLEMENTED:
                raise Refused("The server can't limit task queues.", cure=NO_LIMITS) from None
            if error.status in (RPCStatusCode.INVALID_ARGUMENT, RPCStatusCode.PERMISSION_DENIED):
                raise Refused(
                    f"The server refuses the limit of the task queue {request.task_queue!r}: "
                    f"{error.message.rstrip('.')}.",
                    cure="`everturn queues` shows what holds now.",
                ) from None
            raise self.unreachable_error(error) from error

    async def _roles_apart(self) -> frozenset[Role]:
        """The roles that are on queues of their own: workers say that they leave them to others, or their queues have
        pollers or work."""
        used = await asyncio.gather(*(self._is_used(own_queue(self.task_queue, role)) for role in ROLES[1:]))
        return await roles_elsewhere(self.temporal, self.task_queue) | {
            role for role, is_used in zip(ROLES[1:], used, strict=True) if is_used
        }

    async def _is_used(self, name: str) -> bool:
        described = await self._describe_queue(name, ACTIVITIES)
        return described.stats.approximate_backlog_count > 0 or bool(
            await find_pollers(self.temporal, name, activities=True)
        )

    async def _queue_status(self, name: str, roles: tuple[Role, ...]) -> QueueStatus:
        conversations = "workflows" in roles
        kinds = [ACTIVITIES]
        if conversations:
            kinds = [TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW, ACTIVITIES]
        workers, described = await asyncio.gather(
            find_pollers(self.temporal, name, activities=not conversations),
            asyncio.gather(*(self._describe_queue(name, kind) for kind in kinds)),
        )
        config = described[-1].config
        return QueueStatus(
            name=name,
            roles=roles,
            workers=tuple(sorted_out(worker.identity for worker in workers)[0]),
            waiting=sum(description.stats.approximate_backlog_count for description in described),
            waiting_activities=described[-1].stats.approximate_backlog_count,
            limit=_queue_limit(config),
            reason=config.queue_rate_limit.metadata.reason or config.fairness_keys_rate_limit_default.metadata.reason,
        )

    async def _describe_queue(self, name: str, kind: TaskQueueType.ValueType) -> DescribeTaskQueueResponse:
        request = DescribeTaskQueueRequest(
            namespace=self.temporal.namespace,
            task_queue=TaskQueue(name=name),
            task_queue_type=kind,
            report_stats=True,
            report_config=True,
        )
        try:
            return await self.temporal.workflow_service.describe_task_queue(request, retry=True)
        except RPCError as error:
            raise self.unreachable_error(error) from error


def _limit_update(per_second: float | None, reason: str) -> UpdateTaskQueueConfigRequest.RateLimitUpdate:
    limit = None if per_second is None else RateLimit(requests_per_second=per_second)
    return UpdateTaskQueueConfigRequest.RateLimitUpdate(rate_limit=limit, reason=reason)


def _queue_limit(config: TaskQueueConfig) -> QueueLimit:
    return QueueLimit(
        per_second=_per_second(config.queue_rate_limit),
        per_tenant_per_second=_per_second(config.fairness_keys_rate_limit_default),
    )


def _per_second(config: RateLimitConfig) -> float | None:
    if not config.HasField("rate_limit"):
        return None
    return config.rate_limit.requests_per_second
