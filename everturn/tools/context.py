"""What a tool is told about its call, and what code that runs before a model turn is told about the turn."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Any, Generic

from typing_extensions import TypeVar

from everturn.errors import InvalidTool
from everturn.logs import get_logger
from everturn.records import Usage
from everturn.tools.context_ask import AnswerText, Questions
from everturn.validation.spelling import known_fields

D = TypeVar("D", default=Any)
"""The type of what the worker's `deps=` opens."""


def _never() -> bool:
    return False


def _no_heartbeat(progress: Any = None) -> None: ...


def _asks_nobody(question: str) -> AnswerText:
    return Questions().ask_person(question)


def _spend_nothing(usage: Usage, cost_usd: float | None = None) -> None: ...


def _no_deps() -> Any:
    return None


def _now() -> datetime:
    return datetime.now(UTC)


@known_fields(InvalidTool)
@dataclass(frozen=True, kw_only=True)
class ToolContext(Generic[D]):
    """What a tool is told about its call. Annotate a parameter with it; the model does not see that one.

    `ToolContext[Shop]` says what `deps` is, for type checkers: then the worker has to have `deps=`. Predicates
    (`needs_approval=`) and approvers are given one, too, and so is pydantic's validation (`info.context`). Every field
    has a default, so that a test of a tool can make one: `refund("81", context=ToolContext(deps=Shop()))`.
    """

    conversation_id: str = "conversation"
    call_id: str = "call"
    chain_id: str = ""
    """The conversation's first run: different from other conversations that had the same id. A reset changes it."""
    agent: str = "agent"
    """The name of the agent whose conversation it is."""
    tenant: str | None = None
    """Whom the conversation is for, as it was started: `start(tenant=)`."""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """Data that it was started with besides its message: `start(metadata=)`. No model sees it."""
    deps: D = field(default_factory=_no_deps, repr=False)
    """What the worker's `deps=` opened; None if it has none."""
    attempt: int = 1
    """1 for the first try."""
    turn: int = 1
    """The turn whose reply asked for the call."""
    approved: bool = False
    """Whether a person or a rule has approved the call: a tool that raised NeedsApproval then goes on."""
    ask: Callable[[str], AnswerText] = _asks_nobody
    """`await context.ask("Which day?")` asks a person, and gives their answer, a text. The try ends there and holds no
    worker. With the answer, the function runs again from its beginning, and gets the answers so far at once.
    Raises NotAnswered if they would not answer. For a test: `ask=lambda question: "Monday"`."""
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
        """The same for every attempt at this call, and different for every other call, also of an earlier conversation
        with this id, or after a reset."""
        return ":".join(part for part in (self.conversation_id, self.chain_id, self.call_id) if part)


@known_fields(InvalidTool)
@dataclass(frozen=True, kw_only=True)
class TurnContext(Generic[D]):
    """What code that runs before a model turn is told about it: `Agent(instructions=function)` and
    `Agent(prepare_tools=function)` are given one. Every field has a default, for tests."""

    conversation_id: str = "conversation"
    agent: str = "agent"
    """The name of the agent that is asked."""
    tenant: str | None = None
    """Whom the conversation is for, as it was started: `start(tenant=)`."""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """What it was started with beside its message: `start(metadata=)`. No model sees it."""
    deps: D = field(default_factory=_no_deps, repr=False)
    """What the worker's `deps=` opened; None if it has none."""
    turn: int = 1
    now: datetime = field(default_factory=_now)
    """When the turn was begun, in UTC: the same for every try."""
    attempt: int = 1
    """1 for the first try."""
    spend: Callable[..., None] = _spend_nothing
    """`spend(usage, cost_usd=...)` counts what your code asked of a model, such as a judgement, in the conversation's
    usage, cost and limits. Without `cost_usd`, the cost is not known from then on. A try that fails counts nothing."""
    log: Any = field(default_factory=partial(get_logger, "everturn.turn"), repr=False)
    """A structlog logger, with conversation, turn and attempt bound."""

    def __post_init__(self) -> None:
        bound = self.log.bind(conversation=self.conversation_id, turn=self.turn, attempt=self.attempt)
        object.__setattr__(self, "log", bound)
