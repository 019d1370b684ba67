"""The functions of `temporalio.workflow`, faked on asyncio's own loop: for tests that call one part of a conversation
themselves, such as the approvals or the ledger of calls, and look into its state before and after.

An activity that was scheduled, a timer and a child wait until the test ends them; nothing else happens by itself. So a
test says itself in which order things come. But that it is the SDK's order, only tests/support/played_runs.py shows:
take that for whatever a whole workflow is asked from outside, and for its commands, replays and next runs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from temporalio import workflow
from temporalio.common import RawValue

from everturn.carryover import CarryOver, OpenReply
from everturn.payloads import Start
from everturn.plans import PlannedCall
from everturn.records import ToolCall, ToolResult
from everturn.state import State
from everturn.storage.data_converter import data_converter
from everturn.subagents.workflow import SubAgents
from everturn.webhooks.conversation_events import Webhooks
from everturn.workflows.activity_results import ActivityResults
from everturn.workflows.approvals import PendingApprovals
from everturn.workflows.awaited_worker import AwaitedWorker
from everturn.workflows.call_ledger import CallLedger
from everturn.workflows.chain import RunChain
from everturn.workflows.commands import Commands
from everturn.workflows.tool_calls import OpenCalls
from everturn.workflows.tracing import Tracing
from tests.support.payloads import of_unknown_encoding, payload_of
from tests.support.watched_tasks import WatchedTask

MANY_STEPS = 50
"""Turns of the event loop, in which everything that is ready has run."""


async def settle() -> None:
    """Returns once nothing more happens by itself."""
    for _ in range(MANY_STEPS):
        await asyncio.sleep(0)


class Scheduled:
    """An activity, a child workflow or an operation: the test says how it ends."""

    def __init__(self, name: str, sent: Any, options: dict[str, Any], *, local: bool = False) -> None:
        self.name = name
        self.waits_if_cancelled = False
        """Its end is waited for then, though somebody was told to cancel it."""
        self.asked_to_cancel = False
        self.input = sent
        self.options = options
        self.summary: str | None = options.get("summary")
        self.local = local
        self.signals: list[tuple[str, Any]] = []
        self.signal_error: Exception | None = None
        """What a signal to it fails with."""
        self._end: asyncio.Future[RawValue | None] = asyncio.get_running_loop().create_future()
        self.task = _Handle(self._wait(), self)

    async def _wait(self) -> RawValue | None:
        try:
            return await asyncio.shield(self._end)
        except asyncio.CancelledError:
            self.asked_to_cancel = True
            if not self.waits_if_cancelled:
                raise
            return await self._end

    @property
    def over(self) -> bool:
        return self.task.done() or self._end.done()

    @property
    def cancelled(self) -> bool:
        return self.task.cancelled()

    async def finish(self, value: Any) -> None:
        """It returns this value, as the history has it."""
        self._end.set_result(RawValue(payload_of(value)))
        await settle()

    async def finish_unreadably(self) -> None:
        """It returns what only another worker could read."""
        self._end.set_result(RawValue(of_unknown_encoding()))
        await settle()

    async def fail(self, error: BaseException) -> None:
        self._end.set_exception(error)
        await settle()


class _Handle(WatchedTask):
    """What workflow code gets of it."""

    def __init__(self, end: Coroutine[Any, Any, RawValue | None], scheduled: Scheduled) -> None:
        super().__init__(end, loop=asyncio.get_running_loop())
        self._scheduled = scheduled

    async def signal(self, name: str, sent: Any) -> None:
        """To a child."""
        if self._scheduled.signal_error:
            raise self._scheduled.signal_error
        self._scheduled.signals.append((name, sent))


class Timer:
    def __init__(self, seconds: float, summary: str) -> None:
        self.seconds = seconds
        self.summary = summary
        self.fires: asyncio.Future[None] = asyncio.get_running_loop().create_future()


class FakeSdk:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.time = 1_000.0
        self.length = 10
        """Of the history, in events."""
        self.size = 0
        """In bytes."""
        self.replaying = False
        self.patches: set[str] | None = None
        """Those that a replay finds in its history; None: all that are asked for."""
        self.markers: list[str] = []
        """Patches that were asked for, in this order."""
        self.activities: list[Scheduled] = []
        self.children: list[Scheduled] = []
        self.timers: list[Timer] = []
        self.signals: list[tuple[str, str, Any]] = []
        """To other workflows: the workflow's id, the signal's name and its input."""
        self.signal_error: Exception | None = None
        """What a signal to another workflow fails with."""
        self.info = SimpleNamespace(
            workflow_id="talk",
            run_id="run",
            original_execution_run_id="run",
            task_queue="ours",
            headers={},
            get_current_history_length=lambda: self.length,
            get_current_history_size=lambda: self.size,
        )
        fakes: dict[str, Any] = {
            "info": lambda: self.info,
            "time": lambda: self.time,
            "now": lambda: datetime.fromtimestamp(self.time, UTC),
            "patched": self._patched,
            "payload_converter": lambda: data_converter.payload_converter,
            "start_activity": lambda name, *args, **options: self._start(name, args, options),
            "start_local_activity": lambda name, *args, **options: self._start(name, args, options, local=True),
            "start_child_workflow": self._start_child,
            "wait_condition": self._wait_condition,
            "sleep": self._sleep,
            "get_external_workflow_handle": self._other_workflow,
            "extern_functions": dict,
            "cancellation_reason": lambda: None,
            "current_update_info": lambda: None,
        }
        for name, fake in fakes.items():
            monkeypatch.setattr(workflow, name, fake)
        monkeypatch.setattr(workflow.unsafe, "is_replaying", lambda: self.replaying)
        monkeypatch.setattr(workflow.unsafe, "is_replaying_history_events", lambda: True)  # nothing is logged

    @property
    def open_activities(self) -> list[Scheduled]:
        return [activity for activity in self.activities if not activity.over]

    async def scheduled(self, name: str = "") -> Scheduled:
        """The activity that is under way, of this name if there are several."""
        await settle()
        under_way = [activity for activity in self.open_activities if name in ("", activity.name)]
        assert len(under_way) == 1, f"activities under way, not just one {name!r}: {[it.name for it in under_way]}"
        return under_way[0]

    async def fire(self, summary: str) -> float:
        """Ends the timer whose summary begins so, and returns its seconds."""
        await settle()
        timer = next(timer for timer in self.timers if timer.summary.startswith(summary) and not timer.fires.done())
        self.time += timer.seconds
        timer.fires.set_result(None)
        await settle()
        return timer.seconds

    async def begin_task(self) -> None:
        """The next workflow task, for what waits for one."""
        self.length += 1
        await self.fire("the next workflow task")

    def _patched(self, patch: str) -> bool:
        self.markers.append(patch)
        return self.patches is None or patch in self.patches

    def _start(self, name: str, args: tuple[Any, ...], options: dict[str, Any], *, local: bool = False) -> Any:
        sent = args[0] if args else options.pop("args", None)
        activity = Scheduled(name, sent, options, local=local)
        self.activities.append(activity)
        return activity.task

    async def _start_child(self, name: str, start: Any, **options: Any) -> Any:
        child = Scheduled(name, start, options)
        self.children.append(child)
        return child.task

    async def _wait_condition(
        self, condition: Callable[[], bool], *, timeout: float | Any = None, timeout_summary: str = ""
    ) -> None:
        timer = None
        if timeout is not None:
            timer = Timer(getattr(timeout, "total_seconds", lambda: timeout)(), timeout_summary)
            self.timers.append(timer)
        while not condition():
            if timer and timer.fires.done():
                raise TimeoutError
            await asyncio.sleep(0)
        if timer and not timer.fires.done():
            timer.fires.cancel()

    async def _sleep(self, seconds: float | Any, *, summary: str = "") -> None:
        timer = Timer(getattr(seconds, "total_seconds", lambda: seconds)(), summary)
        self.timers.append(timer)
        try:
            await timer.fires
        finally:
            timer.fires.cancel()

    def _other_workflow(self, workflow_id: str) -> Any:
        async def signal(name: str, sent: Any) -> None:
            if self.signal_error:
                raise self.signal_error
            self.signals.append((workflow_id, name, sent))

        return SimpleNamespace(signal=signal)


class ReplyParts:
    """The parts of a conversation that see to the calls of one reply, connected as its workflow connects them."""

    def __init__(self, sdk: FakeSdk, **start: Any) -> None:
        self.sdk = sdk
        begun = Start(**{"agent": "clerk", **start})
        carry = begun.carry or CarryOver()
        self.state = State(begun, run_began=sdk.time)
        reply = carry.open or OpenReply()
        self.ledger = CallLedger(reply, RunChain(carry.chain_id, reset_run=carry.reset_run))
        self.changes = 0
        self.tracing = Tracing(self.state, begun, carry, chain_id=self.ledger.chain.id)
        results = ActivityResults()
        webhooks = Webhooks(self.state, announced=())
        self.agents = SubAgents(self.state, results, self.tracing, webhooks=webhooks, on_change=self._count_change)
        self.approvals = PendingApprovals(
            self.state, reply, ledger=self.ledger, agents_at_work=self.agents.running, on_change=self._count_change
        )
        self.commands = Commands(self.state, self.approvals, self.tracing, listeners={}, on_change=self._count_change)
        stalls_and_pauses = self.commands.stalls_and_pauses
        self.awaited_worker = AwaitedWorker(self.state, stalls_and_pauses, on_change=self._count_change)
        self.open_calls = OpenCalls(
            self.state, self.ledger, self.approvals, self.agents, results, self.awaited_worker, self.tracing
        )
        self.state.turn = 1
        self._settling: asyncio.Task[tuple[ToolResult, ...]] | None = None

    def _count_change(self) -> None:
        self.changes += 1

    async def begin(self, *calls: ToolCall, plan: Iterable[PlannedCall]) -> None:
        """The model made these calls, and this is planned for them."""
        self.ledger.begin_reply(calls)
        await self.go_on(plan=plan)

    async def go_on(self, *, plan: Iterable[PlannedCall]) -> None:
        async def nothing() -> None:
            pass

        self._settling = asyncio.create_task(self.open_calls.settle_all(tuple(plan), nothing()))
        self.commands.begin_answering(self._settling)  # type: ignore[arg-type]
        await settle()

    async def send(self, command: str, **payload: Any) -> None:
        """A signal of a person's."""
        self.commands.handlers.take_signal(command, (payload,))
        await settle()

    async def results(self) -> tuple[ToolResult, ...]:
        """Those of all calls, which are over."""
        assert self._settling
        await settle()
        assert self._settling.done(), f"still waiting: {[*self.state.pending]}, {self.sdk.open_activities}"
        return self._settling.result()

    async def result(self) -> ToolResult:
        (only,) = await self.results()
        return only
