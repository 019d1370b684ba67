"""One model reply without Temporal and without a loop."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from everturn.errors import InvalidSetting, InvalidTool
from everturn.evaluations.spending import current_spending
from everturn.models import Model, ModelSettings, check_asks_at_once
from everturn.prices import cost_of_reply
from everturn.providers.base import OnDelta, Request, specs_of
from everturn.records import Message, Reply, ToolCall, ToolResult
from everturn.validation.spelling import known_options
from everturn.vendors.lone_results import find_unanswerable

if TYPE_CHECKING:
    from everturn.agent import ToolItem

Said = Message | Reply | ToolResult | tuple[ToolCall, Any] | str
"""One of the messages that a model is asked with. A text is the user's; a pair is a call and what came of it: what a
tool may return, an exception, or a ToolResult."""


@known_options("generate", InvalidSetting)
async def generate(
    model: str | Model,
    messages: str | Message | Sequence[Said],
    *,
    tools: Sequence[ToolItem] = (),
    instructions: str = "",
    settings: ModelSettings | None = None,
    output: Any = None,
    on_delta: OnDelta | None = None,
) -> Reply:
    """One reply. Its tool calls are returned, not run.

    `messages`: a user's text, a message, or a transcript, in which a Reply stands for its message, and pairs for the
    results of its calls: `[*messages, reply, *((call, run(call)) for call in reply.tool_calls)]`. `tools` and `output`:
    what an Agent takes; of `output`, the provider is given the schema, and the reply's text is left as it is.
    `on_delta` is called with each piece of the reply as it comes: its `kind` is "text" or "thinking".
    Raises InvalidModel, InvalidSetting (also for a result whose call no message before it has), InvalidTool and every
    kind of ProviderError; sends once, retries nothing. After a 429, later calls of the same event loop wait until the
    provider's limit allows them, with a worker's model turns, if that runs there.
    """
    check_asks_at_once("generate()", settings)
    # On demand: the module of this function comes with the package, whose Requests need neither.
    from everturn.agent import Agent
    from everturn.providers.model_call import ask
    from everturn.providers.rate_limits.limit_queue import asked_within

    agent = Agent(
        "generate",
        model=model,
        instructions=instructions,
        tools=tools,
        settings=settings or ModelSettings(),
        output=output,
    )
    if agent.mcp_servers:
        raise InvalidTool(
            "generate() takes no McpServer: only a worker can list its tools.",
            cure="Host an Agent with the server, or give the tools as dicts.",
        )
    request = Request(
        model=agent.model,
        messages=_read_transcript(messages),
        instructions=instructions,
        tools=specs_of(agent.tools),
        server_tools=agent.server_tools,
        raw_tools=agent.raw_tools,
        settings=agent.settings,
        output_schema=agent.output_schema,
    )
    reply = await asked_within(agent.model, partial(ask, request, on_delta=on_delta))
    if spending := current_spending():
        spending.add_usage(reply.usage, cost_of_reply(agent.model, reply))
    return reply


@known_options("generate_sync", InvalidSetting)
def generate_sync(
    model: str | Model,
    messages: str | Message | Sequence[Said],
    *,
    tools: Sequence[ToolItem] = (),
    instructions: str = "",
    settings: ModelSettings | None = None,
    output: Any = None,
    on_delta: OnDelta | None = None,
) -> Reply:
    """`generate` for programs without an event loop; each call opens a connection of its own. Raises InvalidSetting in
    a running event loop, as in a notebook: there, `await generate(...)`."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        pass
    else:
        raise InvalidSetting(
            "generate_sync() was called in a running event loop, which it would block.",
            cure="Write `await generate(...)`.",
        )

    async def run_once() -> Reply:
        from everturn.providers.http import aclose

        try:
            return await generate(
                model,
                messages,
                tools=tools,
                instructions=instructions,
                settings=settings,
                output=output,
                on_delta=on_delta,
            )
        finally:
            await aclose()

    return asyncio.run(run_once())


def _read_transcript(messages: str | Message | Sequence[Said]) -> tuple[Message, ...]:
    """Raises InvalidSetting for anything that is not a message, and for a result without a call."""
    if isinstance(messages, str | Message):
        messages = [messages]
    if not isinstance(messages, Iterable):
        raise InvalidSetting(
            f"generate() was given messages={messages!r:.100}.", cure="Give a text, a Message or a list of them."
        )
    transcript: list[Message] = []
    for message in _to_messages(messages):
        if (
            message.role == "tool" and transcript and transcript[-1].role == "tool"
        ):  # those of one reply belong together
            parts = (*transcript.pop().parts, *message.parts)
            transcript.append(Message(role="tool", parts=parts, provider=message.provider))
        else:
            transcript.append(message)
    if lone := find_unanswerable(transcript):
        _, call_id, name = lone
        raise InvalidSetting(
            "The messages have the result of the call "
            f"{call_id!r:.100}{f' of {name}' if name else ''}, "
            "but no earlier message has that call, so the model would not see it.",
            cure="Put the reply that asked for it before it: [*messages, reply, (call, result)].",
        )
    return tuple(transcript)


def _to_messages(messages: Iterable[Said]) -> Iterator[Message]:
    for place, item in enumerate(messages):
        match item:
            case Message():
                yield item
            case Reply():
                yield item.message
            case str():
                yield Message.user(item)
            case ToolResult():
                yield Message(role="tool", parts=(item,))
            case (ToolCall() as call, result):
                yield Message(role="tool", parts=(_to_result(call, result),))
            case _:
                raise InvalidSetting(
                    f"messages[{place}] is {item!r:.100}, not a message.",
                    cure="Give Messages, Replies, texts and pairs of (call, result); everturn.formats reads what other "
                    "libraries write: from_openai_chat(...), from_anthropic(...).",
                )


def _to_result(call: ToolCall, result: Any) -> ToolResult:
    """A call's result, as the model reads it. Raises InvalidSetting for a value that can't be shown to it."""
    from everturn.tools.results import result_of

    try:
        return result_of(call, result)
    except TypeError as error:
        raise InvalidSetting(f"The result of {call.name!r} can't be sent: {error}") from None
