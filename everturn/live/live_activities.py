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
from everturn.client.missing_worker import MissingWorkerWatch
from everturn.client.unpolled_queue import UnpolledQueue
from everturn.events import Event, TextDelta, ThinkingDelta, ToolProgress, TurnLimited, TurnRetried, WorkerAwaited
from everturn.heartbeats.details import AtLimit, LiveAt, StreamedText
from everturn.history import steps
from everturn.live.lane import Lane, TurnKey
from everturn.records import Message, Thinking
from everturn.subagents.followed import FollowedAgents

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
        self.attempt = attempt
        self.text = ""
        self.thinking = ""
        return TurnRetried(turn=self.turn, attempt=attempt)

    def read_news(self, attempt: int, details: Any) -> list[Event]:
        events: list[Event] = [self.start_over(attempt)] if attempt > self.attempt else []
        with suppress(ValueError):
            limit = AtLimit.model_validate(details)
            if not self.limited:
                events.append(TurnLimited(turn=self.turn, provider=limit.limit_of))
            self.limited = True
            return events
        self.limited = False
        with suppress(ValueError):
            streamed = StreamedText.model_validate(details)
            if streamed.attempt == self.attempt:
                self.every = streamed.every
                for kind, text in streamed.after(self.position):
                    events += self.add_text(kind, text)
        return events

    def add_text(self, kind: str, text: str) -> list[Event]:
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

    def read_news(self, details: Any) -> list[Event]:
        if details is None or details == self.progress:
            return []
        self.progress = details
        request = self.started.request
        tool_name = self.started.tool
        return [ToolProgress(turn=request.turn, call_id=request.call_id, tool=tool_name, progress=details)]


@dataclass(frozen=True)
class HeartbeatDetails:
    """What the running ones among these activities say."""

    run_id: str
    activity_ids: frozenset[str]
    details: dict[str, tuple[PendingActivityInfo, Any]] = field(default_factory=dict)
    """Of each one, by its id."""


