"""What a model turn asks: the agent, its tools and the messages, as one request to a model."""

from __future__ import annotations

from collections.abc import Sequence

from everturn.activities import compaction
from everturn.activities.prefix_cache import follow_prefix
from everturn.activities.turn_place import turn_place
from everturn.agent import Agent
from everturn.carryover import TranscriptView
from everturn.models import Model, ModelSettings
from everturn.payloads import ModelRequest
from everturn.providers import Request, ToolSpec
from everturn.providers.encoded_messages import RememberedMessages, shown_beginning
from everturn.providers.transcript_facts import facts_of
from everturn.records import OWN_AUTHOR, Message, Text

CUT_SHORT = "\n[Cut short: the turn was cancelled before this reply was finished.]"

_NOT_FORCED = frozenset({None, "auto", "none"})


def turn_request_of(
    agent: Agent, request: ModelRequest, messages: Sequence[Message], *, model: Model, tools: Sequence[ToolSpec]
) -> Request:
    visible = messages
    if not request.summarise:
        visible = shown_to_model(messages, request.view)
    return Request(
        model=model,
        messages=follow_prefix(visible, _conclude_note(request, visible)),
        hidden_ids=facts_of(messages).call_ids if request.view else frozenset(),
        instructions=agent.instructions if isinstance(agent.instructions, str) else "",
        tools=tools,
        server_tools=agent.server_tools,
        raw_tools=agent.raw_tools,
        settings=settings_for(agent.settings, messages),
        conversation_id=turn_place().conversation_id,
        output_schema=None if request.summarise else agent.output_schema,
        conclude=request.conclude is not None or request.summarise,
    )


def shown_to_model(messages: Sequence[Message], view: TranscriptView | None) -> Sequence[Message]:
    """The messages as the model sees them. What a worker remembers of them is put into that form once."""
    facts = facts_of(messages)
    if not isinstance(messages, RememberedMessages) or not (view or facts.is_cut_short):
        return with_notes(compaction.messages_shown(messages, view))
    start = compaction.unchanged_from(messages.beginning, view, after_summaries=facts.after_summaries)
    if start is None:
        return with_notes(compaction.messages_shown(messages, view))

    def head(first: Sequence[Message]) -> Sequence[Message]:
        return with_notes(compaction.messages_shown(first, view))

    beginning = shown_beginning(messages.beginning, ("shown", view), start, head, _with_note)
    return RememberedMessages(beginning, map(_with_note, messages.new))


def with_notes(messages: Sequence[Message]) -> Sequence[Message]:
    """The messages, with a note in those that were cut short: a model takes its own words to be complete."""
    if not facts_of(messages).is_cut_short:
        return messages
    return [_with_note(message) for message in messages]


def _with_note(message: Message) -> Message:
    if not message.cut_short:
        return message
    return message.model_copy(update={"parts": (*message.parts, Text(text=CUT_SHORT))})


def settings_for(settings: ModelSettings, messages: Sequence[Message]) -> ModelSettings:
    """The settings of a turn with these messages. `tool_choice` forces a call only right after a user's message: after
    a result, a pause or a repair it does not, or the model would never come to its answer."""
    if settings.tool_choice in _NOT_FORCED or not settings.reset_tool_choice:
        return settings
    if not messages or (messages[-1].role == "user" and not messages[-1].author):
        return settings
    return settings.model_copy(update={"tool_choice": None})


def _conclude_note(request: ModelRequest, visible: Sequence[Message]) -> list[Message]:
    """The note of a concluding turn, as the last message: what stands before the messages stays as it was, for the
    prompt cache, and for the thoughts that are bound to it. A reply that its provider paused goes on without a note:
    after a user's words it would not."""
    if request.conclude is None or (visible and visible[-1].role == "assistant"):
        return []
    note = f"You have reached {request.conclude}: conclude now, in words, without calling tools."
    return [Message(role="user", parts=(Text(text=note),), author=OWN_AUTHOR)]
