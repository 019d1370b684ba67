"""The tools of `everturn mcp`: one for each agent, and start, send, status, events, approve, deny, answer and close."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing, suppress
from functools import wraps
from importlib.metadata import version
from typing import Annotated, Any, TypeVar

from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import (
    CallToolResult,
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitResult,
    InputRequiredResult,
    TextContent,
    ToolAnnotations,
)
from pydantic import Field, JsonValue

from everturn import names
from everturn.client.client import Client
from everturn.client.conversation import Conversation
from everturn.client.strangers_ids import check_strangers_id
from everturn.errors import AlreadyStarted, EverturnError, InvalidSetting, NotFound, Refused
from everturn.events import Done, Event
from everturn.mcp_server import turns
from everturn.mcp_server.reachable_conversations import ReachableConversations
from everturn.mcp_server.turns import AskingCall, ConversationProgress

WAIT_SECONDS = 50.0
"""Less than the minute after which many clients give up on a call."""

MAX_WAIT_SECONDS = 300.0
MAX_EVENTS_AT_ONCE = 200
"""In one answer of the `events` tool: all of it goes to the model that called."""

QUIET_SECONDS = 1.0
"""If no event comes for this long, the `events` tool returns what it has."""
FIRST_SECONDS = 2.0
"""The least wait for the first event after a cursor. Without a cursor, events exist: the wait is MAX_WAIT_SECONDS."""

STATELESS = "2026-07-28"
"""The protocol from which on a question ends the call, which is made again with the answer."""

READS = ToolAnnotations(read_only_hint=True, open_world_hint=False)
ADDS = ToolAnnotations(read_only_hint=False, idempotent_hint=False, destructive_hint=False)
"""A second call begins a second conversation, or says the message twice, unless it has the key of the first."""
DECIDES = ToolAnnotations(read_only_hint=False, idempotent_hint=False, destructive_hint=True)
"""With these hints, a client asks a person first: an approval is worth nothing if the model gives it to itself. A call
that was decided may wait again, for a next answer or after its worker was lost: the same decision then counts again."""
ENDS = ToolAnnotations(read_only_hint=False, idempotent_hint=True, destructive_hint=True)

WITH_KEY = {names.MCP_IDEMPOTENT_WITH_KEY: True}
"""In the `_meta` of a tool."""

OWN_TOOLS = ("start", "send", "status", "events", "approve", "deny", "answer", "close")
"""Names that no agent's tool can have, whether or not decisions are taken here."""

Id = Annotated[str, Field(description="The conversation's id, as `start` returned it.")]
Question = Annotated[
    str | None,
    Field(
        description="The call's `question` in the status. If something else is asked by then, nothing is decided: the "
        "call may have run since."
    ),
]
CallId = Annotated[str, Field(description="The id of a call in the status's `waiting`.")]
Ctx = Context[Any, Any]
R = TypeVar("R")


