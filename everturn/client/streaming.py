"""Live news from running activities: text while a model writes it, and the progress of tools.

Both are in the details of heartbeats, which Temporal keeps outside the history and returns on request. So they are
requested only while a model turn or a tool runs, and as often as the worker says that it sends more.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable
from contextlib import aclosing, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflow.v1 import PendingActivityInfo
from temporalio.api.workflowservice.v1 import DescribeWorkflowExecutionRequest
from temporalio.client import Client
from temporalio.service import RPCError

from everturn import names
from everturn.client.followed_agents import FollowedAgents
from everturn.client.missing_worker import Silence
from everturn.client.unpolled_queue import Unattended
from everturn.events import Event, TextDelta, ThinkingDelta, ToolProgress, TurnLimited, TurnRetried, WorkerAwaited
from everturn.heartbeat_details import AtLimit, LiveAt, Streamed
from everturn.history import steps
from everturn.live.lane import Lane, TurnKey
from everturn.records import Message, Thinking

FIRST_LOOK_SECONDS = 0.5
LOOK_SECONDS = 1.5
"""Between two requests if nobody asked for streaming."""

AWAITING_SECONDS = 0.1
"""Between two requests for streamed text, before it comes and while it pauses."""

LOOK_TIMEOUT = timedelta(seconds=5)

SETTLE_SECONDS = 0.02
"""Pause before a lane is asked for a turn's text. A turn whose end is already in the history is never asked for."""

DUE_SECONDS = 0.025
"""Between two requests while a heartbeat is due."""


@dataclass
class _LiveTurn:
    """A running model turn, and the part of its text that was already yielded."""

    turn: int
    activity_id: str
    told_at: float
    """When the last event of it was yielded, by the clock."""
    attempt: int = 1
    text: str = ""
    thinking: str = ""
    every: float = 0.0
    limited: bool = False
    """Whether TurnLimited was yielded: it waits for its provider's limit."""
    live_at: LiveAt | None = None
    """The worker's address for its text, if the lane has addresses: from the turn's request or from its running try."""
    over: bool = False
    """It no longer runs: its end will come with the history."""

    @property
    def position(self) -> int:
        return len(self.text) + len(self.thinking)

    def start_over(self, attempt: int) -> TurnRetried:
        self.attempt, self.text, self.thinking = attempt, "", ""
        return TurnRetried(turn=self.turn, attempt=attempt)

    def hear(self, attempt: int, details: Any) -> list[Event]:
        events: list[Event] = [self.start_over(attempt)] if attempt > self.attempt else []
        with suppress(ValueError):
            limit = AtLimit.model_validate(details)
            if not self.limited:
                events.append(TurnLimited(turn=self.turn, provider=limit.limit_of))
            self.limited = True
            return events
        self.limited = False
        with suppress(ValueError):
            streamed = Streamed.model_validate(details)
            if streamed.attempt == self.attempt:
                self.every = streamed.every
                for kind, text in streamed.after(self.position):
                    events += self.say(kind, text)
        return events

    def say(self, kind: str, text: str) -> list[Event]:
        if not text:
            return []
        if kind == "thinking":
            self.thinking += text
            return [ThinkingDelta(turn=self.turn, text=text)]
        self.text += text
        return [TextDelta(turn=self.turn, text=text)]


@dataclass
class _LiveTool:
    started: steps.ToolScheduled
    progress: Any = None

    def hear(self, details: Any) -> list[Event]:
        if details is None or details == self.progress:
            return []
        self.progress, request = details, self.started.request
        tool = self.started.tool
        return [ToolProgress(turn=request.turn, call_id=request.call_id, tool=tool, progress=details)]


@dataclass(frozen=True)
class HeartbeatDetails:
    """What the running ones among the `asked` activities say: `said` has each one's heartbeat detail by activity id."""

    run_id: str
    asked: frozenset[str]
    said: dict[str, tuple[PendingActivityInfo, Any]] = field(default_factory=dict)


