"""The faults of a world: workers are killed, stopped and cut off, and the server can't be reached.

What an outage does to a request on its way, whose answer may be lost: `temporal/service.py`. What a model, a tool or an
MCP server does wrong is in `agents/`, and how wrong a clock is in the Draw."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.simulation.world import World

MOST_FAULTS = 25
"""Of a world: then its workers are left alone."""


class Faults:
    def __init__(self, world: World) -> None:
        self._world = world
        self._draw = world.draw
        self._server = world.server

    async def harm_workers(self) -> None:
        chance = self._world.chances.of("faults")
        for _ in range(MOST_FAULTS):
            await asyncio.sleep(chance.expovariate(self._draw.kills / 60.0))
            if not self._server.workers:
                continue
            worker = chance.choice(self._server.workers)
            match chance.choice(("kill", "kill", "cut off", "stop")):
                case "kill":
                    worker.kill()
                case "cut off":
                    worker.cut_off(chance.choice((0.5, 4.0, 15.0)))
                    continue
                case _:
                    await worker.stop(within=chance.choice((0.0, 1.0, 30.0)))
            versions = ("first", "other") if self._draw.strangers else ("first", "later", "later", "other")
            version = chance.choice(versions) if self._draw.deploys else "first"
            away = self._draw.away
            seconds = chance.choice((0.0, away / 3, away) if away else (0.0, 0.5, 8.0))
            self._server.later(self._world.new_worker, version, seconds=seconds)
        self._world.new_worker()  # whatever there is by now, somebody hosts the agent

    async def cut_connections(self) -> None:
        chance = random.Random(f"{self._draw.seed}/outages")
        for _ in range(MOST_FAULTS):
            await asyncio.sleep(chance.expovariate(self._draw.outages / 60.0))
            seconds = chance.choice((0.5, 5.0, 20.0, 90.0))
            self._server.leave(seconds)
            await asyncio.sleep(seconds)
            self._server.come_back()
