"""A conversation so far as the AI SDK's UI messages, for a page that has just been loaded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from everturn import events
from everturn.client.followed_reply import FollowedReply
from everturn.declared_tools import said_by_person
from everturn.records import Document, Image, Message, Text, Thinking, ToolCall, ToolResult, results_in
from everturn.ui.chats import OWN_ID
from everturn.ui.narrator import question_id
from everturn.ui.results import media_type_of, output_of, url_of

UIMessage = dict[str, Any]


def ui_messages(transcript: Sequence[Message], answer: FollowedReply) -> list[UIMessage]:
    """The messages of people and the answers to them. The latest answer has the same id here as in its stream, so a
    page that resumes the stream shows the answer once."""
    results = results_in(transcript) | {
        one.result.call_id: one.result for one in answer.events if isinstance(one, events.ToolFinished)
    }
    asked = {one.call_id: question_id(one) for one in answer.waiting if one.needs == "approval"}
    messages: list[UIMessage] = []
    for position, message in enumerate(transcript):
        if message.role == "assistant" and not message.summary:
            if not messages or messages[-1]["role"] != "assistant":
                messages.append({"id": f"{OWN_ID}{position}", "role": "assistant", "parts": []})
            messages[-1]["parts"] += [{"type": "step-start"}, *_parts(message, results, asked)]
        elif message.role == "user" and not message.author:
            messages.append({"id": f"{OWN_ID}{position}", "role": "user", "parts": _said(message)})
    begun = [one.turn for one in answer.events if isinstance(one, events.TurnStarted)]
    replied = [one for one in answer.events if isinstance(one, events.Replied)]
    if not begun:  # no turn has read the last message yet
        said = [one.message for one in answer.events if isinstance(one, events.MessageReceived)]
        untaken = [_said(one) for one in said[:1] if not messages or messages[-1]["parts"] != _said(one)]
        messages += [{"id": f"{OWN_ID}last", "role": "user", "parts": parts} for parts in untaken]
    elif replied and messages and messages[-1]["role"] == "assistant":
        messages[-1]["id"] = f"reply-{begun[0]}"
    return messages


def _said(message: Message) -> list[dict[str, Any]]:
    parts: list[dict[str, Any]] = []
    for part in said_by_person(message):
        if isinstance(part, Text):
            parts.append({"type": "text", "text": part.text})
        elif isinstance(part, Image | Document):
            name = {"filename": part.name} if isinstance(part, Document) and part.name else {}
            parts.append({"type": "file", "mediaType": media_type_of(part), "url": url_of(part), **name})
    return parts


def _parts(message: Message, results: dict[str, ToolResult], asked: dict[str, str]) -> list[dict[str, Any]]:
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
                parts.append(_tool(part, results.get(part.call_id), asked.get(part.call_id)))
            case _:
                pass
    return parts


def _tool(call: ToolCall, result: ToolResult | None, question: str | None) -> dict[str, Any]:
    part: dict[str, Any] = {"type": f"tool-{call.name}", "toolCallId": call.call_id, "input": call.arguments}
    if result is None and question:
        return {**part, "state": "approval-requested", "approval": {"id": question}}
    if result is None:
        return {**part, "state": "input-available"}
    decision = result.decision
    decided = decision is not None and decision.verdict != "answer"
    if decision and decision.verdict == "deny":
        said = {"id": call.call_id, "approved": False, "reason": decision.note or ""}
        return {**part, "state": "output-denied", "approval": said}
    approval = {"approval": {"id": call.call_id, "approved": True}} if decided else {}
    if result.is_error:
        return {**part, "state": "output-error", "errorText": result.text or "It failed.", **approval}
    return {**part, "state": "output-available", "output": output_of(result), **approval}
