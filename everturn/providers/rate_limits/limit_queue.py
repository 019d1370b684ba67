"""The rate limiters of this process: one for each address and key, where calls wait until they may go out.

`limit_of` finds a model's limit, and its `wait_for_permit` waits; `record_answer` reads each answer's headers.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import os
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Final

from everturn.errors import InvalidSetting, RateLimited
from everturn.limits import RateLimit
from everturn.models import Model
from everturn.providers.catalog import ModelEndpoint, resolve_endpoint
from everturn.providers.event_loops import of_this_loop
from everturn.providers.rate_limits.permits import Permit
from everturn.providers.rate_limits.rate_headers import read_allowances
from everturn.providers.rate_limits.rate_limiter import RateLimiter
from everturn.records import Reply, Usage
from everturn.validation.spelling import nearest_name
from everturn.vendor_models.plugins import known_names

PRESUMED_SECONDS: Final = 1.0
"""A call counts as accepted after this long without a refusal: providers refuse at once, but may think for minutes."""

LONGEST_HOLD_SECONDS: Final = 120.0

ACTIVE_SECONDS: Final = 120.0
"""For this long after a 429, a limit counts as active."""

_MOST_LIMITERS: Final = 1_000
_SALT: Final = os.urandom(16)

Known = Mapping[str, RateLimit]


class Limit:
    """One provider's limit for one key, as this process knows it. All of it belongs to one event loop."""

    def __init__(self, provider: str, key_env: str, limiter: RateLimiter, felt: asyncio.Event) -> None:
        self.provider = provider
        self.key_env = key_env
        """The variable that holds the key, for logs and metrics: never the key."""
        self.limiter = limiter
        self._felt = felt
        self._order = itertools.count()
        self._waiting: list[tuple[float, int, asyncio.Future[Permit]]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._refused_at: float | None = None

    @property
    def waiting_calls(self) -> int:
        return sum(not future.done() for _, _, future in self._waiting)

    @property
    def is_active(self) -> bool:
        """Whether the limit affects calls: some wait, or were refused lately."""
        lately = self._refused_at is not None and _loop_time() - self._refused_at < ACTIVE_SECONDS
        return bool(self._waiting) or lately

    def hold_seconds(self) -> float:
        """Seconds until the provider's Retry-After is over."""
        return max(0.0, self.limiter.hold - _loop_time())

    def refusing_seconds(self) -> float:
        """How long it has accepted no call, plus the rest of the hold that it asked for; 0 if it accepts calls."""
        since = self.limiter.refusing_since
        if since is None:
            return 0.0
        return _loop_time() - since + self.hold_seconds()

    def permit_at_once(self) -> Permit | None:
        """None if the call has to wait."""
        if self._waiting:
            return None
        time = self.limiter.next_time(_loop_time())
        if time is None or time > _loop_time():
            return None
        return self.limiter.record_sent(_loop_time())

    async def permit_if_felt(self) -> Permit:
        """As `wait_for_permit`, but nobody waits while no limit is known or felt: a program's own calls and those of
        hooks are few."""
        unlimited = self.limiter.phase == "open" and self.limiter.rate is None and self.hold_seconds() == 0
        if unlimited and not self._waiting:
            return self.limiter.record_sent(_loop_time())
        return self.permit_at_once() or await self.wait_for_permit(_loop_time())

    async def wait_for_permit(self, came: float) -> Permit:
        """Waits until a call may go out. Calls go in the order in which they `came`."""
        turn: asyncio.Future[Permit] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (came, next(self._order), turn))
        self.wake_calls()
        if not turn.done():
            self._felt.set()
        try:
            return await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():  # it was let through as it went
                self.limiter.record_end(turn.result(), _loop_time())
            self.wake_calls()
            raise

    def record_accepted(self, permit: Permit) -> None:
        self.limiter.record_accepted(permit, _loop_time())
        self.wake_calls()

    def record_refused(self, permit: Permit | None, retry_after: float | None, *, refused_alone: bool = False) -> None:
        self._refused_at = _loop_time()
        self._felt.set()
        self.limiter.record_refused(permit, self._refused_at, retry_after, refused_alone=refused_alone)
        self.wake_calls()

    def record_end(self, permit: Permit) -> None:
        self.limiter.record_end(permit, _loop_time())
        self.wake_calls()

    def record_usage(self, usage: Usage) -> None:
        """One call used these tokens."""
        self.limiter.record_usage(usage)
        self.wake_calls()

    def record_headers(self, headers: Mapping[str, str]) -> None:
        if allowances := read_allowances(headers):
            self.limiter.record_allowances(allowances, _loop_time())

    def wake_calls(self) -> None:
        """Lets waiting calls go if they may, and schedules itself for when the next one may."""
        if self._timer:
            self._timer.cancel()
            self._timer = None
        while self._waiting:
            if self._waiting[0][2].done():  # cancelled
                heapq.heappop(self._waiting)
                continue
            time = self.limiter.next_time(_loop_time())
            if time is None:
                return
            if time > _loop_time():
                self._timer = asyncio.get_running_loop().call_at(time, self.wake_calls)
                return
            heapq.heappop(self._waiting)[2].set_result(self.limiter.record_sent(_loop_time()))


