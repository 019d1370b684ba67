"""Chat Completions: a message's content as a list of blocks, and as any other JSON.

Mistral's thoughts, references and texts come so (mistralai 3.7.0: ThinkChunk, ReferenceChunk), and so do the replies of
some gateways. Blocks that say no more than a text or a thought are read as these. If one says more, such as a
signature, all go back as they came.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from everturn.providers.base import Delta
from everturn.providers.json_values import a_dict, a_list, a_str, mend_texts
from everturn.records import Message, Opaque, Part, Text, TextKind, Thinking
from everturn.text.utf8 import mend

BLOCK: Final = "block"
"""In a part's `extra`: it was a block of the content, with these fields beside its text."""
AS_TEXT: Final = "as_text"
"""Beside it: the block's thought was a text, and no list of texts."""

_OWN_PLACES: Final = ("index", "id")
"""Fields that say which block a piece belongs to."""

_OF_A_THOUGHT: Final = ("text", "thinking", "content")
"""Fields of an object in which gateways put a thought."""


def is_blocks(content: object) -> bool:
    """Whether a content is a list of blocks, and no JSON of another kind. What is no object is passed over."""
    blocks = [block for block in a_list(content) if isinstance(block, dict)]
    return bool(blocks) and all(isinstance(block.get("type", block.get("text")), str) for block in blocks)


def thought_in(value: object) -> str:
    """The text of a thought: a text, a block with one, or a list of either. What else an object holds, such as the
    effort that was asked for, is no thought."""
    if isinstance(value, list):
        return "".join(map(thought_in, value))
    if not isinstance(value, dict):
        return a_str(value)
    return next((text for name in _OF_A_THOUGHT if (text := thought_in(value.get(name)))), "")


@dataclass(slots=True)
class _ContentBlock:
    type: str
    text_field: str
    """The field of its text: `text`, `thinking`, or empty if it has none."""
    pieces: list[str] = field(default_factory=list)
    fields: dict[str, Any] = field(default_factory=dict)
    """Everything but the type and the text."""
    as_text: bool = False

    @property
    def text(self) -> str:
        return mend("".join(self.pieces))

    @property
    def is_plain(self) -> bool:
        return self.type == self.text_field and not self.fields


@dataclass(slots=True)
class Blocks:
    """The blocks of one reply's content, in their order, as received so far."""

    _found: list[_ContentBlock] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self._found)

    @property
    def is_plain(self) -> bool:
        """Whether all of them say a text or a thought, and nothing else."""
        return all(block.is_plain for block in self._found)

    def add_text(self, text: str) -> None:
        """More text, of a content that is text by now."""
        self._join_block(_ContentBlock("text", "text", [text]), is_whole_reply=False)

    def add_block(self, given: dict[str, Any], *, is_whole_reply: bool) -> Delta | None:
        """Reads a block, or more of the latest one."""
        kind = a_str(given.get("type")) or "text"
        name: TextKind = "thinking" if kind == "thinking" else "text"
        content = given.get(name)
        if isinstance(words := a_dict(content).get("value"), str):  # as OpenAI's Assistants had it
            content = words
        if kind not in {"text", "thinking"} and not isinstance(content, str):
            self._found.append(_ContentBlock(kind, "", fields=dict(given)))
            return None
        fields = {key: value for key, value in given.items() if key not in {"type", name} and value is not None}
        inner = a_list(content)
        if not all(a_dict(item).keys() == {"type", "text"} and item["type"] == "text" for item in inner):
            fields[name] = inner  # a thought with a reference in it
        text = a_str(content) or "".join(a_str(a_dict(item).get("text")) for item in inner)
        block = _ContentBlock(kind, name, [text], fields, as_text=isinstance(content, str))
        self._join_block(block, is_whole_reply=is_whole_reply)
        if not text:
            return None
        return Delta(name, mend(text))

    def _join_block(self, block: _ContentBlock, *, is_whole_reply: bool) -> None:
        if is_whole_reply or not self._found or not _goes_on(self._found[-1], block):
            if block.pieces[0] or block.fields:
                self._found.append(block)
            return
        last_block = self._found[-1]
        last_block.pieces += block.pieces
        for key, value in block.fields.items():
            ours = last_block.fields.get(key)
            if isinstance(ours, list) and isinstance(value, list):
                last_block.fields[key] = [*ours, *value]
            else:
                last_block.fields[key] = value

    def text_of(self, text_field: str) -> str:
        return "".join(block.text for block in self._found if block.text_field == text_field)

    def as_parts(self) -> Iterator[Part]:
        for block in self._found:
            fields = dict(block.fields)
            if block.type != block.text_field:
                fields["type"] = block.type
            fields = mend_texts(fields)
            if block.text_field == "thinking":
                extra: dict[str, Any] = {BLOCK: fields}
                if block.as_text:
                    extra[AS_TEXT] = True
                yield Thinking(text=block.text, extra=extra)
            elif block.text_field:
                yield Text(text=block.text, extra={BLOCK: fields})
            else:
                yield Opaque(data=fields)


def _goes_on(last_block: _ContentBlock, piece: _ContentBlock) -> bool:
    """Whether a piece continues the latest block. What is signed or closed has ended."""
    if last_block.type != piece.type or not last_block.text_field or last_block.fields.get("closed"):
        return False
    if any(last_block.fields.get(key) != piece.fields.get(key) for key in _OWN_PLACES):
        return False
    return not ("signature" in last_block.fields and piece.pieces[0])


def blocks_of(message: Message) -> list[dict[str, Any]]:
    """The content as it came, if it came as blocks that say more than text; else an empty list."""
    if not any(BLOCK in part.extra for part in message.parts if isinstance(part, Text | Thinking)):
        return []
    blocks: list[dict[str, Any]] = []
    for part in message.parts:
        if isinstance(part, Text) and (part.text or BLOCK in part.extra):
            blocks.append({"type": "text", "text": part.text, **a_dict(part.extra.get(BLOCK))})
        elif isinstance(part, Thinking) and BLOCK in part.extra:
            thought = part.text if AS_TEXT in part.extra else [{"type": "text", "text": part.text}]
            blocks.append({"type": "thinking", "thinking": thought, **a_dict(part.extra[BLOCK])})
        elif isinstance(part, Opaque) and a_str(a_dict(part.data).get("type")) not in {"", "custom"}:
            blocks.append(a_dict(part.data))
    return blocks
