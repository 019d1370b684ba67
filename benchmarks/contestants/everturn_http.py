"""everturn whose text comes straight from the worker, over HTTP."""

from __future__ import annotations

import os

from benchmarks.contestants.everturn import clerk
from everturn.settings import Settings
from everturn.worker.process import serve as serve_agents

__all__ = ["clerk", "serve"]


async def serve(address: str) -> None:
    os.environ["TEMPORAL_ADDRESS"] = address
    os.environ["EVERTURN_LIVE"] = "http"
    await serve_agents(Settings(agents=(f"{__name__}:clerk",), task_queue="everturn_http"))