@dataclass
class _Limits:
    """The limits of one event loop."""

    workers: int = 1
    known: dict[str, RateLimit] = field(default_factory=dict)
    felt: asyncio.Event = field(default_factory=asyncio.Event)
    limits: dict[tuple[str, bytes], Limit] = field(default_factory=dict)


_of_loop: dict[asyncio.AbstractEventLoop, _Limits] = {}

_going: ContextVar[tuple[Limit, Permit] | None] = ContextVar("going", default=None)
"""The limit and the permit of the call that this task makes."""


def _loop_time() -> float:
    return asyncio.get_running_loop().time()


def _loop_limits() -> _Limits:
    return of_this_loop(_of_loop, _Limits)


def limit_of(model: Model) -> Limit:
    """Raises as `resolve_endpoint`: InvalidModel, InvalidSetting, KeyMissing, KeyRefused."""
    return _limit_at(resolve_endpoint(model))


def _limit_at(endpoint: ModelEndpoint) -> Limit:
    of_loop = _loop_limits()
    place = endpoint.base_url, blake2b(endpoint.secret.encode(), key=_SALT, digest_size=16).digest()
    limit = of_loop.limits.pop(place, None)
    if limit is None:
        known = of_loop.known.get(endpoint.provider, RateLimit())
        limiter = RateLimiter(workers=of_loop.workers, rpm=known.rpm, tpm=known.tpm)
        limit = Limit(endpoint.provider, endpoint.key_env, limiter, of_loop.felt)
        unused = [old for old, other in of_loop.limits.items() if not other.is_active]
        for old in unused[: max(0, len(of_loop.limits) + 1 - _MOST_LIMITERS)]:
            del of_loop.limits[old]
    of_loop.limits[place] = limit
    return limit


def met_limits() -> tuple[Limit, ...]:
    """The limits that this event loop has met."""
    return tuple(_loop_limits().limits.values())


def felt_event() -> asyncio.Event:
    """Set when a call has to wait, or was refused."""
    return _loop_limits().felt


def shared_by(workers: int) -> None:
    """Says how many workers share each provider's limit, including this one."""
    here = _loop_limits()
    here.workers = max(1, workers)
    for limit in here.limits.values():
        limit.limiter.share_among(here.workers)
        limit.wake_calls()


def set_known_limits(known: Known) -> None:
    """Sets the known limits, by provider."""
    here = _loop_limits()
    here.known |= known
    for limit in here.limits.values():
        if rate_limit := known.get(limit.provider):
            limit.limiter.rpm = rate_limit.rpm
            limit.limiter.tpm = rate_limit.tpm
            limit.wake_calls()


