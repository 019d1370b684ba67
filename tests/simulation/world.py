"""One world: a server, workers, a model and people, all drawn from a seed; lived through to its end, and checked."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import cache
from itertools import count
from typing import Any
from unittest.mock import patch

import structlog
import temporalio.client
from temporalio.service import RPCError

from everturn import Client
from everturn.activities import before_reset, model_turns
from everturn.client.conversation import Conversation
from everturn.errors import EverturnError
from everturn.providers import background
from everturn.reviews import verdicts
from everturn.settings import Settings
from everturn.tools.mcp import transports
from tests.simulation.agents import cast
from tests.simulation.agents.batches import BATCHED, SimulatedBatches
from tests.simulation.agents.ledger import Ledger
from tests.simulation.agents.mcp_servers import McpServers
from tests.simulation.agents.model import SimulatedModel
from tests.simulation.agents.reviewed import give_verdict
from tests.simulation.chance import Chances
from tests.simulation.faults import Faults
from tests.simulation.machines.machines import Machine
from tests.simulation.machines.workers import SimulatedWorker
from tests.simulation.people.coincidences import Coincidences
from tests.simulation.people.people import Character, Person
from tests.simulation.rules.checks import Checks
from tests.simulation.situations import (
    batches,
    cut_replies,
    decided_beside,
    features,
    later_moments,
    lifecycle,
    mcp,
    rare_moments,
    ruled_outside,
    run_changes,
    turns,
    worded,
    workers_alone,
)
from tests.simulation.situations.situation import Situation
from tests.simulation.speed import worked_out_once
from tests.simulation.temporal import clock
from tests.simulation.temporal.dispatch import QUEUE
from tests.simulation.temporal.index import Index
from tests.simulation.temporal.sealing import converter
from tests.simulation.temporal.server import Server
from tests.simulation.temporal.service import SimulatedService
from tests.support.bounds import lowered

LOW_BOUNDS = (
    ("events", 60),
    ("events", 25),
    ("updates", 3),
    ("packed_bytes", 300),
    ("handed_bytes", 400),
    ("open_bytes", 3_000),
    ("held_chars", 800),
    ("begun_with_bytes", 300),
)

WATCHED = 0.4

WILD = 1_000_000
"""Worlds of this seed and above are each about something: see situations/. `make mutants` begins there."""

NEWER = 2_000_000
"""Worlds of this seed and above draw by name."""

GROUPS = (
    lifecycle.SITUATIONS,
    {**run_changes.BUGS, **features.NEWS},
    run_changes.LATEST,
    features.HANDOFFS,
    turns.TURNS,
    features.CLOCKS,
    rare_moments.AIMED,
    workers_alone.LOCALS,
    workers_alone.JOURNALS,
    mcp.MCP,
    cut_replies.CUT_SHORT,
    rare_moments.AIMED_REVIVED,
    rare_moments.AIMED_LATER,
    later_moments.DOUBTS_LAST,
    later_moments.CORRECTED,
    later_moments.PATIENT,
    later_moments.REPEATED,
    later_moments.DEPLOYED,
    later_moments.LARGE,
    later_moments.CROWDED,
    mcp.ELSEWHERE,
    later_moments.CORRECTED_AND_CUT,
    later_moments.LIMITED,
    worded.WORDED,
    ruled_outside.RULED_OUTSIDE,
    features.BELOW,
    batches.BATCHES,
    decided_beside.DECIDED_BESIDE,
)
"""Of situations, each for a million seeds from WILD on."""

ALL_SITUATIONS = {name: situation for group in GROUPS for name, situation in group.items()}

LONGEST_SECONDS = 400 * 86_400.0


def situation_of(seed: int) -> str:
    """What the world of a seed is about; empty if nothing special."""
    if seed < WILD:
        return ""
    names = [*GROUPS[min(seed // WILD, len(GROUPS)) - 1]]
    return names[seed % len(names)]


def wild_seeds() -> Iterator[int]:
    """From the beginnings of all groups."""
    for number in count():
        for group in range(len(GROUPS)):
            yield (group + 1) * WILD + number


def seeds_of(names: Collection[str]) -> Iterator[int]:
    """The seeds of worlds in these situations; none if none is named."""
    return (seed for seed in (wild_seeds() if names else ()) if situation_of(seed) in names)


@dataclass(frozen=True)
class Draw:
    """What a world is like. All of it follows from the seed, unless somebody makes it smaller."""

    seed: int
    agent: str
    workers: int
    cached: int
    """Conversations that a worker keeps in memory."""
    prefix_bytes: int
    keep_open: float | None
    messages: int
    impatience: float
    look_seconds: float
    trouble: float
    calls: float
    kills: float
    """How often a worker is killed, cut off or stopped: so many times in a minute."""
    revivals: int
    forks: int
    resets: float
    """How often what people do unasked is an operator's reset."""
    waits: float
    """How often somebody waits for the answer to what they said."""
    limits: tuple[tuple[str, int], ...]
    """Those that conversations are started with."""
    deploys: bool
    """Workers that come in the place of others host another version of the agents, or none of them."""
    retention: float
    """Seconds for which the server keeps the history of a run that is over; 0: for ever."""
    bounds: tuple[tuple[str, int], ...]
    """Constants of the code, set so low that a conversation meets them: see tests/support/bounds.py."""
    coincidences: float
    """How often something comes together with what the server brings."""
    turns: float
    """The higher, the more turns until a reply asks for no tools."""
    busy: bool
    """Everything takes long now and then; else things come at once."""
    strangers: bool = False
    """Workers that come do not host the agent, as often as they do."""
    situation: str = ""
    """What it is about, of situations/; empty: nothing special."""
    away: float = 0.0
    """Seconds, at the most, until another worker comes in the place of one that is gone; 0: some."""
    labelled: bool = False
    """Conversations are started for a tenant, and with metadata."""
    watched: float = WATCHED
    """How many conversations somebody watches from the beginning."""
    notified: bool = False
    """Conversations are started so that they tell a workflow of calls that wait."""
    sealed: bool = False
    """What is in histories is encrypted."""
    lists: bool = False
    """There is an index of conversations, which lags."""
    stored: bool = False
    """Workers find their agents by asking a store, which is slow and fails now and then."""
    earlier: bool = False
    """Conversations are started with a transcript."""
    clocks: float = 0.0
    """Seconds by which clocks of workers are wrong, at the most: each by another amount."""
    clocks_locals: bool = False
    """Local activities have the SDK's time-outs and delays: see local_activities.py."""
    machine: bool = False
    """All workers are on one machine, and have journals there."""
    outages: float = 0.0
    """How often the server can't be reached by anybody: so many times in a minute."""
    words: float = 0.0
    """Seconds that the model takes for a word, at the most; 0: it says all at once."""
    mcp_trouble: float = 0.0
    """How often something goes wrong with a request to an MCP server."""
    mcp_changes: float = 0.0
    """How often an MCP server goes away, or changes its list: so many times in a minute."""
    mcp_ponders: float = 0.0
    """Seconds, at the most, until an MCP server asks its question; 0: it asks at once."""

    ids: str = ""
    """Of the model's calls: new ones, or some that repeat: see model.py."""

    large: bool = False
    """What people say and tools return is about as much as may be, or more."""

    talks: int = 1
    """Conversations at the same time."""

    below: bool = False
    """Calls of agents that are asked are decided at the conversation that asks."""

    @classmethod
    def of(cls, seed: int) -> Draw:
        chance = random.Random(f"{seed}/draw")
        pick = chance.choice
        agents = [name for name in cast.AGENTS for _ in range(cast.WEIGHTS.get(name, 1)) if name != "helper"]
        kills = pick((0.0, 0.0, 0.0, 1.0, 4.0))
        usual = cls(
            seed=seed,
            agent=pick(agents),
            workers=pick((1, 1, 2, 3)),
            cached=pick((0, 1, 1_000, 1_000)),
            prefix_bytes=pick((0, 20_000, 10_000_000, 10_000_000)),
            keep_open=pick((None, None, 1.0, 20.0, 3_600.0)),
            messages=pick((1, 1, 2, 4)),
            impatience=pick((0.0, 0.05, 0.3)),
            look_seconds=pick((0.5, 3.0, 20.0)),
            trouble=pick((0.0, 0.0, 0.1, 0.3)),
            calls=pick((0.3, 0.6, 0.8)),
            kills=kills,
            revivals=pick((0, 0, 0, 1)),
            forks=pick((0, 0, 0, 0, 1)),
            resets=pick((0.0, 0.0, 0.0, 0.3)),
            waits=pick((0.0, 0.5)),
            limits=pick(((), (), (), (("max_turns", 3),), (("max_tool_calls", 2),))),
            deploys=bool(kills) and pick((False, False, True)),
            retention=0.0 if kills else pick((0.0, 0.0, 0.0, 2_000.0)),
            bounds=tuple((name, low) for name, low in LOW_BOUNDS if chance.random() < 0.25),
            busy=pick((False, True)),
            coincidences=0.0,
            turns=6.0,
        )
        if seed < WILD:
            return replace(usual, turns=pick((1.5, 1.5, 2.0, 8.0)))
        name = situation_of(seed)
        special = {what: pick(values) for what, values in ALL_SITUATIONS[name].draw.items()}
        return replace(usual, situation=name, **special)


