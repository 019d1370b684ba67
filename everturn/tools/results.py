"""Turns what a tool returned or raised into what the model is told."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import fields, is_dataclass
from functools import partial
from itertools import islice
from pathlib import PurePath
from typing import Any

from pydantic import BaseModel, PydanticUserError
from pydantic_core import PydanticSerializationError, to_jsonable_python

from everturn.errors import ToolFailed
from everturn.records import Document, Image, Text, ToolCall, ToolResult
from everturn.sizes import MAX_ERROR_BYTES
from everturn.system.json_numbers import compact_json
from everturn.text.base64_text import as_base64
from everturn.text.shortening import shortened
from everturn.text.utf8 import mend
from everturn.tools import raised, user_code
from everturn.tools.unwritten_results import UnwrittenResult
from everturn.vendors.content_blocks import FAILED, NO_OUTPUT, parts_in, read_block, says_error

ERROR_SECONDS = 2.0
"""How long an exception's `__str__` may take."""

MAX_ERRORS = 10
"""Of a group: the words of so many are shown."""

MAX_CAUSES = 3
"""How many of the errors that an error was raised from, one from the other, are shown."""

MAX_ITEMS = 100_000
"""The most items of an iterator, which may never end. A list may have more."""


def to_parts(value: Any) -> tuple[Text | Image | Document, ...]:
    """What a tool returned, as parts: a text, an image, a document, a list of these, or anything else as compact JSON.

    Content blocks as dicts, such as Anthropic's or MCP's `{"type": "image", ...}`, become parts; an MCP result with
    `isError` raises ToolFailed with its texts.
    NaN and infinities are written as the texts "NaN" and "Infinity", lone surrogates are replaced. Raises TypeError for
    what JSON can't hold: bytes, structures that contain themselves, objects of classes that pydantic does not know, an
    iterator of more than 100,000 items, or one within an object; and for images and documents whose data is not
    base64: a provider would refuse them in this request and all that follow.
    """
    if isinstance(value, Text | Image | Document | str):
        return (_to_part(value),)
    if isinstance(value, list | tuple) and any(isinstance(item, Text | Image | Document) for item in value):
        value = [read_block(item) or item for item in value]
        for index, item in enumerate(value):
            if not isinstance(item, Text | Image | Document | str):
                raise TypeError(
                    f"The tool returned a list with parts, but its item {index} is {_type_with_article(item)}. Put "
                    "only Text, Image, Document and str into it."
                )
        return tuple(_to_part(item) for item in value)
    if (blocks := parts_of_blocks(value)) is not None:
        if says_error(value):
            words = "\n".join(part.text for part in blocks if isinstance(part, Text))
            raise ToolFailed(words or FAILED, parts=[part for part in blocks if not isinstance(part, Text)])
        return blocks
    if isinstance(value, float):  # by itself it is words, and no JSON: NaN needs no quotes
        return (_to_part(json.dumps(float(value))),)
    return (_to_part(NO_OUTPUT if value is None else to_json(value)),)


def result_of(call: ToolCall, value: Any) -> ToolResult:
    """What the model is told of a call whose tool has returned this value, or has raised it. A ToolResult stays as it
    is. Raises TypeError as `to_parts` does."""
    if isinstance(value, ToolResult):
        return value
    error: BaseException | None = None
    content: tuple[Text | Image | Document, ...] = ()
    if isinstance(value, BaseException):
        error = value
    else:
        try:
            content = to_parts(value)
        except ToolFailed as failed:  # an MCP result that says so of itself
            error = failed
    if error is not None:
        content = (Text(text=error_text(error)), *parts_of_error(error))
    return ToolResult(call_id=call.call_id, name=call.name, content=content, is_error=error is not None)


