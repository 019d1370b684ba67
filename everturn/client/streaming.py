"""What the activities that run say of themselves: text while it is written, progress of tools.

It is in the details of their heartbeats, which Temporal keeps beside the history and gives to whoever asks. So it
is asked for only while a model turn or a tool runs, and as often as the worker says that there is more.
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
from everturn.client.silence import Silence, Unattended
from everturn.events import Event, TextDelta, ThinkingDelta, ToolProgress, TurnLimited, TurnRetried, WorkerAwaited
from everturn.history import steps
from everturn.live.lane import Lane, TurnKey
from everturn.records import Message, Thinking
from everturn.streamed import AtLimit, LiveAt, Streamed

FIRST_LOOK_SECONDS = 0.5
LOOK_SECONDS = 1.5
"""Between two looks if nobody asked for streaming."""

AWAITING_SECONDS = 0.1
"""Between two looks for text that is streamed: before it comes, and while it pauses."""

LOOK_TIMEOUT = timedelta(seconds=5)

SETTLE_SECONDS = 0.02
"""Before a lane is asked for a turn's text: the events of turns that are over pass by quicker."""

DUE_SECONDS = 0.025
"""Between two looks for a beat that is due."""


@dataclass
class _LiveTurn:
    """A model turn that runs, and what was told of it."""

    turn: int
    activity_id: str
    told_at: float
    """When something was told of it last, by the clock."""
    attempt: int = 1
    text: str = ""
    thinking: str = ""
    every: float = 0.0
    limited: bool = False
    """It was told that it waits for its provider's limit."""
    live_at: LiveAt | None = None
    """Where its text is handed out beside the heartbeats: as its request says, or the try that runs."""
    over: bool = False
    """No longer among the running activities: its end is on its way through the history."""

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
    """Of the activities that were `asked` for, those that run: each with its second heartbeat detail."""

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
    """Where text comes beside the heartbeats; those then are looked at seldom."""
    _run_id: str = ""
    _stream: bool = False
    _turn: _LiveTurn | None = None
    _tools: dict[str, _LiveTool] = field(default_factory=dict)
    _following: asyncio.Task[None] | None = None
    _heard: asyncio.Queue[tuple[str, Streamed]] = field(default_factory=asyncio.Queue)
    """With the activity that said it."""

    def take(self, run_id: str, step: steps.Step) -> list[Event]:
        """What is to be told before the step's own events: the rest of a text that was shown in part."""
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
        """What a turn puts onto the lane, until it is over."""
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
        """What came beside the heartbeats since it was asked last; waits for it."""
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
        """What the activities that run now have said last."""
        turn = [self._turn.activity_id] if self._turn else []
        beats = HeartbeatDetails(self._run_id, asked=frozenset([*turn, *self._tools]))
        request = DescribeWorkflowExecutionRequest(
            namespace=self.client.namespace,
            execution=WorkflowExecution(workflow_id=self.conversation_id, run_id=self._run_id),
        )
        try:
            described = await self.client.workflow_service.describe_workflow_execution(request, timeout=LOOK_TIMEOUT)
        except RPCError:
            # Only a look: whoever reads the history meets what is really wrong.
            return replace(beats, asked=frozenset())
        for info in described.pending_activities:
            if info.activity_id in beats.asked:
                beats.said[info.activity_id] = (info, await self._details(info))
        return beats

    def hear(self, beats: HeartbeatDetails) -> list[Event]:
        """What is new in it. It may be older than the last step: what is not known to run any more says nothing."""
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
        """Where the try that runs hands out its text: as it says itself, else as the turn's request does."""
        at = turn.live_at
        with suppress(ValueError):
            streamed = Streamed.model_validate(details)
            at = (streamed.live_at if streamed.attempt == attempt else None) or at
        if self.lane and at:
            self.lane.hear_of(self._key(turn.activity_id), at)

    def _is_beside(self, activity_id: str) -> bool:
        """Whether the turn's text comes beside the heartbeats."""
        return self.lane is not None and not self.lane.is_silent(self._key(activity_id))

    async def _details(self, info: PendingActivityInfo) -> Any:
        """What the activity says; None if there is none, or none that can be read. Before it, activities of ours leave
        word for their next try; users' own do not."""
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
        # Right after a beat there is nothing new for a while; around the time of the next one it is worth looking; and
        # a long silence may last.
        silent, every = self.clock() - self._turn.told_at, self._turn.every
        seldom = min(max(self.awaiting_seconds, silent / 20), FIRST_LOOK_SECONDS)
        again = DUE_SECONDS if silent < 1.5 * every else seldom
        self._look_in(max(every - DUE_SECONDS - silent, again))

    def _look_in(self, seconds: float) -> None:
        due = self.clock() + seconds
        self.due = due if self.due is None else min(self.due, due)


Awaited = TypeVar("Awaited", bound="asyncio.Future[Any]")


class _FirstOf:
    """As asyncio.wait for the first, of futures that are waited for again and again: each is watched once, and not anew
    for each step of a history."""

    def __init__(self) -> None:
        self._waiter: asyncio.Future[None] | None = None

    def add(self, future: Awaited) -> Awaited:
        future.add_done_callback(self._over)
        return future

    async def of(self, futures: Iterable[asyncio.Future[Any] | None], timeout: float | None) -> None:
        """Waits until one of them is done, or for so many seconds."""
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
    source: AsyncIterator[tuple[str, steps.Step]], live: LiveActivities | None, silence: Silence
) -> AsyncGenerator[tuple[str, steps.Step | None, list[Event]]]:
    """Each step as it comes, with what is to be told before it; and between them, without a step, what is live, and
    that no worker is there."""
    step: asyncio.Future[tuple[str, steps.Step]] | None = None
    look: asyncio.Task[HeartbeatDetails] | None = None
    unattended: asyncio.Task[Unattended] | None = None
    said: asyncio.Task[list[Event]] | None = None
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
            await first.of((step, unattended, look, said), timeout)
            if live and look and look.done():
                running, look = look.result(), None
                if told := live.hear(running):
                    yield "", None, told
            elif said and said.done():
                heard, said = said.result(), None
                if heard:
                    yield "", None, heard
            elif step.done():
                try:
                    run_id, taken = step.result()
                except StopAsyncIteration:
                    return
                step = None
                silence.heard()
                turn = taken.request.turn if isinstance(taken, steps.TurnScheduled) else turn
                yield run_id, taken, live.take(run_id, taken) if live else []
            elif unattended.done():
                found, unattended = unattended.result(), None
                yield "", None, [_now(WorkerAwaited(turn=turn, cause=found.cause, cure=found.cure))]
    finally:
        if live:
            live.close()
        # Not awaited: who leaves an `async for` has this closed by the loop, which closes its caller at the same time.
        for task in (step, look, said, unattended):
            if task:
                task.add_done_callback(lambda done: done.cancelled() or done.exception())
                task.cancel()


def _rest(turn: _LiveTurn, message: Message, attempt: int) -> list[Event]:
    """What was not shown of a reply of which a part was."""
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