class AgentServer:
    """Serves agents that workers host. It runs no agent itself, and holds no state of its own.

    `agents`: their names and descriptions; each agent becomes a tool of its name, and only their conversations, and
    those of the agents that work for them, can be reached. Without any, every agent can be started, and every
    conversation reached. `decisions=False`: nobody decides here on waiting calls. Raises InvalidSetting.
    """

    def __init__(
        self, client: Client, agents: Mapping[str, str], *, decisions: bool = True, wait_seconds: float = WAIT_SECONDS
    ) -> None:
        if taken_names := [name for name in agents if name in OWN_TOOLS]:
            raise InvalidSetting(
                f"The agent {taken_names[0]!r} can't be served: everturn's own MCP tool has that name.",
                cure="Give the agent another name, or leave it out.",
            )
        self._client = client
        self._reach = ReachableConversations(client, agents)
        self._decisions = decisions
        self._wait_seconds = wait_seconds
        self.mcp: MCPServer[Any] = MCPServer(
            "everturn",
            version=version("everturn"),
            instructions="Agents that you can ask. Their conversations go on even if you disconnect.",
            log_level="ERROR",
        )
        for name, description in agents.items():
            self._add_agent(name, description)
        self._add_tools()

    def _add_agent(self, name: str, description: str) -> None:
        async def ask(
            message: Annotated[str, Field(description="Everything that it has to know. It sees nothing else.")],
            ctx: Ctx,
        ) -> CallToolResult | InputRequiredResult:
            return await self._ask_agent(name, message, ctx)

        self.mcp.add_tool(
            _with_explained_errors(ask),
            name=name,
            description=f"{description or f'Ask the agent {name}.'} Returns its answer, or how far it is. Each call "
            "begins a new conversation.",
            annotations=ADDS,
            meta=WITH_KEY,
        )

    def _add_tools(self) -> None:
        deciding = (self.approve, self.deny, self.answer) if self._decisions else ()
        tools: dict[Callable[..., Any], ToolAnnotations] = {
            **dict.fromkeys((self.start, self.send), ADDS),
            **dict.fromkeys((self.status, self.events), READS),
            **dict.fromkeys(deciding, DECIDES),
            self.close: ENDS,
        }
        for function, hints in tools.items():
            self.mcp.add_tool(
                _with_explained_errors(function), annotations=hints, meta=WITH_KEY if hints is ADDS else None
            )

    # ------------------------------------------------------------ an agent as a tool

    async def _ask_agent(self, agent: str, message: str, ctx: Ctx) -> CallToolResult | InputRequiredResult:
        call = AskingCall(agent, message)
        answers = {
            name: answer for name, answer in (ctx.input_responses or {}).items() if isinstance(answer, ElicitResult)
        }
        if answers and not self._decisions:
            raise Refused("This server takes no decisions, and has asked no question.", cure="Decide elsewhere.")
        if answers:
            conversation_id = await call.take_answers(self._reach, answers)
        else:
            conversation_id = await self._begin_conversation(agent, message, None, key_of(ctx))
        conversation = self._client.conversation(conversation_id)
        reached = await turns.wait_until_settled(conversation, seconds=self._wait_seconds, say=ctx.report_progress)
        closed = any(answer.action == "cancel" for answer in answers.values())
        if reached.status.waiting and self._decisions and _can_ask(ctx) and not closed:
            return _ask_questions(call, reached)
        return _result_of(reached)

    # ------------------------------------------------------------ tools

    async def start(
        self,
        agent: Annotated[str, Field(description="Its name.")],
        message: str,
        ctx: Ctx,
        conversation_id: Annotated[
            str | None,
            Field(description="An id that you choose. The same id with the same agent and message is the same work."),
        ] = None,
    ) -> dict[str, Any]:
        """Start a conversation with an agent, and return at once. `status` and `events` follow it. Without a
        conversation_id, each call starts another conversation. An id that has begun with another agent or message is
        refused."""
        self._reach.check_agent(agent)
        if conversation_id:
            await check_strangers_id(self._client, conversation_id)
        return {"conversation_id": await self._begin_conversation(agent, message, conversation_id, key_of(ctx))}

    async def send(self, conversation_id: Id, message: str, ctx: Ctx) -> dict[str, Any]:
        """Say something more to a conversation, also to one that is done. Each call says it again."""
        conversation = await self._reach.open_conversation(conversation_id)
        revived = await conversation.send(message, message_id=key_of(ctx), revive=True)
        return {"conversation_id": conversation_id, "revived": revived}

    async def status(
        self,
        conversation_id: Id,
        wait_seconds: Annotated[
            float, Field(ge=0, le=MAX_WAIT_SECONDS, description="How long to wait for it to end or to need a person.")
        ] = 0,
    ) -> dict[str, Any]:
        """What goes on, what waits for whom, and the answer once there is one."""
        conversation = await self._reach.open_conversation(conversation_id)
        if not wait_seconds:
            return (await turns.look_at(conversation)).as_json
        return (await turns.wait_until_settled(conversation, seconds=wait_seconds)).as_json

    async def events(
        self,
        conversation_id: Id,
        since: Annotated[
            str | None, Field(description="The cursor that the last call returned. Without it, from the beginning.")
        ] = None,
        wait_seconds: Annotated[
            float, Field(ge=0, le=MAX_WAIT_SECONDS, description="How long to wait if there is nothing new.")
        ] = 0,
        limit: Annotated[int, Field(ge=1, le=MAX_EVENTS_AT_ONCE)] = 50,
    ) -> dict[str, Any]:
        """What happened since, in order: turns, calls, results, decisions."""
        conversation = await self._reach.open_conversation(conversation_id)
        happened: list[Any] = []
        cursor = since
        done = False
        follow: Any = conversation.events(since, deltas=False)
        async with aclosing(follow) as events:
            while not done and len(happened) < limit:
                if happened:
                    seconds = QUIET_SECONDS
                elif since:
                    seconds = max(wait_seconds, FIRST_SECONDS)
                else:
                    seconds = MAX_WAIT_SECONDS
                event = await _next_event(events, seconds=seconds)
                if event is None:
                    break
                happened.append(event.model_dump(mode="json"))
                cursor = event.cursor
                done = isinstance(event, Done)
        return {"conversation_id": conversation_id, "events": happened, "cursor": cursor, "done": done}

    async def approve(
        self,
        conversation_id: Id,
        call_id: CallId,
        arguments: Annotated[
            dict[str, JsonValue] | None, Field(description="Arguments that replace the call's own.")
        ] = None,
        note: Annotated[str | None, Field(description="For the agent.")] = None,
        question: Question = None,
    ) -> dict[str, Any]:
        """Let a waiting call run. A person decides this, not a model."""
        conversation = await self._conversation_to_decide(conversation_id, call_id)
        return {"call_ids": list(await conversation.approve(call_id, arguments, note, expected=question))}

    async def deny(
        self,
        conversation_id: Id,
        call_id: CallId,
        reason: Annotated[str | None, Field(description="For the agent.")] = None,
        question: Question = None,
    ) -> dict[str, Any]:
        """Refuse a waiting call, so that it does not run. A person decides this, not a model."""
        conversation = await self._conversation_to_decide(conversation_id, call_id)
        return {"call_ids": list(await conversation.deny(call_id, reason, expected=question))}

    async def answer(
        self, conversation_id: Id, call_id: CallId, content: JsonValue, question: Question = None
    ) -> dict[str, Any]:
        """Answer a question that waits, or give the result of a call that runs outside."""
        conversation = await self._conversation_to_decide(conversation_id, call_id)
        return {"call_ids": list(await conversation.answer(call_id, content, expected=question))}

    async def close(self, conversation_id: Id, reason: str | None = None) -> dict[str, Any]:
        """End a conversation: the reply at hand is finished, and what waits is denied."""
        conversation = await self._reach.open_conversation(conversation_id)
        if self._decisions:
            await conversation.close(reason)
            return {"conversation_id": conversation_id}
        if (await conversation.status()).waiting:
            raise Refused(
                f"Calls of {conversation_id!r} wait for a person, and the end would deny them; this server takes no "
                "decisions.",
                cure="Close it once they are decided, or elsewhere.",
            )
        await conversation._close_without_deciding(reason)
        return {"conversation_id": conversation_id}

    async def _begin_conversation(self, agent: str, message: str, conversation_id: str | None, key: str | None) -> str:
        """The conversation's id. Raises AlreadyStarted, which names what has begun under the id, only to those who may
        know that."""
        try:
            return await turns.begin_conversation(
                self._client, agent, message, conversation_id=conversation_id, key=key
            )
        except AlreadyStarted as error:
            with suppress(NotFound):
                await self._reach.open_conversation(conversation_id or turns.id_for(agent, key))
                raise
            raise Refused(f"The id {conversation_id!r:.300} is taken.", cure="Use another id.") from error

    async def _conversation_to_decide(self, conversation_id: str, call_id: str) -> Conversation:
        """The conversation. Raises Refused for all calls at once: a decision here is on what somebody has seen."""
        if call_id == names.EVERY_CALL:
            raise Refused("Decide on each call by its own id.", cure="The `waiting` of `status` has the ids.")
        return await self._reach.open_conversation(conversation_id)


