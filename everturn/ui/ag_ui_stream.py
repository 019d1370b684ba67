"""The AG-UI events of one run, which streams one answer or the rest of it: in the client's version of the protocol."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Collection, Iterator
from typing import Any, Final

from everturn.client.followed_reply import FollowedReply, WhyAtRest
from everturn.events import ApprovalRequested, Replied, ToolCalled
from everturn.records import CUT_OFF, TextKind, ToolCall
from everturn.ui import narrator
from everturn.ui.ag_ui_messages import ag_ui_messages, arguments_of, content_of, result_id
from everturn.ui.ag_ui_request import ProtocolVersion
from everturn.ui.message_ids import released_id, reply_id, thinking_id
from everturn.ui.narrator import ApprovalAsked, Narrator
from everturn.ui.results import descriptor_of
from everturn.ui.usage import AnswerUsage

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

    def __init__(
        self,
        thread_id: str,
        run_id: str,
        narrates: Narrator,
        *,
        shown_call_ids: Collection[str] = (),
        version: ProtocolVersion = "1",
        show_causes: bool = False,
    ) -> None:
        """`shown_call_ids`: the calls that the client's messages have."""
        self._ids = {"threadId": thread_id, "runId": run_id}
        self._version: ProtocolVersion = version
        self._narrates = narrates
        self._show_causes = show_causes
        self._open: dict[TextKind, str] = {}
        """The ids of the messages that have begun and not ended."""
        self._thought: set[int] = set()
        """The turns whose thoughts the client has."""
        self._shown_call_ids = {*shown_call_ids}
        self._held: dict[str, ToolCall] = {}
        """Calls for the front end that had to be approved first, by their ids. The client does not get them before:
        CopilotKit runs a call's tool as soon as it has the call, whatever the run's interrupts say."""
        self._usage = AnswerUsage()

    async def stream_events(
        self, answer: FollowedReply, *, comes_back: bool, refused: list[str]
    ) -> AsyncGenerator[AgUiEvent]:
        """The events of the run. `comes_back`: the client reconnects, may lack any part of the conversation, and gets
        its messages first. `refused`: why decisions were refused."""
        spoken = {"protocolVersion": PROTOCOL_VERSION} if self._version == "1" else {}
        yield {"type": "RUN_STARTED", **self._ids, **spoken}
        for happened in answer.events:
            self._usage.count(happened)
        self._narrates.look_ahead(answer.events)
        for happened in answer.events:
            if isinstance(happened, ToolCalled | ApprovalRequested) and happened.awaits_answer:
                self._held[happened.call.call_id] = happened.call
        steps = [step for happened in answer.events for step in self._narrates.steps_for(happened)]
        if comes_back:
            yield await self._snapshot_event(answer)
            steps = _being_written(steps)
        for page_step in steps:
            for event in self._events_of(page_step):
                yield event
        async for happened in answer.follow_on():
            self._usage.count(happened)
            for page_step in self._narrates.steps_for(happened):
                for event in self._events_of(page_step):
                    yield event
                if isinstance(page_step, narrator.WordsWithdrawn):  # AG-UI can take words back only with a snapshot
                    yield await self._snapshot_event(
                        answer, replied=isinstance(happened, Replied), withdrawn=page_step.turn
                    )
        for finished in await self._narrates.finish_all(answer):
            for event in self._events_of(finished):
                yield event
        for event in self._end_run(answer.rest or WhyAtRest("ended"), refused):
            yield event

    def fail(self, text: str, code: str = "failed") -> Iterator[AgUiEvent]:
        yield from self._close_messages()
        yield {"type": "RUN_ERROR", "message": text, "code": code, **self._usage_fields()}

    # ------------------------------------------------------------ event by event

    def _events_of(self, step: narrator.PageStep) -> Iterator[AgUiEvent]:
        match step:
            case narrator.Words(turn=turn, kind="text", text=text):
                yield from self._write_text(turn, text)
            case narrator.Words(turn=turn, kind="thinking", text=text):
                yield from self._write_thinking(turn, text)
            case narrator.WordsWithdrawn() | narrator.TurnEnded():
                yield from self._close_messages()
            case narrator.CallMade(call=call, held=True):
                self._held[call.call_id] = call
            case narrator.CallMade(turn=turn, call=call):
                yield from self._show_call(call, reply_id(self._narrates.position_of(turn)))
            case narrator.CallReleased(call=call):
                yield from self._show_late(call)
            case narrator.AnswerFinished(result=result):
                if held := self._held.get(result.call_id):  # it was denied
                    yield from self._show_late(held)
                if result.call_id not in self._shown_call_ids:
                    return  # it was denied while the client asked something else
                about = {"messageId": result_id(result), "toolCallId": result.call_id, "role": "tool"}
                yield {"type": "TOOL_CALL_RESULT", **about, "content": content_of(result, self._version)}
            case narrator.CallProgressed(call_id=call_id, progress=progress):
                value = {"toolCallId": call_id, "progress": progress}
                yield {"type": "CUSTOM", "name": "tool_progress", "value": value}
            case narrator.HeldUp(state=state):
                yield {"type": "CUSTOM", "name": "status", "value": {"state": state}}
            case _:
                pass

    def _show_call(self, call: ToolCall, message_id: str) -> Iterator[AgUiEvent]:
        self._shown_call_ids.add(call.call_id)
        yield from _call_events(message_id, call)

    def _show_late(self, call: ToolCall) -> Iterator[AgUiEvent]:
        """A call that was held back. It has a message of its own: a front end looks for calls in new ones."""
        if call.call_id not in self._shown_call_ids:
            yield from self._show_call(call, released_id(call.call_id))

    def _write_text(self, turn: int, text: str) -> Iterator[AgUiEvent]:
        message_id = reply_id(self._narrates.position_of(turn))
        if "text" not in self._open:
            self._open["text"] = message_id
            yield {"type": "TEXT_MESSAGE_START", "messageId": message_id, "role": "assistant"}
        yield {"type": "TEXT_MESSAGE_CONTENT", "messageId": message_id, "delta": text}

    def _write_thinking(self, turn: int, text: str) -> Iterator[AgUiEvent]:
        if "thinking" not in self._open:
            self._thought.add(turn)
            message_id = self._open["thinking"] = thinking_id(self._narrates.position_of(turn))
            yield {"type": "REASONING_START", "messageId": message_id}
            yield {"type": "REASONING_MESSAGE_START", "messageId": message_id, "role": "reasoning"}
        yield {"type": "REASONING_MESSAGE_CONTENT", "messageId": self._open["thinking"], "delta": text}

    def _close_messages(self) -> Iterator[AgUiEvent]:
        if message_id := self._open.pop("thinking", None):
            yield {"type": "REASONING_MESSAGE_END", "messageId": message_id}
            yield {"type": "REASONING_END", "messageId": message_id}
        if message_id := self._open.pop("text", None):
            yield {"type": "TEXT_MESSAGE_END", "messageId": message_id}

    def _end_run(self, why_at_rest: WhyAtRest, refused: list[str]) -> Iterator[AgUiEvent]:
        interrupts = [
            _interrupt_for(question, self._version, is_shown=question.waiting.call_id in self._shown_call_ids)
            for question in self._narrates.ask_approvals(why_at_rest.waiting, again=True)
        ]
        if refused and not interrupts:
            yield from self.fail(" ".join(refused), "refused")
            return
        yield from self._close_messages()
        if refused:
            yield {"type": "CUSTOM", "name": "refused", "value": " ".join(refused)}
        if why_at_rest.stop in CUT_OFF:
            yield {"type": "CUSTOM", "name": "status", "value": {"state": "cut_off", "stop": why_at_rest.stop}}
        match why_at_rest.why:
            case "stalled" | "unfit":
                yield from self._fail_at_rest(why_at_rest)
            case "ended" if why_at_rest.outcome is None or why_at_rest.outcome.status != "limit_reached":
                yield from self._fail_at_rest(why_at_rest)
            case "cancelled" if self._version == "0":
                yield {"type": "CUSTOM", "name": "status", "value": {"state": "cancelled"}}
                yield self._finished_event(None)
            case "cancelled":
                yield self._finished_event({"type": "cancelled"})
            case "waiting" if interrupts:
                yield self._finished_event({"type": "interrupt", "interrupts": interrupts})
            case "waiting" if self._version == "1":
                pending = [call.call_id for call in why_at_rest.waiting if call.needs == "answer"]
                yield self._finished_event({"type": "success", "pendingToolCallIds": pending})
            case "waiting" | "answered" | "ended":
                yield self._finished_event({"type": "success"})

    def _fail_at_rest(self, why_at_rest: WhyAtRest) -> Iterator[AgUiEvent]:
        yield from self.fail(narrator.why_it_failed(why_at_rest, show_causes=self._show_causes), why_at_rest.why)

    def _finished_event(self, outcome: dict[str, Any] | None) -> AgUiEvent:
        # To clients of 0.x, an outcome of a kind or with a field that they don't know is an error of the whole run.
        ended = {"outcome": outcome} if outcome else {}
        return {"type": "RUN_FINISHED", **self._ids, **ended, **self._usage_fields()}

    def _usage_fields(self) -> dict[str, Any]:
        usage = self._usage.for_ag_ui()
        return {"usage": usage} if usage else {}

    async def _snapshot_event(
        self, answer: FollowedReply, *, replied: bool = False, withdrawn: int | None = None
    ) -> AgUiEvent:
        """All messages so far. `replied`: without the reply that has just come, which is told after the snapshot.
        `withdrawn`: the turn whose words are taken back."""
        transcript = await answer.transcript()
        messages = ag_ui_messages(transcript[:-1] if replied else transcript, answer, self._version)
        self._shown_call_ids.update(call["id"] for message in messages for call in message.get("toolCalls", ()))
        if withdrawn in self._thought:
            # A client keeps its thoughts if a snapshot has none. So they are there, without words.
            thinking = thinking_id(self._narrates.position_of(withdrawn or 0))
            messages.append({"id": thinking, "role": "reasoning", "content": ""})
        return {"type": "MESSAGES_SNAPSHOT", "messages": messages}


