"""The crash test: many conversations, while everything around them is killed, broken and restarted."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from contextlib import AsyncExitStack, ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol
from uuid import uuid4

from temporalio.client import WorkflowHandle
from temporalio.service import RPCError

from everturn import Client
from everturn.devserver import DevServer
from everturn.testing import ScriptedModel
from tests.crash import batches
from tests.crash.batches import Batches
from tests.crash.cast import LEDGER
from tests.crash.crowd import ClientProcess, Vanished
from tests.crash.ledger import Ledger
from tests.crash.mutants import MUTANT
from tests.crash.people import People
from tests.crash.proxy import Network, Proxy
from tests.crash.short_runs import RUN_EVENTS, short_runs
from tests.crash.stories import Author, Story
from tests.crash.workers import WorkerProcess
from tests.stack.hosts import Host

STARTED = 2
"""temporal.api.enums.v1.PendingActivityState"""

POLL_SECONDS = 0.02
START_SECONDS = 180.0


@dataclass(frozen=True)
class Plan:
    seed: int = 0
    conversations: int = 200
    kills: int = 60
    restarts: int = 5
    workers: int = 3
    clients: int = 3
    """Processes; people live in them, and in the harness itself."""
    at_once: int = 24
    """Conversations."""
    pace: float = 4.0
    """Seconds from kill to kill, on average."""
    run_events: int = 40
    """A longer run is continued as a new one."""
    patience: float = 120.0
    """Seconds in which, after the last kill, every conversation has to end."""
    resume: float = 10.0
    """Seconds after which what a killed worker had in hand is taken up again: since the kill, or since the last that
    happened after it (another kill, or the server's return)."""


@dataclass(frozen=True)
class Hit:
    """An activity that a killed worker was running."""

    conversation: str
    run_id: str
    activity_id: str
    tool: str


@dataclass
class Kill:
    at: float
    pid: int
    replaced: bool = False
    """A worker was started on the same machine at once."""
    hits: list[Hit] = field(default_factory=list)


@dataclass(frozen=True)
class Restart:
    """Of the server."""

    began: float
    answered: float


def server(folder: Path) -> DevServer:
    config = {"history.workflowIdReuseMinimalInterval": '"0s"'}
    return DevServer(db_filename=folder / "temporal.db", dynamic_config=config)


class Served(Protocol):
    """A Temporal."""

    @property
    def address(self) -> str: ...


class Storm:
    here = "127.0.0.1"
    """This machine's address, as workers know it."""

    def __init__(
        self,
        plan: Plan,
        folder: Path,
        *,
        mutant: str = "",
        server: DevServer | Served | None = None,
        make: Callable[[str], list[Story]] | None = None,
    ) -> None:
        """`mutant`: what is wrong with the workers' everturn, by name. `server`: one that others use too. `make`: the
        stories, given how their ids begin, in place of those that the seed makes."""
        self.plan = plan
        self.mutant = mutant
        self._shared = server
        self.folder = folder
        self.rng = random.Random(plan.seed)
        self.prefix = uuid4().hex[:6]
        made = (Story.make(plan.seed, number, self.prefix) for number in range(plan.conversations))
        self.stories = make(self.prefix) if make else list(made)
        self.author = Author(self.stories)
        self.ledger = Ledger(folder / LEDGER).create()
        self.network = Network()
        self.workers: list[WorkerProcess] = []
        self.kills: list[Kill] = []
        self.restarts: list[Restart] = []
        self.refused = 0
        """Workers that ended by themselves, since no server was there."""
        self.vanished = 0
        """People who were cancelled."""
        self.clients_killed = 0
        self.people_killed = 0
        """Who were in those processes."""
        self.living: dict[int, list[asyncio.Task[None]]] = {}
        """The people in each conversation that is not over."""
        self.ended: set[int] = set()
        self.stuck: dict[int, str] = {}
        self.seconds = 0.0

    async def run(self) -> None:
        began = time.monotonic()
        async with AsyncExitStack() as stack:
            self.server = self._shared or await stack.enter_async_context(server(self.folder))
            self.client = await Client.connect(self.server.address, task_queue=f"storm-{self.prefix}", by="people")
            self.people = People(self.client, self.plan.seed)
            model = await stack.enter_async_context(ScriptedModel(self.author, keep=0))
            self.proxy = await stack.enter_async_context(Proxy(model.base_url, self.network, host=self.here))
            self.batches = stack.enter_context(Batches(self.author))
            batch_proxy = Proxy(self.batches.base_url, self.network, host=self.here)
            self.batch_proxy = await stack.enter_async_context(batch_proxy)
            ending = asyncio.create_task(self.batches.end_now_and_then(self.plan.seed))
            stack.callback(ending.cancel)
            for _ in range(self.plan.workers):
                self.workers.append(self._start_worker())
            stack.callback(self._kill_all)
            self.clients = [await self._start_client() for _ in range(self.plan.clients)]
            stack.push_async_callback(self._end_clients)
            await self._weather()
            self.seconds = time.monotonic() - began
            await self._gather_evidence()

    async def _gather_evidence(self) -> None:
        """Reads the histories while the server is still there."""
        from tests.crash.evidence import collectors_problems, gather

        with short_runs(self.plan.run_events):  # for the replay
            self.evidence = await gather(self)
            self.collectors_problems = await collectors_problems(self)

    # ------------------------------------------------------------ the conversations

    async def _weather(self) -> None:
        """Runs every conversation through the storm."""
        tasks = [self._kill_workers(), self._trouble_the_network(), self._vanish()]
        troubles = [asyncio.create_task(task) for task in tasks]
        room = asyncio.Semaphore(self.plan.at_once)
        lives = [asyncio.create_task(self._live(story, room)) for story in self.stories]
        try:
            await troubles[0]  # every kill, and every restart
            for trouble in troubles[1:]:
                trouble.cancel()
            self.network.refusing, self.network.delay_seconds = False, 0.0
            with suppress(TimeoutError):
                async with asyncio.timeout(self.plan.patience):
                    await asyncio.gather(*lives)
        finally:
            for task in (*troubles, *lives):
                task.cancel()
            await asyncio.gather(*troubles, *lives, return_exceptions=True)
        for story in self.stories:
            if story.number not in self.ended:
                self.stuck[story.number] = await self._where(story)

    async def _live(self, story: Story, room: asyncio.Semaphore) -> None:
        # As many conversations as there are kills to come: neither should be over long before the other.
        while not self._due(story):  # noqa: ASYNC110 - it follows from a count
            await asyncio.sleep(POLL_SECONDS * 5)
        async with room:
            people = self.living[story.number] = []
            try:
                while story.number not in self.ended:
                    if not people:  # all have vanished: others come
                        people.append(self._someone(story))
                    done, _ = await asyncio.wait(people, return_when=asyncio.FIRST_COMPLETED)
                    for person in done:
                        people.remove(person)
                        self._take_leave(person, story)
                    await asyncio.sleep(POLL_SECONDS)
            finally:
                del self.living[story.number]
                for person in people:
                    person.cancel()
                await asyncio.gather(*people, return_exceptions=True)

    def _take_leave(self, person: asyncio.Task[None], story: Story) -> None:
        error = None if person.cancelled() else person.exception()
        if isinstance(error, Vanished):
            self.people_killed += 1
        elif error:
            self.people.rough[f"{type(error).__name__}: {error}"] += 1
        elif not person.cancelled():
            self.ended.add(story.number)

    def _someone(self, story: Story) -> asyncio.Task[None]:
        places = [self.people, *self.clients]
        return asyncio.create_task(self.rng.choice(places).live(story))

    def _due(self, story: Story) -> bool:
        plan = self.plan
        share = len(self.kills) / plan.kills if plan.kills else 1
        return story.number <= plan.at_once + plan.conversations * share

    async def _where(self, story: Story) -> str:
        """Where a conversation stands that should have ended."""
        conversation = self.client.conversation(story.id)
        try:
            status = await conversation.status()
        except Exception as error:  # noqa: BLE001 - it is for the report
            return f"{type(error).__name__}: {error}"
        return f"{status.state}, turn {status.turn}, waiting: {[call.why for call in status.waiting]}, {status.cause}"

    # ------------------------------------------------------------ the troubles

    async def _kill_workers(self) -> None:
        restart_at = set(self.rng.sample(range(self.plan.kills), min(self.plan.restarts, self.plan.kills)))
        restarting: list[asyncio.Task[None]] = []
        for number in range(self.plan.kills):
            await asyncio.sleep(self.rng.uniform(0.2, 1.8) * self.plan.pace)
            if number in restart_at:
                # Workers are killed while the server is away, too.
                restarting.append(asyncio.create_task(self._restart_server(*restarting[-1:])))
            if number % 2:
                await self._kill_client(self.rng.randrange(len(self.clients)))
            victim = await self._someone_at_work()
            victim.kill()
            kill = Kill(time.time(), victim.process.pid, replaced=self.rng.random() < 0.8)
            self.kills.append(kill)
            self.workers.remove(victim)
            for _ in range(self.plan.workers - len(self.workers) if kill.replaced else 0):
                self.workers.append(self._start_worker())
            kill.hits = await self._hit_by(kill)
        await asyncio.gather(*restarting)
        while len(self._workers_alive()) < self.plan.workers:
            self.workers.append(self._start_worker())

    async def _someone_at_work(self) -> WorkerProcess:
        async with asyncio.timeout(START_SECONDS):
            while not (ready := [worker for worker in self._workers_alive() if worker.started]):  # noqa: ASYNC110
                await asyncio.sleep(POLL_SECONDS)
        return self.rng.choice(ready)

    def _workers_alive(self) -> list[WorkerProcess]:
        """At least one: a worker that found no server when it started has ended, as its supervisor would see."""
        for worker in [*self.workers]:
            if worker.process.poll() is not None:
                self.workers.remove(worker)
                self.refused += 1
        if not self.workers:
            self.workers.append(self._start_worker())
        return self.workers

    def _start_worker(self) -> WorkerProcess:
        return self._worker()

    def _worker(self, *, host: Host | None = None, **environment: str) -> WorkerProcess:
        return WorkerProcess(
            self.client,
            self.proxy,
            self.folder,
            agents="tests/crash/cast.py",
            environment={
                RUN_EVENTS: str(self.plan.run_events),
                MUTANT: self.mutant,
                "OPENAI_BASE_URL": self.batch_proxy.base_url,
                **batches.ENVIRONMENT,
                **environment,
            },
            host=host,
        )

    async def _hit_by(self, kill: Kill) -> list[Hit]:
        """What the server still believes to run on the worker that was killed just now."""
        handles = [self.client.temporal.get_workflow_handle(self.stories[number].id) for number in [*self.living]]
        hits = await asyncio.gather(*(self._pending(handle, f"{kill.pid}@") for handle in handles))
        return [hit for some in hits for hit in some]

    async def _pending(self, handle: WorkflowHandle, worker: str) -> list[Hit]:
        try:
            described = await handle.describe()
        except RPCError:
            return []  # not there yet, or the server is away
        return [
            Hit(handle.id, described.run_id or "", activity.activity_id, activity.activity_type.name)
            for activity in described.raw_description.pending_activities
            if activity.state == STARTED and activity.last_worker_identity.startswith(worker)
        ]

    async def _restart_server(self, before: asyncio.Task[None] | None = None) -> None:
        if before:
            await before
        began = time.time()
        await self.server.restart()
        self.restarts.append(Restart(began, time.time()))

    async def _trouble_the_network(self) -> None:
        """Of all providers at once."""
        while True:
            await asyncio.sleep(self.rng.expovariate(1 / 2.5))
            match self.rng.choice(["drop", "drop", "refuse", "delay"]):
                case "drop":
                    self._drop_connections()
                case "refuse":
                    self.network.refusing = True
                    self._drop_connections()
                    await asyncio.sleep(self.rng.uniform(0.1, 1.5))
                    self.network.refusing = False
                case "delay":
                    self.network.delay_seconds = self.rng.uniform(0.05, 0.4)
                    await asyncio.sleep(self.rng.uniform(0.5, 2))
                    self.network.delay_seconds = 0.0

    def _drop_connections(self) -> None:
        self.proxy.drop()
        self.batch_proxy.drop()

    async def _vanish(self) -> None:
        """Clients disappear while they wait; and now and then a second one is there."""
        while True:
            await asyncio.sleep(self.rng.expovariate(1 / 0.4))
            if self.living:
                number = self.rng.choice([*self.living])
                people = self.living[number]
                if len(people) == 1 and self.rng.random() < 0.3:
                    people.append(self._someone(self.stories[number]))
                elif people:
                    self.rng.choice(people).cancel()
                    self.vanished += 1

    async def _start_client(self) -> ClientProcess:
        return await ClientProcess.start(self.people, prefix=self.prefix, log=self.folder / "clients.log")

    async def _kill_client(self, number: int) -> None:
        await self.clients[number].kill()
        self.clients_killed += 1
        self.clients[number] = await self._start_client()

    async def _end_clients(self) -> None:
        await asyncio.gather(*(client.kill() for client in self.clients))

    def _kill_all(self) -> None:
        with ExitStack() as stack:
            for worker in self.workers:
                stack.callback(worker.kill)
