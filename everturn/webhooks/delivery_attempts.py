"""The attempts to send a message to a webhook: each signs it, and says whether and when the next one comes. A delivery
begins within its conversation's workflow task, and then tries on its own."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, Final
from urllib.parse import urlsplit

from temporalio import activity
from temporalio.client import Client
from temporalio.common import WorkflowIDReusePolicy
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory, WorkflowAlreadyStartedError

from everturn import names
from everturn.activities.agent_lookup import agent_of
from everturn.activities.attempts import this_try
from everturn.activities.patience import effort_text, spend, time_spent
from everturn.agent import Agent
from everturn.errors import InvalidAgent
from everturn.heartbeats.worker_heartbeats import Heartbeats
from everturn.http.retry_after import seconds_to_wait
from everturn.logs import get_logger
from everturn.lost_workers.journal import RPC_TIMEOUT
from everturn.lost_workers.poison_calls import details_left, leave_details
from everturn.temporal.ids import webhook_workflow_id
from everturn.temporal.task_timeout import TASK_TIMEOUT
from everturn.text.commands import command_about
from everturn.webhooks.records import WebhookMessage
from everturn.webhooks.signing import signed_headers
from everturn.webhooks.webhook import Webhook

FIRST_DELAY: Final = timedelta(seconds=5)
LONGEST_DELAY: Final = timedelta(hours=2)
"""Between two tries; a Retry-After may ask for more."""

LEAST_WAIT_SECONDS: Final = 1.0
"""Whatever less a Retry-After asks for."""

TRIED_AGAIN: Final = frozenset({408, 425, 429})
"""Beside 5xx: the receiver may take the same message later."""

LAST_SECONDS: Final = timedelta(seconds=1)
"""So long before the end of its patience is the last try."""

SHARE_OF_SLOTS: Final = 10
"""One in so many of a worker's activities may be a try, and at least one: a receiver that hangs has it for as long as
the webhook's `timeout`."""
SHARE_OF_RECEIVER: Final = 2
"""One in so many of those tries may be at the same receiver, and at least one: the rest is for others, which answer."""
FIRST_TURN_DELAY: Final = timedelta(seconds=2)
LONGEST_TURN_DELAY: Final = timedelta(seconds=30)
"""Of messages that wait until there are fewer tries."""

AGENT_PATIENCE: Final = timedelta(days=1)
"""For a worker that hosts the agent."""

ROLLOUT: Final = timedelta(minutes=30)
"""How long workers whose agent has no webhook hand a message on: in the middle of a deploy, others have it."""
LONGEST_ROLLOUT_DELAY: Final = timedelta(minutes=1)

_ASKED: Final = "everturn_webhook_asked"
"""How often the receiver was asked: what a try leaves to the next one."""

_NEXT: Final = {"conversation.waiting": "approve", "conversation.stalled": "resume"}
"""The command for what people can do about it. Otherwise, they can only look."""

_log = get_logger("everturn.webhook")


