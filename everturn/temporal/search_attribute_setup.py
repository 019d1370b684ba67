"""Everturn's search attributes in a namespace: which it lacks, and how they are registered."""

from __future__ import annotations

from collections.abc import Iterable, Set

from temporalio.api.enums.v1 import IndexedValueType
from temporalio.api.operatorservice.v1 import AddSearchAttributesRequest, ListSearchAttributesRequest
from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
from temporalio.client import Client
from temporalio.service import RPCError

from everturn import names
from everturn.temporal import temporal_errors


async def lacking_search_attributes(temporal: Client, *, wanted: Iterable[str] = names.SEARCH_ATTRIBUTES) -> list[str]:
    """Which of everturn's search attributes the namespace lacks. Raises RPCError."""
    known = await _search_attributes(temporal)
    return [name for name in wanted if name not in known]


async def _search_attributes(temporal: Client) -> Set[str]:
    """Those that somebody registered."""
    request = ListSearchAttributesRequest(namespace=temporal.namespace)
    try:
        return set((await temporal.operator_service.list_search_attributes(request, retry=True)).custom_attributes)
    except RPCError as error:
        # Some servers keep that question to operators, and tell the namespace's users by its description.
        if temporal_errors.passes(error) or not (aliases := await _aliases(temporal)):
            raise
        return set(aliases.values())


async def register_search_attributes(temporal: Client, lacking: Iterable[str]) -> None:
    """Raises RPCError. A development server has them from its start: they are arguments of its command."""
    types = names.ALL_SEARCH_ATTRIBUTES
    kinds = {name: f"INDEXED_VALUE_TYPE_{types[name].replace('dL', 'd_L').upper()}" for name in lacking}
    await temporal.operator_service.add_search_attributes(
        AddSearchAttributesRequest(
            namespace=temporal.namespace,
            search_attributes={name: IndexedValueType.Value(kind) for name, kind in kinds.items()},
        ),
        retry=True,
    )


async def _aliases(temporal: Client) -> dict[str, str]:
    request = DescribeNamespaceRequest(namespace=temporal.namespace)
    described = await temporal.workflow_service.describe_namespace(request, retry=True)
    return dict(described.config.custom_search_attribute_aliases)
