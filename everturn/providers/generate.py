"""One model reply without Temporal and without a loop."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from everturn.models import Model, ModelSettings
from everturn.providers.base import Request
from everturn.records import Message, Reply


async def generate(
    model: str | Model,
    messages: str | Message | Sequence[Message],
    *,
    tools: Iterable[Any] = (),
    instructions: str = "",
    settings: ModelSettings | None = None,
) -> Reply:
    """One reply. Its tool calls are handed back and not run: what to do about them is the caller's business.

    `messages`: a user's text, a message, or a transcript. `tools`: as in Agent(tools=[...]).
    Raises InvalidModel, InvalidSetting, InvalidTool and every kind of ProviderError; sends once, retries nothing.
    """
    from everturn.providers.http import ask

    request = Request(
        model=Model(model) if isinstance(model, str) else model,
        messages=_transcript(messages),
        instructions=instructions,
        settings=settings or ModelSettings(),
    )
    return await ask(request)


def _transcript(messages: str | Message | Sequence[Message]) -> tuple[Message, ...]:
    if isinstance(messages, str):
        return (Message.user(messages),)
    return (messages,) if isinstance(messages, Message) else tuple(messages)
