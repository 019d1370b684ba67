"""What an AG-UI client posts to run the agent: what is new in its messages, and its answers to interrupts."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import BaseModel, Field, JsonValue
from starlette.exceptions import HTTPException

from everturn.declared_tools import check_declared, with_front_end
from everturn.errors import InvalidTool
from everturn.records import Document, Image, Part, Text
from everturn.ui.ai_sdk_request import file_part
from everturn.ui.chats import OWN_ID, NewMessage, PageDecision, PageResult
from everturn.ui.narrator import SeenByPage


class _AgUiMessage(BaseModel):
    id: str = Field(default="", max_length=400)
    role: str
    content: Any = None
    toolCallId: str = ""  # noqa: N815 - the protocol's spelling
    toolCalls: list[dict[str, Any]] | None = None  # noqa: N815
    error: str | None = None


class _Resume(BaseModel):
    interruptId: str  # noqa: N815
    status: Literal["resolved", "cancelled"]
    payload: Any = None


class _Declared(BaseModel):
    name: str
    description: str = ""
    parameters: dict[str, JsonValue] | None = None


class _Context(BaseModel):
    description: str
    value: JsonValue


class RunInput(BaseModel):
    """The fields of AG-UI's RunAgentInput that are used here."""

    threadId: str = Field(max_length=200)  # noqa: N815
    runId: str = Field(min_length=1, max_length=500)  # noqa: N815
    messages: list[_AgUiMessage] = []
    resume: list[_Resume] | None = None
    tools: list[_Declared] | None = None
    context: list[_Context] | None = None
    state: JsonValue = None


@dataclass(frozen=True)
class RunAsked:
    """What the run is to do: say something, decide on calls, or only continue."""

    said: list[NewMessage] = field(default_factory=list)
    choices: list[PageDecision] = field(default_factory=list)
    outputs: list[PageResult] = field(default_factory=list)
    seen: SeenByPage = field(default_factory=SeenByPage)

    @property
    def decides(self) -> bool:
        return bool(self.choices or self.outputs)


def read(run: RunInput) -> RunAsked:
    """Raises HTTPException."""
    calls = {str(call.get("id")): call for message in run.messages for call in message.toolCalls or ()}
    results = {message.toolCallId for message in run.messages if message.role == "tool"}
    said: list[NewMessage] = []
    outputs: list[PageResult] = []
    for message in reversed(run.messages):  # what follows the agent's last words
        if message.role == "user" and not message.id.startswith(OWN_ID):
            said.insert(0, _said(message))
        elif message.role == "tool" and message.id != f"result-{message.toolCallId}":
            outputs.insert(0, _output(message))
        elif message.role == "assistant":
            break
    if said:
        said[-1] = _with_front_end(said[-1], run)
    choices = [_choice(one, calls) for one in run.resume or ()]
    asked = frozenset(one.question_id for one in choices)
    return RunAsked(said, choices, outputs, SeenByPage(frozenset(calls), frozenset(results), asked))


def _said(message: _AgUiMessage) -> NewMessage:
    if not message.id:
        raise HTTPException(400, "The message has no id: by it, a message that is sent twice is taken once.")
    content = message.content
    if isinstance(content, str):
        return NewMessage(message.id, [Text(text=content)])
    if not isinstance(content, list):
        raise HTTPException(400, "A user's message has a text or a list of parts as its content.")
    return NewMessage(message.id, [_part(part) for part in content])


def _with_front_end(said: NewMessage, run: RunInput) -> NewMessage:
    tools: list[dict[str, JsonValue]] = [one.model_dump(exclude_none=True) for one in run.tools or ()]
    try:
        check_declared(tools)
    except InvalidTool as error:
        raise HTTPException(400, f"{error.message} {error.cure}") from None
    shown = [(one.description, one.value) for one in run.context or ()]
    shown += [("its state", run.state)] if run.state not in (None, "", {}, []) else []
    message = with_front_end(said.parts, tools=tools, shown=shown)
    return NewMessage(said.message_id, [*message.parts], reader=message.provider)


def _part(part: Any) -> Part:
    match part:
        case {"type": "text", "text": str(text)}:
            return Text(text=text)
        case {"type": "image", "source": {"type": "data", "value": str(data), "mimeType": str(media_type)}}:
            return Image(data=data, media_type=media_type)
        case {"type": "document", "source": {"type": "data", "value": str(data), "mimeType": str(media_type)}}:
            return Document(data=data, media_type=media_type)
        case {"type": "image" | "document" as kind, "source": {"type": "url", "value": str(url), **more}}:
            return file_part(url, more.get("mimeType") or ("image/*" if kind == "image" else None), None)
        case {"type": str(kind)}:
            raise HTTPException(400, f"A part of the kind {kind[:50]!r} can't be sent, or lacks its source.")
        case _:
            raise HTTPException(400, "A part of a message has its type.")


def _output(message: _AgUiMessage) -> PageResult:
    if message.error is not None:
        return PageResult(message.toolCallId, message.error or "It failed.", is_error=True)
    return PageResult(message.toolCallId, _as_json(message.content))


def _as_json(content: Any) -> JsonValue:
    if isinstance(content, list):
        return "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    text = content if isinstance(content, str) else ""
    try:
        value: JsonValue = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return value if isinstance(value, dict | list) else text


def _choice(entry: _Resume, calls: dict[str, dict[str, Any]]) -> PageDecision:
    """A cancelled interrupt counts as a denial: the conversation needs an approval or a denial to go on."""
    call_id = entry.interruptId.rpartition(".")[0]
    if entry.status == "cancelled":
        return PageDecision(entry.interruptId, call_id, approved=False, reason="cancelled by the user")
    payload = entry.payload if isinstance(entry.payload, dict) else {"approved": entry.payload}
    approved, edited, reason = payload.get("approved"), payload.get("editedArgs"), payload.get("reason")
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
        expected=_shown(calls.get(call_id)),
    )


def _shown(call: dict[str, Any] | None) -> dict[str, JsonValue] | None:
    """The call's arguments in the client's copy of the call."""
    match call:
        case {"function": {"arguments": str(text)}} if isinstance(value := _as_json(text), dict):
            return value
        case _:
            return None
