"""Counts the tries of an activity that were lost with their worker, so that no call kills workers for ever.

A try that fails says so in the first heartbeat detail, which Temporal keeps for the next try. A try that is lost says
nothing. A call may be lost only because another call killed the worker of both. So after its second loss, a call runs
alone: of the calls that were lost before, each worker runs one at a time. From then on, only tries that were lost while
the call ran alone count against it: a call that was about to wait, or waited, may have had no time to say anything.

A frozen worker's open polls go on taking tries that never begin. So from the second try on, a try says for certain that
it begins; what says nothing has not begun, and does not count.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from contextvars import ContextVar
from datetime import timedelta
from typing import Any

from temporalio import activity
from temporalio.client import AsyncActivityCancelledError
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory
from temporalio.service import RPCError
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, Interceptor

from everturn import names
from everturn.activities.user_activities import is_users_own
from everturn.lost_workers.journal import RPC_TIMEOUT
from everturn.providers.transcript_facts import facts_of
from everturn.records import Message
from everturn.temporal.temporal_errors import not_found

MOST_OF_A_TOOL = 5
"""After so many lost tries of a tool call, the model is told: two beside other calls, and three alone."""

MOST_GIVEN_UP = 2
"""After so many calls of one tool were given up since a user said something, further calls of it are not run."""

MOST_OF_A_PLAN = 3
"""After so many lost tries of a model turn, its reply is planned without the user's predicates and validators."""

MOST_OF_AN_ACTIVITY = 10
"""After so many lost tries, any activity of everturn's fails and says why."""

IN_COMPANY = 2
"""How often a call is lost before it runs alone."""

ALONE_SECONDS = 15.0
"""How long a call keeps the next one waiting. A call that kills its worker usually does so within seconds."""

LONGEST_WAIT_SECONDS = 2.0
"""How long a call waits for its turn before it is handed back to the server, where its time-out is running."""

MOST_RUNS_MET = 10_000
"""Of so many runs, a worker remembers that it has asked what was lost in them."""

BACK_IN = timedelta(seconds=1)

SETTLE_SECONDS = 0.25
"""A pause before a call begins alone: in it, the calls that came with it can report that they wait."""

LOST = "everturn_lost"
AT = "everturn_at"
RAN = "everturn_ran"
ALONE = "everturn_alone"
TRIED = "everturn_tried"
BEGAN = "everturn_began"
"""The keys of what a try leaves to the next. LOST: how many tries were lost before try AT. RAN: whether try AT is lost,
too, if it ends without a word. ALONE: how many tries before AT were lost while they ran alone. BEGAN: the last try
that has said that it begins. TRIED: a try has failed that may have had an effect."""

_left: ContextVar[dict[str, Any] | None] = ContextVar("left")


def given_up(messages: Sequence[Message]) -> frozenset[str]:
    """The tools of which MOST_GIVEN_UP calls lost their workers since a user last said something, and were given up. A
    model that is told so once may just call the tool again."""
    return frozenset(name for name, count in facts_of(messages).lost_calls.items() if count >= MOST_GIVEN_UP)


def details_left() -> dict[str, Any]:
    """What this try leaves to the next one, so far."""
    details = _left.get(None)
    if details is None:
        details = {}
        _left.set(details)
    return details


def first_details() -> tuple[Any, ...]:
    """The heartbeat details of a try that has just begun: what it was left, with what it adds."""
    progress = tuple(activity.info().heartbeat_details[1:])
    mine = dict(details_left()) or None
    if not mine and not progress:
        return ()
    return (mine, *progress)


def leave_details(**facts: Any) -> None:
    details_left().update(facts)
    activity.heartbeat(details_left())


def lost_tries() -> int:
    """How many tries of this activity were lost before this one."""
    info = activity.info()
    if info.attempt == 1 or info.is_local:  # a local activity has no heartbeats to leave it in
        return 0
    details = details_left()
    last_told = int(details.get(AT, 0))
    if last_told > info.attempt:  # an operator has reset the activity
        return 0
    if last_told == info.attempt:
        return int(details.get(LOST, 0))
    known = int(details.get(LOST, 0)) + bool(details.get(RAN))
    silent = info.attempt - 1 - last_told
    # Of the silent ones, at most one has begun. If none was lost before, it may have begun without a word.
    return known + (last_told < int(details.get(BEGAN, 0)) < info.attempt or (silent > 0 and not known))


def may_have_run() -> bool:
    """Whether a try before this one was lost, or has failed and may have had an effect."""
    return lost_tries() > 0 or bool(details_left().get(TRIED))


def blamed_tries() -> int:
    """How many of its lost tries count against a call: the first IN_COMPANY ones, whose cause nobody knows, and those
    that were lost while it ran alone."""
    return min(lost_tries(), IN_COMPANY) + _lost_alone()


def _lost_alone() -> int:
    info = activity.info()
    if info.attempt == 1 or info.is_local:
        return 0
    details = details_left()
    if int(details.get(AT, 0)) > info.attempt:
        return 0
    ended = int(details.get(AT, 0)) < info.attempt
    return int(details.get(ALONE, 0)) + (ended and bool(details.get(RAN)))