class WebhookSending:
    """`task_queue`: that of the conversations; `slots`: how many activities the worker runs at once."""

    def __init__(
        self, agents: Mapping[str, Agent], client: Client, *, task_queue: str, heartbeats: Heartbeats, slots: int
    ) -> None:
        self._agents = agents
        self._client = client
        self._task_queue = task_queue
        self._heartbeats = heartbeats
        self._most_tries = max(1, slots // SHARE_OF_SLOTS)
        self._tries: Counter[str] = Counter()
        """At each receiver now, by its host and port."""

    def activities(self) -> list[Any]:
        return [self.begin_webhook, self.send_webhook]

    @activity.defn(name=names.BEGIN_WEBHOOK)
    async def begin_webhook(self, message: WebhookMessage) -> None:
        """Begins the delivery, once, however often it is asked to."""
        try:
            await self._client.start_workflow(
                names.WEBHOOK,
                message.model_dump(mode="json"),
                id=webhook_workflow_id(activity.info().workflow_id or "", message.id),
                task_queue=self._task_queue,
                task_timeout=TASK_TIMEOUT,
                id_reuse_policy=WorkflowIDReusePolicy.REJECT_DUPLICATE,
                rpc_timeout=RPC_TIMEOUT,
            )
        except WorkflowAlreadyStartedError:
            _log.debug("webhook.begun_before", webhook_id=message.id)

    @activity.defn(name=names.SEND_WEBHOOK)
    async def send_webhook(self, message: WebhookMessage) -> None:
        await self._heartbeats.check_ours()
        patient = message.model_copy(update={"hand_back_for": AGENT_PATIENCE.total_seconds()})
        agent = await agent_of(self._agents, patient, heartbeats=self._heartbeats)
        with self._heartbeats.beating():
            if agent.webhook is None:
                raise _without_webhook(agent, message)
            with self._try_at(urlsplit(agent.webhook.url).netloc):
                await _send_once(agent.webhook, message)

    @contextmanager
    def _try_at(self, receiver: str) -> Iterator[None]:
        """Counts a try. Raises ApplicationError if there are as many as there may be now."""
        most_at_receiver = max(1, self._most_tries // SHARE_OF_RECEIVER)
        if self._tries.total() >= self._most_tries or self._tries[receiver] >= most_at_receiver:
            raise _wait_for_turn()
        self._tries[receiver] += 1
        try:
            yield
        finally:
            self._tries[receiver] -= 1


async def _send_once(webhook: Webhook, message: WebhookMessage) -> None:
    """Raises ApplicationError unless the receiver takes it."""
    try:
        keys = webhook.signing_keys()
    except InvalidAgent as error:
        raise _without_secret(error, webhook, message) from None
    body = _body_of(webhook, message)
    headers = signed_headers(keys, message.id, int(time.time()), body)
    try:
        status, wait = await _post(webhook, {**headers, "content-type": "application/json"}, body)
    except _NoAddress as error:
        raise _give_up(
            f"The webhook at {webhook.host_name} has no address that can be asked: {error}.", message
        ) from None
    except (TimeoutError, OSError) as error:
        raise _try_again(f"nothing answered ({error or type(error).__name__})", webhook, message) from None
    if 200 <= status < 300:
        _log.info("webhook.sent", type=message.type, host=webhook.host_name, webhook_id=message.id)
    elif status in TRIED_AGAIN or status >= 500:
        raise _try_again(f"it answered {status}", webhook, message, wait=wait)
    else:
        raise _give_up(
            f"The webhook at {webhook.host_name} answered {status}: it refuses the message, which is not sent again.",
            message,
        )


class _NoAddress(Exception):
    """No request can be made of the webhook's URL, now or later."""


async def _post(webhook: Webhook, headers: Mapping[str, str], body: bytes) -> tuple[int, float | None]:
    """The status, and the seconds that the receiver asks to wait. What else it answers is not read. Raises OSError and
    _NoAddress."""
    import httpx  # not before it is needed: see everturn.providers.model_call

    from everturn.providers import connections

    with connections.lend_client() as client:
        opened = connections.open_answer(client, "POST", webhook.url, headers=httpx.Headers(headers), content=body)
        try:
            async with asyncio.timeout(webhook.timeout.total_seconds()), opened as answer:
                return answer.status_code, seconds_to_wait(answer.headers)
        except (httpx.InvalidURL, httpx.UnsupportedProtocol, UnicodeError) as error:
            raise _NoAddress(type(error).__name__) from None
        except httpx.TransportError as error:
            raise ConnectionError(type(error).__name__) from None


def _body_of(webhook: Webhook, message: WebhookMessage) -> bytes:
    conversation_id = str(message.data.get("conversation_id", ""))
    command = command_about(_NEXT.get(message.type, "show"), conversation_id)
    next_step = {"command": command}
    if link := webhook.link_to(conversation_id):
        next_step["url"] = link
    body = {"type": message.type, "timestamp": message.timestamp, "data": {**message.data, "next": next_step}}
    return json.dumps(body, separators=(",", ":")).encode()


def _try_again(
    problem: str, webhook: Webhook, message: WebhookMessage, *, wait: float | None = None
) -> ApplicationError:
    """Another try, until patience is over."""
    asked_times = _asked_times() + 1
    leave_details(**{_ASKED: asked_times})
    delay = min(_delay_after(asked_times), LONGEST_DELAY)
    if wait is not None:
        delay = timedelta(seconds=min(max(wait, LEAST_WAIT_SECONDS), webhook.patience.total_seconds()))
    cause = f"The webhook at {webhook.host_name} did not take the message: {problem}"
    return _retry_or_give_up(cause, problem, webhook, message, delay=delay)


def _without_secret(error: InvalidAgent, webhook: Webhook, message: WebhookMessage) -> ApplicationError:
    """Another worker may have it, or this one soon."""
    problem = f"{error.message} {error.cure}".rstrip(".")
    delay = min(_delay_after(activity.info().attempt), LONGEST_ROLLOUT_DELAY)
    cause = f"The webhook at {webhook.host_name} was not asked: {problem}"
    return _retry_or_give_up(cause, problem, webhook, message, delay=delay)


def _retry_or_give_up(
    cause: str, problem: str, webhook: Webhook, message: WebhookMessage, *, delay: timedelta
) -> ApplicationError:
    patience_left = webhook.patience - time_spent() - this_try() - LAST_SECONDS
    if patience_left >= LAST_SECONDS:
        delay = min(delay, patience_left)
    if not spend(delay, webhook.patience):
        return _give_up(f"{cause} ({effort_text('asked', count=_asked_times())}).", message)
    seconds = round(delay.total_seconds())
    _log.warning("webhook.retried", **_log_fields(message), host=webhook.host_name, problem=problem, seconds=seconds)
    return _retry_error(f"{cause}.", delay)


def _wait_for_turn() -> ApplicationError:
    """This costs the message none of its patience."""
    waited_times = max(1, activity.info().attempt - _asked_times())
    delay = min(_doubled(FIRST_TURN_DELAY, waited_times), LONGEST_TURN_DELAY)
    return _retry_error(
        "This worker waits for as many receivers as it may at once: the message waits for its turn.", _spread(delay)
    )


def _without_webhook(agent: Agent, message: WebhookMessage) -> ApplicationError:
    cause = f"Agent {agent.name!r} has no webhook any more: the message is not sent."
    delay = min(_delay_after(activity.info().attempt), LONGEST_ROLLOUT_DELAY)
    if not spend(delay, ROLLOUT):
        return _give_up(cause, message)
    return _retry_error(f"Agent {agent.name!r} has no webhook on this worker; another one may have it.", delay)


def _delay_after(attempt: int) -> timedelta:
    return _spread(_doubled(FIRST_DELAY, attempt))


def _doubled(first_delay: timedelta, attempt: int) -> timedelta:
    """Twice as long each time."""
    return first_delay * 2.0 ** min(attempt - 1, 16)


def _spread(delay: timedelta) -> timedelta:
    """Not for all at the same moment."""
    return delay * (0.75 + 0.5 * random.random())


def _asked_times() -> int:
    """How often the receiver was asked, in all tries so far."""
    return int(details_left().get(_ASKED, 0))


def _retry_error(cause: str, delay: timedelta) -> ApplicationError:
    return ApplicationError(
        cause, type=names.WEBHOOK_FAILED, next_retry_delay=delay, category=ApplicationErrorCategory.BENIGN
    )


def _give_up(cause: str, message: WebhookMessage) -> ApplicationError:
    """The message is given up. Its conversation does not mind."""
    _log.error("webhook.given_up", **_log_fields(message), cause=cause)
    return ApplicationError(
        cause, type=names.WEBHOOK_FAILED, non_retryable=True, category=ApplicationErrorCategory.BENIGN
    )


def _log_fields(message: WebhookMessage) -> dict[str, object]:
    """The conversation that the message is about, in place of the delivery, which the log would name else."""
    return {"type": message.type, "conversation": message.data.get("conversation_id"), "webhook_id": message.id}
