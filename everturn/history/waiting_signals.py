"""What came by signal since the conversation's last workflow task: it has not taken it in yet."""

from __future__ import annotations

from everturn import names
from everturn.history import steps
from everturn.sizes import size_of
from everturn.state import State


class WaitingSignals:
    def __init__(self) -> None:
        self.sent: list[steps.Sent] = []
        self._closes = False
        """One of them closes the conversation."""
        self.resumes: list[steps.CommandSent] = []
        """Those of the last workflow task that found nothing to resume: they may be for what it stalls over."""

    def add(self, step: steps.Sent) -> None:
        self.sent.append(step)
        self._closes |= isinstance(step, steps.CommandSent) and step.name == names.CLOSE

    def take_all(self) -> list[steps.Sent]:
        """They come in now."""
        sent = self.sent
        self.sent = []
        self.resumes = []
        self._closes = False
        return sent

    @property
    def has_message(self) -> bool:
        """Whether one of them is a message."""
        return any(isinstance(step, steps.MessageSent) for step in self.sent)

    def is_refused(self, message: steps.MessageSent, state: State) -> bool:
        """Whether the conversation passes over this message, which is the last of them."""
        size = size_of(message.said)
        if state.closing or not self._closes:
            return state.message_problem(message.said, size) is not None
        more = [step.said.as_message() for step in self.sent[:-1] if isinstance(step, steps.MessageSent)]
        return message.said.problem(size, after=[*state.inbox, *state.late, *more]) is not None
