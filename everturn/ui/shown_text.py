"""What a page shows of a turn's text while the turn may still be retried and then say something else."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class ShownText:
    """The text of one turn, or its thoughts."""

    page_text: str = ""
    attempt_text: str = ""
    """What the current attempt has said so far."""

    def is_wrong(self, *, whole: bool) -> bool:
        """Whether the page shows something else than the attempt says. `whole`: the attempt has said everything; until
        then, it may say less than the page shows, and still get there."""
        if self.attempt_text.startswith(self.page_text):
            return False
        return whole or not self.page_text.startswith(self.attempt_text)

    def take_more(self) -> str:
        """The text to add to the page."""
        if len(self.attempt_text) <= len(self.page_text):
            return ""
        more = self.attempt_text[len(self.page_text) :]
        self.page_text = self.attempt_text
        return more
