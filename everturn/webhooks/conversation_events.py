"""Which events of a conversation webhooks are told, and what of them. Each message begins a delivery of its
own, by a local activity in the workflow task that it is about: one event of the history, and nothing can come in
between."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from contextlib import suppress
from hashlib import blake2b
from typing import Any, Final

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError, FailureError

from everturn import names
from everturn.calls.causes import Stall, cause_of
from everturn.calls.pending_calls import why_without_arguments
from everturn.corrections import UNFIT_OUTPUT, unfit_reason
from everturn.logs import workflow_log
from everturn.payloads import AskedAgent, WaitingCall, WebhookTarget
from everturn.records import CUT_OFF, Outcome
from everturn.sizes import MAX_WEBHOOK_BYTES, MAX_WEBHOOK_TEXT_BYTES, size_of
from everturn.state import State
from everturn.text.iso_times import iso_time
from everturn.text.shortening import shortened
from everturn.webhooks.records import WebhookEvent, WebhookFacts, WebhookMessage
from everturn.workflows.eviction_guard import OwnLoop
from everturn.workflows.new_waits import NewWaits
from everturn.workflows.timeouts import BEGIN_WEBHOOK_WITHIN

MOST_AGENTS: Final = 16
"""In a path; of a longer one, the last."""

MOST_CALLS: Final = 25
"""In a message that would be too large with all of them."""


class Webhooks:
    """`announced`: the calls that the run before has announced already."""

    def __init__(self, state: State, *, announced: Iterable[str]) -> None:
        self._state = state
        self._new_waits = NewWaits(state, announced=announced, look=self._send_new)
        self._stall: Stall | None = None
        """The last one that was announced."""
        self._answered_turn = state.turn
        """That of the last answer that was announced."""
        self._is_owed = state.answering
        """The answer of that turn began in the run before, and has not ended."""
        self._failed_turn: WebhookFacts | None = None
        """What a turn that failed said of the webhook, before any reply could."""
        self._count = 0
        self._beginning: set[asyncio.Task[None]] = set()
        self._own_loop = OwnLoop()

    @property
    def is_busy(self) -> bool:
        """Whether a delivery is yet to begin: it would be lost if the run ended now."""
        return self._new_waits.is_due or bool(self._beginning)

    @property
    def _targets(self) -> tuple[WebhookTarget, ...]:
        """A sub-agent's calls are the business of whoever began the conversation that asks."""
        if self._state.start.webhooks:
            return self._state.start.webhooks
        facts = self._failed_turn
        if self._state.facts:
            facts = self._state.facts.webhook
        if facts is None:
            return ()
        return (WebhookTarget(**dict(facts), conversation_id=workflow.info().workflow_id),)

    def targets_for(self, child: AskedAgent) -> tuple[WebhookTarget, ...]:
        """Who is told of what waits in a sub-agent's conversation."""
        return tuple(
            target.model_copy(update={"path": (*target.path, child)[-MOST_AGENTS:]}) for target in self._targets
        )

    def take_failure(self, error: ActivityError) -> None:
        """A turn failed. Before the first reply, only that says whether its agent has a webhook."""
        if webhook := cause_of(error).webhook:
            with suppress(ValueError):
                self._failed_turn = WebhookFacts.model_validate(webhook)

    def send_if_new(self) -> None:
        """To be called whenever something has changed."""
        if self._targets:
            self._new_waits.look_soon()

    def _send_new(self) -> None:
        state = self._state
        if new := self._new_waits.take():
            self._send_event("waiting", waiting=new)
        if state.stall is not self._stall:
            self._stall = state.stall
            if state.stall:
                self._send_event("stalled", cause=state.stall.cause, cure=state.stall.cure)
        if state.is_idle and (state.turn != self._answered_turn or self._is_owed):
            self._send_answer()

    def owe_answer(self) -> None:
        """An answer was cancelled, perhaps before its first turn."""
        self._is_owed = True

    def send_answer_before_next(self) -> None:
        """To be called when an answer has ended. If the next message is here already, the conversation will not be
        idle in between."""
        state = self._state
        is_over = state.last_reply.final or (state.cancelled and not state.abandoned)
        is_due = state.inbox.everything and is_over and self._own_loop.is_running
        is_new = self._is_owed or state.turn != self._answered_turn
        if is_due and self._targets and is_new:
            self._send_answer()

    def _send_answer(self) -> None:
        self._answered_turn = self._state.turn
        self._is_owed = False
        self._send_event("done", outcome=self._answer_of(self._state))

    def _answer_of(self, state: State) -> dict[str, Any]:
        reply = state.last_reply
        answer = {
            "status": "answered",
            "reason": CUT_OFF.get(reply.stop),
            "stop": reply.stop,
            "turns": state.turn,
            "tool_calls": state.totals.tool_calls,
            "cost_usd": state.totals.cost_usd,
            "text": reply.text,
        }
        if reply.output_problem:
            answer |= {"status": "failed", "reason": unfit_reason(reply.output_problem)}
        if state.cancelled:
            answer |= {"status": "cancelled", "reason": state.cancelled}
            if not reply.final:  # the text is an earlier one
                answer |= {"stop": "end", "text": reply.cut_text}
        return answer

    async def send_end(self, outcome: Outcome) -> None:
        """Has the end told, in this workflow task, so that nothing can come in meanwhile."""
        if not self._targets:
            return
        names_of_facts = ("status", "reason", "stop", "turns", "tool_calls", "cost_usd", "text")
        facts = {name: getattr(outcome, name) for name in names_of_facts}
        if outcome.status != "completed" and not self._state.last_reply.in_answer:
            facts |= {"stop": "end", "text": self._state.last_reply.cut_text}
        self._send_event("done", outcome=facts)
        with suppress(asyncio.CancelledError):  # it is over already, and says so
            await self.all_begun()

    async def all_begun(self) -> None:
        await workflow.wait_condition(lambda: not self.is_busy)

    def _send_event(self, event: WebhookEvent, **facts: Any) -> None:
        for target in self._targets:
            # How an agent ended that another one asked is a result among that one's others.
            if event in target.events and not (event == "done" and target.path):
                beginning = asyncio.create_task(self._begin_delivery(self._message_for(target, event, facts)))
                self._beginning.add(beginning)
                beginning.add_done_callback(self._beginning.discard)

    def _message_for(self, target: WebhookTarget, event: WebhookEvent, facts: dict[str, Any]) -> WebhookMessage:
        data = fitting_data(self._heading_for(target), facts, target)
        info = workflow.info()
        self._count += 1
        # With what it says: a workflow task that is taken anew, with news that came meanwhile, may say something else.
        content = json.dumps([info.workflow_id, info.run_id, self._count, event, target.agent, data], sort_keys=True)
        return WebhookMessage(
            id=f"msg_{blake2b(content.encode('utf-8', 'replace'), digest_size=16).hexdigest()}",
            agent=target.agent,
            type=f"conversation.{event}",
            timestamp=iso_time(workflow.now()),
            data=data,
        )

    def _heading_for(self, target: WebhookTarget) -> dict[str, Any]:
        state = self._state
        heading: dict[str, Any] = {
            "conversation_id": target.conversation_id,
            "agent": state.agent,
            "tenant": state.start.tenant,
            "state": state.name,
            "turn": state.turn,
        }
        if target.path:
            heading["path"] = [agent.model_dump() for agent in target.path]
        return heading

    async def _begin_delivery(self, message: WebhookMessage) -> None:
        try:
            await workflow.execute_local_activity(
                names.BEGIN_WEBHOOK,
                message,
                schedule_to_close_timeout=BEGIN_WEBHOOK_WITHIN,
                retry_policy=RetryPolicy(maximum_attempts=3),
                summary=message.type,
            )
        except FailureError as error:
            workflow_log("webhook.not_begun", level="error", type=message.type, cause=cause_of(error).cause)