@dataclass
class LiveActivities:
    """One conversation's running activities. Give it every step; `look_at_heartbeats` whenever `due` says so."""

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
    _heard: asyncio.Queue[tuple[str, StreamedText]] = field(default_factory=asyncio.Queue)
    """Text from the lane, each piece with the id of its activity."""

    def take_step(self, run_id: str, step: steps.Step) -> list[Event]:
        """The events to yield before the step's own: the rest of a text of which a part was already yielded."""
        self._run_id = run_id
        rest_of_text: list[Event] = []
        match step:
            case steps.RunStarted():
                self._turn = None
                self._tools = {}
            case steps.TurnScheduled(request=request) if not request.summarise:
                self._stream = request.stream
                self._turn = _LiveTurn(request.turn, step.activity_id, told_at=self.clock(), live_at=request.live_at)
                if request.stream and self.lane is None:
                    self._look_in(self.awaiting_seconds)
                else:
                    self._look_in(FIRST_LOOK_SECONDS)
                self._follow_turn(step.activity_id, request.live_at)
            case steps.TurnCompleted(reply=reply) if self._turn:
                rest_of_text = _rest_of_reply(self._turn, reply.message, step.attempt)
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
        return [_with_time(event, step.at.isoformat(timespec="milliseconds")) for event in rest_of_text]

    # ------------------------------------------------------------ beside the heartbeats

    def _follow_turn(self, activity_id: str, live_at: LiveAt | None) -> None:
        """Begins to read the text that a turn puts onto the lane."""
        self.close()
        if self.lane is not None and self._stream:
            self._following = asyncio.create_task(self._listen_to_lane(self.lane, self._turn_key(activity_id), live_at))

    def _turn_key(self, activity_id: str) -> TurnKey:
        return TurnKey(self.client.namespace, self._run_id, activity_id)

    async def _listen_to_lane(self, lane: Lane, key: TurnKey, live_at: LiveAt | None) -> None:
        await asyncio.sleep(SETTLE_SECONDS)
        async with aclosing(lane.follow(key, live_at)) as texts:
            async for streamed in texts:
                self._heard.put_nowait((key.activity_id, streamed))

    async def wait_for_text(self) -> list[Event]:
        """Waits for text from the lane; returns the events for all text since the last call."""
        heard = [await self._heard.get()]
        while not self._heard.empty():
            heard.append(self._heard.get_nowait())
        events: list[Event] = []
        for activity_id, streamed in heard:
            if self._turn and self._turn.activity_id == activity_id:
                events += [_with_current_time(event) for event in self._turn.read_news(streamed.attempt, streamed)]
        return events

    def close(self) -> None:
        if self._following:
            self._following.cancel()
            self._following = None

    # ------------------------------------------------------------ heartbeats

    async def look_at_heartbeats(self) -> HeartbeatDetails:
        """The latest heartbeat details of the running activities."""
        activity_ids = set(self._tools)
        if self._turn:
            activity_ids.add(self._turn.activity_id)
        beats = HeartbeatDetails(self._run_id, frozenset(activity_ids))
        request = DescribeWorkflowExecutionRequest(
            namespace=self.client.namespace,
            execution=WorkflowExecution(workflow_id=self.conversation_id, run_id=self._run_id),
        )
        try:
            described = await self.client.workflow_service.describe_workflow_execution(request, timeout=LOOK_TIMEOUT)
        except RPCError:
            # Only live news: a real failure is raised where the history is read.
            return replace(beats, activity_ids=frozenset())
        for info in described.pending_activities:
            if info.activity_id in beats.activity_ids:
                beats.details[info.activity_id] = (info, await self._read_details(info))
        return beats

    def take_heartbeats(self, beats: HeartbeatDetails) -> list[Event]:
        """The new events in it. It may be older than the last step: activities that are over by now are ignored."""
        events: list[Event] = []
        if beats.run_id == self._run_id:
            gone = beats.activity_ids - beats.details.keys()
            self._tools = {key: tool for key, tool in self._tools.items() if key not in gone}
            if self._turn and self._turn.activity_id in gone:
                self._turn.over = True
            for activity_id, (info, details) in beats.details.items():
                news: list[Event] = []
                if self._turn and self._turn.activity_id == activity_id:
                    news = self._turn.read_news(info.attempt, details)
                    self._tell_lane_address(self._turn, info.attempt, details)
                    if news:
                        self._turn.told_at = self.clock()
                elif activity_id in self._tools:
                    news = self._tools[activity_id].read_news(details)
                events += [_with_time(event, _time_of_heartbeat(info)) for event in news]
        self._plan_next_look()
        return events

    def _tell_lane_address(self, turn: _LiveTurn, attempt: int, details: Any) -> None:
        """Tells the lane the address of the running try: from its heartbeat, else from the turn's request."""
        live_at = turn.live_at
        with suppress(ValueError):
            streamed = StreamedText.model_validate(details)
            if streamed.live_at and streamed.attempt == attempt:
                live_at = streamed.live_at
        if self.lane and live_at:
            self.lane.hear_of(self._turn_key(turn.activity_id), live_at)

    def _is_beside(self, activity_id: str) -> bool:
        """Whether the turn's text comes by the lane."""
        return self.lane is not None and not self.lane.is_silent(self._turn_key(activity_id))

    async def _read_details(self, info: PendingActivityInfo) -> Any:
        """The heartbeat detail with the news; None if there is none, or none that can be read. Everturn's own
        activities put data for their next try before it; users' activities do not."""
        place = 0 if info.activity_id.startswith(names.ACTIVITY_OF_CALL) else 1
        with suppress(Exception):  # codecs raise all kinds, and it is only a look
            details = await self.client.data_converter.decode(info.heartbeat_details.payloads)
            if len(details) > place:
                return details[place]
        return None

    def _plan_next_look(self) -> None:
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
        silent = self.clock() - self._turn.told_at
        every = self._turn.every
        again = DUE_SECONDS
        if silent >= 1.5 * every:
            again = min(max(self.awaiting_seconds, silent / 20), FIRST_LOOK_SECONDS)
        self._look_in(max(every - DUE_SECONDS - silent, again))

    def _look_in(self, seconds: float) -> None:
        due = self.clock() + seconds
        if self.due is None or due < self.due:
            self.due = due


Awaited = TypeVar("Awaited", bound="asyncio.Future[Any]")


class _FirstOf:
    """Like asyncio.wait(FIRST_COMPLETED), for futures that are waited for many times: the callback is added to each
    future once, and not again for each step of a history."""

    def __init__(self) -> None:
        self._waiter: asyncio.Future[None] | None = None

    def add(self, future: Awaited) -> Awaited:
        future.add_done_callback(self._end_wait)
        return future

    async def wait_for_any(self, futures: Iterable[asyncio.Future[Any] | None], timeout: float | None) -> None:
        """Waits until one of them is done, or for `timeout` seconds."""
        loop = asyncio.get_running_loop()
        waiter = self._waiter = loop.create_future()
        if any(future is not None and future.done() for future in futures):
            loop.call_soon(self._end_wait)
        timer: asyncio.TimerHandle | None = None
        if timeout is not None:
            timer = loop.call_later(timeout, self._end_wait)
        try:
            await waiter
        finally:
            if timer:
                timer.cancel()

    def _end_wait(self, _: object = None) -> None:
        if self._waiter and not self._waiter.done():
            self._waiter.set_result(None)


