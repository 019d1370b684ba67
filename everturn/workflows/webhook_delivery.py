"""The delivery of one message to a webhook: a workflow of its own, so that no conversation waits for a receiver."""

from __future__ import annotations

from typing import Any

from temporalio import workflow
from temporalio.exceptions import ApplicationError

from everturn import names
from everturn.validation.explaining import explain
from everturn.webhooks.records import WebhookMessage
from everturn.workflows import message_dispatch
from everturn.workflows.timeouts import webhook_options


# The sandbox guards user code from itself, and there is none in this workflow: test_determinism.py.
@workflow.defn(name=names.WEBHOOK, sandboxed=False)
class WebhookWorkflow:
    @workflow.run
    async def run(self, *inputs: Any) -> None:
        """Fails if the receiver refuses the message, or takes it in no time that the webhook allows."""
        try:
            message = message_dispatch.read_input(WebhookMessage, inputs)
        except ValueError as error:
            raise ApplicationError(
                f"This can't be sent: {explain(error)}", type=names.INVALID_START, non_retryable=True
            ) from error
        await workflow.execute_activity(names.SEND_WEBHOOK, message, summary=message.type, **webhook_options())
