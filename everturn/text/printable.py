"""Text that is safe to show: what a terminal, a log or a page would act on or hide is written out instead.

An escape sequence moves the cursor or retitles the window, U+202E turns `txt.exe` round, and characters without width
make two names look the same. What models, tools and strangers wrote goes through here before anybody sees it.
"""

from __future__ import annotations

import re
from typing import Final

_CONTROLS: Final = r"\x00-\x08\x0b-\x1f\x7f-\x9f"  # not tab and line feed: `printable` keeps those
_BIDI: Final = r"\u202a-\u202e\u2066-\u2069"
_LINES: Final = r"\u2028\u2029"
_INVISIBLE: Final = (
    r"\u00ad\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u2060-\u2065\u206a-\u206f\u3164\ufeff\uffa0\ufff9-\ufffb"
)
_ASTRAL: Final = r"\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
_SURROGATES: Final = r"\ud800-\udfff"

_RIGHT_TO_LEFT: Final = (
    r"[\u0590-\u061b\u061d-\u08ff\ufb1d-\ufdff\ufe70-\ufefc\U00010800-\U00010fff\U0001e800-\U0001eeff]"
)
_JOINED: Final = r"[\u0620-\u109f\u1780-\u18af\ufb50-\ufdff\ufe70-\ufefc\U00010d00-\U00010d3f\U00011000-\U000114ff]"
_PICTURE: Final = r"[#*0-9\u00a9\u00ae\u2000-\u200a\u2010-\u2027\u2030-\u205f\u2070-\u33ff\U0001f000-\U0001faff]"
_AFTER_PICTURE: Final = r"[\u2190-\u33ff\ufe0f\U0001f000-\U0001faff]"

_SELDOM: Final = re.compile(
    rf"[{_CONTROLS}{_BIDI}{_LINES}{_INVISIBLE}{_ASTRAL}{_SURROGATES}\u200c-\u200f\u061c\ufe00-\ufe0f]"
)
"""What may be unsafe: most texts have none of it, and one look is enough for those."""

_UNSAFE: Final = (
    f"[{_CONTROLS}{_BIDI}{_LINES}{_INVISIBLE}{_ASTRAL}{_SURROGATES}]"
    # Persian and the scripts of India join letters with these, and families of emoji; between others they only hide.
    rf"|(?<!{_JOINED})(?<!{_AFTER_PICTURE})[\u200c\u200d]|[\u200c\u200d](?!{_JOINED}|{_AFTER_PICTURE})"
    # Marks of direction, beside a letter that has one.
    rf"|(?<!{_RIGHT_TO_LEFT})[\u200e\u200f\u061c](?!{_RIGHT_TO_LEFT})"
    # What chooses between a sign's picture and its letter.
    rf"|[\ufe00-\ufe0d]|(?<!{_PICTURE})[\ufe0e\ufe0f]"
)


def printable(text: str) -> str:
    r"""The text with all that is not seen, or that changes how other text is seen, as JSON writes it: `\u202e`.

    Line feeds and tabs stay; of text in Arabic, Hebrew, Persian or Hindi, and of emoji, whatever they need. Inside the
    strings of a JSON text nothing changes in meaning, so JSON may be made printable as a whole.
    """
    if not _SELDOM.search(text):
        return text
    return re.sub(_UNSAFE, _escape_match, text.replace("\r\n", "\n"))


def printable_line(text: str) -> str:
    """The same on one line: white space of every kind becomes one space."""
    return printable(" ".join(text.split()))


def _escape_match(match: re.Match[str]) -> str:
    units = match.group().encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[index]:02x}{units[index + 1]:02x}" for index in range(0, len(units), 2))
