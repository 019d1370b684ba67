"""What a reply's details may take in the history."""

from __future__ import annotations

from typing import Final

from everturn.bounds import size_of
from everturn.records import Reply

MAX_DETAIL_BYTES: Final = 64 * 1024
LEFT_OUT: Final = "left_out"


def short(reply: Reply) -> Reply:
    """The reply without the details that are too large for a history, such as the logprobs of a long text; their names
    are under `left_out`. `generate()` gives all of them."""
    large = [name for name, value in reply.details.items() if size_of(value) > MAX_DETAIL_BYTES]
    if not large:
        return reply
    kept = {name: value for name, value in reply.details.items() if name not in large}
    return reply.model_copy(update={"details": kept | {LEFT_OUT: large}})
