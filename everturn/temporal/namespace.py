"""What the server says of the namespace, and everturn's search attributes in it. A call that fails is no answer: it is
made again, at once and later."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Generic, ParamSpec, TypeVar

from temporalio.api.namespace.v1 import NamespaceConfig
from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from everturn import names
from everturn.logs import get_logger
from everturn.temporal import temporal_errors
from everturn.temporal.search_attribute_setup import lacking_search_attributes

TRIES = 4
FIRST_PAUSE_SECONDS = 0.1

AGAIN_SECONDS = 30.0
"""The pause after a question without an answer, before it is asked again."""

SHORTEST_RETENTION = 86_400.0
"""Temporal keeps histories at least this long: assumed until the server says more."""

NOTICED_SECONDS = 65.0
"""The longest until each server of a cluster has noticed newly registered search attributes: 10 s with an SQL database,
a minute with Elasticsearch. Until then, some servers turn down what names them."""

LOOK_SECONDS = 0.5

P = ParamSpec("P")
T = TypeVar("T")

_log = get_logger("everturn.temporal.namespace")


class Namespace:
    """What the server says of the namespace. A question that fails is asked again at once, after `pause_seconds` that
    double, and later: no sooner than after `again_seconds`."""

    def __init__(
        self, temporal: Client, *, pause_seconds: float = FIRST_PAUSE_SECONDS, again_seconds: float = AGAIN_SECONDS
    ) -> None:
        self._temporal = temporal
        pauses = (pause_seconds, again_seconds)
        everything = frozenset(names.ALL_SEARCH_ATTRIBUTES)
        self._lacking = _CachedAnswer("search attributes", self._ask_lacking, without=everything, pauses=pauses)
        self._retention = _CachedAnswer[float | None](
            "retention", self._ask_retention, without=SHORTEST_RETENTION, pauses=pauses
        )

    @property
    def known(self) -> bool:
        """Whether all was answered."""
        return self._lacking.known and self._retention.known

    async def indexed(self) -> bool:
        """Whether it has all of everturn's search attributes; False as long as the server does not say."""
        return not await self._lacking.get_answer() & names.SEARCH_ATTRIBUTES.keys()

    async def searchable(self) -> bool:
        """Whether it has the one for tenants and metadata, too; False as long as the server does not say."""
        return not await self._lacking.get_answer() - names.EVALUATIONS_SEARCHABLE.keys()

    async def evaluations_searchable(self) -> bool:
        """Whether it has those that evaluations are searched by; False as long as the server does not say."""
        return not await self._lacking.get_answer() - names.SEARCHABLE.keys()

    async def retention(self) -> float | None:
        """Seconds for which it keeps the history of a run that is over; None if it keeps them for ever."""
        return await self._retention.get_answer()

    async def once_noticed(self, ask: Callable[P, Awaitable[T]], *args: P.args, **options: P.kwargs) -> T:
        """The result of a call that names everturn's search attributes. It is made again while the server that answers
        has not noticed yet that they were registered. Raises RPCError."""
        began = time.monotonic()
        while True:
            try:
                return await ask(*args, **options)
            except RPCError as error:
                if not temporal_errors.attribute_unknown(error) or time.monotonic() - began > NOTICED_SECONDS:
                    raise
                _log.info(
                    "namespace.not_noticed", what="search attributes", error=str(error), waits_seconds=LOOK_SECONDS
                )
            await asyncio.sleep(LOOK_SECONDS)

    async def _ask_lacking(self) -> frozenset[str]:
        return frozenset(await lacking_search_attributes(self._temporal, wanted=names.ALL_SEARCH_ATTRIBUTES))

    async def _ask_retention(self) -> float | None:
        config = await _read_config(self._temporal)
        return config.workflow_execution_retention_ttl.ToTimedelta().total_seconds() or None


async def _read_config(temporal: Client) -> NamespaceConfig:
    request = DescribeNamespaceRequest(namespace=temporal.namespace)
    return (await temporal.workflow_service.describe_namespace(request)).config


class _CachedAnswer(Generic[T]):
    def __init__(self, what: str, ask: Callable[[], Awaitable[T]], *, without: T, pauses: tuple[float, float]) -> None:
        self._what = what
        self._ask = ask
        self._value = without
        self._pause_seconds, self._again_seconds = pauses
        self.known = False
        self._asked_at: float | None = None

    async def get_answer(self) -> T:
        """The answer, or the value to go on with until there is one."""
        waits = self._asked_at is not None and time.monotonic() - self._asked_at < self._again_seconds
        if not self.known and not waits:
            await self._try_to_ask()
        return self._value

    async def _try_to_ask(self) -> None:
        is_first_ask = self._asked_at is None
        self._asked_at = time.monotonic()
        for attempt in range(1, TRIES + 1):
            try:
                self._value = await self._ask()
                self.known = True
            except RPCError as error:
                if temporal_errors.passes(error) and attempt < TRIES:
                    await asyncio.sleep(self._pause_seconds * 2**attempt)
                    continue
                # Some servers keep these calls to operators: they say no each time, and one line is enough.
                say = _log.warning if is_first_ask or temporal_errors.passes(error) else _log.debug
                say("namespace.not_told", what=self._what, error=str(error), goes_on_with=self._value)
            return


async def require_namespace(temporal: Client) -> None:
    """Raises Unreachable if the server knows no such namespace. Whatever else goes wrong is for others to notice."""
    try:
        await temporal.workflow_service.describe_namespace(DescribeNamespaceRequest(namespace=temporal.namespace))
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND:
            raise temporal_errors.unknown_namespace(temporal) from None
