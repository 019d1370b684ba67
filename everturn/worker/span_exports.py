"""How long the end of a turn waits until its spans are exported, and that nobody waits for a slow collector."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from everturn.logs import get_logger

BACK_OFF_SECONDS = 30.0
"""How long nobody waits for an export after one that took too long."""

LAST_EXPORT_SECONDS = 5.0
"""How long a worker that stops waits for its last spans."""

_log = get_logger("everturn.traces")


class SpanExports:
    """Exports by the provider, in a thread. Those who wait at the same time share one export: while one runs, the next
    one takes along all that ends meanwhile."""

    def __init__(self, provider: Any, *, within: float) -> None:
        self._flush = getattr(provider, "force_flush", None)
        self._within = within
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="everturn-traces")
        self._latest: asyncio.Task[None] | None = None
        self._next: asyncio.Task[None] | None = None
        """An export that has not begun, and so takes along what is said now."""
        self._impatient_until = 0.0

    async def wait_for_export(self) -> None:
        if not self._within or self._flush is None or time.monotonic() < self._impatient_until:
            return
        if self._next is None:
            self._next = self._latest = asyncio.create_task(self._run_export(after=self._latest))
        try:
            done, _ = await asyncio.wait([self._next], timeout=self._within)
        except asyncio.CancelledError:
            return  # the activity has ended, and its result counts
        if not done:
            self._impatient_until = time.monotonic() + BACK_OFF_SECONDS
            cure = "Does OTEL_EXPORTER_OTLP_ENDPOINT answer? After OTEL_EXPORTER_OTLP_TIMEOUT, spans are lost."
            _log.warning("traces.late", seconds=self._within, cure=cure)

    async def _run_export(self, *, after: asyncio.Task[None] | None) -> None:
        if after is not None:
            await asyncio.wait([after])
        self._next = None
        assert self._flush is not None
        try:
            await asyncio.get_running_loop().run_in_executor(self._thread, self._flush)
        except Exception as error:  # noqa: BLE001 - exporters raise all kinds, and no conversation is to suffer for it
            _log.warning("traces.not_exported", error=f"{type(error).__name__}: {error}")

    async def close(self, *beside: Callable[[], object]) -> None:
        """Runs a last export, and `beside`, and then stops the thread."""
        loop = asyncio.get_running_loop()
        last = filter(None, (self._flush, *beside))
        if exports := [loop.run_in_executor(self._thread, function) for function in last]:
            await asyncio.wait(exports, timeout=LAST_EXPORT_SECONDS)
        self._thread.shutdown(wait=False)
