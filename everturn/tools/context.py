"""What a tool may know of the call that it serves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from everturn.errors import InvalidTool
from everturn.logs import get_logger
from everturn.spelling import known_options


def _never() -> bool:
    return False


def _no_heartbeat(progress: Any = None) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolContext:
    """What a tool may know of the call it serves. Annotate a parameter with it; the model does not see that one.

    Every field has a default, so that a test of a tool can make one: `refund("81", context=ToolContext())`.
    """

    conversation_id: str = "conversation"
    call_id: str = "call"
    chain_id: str = ""
    """The conversation's first run: it tells this one from others that had its id. A reset makes it another."""
    attempt: int = 1
    """1 for the first try."""
    turn: int = 1
    """The turn whose reply asked for the call."""
    heartbeat: Callable[..., None] = _no_heartbeat
    """`heartbeat(progress)` says that the tool is alive, and how far it is. Safe to call from any thread."""
    is_cancelled: Callable[[], bool] = _never
    """Whether the turn was cancelled: a sync tool can't be interrupted, but it can look, and end early."""
    log: Any = field(default_factory=partial(get_logger, "everturn.tool"), repr=False)
    """A structlog logger, with conversation, turn, call and attempt bound."""

    def __post_init__(self) -> None:
        bound = self.log.bind(
            conversation=self.conversation_id, turn=self.turn, call=self.call_id, attempt=self.attempt
        )
        object.__setattr__(self, "log", bound)

    @property
    def idempotency_key(self) -> str:
        """The same for every attempt at this call, and for no other call: not for one of a conversation that had this
        id before, nor for one that is made again after a reset."""
        return ":".join(part for part in (self.conversation_id, self.chain_id, self.call_id) if part)


ToolContext.__init__ = known_options("ToolContext", InvalidTool)(ToolContext.__init__)  # type: ignore[method-assign]