@dataclass
class LiveActivities:
    """One conversation's running activities. Give it every step; `look` whenever `due` says so."""

    client: Client
    conversation_id: str
    due: float | None = None
    """When to look again, by the clock; None while nothing runs."""
    clock: Callable[[], float] = time.monotonic
    awaiting_seconds: float = AWAITING_SECONDS
    lane: Lane | None = None
    """Carries text outside of the heartbeats, which are then read less often."""
    _run_id: str = ""
    _stream: bool = False
    _turn: _LiveTurn | None = None
    _tools: dict[str, _LiveTool] = field(default_factory=dict)
    _following: asyncio.Task[None] | None = None
    _heard: asyncio.Queue[tuple[str, Streamed]] = field(default_factory=asyncio.Queue)
    """Text from the lane, each piece with the id of its activity."""

    def take(self, run_id: str, step: steps.Step) -> list[Event]:
        """The events to yield before the step's own: the rest of a text of which a part was already yielded."""
        self._run_id = run_id
        said: list[Event] = []
        match step:
            case steps.RunStarted():
                self._turn, self._tools = None, {}
            case steps.TurnScheduled(request=request) if not request.summarise:
                self._stream = request.stream
                self._turn = _LiveTurn(request.turn, step.activity_id, told_at=self.clock(), live_at=request.live_at)
                streams = request.stream and self.lane is None
                self._look_in(self.awaiting_seconds if streams else FIRST_LOOK_SECONDS)
                self._follow(step.activity_id, request.live_at)
            case steps.TurnCompleted(reply=reply) if self._turn:
                said = _rest(self._turn, reply.message, step.attempt)
                self._turn = None
            case steps.TurnFailed() | steps.TurnCancelled():
                self._turn = None
            case steps.ToolScheduled():
                self._tools[step.activity_id] = _LiveTool(step)
                self._look_in(FIRST_LOOK_SECONDS)
            case steps.ToolCompleted() | steps.ActivityEnded() | steps.ToolRunFailed():
                served = step.request.call_id
                ended = [key for key, tool in self._tools.items() if tool.started.request.call_id == served]
                for key in ended:
                    del self._tools[key]
        if self._turn is None:
            self.close()
        if not self._tools and (self._turn is None or self._turn.over):
            self.due = None
        return [_at(event, step.at.isoformat(timespec="milliseconds")) for event in said]

    # ------------------------------------------------------------ beside the heartbeats

    def _follow(self, activity_id: str, at: LiveAt | None) -> None:
        """Begins to read the text that a turn puts onto the lane."""
        self.close()
        if self.lane is not None and self._stream:
            self._following = asyncio.create_task(self._listen(self.lane, self._key(activity_id), at))

    def _key(self, activity_id: str) -> TurnKey:
        return TurnKey(self.client.namespace, self._run_id, activity_id)

    async def _listen(self, lane: Lane, key: TurnKey, at: LiveAt | None) -> None:
        await asyncio.sleep(SETTLE_SECONDS)
        async with aclosing(lane.follow(key, at)) as said:
            async for streamed in said:
                self._heard.put_nowait((key.activity_id, streamed))

    async def said(self) -> list[Event]:
        """Waits for text from the lane; returns the events for all text since the last call."""
        found = [await self._heard.get()]
        while not self._heard.empty():
            found.append(self._heard.get_nowait())
        events: list[Event] = []
        for activity_id, streamed in found:
            if self._turn and self._turn.activity_id == activity_id:
                events += [_now(event) for event in self._turn.hear(streamed.attempt, streamed)]
        return events

    def close(self) -> None:
        if self._following:
            self._following.cancel()
            self._following = None

    # ------------------------------------------------------------ heartbeats

    async def look(self) -> HeartbeatDetails:
        """The latest heartbeat details of the running activities."""
        turn = [self._turn.activity_id] if self._turn else []
        beats = HeartbeatDetails(self._run_id, asked=frozenset([*turn, *self._tools]))
        request = DescribeWorkflowExecutionRequest(
            namespace=self.client.namespace,
            execution=WorkflowExecution(workflow_id=self.conversation_id, run_id=self._run_id),
        )
        try:
            described = await self.client.workflow_service.describe_workflow_execution(request, timeout=LOOK_TIMEOUT)
        except RPCError:
            # Only live news: a real failure is raised where the history is read.
            return replace(beats, asked=frozenset())
        for info in described.pending_activities:
            if info.activity_id in beats.asked:
                beats.said[info.activity_id] = (info, await self._details(info))
        return beats

    def hear(self, beats: HeartbeatDetails) -> list[Event]:
        """The new events in it. It may be older than the last step: activities that are over by now are ignored."""
        events: list[Event] = []
        if beats.run_id == self._run_id:
            gone = beats.asked - beats.said.keys()
            self._tools = {key: tool for key, tool in self._tools.items() if key not in gone}
            if self._turn and self._turn.activity_id in gone:
                self._turn.over = True
            for activity_id, (info, details) in beats.said.items():
                if self._turn and self._turn.activity_id == activity_id:
                    found = self._turn.hear(info.attempt, details)
                    self._hear_where(self._turn, info.attempt, details)
                    self._turn.told_at = self.clock() if found else self._turn.told_at
                else:
                    found = self._tools[activity_id].hear(details) if activity_id in self._tools else []
                events += [_at(event, _when(info)) for event in found]
        self._plan()
        return events

    def _hear_where(self, turn: _LiveTurn, attempt: int, details: Any) -> None:
        """Tells the lane the address of the running try: from its heartbeat, else from the turn's request."""
        at = turn.live_at
        with suppress(ValueError):
            streamed = Streamed.model_validate(details)
            at = (streamed.live_at if streamed.attempt == attempt else None) or at
        if self.lane and at:
            self.lane.hear_of(self._key(turn.activity_id), at)

    def _is_beside(self, activity_id: str) -> bool:
        """Whether the turn's text comes by the lane."""
        return self.lane is not None and not self.lane.is_silent(self._key(activity_id))

    async def _details(self, info: PendingActivityInfo) -> Any:
        """The heartbeat detail with the news; None if there is none, or none that can be read. Everturn's own
        activities put data for their next try before it; users' activities do not."""
        place = 0 if info.activity_id.startswith(names.ACTIVITY_OF_CALL) else 1
        with suppress(Exception):  # codecs raise all kinds, and it is only a look
            details = await self.client.data_converter.decode(info.heartbeat_details.payloads)
            return details[place] if len(details) > place else None
        return None

    def _plan(self) -> None:
        """Says when to look again."""
        self.due = None
        if self._tools:
            self._look_in(FIRST_LOOK_SECONDS if self._stream else LOOK_SECONDS)
        if not self._turn or self._turn.over:
            return
        if not self._stream or self._is_beside(self._turn.activity_id):
            self._look_in(LOOK_SECONDS)
            return
        # Right after a heartbeat, nothing new comes for a while; around the time of the next one, ask often; after a
        # long silence, ask seldom.
        silent, every = self.clock() - self._turn.told_at, self._turn.every
        seldom = min(max(self.awaiting_seconds, silent / 20), FIRST_LOOK_SECONDS)
        again = DUE_SECONDS if silent < 1.5 * every else seldom
        self._look_in(max(every - DUE_SECONDS - silent, again))

    def _look_in(self, seconds: float) -> None:
        due = self.clock() + seconds
        self.due = due if self.due is None else min(self.due, due)


