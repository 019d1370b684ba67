"""A provider's batches, in the place of providers/batching: what is sent is paid at once, ends minutes or hours later,
and is found again by its name or, at a provider that keeps none, by its lines.

Creations get lost on their way, or their answers do; lines expire, are refused, or have no result.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from everturn import errors, names
from everturn.batching.records import BatchLine, LeaveBatch
from everturn.batching.waits import LONGEST_WAIT
from everturn.history import steps
from everturn.history.reader import HistoryReader
from everturn.providers.base import Request
from everturn.providers.batching import turns
from everturn.providers.batching.api import BatchRequest, LineResult, LineResults, UnknownCreation
from everturn.records import Reply
from everturn.storage.data_converter import data_converter
from tests.simulation.agents.ledger import worker_at_hand
from tests.simulation.agents.model import Asked, SimulatedModel
from tests.simulation.chance import Chances
from tests.simulation.temporal.clock import EPOCH
from tests.simulation.temporal.history import attributes, kind
from tests.simulation.temporal.instances import at_once
from tests.simulation.temporal.runs import Run
from tests.simulation.temporal.server import Server

BATCHED = "batched"
"""The agent whose turns wait for batches."""

DURATIONS = (0.0, 30.0, 300.0, 900.0, 4_000.0)
SLOWEST_SECONDS = 600.0
"""From when a line leaves to when its batch is cancelled, or not created: workers are killed, cut off and away."""


@dataclass
class SimulatedBatch:
    id: str
    name: str
    created_at: float
    ends_at: float
    visible_at: float
    """From when on it is in the list."""
    results: dict[str, LineResult] = field(default_factory=dict)
    cancelled: bool = False
    is_unknown: bool = False
    """Its creation was not answered, and it has no name: until it ends, nobody can say that it is theirs."""


@dataclass
class SimulatedBatches:
    server: Server
    model: SimulatedModel
    chances: Chances
    keeps_names: bool
    """It finds batches by their names."""
    most_bytes: int = 100_000
    batches: dict[str, SimulatedBatch] = field(default_factory=dict)
    questions: dict[bytes, Request] = field(default_factory=dict)
    replies: dict[str, Reply] = field(default_factory=dict)
    """By the line that each is the reply to."""

    @contextmanager
    def stands_in(self) -> Iterator[None]:
        with ExitStack() as stack:
            for name, stand_in in (("line_of", self._line_of), ("api_of", self._api), ("batches_of", self._api)):
                stack.enter_context(patch.object(turns, name, stand_in))
            yield

    def _api(self, _: Any) -> SimulatedBatches:
        return self

    def _line_of(self, question: Request, *, without_thoughts: bool = False) -> Any:
        key = f"{question.conversation_id} {len(question.messages)} {len(self.questions)}".ljust(200)
        self.questions[key.encode()] = question
        endpoint = SimpleNamespace(base_url="simulated")
        prepared = SimpleNamespace(content=key.encode(), headers=(), path="/v1", endpoint=endpoint)
        return SimpleNamespace(prepared=prepared, read_reply=self._read_reply, error_of=self._error_of)

    def _read_reply(self, line: str) -> Reply:
        return self.replies[line].model_copy(update={"details": {"service_tier": turns.TIER}})

    def _error_of(self, result: LineResult) -> errors.ProviderError:
        if result.status >= 500:
            return errors.Unavailable("503", status=result.status)
        return errors.RequestRefused("400", status=result.status)

    # ------------------------------------------------------------ as providers/batching/api.py has it

    async def create(self, name: str, lines: Sequence[BatchRequest]) -> str:
        chance = await self._on_its_way("create")
        fate = chance.random() / (self.model.trouble or 1e-9)
        if fate < 0.2:
            raise errors.RateLimited("429", status=429, retry_after=3.0)
        if fate < 0.5:
            raise errors.ConnectionFailed("the connection broke")
        batch = self._begin(name, lines)
        await self._on_its_way("create")
        if fate < 1.0:
            batch.is_unknown = not self.keeps_names
            raise errors.ConnectionFailed("the answer was lost")
        return batch.id

    def _begin(self, name: str, lines: Sequence[BatchRequest]) -> SimulatedBatch:
        now = self.server.loop.time()
        number = len(self.batches) + 1
        chance = self.chances.of("batch", number)
        batch = SimulatedBatch(
            f"batch_{number}", name, now, now + chance.choice(DURATIONS), now + chance.choice((0.0, 0.0, 8.0))
        )
        self.batches[batch.id] = batch
        self.server.count("batches")
        self.server.note(f"{batch.id} is created with {[line.id for line in lines]}")
        for line in lines:
            batch.results[line.id] = self._work_on(line, chance.random())
        return batch

    def _work_on(self, line: BatchRequest, drawn: float) -> LineResult:
        self.server.count("lines")
        fate = drawn / (self.model.trouble or 1e-9)
        if fate < 1.0:
            states: tuple[Any, ...] = ("expired", "missing", "refused", "refused")
            state = states[int(fate * len(states))]
            self.server.count(f"lines {state}")
            return LineResult(state, status=400 if fate < 0.75 else 503)
        question = self.questions[line.content]
        tools = tuple(tool.name for tool in question.tools)
        self.model.asked.append(
            Asked(
                question.conversation_id or "",
                tuple(question.messages),
                worker_at_hand().name,
                question.instructions,
                tools,
            )
        )
        self.replies[line.id] = self.model._reply(question)
        return LineResult("replied", body=line.id)

    async def find(self, name: str, lines: Sequence[str], *, since: float) -> str:
        await self._on_its_way("find")
        now = self.server.loop.time()
        listed = [batch for batch in self.batches.values() if batch.visible_at <= now]
        if self.keeps_names:
            return next((batch.id for batch in listed if batch.name == name), "")
        candidates = [batch for batch in listed if len(batch.results) == len(lines)]
        if any(batch.ends_at > now and not batch.cancelled for batch in candidates):
            raise UnknownCreation("one that runs may be it")
        return next((batch.id for batch in candidates if [*batch.results] == [*lines]), "")

    async def is_over(self, batch_id: str) -> bool:
        chance = await self._on_its_way("poll")
        if chance.random() < self.model.trouble:
            raise errors.Unavailable("503", status=503)
        batch = self.batches[batch_id]
        return batch.cancelled or batch.ends_at <= self.server.loop.time()

    async def cancel(self, batch_id: str) -> None:
        chance = await self._on_its_way("cancel")
        if chance.random() < self.model.trouble:
            raise errors.Unavailable("503", status=503)
        batch = self.batches[batch_id]
        if batch.ends_at > self.server.loop.time():
            batch.cancelled = True
            self.server.count("batches cancelled")

    async def results(self, batch_id: str) -> LineResults:
        chance = await self._on_its_way("results")
        if chance.random() < self.model.trouble:
            raise errors.Unavailable("503", status=503)
        batch = self.batches[batch_id]
        if batch.cancelled:
            return LineResults(whole=LineResult("cancelled"))
        return LineResults(
            raw={
                line: json.dumps([result.state, result.body, result.status]).encode()
                for line, result in batch.results.items()
                if result.state != "missing"
            }
        )

    def read(self, raw: bytes) -> LineResult:
        state, body, status = json.loads(raw)
        return LineResult(state, body, status)

    async def _on_its_way(self, what: str) -> Any:
        chance = self.chances.of(worker_at_hand().name, what)
        await asyncio.sleep(chance.choice((0.0, 0.1, 1.0)))
        return chance

    # ------------------------------------------------------------ what has to be true at the end

    async def until_all_is_over(self) -> None:
        """A collector ends once it has had nothing to do for an hour."""
        for _ in range(3 * 24 * 60):
            running = [run for run in self.server.runs.values() if run.type == names.BATCHES and not run.closed]
            if not running:
                return
            await asyncio.sleep(60.0)
        self.server.wrong("a collector does not end")

    def broken_rules(self) -> Iterator[str]:
        waits = Waiting(self.server)
        yield from (f"{conversation} waits, and hears nothing of its line" for conversation in waits.given_up)
        yield from self._each_is_paid_once(waits)
        yield from self._each_reply_is_handed_over(waits)
        yield from self._whoever_waits_no_more_leaves(waits)

    def _each_is_paid_once(self, waits: Waiting) -> Iterator[str]:
        sent = Counter(line for batch in self.batches.values() for line in batch.results)
        for line, count in sent.items():
            if count > 1:
                yield f"line {line} is in {count} batches"
        paid: Counter[tuple[str, str]] = Counter()
        for batch in self.batches.values():
            for line in () if batch.cancelled else batch.results:
                if line in self.replies and not self.replies[line].is_empty and line in waits.joined:
                    joined = waits.joined[line]
                    paid[joined.run_id, joined.activity_id] += 1
        for (run_id, activity_id), count in paid.items():
            if count > 1:
                yield f"turn {activity_id} of run {run_id} is paid {count} times"

    def _each_reply_is_handed_over(self, waits: Waiting) -> Iterator[str]:
        for batch in self.batches.values():
            for line in () if batch.cancelled else batch.results:
                reply = self.replies.get(line)
                if reply is None or reply.is_empty or line in waits.left or waits.is_undone(line):
                    continue
                if (reply.text, reply.tool_calls) not in waits.replies(waits.joined[line].conversation):
                    yield f"{waits.joined[line].conversation} waited for line {line}, whose reply it never had"

    def _whoever_waits_no_more_leaves(self, waits: Waiting) -> Iterator[str]:
        for batch in self.batches.values():
            left = [waits.left.get(line) for line in batch.results]
            if any(at is not None and at + SLOWEST_SECONDS < batch.created_at for at in left):
                yield f"{batch.id} is created with a line that has left"
            known = [at for at in left if at is not None]
            is_unwanted = len(known) == len(left) and max(known) + SLOWEST_SECONDS < batch.ends_at
            if is_unwanted and not (batch.cancelled or batch.is_unknown):
                yield f"nobody waits for {batch.id}, and it is not cancelled"


class Waiting:
    """What all conversations' histories say of their lines, by their own signals."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self.joined: dict[str, BatchLine] = {}
        self.left: dict[str, float] = {}
        """When each line left, in seconds since the world began."""
        self.given_up: list[str] = []
        """Conversations that have heard nothing of a line for as long as they wait."""
        self._replies: dict[str, list[Any]] = {}
        for run in server.runs.values():
            if run.type == names.CONVERSATION:
                self._read(run)

    def _read(self, run: Run) -> None:
        timers: dict[int, timedelta] = {}
        for event in run.history.events:
            match kind(event):
                case "signal_external_workflow_execution_initiated":
                    self._take_signal(event)
                case "timer_started":
                    timers[event.event_id] = attributes(event).start_to_fire_timeout.ToTimedelta()
                case "timer_fired" if timers.get(attributes(event).started_event_id) == LONGEST_WAIT:
                    self.given_up.append(run.workflow_id)
                case _:
                    pass

    def replies(self, conversation: str) -> list[Any]:
        """What the turns of a conversation have brought. Few worlds have batches: only these ask."""
        if conversation not in self._replies:
            known = self._replies[conversation] = []
            for run in self._server.runs.values():
                if run.type == names.CONVERSATION and run.workflow_id == conversation:
                    reader = HistoryReader(data_converter)
                    read = [at_once(reader.read_event(event)) for event in run.history.events]
                    completed = [step.reply.message for step in read if isinstance(step, steps.TurnCompleted)]
                    known += [(message.text, message.tool_calls) for message in completed]
        return self._replies[conversation]

    def _take_signal(self, event: Any) -> None:
        given = attributes(event)
        payload = given.input.payloads[0]
        match given.signal_name:
            case names.JOIN_BATCH:
                line = data_converter.payload_converter.from_payload(payload, BatchLine)
                self.joined[line.id] = line
            case names.LEAVE_BATCH:
                line_id = data_converter.payload_converter.from_payload(payload, LeaveBatch).id
                self.left.setdefault(line_id, event.event_time.ToMicroseconds() / 1e6 - EPOCH)
            case _:
                pass

    def is_undone(self, line: str) -> bool:
        """Its run was ended from outside, or an operator went back to before it."""
        conversation = self.joined[line].conversation
        runs = [run for run in self._server.runs.values() if run.workflow_id == conversation]
        ended = {"workflow_execution_terminated", "workflow_execution_canceled", "workflow_execution_cancel_requested"}
        return any(kind(event) in ended for run in runs for event in run.history.events)
