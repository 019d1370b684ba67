"""What a page shows of a turn's text, while the turn may be tried again and then says something else."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class ShownText:
    """Of one turn: its text, or its thoughts."""

    shown: str = ""
    """On the page."""
    said: str = ""
    """In the try at hand, so far."""

    def is_wrong(self, *, whole: bool) -> bool:
        """What is on the page is not how the text begins. A try that has not come as far yet may still get there;
        `whole`: no more comes."""
        return not (self.said.startswith(self.shown) or (not whole and self.shown.startswith(self.said)))

    def take_more(self) -> str:
        """What is to be added to the page."""
        if len(self.said) <= len(self.shown):
            return ""
        more, self.shown = self.said[len(self.shown) :], self.said
        return more
