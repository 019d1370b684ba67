"""What an AG-UI client posts to run the agent: what is new in its messages, and its answers to interrupts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError
from starlette.exceptions import HTTPException

from everturn.declared_tools import READER, check_declared, with_front_end
from everturn.errors import InvalidTool
from everturn.records import Document, Image, Part, Text
from everturn.ui.ai_sdk_request import file_part
from everturn.ui.chats import OWN_ID, NewMessage
from everturn.ui.narrator import SeenByPage
from everturn.ui.page_decisions import PageDecision, PageResult
from everturn.ui.page_fields import with_page_fields

ProtocolVersion = Literal["0", "1"]
"""0: of @ag-ui/core up to 0.0.59, which CopilotKit 1.75 and assistant-ui's react-ag-ui 0.0.57 use; 1: of 1.0."""

_READ: Final = ("type", "text", "source", "data", "url", "mimeType")
"""The fields of parts that are read."""

_ANY_OF: Final = {"image": "image/*"}


class _AgUiMessage(BaseModel):
    model_config = ConfigDict(extra="allow")

    id: str = Field(default="", max_length=400)
    role: str
    content: Any = None
    toolCallId: str = ""  # noqa: N815 - the protocol's spelling
    toolCalls: list[dict[str, Any]] | None = None  # noqa: N815
    error: str | None = None


class _ResumeEntry(BaseModel):
    interruptId: str  # noqa: N815
    status: Literal["resolved", "cancelled"]
    payload: Any = None


class _DeclaredTool(BaseModel):
    name: str
    description: str = ""
    parameters: dict[str, JsonValue] | None = None


class _ContextEntry(BaseModel):
    description: str
    value: JsonValue


class RunInput(BaseModel):
    """The fields of AG-UI's RunAgentInput that are used here."""

    threadId: str = Field(max_length=200)  # noqa: N815
    runId: str = Field(min_length=1, max_length=500)  # noqa: N815
    protocolVersion: str | None = None  # noqa: N815
    """Only clients of 1.0 and later say it."""
    messages: list[Any] = []
    resume: list[_ResumeEntry] | None = None
    tools: list[_DeclaredTool] | None = None
    context: list[_ContextEntry] | None = None
    state: JsonValue = None

    @property
    def version(self) -> ProtocolVersion:
        """The protocol of the client, which is answered in its own."""
        if self.protocolVersion is None or self.protocolVersion.startswith("0."):
            return "0"
        return "1"


@dataclass(frozen=True)
class RunAsked:
    """What the run is to do: say something, decide on calls, or only continue."""

    messages: list[NewMessage] = field(default_factory=list)
    """In their order. A client sends all messages again with each run: those before the last one may have been refused
    before."""
    choices: list[PageDecision] = field(default_factory=list)
    outputs: list[PageResult] = field(default_factory=list)
    seen: SeenByPage = field(default_factory=SeenByPage)
    """It has seen the calls that it decides on, also those that are not in its messages: see `shown_call_ids`."""
    shown_call_ids: frozenset[str] = frozenset()
    """The calls in the client's messages."""

    @property
    def decides(self) -> bool:
        return bool(self.choices or self.outputs)


def read_run(run: RunInput) -> RunAsked:
    """Raises HTTPException, for what is wrong with the last message. The client sends its messages again with each run,
    and can't take one back: what was refused before is left out, so that it does not block the thread for good."""
    messages = _readable_messages(run.messages)
    calls = {str(call.get("id")): call for message in messages for call in message.toolCalls or ()}
    choices = [_read_choice(entry, calls) for entry in run.resume or ()]
    decided_call_ids = {choice.call_id for choice in choices}
    # CopilotKit 1.75 writes an approval down as the call's result, too (findings/copilotkit-runs-the-tool-...).
    messages = [message for message in messages if message.role != "tool" or message.toolCallId not in decided_call_ids]
    results = {message.toolCallId for message in messages if message.role == "tool"}
    new_messages: list[NewMessage] = []
    outputs: list[PageResult] = []
    for message in reversed(messages):  # what follows the agent's last words
        if message.role == "user" and not message.id.startswith(OWN_ID):
            try:
                new_messages.insert(0, _user_message(message))
            except HTTPException:
                if message is messages[-1]:
                    raise
        elif message.role == "tool" and message.id != f"result-{message.toolCallId}":
            outputs.insert(0, _read_output(message))
        elif message.role == "assistant":
            break
    if new_messages:
        new_messages[-1] = _with_front_end(new_messages[-1], run)
    question_ids = frozenset(choice.question_id for choice in choices)
    seen = SeenByPage(frozenset(calls) | decided_call_ids, frozenset(results), question_ids)
    return RunAsked(new_messages, choices, outputs, seen, frozenset(calls))


def _readable_messages(messages: Sequence[Any]) -> list[_AgUiMessage]:
    """Raises ValidationError for the last one."""
    readable: list[_AgUiMessage] = []
    for message in messages:
        try:
            readable.append(_AgUiMessage.model_validate(message))
        except ValidationError:
            if message is messages[-1]:
                raise
    return readable