def _being_written(steps: list[narrator.PageStep]) -> list[narrator.PageStep]:
    """The words of the turn that still runs. Everything else is in the snapshot."""
    ended = max((place for place, step in enumerate(steps) if isinstance(step, narrator.TurnEnded)), default=-1)
    return [step for step in steps[ended + 1 :] if isinstance(step, narrator.Words)]


def _call_events(message_id: str, call: ToolCall) -> Iterator[AgUiEvent]:
    about = {"toolCallId": call.call_id}
    yield {"type": "TOOL_CALL_START", **about, "toolCallName": call.name, "parentMessageId": message_id}
    yield {"type": "TOOL_CALL_ARGS", **about, "delta": arguments_of(call)}
    yield {"type": "TOOL_CALL_END", **about}


def _interrupt_for(question: ApprovalAsked, version: ProtocolVersion, *, is_shown: bool) -> dict[str, Any]:
    """`is_shown`: the client has the call, so the interrupt points to it."""
    waiting = question.waiting
    about = {"tool": waiting.tool, "arguments": waiting.arguments, **descriptor_of(waiting)}
    # A client of 0.0.59 runs nothing more on a thread with an interrupt that is past its `expiresAt`, whatever the run
    # brings. One of 1.0 does, if the run cancels it.
    expires = {"expiresAt": waiting.expires_at} if waiting.expires_at and version == "1" else {}
    pointer = {"toolCallId": waiting.call_id} if is_shown else {}
    return {
        "id": question.question_id,
        "reason": "tool_call",
        "message": waiting.why,
        **pointer,
        "responseSchema": RESPONSE_SCHEMA,
        **expires,
        "metadata": {"everturn": about},
    }
