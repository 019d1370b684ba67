"""What a page of the AI SDK posts: all its messages, or the newest. The conversation has what was said before, so of
the others only decisions are read: a page may send them late."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, Literal
from urllib.parse import unquote_to_bytes

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.exceptions import HTTPException

from everturn.declared_tools import READER
from everturn.records import Document, Image, Part, Text
from everturn.text.base64_text import as_base64
from everturn.ui.chats import OWN_ID, NewMessage
from everturn.ui.narrator import SeenByPage
from everturn.ui.page_decisions import PageDecision, PageResult
from everturn.ui.page_fields import with_page_fields
from everturn.ui.results import is_waits_below


class _UIMessage(BaseModel):
    model_config = ConfigDict(extra="allow")

    id: str = Field(default="", max_length=400)
    role: Literal["system", "user", "assistant"]
    parts: list[dict[str, Any]] = Field(default=[], max_length=5_000)


class PostedChat(BaseModel):
    id: str = Field(max_length=200)
    messages: list[Any] = Field(min_length=1)
    trigger: Literal["submit-message", "regenerate-message"] = "submit-message"
    messageId: str | None = Field(default=None, max_length=400)  # noqa: N815 - the protocol's spelling

    @property
    def newest(self) -> _UIMessage:
        """The last message; or, if the person decided on calls of an earlier answer, that answer."""
        for message in self.messages[:-1]:
            if isinstance(message, dict) and message.get("role") == "assistant" and message.get("id") == self.messageId:
                return _UIMessage.model_validate(message)
        return _UIMessage.model_validate(self.messages[-1])


@dataclass(frozen=True)
class DecidedOnPage:
    """The person decided on calls, or the page's own tools gave results: the answer goes on with these."""

    message_id: str
    """The page's id for the answer."""
    choices: list[PageDecision]
    outputs: list[PageResult]
    seen: SeenByPage
    messages: list[NewMessage] = field(default_factory=list)
    """What the person said after that answer. It may have been sent before."""


@dataclass(frozen=True)
class SaidOnPage:
    """What the person said after the last answer, in its order. What comes before the last message may have been sent,
    or refused, before; or it never arrived."""

    messages: list[NewMessage]


@dataclass(frozen=True)
class AskedAgain:
    """The page wants a new answer to this message."""

    message: NewMessage
    answer_id: str
    """The page's id for the answer to replace; empty if the page did not give it."""


def read_post(posted: PostedChat) -> SaidOnPage | DecidedOnPage | AskedAgain:
    """Raises HTTPException for a request that a durable conversation can't carry out."""
    last_message = posted.newest
    if not last_message.id:
        raise HTTPException(400, "The message has no id: by it, a message that is sent twice is taken once.")
    if last_message.role == "user":
        message = _user_message(last_message)
        if posted.trigger == "regenerate-message":
            answer_id = posted.messageId or ""
            if answer_id == last_message.id:
                answer_id = ""
            return AskedAgain(message, answer_id=answer_id)
        if posted.messageId is not None and not last_message.id.startswith(OWN_ID):
            raise HTTPException(409, "What was said stays said: a message can't be edited. Send another one.")
        return SaidOnPage([*_said_after_answer(posted.messages[:-1]), message])
    if posted.trigger == "regenerate-message":
        raise HTTPException(400, "An answer that is made anew is one to the user's message, which is to be the last.")
    if last_message.role == "assistant":
        return _read_decisions(last_message, posted)
    raise HTTPException(400, "The last message is to be the user's or the assistant's.")


# ---------------------------------------------------------------- a user's message


_READ: Final[dict[str, set[str]]] = {"text": {"type", "text"}, "file": {"type", "url"}}
"""The fields of parts that the model reads in some form."""


def _user_message(message: _UIMessage) -> NewMessage:
    parts = [_read_part(part) for part in message.parts]
    fields = [
        {name: value for name, value in part.items() if read is None or name not in _READ[part["type"]]}
        for part, read in zip(message.parts, parts, strict=True)
    ]
    more = message.model_extra or {}
    return NewMessage(
        message.id, with_page_fields("ai-sdk", parts, fields, message_id=message.id, message_fields=more), reader=READER
    )


def _read_part(part: dict[str, Any]) -> Part | None:
    """None for a part that is only for the page itself, such as a data part."""
    match part:
        case {"type": "text", "text": str(text)}:
            return Text(text=text)
        case {"type": "file", "url": str(url)}:
            return file_part(url, part.get("mediaType"), part.get("filename"))
        case {"type": "text" | "file"}:
            raise HTTPException(400, "A text part has its text, and a file part its url.")
        case _:
            return None