@dataclass
class Result:
    seed: int
    draw: Draw
    broken: list[str]
    """The invariants that do not hold, in words."""
    counts: dict[str, int]
    seconds: float
    """Of virtual time."""
    conversations: int = 0
    """Each conversation's id that was begun."""
    outcomes: dict[str, str] = field(default_factory=dict)
    histories: list[Any] = field(default_factory=list)
    """Each run's events, if they were asked for."""
    runs: list[str] = field(default_factory=list)
    """And their ids."""
    notes: list[tuple[float, str]] = field(default_factory=list)
    """What no history says, and when."""


def run(seed: int, *, draw: Draw | None = None, keep: bool = False) -> Result:
    """Lives through the world of this seed. `keep`: its histories are in the result."""
    draw = draw or Draw.of(seed)
    before_reset._made_by_reset.clear()  # what the process remembers of the world before
    # What stands in for the model does so until the last task has ended, which is after the world is over: such a task
    # would ask a real one.
    with _quiet(), worked_out_once(), ExitStack() as until_all_ended, bounds(draw), clock.world(seed) as loop:
        world = World(draw, loop)
        until_all_ended.enter_context(world.stands_in())
        broken: list[str] = []
        try:
            loop.run_until_complete(world.live())
        except clock.Stuck:
            broken.append(f"everybody waits, and nothing is due: {world.where()}")
        except clock.Endless as error:
            broken.append(f"it does not end: {error}; {world.where()}")
        except Exception as error:
            logging.getLogger("simulation").exception("broken")
            broken.append(f"{type(error).__name__}: {error}")
        broken += world.server.violations
        if not broken:
            broken += world.checks.at_the_end(world.people, world.model)
            broken += world.batches.broken_rules()
        counts = dict(world.server.counts) | {"model turns": len(world.model.asked)}
        result = Result(seed, draw, broken, counts, loop.now, len(world.server.latest), dict(world.outcomes))
        world.forget()
        if keep:
            result.histories = [(run.workflow_id, run.history.events) for run in world.server.runs.values()]
            result.runs = [*world.server.runs]
            effects = [
                (effect.at, f"{effect.tool} {effect.call_id} takes effect on {effect.worker} with {effect.arguments}")
                for effect in world.ledger.effects
            ]
            result.notes = [(at + clock.EPOCH, what) for at, what in [*world.server.notes, *effects]]
        return result