class LostTries(Interceptor):
    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:  # noqa: A002
        return _Try(next)


class _Try(ActivityInboundInterceptor):
    async def execute_activity(self, input: ExecuteActivityInput) -> Any:  # noqa: A002
        info = activity.info()
        if is_users_own(info):
            return await self.next.execute_activity(input)
        if info.is_local:
            _left.set({})
            return await self.next.execute_activity(input)
        details = next(iter(info.heartbeat_details), None)
        _left.set(dict(details) if isinstance(details, dict) else {})
        losses = losses_alone = 0
        if info.attempt > 1:
            losses = lost_tries()
            losses_alone = _lost_alone()
        if losses >= MOST_OF_AN_ACTIVITY:
            raise ApplicationError(
                f"The worker of {info.activity_type} was lost {losses} times while it ran.",
                {"cure": "Look at the workers' logs: what kills them? Then `resume`."},
                type=names.WORKER_LOST,
                non_retryable=True,
            )
        if losses:
            await _say_that_it_begins(losses, losses_alone)
        try:
            return await self.next.execute_activity(input)
        except BaseException as error:
            never_began = isinstance(error, ApplicationError) and error.type in names.NEVER_BEGUN
            tried = {} if never_began else {TRIED: True}
            leave_details(**{LOST: losses, AT: info.attempt, RAN: False, ALONE: losses_alone, **tried})
            raise


async def _say_that_it_begins(before: int, alone: int) -> None:
    """Raises the error of a try that came too late, if it did."""
    attempt = activity.info().attempt
    details_left().update({LOST: before, AT: attempt - 1, RAN: False, ALONE: alone, BEGAN: attempt})
    handle = activity.client().get_async_activity_handle(task_token=activity.info().task_token)
    try:
        async with asyncio.timeout(RPC_TIMEOUT.total_seconds()):
            await handle.heartbeat(*first_details())
    except RPCError as error:
        if not_found(error):
            raise too_late() from None
    except (AsyncActivityCancelledError, TimeoutError):
        pass  # a cancellation comes in by itself; without a server, this try may not count


def too_late() -> ApplicationError:
    return ApplicationError("This try came too late: another worker has the call.", type=names.TOO_LATE)


class OneAtATime:
    """One for each worker: calls that were lost again and again take turns here."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()

    @asynccontextmanager
    async def if_lost_before(self) -> AsyncIterator[None]:
        """If this call was lost IN_COMPANY times, no other such call begins on this worker until the block ends, or
        for ALONE_SECONDS."""
        losses = lost_tries()
        losses_alone = _lost_alone()
        if losses < IN_COMPANY:
            yield
            return
        await _leave_for_certain(losses, losses_alone, ran=False)
        try:
            async with asyncio.timeout(LONGEST_WAIT_SECONDS):
                await self._turn.acquire()
        except TimeoutError:
            raise ApplicationError(
                "The call waits for its turn: its worker was lost before, and another "
                "such call is running on this worker now.",
                type=names.NOT_ALONE,
                next_retry_delay=BACK_IN,
                category=ApplicationErrorCategory.BENIGN,
            ) from None
        mine = True

        def give_up() -> None:
            nonlocal mine
            if mine:
                mine = False
                self._turn.release()

        clock = asyncio.get_running_loop().call_later(ALONE_SECONDS, give_up)
        try:
            await asyncio.sleep(SETTLE_SECONDS)
            await _leave_for_certain(losses, losses_alone, ran=True)
            yield
        finally:
            clock.cancel()
            give_up()


class LocalTries:
    """One for each worker: how often local activities were lost. They have no heartbeats, but each loss is one more
    attempt at their workflow task, and the server counts those."""

    def __init__(self) -> None:
        self._met: OrderedDict[str, None] = OrderedDict()
        """Runs that this process has looked up. A later loss would be that of this process, so one look is enough."""

    async def count_lost(self) -> int:
        info = activity.info()
        run = info.workflow_run_id or ""
        if run in self._met:
            return 0
        self._met[run] = None
        if len(self._met) > MOST_RUNS_MET:
            self._met.popitem(last=False)
        handle = activity.client().get_workflow_handle(info.workflow_id or "", run_id=run)
        try:
            described = await handle.describe(rpc_timeout=RPC_TIMEOUT)
        except RPCError:
            return 0
        return max(0, described.raw_description.pending_workflow_task.attempt - 1)


async def _leave_for_certain(before: int, alone: int, *, ran: bool) -> None:
    await leave_for_certain(**{LOST: before, AT: activity.info().attempt, RAN: ran, ALONE: alone})


async def leave_for_certain(**facts: Any) -> None:
    """As `leave_details`, but waits until the server has it. Raises RPCError if it can't."""
    details_left().update(facts)
    handle = activity.client().get_async_activity_handle(task_token=activity.info().task_token)
    with suppress(AsyncActivityCancelledError):  # the cancellation comes in by itself
        await asyncio.wait_for(handle.heartbeat(details_left()), RPC_TIMEOUT.total_seconds())
