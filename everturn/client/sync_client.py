"""The client and its conversations for programs without asyncio: scripts, notebooks, web frameworks that block."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, Self, TypeVar

from everturn.agent import Agent
from everturn.client.background_loop import BackgroundLoop, Waiting
from everturn.client.client import Client
from everturn.client.conversation import Conversation
from everturn.events import Event
from everturn.payloads import WaitingCall
from everturn.tools.output_type import OutputT_co
from everturn.typed_outcomes import TypedOutcome
from everturn.validation.habits import no_attribute

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


def _waits(
    method: Callable[Concatenate[Client, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[SyncClient, P], R]:
    @wraps(method)
    def waiting(self: SyncClient, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.loop.run(method(self.client, *args, **kwargs))

    return waiting


def _opens(
    method: Callable[Concatenate[Client, P], Coroutine[Any, Any, Conversation[T]]],
) -> Callable[Concatenate[SyncClient, P], SyncConversation[T]]:
    @wraps(method)
    def waiting(self: SyncClient, /, *args: P.args, **kwargs: P.kwargs) -> SyncConversation[T]:
        return SyncConversation(self.loop.run(method(self.client, *args, **kwargs)), self.loop)

    return waiting


def _lists(
    method: Callable[Concatenate[Client, P], AsyncIterator[R]],
) -> Callable[Concatenate[SyncClient, P], Iterator[R]]:
    @wraps(method)
    def waiting(self: SyncClient, /, *args: P.args, **kwargs: P.kwargs) -> Iterator[R]:
        return self.loop.iterate(method(self.client, *args, **kwargs))

    return waiting


def _waits_there(
    method: Callable[Concatenate[Conversation[T], P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[SyncConversation[T], P], R]:
    @wraps(method)
    def waiting(self: SyncConversation[T], /, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.loop.run(method(self._conversation, *args, **kwargs))

    return waiting


class SyncConversation(Waiting, Generic[OutputT_co]):
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

    send = _waits_there(Conversation.send)
    status = _waits_there(Conversation.status)
    transcript = _waits_there(Conversation.transcript)
    tool_pairs = _waits_there(Conversation.tool_pairs)
    cursor = _waits_there(Conversation.cursor)
    prompt = _waits_there(Conversation.prompt)
    approve = _waits_there(Conversation.approve)
    deny = _waits_there(Conversation.deny)
    answer = _waits_there(Conversation.answer)
    set_policy = _waits_there(Conversation.set_policy)
    call_tool = _waits_there(Conversation.call_tool)
    pause = _waits_there(Conversation.pause)
    resume = _waits_there(Conversation.resume)
    cancel_turn = _waits_there(Conversation.cancel_turn)
    close = _waits_there(Conversation.close)

    # These three are written out: pyright does not know the type of a method that is taken from a generic class.

    def reply(self) -> OutputT_co:
        """As `Conversation.reply`."""
        return self.loop.run(self._conversation.reply())

    def outcome(self) -> TypedOutcome[OutputT_co]:
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


class SyncClient(Waiting):
    """A Client whose methods wait, and return what theirs give. Make one with `Client.connect_sync()`, and close it, or
    use it in a `with` block. All sync clients of a process share one thread; any thread may use them.

        with Client.connect_sync() as client, Worker(client, agents=[clerk]):
            print(client.run(clerk, "Is lamp-3 in stock?").text)

    Ctrl-C ends the wait, and the conversation goes on."""

    def __init__(self, client: Client, loop: BackgroundLoop) -> None:
        super().__init__(loop)
        self.client = client
        """It belongs to the loop: its methods are for that thread alone."""
        self._is_open = True

    if not TYPE_CHECKING:  # a type checker is to go on refusing what is not there

        def __getattr__(self, name: str) -> Any:
            raise no_attribute("Client", name)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes it. The thread ends with the last sync client of the process."""
        if self._is_open:
            self._is_open = False
            self.loop.release()

    run = _waits(Client.run)
    start = _opens(Client.start)
    send = _opens(Client.send)
    conversations = _lists(Client.conversations)
    count = _waits(Client.count)
    approve_all = _waits(Client.approve_all)
    deny_all = _waits(Client.deny_all)
    pause_all = _waits(Client.pause_all)
    resume_all = _waits(Client.resume_all)
    erase = _waits(Client.erase)
    budget = _waits(Client.budget)
    set_budget = _waits(Client.set_budget)
    task_queues = _waits(Client.task_queues)
    limit_task_queue = _waits(Client.limit_task_queue)
    indexed = _waits(Client.indexed)

    def conversation(
        self,
        id: str,  # noqa: A002 - the contract's name
        *,
        agent: Agent[OutputT_co] | None = None,
    ) -> SyncConversation[OutputT_co]:
        """A handle to a conversation, which need not exist yet. `agent`: as in `Client.conversation`."""
        return SyncConversation(self.client.conversation(id, agent=agent), self.loop)

    def acting_as(self, by: str) -> SyncClient:
        """The same client for another person; it is closed with this one."""
        another = SyncClient(self.client.acting_as(by), self.loop)
        another._is_open = False
        return another
