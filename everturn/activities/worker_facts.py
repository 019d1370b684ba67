"""What a conversation is told of its worker: what it can't know by itself, and what changes only with a deploy."""

from __future__ import annotations

from typing import Final

from temporalio import activity

from everturn.agent import Agent
from everturn.carryover import WorkerFacts, mark_of
from everturn.payloads import ModelRequest
from everturn.temporal.namespace import Namespace
from everturn.webhooks.records import WebhookFacts

MAX_HALF_TOLD: Final = 10_000


def webhook_of(agent: Agent) -> WebhookFacts | None:
    if agent.webhook is None:
        return None
    return agent.webhook.facts_of(agent.name)


class Facts:
    """`index_tenants`: whether a tenant's name may be plain text in Temporal's index."""

    def __init__(self, namespace: Namespace, *, index_tenants: bool) -> None:
        self._namespace = namespace
        self._index_tenants = index_tenants
        self._half_told: dict[str, None] = {}
        """Conversations that were told the namespace's facts before all of these were known."""

    async def facts_for(self, agent: Agent, request: ModelRequest, *, is_new: bool) -> WorkerFacts | None:
        """What a conversation is told if this worker meets it, if it was not told all yet, if it is to stay with a
        version, or if its agent has other limits now. After a handoff, it keeps the limits of its first agent."""
        version = agent.full_name if "@" in agent.full_name else ""
        limits = agent.limits.model_dump(mode="json", exclude_defaults=True)
        has_other_limits = mark_of(limits) != request.limits_mark and not request.signed
        conversation = activity.info().workflow_id or ""
        if not (
            is_new or has_other_limits or (version and version != request.agent) or conversation in self._half_told
        ):
            return None
        indexed = await self._namespace.indexed()
        retention = await self._namespace.retention()
        self._half_told.pop(conversation, None)
        if not self._namespace.known:
            self._half_told[conversation] = None
            while len(self._half_told) > MAX_HALF_TOLD:
                self._half_told.pop(next(iter(self._half_told)))
        return WorkerFacts(
            agent=version,
            model=agent.model.name,
            limits=limits,
            indexed=indexed,
            webhook=webhook_of(agent),
            tenants_indexed=bool(request.tenant) and self._index_tenants and await self._namespace.searchable(),
            retention=retention,
        )
