"""everturn with a hook at each of the four points, and guardrails."""

from __future__ import annotations

import os
from typing import Any

from benchmarks.contestants.everturn import clerk as plain
from everturn.guardrails import MaxChars, Pattern
from everturn.hooks import Hooks
from everturn.settings import Settings
from everturn.worker.process import serve as serve_agents

__all__ = ["clerk", "serve"]


class Looks(Hooks):
    """Sees everything, and changes nothing."""

    streams = True

    async def before_model(self, given: Any, context: Any) -> None: ...
    async def after_model(self, reply: Any, context: Any) -> None: ...
    async def before_tool(self, call: Any, context: Any) -> None: ...
    async def after_tool(self, call: Any, result: Any, context: Any) -> None: ...


clerk = plain.with_hooks([Looks(), MaxChars(20_000, refuse="Too long."), Pattern("(?:[0-9]{4} ){4}", redact="[card]")])


async def serve(address: str) -> None:
    os.environ["TEMPORAL_ADDRESS"] = address
    await serve_agents(Settings(agents=(f"{__name__}:clerk",), task_queue="everturn_hooked"))