def _with_explained_errors(function: Callable[..., Awaitable[R]]) -> Callable[..., Awaitable[R]]:
    """Passes the messages of everturn's own errors on to the caller."""

    @wraps(function)
    async def call_function(*args: Any, **arguments: Any) -> R:
        try:
            return await function(*args, **arguments)
        except EverturnError as error:
            raise ToolError(str(error)) from None

    return call_function


def key_of(ctx: Ctx) -> str | None:
    """The caller's idempotency key; None if it gave none. Raises Refused for what is no text: passed over, the same
    call would start its work twice."""
    meta: Any = ctx.request_context.meta or {}
    key = meta.get(names.MCP_IDEMPOTENCY_KEY)
    if key is not None and not isinstance(key, str):
        raise Refused(f"The idempotency key {key!r:.100} is no text.", cure=f"Send {names.MCP_IDEMPOTENCY_KEY} as one.")
    return key or None


def _can_ask(ctx: Ctx) -> bool:
    client = ctx.client_capabilities
    return (ctx.protocol_version or "") >= STATELESS and client is not None and client.elicitation is not None


def _ask_questions(asking: AskingCall, reached: ConversationProgress) -> InputRequiredResult:
    questions = {}
    for call in reached.status.waiting:
        message, form = turns.question_about(asking.agent, call)
        questions[asking.question_name(reached.conversation_id, call)] = ElicitRequest(
            params=ElicitRequestFormParams(message=message, requested_schema=form)
        )
    return InputRequiredResult(input_requests=questions)


def _result_of(reached: ConversationProgress) -> CallToolResult:
    return CallToolResult(
        content=[TextContent(type="text", text=reached.in_words)],
        structured_content=json.loads(json.dumps(reached.as_json)),
    )


async def _next_event(events: AsyncIterator[Event], *, seconds: float) -> Event | None:
    """The next event; None if none comes in time, or if there are no more."""
    try:
        async with asyncio.timeout(seconds):
            return await anext(events, None)
    except TimeoutError:
        return None
