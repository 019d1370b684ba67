"""A conversation so far as the AI SDK's UI messages, for a page that has just been loaded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from everturn import events
from everturn.client.followed_reply import FollowedReply
from everturn.declared_tools import said_by_person
from everturn.payloads import WaitingCall
from everturn.records import CUT_OFF, Document, Image, Message, Text, Thinking, ToolCall, ToolResult, results_in
from everturn.ui.message_ids import reply_id, user_message_id
from everturn.ui.narrator import CallMade, calls_below, question_id
from everturn.ui.page_fields import message_fields, part_fields, with_other_parts
from everturn.ui.results import agents_of, descriptor_of, media_type_of, output_of, url_of, waits_below

UIMessage = dict[str, Any]

_OVER: Final = ("output-available", "output-error", "output-denied")


def ui_messages(transcript: Sequence[Message], answer: FollowedReply) -> list[UIMessage]:
    """The messages of people and the answers to them. Each has the same id here as in its stream, so a page that
    resumes a stream shows the answer once."""
    calls = _Calls(transcript, answer)
    messages: list[UIMessage] = []
    for position, message in enumerate(transcript):
        if message.role == "assistant" and not message.summary:
            if not messages or messages[-1]["role"] != "assistant":
                messages.append({"id": reply_id(position), "role": "assistant", "parts": []})
            messages[-1]["parts"] += [{"type": "step-start"}, *_parts_of(message, calls)]
        elif message.role == "user" and not message.author:
            messages.append(_user_message(message, position))
    messages += _untaken_messages(transcript, answer)
    for ui_message in messages:
        if ui_message["role"] == "assistant" and _ends_with_calls(ui_message["parts"]):
            ui_message["parts"].append({"type": "step-start"})
    if answer.rest and answer.rest.stop in CUT_OFF and messages and messages[-1]["role"] == "assistant":
        messages[-1]["metadata"] = {"everturn": {"state": answer.rest.why, "stop": answer.rest.stop}}  # as streamed
    return messages


class _Calls:
    """What has come of the calls."""

    def __init__(self, transcript: Sequence[Message], answer: FollowedReply) -> None:
        self._answer = answer
        self._results = results_in(transcript) | {
            event.result.call_id: event.result for event in answer.events if isinstance(event, events.ToolFinished)
        }
        self._waiting = {call.call_id: call for call in answer.waiting if call.needs == "approval"}
        self._below = calls_below(answer.events)

    def result_of(self, call: ToolCall) -> ToolResult | None:
        return self._results.get(call.call_id) or self._answer.result_of(call)

    def calls_below(self, call: ToolCall) -> list[CallMade]:
        """The calls of sub-agents that it led to."""
        return self._below.get(call.call_id, [])

    def waiting_call(self, call: ToolCall) -> WaitingCall | None:
        """The call, if it waits for an approval."""
        return self._waiting.get(call.call_id)


def _untaken_messages(transcript: Sequence[Message], answer: FollowedReply) -> list[UIMessage]:
    """What people said and no turn has read yet. The newest may be on its way to the conversation itself, too."""
    messages = list(answer.untaken_messages)
    if not any(isinstance(event, events.TurnStarted) for event in answer.events):
        received = next((event.message for event in answer.events if isinstance(event, events.MessageReceived)), None)
        last_said = [*[message for message in transcript if message.role == "user"], *messages][-1:]
        if received and [message.parts for message in last_said] != [received.parts]:
            messages.append(received)
    return [_user_message(message, f"next-{number}") for number, message in enumerate(messages)]


def _user_message(message: Message, position: int | str) -> UIMessage:
    parts: list[dict[str, Any]] = []
    for part in said_by_person(message):
        if isinstance(part, Text):
            parts.append({"type": "text", "text": part.text, **part_fields("ai-sdk", part)})
        elif isinstance(part, Image | Document):
            name = {"filename": part.name} if isinstance(part, Document) and part.name else {}
            about = {"mediaType": media_type_of(part), "url": url_of(part)}
            parts.append({"type": "file", **about, **name, **part_fields("ai-sdk", part)})
    about = {**message_fields("ai-sdk", message), "id": user_message_id(message, position), "role": "user"}
    return {**about, "parts": with_other_parts("ai-sdk", parts, message)}


def _parts_of(message: Message, calls: _Calls) -> list[dict[str, Any]]:
    parts: list[dict[str, Any]] = []
    for part in message.parts:
        match part:
            case Text(text=text):
                parts.append({"type": "text", "text": text, "state": "done"})
            case Thinking(text=text):
                parts.append({"type": "reasoning", "text": text, "state": "done"})
            case Image():
                parts.append({"type": "file", "mediaType": media_type_of(part), "url": url_of(part)})
            case ToolCall():
                below = [(called, _tool_part(called.call, calls)) for called in calls.calls_below(part)]
                opened = [called.call for called, tool_part in below if tool_part["state"] not in _OVER]
                parts.append(_with_open(_tool_part(part, calls), opened))
                parts += [_of_agents(tool_part, called) for called, tool_part in below]
            case _:
                pass
    return parts


def _with_open(part: dict[str, Any], opened: Sequence[ToolCall]) -> dict[str, Any]:
    """An agent's call, as in the stream: while calls below it are open, they are its output."""
    if not opened or part["state"] in _OVER:
        return part
    return {**part, "state": "output-available", "output": waits_below(opened)}


def _of_agents(part: dict[str, Any], called: CallMade) -> dict[str, Any]:
    return {**part, "callProviderMetadata": {"everturn": agents_of(called.path)}}


def _tool_part(call: ToolCall, calls: _Calls) -> dict[str, Any]:
    part: dict[str, Any] = {"type": f"tool-{call.name}", "toolCallId": call.call_id, "input": call.arguments}
    result = calls.result_of(call)
    waiting = calls.waiting_call(call)
    if result is None and waiting:
        approval = {"id": question_id(waiting), "descriptor": descriptor_of(waiting)}
        return {**part, "input": waiting.arguments, "state": "approval-requested", "approval": approval}
    if result is None:
        return {**part, "state": "input-available"}
    decision = result.decision
    decided = decision is not None and decision.verdict != "answer"
    if decision and decision.verdict == "deny":
        denial = {"id": call.call_id, "approved": False, "reason": decision.note or ""}
        return {**part, "state": "output-denied", "approval": denial}
    approved = {"approval": {"id": call.call_id, "approved": True}} if decided else {}
    if result.is_error:
        return {**part, "state": "output-error", "errorText": result.text or "It failed.", **approved}
    return {**part, "state": "output-available", "output": output_of(result), **approved}


def _ends_with_calls(parts: Sequence[dict[str, Any]]) -> bool:
    """Whether the last step has calls, and all are over: as in the stream, an empty step follows then."""
    start = max(place for place, part in enumerate(parts) if part["type"] == "step-start")
    states = [part["state"] for part in parts[start:] if "toolCallId" in part]
    return bool(states) and all(state in _OVER for state in states)
