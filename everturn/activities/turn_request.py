"""What a model turn asks: the agent, its tools and the messages, as one request to a model."""

from __future__ import annotations

from collections.abc import Sequence

from temporalio import activity

from everturn.activities import compaction
from everturn.activities.prefix_cache import transcript
from everturn.agent import Agent
from everturn.models import Model, ModelSettings
from everturn.payloads import ModelRequest
from everturn.providers import Request, ToolSpec
from everturn.providers.transcript_facts import facts_of
from everturn.records import Message, Text

CUT_SHORT = "\n[Cut short: the turn was cancelled before this reply was finished.]"

_NOT_FORCED = frozenset({None, "auto", "none"})


def turn_request_of(
    agent: Agent, request: ModelRequest, messages: Sequence[Message], *, model: Model, tools: Sequence[ToolSpec]
) -> Request:
    shown = messages if request.summarise else with_notes(compaction.shown(messages, request.view))
    return Request(
        model=model,
        messages=transcript(shown, _told_to_conclude(request, shown)),
        hidden_ids=_call_ids(messages) - _call_ids(shown) if request.view else frozenset(),
        instructions=agent.instructions if isinstance(agent.instructions, str) else "",
        tools=tools,
        server_tools=agent.server_tools,
        raw_tools=agent.raw_tools,
        settings=settings_for(agent.settings, messages),
        conversation_id=activity.info().workflow_id,
        output_schema=None if request.summarise else agent.output_schema,
        conclude=request.conclude is not None or request.summarise,
    )


def _call_ids(messages: Sequence[Message]) -> frozenset[str]:
    return frozenset(call.call_id for message in messages for call in message.tool_calls)


def with_notes(messages: Sequence[Message]) -> Sequence[Message]:
    """The messages, with a note in those that were cut short: a model takes its own words to be complete."""
    if not facts_of(messages).is_cut_short:
        return messages
    note = Text(text=CUT_SHORT)
    return [one.model_copy(update={"parts": (*one.parts, note)}) if one.cut_short else one for one in messages]


def settings_for(settings: ModelSettings, messages: Sequence[Message]) -> ModelSettings:
    """The settings of a turn with these messages. `tool_choice` forces a call only right after a user's message: after
    a result, a pause or a repair it does not, or the model would never come to its answer."""
    if settings.tool_choice in _NOT_FORCED or not settings.reset_tool_choice:
        return settings
    latest = messages[-1] if messages else None
    if latest is None or (latest.role == "user" and not latest.author):
        return settings
    return settings.model_copy(update={"tool_choice": None})


def _told_to_conclude(request: ModelRequest, shown: Sequence[Message]) -> list[Message]:
    """The note of a concluding turn, as the last message: what stands before the messages stays as it was, for the
    prompt cache, and for the thoughts that are bound to it. A reply that its provider paused goes on without a note:
    after a user's words it would not."""
    if request.conclude is None or (shown and shown[-1].role == "assistant"):
        return []
    note = f"You have reached {request.conclude}: conclude now, in words, without calling tools."
    return [Message(role="user", parts=(Text(text=note),), author="everturn")]