def file_part(url: str, media_type: Any, name: Any) -> Part:
    """A picture or a document, from a data URL or from a web address. Raises HTTPException."""
    if not isinstance(media_type, str) or not media_type:
        media_type = None
    scheme = url[:8].lower()
    if scheme.startswith("data:"):
        head, comma, data = url[5:].partition(",")
        if not comma:
            raise HTTPException(400, "The file's data URL has no data.")
        kind, *options = head.split(";")
        parameters = [option for option in options if option.lower() != "base64"]  # such as a text's charset
        media_type = media_type or kind or "text/plain"
        if ";" not in media_type:
            media_type = ";".join([media_type, *parameters])
        whole = as_base64(data) if len(parameters) < len(options) else b64encode(unquote_to_bytes(data)).decode()
        if not whole:
            raise HTTPException(400, "The file's data URL is empty, or no base64.")
        source: dict[str, Any] = {"data": whole}
    elif scheme.startswith(("https://", "http://")):
        source = {"url": url}
    else:
        raise HTTPException(400, "A file is a data: URL, or one of http: or https:.")
    if media_type and media_type.lower().startswith("image/"):
        return Image(**source, media_type=media_type)
    return Document(**source, media_type=media_type, name=name[:255] if isinstance(name, str) else "")


# ---------------------------------------------------------------- an answer that goes on


_OVER: Final = ("output-available", "output-error", "output-denied")
"""The states of a call's part that has its result."""


_UNAPPROVED: Final = ("input-streaming", "approval-requested", "approval-responded")
"""The states of a call's part that the page's own tools have not been given yet."""


def _is_result(part: dict[str, Any]) -> bool:
    """Whether what it has is the call's result, and not how far the call is."""
    return not (part.get("preliminary") or is_waits_below(part.get("output")))


def _read_decisions(message: _UIMessage, posted: PostedChat) -> DecidedOnPage:
    choices: list[PageDecision] = []
    outputs: list[PageResult] = []
    for part in _calls_in(_readable_answers(posted)):
        call_id = part["toolCallId"]
        approval = part.get("approval")
        match part.get("state"):
            case "approval-responded" if isinstance(question := _question_of(part), str) and isinstance(approval, dict):
                choices.append(_read_choice(call_id, question, approval, part.get("input")))
            case "output-available" if _is_result(part):
                outputs.append(PageResult(call_id, part.get("output")))
            case "output-error":
                outputs.append(PageResult(call_id, str(part.get("errorText") or "It failed."), is_error=True))
            case _:
                pass
    parts = _calls_in([message])
    seen = SeenByPage(
        calls=frozenset(part["toolCallId"] for part in parts),
        results=frozenset(part["toolCallId"] for part in parts if part.get("state") in _OVER and _is_result(part)),
        questions=frozenset(question for part in parts if (question := _question_of(part)) is not None),
        unapproved=frozenset(part["toolCallId"] for part in parts if part.get("state") in _UNAPPROVED),
    )
    return DecidedOnPage(message.id, choices, outputs, seen, _said_after_answer(posted.messages))


def _readable_answers(posted: PostedChat) -> list[_UIMessage]:
    """The messages of the assistant, as far as they can be read: the page may keep others beside them."""
    answers: list[_UIMessage] = []
    for message in posted.messages:
        if isinstance(message, dict) and message.get("role") == "assistant":
            with suppress(ValidationError):
                answers.append(_UIMessage.model_validate(message))
    return answers


def _calls_in(messages: Sequence[_UIMessage]) -> list[dict[str, Any]]:
    return [part for message in messages for part in message.parts if isinstance(part.get("toolCallId"), str)]


def _question_of(part: dict[str, Any]) -> str | None:
    match part.get("approval"):
        case {"id": str(question)}:
            return question
        case _:
            return None


def _said_after_answer(messages: Sequence[Any]) -> list[NewMessage]:
    """The user's messages at the end. What can't be read was refused before, and keeps nothing else back."""
    new_messages: list[NewMessage] = []
    for written in reversed(messages):
        if isinstance(written, dict) and written.get("role") == "assistant":
            break
        with suppress(ValidationError, HTTPException):
            message = _UIMessage.model_validate(written)
            if message.role == "user" and message.id and not message.id.startswith(OWN_ID):
                new_messages.insert(0, _user_message(message))
    return new_messages


def _read_choice(call_id: str, question: str, approval: dict[str, Any], shown_input: Any) -> PageDecision:
    approved = approval.get("approved")
    reason = approval.get("reason")
    if not isinstance(approved, bool):
        raise HTTPException(400, "An approval says whether it was approved.")
    return PageDecision(
        question_id=question,
        call_id=call_id,
        approved=approved,
        reason=reason if isinstance(reason, str) and reason else None,
        expected=shown_input if isinstance(shown_input, dict) else None,
    )
