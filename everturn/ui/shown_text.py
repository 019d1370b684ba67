"""What a page shows of a turn's text while the turn may still be retried and then say something else."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class ShownText:
    """The text of one turn, or its thoughts."""

    shown: str = ""
    """What the page shows."""
    said: str = ""
    """What the current attempt has said so far."""

    def is_wrong(self, *, whole: bool) -> bool:
        """Whether the page shows something else than the attempt says. `whole`: the attempt has said everything; until
        then, it may say less than the page shows, and still get there."""
        return not (self.said.startswith(self.shown) or (not whole and self.shown.startswith(self.said)))

    def take_more(self) -> str:
        """The text to add to the page."""
        if len(self.said) <= len(self.shown):
            return ""
        more, self.shown = self.said[len(self.shown) :], self.said
        return more
