"""What is drawn, by the name of who draws it: what one of them draws does not hang on how often others have drawn.

So a reader that asks the server once more, or once less, moves nothing but itself: the world of a seed stays as it was.
"""

from __future__ import annotations

import random
from zlib import crc32


class Chances:
    """Each name has a chance of its own. `whose`: with the world's seed."""

    def __init__(self, whose: str) -> None:
        self._seed = crc32(whose.encode())
        self._named: dict[tuple[str | int, ...], random.Random] = {}

    def of(self, *name: str | int) -> random.Random:
        """That of this name, which goes on from where it was."""
        if (known := self._named.get(name)) is None:
            number = crc32(repr(name).encode())
            known = self._named[name] = random.Random(self._seed << 32 | number)
        return known
