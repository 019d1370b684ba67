"""Text that is safe to show."""

from __future__ import annotations

import json
import unicodedata

import pytest

from everturn.text.printable import printable, printable_line
from tests.support.hostile import HIDDEN


@pytest.mark.parametrize("character", HIDDEN, ids=lambda one: f"U+{ord(one):04X}")
def test_what_is_not_seen_or_changes_what_is_seen_is_written_out(character: str) -> None:
    for text in (character, f"a{character}b", f"文{character}文", f"{character}{character}"):
        shown = printable(text)
        assert character not in shown
        assert shown.encode().decode() == shown
        assert json.loads(f'"{shown}"') == text, "the same text, as JSON writes it"


SEEN = {
    # Signs of Arabic, Syriac, Kaithi and Egyptian, which have a shape of their own.
    *range(0x0600, 0x0606),
    *(0x06DD, 0x070F, 0x0890, 0x0891, 0x08E2, 0x110BD, 0x110CD),
    *range(0x13430, 0x13440),
}


def test_no_control_separator_or_format_character_is_left_beside_latin_letters() -> None:
    left = {
        point
        for point in range(0x110000)
        if unicodedata.category(chr(point)) in ("Cc", "Cf", "Cs", "Zl", "Zp")
        and chr(point) not in "\n\t"
        and chr(point) in printable(f"a{chr(point)}b")
    }
    assert left <= SEEN


@pytest.mark.parametrize(
    "text",
    [
        "plain, with\ttabs\nand lines",
        "שלום עולם, 12 ₪",
        "مرحبا بالعالم",
        "می‌خواهم",  # Persian, with U+200C between its letters
        "क्‍ष",  # with U+200D
        "א\u200f!",
        "👨‍👩‍👧 ❤️‍🔥 1️⃣ ▶️ ☺︎",
        "日本語、한국어, ไทย",
        "naïve – “quotes” … e\u0301",
        "back\\slash \\u202e",
    ],
)
def test_what_people_write_stays_as_it_is(text: str) -> None:
    assert printable(text) == text


def test_a_name_that_reads_as_another_one_is_seen_through() -> None:
    assert printable("invoice\u202excod.exe") == "invoice\\u202excod.exe"
    assert printable("pay\u200bpal") == "pay\\u200bpal"
    assert printable("\x1b]0;title\x07\x9b31m") == "\\u001b]0;title\\u0007\\u009b31m"


def test_what_comes_after_the_basic_plane_is_written_in_two_halves() -> None:
    assert printable("a\U000e0041") == "a\\udb40\\udc41"


def test_windows_line_ends_are_line_ends_and_a_lone_return_is_none() -> None:
    assert printable("a\r\nb\rc") == "a\nb\\u000dc"


def test_on_one_line() -> None:
    assert printable_line(" a\n\tb\u2028c\u202e ") == "a b c\\u202e"
