"""What is drawn, by the name of who draws it: what one of them draws does not hang on how often others have drawn.

So a reader that asks the server once more, or once less, moves nothing but itself: the world of a seed stays as it was.
Worlds from WILD on have one chance for all that the server does: the seeds that found something keep what they find.
"""

from __future__ import annotations

import random
from zlib import crc32


class Chances:
    """`by_name`: each name has a chance of its own. Otherwise all have the same one. `whose`: with the world's seed."""

    def __init__(self, whose: str, *, by_name: bool) -> None:
        self._seed = crc32(whose.encode())
        self._shared = None if by_name else random.Random(whose)
        self._named: dict[tuple[str | int, ...], random.Random] = {}

    @property
    def by_name(self) -> bool:
        return self._shared is None

    def of(self, *name: str | int) -> random.Random:
        """That of this name, which goes on from where it was."""
        if self._shared:
            return self._shared
        if (known := self._named.get(name)) is None:
            number = crc32(repr(name).encode())
            known = self._named[name] = random.Random(self._seed << 32 | number)
        return known
