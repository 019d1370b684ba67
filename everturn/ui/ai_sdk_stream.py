"""The AI SDK's UI message stream, version 1: the chunks of one answer."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator
from typing import Any, Final
from uuid import uuid4

from pydantic import JsonValue

from everturn.client.followed_reply import FollowedReply, WhyAtRest
from everturn.events import ApprovalRequested, Event
from everturn.payloads import AskedAgent, WaitingCall
from everturn.records import CUT_OFF, TextKind, ToolCall
from everturn.text.json_text import json_text
from everturn.ui import narrator
from everturn.ui.message_ids import reply_id, wordless_id
from everturn.ui.narrator import Narrator
from everturn.ui.results import agents_of, descriptor_of, media_type_of, output_of, url_of, waits_below
from everturn.ui.usage import AnswerUsage

Chunk = dict[str, Any]

HEADERS: Final = {"x-vercel-ai-ui-message-stream": "v1"}
LAST: Final = b"data: [DONE]\n\n"

_PART: Final[dict[TextKind, str]] = {"text": "text", "thinking": "reasoning"}

_EMPTY_STEP: Final[tuple[Chunk, ...]] = ({"type": "start-step"}, {"type": "finish-step"})
"""The last thing of an answer that ends after a call without words, as after Stop. The SDK's rule for sending by itself
looks at the last step (lastAssistantMessageIsCompleteWithToolCalls; `ai` 5.0.277, 6.0.326, 7.0.173). With finished
calls in it, the page would post again at once, be answered the same, and so on without end."""

NOTHING_NEW: Final = "This answer is complete: there was nothing new to send."
"""For a page that sends an answer that is over. As an error, for pages don't send by themselves after one: whatever the
rule of the page is, it does not go on without end."""

_FINISH_REASONS: Final = {"answered": "stop", "waiting": "tool-calls", "ended": "length"}
_CUT_OFF: Final = {"length": "length", "filtered": "content-filter", "refused": "content-filter", "paused": "other"}
"""The finish reasons of replies that are not whole, by how the model stopped."""

WITHDRAWN: Final = {"everturn": {"withdrawn": True}}
"""Marks a part of a message that came from a failed attempt of the model. The page may leave its words out."""


class UIMessageStream:
    """The stream of one answer. `message_id`: the page's id for it, if the stream continues a message of the page's."""

    def __init__(
        self, narrates: Narrator, *, message_id: str = "", repeats: bool = False, show_causes: bool = False
    ) -> None:
        """`repeats`: the page posted its own copy of the answer, and no decision in it that was still open."""
        self._narrates = narrates
        self._message_id = message_id
        self._nothing_new = repeats
        self._show_causes = show_causes
        self._started = False
        self._in_step = False
        self._agents: dict[str, tuple[AskedAgent, ...]] = {}
        """The agents that led to a call, by its id."""
        self._inputs: dict[str, dict[str, JsonValue] | None] = {}
        """The arguments of the calls that were told, as the page shows them; None if it does not show them yet."""
        self._held: set[str] = set(narrates.seen.unapproved)
        """Calls that the page must not run yet. The SDK gives a call to `onToolCall` as soon as its input is there
        (`ai` 6.0.326, `tool-input-available`), so that comes after the approval."""
        self._parts: dict[TextKind, str] = {}
        """The ids of the parts that have begun and not ended."""
        self._count = 0
        self._calls_in_step = bool(narrates.seen.calls)
        """The page's last step has calls."""
        self._wordless_id = f"reply-{uuid4().hex}"
        """The answer's id if it fails before anything is told."""
        self._usage = AnswerUsage()

    async def chunks(self, answer: FollowedReply, *, refused: list[str]) -> AsyncGenerator[Chunk]:
        """The chunks of the answer, until it is at rest. `refused`: why decisions were refused."""
        self._wordless_id = wordless_id(answer.events)
        self._narrates.look_ahead(answer.events)
        for event in answer.events:
            for chunk in self._chunks_of_event(event):
                yield chunk
        for question in self._narrates.ask_approvals(answer.waiting):
            for chunk in self._ask_approval(question):
                yield chunk
        async for event in answer.follow_on():
            for chunk in self._chunks_of_event(event):
                yield chunk
            if isinstance(event, ApprovalRequested):
                for question in self._narrates.ask_approvals(answer.waiting):
                    for chunk in self._ask_approval(question):
                        yield chunk
        for finished in await self._narrates.finish_all(answer):
            self._nothing_new = False
            for chunk in (*self._start_message(self._wordless_id), _finished_chunk(finished)):
                yield chunk
        for chunk in self._end_answer(answer, refused):
            yield chunk

    def fail(self, text: str) -> Iterator[Chunk]:
        yield from self._start_message(self._wordless_id)
        yield from self._close_step()
        yield {"type": "error", "errorText": text}

    # ------------------------------------------------------------ event by event

    def _chunks_of_event(self, event: Event) -> Iterator[Chunk]:
        self._usage.count(event)
        for step in self._narrates.steps_for(event):
            if isinstance(step, narrator.TurnBegan):
                yield from self._start_message(reply_id(self._narrates.position_of(step.turn)))
                self._nothing_new = False
            elif not isinstance(step, narrator.HeldUp):
                yield from self._start_message(self._wordless_id)
                self._nothing_new = False
            yield from self._chunks_of_step(step)

    def _chunks_of_step(self, step: narrator.PageStep) -> Iterator[Chunk]:
        match step:
            case narrator.TurnBegan():
                yield from self._close_step()
                self._in_step = True
                self._calls_in_step = False
                yield {"type": "start-step"}
            case narrator.Words(turn=turn, kind=kind, text=text):
                yield from self._open_part(turn, kind)
                yield {"type": f"{_PART[kind]}-delta", "id": self._parts[kind], "delta": text}
            case narrator.WordsWithdrawn():
                yield from self._close_parts(providerMetadata=WITHDRAWN)
            case narrator.Picture(image=image):
                yield {"type": "file", "mediaType": media_type_of(image), "url": url_of(image)}
            case narrator.TurnEnded():
                yield from self._close_parts()
            case narrator.CallMade(call=call, path=path):
                about = {"toolCallId": call.call_id, "toolName": call.name}
                self._calls_in_step = True
                self._inputs[call.call_id] = None if step.held else call.arguments
                self._agents[call.call_id] = path
                more = {"providerMetadata": {"everturn": agents_of(path)}} if path and step.held else {}
                yield {"type": "tool-input-start", **about, **more}
                if step.held:
                    self._held.add(call.call_id)
                else:
                    yield self._input_of(call)
                if path:
                    yield _waits_chunk(path[0].call_id, call)
            case narrator.CallReleased(call=call):
                if call.call_id in self._held:
                    self._held.discard(call.call_id)
                    self._inputs[call.call_id] = call.arguments
                    yield self._input_of(call)
            case narrator.ApprovalAsked():
                yield from self._ask_approval(step)
            case narrator.CallProgressed(call_id=call_id, progress=progress):
                yield {"type": "tool-output-available", "toolCallId": call_id, "output": progress, "preliminary": True}
            case narrator.AnswerFinished():
                yield _finished_chunk(step)
            case narrator.HeldUp(state=state):
                yield {"type": "data-status", "data": {"state": state}, "transient": True}

    def _input_of(self, call: ToolCall) -> Chunk:
        path = self._agents.get(call.call_id, ())
        more = {"providerMetadata": {"everturn": agents_of(path)}} if path else {}
        about = {"toolCallId": call.call_id, "toolName": call.name}
        return {"type": "tool-input-available", **about, "input": call.arguments, **more}

    def _ask_approval(self, question: narrator.ApprovalAsked) -> Iterator[Chunk]:
        waiting = question.waiting
        shown_input = self._inputs.get(waiting.call_id)
        if waiting.call_id in self._held:
            yield from self._show_input(waiting)
        elif shown_input is not None and shown_input != waiting.arguments:  # the person is to see what would run
            about = {"toolCallId": waiting.call_id, "toolName": waiting.tool}
            yield {"type": "tool-input-available", **about, "input": waiting.arguments}
            self._inputs[waiting.call_id] = waiting.arguments
        yield {
            "type": "tool-approval-request",
            "approvalId": question.question_id,
            "toolCallId": waiting.call_id,
            "approvalDescriptor": descriptor_of(waiting),
        }

    def _show_input(self, waiting: WaitingCall) -> Iterator[Chunk]:
        """The arguments of a call that was told and that the page must not run yet."""
        call_id = waiting.call_id
        if call_id not in self._inputs or self._inputs[call_id] == waiting.arguments:
            return
        if self._inputs[call_id] is not None:  # else its text would go on
            yield {"type": "tool-input-start", "toolCallId": call_id, "toolName": waiting.tool}
        self._inputs[call_id] = waiting.arguments
        yield {"type": "tool-input-delta", "toolCallId": call_id, "inputTextDelta": json_text(waiting.arguments)}

    def _end_answer(self, answer: FollowedReply, refused: list[str]) -> Iterator[Chunk]:
        why_at_rest = answer.rest or WhyAtRest("ended")
        yield from self._start_message(self._wordless_id)
        # Ask again if a decision was refused: else the page would send the same decision over and over.
        for question in self._narrates.ask_approvals(why_at_rest.waiting, again=bool(refused)):
            yield from self._ask_approval(question)
        for waiting in why_at_rest.waiting:  # of somebody who does not decide
            if waiting.call_id in self._held:
                yield from self._show_input(waiting)
        yield from self._close_step()
        if self._calls_in_step and not self._narrates.shows_any(why_at_rest.waiting):
            yield from _EMPTY_STEP
        if refused:
            yield {"type": "error", "errorText": " ".join(refused)}
            return
        metadata = self._metadata_of(why_at_rest)
        if error := self._error_of(why_at_rest):
            yield {"type": "message-metadata", "messageMetadata": metadata}
            yield {"type": "error", "errorText": error}
        elif why_at_rest.why == "cancelled":
            yield {"type": "message-metadata", "messageMetadata": metadata}
            yield {"type": "abort", "reason": "stopped"}
        else:
            reason = _CUT_OFF.get(why_at_rest.stop) or _FINISH_REASONS[why_at_rest.why]
            yield {"type": "finish", "finishReason": reason, "messageMetadata": metadata}

    def _error_of(self, why_at_rest: WhyAtRest) -> str:
        """Empty if the answer has not failed."""
        why = why_at_rest.why
        if self._nothing_new and why not in ("stalled", "waiting"):
            return NOTHING_NEW
        outcome = why_at_rest.outcome
        broke_off = why == "ended" and (outcome is None or outcome.status == "failed")
        if broke_off or why in ("stalled", "unfit"):
            return narrator.why_it_failed(why_at_rest, show_causes=self._show_causes)
        return ""

    def _metadata_of(self, rest: WhyAtRest) -> dict[str, Any]:
        """Also makes the page take over what came last: `start-step` alone does not."""
        about: dict[str, Any] = {"state": rest.why}
        if rest.stop in CUT_OFF:
            about["stop"] = rest.stop
        if not self._usage.turns:
            return {"everturn": about}
        return {"usage": self._usage.for_ai_sdk(), "everturn": {**about, "costUsd": self._usage.cost_usd}}

    # ------------------------------------------------------------ what is open

    def _start_message(self, message_id: str) -> Iterator[Chunk]:
        if not self._started:
            self._started = True
            yield {"type": "start", "messageId": self._message_id or message_id}

    def _open_part(self, turn: int, kind: TextKind) -> Iterator[Chunk]:
        if kind not in self._parts:
            self._count += 1
            self._parts[kind] = f"{kind}-{turn}-{self._count}"
            yield {"type": f"{_PART[kind]}-start", "id": self._parts[kind]}

    def _close_parts(self, **more: Any) -> Iterator[Chunk]:
        parts = self._parts
        self._parts = {}
        for kind, part in parts.items():
            yield {"type": f"{_PART[kind]}-end", "id": part, **more}

    def _close_step(self) -> Iterator[Chunk]:
        yield from self._close_parts()
        if self._in_step:
            self._in_step = False
            yield {"type": "finish-step"}


def _waits_chunk(call_id: str, below: ToolCall) -> Chunk:
    """The agent's own call, as far as it is. Not as a preliminary output: to the SDK's rule for sending by itself, that
    call is open, and the page would never send its decision (lastAssistantMessageIsCompleteWithApprovalResponses; `ai`
    6.0.326)."""
    return {"type": "tool-output-available", "toolCallId": call_id, "output": waits_below([below])}


def _finished_chunk(step: narrator.AnswerFinished) -> Chunk:
    result = step.result
    if step.was_asked and result.decision and result.decision.verdict == "deny":
        return {"type": "tool-output-denied", "toolCallId": result.call_id}
    if result.is_error:
        return {"type": "tool-output-error", "toolCallId": result.call_id, "errorText": result.text or "It failed."}
    return {"type": "tool-output-available", "toolCallId": result.call_id, "output": output_of(result)}
