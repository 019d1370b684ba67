"""A conversation for programs without asyncio: scripts, notebooks, web frameworks that block."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Iterator
from functools import wraps
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar

from everturn.client.background_loop import BackgroundLoop, LoopUser
from everturn.client.conversation import Conversation
from everturn.client.typed_outcomes import OutcomeWithValue
from everturn.events import Event
from everturn.payloads import WaitingCall
from everturn.tools.output_type import OutputT_co

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


def _make_sync(
    method: Callable[Concatenate[Conversation[T], P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[SyncConversation[T], P], R]:
    @wraps(method)
    def sync_method(self: SyncConversation[T], /, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.loop.run(method(self._conversation, *args, **kwargs))

    return sync_method


class SyncConversation(LoopUser, Generic[OutputT_co]):
    """A Conversation whose methods wait, and return what theirs give. From `SyncClient.start`, `send` and
    `conversation`."""

    def __init__(self, conversation: Conversation[OutputT_co], loop: BackgroundLoop) -> None:
        super().__init__(loop)
        self._conversation = conversation

    def __repr__(self) -> str:
        return f"<SyncConversation {self.id!r}>"

    @property
    def id(self) -> str:
        return self._conversation.id

    send = _make_sync(Conversation.send)
    status = _make_sync(Conversation.status)
    transcript = _make_sync(Conversation.transcript)
    tool_pairs = _make_sync(Conversation.tool_pairs)
    cursor = _make_sync(Conversation.cursor)
    prompt = _make_sync(Conversation.prompt)
    approve = _make_sync(Conversation.approve)
    deny = _make_sync(Conversation.deny)
    answer = _make_sync(Conversation.answer)
    set_policy = _make_sync(Conversation.set_policy)
    call_tool = _make_sync(Conversation.call_tool)
    pause = _make_sync(Conversation.pause)
    resume = _make_sync(Conversation.resume)
    cancel_turn = _make_sync(Conversation.cancel_turn)
    close = _make_sync(Conversation.close)

    # These three are written out: pyright does not know the type of a method that is taken from a generic class.

    def reply(self) -> OutputT_co:
        """As `Conversation.reply`."""
        return self.loop.run(self._conversation.reply())

    def outcome(self) -> OutcomeWithValue[OutputT_co]:
        """As `Conversation.outcome`."""
        return self.loop.run(self._conversation.outcome())

    def run_tools(self, functions: Iterable[Callable[..., Any]]) -> OutputT_co:
        """As `Conversation.run_tools`."""
        return self.loop.run(self._conversation.run_tools(functions))

    def events(self, since: str | None = None, *, deltas: bool = True, children: bool | None = None) -> Iterator[Event]:
        """The events so far, and then each new one until the conversation is over, as `Conversation.events` has
        them."""
        return self.loop.iterate(self._conversation.events(since, deltas=deltas, children=children))

    def fork(self, *args: Any, **options: Any) -> Self:
        """As `Conversation.fork`."""
        return type(self)(self.loop.run(self._conversation.fork(*args, **options)), self.loop)

    def where(self, call: WaitingCall) -> SyncConversation:
        """As `Conversation.where`."""
        return SyncConversation(self._conversation.where(call), self.loop)
