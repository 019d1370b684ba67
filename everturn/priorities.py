"""Which tasks of a backlog come first, as Temporal has it: for a conversation, its activities and its children."""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

from temporalio.common import Priority

from everturn.errors import InvalidSetting

MAX_KEY_BYTES: Final = 64
LIGHTEST, HEAVIEST = 0.001, 1000.0
"""The server takes others, and makes these of them."""


def priority_of(
    priority: int | None, fairness_key: str | None, fairness_weight: float | None, *, tenant: str | None
) -> Priority:
    """The tenant is the fairness key if none is given. What is None is the parent's, or the server's default. Raises
    InvalidSetting."""
    if priority is not None and (isinstance(priority, bool) or not isinstance(priority, int) or priority < 1):
        raise InvalidSetting(
            f"A conversation can't have priority={priority!r}.", cure="1 comes first, 5 last; 3 unless given."
        )
    if fairness_weight is not None and not (
        isinstance(fairness_weight, int | float) and LIGHTEST <= fairness_weight <= HEAVIEST
    ):
        raise InvalidSetting(
            f"A conversation can't have fairness_weight={fairness_weight!r}.",
            cure=f"Give a number of {LIGHTEST:g} to {HEAVIEST:g}: twice the weight is twice the share.",
        )
    if fairness_key is not None and (size := len(fairness_key.encode("utf-8", "replace"))) > MAX_KEY_BYTES:
        raise InvalidSetting(
            f"The fairness key has {size} bytes; the limit is {MAX_KEY_BYTES}.", cure="Take a shorter one, or a digest."
        )
    key = fairness_key if fairness_key is not None else _key(tenant or "")
    return Priority(priority_key=priority, fairness_key=key or None, fairness_weight=fairness_weight)


def _key(tenant: str) -> str:
    """The tenant's name, or a digest of it if it is too long for a key."""
    written = tenant.encode("utf-8", "replace")
    return tenant if len(written) <= MAX_KEY_BYTES else blake2b(written, digest_size=16).hexdigest()
