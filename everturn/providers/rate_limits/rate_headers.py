"""What providers say about their limits in each answer's headers, by the recordings and their documentation.

- OpenAI, and who speaks as it does (Azure, Groq, xAI): x-ratelimit-{limit,remaining,reset}-{requests,tokens}, with a
  reset such as `6m0s` or `4ms`.
- Anthropic: anthropic-ratelimit-{requests,tokens,input-tokens,output-tokens}-{limit,remaining,reset}, with the time of
  the reset.

Google sends none; its 429 says how long to wait in its body. LiteLLM passes a provider's headers on, as
llm_provider-NAME.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Final

from everturn.http.headers import in_utc, read_header, read_number, server_time
from everturn.http.retry_after import LONGEST_SECONDS
from everturn.providers.rate_limits.permits import Allowance, Unit

_UNITS: Final[Mapping[str, Unit]] = {
    "requests": "requests",
    "tokens": "tokens",
    "input-tokens": "input_tokens",
    "output-tokens": "output_tokens",
}
SECONDS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_DURATION: Final = re.compile(r"(?:\d+(?:\.\d+)?(?:ms|[smhd]))+", re.ASCII)
_PART: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|[smhd])", re.ASCII)
_USED_UP: Final = re.compile(r"\b(?:r|remaining)=0\b(?!\.)")
_AGAIN_IN: Final = re.compile(r"\b(?:t|reset)=(\d{1,9})\b")
_RESETS: Final = ("x-ratelimit-reset", "ratelimit-reset")
_MILLISECONDS: Final = 1e12


def limit_reset(headers: Mapping[str, str], *, now: datetime | None = None) -> float | None:
    """Seconds until a limit begins anew, of an answer that says so in place of Retry-After: as seconds (RateLimit-Reset
    of the IETF's draft, Together), a duration, or a Unix time, in milliseconds too (OpenRouter); or until what is used
    up is there again."""
    for name in _RESETS:
        text = read_header(headers, name)
        number = read_number(text)
        if number is not None and number > LONGEST_SECONDS:
            if number >= _MILLISECONDS:
                number /= 1000
            wait = max(0.0, number - server_time(headers, now).timestamp())
            return wait if wait <= LONGEST_SECONDS else None
        if (seconds := _seconds_until_reset(text, headers, now)) is not None:
            return seconds
    if (seconds := _used_up_for(read_header(headers, "ratelimit"))) is not None:
        return seconds
    used_up = [allowance for allowance in read_allowances(headers, now=now) if allowance.remaining <= 0]
    return max((allowance.reset for allowance in used_up if allowance.reset is not None), default=None)


def _used_up_for(text: str) -> float | None:
    """Seconds until the limits are there again that RateLimit says are used up: `"day";r=0;t=17` for each limit (the
    IETF's draft, 2024 and later; Hugging Face), or `limit=9, remaining=0, reset=17` (2023)."""
    limits = text.split(",") if ";" in text else [text]
    after = [match[1] for limit in limits if _USED_UP.search(limit) and (match := _AGAIN_IN.search(limit))]
    seconds = [number for number in map(read_number, after) if number is not None and number <= LONGEST_SECONDS]
    return max(seconds, default=None)


def read_allowances(headers: Mapping[str, str], *, now: datetime | None = None) -> list[Allowance]:
    """The allowances in an answer's headers; an unreadable one is skipped. A time is compared with the server's own
    clock, if it sends its Date."""
    limit_headers = {name.lower(): text for name, text in headers.items() if "ratelimit" in name.lower()}
    if not limit_headers:  # as of most providers, and this is asked of each answer
        return []
    allowances = []
    for kind, unit in _UNITS.items():
        for names in (f"x-ratelimit-{{}}-{kind}", f"anthropic-ratelimit-{kind}-{{}}"):
            limit, remaining = (
                read_number(read_header(limit_headers, names.format(what))) for what in ("limit", "remaining")
            )
            if limit is not None and remaining is not None:
                reset = _seconds_until_reset(read_header(limit_headers, names.format("reset")), headers, now)
                allowances.append(Allowance(unit, limit, min(remaining, limit), reset))
    return allowances


def _seconds_until_reset(text: str, headers: Mapping[str, str], now: datetime | None) -> float | None:
    """Seconds until a reset, from a number of seconds, from `6m0s`, or from a time."""
    text = text.strip()
    if len(text) > 100 or not text:
        return None
    if (seconds := read_number(text)) is None:
        if _DURATION.fullmatch(text):
            seconds = sum(float(number) * SECONDS[unit] for number, unit in _PART.findall(text))
        else:
            seconds = _seconds_until(text, server_time(headers, now))
    if seconds is None or seconds > LONGEST_SECONDS:
        return None
    return seconds


def _seconds_until(text: str, now: datetime) -> float | None:
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return None
    return max(0.0, (in_utc(time) - now).total_seconds())
