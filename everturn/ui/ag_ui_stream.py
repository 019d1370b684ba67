"""The AG-UI events (protocol 1.0) of one run, which streams one answer or the rest of it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator, Sequence
from typing import Any, Final

from everturn.client.followed_reply import FollowedReply, WhyAtRest
from everturn.events import Event, Replied
from everturn.records import Message, ToolCall
from everturn.ui import narrator
from everturn.ui.ag_ui_messages import ag_ui_messages, arguments_of, content_of, result_id
from everturn.ui.narrator import ApprovalAsked, Kind, Narrator

AgUiEvent = dict[str, Any]

PROTOCOL_VERSION: Final = "1.0"

RESPONSE_SCHEMA: Final = {
    "type": "object",
    "properties": {
        "approved": {"type": "boolean"},
        "reason": {"type": "string", "description": "For the agent."},
        "editedArgs": {"type": "object", "description": "All of the call's arguments, in place of the agent's."},
    },
    "required": ["approved"],
}


class AgUiRun:
    """One run of a thread, streamed to one client."""

    def __init__(self, thread_id: str, run_id: str, narrates: Narrator, *, show_causes: bool = False) -> None:
        self._ids = {"threadId": thread_id, "runId": run_id}
        self._narrates = narrates
        self._show_causes = show_causes
        self._open: dict[Kind, str] = {}
        """The ids of the messages that have begun and not ended."""
        self._count = 0

    async def events(self, answer: FollowedReply, *, comes_back: bool, refused: list[str]) -> AsyncGenerator[AgUiEvent]:
        """The events of the run. `comes_back`: the client reconnects, may lack any part of the conversation, and gets
        its messages first. `refused`: why decisions were refused."""
        yield {"type": "RUN_STARTED", **self._ids, "protocolVersion": PROTOCOL_VERSION}
        self._narrates.look_ahead(answer.events)
        told = [one for event in answer.events for one in self._narrates.tell(event)]
        if comes_back:
            yield _snapshot(ag_ui_messages(await answer.transcript(), answer.events))
            told = _being_written(told)
        for one in told:
            for event in self._events(one):
                yield event
        async for happened in answer.more():
            for one in self._narrates.tell(happened):
                for event in self._events(one):
                    yield event
                if isinstance(one, narrator.Withdrawn):  # AG-UI can take words back only with a snapshot
                    yield _snapshot(ag_ui_messages(_before_turn(await answer.transcript(), happened), ()))
        for event in self._end(answer.rest or WhyAtRest("ended"), refused):
            yield event

    def fail(self, text: str, code: str = "failed") -> Iterator[AgUiEvent]:
        yield from self._close()
        yield {"type": "RUN_ERROR", "message": text, "code": code}

    # ------------------------------------------------------------ event by event

    def _events(self, told: narrator.PageStep) -> Iterator[AgUiEvent]:
        match told:
            case narrator.Words(turn=turn, kind="text", text=text):
                yield from self._write_text(turn, text)
            case narrator.Words(turn=turn, kind="thinking", text=text):
                yield from self._write_thinking(turn, text)
            case narrator.Withdrawn() | narrator.TurnEnded():
                yield from self._close()
            case narrator.Called(turn=turn, call=call):
                yield from _called(turn, call)
            case narrator.Finished(result=result):
                about = {"messageId": result_id(result), "toolCallId": result.call_id, "role": "tool"}
                yield {"type": "TOOL_CALL_RESULT", **about, "content": content_of(result)}
            case narrator.Progressed(call_id=call_id, progress=progress):
                value = {"toolCallId": call_id, "progress": progress}
                yield {"type": "CUSTOM", "name": "tool_progress", "value": value}
            case narrator.HeldUp(state=state):
                yield {"type": "CUSTOM", "name": "status", "value": {"state": state}}
            case _:
                pass

    def _write_text(self, turn: int, text: str) -> Iterator[AgUiEvent]:
        message_id = f"reply-{turn}"
        if "text" not in self._open:
            self._open["text"] = message_id
            yield {"type": "TEXT_MESSAGE_START", "messageId": message_id, "role": "assistant"}
        yield {"type": "TEXT_MESSAGE_CONTENT", "messageId": message_id, "delta": text}

    def _write_thinking(self, turn: int, text: str) -> Iterator[AgUiEvent]:
        if "thinking" not in self._open:
            self._count += 1
            message_id = self._open["thinking"] = f"thinking-{turn}-{self._count}"
            yield {"type": "REASONING_START", "messageId": message_id}
            yield {"type": "REASONING_MESSAGE_START", "messageId": message_id, "role": "reasoning"}
        yield {"type": "REASONING_MESSAGE_CONTENT", "messageId": self._open["thinking"], "delta": text}

    def _close(self) -> Iterator[AgUiEvent]:
        if message_id := self._open.pop("thinking", None):
            yield {"type": "REASONING_MESSAGE_END", "messageId": message_id}
            yield {"type": "REASONING_END", "messageId": message_id}
        if message_id := self._open.pop("text", None):
            yield {"type": "TEXT_MESSAGE_END", "messageId": message_id}

    def _end(self, rest: WhyAtRest, refused: list[str]) -> Iterator[AgUiEvent]:
        interrupts = [_interrupt(asked) for asked in self._narrates.ask(rest.waiting, again=True)]
        if refused and not interrupts:
            yield from self.fail(" ".join(refused), "refused")
            return
        yield from self._close()
        if refused:
            yield {"type": "CUSTOM", "name": "refused", "value": " ".join(refused)}
        match rest.why:
            case "stalled":
                yield from self.fail(rest.cause if self._show_causes else narrator.STALLED, "stalled")
            case "ended" if rest.outcome is None or rest.outcome.status != "limit_reached":
                yield from self.fail((rest.cause if self._show_causes else "") or "The conversation is over.", "ended")
            case "cancelled":
                yield self._finished({"type": "cancelled"})
            case "waiting" if interrupts:
                yield self._finished({"type": "interrupt", "interrupts": interrupts})
            case "waiting":
                pending = [one.call_id for one in rest.waiting if one.needs == "answer"]
                yield self._finished({"type": "success", "pendingToolCallIds": pending})
            case "answered" | "ended":
                yield self._finished({"type": "success"})

    def _finished(self, outcome: dict[str, Any]) -> AgUiEvent:
        return {"type": "RUN_FINISHED", **self._ids, "outcome": outcome}


def _snapshot(messages: list[dict[str, Any]]) -> AgUiEvent:
    return {"type": "MESSAGES_SNAPSHOT", "messages": messages}


def _before_turn(transcript: Sequence[Message], happened: Event) -> Sequence[Message]:
    """The transcript without the reply of this event, which is sent after the snapshot."""
    return transcript[:-1] if isinstance(happened, Replied) else transcript


def _being_written(told: list[narrator.PageStep]) -> list[narrator.PageStep]:
    """The words of the turn that still runs. Everything else is in the snapshot."""
    ended = max((place for place, one in enumerate(told) if isinstance(one, narrator.TurnEnded)), default=-1)
    return [one for one in told[ended + 1 :] if isinstance(one, narrator.Words)]


def _called(turn: int, call: ToolCall) -> Iterator[AgUiEvent]:
    about = {"toolCallId": call.call_id}
    yield {"type": "TOOL_CALL_START", **about, "toolCallName": call.name, "parentMessageId": f"reply-{turn}"}
    yield {"type": "TOOL_CALL_ARGS", **about, "delta": arguments_of(call)}
    yield {"type": "TOOL_CALL_END", **about}


def _interrupt(asked: ApprovalAsked) -> dict[str, Any]:
    waiting = asked.waiting
    return {
        "id": asked.question_id,
        "reason": "tool_call",
        "message": waiting.why,
        "toolCallId": waiting.call_id,
        "responseSchema": RESPONSE_SCHEMA,
        **({"expiresAt": waiting.expires_at} if waiting.expires_at else {}),
        "metadata": {"everturn": {"tool": waiting.tool, "arguments": waiting.arguments, "reason": waiting.reason}},
    }
