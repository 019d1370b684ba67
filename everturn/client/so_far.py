"""A conversation's transcript, and what has come of the calls whose results it does not have yet."""

from __future__ import annotations

from everturn.client.client_base import ClientBase
from everturn.client.conversation import Conversation
from everturn.history.open_calls import OpenCall, open_calls
from everturn.history.transcript import read_transcript
from everturn.records import Message
from everturn.temporal import temporal_errors


async def read_so_far(client: ClientBase, conversation_id: str) -> tuple[tuple[Message, ...], tuple[OpenCall, ...]]:
    """Both as of one moment. Needs no worker. Raises NotFound and Unreachable."""
    by_history = await Conversation(client, conversation_id).by_history()
    with temporal_errors.explained(client.temporal, conversation_id):
        messages = await read_transcript(client.temporal, conversation_id, by_history.transcript)
    return tuple(messages), open_calls(by_history)
