"""Durations that users write: a timedelta above zero. A number is refused, since it does not say its unit."""

from __future__ import annotations

from datetime import timedelta

LONGEST = timedelta(days=36_500)
"""Temporal counts no longer than 292 years. What is longer, such as `timedelta.max`, counts as this."""

CURE = "Write a timedelta above zero, such as timedelta(seconds=30)."


def problem_of(value: object, *, may_be_zero: bool = False) -> str:
    """Why this is no duration, and what to write instead; empty if it is one."""
    if isinstance(value, timedelta) and (value > timedelta() or (may_be_zero and value == timedelta())):
        return ""
    if isinstance(value, int | float) and not isinstance(value, bool) and value > 0:
        return f"{value!r} has no unit. Write timedelta(seconds={value!r}), if seconds are meant."
    least = "of zero or more" if may_be_zero else "above zero"
    return f"{value!r} is not a duration. {CURE.replace('above zero', least)}"


def countable(seconds: float) -> timedelta:
    """So many seconds, as far as Temporal can count."""
    return timedelta(seconds=min(seconds, LONGEST.total_seconds()))


def checked(value: object) -> object:
    """For a setting's validator. Raises ValueError."""
    if value is None or (isinstance(value, str) and value.startswith("P")):  # ISO 8601: as payloads have it
        return value
    if problem := problem_of(value):
        raise ValueError(problem)
    if isinstance(value, timedelta):
        return min(value, LONGEST)
    return value
