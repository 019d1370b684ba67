"""Starts conversations, finds them, and lists them."""

from __future__ import annotations

import getpass
import socket
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, TypeVar
from uuid import uuid4

import temporalio.client
from temporalio.converter import ExternalStorage
from temporalio.service import RPCError, RPCStatusCode

from everturn import names
from everturn.agent import Agent, name_of
from everturn.budgets.client import BudgetingClient
from everturn.client import interpreter_exit, listing
from everturn.client.background_loop import BackgroundLoop, LoopUser
from everturn.client.connecting import connect_to_temporal
from everturn.client.earlier_transcript import begun_with, read_transcript, said_after
from everturn.client.erasure import ErasingClient
from everturn.client.listing import ListedConversation
from everturn.client.many_commands import ManyCommands
from everturn.client.many_decisions import AT_ONCE, DecidedCall, DecisionForMany, decide_all
from everturn.client.messages import MessageLike, rules_of, start_payload, user_message, with_tools
from everturn.client.policy_tools import warn_of_unknown_tools
from everturn.client.send_or_revive import send_or_revive
from everturn.client.stuck import QueueVersions
from everturn.client.task_queues import QueuesClient
from everturn.client.typed_outcomes import OutcomeWithValue
from everturn.errors import AlreadyStarted, ConversationError, Ended, InvalidSetting, Unreachable
from everturn.evaluations.client import EvaluationsClient
from everturn.history.same_work import is_begun
from everturn.limits import Limits
from everturn.models import Model
from everturn.policy import Rule
from everturn.settings import Settings
from everturn.storage.composed_converter import own_client
from everturn.storage.encryption import Encryption
from everturn.system.bounded_concurrency import in_order
from everturn.tenants.metadata import TENANT
from everturn.tenants.priorities import Order
from everturn.text.utf8 import check_utf8, mend
from everturn.tools.output_type import OutputT_co
from everturn.tools.tool import Tool
from everturn.validation import durations
from everturn.validation.names_of_other_libraries import no_attribute
from everturn.validation.spelling import known_options, options_of
from everturn.vendor_models.plugins import check_provider

if TYPE_CHECKING:
    from everturn.client.conversation import Conversation
    from everturn.client.sync_conversation import SyncConversation

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


