"""What a tool returned or raised, as what the model is told."""

from __future__ import annotations

import json
from functools import partial
from pathlib import PurePath
from typing import Any

from pydantic import PydanticUserError
from pydantic_core import PydanticSerializationError, to_jsonable_python

from everturn.blocks import parts_in, read_block, says_error
from everturn.errors import ToolFailed
from everturn.records import Document, Image, Text
from everturn.schemas import InvalidArguments

NO_OUTPUT = "(no output)"
"""For None and the empty string. `null` reads like a failure after a tool that only acts, and some providers refuse
an empty text."""

MAX_ERROR_CHARS = 2_000


def to_parts(value: Any) -> tuple[Text | Image | Document, ...]:
    """What a tool returned, as parts: a text, an image, a document, a list of these, or anything else as compact JSON.

    Content blocks as dicts, such as Anthropic's or MCP's `{"type": "image", ...}`, are what they mean; a result of
    MCP's that says `isError` raises ToolFailed with its texts.
    NaN and infinities are written as `NaN` and `Infinity`, lone surrogates are replaced. Raises TypeError for what
    JSON can't hold: bytes, structures that contain themselves, objects of classes that pydantic does not know.
    """
    if isinstance(value, Text | Image | Document | str):
        return (_part(value),)
    if isinstance(value, list | tuple) and any(isinstance(item, Text | Image | Document) for item in value):
        value = [read_block(item) or item for item in value]
        for index, item in enumerate(value):
            if not isinstance(item, Text | Image | Document | str):
                raise TypeError(
                    f"The tool returned a list with parts, but its item {index} is {_kind(item)}. "
                    "Put only Text, Image, Document and str in it."
                )
        return tuple(_part(item) for item in value)
    if (blocks := parts_of_blocks(value)) is not None:
        if says_error(value):
            raise ToolFailed("\n".join(part.text for part in blocks if isinstance(part, Text)) or "It failed.")
        return blocks
    return (_part(NO_OUTPUT if value is None else to_json(value)),)


def parts_of_blocks(value: Any) -> tuple[Text | Image | Document, ...] | None:
    """What content blocks say; None for a value that is something else. What is no block among them becomes JSON."""
    found = parts_in(value)
    if found is None:
        return None
    return tuple(_part(one if isinstance(one, Text | Image | Document | str) else to_json(one)) for one in found)


def to_json(value: Any) -> str:
    """Compact JSON, without escapes for what is not ASCII; raises TypeError as `to_parts` does."""
    if isinstance(value, bytes | bytearray | memoryview):
        raise TypeError(
            f"The tool returned {_kind(value)}. Return a str, or "
            "Image(data=base64.b64encode(...).decode(), media_type='image/png')."
        )
    try:
        return well_formed(_dump(value))
    except (PydanticSerializationError, PydanticUserError, TypeError, ValueError, RecursionError) as error:
        raise TypeError(
            f"The tool returned {_kind(value)}, which can't be written as JSON ({well_formed(str(error))}). "
            "Return a str, JSON values, a pydantic model, a dataclass or an Image."
        ) from error


def error_text(error: BaseException) -> str:
    """What the model is told of an exception: of ToolFailed its message exactly, of any other `TypeName: message`.

    At most 2,000 characters of those others, and never a traceback.
    """
    try:
        message = well_formed(str(error))
    except Exception:  # noqa: BLE001 - a broken __str__ must not hide that the tool failed
        message = ""
    if isinstance(error, ToolFailed | InvalidArguments):
        return message
    text = f"{type(error).__name__}: {message}" if message else type(error).__name__
    return text if len(text) <= MAX_ERROR_CHARS else text[: MAX_ERROR_CHARS - 1] + "…"


def well_formed(text: str) -> str:
    """The text with surrogate pairs joined and lone surrogates replaced, since UTF-8 can't carry them."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def _dump(value: Any) -> str:
    try:
        return _write(value)
    except TypeError:  # a key that is no string, such as a date, which only pydantic turns into one
        return _write(_plain(value))


def _plain(value: Any) -> Any:
    if isinstance(value, Image | Document):
        kind = type(value).__name__
        raise ValueError(f"{kind} can only be returned by itself or in a list of Text, Image and Document")
    return to_jsonable_python(value, inf_nan_mode="constants", fallback=_fallback)


# Not pydantic's own to_json, which stops at the first lone surrogate.
_write = partial(json.dumps, ensure_ascii=False, separators=(",", ":"), default=_plain)


def _fallback(value: Any) -> Any:
    if isinstance(value, PurePath):
        return str(value)
    raise ValueError(f"{_kind(value)} is not JSON")


def _part(value: Text | Image | Document | str) -> Text | Image | Document:
    if isinstance(value, Image | Document):
        return value
    # str.__str__: a StrEnum's own value, where str() may give its name.
    return Text(text=well_formed(value.text if isinstance(value, Text) else str.__str__(value)) or NO_OUTPUT)


def _kind(value: Any) -> str:
    name = type(value).__name__
    return f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"