def fitting_data(heading: dict[str, Any], facts: dict[str, Any], target: WebhookTarget) -> dict[str, Any]:
    """Without arguments and texts, and with short reasons, if the whole would be large; then with fewer calls."""
    content = {**facts}
    if waiting := facts.get("waiting"):
        content["waiting"] = [_call_data(call, target) for call in waiting]
    if outcome := facts.get("outcome"):
        if "text" not in target.include:
            outcome = _without_text(outcome)
        content["outcome"] = outcome
    if size_of({**heading, **content}) <= MAX_WEBHOOK_BYTES:
        return {**heading, **content}
    content = {name: _short_value(value) for name, value in facts.items() if name not in ("waiting", "outcome")}
    if waiting:
        short = [_short_call(_call_data(call, target)) for call in waiting[:MOST_CALLS]]
        content |= {"waiting": short, "calls": len(waiting)}
    if outcome:
        content["outcome"] = {name: _short_value(value) for name, value in outcome.items() if name != "text"}
    # A path of many agents is left out: `everturn show` has it.
    return {**_without_fields(heading, ("path",)), **content, "cut": True}


def _call_data(call: WaitingCall, target: WebhookTarget) -> dict[str, Any]:
    """`call_id` and `address`: what a decision names."""
    data = call.model_copy(update={"path": target.path})
    written = _without_fields({**data.as_json(), "address": data.address}, ("path",))
    if "arguments" in target.include:
        return written
    return _without_fields(written, ("arguments",)) | {"why": why_without_arguments(call)}


def _without_text(outcome: dict[str, Any]) -> dict[str, Any]:
    """Also without what a reason quotes of it."""
    own_words, quoting, _ = (outcome["reason"] or "").partition(UNFIT_OUTPUT)
    return _without_fields(outcome, ("text",)) | ({"reason": own_words + UNFIT_OUTPUT} if quoting else {})


def _without_fields(fields: dict[str, Any], left_out: Iterable[str]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if name not in left_out}


def _short_value(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    return shortened(value, max_bytes=MAX_WEBHOOK_TEXT_BYTES)


def _short_call(call: dict[str, Any]) -> dict[str, Any]:
    kept = ("call_id", "tool", "needs", "reason", "since", "expires_at")
    return {name: call[name] for name in kept}
