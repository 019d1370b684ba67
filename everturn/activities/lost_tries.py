"""Counts the tries of an activity that were lost with their worker, so that no call goes on killing workers for ever.

A try that fails says so, and leaves word in the first heartbeat detail, which Temporal keeps for the next try; one that
is lost says nothing. A call that only shared the worker with one that kills is lost together with it: from the second
loss on, those that were lost run one at a time on each worker. From then on, a tool call is to blame only for the tries
that were lost when it ran alone: others, on their way there or waiting, may have had no time to say anything.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
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
from everturn.activities.journal import RPC_TIMEOUT
from everturn.activities.user_activities import is_users_own
from everturn.records import Message

MOST_OF_A_TOOL = 5
"""Then the model is told. Two in company, three alone: nothing else was to blame for those."""

MOST_GIVEN_UP = 2
"""Calls of one tool that were told so, since a user said something: further ones are not run."""

MOST_OF_A_PLAN = 3
"""Then a reply is planned without the user's predicates and validators."""

MOST = 10
"""Of everything else: of a model turn, say, that shared its workers with others. Then it fails, and so says why."""

IN_COMPANY = 2
"""So often a call is lost before it is run alone."""

ALONE_SECONDS = 15.0
"""How long the next one waits for it. A call that kills its worker usually does so within seconds."""

LONGEST_WAIT_SECONDS = 2.0
"""How long a call waits for its turn, before it is handed back: its time-out at the server is running."""

MOST_MET = 10_000

BACK_IN = timedelta(seconds=1)

SETTLE_SECONDS = 0.25
"""A pause before it begins, so that the calls that came with it can first leave word that they wait."""

LOST, AT, RAN, ALONE = "everturn_lost", "everturn_at", "everturn_ran", "everturn_alone"
"""What a try leaves: how many tries were lost before try AT, whether AT is lost too if it ends without a word, and how
many were lost before it when they ran alone."""

_left: ContextVar[dict[str, Any] | None] = ContextVar("left")


def given_up(messages: Sequence[Message]) -> frozenset[str]:
    """The tools whose calls, since a user last said something, took their workers with them again and again: a model
    that is told of one may just call again."""
    times: Counter[str] = Counter()
    for message in reversed(messages):
        if message.role == "user":
            break
        for part in message.parts:
            if names.WORKERS_LOST in part.extra and part.kind == "tool_result":
                times[part.name] += 1
    return frozenset(name for name, count in times.items() if count >= MOST_GIVEN_UP)


def left() -> dict[str, Any]:
    """What this try leaves to the next one, so far."""
    found = _left.get(None)
    if found is None:
        found = {}
        _left.set(found)
    return found


def leave(**facts: Any) -> None:
    left().update(facts)
    activity.heartbeat(left())


def lost() -> int:
    """How many tries of this activity were lost before this one."""
    info = activity.info()
    if info.attempt == 1 or info.is_local:  # tries of local ones leave no word
        return 0
    found = left()
    at = int(found.get(AT, 0))
    if at > info.attempt:  # an operator has reset the activity
        return 0
    if at == info.attempt:
        return int(found.get(LOST, 0))
    return int(found.get(LOST, 0)) + bool(found.get(RAN)) + info.attempt - 1 - at


def blamed() -> int:
    """How many of the lost tries a call is to blame for: the first, for which nobody knows, and those alone."""
    return min(lost(), IN_COMPANY) + _lost_alone()


def _lost_alone() -> int:
    info = activity.info()
    if info.attempt == 1 or info.is_local:
        return 0
    found = left()
    if int(found.get(AT, 0)) > info.attempt:
        return 0
    ended = int(found.get(AT, 0)) < info.attempt
    return int(found.get(ALONE, 0)) + (ended and bool(found.get(RAN)))


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
        before, alone = (0, 0) if info.attempt == 1 else (lost(), _lost_alone())
        if before >= MOST:
            raise ApplicationError(
                f"The worker of {info.activity_type} was lost {before} times while it ran.",
                {"cure": "Look at the workers' logs: what kills them? Then `resume`."},
                type=names.WORKER_LOST,
                non_retryable=True,
            )
        try:
            return await self.next.execute_activity(input)
        except BaseException:
            leave(**{LOST: before, AT: info.attempt, RAN: False, ALONE: alone})
            raise


class Alone:
    """One for each worker: calls that were lost again and again take turns here."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()

    @asynccontextmanager
    async def if_lost_before(self) -> AsyncIterator[None]:
        """If this call was lost before, no other such call begins here until the block ends, or for ALONE_SECONDS."""
        before, alone = lost(), _lost_alone()
        if before < IN_COMPANY:
            yield
            return
        await _leave_for_certain(before, alone, ran=False)
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
            await _leave_for_certain(before, alone, ran=True)
            yield
        finally:
            clock.cancel()
            give_up()


class LocalTries:
    """One for each worker: how often local activities were lost. They have no heartbeats, but each loss is one more
    attempt at their workflow task, and the server counts those."""

    def __init__(self) -> None:
        self._met: OrderedDict[str, None] = OrderedDict()
        """Runs that this process has looked up: what is lost from now on is lost with it."""

    async def lost(self) -> int:
        info = activity.info()
        run = info.workflow_run_id or ""
        if run in self._met:
            return 0
        self._met[run] = None
        if len(self._met) > MOST_MET:
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
    """As `leave`, but waits until the server has it. Raises RPCError if it can't."""
    left().update(facts)
    handle = activity.client().get_async_activity_handle(task_token=activity.info().task_token)
    with suppress(AsyncActivityCancelledError):  # the cancellation comes in by itself
        await asyncio.wait_for(handle.heartbeat(left()), RPC_TIMEOUT.total_seconds())
