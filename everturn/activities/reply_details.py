"""What a reply's details may take in the history."""

from __future__ import annotations

from typing import Final

from everturn.records import Reply
from everturn.sizes import MAX_DETAILS_BYTES, size_of

LEFT_OUT: Final = "left_out"


def short(reply: Reply) -> Reply:
    """The reply without the details that are too large for a history, such as the logprobs of a long text; their names
    are under `left_out`. `generate()` gives all of them."""
    sizes = {name: len(name) + size_of(value) for name, value in reply.details.items()}
    large: list[str] = []
    while sum(size for name, size in sizes.items() if name not in large) > MAX_DETAILS_BYTES:
        large.append(max((name for name in sizes if name not in large), key=lambda name: sizes[name]))
    if not large:
        return reply
    kept = {name: value for name, value in reply.details.items() if name not in large}
    return reply.model_copy(update={"details": kept | {LEFT_OUT: [name for name in sizes if name in large]}})
