"""everturn, whose tool is quick and therefore runs within the workflow task."""

from __future__ import annotations

import os

from benchmarks.contestants.everturn import clerk
from everturn.settings import Settings
from everturn.worker.process import serve as serve_agents

__all__ = ["clerk", "serve"]


async def serve(address: str) -> None:
    os.environ |= {"TEMPORAL_ADDRESS": address, "EVERTURN_LOCAL_TOOLS": "auto"}
    await serve_agents(Settings(agents=(f"{__name__}:clerk",), task_queue="everturn_local"))
