"""One model reply without Temporal and without a loop."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from everturn.errors import InvalidSetting, InvalidTool
from everturn.models import Model, ModelSettings
from everturn.providers.base import Request, specs_of
from everturn.records import Message, Reply
from everturn.spelling import known_options

if TYPE_CHECKING:
    from everturn.agent import ToolItem


@known_options("generate", InvalidSetting)
async def generate(
    model: str | Model,
    messages: str | Message | Sequence[Message],
    *,
    tools: Sequence[ToolItem] = (),
    instructions: str = "",
    settings: ModelSettings | None = None,
    output: Any = None,
) -> Reply:
    """One reply. Its tool calls are handed back and not run: what to do about them is the caller's business.

    `messages`: a user's text, a message, or a transcript. `tools` and `output`: what an Agent takes; of `output`,
    the provider is given the schema, and the reply's text is left as it is.
    Raises InvalidModel, InvalidSetting, InvalidTool and every kind of ProviderError; sends once, retries nothing.
    """
    # On demand: the module of this function comes with the package, whose Requests need neither.
    from everturn.agent import Agent
    from everturn.providers.http import ask

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
            "generate() takes no McpServer, whose tools a worker lists.",
            cure="Host an Agent with it, or give the tools as dicts.",
        )
    request = Request(
        model=agent.model,
        messages=_transcript(messages),
        instructions=instructions,
        tools=specs_of(agent.tools),
        server_tools=agent.server_tools,
        raw_tools=agent.raw_tools,
        settings=agent.settings,
        output_schema=agent.output_schema,
    )
    return await ask(request)


def _transcript(messages: str | Message | Sequence[Message]) -> tuple[Message, ...]:
    if isinstance(messages, str):
        return (Message.user(messages),)
    return (messages,) if isinstance(messages, Message) else tuple(messages)
