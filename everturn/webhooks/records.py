"""What conversations, workers and the deliveries of webhooks send each other. No address and no secret is in any of it:
the worker that sends has them from the agent."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, JsonValue

from everturn.records import Record
from everturn.sizes import MAX_ID_BYTES, MAX_NAME_CHARS

WebhookEvent = Literal["waiting", "stalled", "done"]
WebhookContent = Literal["arguments", "text"]


class WebhookFacts(Record):
    """What a conversation has to know of its agent's webhook: whose it is, and what it is to be sent."""

    agent: str = Field(max_length=MAX_NAME_CHARS)
    """Its name, without a version: any version that a worker hosts by then may send."""
    events: tuple[str, ...] = ()
    include: tuple[str, ...] = ()


class WebhookMessage(Record):
    """One message to a receiver: the input of a delivery, and of each activity for it."""

    id: str = Field(max_length=MAX_ID_BYTES)
    """The same for every try, and for no other message."""
    agent: str = Field(max_length=MAX_NAME_CHARS)
    """Whose webhook it is sent to."""
    type: str
    """`conversation.waiting`, and so on."""
    timestamp: str
    """When it happened: ISO 8601, UTC."""
    data: dict[str, JsonValue] = Field(default_factory=dict)
    hand_back_for: float | None = None
    """As in ModelRequest."""
