"""Where a model turn waits for its provider's rate limit: in its activity, seen by all, without spending patience."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from temporalio import activity

from everturn.activities import activity_errors, attempts, fallbacks
from everturn.errors import RateLimited
from everturn.heartbeats.details import AtLimit
from everturn.heartbeats.heartbeat import INTERVAL_SECONDS, this_heartbeat
from everturn.limits import Patience
from everturn.logs import get_logger
from everturn.providers.base import Request
from everturn.providers.rate_limits.limit_queue import Limit, limit_of, send_with_permit
from everturn.providers.rate_limits.permits import Permit
from everturn.providers.rate_limits.rate_limiter import OWN_HOLD_SECONDS
from everturn.records import Reply
from everturn.sizes import size_of

SHOWN_AFTER_SECONDS = 0.5
"""A shorter wait is not shown."""

MANY_REFUSALS = 3
"""A call that was refused so often lets the others go first, if they are accepted."""

HOPELESS_REFUSALS = 10
"""A call that was refused so often, for longer than patience lasts, is given up though others are accepted."""

BYTES_OF_A_TOKEN = 4

_log = get_logger("everturn.limit")


async def within_limit(
    question: Request, ask: Callable[[], Awaitable[Reply]], *, patience: Patience, fallback: str | None
) -> Reply:
    """The reply of `ask`, which puts the question once the provider's limit allows it, and again after a 429. Raises
    what `ask` raises; for a 429, only if its stream had begun, or if the provider takes nobody's calls for longer than
    `patience.model`, or refuses this one for that long, and again and again."""
    limit = limit_of(question.model)
    came = asyncio.get_running_loop().time()
    longest_hold = patience.max_retry_delay.total_seconds()
    if limit.limiter.tpm and not limit.limiter.tokens.has_reports:
        limit.limiter.tokens.expect_tokens(tokens_of(question))
    own_refusals = _OwnRefusals()
    while True:
        permit = await _waited_for(limit, came)
        try:
            async with send_with_permit(
                limit, permit, longest_hold=longest_hold, refused_alone=own_refusals.is_alone(limit.limiter.answered_at)
            ):
                reply = await ask()
        except RateLimited as error:
            rate = limit.limiter.rate
            held = limit.hold_seconds()
            _log.warning(
                "limit.met",
                provider=limit.provider,
                key=limit.key_env or None,
                hold_seconds=round(held, 1),
                calls_a_second=rate and round(rate, 2),
            )
            if not error.retry or permit.answered:  # its stream had begun, and has to be started over
                raise
            own_refusals.add_refusal(asyncio.get_running_loop().time())
            refusing = max(limit.refusing_seconds(), own_refusals.seconds_refused())
            if refusing > patience.model.total_seconds():
                raise fallbacks.after_refusals(error, refusing, fallback=fallback) from None
            if limit.limiter.is_noisy:
                await _kept_back(min(error.retry_after or OWN_HOLD_SECONDS, longest_hold))
            if own_refusals.is_alone(limit.limiter.answered_at):
                came = asyncio.get_running_loop().time()  # those that the provider would take go first
            continue
        limit.record_usage(reply.usage)
        return reply


async def _kept_back(seconds: float) -> None:
    """A call that its provider refused although it takes others: it waits by itself. Raises if the worker stops."""
    began = asyncio.get_running_loop().time()
    sleeping = asyncio.ensure_future(asyncio.sleep(seconds))
    try:
        await _unless_worker_stops(sleeping)
    finally:
        sleeping.cancel()
        attempts.leave_out(asyncio.get_running_loop().time() - began)


async def _unless_worker_stops(waiting: asyncio.Future[Any]) -> None:
    """Waits until it is done. Raises if the worker stops before."""
    stopping = asyncio.ensure_future(activity.wait_for_worker_shutdown())
    try:
        await asyncio.wait({waiting, stopping}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        stopping.cancel()
    if not waiting.done():
        raise activity_errors.worker_shutdown()


def tokens_of(question: Request) -> int:
    """About how many tokens a call will use."""
    written = sum(map(size_of, question.messages)) + len(question.instructions.encode(errors="replace"))
    return written // BYTES_OF_A_TOKEN + (question.settings.max_output_tokens or 0)


@dataclass
class _OwnRefusals:
    """The 429s of one call. If others are accepted in between, it asks for more than is ever left."""

    count: int = 0
    first: float = 0.0
    last: float = 0.0

    def add_refusal(self, now: float) -> None:
        self.count += 1
        self.first = self.first or now
        self.last = now

    def is_alone(self, accepted: float) -> bool:
        """Whether others were `accepted` since it was first refused."""
        return self.count >= MANY_REFUSALS and accepted > self.first

    def seconds_refused(self) -> float:
        if self.count < HOPELESS_REFUSALS:
            return 0.0
        return self.last - self.first


async def _waited_for(limit: Limit, came: float) -> Permit:
    if permit := limit.permit_at_once():
        return permit
    loop = asyncio.get_running_loop()
    beat = this_heartbeat()
    began = loop.time()
    waiting = asyncio.ensure_future(limit.wait_for_permit(came))
    handed_out = False
    try:
        await asyncio.wait({waiting}, timeout=SHOWN_AFTER_SECONDS)
        if not waiting.done():
            if beat:
                beat.waits = AtLimit(limit_of=limit.provider, ahead=limit.waiting_calls)
                if beat.interval <= INTERVAL_SECONDS:  # else each beat costs, and the next ordinary one says it
                    beat.beat_within(0.0)
            await _unless_worker_stops(waiting)
        handed_out = True
        return waiting.result()
    finally:
        if beat:
            beat.waits = None
        if not waiting.done():
            waiting.cancel()
        elif not handed_out and not waiting.cancelled() and waiting.exception() is None:
            limit.record_end(waiting.result())  # this turn was cancelled just as it was let through
        attempts.leave_out(loop.time() - began)
