"""How long an error asks to wait, in its words alone: in the middle of a stream there are no headers, and some gateways
pass none on.

OpenAI and Groq: "Please try again in 1m30.5s."; Azure: "Please retry after 26 seconds."; Gemini: "Please retry in
14.07s."; LiteLLM: "Try again in 60 seconds." (1.108.7).
"""

from __future__ import annotations

import re
from typing import Final

from everturn.http.retry_after import LONGEST_SECONDS
from everturn.providers.rate_limits.rate_headers import SECONDS

_MOST_CHARS: Final = 8_000

_NUMBER: Final = r"\d{1,9}(?:\.\d{1,9})?"
_UNIT: Final = r"(?:milliseconds?|msecs?|ms|seconds?|secs?|s|minutes?|mins?|m|hours?|hrs?|h|days?|d)(?![a-z])"
_PART: Final = re.compile(rf"({_NUMBER})\s?({_UNIT})", re.I)
_DURATION: Final = rf"(?:{_NUMBER}\s?{_UNIT},?\s?(?:and\s)?)+"
_WAIT: Final = re.compile(
    rf"\b(?:again|retry|retrying|wait)(?:\s+(?:in|after|for))?(?:\s+(?:about|at least|another))?\s+({_DURATION})", re.I
)
_FIELD: Final = re.compile(rf"\bretry[-_]after[\"']?\s?[:=]\s?[\"']?({_NUMBER})(?![-\w])", re.I)
"""A header that is quoted in a text: seconds, as everywhere."""


def wait_in_words(text: str) -> float | None:
    """Seconds that the text asks to wait; None if it does not say, or says more than a day."""
    text = text[:_MOST_CHARS]
    if match := _WAIT.search(text):
        parts = _PART.findall(match[1])
        seconds = sum(float(number) * SECONDS[_unit_of(unit)] for number, unit in parts)
    elif match := _FIELD.search(text):
        seconds = float(match[1])
    else:
        return None
    return seconds if seconds <= LONGEST_SECONDS else None


def _unit_of(name: str) -> str:
    if name.lower().startswith(("ms", "milli")):
        return "ms"
    return name[0].lower()
