"""Text that acts on a terminal, or hides from who reads it."""

from __future__ import annotations

from everturn.text.printable import printable

HIDDEN = [
    *map(chr, [*range(9), *range(0x0B, 0x20), *range(0x7F, 0xA0)]),  # C0, DEL, C1
    *map(chr, [0x61C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A)]),  # of direction
    *map(chr, [0xAD, 0x180E, 0x200B, 0x200C, 0x200D, 0x2060, 0x2061, 0x3164, 0xFEFF, 0xFE0F, 0xFFF9]),  # without width
    *map(chr, [0x2028, 0x2029]),
    *map(chr, [0xD800, 0xDBFF, 0xDC00, 0xDFFF]),
    *map(chr, [0xE0001, 0xE0041, 0xE0100, 0x1D173]),
]


EVIL = "\x1b]0;owned\x07\x1b[2J\x9b31m\x85\x7f\u202egnp.exe\u2066\u200b\ufeff\u2028\U000e0041"
"""Moves the cursor, retitles the window, turns itself round, and hides."""


def raw(text: str) -> list[str]:
    """What would act on a terminal, or hide from who reads."""
    return [f"U+{ord(one):04X}" for one in text if one not in "\n\t" and printable(one) != one]
