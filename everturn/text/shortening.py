"""How a text that is too long is cut, and the notice that says so.

`shortened` adds a notice with how much is shown, `shortened_line` does the same within a line. Models read both.
`clipped` leaves only "…": it is for lines that people read, in a list, a log or an error.
"""

from __future__ import annotations

from everturn.sizes import size_of


def shortened(
    text: str,
    *,
    max_bytes: int,
    max_chars: int | None = None,
    notice: str = "",
    chars_before: int = 0,
    total: int | None = None,
) -> str:
    """The text's beginning with a notice, in `max_bytes` of JSON without the quotes around it; if there is no room for
    more, only the notice. `chars_before`: so many characters of `total` are shown already."""
    if (max_chars is None or len(text) <= max_chars) and _fits_within(text, max_bytes):
        return text
    if total is None:
        total = len(text)
    room = max_bytes - size_of(_cut_notice(total, total, notice))
    beginning = text
    if max_chars is not None:
        beginning = text[: max(0, max_chars)]
    while beginning and not _fits_within(beginning, room):
        beginning = beginning[: len(beginning) * max(0, room) // size_of(beginning)]
    return beginning + _cut_notice(chars_before + len(beginning), total, notice)


def shortened_line(line: str, max_chars: int) -> str:
    """The line's first `max_chars`, and beside them a notice if there are more."""
    if len(line) <= max_chars:
        return line
    return f"{line[:max_chars]} {_cut_notice(max_chars, len(line), '').lstrip()}"


def clipped(line: str, max_chars: int) -> str:
    """The line; if it is longer than `max_chars`, its beginning, with "…" for the rest: `max_chars` together."""
    if len(line) <= max_chars:
        return line
    return f"{line[: max(max_chars - 1, 0)]}…"


def _fits_within(text: str, max_bytes: int) -> bool:
    return 6 * len(text) <= max_bytes or (len(text) <= max_bytes and size_of(text) - 2 <= max_bytes)


def _cut_notice(chars_shown: int, total: int, more: str) -> str:
    more = more.replace("{shown}", str(chars_shown))
    return f"\n[Cut: {chars_shown:,} of {total:,} characters are shown.{more and f' {more}'}]"
