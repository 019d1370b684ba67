"""The delivery of one message to a webhook: a workflow of its own, so that no conversation waits for a receiver. Its
attempts: `delivery_attempts.py`."""

from __future__ import annotations

from typing import Any

from temporalio import workflow

from everturn import names
from everturn.webhooks.records import WebhookMessage
from everturn.workflows import message_dispatch
from everturn.workflows.timeouts import webhook_options


# The sandbox guards user code from itself, and there is none in this workflow: test_determinism.py.
@workflow.defn(name=names.WEBHOOK, sandboxed=False)
class WebhookWorkflow:
    @workflow.run
    async def run(self, *inputs: Any) -> None:
        """Fails if the receiver refuses the message, or takes it in no time that the webhook allows."""
        message = message_dispatch.require_input(WebhookMessage, inputs, otherwise="This can't be sent")
        await workflow.execute_activity(names.SEND_WEBHOOK, message, summary=message.type, **webhook_options())