@asynccontextmanager
async def send_with_permit(
    limit: Limit, permit: Permit, *, longest_hold: float = LONGEST_HOLD_SECONDS, refused_alone: bool = False
) -> AsyncIterator[None]:
    """Sends a call inside the block, with its permit. Errors pass through. After a RateLimited, the limiter holds all
    calls for as long as it says, `longest_hold` at most. `refused_alone`: as for `RateLimiter.record_refused`."""
    token = _going.set((limit, permit))
    presumed = asyncio.get_running_loop().call_later(PRESUMED_SECONDS, limit.record_accepted, permit)
    try:
        yield
    except RateLimited as error:
        presumed.cancel()
        seconds = error.retry_after
        if seconds is not None:
            seconds = min(seconds, longest_hold)
        limit.record_refused(permit, seconds, refused_alone=refused_alone)
        raise
    finally:
        presumed.cancel()
        limit.record_end(permit)
        _going.reset(token)


async def asked_within(model: Model, ask: Callable[[], Awaitable[Reply]]) -> Reply:
    """The reply of `ask`, which is called once the limit that this event loop feels allows it. Raises what `ask`
    raises, a RateLimited too: the next call then waits."""
    limit = limit_of(model)
    async with send_with_permit(limit, await limit.permit_if_felt()):
        reply = await ask()
    limit.record_usage(reply.usage)
    return reply


def record_answer(endpoint: ModelEndpoint, headers: Mapping[str, str], *, success: bool) -> None:
    """Records what an answer's headers say; a successful answer also counts its call as accepted."""
    if (now := _going.get()) is None:
        return
    limit, permit = now
    if limit.provider == endpoint.provider:
        limit.record_headers(headers)
        if success:
            permit.answered = True
            limit.record_accepted(permit)


# ---------------------------------------------------------------- settings


_WRITTEN: Final = re.compile(r"([\w-]+):((?:(?:rpm|tpm)=\d{1,15})(?:\+(?:rpm|tpm)=\d{1,15})*)", re.ASCII)


def read_limits(written: str) -> dict[str, RateLimit]:
    """`openai:rpm=500+tpm=200000,anthropic:rpm=50`, by provider. Raises InvalidSetting."""
    by_provider: dict[str, dict[str, int]] = {}
    for item in filter(None, (part.strip() for part in written.split(","))):
        read = _WRITTEN.fullmatch(item)
        if read is None:
            raise InvalidSetting(
                f"EVERTURN_RATE_LIMITS has {item!r:.100}, which is not a rate limit.",
                cure="Write openai:rpm=500+tpm=200000, with a comma between providers.",
            )
        limits_of_it = by_provider.setdefault(read[1], {})
        for name, number in (part.split("=") for part in read[2].split("+")):
            if name in limits_of_it:
                raise InvalidSetting(f"EVERTURN_RATE_LIMITS has {name} of {read[1]!r} twice.", cure="Keep one of them.")
            limits_of_it[name] = int(number)
    return checked_limits({provider: RateLimit(**numbers) for provider, numbers in by_provider.items()})


def checked_limits(known: Known) -> dict[str, RateLimit]:
    """Raises InvalidSetting for an unknown provider, and for a value that is not a RateLimit."""
    for provider, limit in known.items():
        if provider not in (known_here := known_names()):
            near = nearest_name(str(provider), known_here)
            hint = f"Did you mean {near!r}? " if near else ""
            cure = f"{hint}Known providers: {', '.join(known_here)}."
            raise InvalidSetting(f"A rate limit names the provider {provider!r}, which does not exist.", cure=cure)
        if not isinstance(limit, RateLimit):
            raise InvalidSetting(
                f"The rate limit of {provider!r} is {limit!r:.100}.", cure="Write RateLimit(rpm=500, tpm=200_000)."
            )
    return dict(known)