@contextmanager
def _quiet() -> Iterator[None]:
    """Nothing of it is logged: what is wrong is found by the checks."""
    before = structlog.get_config()
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL), cache_logger_on_first_use=False
    )
    level = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(level)
        structlog.configure(**before)


@contextmanager
def bounds(draw: Draw) -> Iterator[None]:
    with lowered(**dict(draw.bounds)):
        yield


@cache
def _settings(batch_seconds: float, batch_turns: int) -> Settings:
    """Frozen: to look for each of them in the environment takes longer than all else that a world begins with."""
    return Settings(batch_seconds=batch_seconds, batch_turns=batch_turns)


class World:
    def __init__(self, draw: Draw, loop: clock.VirtualLoop) -> None:
        self.draw = draw
        self.loop = loop
        self.chances = self._chances("world")
        self.server = Server(loop, self._chances("server"), retention=draw.retention)
        self.server.quick = not draw.busy
        self.ledger = self.server.ledger = Ledger()
        about = ALL_SITUATIONS.get(draw.situation, Situation())
        self.model = SimulatedModel(self._chances("model"), draw.trouble, draw.calls, draw.turns, about.tools)
        self.model.words, self.model.ids, self.model.large = draw.words, draw.ids, draw.large
        self.model.failures = about.failures or self.model.failures
        self.checks = Checks(self.server, self.ledger, deploys=draw.deploys, loses_workers=bool(draw.kills))
        self.checks.sealed, self.checks.number = draw.sealed, draw.seed
        self.server.on_task = self.checks.after_task
        self.client = Client(
            temporalio.client.Client(SimulatedService(self.server), data_converter=converter(sealed=draw.sealed)),
            task_queue=QUEUE,
            by="me",
        )
        self.checks.client = self.client
        seconds, limits = draw.look_seconds, draw.limits
        character = Character(draw.messages, draw.impatience, seconds, draw.resets, draw.waits, limits, about.habits)
        self.people = Person(self.client, self.server, random.Random(f"{draw.seed}/people"), character)
        if draw.coincidences:
            chance = random.Random(f"{draw.seed}/coincidences")
            options = {"what": about.at_once, "as_runs_begin": about.as_runs_begin}
            Coincidences(self.server, self.people, self.model, chance, draw.coincidences, **options)
        if draw.lists:
            Index(self.server, random.Random(f"{draw.seed}/index"))
        self.server.may_leave = bool(draw.outages)
        self.people.earlier, self.people.large = draw.earlier, draw.large
        self.people.notified = draw.notified
        self.people.below = self.checks.below = draw.below
        self.people.labelled, self.people.expects_answers = draw.labelled, draw.seed >= NEWER
        self.machine = Machine(self.server) if draw.machine else None
        self.mcp = McpServers(self.server, self._chances("mcp"), draw.mcp_trouble, draw.mcp_changes, draw.mcp_ponders)
        self.server.drop_mcp = self.mcp.drop
        self.checks.mcp_calls = self.mcp.calls
        by_name = self.chances.of("batches").random() < 0.5 if draw.agent == BATCHED else False
        self.batches = SimulatedBatches(self.server, self.model, self._chances("batches"), by_name)
        gathering = self.chances.of("gathering")
        self.settings = _settings(gathering.choice((1.0, 20.0, 60.0)), gathering.choice((2, 500)))
        self.faults = Faults(self)
        self.outcomes: dict[str, str] = {}
        self._names = 0

    def _chances(self, whose: str) -> Chances:
        return Chances(f"{self.draw.seed}/{whose}")

    @contextmanager
    def stands_in(self) -> Iterator[None]:
        """For what everturn asks outside of Temporal: models, and MCP servers."""
        with (
            patch.object(model_turns, "ask", self.model),
            patch.object(background, "cancel_response", self.model.cancel),
            patch.object(transports, "open_streams", self.mcp.streams),
            patch.object(verdicts, "generate", give_verdict),
            self.batches.stands_in(),
        ):
            yield

    async def live(self) -> None:
        for _ in range(self.draw.workers):
            self.new_worker()
        faults = self.loop.create_task(self.faults.harm_workers()) if self.draw.kills else None
        life = self.loop.create_task(self._conversations())
        plugs = self.loop.create_task(self.mcp.live())
        try:
            await asyncio.wait({life, self.server.broken}, return_when=asyncio.FIRST_COMPLETED)
            if not self.server.violations:
                await life
        finally:
            life.cancel()
            plugs.cancel()
            if faults:
                faults.cancel()

    def forget(self) -> None:
        """Ends the workflows that workers still have in memory, as the SDK does: nobody else would."""
        for worker in self.server.workers:
            worker.forget_all()
        if self.machine:
            self.machine.end()
        self.mcp.forget()

    async def _conversations(self) -> None:
        name = f"talk-{self.draw.seed}"
        beside = [f"{name}-{number}" for number in range(1, self.draw.talks)]
        await asyncio.gather(*map(self._converse, (name, *beside)))
        await self.batches.until_all_is_over()

    async def _converse(self, name: str) -> None:
        draw = self.draw
        keep_open = None if draw.keep_open is None else timedelta(seconds=draw.keep_open)
        for life in range(1 + draw.revivals):
            await self.people.say(draw.agent, name, keep_open=keep_open)
            conversation = self.client.conversation(name)
            await self._see_through(conversation, keep_open)
            if life == 0 and draw.forks:
                await self._fork(conversation, keep_open)

    async def _see_through(self, conversation: Conversation, keep_open: timedelta | None) -> None:
        chance = self.chances.of("watcher", conversation.id)
        watched = chance.random() < self.draw.watched
        watcher = self.loop.create_task(self.checks.watch(conversation, chance)) if watched else None
        caretaker = self.loop.create_task(self.people.look_after(conversation, self.draw.agent, keep_open=keep_open))
        outages = self.loop.create_task(self.faults.cut_connections()) if self.draw.outages else None
        try:
            async with asyncio.timeout(LONGEST_SECONDS):
                if watched:
                    with suppress(EverturnError, RPCError):  # an outage
                        await conversation.outcome()
                await caretaker
                if outages:
                    outages.cancel()
                    self.server.come_back()
                await self._answers(conversation)
                await self.checks.read(conversation, self.chances.of("reader", conversation.id))
                with suppress(EverturnError):
                    self.outcomes[conversation.id] = (await conversation.outcome()).status
        finally:
            for task in (watcher, outages, caretaker):
                if task:
                    task.cancel()

    async def _answers(self, conversation: Conversation) -> None:
        """Whoever waits for an answer has it soon after the end."""
        left = [task for task in self.people.waiting if not task.done() and task.get_name() == conversation.id]
        if left:
            _, late = await asyncio.wait(left, timeout=120.0)
            if late:
                self.server.wrong("somebody waits for an answer of a conversation that is over")

    async def _fork(self, conversation: Conversation, keep_open: timedelta | None) -> None:
        from everturn.errors import Refused

        with suppress(Refused):
            forked = await conversation.fork(self.chances.of("forks").choice((1, 2)), id=f"{conversation.id}-fork")
            self.people.started.add(forked.id)  # once it is over, `start` would begin another one in its place
            await self._see_through(forked, keep_open)

    # ------------------------------------------------------------ workers

    def new_worker(self, version: str = "first") -> None:
        self._names += 1
        clocks = self.draw.clocks
        SimulatedWorker(
            self.server,
            f"worker {self._names}",
            cast.hosted(version, self.draw.agent),
            cached=self.draw.cached,
            prefix_bytes=self.draw.prefix_bytes,
            sealed=self.draw.sealed,
            stored=self.draw.stored,
            clocks_locals=self.draw.clocks_locals,
            machine=self.machine,
            settings=self.settings,
            wrong_by=self.chances.of("clocks").uniform(-clocks, clocks) if clocks else 0.0,
        ).start()

    def where(self) -> str:
        """What goes on, for who looks for what is wrong."""
        said = []
        for run in self.server.runs.values():
            if not run.closed:
                task = f"task {_task(run.task)}" if run.task else "no task"
                running = ", ".join(f"{activity.name} try {activity.attempt}" for activity in run.activities.values())
                said.append(f"{run.workflow_id} has {len(run.history)} events, {task}, activities: {running or 'none'}")
        return "; ".join(said) or "every run is over"


def _task(task: Any) -> str:
    return f"{'started' if task.started else 'scheduled'}{', speculative' if task.speculative else ''}"
