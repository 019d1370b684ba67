"""The AI SDK's UI message stream, version 1: the chunks of one answer."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator
from typing import Any, Final

from everturn.client.followed_reply import FollowedReply, WhyAtRest
from everturn.events import ApprovalRequested, Event
from everturn.ui import narrator
from everturn.ui.narrator import Kind, Narrator
from everturn.ui.results import media_type_of, output_of, url_of

Chunk = dict[str, Any]

HEADERS: Final = {"x-vercel-ai-ui-message-stream": "v1"}
LAST: Final = b"data: [DONE]\n\n"

_PART: Final[dict[Kind, str]] = {"text": "text", "thinking": "reasoning"}

WITHDRAWN: Final = {"everturn": {"withdrawn": True}}
"""Marks a part of a message that came from a failed attempt of the model. The page may leave its words out."""


class UIMessageStream:
    """The stream of one answer. `message_id`: the page's id for it, if the stream continues a message of the page's."""

    def __init__(self, narrates: Narrator, *, message_id: str = "", show_causes: bool = False) -> None:
        self._narrates = narrates
        self._message_id = message_id
        self._show_causes = show_causes
        self._started = False
        self._in_step = False
        self._parts: dict[Kind, str] = {}
        """The ids of the parts that have begun and not ended."""
        self._count = 0

    async def chunks(self, answer: FollowedReply, *, refused: list[str]) -> AsyncGenerator[Chunk]:
        """The chunks of the answer, until it is at rest. `refused`: why decisions were refused."""
        self._narrates.look_ahead(answer.events)
        for event in answer.events:
            for chunk in self._tell(event):
                yield chunk
        for asked in self._narrates.ask(answer.waiting):
            yield self._approval(asked)
        async for event in answer.more():
            for chunk in self._tell(event):
                yield chunk
            if isinstance(event, ApprovalRequested):
                for asked in self._narrates.ask(answer.waiting):
                    yield self._approval(asked)
        for chunk in self._end(answer, refused):
            yield chunk

    def fail(self, text: str) -> Iterator[Chunk]:
        yield from self._start("failed")
        yield from self._close_step()
        yield {"type": "error", "errorText": text}

    # ------------------------------------------------------------ event by event

    def _tell(self, event: Event) -> Iterator[Chunk]:
        for told in self._narrates.tell(event):
            if isinstance(told, narrator.TurnBegan):
                yield from self._start(f"reply-{told.turn}")
            elif not isinstance(told, narrator.HeldUp):
                yield from self._start("reply")
            yield from self._chunks(told)

    def _chunks(self, told: narrator.PageStep) -> Iterator[Chunk]:
        match told:
            case narrator.TurnBegan():
                yield from self._close_step()
                self._in_step = True
                yield {"type": "start-step"}
            case narrator.Words(turn=turn, kind=kind, text=text):
                yield from self._open(turn, kind)
                yield {"type": f"{_PART[kind]}-delta", "id": self._parts[kind], "delta": text}
            case narrator.Withdrawn():
                yield from self._close_parts(providerMetadata=WITHDRAWN)
            case narrator.Picture(image=image):
                yield {"type": "file", "mediaType": media_type_of(image), "url": url_of(image)}
            case narrator.TurnEnded():
                yield from self._close_parts()
            case narrator.Called(call=call):
                about = {"toolCallId": call.call_id, "toolName": call.name}
                yield {"type": "tool-input-start", **about}
                yield {"type": "tool-input-available", **about, "input": call.arguments}
            case narrator.ApprovalAsked():
                yield self._approval(told)
            case narrator.Progressed(call_id=call_id, progress=progress):
                yield {"type": "tool-output-available", "toolCallId": call_id, "output": progress, "preliminary": True}
            case narrator.Finished():
                yield _finished(told)
            case narrator.HeldUp(state=state):
                yield {"type": "data-status", "data": {"state": state}, "transient": True}

    def _approval(self, asked: narrator.ApprovalAsked) -> Chunk:
        waiting = asked.waiting
        about = {"why": waiting.why, "reason": waiting.reason, "expiresAt": waiting.expires_at}
        return {
            "type": "tool-approval-request",
            "approvalId": asked.question_id,
            "toolCallId": waiting.call_id,
            "approvalDescriptor": about,
        }

    def _end(self, answer: FollowedReply, refused: list[str]) -> Iterator[Chunk]:
        rest = answer.rest or WhyAtRest("ended")
        yield from self._start("reply")
        # Ask again if a decision was refused: else the page would send the same decision over and over.
        for asked in self._narrates.ask(rest.waiting, again=bool(refused)):
            yield self._approval(asked)
        yield from self._close_step()
        if refused:
            yield {"type": "error", "errorText": " ".join(refused)}
            return
        match rest.why:
            case "stalled":
                yield {"type": "error", "errorText": rest.cause if self._show_causes else narrator.STALLED}
            case "cancelled":
                yield {"type": "abort", "reason": "stopped"}
            case "ended" if rest.outcome is None or rest.outcome.status == "failed":
                text = (rest.cause if self._show_causes else "") or "The conversation is over."
                yield {"type": "error", "errorText": text}
            case "ended":
                yield {"type": "finish", "finishReason": "length"}
            case "waiting":
                yield {"type": "finish", "finishReason": "tool-calls"}
            case "answered":
                yield {"type": "finish", "finishReason": "stop"}

    # ------------------------------------------------------------ what is open

    def _start(self, message_id: str) -> Iterator[Chunk]:
        if not self._started:
            self._started = True
            yield {"type": "start", "messageId": self._message_id or message_id}

    def _open(self, turn: int, kind: Kind) -> Iterator[Chunk]:
        if kind not in self._parts:
            self._count += 1
            self._parts[kind] = f"{kind}-{turn}-{self._count}"
            yield {"type": f"{_PART[kind]}-start", "id": self._parts[kind]}

    def _close_parts(self, **more: Any) -> Iterator[Chunk]:
        parts, self._parts = self._parts, {}
        for kind, part in parts.items():
            yield {"type": f"{_PART[kind]}-end", "id": part, **more}

    def _close_step(self) -> Iterator[Chunk]:
        yield from self._close_parts()
        if self._in_step:
            self._in_step = False
            yield {"type": "finish-step"}


def _finished(told: narrator.Finished) -> Chunk:
    result = told.result
    if told.asked and result.decision and result.decision.verdict == "deny":
        return {"type": "tool-output-denied", "toolCallId": result.call_id}
    if result.is_error:
        return {"type": "tool-output-error", "toolCallId": result.call_id, "errorText": result.text or "It failed."}
    return {"type": "tool-output-available", "toolCallId": result.call_id, "output": output_of(result)}
