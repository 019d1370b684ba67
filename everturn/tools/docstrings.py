"""Reads a function's docstring: the description of the function and of its parameters."""

from __future__ import annotations

import inspect
import textwrap
from typing import Any

import docstring_parser
from docstring_parser import google

_SECTIONS = frozenset(section.title for section in google.DEFAULT_SECTIONS)


def read_docstring(target: Any) -> tuple[str, dict[str, str]]:
    """Description and parameters' descriptions, from Google, NumPy, Sphinx or plain docstrings."""
    text = inspect.getdoc(target) or ""
    try:
        # The line break keeps the parser from dedenting all lines but the first once more.
        parsed = docstring_parser.parse(f"\n{_with_indented_section(text)}")
    except docstring_parser.ParseError:
        return text, {}
    parameters = {param.arg_name: param.description for param in parsed.params if param.description}
    return (parsed.description or "").strip(), parameters


def _with_indented_section(text: str) -> str:
    """Indents a docstring that begins with `Args:` again: dedenting has moved that section's lines to the margin."""
    title, _, rest = text.partition("\n")
    if title.rstrip(":") not in _SECTIONS or not title.endswith(":") or rest.lstrip("\n").startswith(" "):
        return text
    return f"{title}\n{textwrap.indent(rest, '    ')}"