Awaited = TypeVar("Awaited", bound="asyncio.Future[Any]")


class _FirstOf:
    """Like asyncio.wait(FIRST_COMPLETED), for futures that are waited for many times: the callback is added to each
    future once, and not again for each step of a history."""

    def __init__(self) -> None:
        self._waiter: asyncio.Future[None] | None = None

    def add(self, future: Awaited) -> Awaited:
        future.add_done_callback(self._over)
        return future

    async def of(self, futures: Iterable[asyncio.Future[Any] | None], timeout: float | None) -> None:
        """Waits until one of them is done, or for `timeout` seconds."""
        loop = asyncio.get_running_loop()
        waiter = self._waiter = loop.create_future()
        if any(one is not None and one.done() for one in futures):
            loop.call_soon(self._over)
        clock = None if timeout is None else loop.call_later(timeout, self._over)
        try:
            await waiter
        finally:
            if clock:
                clock.cancel()

    def _over(self, _: object = None) -> None:
        if self._waiter and not self._waiter.done():
            self._waiter.set_result(None)


async def interleaved(
    source: AsyncIterator[tuple[str, steps.Step]],
    live: LiveActivities | None,
    silence: Silence,
    agents: FollowedAgents | None = None,
) -> AsyncGenerator[tuple[str, steps.Step | None, list[Event]]]:
    """Yields each step with the events that come before it; and between steps, with None as the step, live events,
    WorkerAwaited and the events of sub-agents. None with no event at all: a sub-agent has changed."""
    step: asyncio.Future[tuple[str, steps.Step]] | None = None
    look: asyncio.Task[HeartbeatDetails] | None = None
    unattended: asyncio.Task[Unattended] | None = None
    said: asyncio.Task[list[Event]] | None = None
    below: asyncio.Task[list[Event]] | None = None
    turn, first = 0, _FirstOf()
    try:
        while True:
            step = step or first.add(asyncio.ensure_future(anext(source)))
            unattended = unattended or first.add(asyncio.create_task(silence.unattended()))
            due = live.due if live else None
            if live and look is None and due is not None and due <= live.clock():
                look = first.add(asyncio.create_task(live.look()))
            timeout = None if look or due is None or live is None else due - live.clock()
            said = said or (first.add(asyncio.create_task(live.said())) if live and live.lane else None)
            below = below or (first.add(asyncio.create_task(agents.said())) if agents and agents.any else None)
            await first.of((step, unattended, look, said, below), timeout)
            if live and look and look.done():
                running, look = look.result(), None
                if told := live.hear(running):
                    yield "", None, told
            elif said and said.done():
                written, said = said.result(), None
                if written:
                    yield "", None, written
            elif step.done():
                try:
                    run_id, taken = step.result()
                except StopAsyncIteration:
                    return
                step = None
                silence.heard()
                if agents:
                    agents.take(taken)
                turn = taken.request.turn if isinstance(taken, steps.TurnScheduled) else turn
                yield run_id, taken, live.take(run_id, taken) if live else []
            elif below and below.done():
                changes, below = below.result(), None
                yield "", None, changes
            elif unattended.done():
                found, unattended = unattended.result(), None
                yield "", None, [_now(WorkerAwaited(turn=turn, cause=found.cause, cure=found.cure))]
    finally:
        if live:
            live.close()
        if agents:
            agents.close()
        # Not awaited: after a `break` in an `async for`, the loop closes this generator and its caller at once.
        for task in (step, look, said, unattended, below):
            if task:
                task.add_done_callback(lambda done: done.cancelled() or done.exception())
                task.cancel()


def _rest(turn: _LiveTurn, message: Message, attempt: int) -> list[Event]:
    """The events for the rest of a reply of which a part was already yielded."""
    if not turn.position:
        return []
    thinking = "".join(part.text for part in message.parts if isinstance(part, Thinking))
    events: list[Event] = []
    if attempt > turn.attempt or not message.text.startswith(turn.text):
        events.append(turn.start_over(max(attempt, turn.attempt + 1)))
    if thinking.startswith(turn.thinking):
        events += turn.say("thinking", thinking[len(turn.thinking) :])
    return events + turn.say("text", message.text[len(turn.text) :])


def _when(info: PendingActivityInfo) -> str:
    at = info.last_heartbeat_time if info.HasField("last_heartbeat_time") else info.last_started_time
    return at.ToDatetime(tzinfo=UTC).isoformat(timespec="milliseconds")


def _now(event: Event) -> Event:
    return _at(event, datetime.now(UTC).isoformat(timespec="milliseconds"))


def _at(event: Event, at: str) -> Event:
    return event.model_copy(update={"at": at})