def _user_message(message: _AgUiMessage) -> NewMessage:
    if not message.id:
        raise HTTPException(400, "The message has no id: by it, a message that is sent twice is taken once.")
    content = message.content
    if isinstance(content, str):
        parts: list[Part | None] = [Text(text=content)]
        fields: list[dict[str, Any]] = [{}]
    elif isinstance(content, list):
        parts = [_read_part(part) for part in content]
        fields = [{name: value for name, value in part.items() if name not in _READ} for part in content]
    else:
        raise HTTPException(400, "A user's message has a text or a list of parts as its content.")
    more = message.model_extra or {}
    return NewMessage(
        message.id, with_page_fields("ag-ui", parts, fields, message_id=message.id, message_fields=more), reader=READER
    )


def _with_front_end(new_message: NewMessage, run: RunInput) -> NewMessage:
    tools: list[dict[str, JsonValue]] = [tool.model_dump(exclude_none=True) for tool in run.tools or ()]
    try:
        check_declared(tools)
    except InvalidTool as error:
        raise HTTPException(400, f"{error.message} {error.cure}") from None
    context = [(entry.description, entry.value) for entry in run.context or ()]
    if run.state not in (None, "", {}, []):
        context.append(("its state", run.state))
    message = with_front_end(new_message.parts, tools=tools, on_screen=context)
    return NewMessage(new_message.message_id, [*message.parts], reader=READER)


def _read_part(part: Any) -> Part:
    match part:
        case {"type": "text", "text": str(text)}:
            return Text(text=text)
        case {"type": "image", "source": {"type": "data", "value": str(data), "mimeType": str(media_type)}}:
            return Image(data=data, media_type=media_type)
        case {
            "type": "document" | "audio" | "video",
            "source": {"type": "data", "value": str(data), "mimeType": str(media_type)},
        }:
            return Document(data=data, media_type=media_type, name=_file_name(part))
        case {
            "type": "image" | "document" | "audio" | "video" as kind,
            "source": {"type": "url", "value": str(url), **more},
        }:
            return file_part(url, more.get("mimeType") or _ANY_OF.get(kind), _file_name(part))
        case {"type": "binary", "mimeType": str(media_type), "data": str(data)}:  # of 0.x
            return file_part(f"data:{media_type};base64,{data}", media_type, _file_name(part))
        case {"type": "binary", "mimeType": str(media_type), "url": str(url)}:
            return file_part(url, media_type, _file_name(part))
        case {"type": str(kind)}:
            raise HTTPException(400, f"A part of the kind {kind[:50]!r} can't be sent, or lacks its source.")
        case _:
            raise HTTPException(400, "A part of a message has its type.")


def _file_name(part: dict[str, Any]) -> str:
    """0.x has a field for it; since then, clients put it into the part's metadata."""
    name = part.get("filename")
    if not name and isinstance(metadata := part.get("metadata"), dict):
        name = metadata.get("filename")
    if not isinstance(name, str):
        return ""
    return name[:255]


def _read_output(message: _AgUiMessage) -> PageResult:
    if message.error is not None:
        return PageResult(message.toolCallId, message.error or "It failed.", is_error=True)
    return PageResult(message.toolCallId, _parse_content(message.content))


def _is_text(part: dict[str, Any]) -> bool:
    return part.get("type") == "text" and isinstance(part.get("text"), str)


def _parse_content(content: Any) -> JsonValue:
    """The protocol has a text or, since 1.0, a list of parts. What else a page sends is its result, too."""
    if content is None:
        return ""
    if isinstance(content, list) and all(isinstance(part, dict) and _is_text(part) for part in content):
        return "".join(part["text"] for part in content)
    if not isinstance(content, str):
        checked: JsonValue = content
        return checked
    try:
        parsed: JsonValue = json.loads(content)
    except (ValueError, RecursionError):
        return content
    if isinstance(parsed, dict | list):
        return parsed
    return content


def _read_choice(entry: _ResumeEntry, calls: dict[str, dict[str, Any]]) -> PageDecision:
    """A cancelled interrupt counts as a denial: the conversation needs an approval or a denial to go on."""
    call_id = entry.interruptId.rpartition(".")[0]
    if entry.status == "cancelled":
        return PageDecision(entry.interruptId, call_id, approved=False, reason="cancelled by the user")
    payload = entry.payload if isinstance(entry.payload, dict) else {"approved": entry.payload}
    approved = payload.get("approved")
    edited = payload.get("editedArgs")
    reason = payload.get("reason")
    if not isinstance(approved, bool):
        raise HTTPException(400, 'The payload that answers an interrupt is {"approved": true} or {"approved": false}.')
    if edited is not None and not isinstance(edited, dict):
        raise HTTPException(400, "editedArgs are all the arguments of the call, as an object.")
    return PageDecision(
        entry.interruptId,
        call_id,
        approved=approved,
        reason=reason if isinstance(reason, str) and reason else None,
        arguments=edited,
        expected=_shown_arguments(calls.get(call_id)),
    )


def _shown_arguments(call: dict[str, Any] | None) -> dict[str, JsonValue] | None:
    """The call's arguments in the client's copy of the call."""
    match call:
        case {"function": {"arguments": str(text)}} if isinstance(value := _parse_content(text), dict):
            return value
        case _:
            return None
