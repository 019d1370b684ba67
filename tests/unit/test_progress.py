"""What a tool says of its progress, in a few words."""

from __future__ import annotations

from typing import Any

import pytest

from everturn.cli.progress import progress_text


@pytest.mark.parametrize(
    ("progress", "shown"),
    [
        (None, ""),
        ("packing 3 parcels", "packing 3 parcels"),
        ("two\nlines \x1b[31m", "two lines \\u001b[31m"),
        (0.0, "▱▱▱▱▱▱▱▱▱▱ 0 %"),
        (0.45, "▰▰▰▰▱▱▱▱▱▱ 45 %"),
        (1.0, "▰▰▰▰▰▰▰▰▰▰ 100 %"),
        (0.999, "▰▰▰▰▰▰▰▰▰▱ 99 %"),
        (1, "1"),
        (17.5, "17.5"),
        ([3, 4], "▰▰▰▰▰▰▰▱▱▱ 75 %"),
        ([3, 0], "[3, 0]"),
        ({"progress": 1, "total": 4, "message": "reading"}, "▰▰▱▱▱▱▱▱▱▱ 25 % reading"),
        ({"done": 0.5, "step": "half"}, "▰▰▰▰▰▱▱▱▱▱ 50 % half"),
        ({"progress": 1200}, "1,200"),
        ({"progress": 3, "message": "rows"}, "rows 3"),
        ({"message": "still there"}, "still there"),
        ({"progress": 5, "total": 4}, '{"progress": 5, "total": 4}'),
        ({"progress": True, "total": 4}, '{"progress": true, "total": 4}'),
        ({"rows": 7}, '{"rows": 7}'),
        ("x" * 100, "x" * 59 + "…"),
    ],
)
def test_progress_is_a_bar_if_it_is_a_share_and_words_if_it_is_words(progress: Any, shown: str) -> None:
    assert progress_text(progress) == shown