class Client(ManyCommands, ErasingClient, BudgetingClient, EvaluationsClient, QueuesClient):
    """Make one with `await Client.connect()`. It may be shared by any number of tasks."""

    if not TYPE_CHECKING:  # a type checker is to go on refusing what is not there

        def __getattr__(self, name: str) -> Any:
            raise no_attribute("Client", name)

    @known_options("Client", InvalidSetting)
    def __init__(
        self, temporal: temporalio.client.Client, *, task_queue: str = names.TASK_QUEUE, by: str | None = None
    ) -> None:
        if isinstance(temporal, str):
            raise InvalidSetting(
                f"Client was given {temporal!r}, which is not a connection to Temporal.",
                cure="Write await Client.connect(...).",
            )
        interpreter_exit.runtime_is_used()
        super().__init__(own_client(temporal), task_queue=task_queue)
        self.by = check_utf8("name of who decides", by or _whoever_runs_this())
        """Who decides, in approvals and denials."""

    @classmethod
    @known_options("Client.connect", InvalidSetting, also=lambda: options_of(temporalio.client.Client.connect))
    async def connect(
        cls,
        address: str | None = None,
        *,
        task_queue: str | None = None,
        by: str | None = None,
        storage: ExternalStorage | Path | str | None = None,
        encryption: Encryption | None = None,
        **options: Any,
    ) -> Self:
        """Connects to `address`, or to the Temporal server that the environment names (TEMPORAL_ADDRESS and its
        like; localhost:7233 by default). `storage`: where large payloads go; None means EVERTURN_STORAGE, if set.
        `data_converter`: None means EVERTURN_DATA_CONVERTER. `encryption`: None means EVERTURN_ENCRYPTION_KEYS or
        EVERTURN_ENCRYPTION_COMMAND, if set. All processes that share conversations need the same three. `options`
        are temporalio's own. Raises Unreachable and InvalidSetting."""
        settings = Settings.load()
        temporal = await connect_to_temporal(settings, address, storage, encryption, options)
        return cls(temporal, task_queue=task_queue or settings.task_queue, by=by)

    @classmethod
    @known_options("Client.connect_sync", InvalidSetting, also=lambda: options_of(temporalio.client.Client.connect))
    def connect_sync(
        cls,
        address: str | None = None,
        *,
        task_queue: str | None = None,
        by: str | None = None,
        storage: ExternalStorage | Path | str | None = None,
        encryption: Encryption | None = None,
        **options: Any,
    ) -> SyncClient:
        """Connects as `connect` does, for programs without asyncio: a client whose methods wait. It works in a notebook
        and in any thread, also where an event loop runs, which it blocks. Close it, or use it in a `with` block. Raises
        Unreachable and InvalidSetting."""
        given = {"task_queue": task_queue, "by": by, "storage": storage, "encryption": encryption, **options}
        loop = BackgroundLoop.acquire()
        try:
            return SyncClient(loop.run(cls.connect(address, **given)), loop)
        except BaseException:
            loop.release()
            raise

    # ------------------------------------------------------------ conversations

    @known_options("Client.start", InvalidSetting)
    async def start(
        self,
        agent: Agent[OutputT_co] | str,
        message: MessageLike,
        *,
        id: str | None = None,  # noqa: A002 - the contract's name
        keep_open: timedelta | None = None,
        model: str | None = None,
        limits: Limits | None = None,
        message_id: str | None = None,
        tenant: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        policy: Iterable[Rule | Mapping[str, Any]] = (),
        searchable: Iterable[str] = (),
        stream: bool = False,
        transcript: Iterable[Any] = (),
        priority: int | None = None,
        fairness_key: str | None = None,
        fairness_weight: float | None = None,
        again: bool = False,
        tools: Iterable[str | Tool] | None = None,
    ) -> Conversation[OutputT_co]:
        """Starts a conversation, on whichever worker hosts the agent.

        **The same id is the same work.** If a conversation of this agent and first message has this `id` already, it
        is the one that is returned, whether it runs or is over, and however it ended: no model is asked, and no tool
        runs again. So a program that died may simply be run again, as long as the namespace keeps what is over. The
        other options hold as they were when it began; the log says which differ. Raises AlreadyStarted, which names
        both, if the id has another agent, first message, `tools`, `transcript` or `tenant`, or is a fork's. `again`:
        starts anew, with any message, if the conversation is over; one that runs is joined as without it.

        Without `keep_open`, the conversation ends with its final reply; with it, it idles that long for the next
        message. With `stream`, text reaches programs that follow the events 0.2 s after it is written; without it,
        in steps of 1.5 s, or of 10 s if the worker's heartbeats are thrifty, as on Temporal Cloud.
        `tenant`: whom the conversation is for. `metadata`: other facts that its tools need, such as the user's id,
        as JSON of at most 4,096 bytes. Tools, predicates, approvers and instructions get both, and so do agents that
        are called as tools; no model sees them. Both are kept in the workflow's memo, and shown with the conversation.
        `policy`: rules that decide on its calls from the first turn on, as in `Conversation.set_policy`. The log has a
        warning about a rule for a tool that the Agent, and its sub-agents, don't have.
        `conversations(tenant=)` finds it by its tenant, unless payloads are encoded or a setting keeps it out.
        `searchable`: keys of the metadata by which `conversations(metadata=)` finds it, and "tenant", to be found by
        that in any case. They are plain text in Temporal's index, even with encryption. Raises Refused if the namespace
        lacks the search attribute.

        `transcript`: earlier messages, which the model sees before `message`: Messages, or messages in the form of
        OpenAI Chat, Responses, Anthropic or Gemini: at most 400 KB when compressed. Raises Refused if it can't be
        read, or has a result without its call.

        If there is more work than workers: `priority` 1 goes before 2, down to 5 (default: 3). Among equals, each
        `fairness_key` (default: the tenant; at most 64 bytes) gets a share of `fairness_weight` (default: 1). All
        three are Temporal's own, and hold for the workflow, its activities and its children.

        `tools`: the names of the only tools that the model is offered for the first answer: see `Conversation.send`.
        """
        messages = read_transcript(transcript)
        carry = begun_with(messages)
        rules = rules_of(policy, by=self.by)
        warn_of_unknown_tools(rules, agent)
        start = start_payload(
            with_tools(message, tools, agent),
            may_be_empty=keep_open is not None,
            agent=name_of(agent),
            message_id=message_id,
            keep_open=_keep_open_seconds(keep_open),
            model=model and check_provider(Model(model)).name,
            limits=limits,
            tenant=tenant,
            metadata=metadata or {},
            policy=rules,
            searchable=tuple(searchable),
            stream=stream,
            carry=carry and carry.model_copy(update={"policy": rules}),
        )
        if carry:
            start = said_after(start, messages)
        order = Order(priority, fairness_key, fairness_weight).priority_for(tenant)
        name = f"{start.agent}-{uuid4().hex[:12]}" if id is None else id
        while True:
            try:
                await self._start_workflow(start, name, agent, after_end=again, priority=order)
            except AlreadyStarted:
                try:
                    if not await is_begun(self.temporal, name, start):
                        continue  # it is gone since: erased, or its retention is over
                except RPCError as error:
                    raise self.unreachable_error(error) from error
            return self.conversation(name, agent=agent if isinstance(agent, Agent) else None)

    @known_options("Client.send", InvalidSetting)
    async def send(
        self,
        agent: Agent[OutputT_co] | str,
        message: MessageLike,
        *,
        id: str,  # noqa: A002 - the contract's name
        keep_open: timedelta | None = None,
        message_id: str | None = None,
        tenant: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        policy: Iterable[Rule | Mapping[str, Any]] = (),
        stream: bool | None = None,
        priority: int | None = None,
        fairness_key: str | None = None,
        fairness_weight: float | None = None,
        tools: Iterable[str | Tool] | None = None,
    ) -> Conversation[OutputT_co]:
        """Delivers a message to the conversation `id`: starts it if there is none, and revives it with its
        transcript, model, limits, tenant and metadata if it is over. With a `message_id`, it is safe to repeat.
        `tenant`: as in `start`; raises AlreadyStarted if the conversation is for another one. `metadata`, `policy`: as
        in `start`; used only if the message starts the conversation. `stream`: as in `start`, from now on; None changes
        nothing. `priority`, `fairness_key`, `fairness_weight`: as in `start`; a revived conversation keeps its own
        unless given. `tools`: as in `Conversation.send`.
        """
        conversation = self.conversation(id, agent=agent if isinstance(agent, Agent) else None)
        parsed = user_message(with_tools(message, tools, agent))
        rules = rules_of(policy, by=self.by)
        warn_of_unknown_tools(rules, agent)
        new_start = start_payload(
            parsed,
            agent=name_of(agent),
            message_id=message_id,
            keep_open=_keep_open_seconds(keep_open),
            tenant=tenant,
            metadata=metadata or {},
            policy=rules,
            stream=bool(stream),
        )
        order = Order(priority, fairness_key, fairness_weight)
        await send_or_revive(
            conversation, parsed, new_start=new_start, agent=agent, message_id=message_id, stream=stream, order=order
        )
        return conversation

    @known_options("Client.run", InvalidSetting)
    async def run(
        self,
        agent: Agent[OutputT_co] | str,
        message: MessageLike,
        *,
        id: str | None = None,  # noqa: A002 - the contract's name
        model: str | None = None,
        limits: Limits | None = None,
        tenant: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        policy: Iterable[Rule | Mapping[str, Any]] = (),
        priority: int | None = None,
        fairness_key: str | None = None,
        fairness_weight: float | None = None,
        again: bool = False,
        tools: Iterable[str | Tool] | None = None,
    ) -> OutcomeWithValue[OutputT_co]:
        """Starts a conversation and waits for its outcome. With an Agent, and not its name, its `value` is the output
        as the agent's type. With an `id`, it is safe to repeat: it waits for the conversation that runs, or returns
        the outcome of the one that is over; see `start`, also for `again`.

        Raises Stalled if a person has to help first, Ended if the conversation ended without an outcome, such as when
        it was terminated, and Unreachable if the server does not answer after the start: the conversation then goes
        on, and the error's message has its id."""
        conversation = await self.start(
            agent,
            message,
            id=id,
            model=model,
            limits=limits,
            tenant=tenant,
            metadata=metadata,
            policy=policy,
            priority=priority,
            fairness_key=fairness_key,
            fairness_weight=fairness_weight,
            again=again,
            tools=tools,
        )
        try:
            with suppress(Ended):  # outcome() says how
                await conversation._wait_for_reply()
            return await conversation.outcome()
        except Unreachable as error:
            raise Unreachable(
                f"Conversation {conversation.id!r} has started and goes on by itself. {error.message}",
                cure=f"Wait for it with client.conversation({conversation.id!r}).outcome().",
            ) from error

    def conversation(
        self,
        id: str,  # noqa: A002 - the contract's name
        *,
        agent: Agent[OutputT_co] | None = None,
    ) -> Conversation[OutputT_co]:
        """A handle to a conversation, which need not exist yet. `agent`: the one that it was started with, for replies
        and a `value` of its `output` type."""
        # Only now: a worker's client has no conversations, and needs none of what reads them.
        from everturn.client.conversation import Conversation

        return Conversation(self, check_utf8("id", id), agent)

    async def conversations(
        self,
        *,
        status: str | None = None,
        agent: str | None = None,
        tenant: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        search: str = "",
        started_after: datetime | None = None,
        started_before: datetime | None = None,
        ended: bool | None = None,
    ) -> AsyncIterator[ListedConversation]:
        """All conversations, newest first. `status`: a state such as 'awaiting_approval', or 'stuck' for a
        conversation that no worker can continue; its `trouble` says why. Temporal's index lags: a change may take a
        second to show. `tenant`: only this tenant's, as far as tenants are in the index (EVERTURN_INDEX_TENANTS).
        `metadata`: only conversations that were started with it and made `searchable` by it. `search`: only those whose
        id, agent or model (`provider:name`) begins with this. `started_after`, `started_before`: when their latest run
        began. `ended`: True: only those that are over; False: only the others.
        Raises InvalidSetting for a status that there is not, and ConversationError if the namespace lacks everturn's
        search attributes."""
        if status not in (None, *listing.STATUSES):
            raise InvalidSetting(f"There is no status {status!r}.", cure=f"There are {', '.join(listing.STATUSES)}.")
        for what, wanted in (("agent", agent), ("search", search)):
            check_utf8(what, wanted or "")
        with self._explaining_searches():
            versions = QueueVersions(self.temporal)
            labels = _tenant_label(tenant) | dict(metadata or {})
            executions = listing.found_by(
                self.temporal,
                status=status,
                agent=agent,
                labels=labels,
                search=search,
                started_after=started_after,
                started_before=started_before,
                ended=ended,
            )
            async for execution in executions:
                conversation = await listing.mark_stuck(await listing.read_labelled(execution), execution, versions)
                if status in (None, conversation.status):
                    yield conversation

    async def count(
        self,
        agent: str | None = None,
        *,
        tenant: str | None = None,
        started_after: datetime | None = None,
        started_before: datetime | None = None,
    ) -> dict[str, int]:
        """The number of conversations of each status that has any; with `agent`, only that agent's. The other filters:
        as in `conversations`. Temporal's index lags: a change may take a second to show."""
        check_utf8("agent", agent or "")
        with self._explaining_searches():
            return await listing.count_by_status(
                self.temporal,
                agent=agent,
                labels=_tenant_label(tenant),
                started_after=started_after,
                started_before=started_before,
            )

    # ------------------------------------------------------------ many decisions

    @known_options("Client.approve_all", InvalidSetting)
    async def approve_all(
        self,
        *,
        ids: Iterable[str] | None = None,
        agent: str | None = None,
        tool: str | None = None,
        where: Mapping[str, Any] | None = None,
        note: str | None = None,
        always: bool = False,
        within: timedelta | None = None,
    ) -> list[DecidedCall]:
        """Approves the calls that wait for approval: in all conversations, or only those in `ids`, with the sub-agents
        that work for them, or only those of `agent`; of all tools, or only of `tool`; with any arguments, or only those
        that `where` allows: {"cents": {"at_most": 2000}}, see Condition. `always`: later calls in these conversations,
        too. Returns each call, with the reason if its decision was refused. Raises NotFound for an id that is no
        conversation's, before anything is decided.

        Each decision holds only for the arguments that the call had when it was read. Calls that may have run already,
        and calls whose edited arguments were invalid, are left for a person. Temporal's index says which
        conversations wait; it lags by a second or so. A call whose workflow an operator has paused is refused.
        `note`, `within`: as in `Conversation.approve`.
        """
        more: dict[str, Any] = {"words": note, "always": always, "within": within, "children": ids is not None}
        decision = DecisionForMany.from_options("approve", tool=tool, where=where or {}, **more)
        return await decide_all(decision, self._waiting_conversations(ids, agent))

    @known_options("Client.deny_all", InvalidSetting)
    async def deny_all(
        self,
        *,
        ids: Iterable[str] | None = None,
        agent: str | None = None,
        tool: str | None = None,
        where: Mapping[str, Any] | None = None,
        reason: str | None = None,
        always: bool = False,
        within: timedelta | None = None,
    ) -> list[DecidedCall]:
        """Like `approve_all`, but denies the calls. The model reads the reason."""
        more: dict[str, Any] = {"words": reason, "always": always, "within": within, "children": ids is not None}
        decision = DecisionForMany.from_options("deny", tool=tool, where=where or {}, **more)
        return await decide_all(decision, self._waiting_conversations(ids, agent))

    async def _waiting_conversations(self, ids: Iterable[str] | None, agent: str | None) -> AsyncIterator[Conversation]:
        if ids is None:
            async for listed in self.conversations(status="awaiting_approval", agent=agent):
                yield self.conversation(listed.id)
            async for listed in self.conversations(status="paused", agent=agent):
                if listed.trouble:  # by an operator: what waits there is refused, and says why
                    yield self.conversation(listed.id)
            return
        named = [self.conversation(conversation_id) for conversation_id in dict.fromkeys(ids)]
        await in_order(
            named, lambda conversation: conversation._describe(), max_running=AT_ONCE
        )  # before anything is decided: one may be misspelt
        for conversation in named:
            yield conversation

    @contextmanager
    def _explaining_searches(self) -> Iterator[None]:
        try:
            yield
        except RPCError as error:
            if error.status is RPCStatusCode.INVALID_ARGUMENT:
                raise ConversationError(
                    f"The namespace {self.temporal.namespace!r} can't run this search: {error.message}.",
                    cure="`everturn doctor --fix` registers everturn's search attributes.",
                ) from error
            raise self.unreachable_error(error) from error


