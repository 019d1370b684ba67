"""What the tests of several protocols share: texts, pictures, files and settings to draw, and ids to compare."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from hypothesis import strategies as st

from everturn.records import Document, Image, Text

texts = st.text(max_size=20)
pictures = st.sampled_from([Image(data="AAAA", media_type="image/png"), Image(url="https://x/y.png")])
files = st.sampled_from(
    [
        Document(data="AAAA", media_type="application/pdf"),
        Document(url="https://x/y.pdf", name="y"),
        Document(data="!", media_type="text/plain"),
    ]
)
said = st.lists(st.one_of(st.builds(Text, text=texts), pictures, files), max_size=3).map(tuple)
values = st.dictionaries(texts, st.one_of(st.none(), st.integers(), texts, st.lists(texts, max_size=2)), max_size=3)

options = st.fixed_dictionaries(
    {},
    optional={
        "max_output_tokens": st.integers(1, 99),
        "temperature": st.floats(0, 2),
        "reasoning_effort": st.sampled_from(["none", "low", "max"]),
        "tool_choice": st.sampled_from(["auto", "none", "required", "weather"]),
        "parallel_calls": st.booleans(),
        "stream": st.booleans(),
    },
)


def drawn_out(value: Any) -> Any:
    """pydantic checks what is an Iterable only as it is drawn from: so draw from all of it."""
    if isinstance(value, Mapping):
        return {name: drawn_out(inner) for name, inner in value.items()}
    if isinstance(value, str | bytes | int | float | None):
        return value
    return [drawn_out(inner) for inner in value] if isinstance(value, list | Iterator) else value


def unmarked(call_id: str) -> str:
    """An id that we made, without the mark of the response that it is of."""
    return re.sub(r"^(call_\d+_\d+)_[0-9a-f]{8}$", r"\1", call_id)