def parts_of_error(error: BaseException) -> tuple[Text | Image | Document, ...]:
    """What a ToolFailed has besides its message; what is no part is told as that."""
    if not isinstance(error, ToolFailed):
        return ()
    parts: list[Text | Image | Document] = []
    for part in error.parts:
        try:
            parts += to_parts(part)
        except Exception as problem:  # noqa: BLE001 - the failure itself must reach the model
            parts.append(_to_part(error_text(problem)))
    return tuple(parts)


def parts_of_blocks(value: Any) -> tuple[Text | Image | Document, ...] | None:
    """Content blocks as parts; None if the value has none. Other items among them become JSON."""
    blocks = parts_in(value)
    if blocks is None:
        return None
    parts = tuple(
        _to_part(block if isinstance(block, Text | Image | Document | str) else to_json(block)) for block in blocks
    )
    return parts or (_to_part(FAILED if says_error(value) else NO_OUTPUT),)


def to_json(value: Any) -> str:
    """Compact JSON, without escapes for what is not ASCII; raises TypeError as `to_parts` does."""
    if isinstance(value, bytes | bytearray | memoryview):
        raise TypeError(
            f"The tool returned {_type_with_article(value)}. Return a str, or "
            "Image(data=base64.b64encode(...).decode(), media_type='image/png')."
        )
    try:
        return mend(_dump_json(value))
    except (PydanticSerializationError, PydanticUserError, TypeError, ValueError, RecursionError) as error:
        raise TypeError(
            f"The tool returned {_type_with_article(value)}, which can't be written as JSON ({mend(str(error))}). "
            "Return a str, JSON values, a pydantic model, a dataclass or an Image."
        ) from error


def error_text(error: BaseException) -> str:
    """What the model is told of an exception: ToolFailed's exact message; for any other, `TypeName: message`, and
    what it was raised from. Of a group (a TaskGroup's), the texts of the exceptions in it.

    All but ToolFailed's is cut to MAX_ERROR_BYTES. Never a traceback.
    """
    if isinstance(error, UnwrittenResult):
        return _after_effect(error)
    if not isinstance(error, BaseExceptionGroup):
        return _text_of_one(error)
    errors = [*islice(raised.errors_in(error), MAX_ERRORS + 1)]
    if len(errors) == 1:
        return _text_of_one(errors[0])
    texts = [f"- {_text_of_one(inside)}" for inside in errors[:MAX_ERRORS]]
    if len(errors) > MAX_ERRORS:
        texts.append("- …")
    text = "\n".join([_name_and_words(error), *texts])
    return shortened(text, max_bytes=MAX_ERROR_BYTES)


def _after_effect(error: UnwrittenResult) -> str:
    """For a tool that ran. A TypeError of ours says itself what is wrong with the value."""
    text = "The tool ran, and what it did stands: do not call it again to get its result, which can't be shown."
    if isinstance(error.__cause__, TypeError):
        text = f"{text} {_words_of(error.__cause__)}"
    elif error.__cause__ is not None:
        text = f"{text} {error_text(error.__cause__)}"
    return shortened(text, max_bytes=MAX_ERROR_BYTES)


def _text_of_one(error: BaseException) -> str:
    if isinstance(error, raised.PLAIN_WORDS):
        return _words_of(error) or user_code.class_name(error)
    text = _name_and_words(error)
    cause = error.__cause__
    for _ in range(MAX_CAUSES):
        if cause is None:
            break
        inside = [*islice(raised.errors_in(cause), MAX_ERRORS)]
        text = f"{text} (from {'; '.join(map(_name_and_words, inside))})"
        cause = cause.__cause__
    return shortened(text, max_bytes=MAX_ERROR_BYTES)


def _name_and_words(error: BaseException) -> str:
    name = user_code.class_name(error)
    words = _words_of(error)
    if not words:
        return name
    return f"{name}: {words}"


def _words_of(error: BaseException) -> str:
    try:
        return mend(str(error))
    except Exception:  # noqa: BLE001 - a broken __str__ must not hide that the tool failed
        return ""


