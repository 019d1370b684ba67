"""What a model wrote in Markdown, as lines for a terminal."""

from __future__ import annotations

from everturn.cli.markdown_text import markdown_lines

WRITTEN = """# The order

It was **broken**, see [the photo](https://example.com/lamp).

- a lamp
- a bulb

| item | cents |
|---|---|
| lamp | 3490 |

```python
print("x")
```
"""


def test_headings_lists_tables_and_code_are_shown_as_what_they_mean() -> None:
    shown = "\n".join(line.plain for line in markdown_lines(WRITTEN, width=60))
    assert "The order" in shown
    assert "# The order" not in shown
    assert "It was broken" in shown
    assert "• a lamp" in shown
    assert "|---|" not in shown
    assert 'print("x")' in shown


def test_a_link_shows_where_it_leads_and_no_escape_gets_through() -> None:
    lines = markdown_lines("[your bank](https://evil.example) \x1b]8;;https://x\x07gnp.\u202eexe", width=80)
    shown = "\n".join(line.plain for line in lines)
    assert "https://evil.example" in shown
    assert "\x1b" not in shown
    assert "\u202e" not in shown
    assert not any("link" in str(span.style) for line in lines for span in line.spans)


def test_every_line_fits_where_a_line_can_be_broken() -> None:
    lines = markdown_lines("word " * 100, width=40)
    assert len(lines) > 10
    assert all(line.cell_len <= 40 for line in lines)


def test_no_text_is_lost_in_html() -> None:
    shown = "\n".join(line.plain for line in markdown_lines("<div>whole</div>\n\na <b>bold</b> move, 1 < 2", width=80))
    assert "<div>whole</div>" in shown
    assert "a <b>bold</b> move, 1 < 2" in shown
