"""The crash test in small: a few conversations with a bit of everything, and one worker, which may be killed once."""

from __future__ import annotations

import asyncio
import math
import time
from functools import partial
from itertools import cycle
from pathlib import Path

from everturn.devserver import DevServer
from everturn.testing import call
from tests.crash.stories import Story, Turn, said
from tests.crash.storm import Kill, Plan, Storm

QUIET_SECONDS = 30.0
"""Without any news, a conversation that has not ended never will. On a machine with ten times its load, 15 were too few
for a turn to begin."""
QUIET_AFTER_KILL_SECONDS = 45.0
"""A worker has to be missed, and another one to start."""
LONGEST_SECONDS = 300.0

PLAN = Plan(seed=1, conversations=4, kills=0, restarts=0, workers=1, clients=0, run_events=15, resume=math.inf)

PAYS = 3
"""The story whose payment is cut short, if a worker is killed."""


def stories(prefix: str, *, kills: bool) -> list[Story]:
    plain = {"before": 0, "after": 0, "size": 0}
    slow = {"before": 0, "after": 0.8, "size": 0}
    gated = {"before": 0, "after": 0, "size": 500}
    parallel = Turn([call("look", slow), call("note", plain), call("note_async", plain), call("pay", plain)])
    two = Turn([call("pay_async", plain), call("look", plain)])
    both = Turn([call("sign", gated), call("refund", gated)])
    pays = Turn([call("pay", plain | {"after": 3.0})])
    looks = Turn([call("look", slow), call("look", slow)])
    ends = [Turn(f"Answer {number}.") for number in range(4)]

    def story(number: int, *turns: Turn, messages: int = 1) -> Story:
        burst = messages > 1
        texts = tuple(said(number, message, burst=burst) for message in range(messages))
        return Story(number, texts, turns, revived=False, id=f"{prefix}-{number}", burst=burst)

    return [
        story(0, parallel, two, ends[0]),
        story(1, both, both, Turn([call("sign", gated)]), ends[0]),
        story(2, looks, looks, *ends, messages=4),
        *([story(PAYS, pays, ends[0])] if kills else []),
    ]


class Drill(Storm):
    def __init__(self, folder: Path, server: DevServer, *, mutant: str = "", kills: bool = False) -> None:
        super().__init__(PLAN, folder, mutant=mutant, server=server, make=partial(stories, kills=kills))
        self._kill = kills

    async def _weather(self) -> None:
        self.people.repeats = 1.0
        self.people.decides = cycle(["edit", "deny", "approve"])
        room = asyncio.Semaphore(len(self.stories))
        lives = [asyncio.create_task(self._live(story, room)) for story in self.stories]
        killing = asyncio.create_task(self._kill_who_pays()) if self._kill else None
        try:
            await self._until_over()
            if killing:
                await killing
        finally:
            tasks = [*lives, *([killing] if killing else [])]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        for story in self.stories:
            if story.number not in self.ended:
                self.stuck[story.number] = await self._where(story)

    async def _until_over(self) -> None:
        """Until all have ended, or nothing happens any more. A worker that cannot even start is nobody's mutant."""
        seen, since, began = 0, time.monotonic(), time.monotonic()
        while len(self.ended) < len(self.stories) and time.monotonic() - began < LONGEST_SECONDS:
            for worker in self.workers:
                assert worker.process.poll() is None, worker.log.read_text()
            news = len(self.ended) + len(self.author.asked) + len(self.ledger.effects()) + self.people.told.total()
            if news != seen or not self.author.asked:
                seen, since = news, time.monotonic()
            elif time.monotonic() - since > (QUIET_AFTER_KILL_SECONDS if self._kill else QUIET_SECONDS):
                return
            await asyncio.sleep(0.1)

    async def _kill_who_pays(self) -> None:
        paid = f"{self.stories[PAYS].id}:"
        while not any(effect.key.startswith(paid) for effect in self.ledger.effects()):  # noqa: ASYNC110 - a process
            await asyncio.sleep(0.02)
        (victim,) = self.workers
        victim.kill()
        kill = Kill(time.time(), victim.process.pid, replaced=True)
        self.kills.append(kill)
        self.workers[:] = [self._start_worker()]
        kill.hits = await self._hit_by(kill)
