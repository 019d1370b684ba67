"""Joins a workflow of a user's to a conversation that another one, or an earlier run, has begun under the same id."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Final

from temporalio import activity
from temporalio.client import Client, WorkflowFailureError
from temporalio.exceptions import ApplicationError

from everturn import names
from everturn.activities import activity_errors
from everturn.errors import ConversationError, Ended, InvalidSetting
from everturn.heartbeats.worker_heartbeats import Heartbeats
from everturn.history.same_work import is_begun
from everturn.payloads import JoinedConversation, JoinRequest
from everturn.records import Outcome
from everturn.temporal.any_status import describe, is_over

TRY_SECONDS: Final = 20.0
"""How long a try waits for the end. Between tries it holds no place on a worker: a person may take weeks to decide."""

LONGEST_DELAY: Final = timedelta(seconds=10)


class JoinConversation:
    def __init__(self, heartbeats: Heartbeats) -> None:
        self._heartbeats = heartbeats

    @activity.defn(name=names.JOIN_CONVERSATION)
    async def join_conversation(self, request: JoinRequest) -> JoinedConversation:
        """With `wait`, its outcome, once it has one."""
        with self._heartbeats.beating():
            client = activity.client()
            try:
                begun = await is_begun(client, request.conversation_id, request.start)
                outcome = None
                if begun and request.wait:
                    outcome = await _wait_for_outcome(client, request.conversation_id)
            except (ConversationError, InvalidSetting) as error:
                raise activity_errors.final_error(error) from None
            return JoinedConversation(begun=begun, outcome=outcome)


async def _wait_for_outcome(client: Client, conversation_id: str) -> Outcome:
    handle = client.get_workflow_handle(conversation_id, result_type=Outcome)
    try:
        async with asyncio.timeout(TRY_SECONDS):
            outcome: Outcome = await handle.result()
            return outcome
    except TimeoutError:
        pass
    except WorkflowFailureError as error:
        if is_over(await describe(client, conversation_id)):
            raise Ended(
                f"Conversation {conversation_id!r} ended without an outcome: {error.cause or error}.",
                cure="Ask with again=True to start it anew.",
            ) from error
    seconds = min(float(activity.info().attempt), LONGEST_DELAY.total_seconds())
    raise ApplicationError(
        f"Conversation {conversation_id!r} goes on.",
        type=names.GOES_ON,
        next_retry_delay=timedelta(seconds=seconds),
    )
