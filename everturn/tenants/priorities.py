"""Temporal's priorities: which tasks come first in a backlog. For a conversation, its activities and its children."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final

from temporalio.common import Priority

from everturn import names
from everturn.errors import InvalidSetting
from everturn.sizes import MAX_FAIRNESS_KEY_BYTES
from everturn.text.utf8 import check_utf8

if TYPE_CHECKING:
    from temporalio.client import WorkflowHandle

LIGHTEST = 0.001
HEAVIEST = 1000.0
"""The server takes others, too, and replaces them by the nearer one of these."""


@dataclass(frozen=True)
class Order:
    """The priority and fairness that somebody asked for. Raises InvalidSetting."""

    priority: int | None = None
    fairness_key: str | None = None
    fairness_weight: float | None = None

    def __post_init__(self) -> None:
        self.priority_for(None)

    def priority_for(self, tenant: str | None) -> Priority:
        """The priority of a new conversation."""
        return priority_of(self.priority, self.fairness_key, self.fairness_weight, tenant=tenant)

    async def priority_after(self, before: WorkflowHandle[Any, Any]) -> Priority:
        """The priority of a conversation that goes on from another one, which gives what nobody asked for here."""
        had = Priority._from_proto((await before.describe()).raw_description.workflow_execution_info.priority)
        return Priority(
            priority_key=had.priority_key if self.priority is None else self.priority,
            fairness_key=had.fairness_key if self.fairness_key is None else self.fairness_key or None,
            fairness_weight=had.fairness_weight if self.fairness_weight is None else self.fairness_weight,
        )


def priority_of(
    priority: int | None, fairness_key: str | None, fairness_weight: float | None, *, tenant: str | None
) -> Priority:
    """The tenant is the fairness key if none is given. What is None is the parent's, or the server's default. Raises
    InvalidSetting, and Refused."""
    if priority is not None and (isinstance(priority, bool) or not isinstance(priority, int) or priority < 1):
        raise InvalidSetting(
            f"priority={priority!r} is not a priority.",
            cure="Give a number from 1 (first) to 5 (last); the default is 3.",
        )
    if fairness_weight is not None and not (
        isinstance(fairness_weight, int | float) and LIGHTEST <= fairness_weight <= HEAVIEST
    ):
        raise InvalidSetting(
            f"fairness_weight={fairness_weight!r} is not a weight.",
            cure=f"Give a number from {LIGHTEST:g} to {HEAVIEST:g}: twice the weight is twice the share.",
        )
    size = len(check_utf8("fairness key", fairness_key or "").encode())
    if size > MAX_FAIRNESS_KEY_BYTES:
        raise InvalidSetting(
            f"The fairness key has {size} bytes; the limit is {MAX_FAIRNESS_KEY_BYTES}.",
            cure="Use a shorter one, or a digest.",
        )
    if fairness_key is None:
        fairness_key = _fairness_key(tenant or "")
    return Priority(priority_key=priority, fairness_key=fairness_key or None, fairness_weight=fairness_weight)


def read_weights(written: str) -> dict[str, float]:
    """`acme=4,free=0.5`, by tenant. Raises InvalidSetting."""
    weights = {}
    for item in filter(None, (part.strip() for part in written.split(","))):
        tenant, _, number = item.rpartition("=")
        try:
            weight = float(number)
        except ValueError:
            weight = 0.0
        if not tenant or not LIGHTEST <= weight <= HEAVIEST:
            raise InvalidSetting(
                f"EVERTURN_TENANT_WEIGHTS has {item!r:.100}, which is not a tenant's weight.",
                cure=f"Write acme=4,free=0.5, each weight from {LIGHTEST:g} to {HEAVIEST:g}: "
                "twice the weight is twice the share.",
            )
        weights[tenant] = weight
    return weights


def with_weight(order: Priority, tenant: str | None, weights: Mapping[str, float]) -> Priority:
    """The same with the tenant's weight, if the tenant is the fairness key and nobody gave another weight."""
    if tenant is None or tenant not in weights or order.fairness_weight is not None:
        return order
    if order.fairness_key != _fairness_key(tenant):
        return order
    return replace(order, fairness_weight=weights[tenant])


def without_name(order: Priority, tenant: str | None) -> Priority:
    """The same with a digest in the tenant's place, if the tenant is the fairness key: no codec encodes the key."""
    if not tenant or order.fairness_key != tenant:
        return order
    return replace(order, fairness_key=_digest_of(tenant))


def budget_id(tenant: str, *, encoded: bool) -> str:
    """The id of the tenant's budget workflow. `encoded`: payloads are encoded, so the id may not show the name."""
    return f"{names.BUDGET_OF}{_digest_of(tenant) if encoded else tenant}"


def _fairness_key(tenant: str) -> str:
    """The tenant's name, or a digest of it if it is too long for a key."""
    if len(tenant.encode("utf-8", "replace")) > MAX_FAIRNESS_KEY_BYTES:
        return _digest_of(tenant)
    return tenant


def _digest_of(tenant: str) -> str:
    return blake2b(tenant.encode("utf-8", "replace"), digest_size=16).hexdigest()


AS_BEFORE: Final = Order()
