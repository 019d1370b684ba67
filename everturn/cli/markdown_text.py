"""What a model wrote in Markdown, as lines for a terminal."""

from __future__ import annotations

from io import StringIO

from markdown_it import MarkdownIt
from rich.console import Console
from rich.markdown import Markdown
from rich.text import Text

from everturn.text.printable import printable


def markdown_lines(written: str, *, width: int) -> list[Text]:
    """Headings, lists, tables, code and emphasis, in lines of at most `width` cells.

    A link shows its address, since its text may name another one. The terminal gets no control characters from it.
    """
    console = Console(file=StringIO(), width=max(width, 20), force_terminal=True, highlight=False)
    document = Markdown("", hyperlinks=False)
    # HTML is shown as written: Rich would leave it out.
    parser = MarkdownIt("commonmark", {"html": False}).enable(["strikethrough", "table"])
    document.parsed = parser.parse(printable(written))
    lines = [
        Text.assemble(*((part.text, part.style or "") for part in line)) for line in console.render_lines(document)
    ]
    for line in lines:
        line.rstrip()
    while lines and not lines[-1].plain:
        lines.pop()
    while lines and not lines[0].plain:
        lines.pop(0)
    return lines
