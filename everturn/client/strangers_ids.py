"""Ids of conversations that whoever comes may choose: at the MCP server, and in the inbox."""

from __future__ import annotations

from typing import Final

from temporalio.service import RPCError

from everturn import names
from everturn.client.client_base import ClientBase
from everturn.errors import Refused
from everturn.temporal import any_status, temporal_errors
from everturn.temporal.ids import possible_parents

MAX_DOTS: Final = 16
"""For each dot, the server is asked."""


async def check_strangers_id(client: ClientBase, conversation_id: str) -> None:
    """Raises Refused for one that a sub-agent of another conversation has, or may get: it would be taken for that, and
    would take its place."""
    parents = possible_parents(conversation_id)
    if len(parents) > MAX_DOTS:
        raise Refused(f"The id {conversation_id!r:.200} has more than {MAX_DOTS} dots.", cure="Use another id.")
    for parent in parents:
        if await _is_conversation(client, parent):
            raise Refused(
                f"The id {conversation_id!r:.200} is one for a sub-agent of the conversation {parent!r:.200}.",
                cure="Use another id.",
            )


async def _is_conversation(client: ClientBase, conversation_id: str) -> bool:
    try:
        described = await any_status.describe(client.temporal, conversation_id)
    except RPCError as error:
        if temporal_errors.not_found(error):
            return False
        raise client.unreachable_error(error) from error
    return described.workflow_type == names.CONVERSATION
