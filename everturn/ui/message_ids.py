"""The ids of messages, as pages get them: the same in a stream and when the page is loaded again, and never one for two
messages.

A person's message has the id that the page gave it. A message from another door, and each of the assistant's, is named
after its place in the transcript, which it keeps.
"""

from __future__ import annotations

from collections.abc import Sequence

from everturn.events import Event, MessageReceived
from everturn.records import Message
from everturn.ui.chats import OWN_ID
from everturn.ui.page_fields import page_id


def user_message_id(message: Message, position: int | str) -> str:
    return page_id(message) or f"{OWN_ID}{position}"


def reply_id(position: int) -> str:
    return f"reply-{position}"


def released_id(call_id: str) -> str:
    """Of a message with nothing but a call that was held back until it was approved."""
    return f"call-{call_id}"


def thinking_id(position: int) -> str:
    return f"thinking-{position}"


def wordless_id(so_far: Sequence[Event]) -> str:
    """Of an answer that has no reply yet, by the message that it answers."""
    received = next((event for event in reversed(so_far) if isinstance(event, MessageReceived)), None)
    if received is None:
        return "reply"
    return f"reply-to-{page_id(received.message) or received.cursor}"
