"""Markdown with text of models, tools and people in it. That text is escaped, so that it can't pass for ours.

All such text goes through one of these: `inline` for running text, `code` for a name within a line, `block` for what
is copied as it is.
"""

from __future__ import annotations

import json
import re
from typing import Any

from everturn.sizes import SUMMARY_BYTES
from everturn.text.printable import printable, printable_line

FIRST_CHARS = 200

# All that Markdown or HTML may read as its own; and what makes an item of a list at a line's beginning.
_MARKS = re.compile(r"[\\`*_\[\]<>#&|~]|^[-+=]|^\d+(?=[.)])")
_ESCAPES = re.compile(r"\\([\\`*_\[\]<>#&|~\-+=.)])")
_BACKTICKS = re.compile(r"`+")


def inline(text: str) -> str:
    """Running text, on one line, that shows as it was written."""
    return _MARKS.sub(_escape_mark, printable_line(text))


def unescape(markdown: str) -> str:
    """What `inline` was given, on one line."""
    return _ESCAPES.sub(r"\1", markdown)


def first_line(text: str) -> str:
    """The one line that says what a conversation is about: as much of the text as Temporal takes for a summary."""
    words = " ".join(text[: 2 * FIRST_CHARS].split())
    line = words[:FIRST_CHARS]
    summary = inline(line)
    if line != words or len(text) > 2 * FIRST_CHARS:
        summary += "…"
    while summary_bytes(summary) > SUMMARY_BYTES:
        line = line[: len(line) * 9 // 10]
        summary = inline(line) + "…"
    return summary


def summary_bytes(line: str) -> int:
    """As JSON."""
    return len(json.dumps(line, ensure_ascii=False).encode("utf-8", "replace"))


def code(text: str) -> str:
    """A name within a line, as code."""
    line = printable_line(text) or " "
    fence = fence_for(line, shortest=1)
    # Without the spaces, backticks at either end would be read as a part of the fence.
    return f"{fence} {line} {fence}" if "`" in line else f"{fence}{line}{fence}"


def block(language: str, text: str) -> str:
    """Lines of code, which no line of theirs can end."""
    fence = fence_for(text)
    return f"{fence}{language}\n{printable(text)}\n{fence}"


def fence_for(text: str, *, shortest: int = 3) -> str:
    """Backticks to put around a text: more of them than there are in a row within it."""
    longest = max(map(len, _BACKTICKS.findall(text)), default=0)
    return "`" * max(shortest, longest + 1)


def written_json(value: Any) -> str:
    """JSON that can be copied, and that shows what else could not be seen as JSON's own escapes."""
    return printable(json.dumps(value, ensure_ascii=False))


def _escape_mark(mark: re.Match[str]) -> str:
    if mark[0].isdigit():
        return f"{mark[0]}\\"
    return f"\\{mark[0]}"
