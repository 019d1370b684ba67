"""A response that a provider works on in the background. Its id is in the first heartbeat detail, where the next try of
its turn finds it. A response that nobody waits for any more is cancelled (decision 0028)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from temporalio import activity
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError

from everturn.lost_workers.journal import RPC_TIMEOUT
from everturn.lost_workers.poison_calls import details_left, leave_for_certain
from everturn.models import Model
from everturn.temporal.any_status import is_over

RESPONSE = "everturn_response"


class KeptResponse:
    """The id of the response to this turn's question, asked of `model`."""

    def __init__(self, model: Model) -> None:
        self._model = model

    @property
    def response_id(self) -> str:
        """Empty if none was begun, or if it was begun by another model: a deploy may have changed it."""
        kept = details_left().get(RESPONSE)
        if not isinstance(kept, dict) or kept.get("model") != self._model.name:
            return ""
        return str(kept.get("id") or "")

    async def keep(self, response_id: str) -> None:
        # If the server can't be told now, the next ordinary beat tells it.
        with suppress(RPCError, TimeoutError):
            await leave_for_certain(**{RESPONSE: {"id": response_id, "model": self._model.name}})

    def forget(self) -> None:
        details_left().pop(RESPONSE, None)

    @asynccontextmanager
    async def awaited(self) -> AsyncIterator[None]:
        """The block waits for the response. If it fails for good, the response is cancelled to save its cost."""
        try:
            yield
        except asyncio.CancelledError:
            if self.response_id and await _is_unwanted():
                await self._cancel_response()
            raise
        except ApplicationError as error:
            if error.non_retryable:
                await self._cancel_response()
            raise

    async def _cancel_response(self) -> None:
        from everturn.providers import background  # imports httpx: see everturn.providers.model_call

        await background.cancel_response(self._model, self.response_id)
        self.forget()


async def _is_unwanted() -> bool:
    """Whether this activity was cancelled because nobody wants its result. Another try on another worker may wait for
    the same response."""
    details = activity.cancellation_details()
    if details is None or details.worker_shutdown:
        return False
    if details.cancel_requested:
        return True
    info = activity.info()
    try:
        handle = activity.client().get_workflow_handle(info.workflow_id or "", run_id=info.workflow_run_id)
        described = await handle.describe(rpc_timeout=RPC_TIMEOUT)
    except (RPCError, ValueError):  # the SDK's, for a status that it does not know: it is not over
        return False
    pending = described.raw_description.pending_activities
    running = not is_over(described)
    return not (running and any(entry.activity_id == info.activity_id for entry in pending))