async def interleave_events(
    source: AsyncIterator[tuple[str, steps.Step]],
    live: LiveActivities | None,
    silence: MissingWorkerWatch,
    agents: FollowedAgents | None = None,
) -> AsyncGenerator[tuple[str, steps.Step | None, list[Event]]]:
    """Yields each step with the events that come before it; and between steps, with None as the step, live events,
    WorkerAwaited and the events of sub-agents. None with no event at all: a sub-agent has changed."""
    step: asyncio.Future[tuple[str, steps.Step]] | None = None
    look: asyncio.Task[HeartbeatDetails] | None = None
    unattended: asyncio.Task[UnpolledQueue] | None = None
    text: asyncio.Task[list[Event]] | None = None
    agent_events: asyncio.Task[list[Event]] | None = None
    turn = 0
    first_of = _FirstOf()
    try:
        while True:
            step = step or first_of.add(asyncio.ensure_future(anext(source)))
            unattended = unattended or first_of.add(asyncio.create_task(silence.wait_until_unattended()))
            timeout: float | None = None
            if live and look is None and live.due is not None:
                timeout = live.due - live.clock()
                if timeout <= 0:
                    look = first_of.add(asyncio.create_task(live.look_at_heartbeats()))
                    timeout = None
            if live and live.lane and text is None:
                text = first_of.add(asyncio.create_task(live.wait_for_text()))
            if agents and agents.has_agents and agent_events is None:
                agent_events = first_of.add(asyncio.create_task(agents.wait_for_events()))
            await first_of.wait_for_any((step, unattended, look, text, agent_events), timeout)
            if live and look and look.done():
                events = live.take_heartbeats(look.result())
                look = None
                if events:
                    yield "", None, events
            elif text and text.done():
                events = text.result()
                text = None
                if events:
                    yield "", None, events
            elif step.done():
                try:
                    run_id, news = step.result()
                except StopAsyncIteration:
                    return
                step = None
                silence.note_step()
                if agents:
                    agents.take_step(news)
                if isinstance(news, steps.TurnScheduled):
                    turn = news.request.turn
                yield run_id, news, live.take_step(run_id, news) if live else []
            elif agent_events and agent_events.done():
                events = agent_events.result()
                agent_events = None
                yield "", None, events
            elif unattended.done():
                reason = unattended.result()
                unattended = None
                yield "", None, [_with_current_time(WorkerAwaited(turn=turn, cause=reason.cause, cure=reason.cure))]
    finally:
        if live:
            live.close()
        if agents:
            agents.close()
        # Not awaited: after a `break` in an `async for`, the loop closes this generator and its caller at once.
        for task in (step, look, text, unattended, agent_events):
            if task:
                task.add_done_callback(lambda done: done.cancelled() or done.exception())
                task.cancel()


def _rest_of_reply(turn: _LiveTurn, message: Message, attempt: int) -> list[Event]:
    """The events for the rest of a reply of which a part was already yielded."""
    if not turn.position:
        return []
    thinking = "".join(part.text for part in message.parts if isinstance(part, Thinking))
    events: list[Event] = []
    if attempt > turn.attempt or not message.text.startswith(turn.text):
        events.append(turn.start_over(max(attempt, turn.attempt + 1)))
    if thinking.startswith(turn.thinking):
        events += turn.add_text("thinking", thinking[len(turn.thinking) :])
    return events + turn.add_text("text", message.text[len(turn.text) :])


def _time_of_heartbeat(info: PendingActivityInfo) -> str:
    moment = info.last_started_time
    if info.HasField("last_heartbeat_time"):
        moment = info.last_heartbeat_time
    return moment.ToDatetime(tzinfo=UTC).isoformat(timespec="milliseconds")


def _with_current_time(event: Event) -> Event:
    return _with_time(event, datetime.now(UTC).isoformat(timespec="milliseconds"))


def _with_time(event: Event, moment: str) -> Event:
    return event.model_copy(update={"at": moment})
