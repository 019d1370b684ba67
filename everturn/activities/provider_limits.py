"""Where a model turn waits for its provider's rate limit: in its activity, seen by all, without spending patience."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from temporalio import activity

from everturn.activities import activity_errors, attempts
from everturn.activities.heartbeat import INTERVAL_SECONDS, this_heartbeat
from everturn.errors import RateLimited
from everturn.limits import Patience
from everturn.logs import get_logger
from everturn.models import Model
from everturn.providers.rate_limits import Limit, going, limit_of
from everturn.providers.rate_permits import Permit
from everturn.records import Reply
from everturn.streamed import AtLimit

SHOWN_AFTER_SECONDS = 0.5
"""A shorter wait is not shown."""

_log = get_logger("everturn.limit")


async def within_limit(
    model: Model, ask: Callable[[], Awaitable[Reply]], *, patience: Patience, fallback: str | None
) -> Reply:
    """The reply of `ask`, which is called once the provider's limit allows it, and again after a 429. Raises what `ask`
    raises; for a 429, only if its stream had begun, or if the provider takes nobody's calls for longer than
    `patience.model`."""
    limit, came = limit_of(model), asyncio.get_running_loop().time()
    longest = patience.max_retry_delay.total_seconds()
    while True:
        permit = await _waited_for(limit, came)
        try:
            async with going(limit, permit, longest_hold=longest):
                reply = await ask()
        except RateLimited as error:
            rate, held = limit.limiter.rate, limit.hold_seconds()
            _log.warning(
                "limit.met",
                provider=limit.provider,
                key=limit.key_env or None,
                hold_seconds=round(held, 1),
                calls_a_second=rate and round(rate, 2),
            )
            if not error.retry or permit.answered:  # its stream had begun, and has to be started over
                raise
            if (refusing := limit.refusing_seconds()) > patience.model.total_seconds():
                raise activity_errors.of_limit(error, refusing, fallback=fallback) from None
            continue
        limit.limiter.used(reply.usage.total_tokens)
        return reply


async def _waited_for(limit: Limit, came: float) -> Permit:
    if permit := limit.permit_at_once():
        return permit
    loop, beat = asyncio.get_running_loop(), this_heartbeat()
    began = loop.time()
    waiting = asyncio.ensure_future(limit.permit(came))
    try:
        await asyncio.wait({waiting}, timeout=SHOWN_AFTER_SECONDS)
        if not waiting.done():
            if beat:
                beat.waits = AtLimit(limit_of=limit.provider, ahead=limit.waiting)
                if beat.interval <= INTERVAL_SECONDS:  # else each beat costs, and the next ordinary one says it
                    beat.within(0.0)
            stopping = asyncio.ensure_future(activity.wait_for_worker_shutdown())
            try:
                await asyncio.wait({waiting, stopping}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                stopping.cancel()
            if not waiting.done():
                raise activity_errors.worker_shutdown()
        return waiting.result()
    finally:
        if beat:
            beat.waits = None
        if not waiting.done():
            waiting.cancel()
        attempts.leave_out(loop.time() - began)
