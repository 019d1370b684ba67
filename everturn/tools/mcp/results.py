"""What an MCP server returned, as what the model is told: each thing once."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from everturn.errors import ToolFailed
from everturn.records import Document, Image, Text
from everturn.tools.results import to_json
from everturn.vendors.content_blocks import FAILED, NO_OUTPUT, read_block

if TYPE_CHECKING:
    from mcp import types

REPEATED_CHARS: Final = 200
"""A field of the structured content that has more is not written again if a text has said it."""

WRAPPERS: Final = ("result", "content")
"""Names of an only field that say nothing: FastMCP puts what is no object into `result`."""

SHOWN: Final = "(already shown)"
"""In the place of what the model has got already."""


def parts_of(result: types.CallToolResult) -> list[Text | Image | Document]:
    """Its content, and of its structured content what the content does not say. Raises ToolFailed, with all of it, if
    it is an error."""
    content = [_to_part(block) for block in result.content]
    texts = [part.text for part in content if isinstance(part, Text)]
    rest = _unsaid_content(result.structured_content, texts, [_as_dict(block) for block in result.content])
    parts = [*_with_addresses(result.content, content), *rest]
    if len(parts) > 1:
        parts = [part for part in parts if not isinstance(part, Text) or part.text.strip()]
    parts = list(_without_data_again(parts))
    if result.is_error:
        words = "\n".join(part.text for part in parts if isinstance(part, Text))
        raise ToolFailed(words or FAILED, parts=[part for part in parts if not isinstance(part, Text)])
    return parts or [Text(text=NO_OUTPUT)]


def _to_part(block: types.ContentBlock) -> Text | Image | Document:
    if block.type == "resource_link":
        title = f" {block.title!r}" if block.title and block.title != block.name else ""
        about = f" ({block.mime_type})" if block.mime_type else ""
        description = f": {block.description}" if block.description else ""
        return Text(text=f"[resource {block.name}{title}{about} at {block.uri}{description}]")
    written = _as_dict(block)
    return read_block(written) or Text(text=to_json(written))


def _with_addresses(
    blocks: Sequence[types.ContentBlock], parts: Sequence[Text | Image | Document]
) -> Iterator[Text | Image | Document]:
    """Of several texts of resources, each says whose it is. One alone is what was asked for."""
    several = sum(block.type == "resource" for block in blocks) > 1
    for block, part in zip(blocks, parts, strict=True):
        if several and block.type == "resource" and isinstance(part, Text):
            yield Text(text=f"[resource {block.resource.uri}]\n{part.text}")
        else:
            yield part


def _as_dict(block: types.ContentBlock) -> dict[str, Any]:
    written = block.model_dump(mode="json", by_alias=True, exclude_none=True)
    return {key: value for key, value in written.items() if key not in ("annotations", "_meta")}


# ---------------------------------------------------------------- structured content
#
# Servers write it as a text, too, as the protocol asks for; or its only field (FastMCP wraps what is no object as the
# `result` of one; server-memory 2026.8 has {"entities": [...]} beside the list); or each item of a list as a text of
# its own; or the content blocks themselves.


def _unsaid_content(structured: Any, texts: Sequence[str], blocks: list[dict[str, Any]]) -> list[Text]:
    """What the content leaves out of the structured content: nothing, or all of it but long fields that it repeats."""
    if structured is None or (structured == {"result": None} and not blocks):  # a tool that only acts
        return []
    said_values = _SaidValues(texts, blocks)
    if said_values.says_whole(structured):
        return []
    if not isinstance(structured, dict):
        return [Text(text=to_json(structured))]
    if len(structured) == 1:
        return _unsaid_field(*next(iter(structured.items())), said_values)
    fields = {name: SHOWN if said_values.says_at_length(value) else value for name, value in structured.items()}
    return [Text(text=to_json(fields))]


def _unsaid_field(name: str, value: Any, said_values: _SaidValues) -> list[Text]:
    """The only field: without its name, a text `false` says nothing."""
    if not said_values.says_whole(value):
        return [Text(text=to_json({name: value}))]
    if name in WRAPPERS:
        return []
    is_long = isinstance(value, list | dict) or said_values.says_at_length(value)
    return [Text(text=to_json({name: SHOWN if is_long else value}))]


class _SaidValues:
    """What the content says, as JSON values in one form of writing, so that 1 is neither true nor 1.0."""

    def __init__(self, texts: Sequence[str], blocks: list[dict[str, Any]]) -> None:
        self._forms = [_forms_of(text) for text in texts]
        self._values = {form for forms in self._forms for form in forms}
        values: list[Any] = [blocks]
        if len(blocks) == 1:
            values.append(blocks[0])
        self._blocks = {_canonical_json(_without_nulls(value)) for value in values if value}

    def says_whole(self, value: Any) -> bool:
        """Whether one text, or all together, or the blocks say all of the value."""
        if _canonical_json(value) in self._values or _canonical_json(_without_nulls(value)) in self._blocks:
            return True
        return isinstance(value, list) and self._says_each(value)

    def says_at_length(self, value: Any) -> bool:
        return len(_canonical_json(value)) > REPEATED_CHARS and self.says_whole(value)

    def _says_each(self, items: list[Any]) -> bool:
        """Whether each item has a text of its own. They come in the same order, with other texts between them."""
        forms = iter(self._forms)
        return bool(items) and all(any(_canonical_json(item) in texts for texts in forms) for item in items)


def _forms_of(text: str) -> tuple[str, ...]:
    """The text itself, and the value that it is written for."""
    try:
        return _canonical_json(text), _canonical_json(json.loads(text))
    except (ValueError, RecursionError):
        return (_canonical_json(text),)


def _canonical_json(value: Any) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False)


def _without_nulls(value: Any) -> Any:
    """Content blocks without what says nothing: FastMCP writes their fields that are null."""
    if isinstance(value, list):
        return [_without_nulls(item) for item in value]
    if isinstance(value, dict):
        beside = ("annotations", "_meta")
        return {name: _without_nulls(item) for name, item in value.items() if item is not None and name not in beside}
    return value


def _without_data_again(parts: Sequence[Text | Image | Document]) -> Iterator[Text | Image | Document]:
    """Without the base64 of pictures and files in texts, where it would come a second time."""
    held = [part.data for part in parts if not isinstance(part, Text) and part.data and len(part.data) > REPEATED_CHARS]
    for part in parts:
        if isinstance(part, Text):
            text = part.text
            for data in held:
                text = text.replace(data, SHOWN)
            yield part if text == part.text else Text(text=text)
        else:
            yield part
