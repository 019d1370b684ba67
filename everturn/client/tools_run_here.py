"""Runs tool calls where the client is, and answers them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any, Protocol

from pydantic import JsonValue

from everturn.errors import Ended, InvalidTool, Refused, Unreachable
from everturn.events import AnswerRequested, Event
from everturn.payloads import Status, WaitingCall
from everturn.records import ResultPart, Text, ToolCall, ToolResult, on_lines
from everturn.sizes import MAX_ANSWER_BYTES, MAX_INPUT_PARTS, MAX_RESULT_CHARS
from everturn.subagents.call_addresses import find_named_call
from everturn.tools.context import ToolContext
from everturn.tools.results import safe_error_text
from everturn.tools.tool import Tool, tool
from everturn.truncation import Notice, bound_content

MAX_SHOWN = 100
"""How many images and documents are kept if an answer has too many parts."""

RETRY_SECONDS = 1.0

TRIES = 3
"""How often an answer is sent that is refused although its call still waits."""


class _NotLetOut(Refused):
    """The call waits for an approval."""


class ConversationWithCalls(Protocol):
    """The parts of a Conversation that are used here."""

    id: str

    async def status(self, *, children: bool = True) -> Status: ...
    async def reply(self) -> Any: ...
    def where(self, call: WaitingCall) -> ConversationWithCalls: ...
    async def cursor(self) -> str: ...
    def events(self, since: str | None = None, *, deltas: bool = True) -> AsyncIterator[Event]: ...
    async def answer(
        self,
        call_id: str,
        content: JsonValue = None,
        *,
        parts: Iterable[ResultPart] = (),
        is_error: bool = False,
        children: bool = True,
    ) -> tuple[str, ...]: ...


async def call_tool(
    conversation: ConversationWithCalls, call: ToolCall | WaitingCall, function: Callable[..., Any]
) -> ToolResult | None:
    """See `Conversation.call_tool`."""
    client_tool = as_tool(function)
    waits = await _find_waiting_call(conversation, call)
    place = conversation.where(waits)
    status = await _read_status(place)
    if any(waiting.call_id == waits.call_id and waiting.needs == "approval" for waiting in status.waiting):
        raise _NotLetOut(
            f"Call {waits.call_id!r} ({waits.tool}) waits for an approval, so it is not run.",
            cure="Approve it first. If it runs in the client, an answer is requested then.",
        )
    context = ToolContext(conversation_id=place.id, call_id=waits.call_id, chain_id=status.chain_id)
    content, is_error = await _run_tool(client_tool, waits, context)
    result = ToolResult(call_id=waits.call_id, name=waits.tool, content=content, is_error=is_error)
    if not await _answer_call(place, result):
        return None
    return result


async def _find_waiting_call(conversation: ConversationWithCalls, call: ToolCall | WaitingCall) -> WaitingCall:
    """The call as it waits: in the conversation itself, or in that of a sub-agent."""
    if isinstance(call, WaitingCall):
        return call
    own = WaitingCall(call_id=call.call_id, tool=call.name, arguments=call.arguments, needs="answer")
    status = await _read_status(conversation, children=True)
    return find_named_call(status.waiting, call.call_id) or own


def as_tool(function: Callable[..., Any]) -> Tool:
    client_tool = function if isinstance(function, Tool) else tool(function)
    if client_tool.function is None:
        raise InvalidTool(
            f"Tool {client_tool.name!r} has no function to run here.", cure="Give a tool with a function."
        )
    return client_tool


async def _run_tool(client_tool: Tool, call: WaitingCall, context: ToolContext) -> tuple[tuple[ResultPart, ...], bool]:
    """Runs the tool as a worker would. Returns what the model is told, and whether it is an error."""
    try:
        content: tuple[ResultPart, ...] = await client_tool.run(call.arguments, context)
    except Exception as error:  # noqa: BLE001 - a tool may raise anything, and the model may know what to do
        return (Text(text=await safe_error_text(error, whole=True)),), True
    content = bound_content(content, max_chars=MAX_RESULT_CHARS, max_bytes=MAX_ANSWER_BYTES, notice=Notice())
    if len(content) > MAX_INPUT_PARTS:
        content = _in_one(content)
    return content, False


def _in_one(content: tuple[ResultPart, ...]) -> tuple[ResultPart, ...]:
    """All texts joined into one, and the first MAX_SHOWN images and documents."""
    texts = on_lines([part.text for part in content if isinstance(part, Text)])
    others = [part for part in content if not isinstance(part, Text)]
    if len(others) > MAX_SHOWN:
        texts += f"\n[Left out: {len(others) - MAX_SHOWN} images or documents.]"
    return (Text(text=texts), *others[:MAX_SHOWN])


async def _answer_call(conversation: ConversationWithCalls, result: ToolResult) -> bool:
    """Answers the call; False if somebody else did, or the call no longer waits. Tries again while no worker answers:
    the tool has run, and its result must not be lost."""
    call_id = result.call_id
    refused = 0
    while True:
        try:
            given: dict[str, Any] = {"parts": result.content, "is_error": result.is_error}
            return bool(await conversation.answer(call_id, **given, children=False))
        except Ended:
            return False
        except Refused as error:
            # A call is in the history a moment before the conversation waits for its answer.
            if not any(waiting.call_id == result.call_id for waiting in (await _read_status(conversation)).waiting):
                return False
            refused += 1
            # The call waits, but its answer is refused: it may be too large for the rest of the run.
            if refused == TRIES:
                notice = Text(text=f"The tool ran, but its result could not be sent: {error.message}")
                result = result.model_copy(update={"content": (notice,), "is_error": True})
            elif refused > TRIES:
                raise
        except Unreachable:
            await asyncio.sleep(RETRY_SECONDS)


async def _read_status(conversation: ConversationWithCalls, *, children: bool = False) -> Status:
    while True:
        try:
            return await conversation.status(children=children)
        except Unreachable:
            await asyncio.sleep(RETRY_SECONDS)


async def run_tools(conversation: ConversationWithCalls, functions: Iterable[Callable[..., Any]]) -> Any:
    """See `Conversation.run_tools`."""
    tools = {tool.name: tool for tool in map(as_tool, functions)}
    reply = asyncio.create_task(conversation.reply())
    serving = asyncio.create_task(_serve_calls(conversation, tools))
    try:
        await asyncio.wait((reply, serving), return_when=asyncio.FIRST_COMPLETED)
        if serving.done():
            await serving  # it failed, or the conversation is over
        return await reply
    except ExceptionGroup as failures:  # of the calls: the first one is why the others were cancelled
        raise failures.exceptions[0] from None
    finally:
        reply.cancel()
        serving.cancel()
        await asyncio.gather(reply, serving, return_exceptions=True)


async def _serve_calls(conversation: ConversationWithCalls, tools: dict[str, Tool]) -> None:
    """Runs every call that waits for an answer, once, until the conversation is over."""
    begun: set[str] = set()

    async def run_call(call: WaitingCall, client_tool: Tool) -> None:
        try:
            await call_tool(conversation, call, client_tool)
        except _NotLetOut:  # a rule asks for an approval by now; after that, the call comes again
            begun.discard(call.address)

    async with asyncio.TaskGroup() as running:
        async for call in _waiting_calls(conversation):
            client_tool = tools.get(call.tool)
            if client_tool and call.address not in begun:
                begun.add(call.address)
                running.create_task(run_call(call, client_tool))


async def _waiting_calls(conversation: ConversationWithCalls) -> AsyncIterator[WaitingCall]:
    """The calls that wait now, and then new ones, those of sub-agents too; a call may come twice."""
    now = await conversation.cursor()
    for waiting in (await _read_status(conversation, children=True)).waiting:
        if waiting.needs == "answer":
            yield waiting
    async for event in conversation.events(since=now, deltas=False):
        if isinstance(event, AnswerRequested):
            call = event.call
            yield WaitingCall(
                call_id=call.call_id, tool=call.name, arguments=call.arguments, needs="answer", path=event.path
            )