def _keep_open_seconds(keep_open: timedelta | None) -> float | None:
    """Raises InvalidSetting if it is not a duration."""
    if keep_open is None:
        return None
    if problem := durations.problem_of(keep_open):
        raise InvalidSetting(f"keep_open={keep_open!r} is not a duration to keep a conversation open.", cure=problem)
    return keep_open.total_seconds()


def _tenant_label(tenant: str | None) -> dict[str, Any]:
    if tenant is None:
        return {}
    return {TENANT: tenant}


def _whoever_runs_this() -> str:
    try:
        return mend(f"{getpass.getuser()}@{socket.gethostname()}")
    except (OSError, KeyError):  # containers run as numbers that have no name
        return socket.gethostname()


def _make_sync(
    method: Callable[Concatenate[Client, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[SyncClient, P], R]:
    @wraps(method)
    def sync_method(self: SyncClient, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.loop.run(method(self.client, *args, **kwargs))

    return sync_method


def _make_sync_opener(
    method: Callable[Concatenate[Client, P], Coroutine[Any, Any, Conversation[T]]],
) -> Callable[Concatenate[SyncClient, P], SyncConversation[T]]:
    @wraps(method)
    def sync_method(self: SyncClient, /, *args: P.args, **kwargs: P.kwargs) -> SyncConversation[T]:
        from everturn.client.sync_conversation import SyncConversation

        return SyncConversation(self.loop.run(method(self.client, *args, **kwargs)), self.loop)

    return sync_method


def _make_sync_iterator(
    method: Callable[Concatenate[Client, P], AsyncIterator[R]],
) -> Callable[Concatenate[SyncClient, P], Iterator[R]]:
    @wraps(method)
    def sync_method(self: SyncClient, /, *args: P.args, **kwargs: P.kwargs) -> Iterator[R]:
        return self.loop.iterate(method(self.client, *args, **kwargs))

    return sync_method


class SyncClient(LoopUser):
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

    run = _make_sync(Client.run)
    start = _make_sync_opener(Client.start)
    send = _make_sync_opener(Client.send)
    conversations = _make_sync_iterator(Client.conversations)
    count = _make_sync(Client.count)
    approve_all = _make_sync(Client.approve_all)
    deny_all = _make_sync(Client.deny_all)
    pause_all = _make_sync(Client.pause_all)
    resume_all = _make_sync(Client.resume_all)
    erase = _make_sync(Client.erase)
    budget = _make_sync(Client.budget)
    evaluations = _make_sync_iterator(Client.evaluations)
    set_budget = _make_sync(Client.set_budget)
    task_queues = _make_sync(Client.task_queues)
    limit_task_queue = _make_sync(Client.limit_task_queue)
    indexed = _make_sync(Client.indexed)

    def conversation(
        self,
        id: str,  # noqa: A002 - the contract's name
        *,
        agent: Agent[OutputT_co] | None = None,
    ) -> SyncConversation[OutputT_co]:
        """A handle to a conversation, which need not exist yet. `agent`: as in `Client.conversation`."""
        from everturn.client.sync_conversation import SyncConversation

        return SyncConversation(self.client.conversation(id, agent=agent), self.loop)

    def acting_as(self, by: str) -> SyncClient:
        """The same client for another person; it is closed with this one."""
        another = SyncClient(self.client.acting_as(by), self.loop)
        another._is_open = False
        return another