async def safe_error_text(error: BaseException, *, whole: bool = False) -> str:
    """`error_text` of a user's exception, with a timeout: its `__str__` is the user's code, and may hang. Cut to
    MAX_ERROR_BYTES, unless it is wanted `whole`: that is for the model, in a result, which is cut later."""
    try:
        text = await user_code.in_thread(partial(error_text, error), seconds=ERROR_SECONDS)
    except Exception:  # noqa: BLE001 - whatever goes wrong with its words, its name is left
        return user_code.class_name(error)
    if whole:
        return text
    return shortened(text, max_bytes=MAX_ERROR_BYTES)


async def safe_text(value: object) -> str:
    """The words of a user's value, with a timeout; the name of its class if it can't be written."""
    try:
        return await user_code.in_thread(lambda: mend(str(value)), seconds=ERROR_SECONDS)
    except Exception:  # noqa: BLE001 - its __str__ is the user's code
        return user_code.class_name(value)


def _dump_json(value: Any) -> str:
    try:
        return _write(value)
    except TypeError:  # a key that is no string, such as a date, which only pydantic turns into one
        return _write(_to_plain(value))


def _to_plain(value: Any) -> Any:
    if isinstance(value, Image | Document):
        kind = type(value).__name__
        raise ValueError(f"{kind} can only be returned by itself or in a list of Text, Image and Document")
    if isinstance(value, Iterator):
        return _list_items(value)
    if (iterator := iterator_in(value, seen=set())) is not None:
        raise ValueError(f"it holds {_type_with_article(iterator)}, which may never end: make it a list")
    return to_jsonable_python(value, inf_nan_mode="strings", fallback=_fallback_text)


def _list_items(value: Iterator[Any]) -> list[Any]:
    """The items as a list. Pydantic would read an endless iterator in one go, without letting another thread run."""
    items = list(islice(value, MAX_ITEMS + 1))
    if len(items) > MAX_ITEMS:
        raise ValueError(f"it has more than {MAX_ITEMS:,} items, or never ends: return a list of those that matter")
    return items


def iterator_in(value: Any, *, seen: set[int]) -> Iterator[Any] | None:
    """An iterator inside the value, which pydantic would read to its end, or for ever; None if there is none."""
    if isinstance(value, Iterator):
        return value
    children: Iterable[Any] = ()
    if isinstance(value, Mapping):
        children = value.values()
    elif isinstance(value, list | tuple | Set):
        children = value
    elif isinstance(value, BaseModel):
        children = [*vars(value).values(), *(value.model_extra or {}).values()]
    elif is_dataclass(value) and not isinstance(value, type):
        children = [getattr(value, field.name) for field in fields(value)]
    if children and id(value) not in seen:
        seen.add(id(value))
        iterators = (iterator_in(child, seen=seen) for child in children)
        return next((iterator for iterator in iterators if iterator is not None), None)
    return None


# Not pydantic's own to_json, which fails at a lone surrogate.
_write = partial(compact_json, default=_to_plain)


def _fallback_text(value: Any) -> Any:
    if isinstance(value, PurePath):
        return str(value)
    raise ValueError(f"{_type_with_article(value)} is not JSON")


def _to_part(value: Text | Image | Document | str) -> Text | Image | Document:
    if isinstance(value, Image | Document):
        return _with_checked_data(value)
    # str.__str__: a StrEnum's own value, while str() may give its name.
    text = value.text if isinstance(value, Text) else str.__str__(value)
    return Text(text=mend(text) or NO_OUTPUT)


def _with_checked_data(part: Image | Document) -> Image | Document:
    if not part.data or (data := as_base64(part.data)) == part.data:
        return part
    if not data:
        raise TypeError(
            f"The tool returned {_type_with_article(part)} whose data is not base64. Write "
            f"{type(part).__name__}(data=base64.b64encode(...).decode(), media_type=...)."
        )
    return part.model_copy(update={"data": data})


def _type_with_article(value: Any) -> str:
    name = type(value).__name__
    return f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"
