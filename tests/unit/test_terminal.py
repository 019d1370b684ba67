"""What is typed and what is spoken, on a terminal: without one."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from everturn.cli.editor import NotEdited, arguments_of
from everturn.cli.line import Line
from everturn.cli.render import first_line
from everturn.cli.spoken import Spoken
from everturn.cli.terminal import Screen

LEFT, UP, DOWN, HOME, WORD_LEFT = "\x1b[D", "\x1b[A", "\x1b[B", "\x1b[H", "\x1b[1;5D"


@pytest.mark.parametrize(
    ("typed", "text"),
    [
        ("hello", "hello"),
        ("helo" + LEFT + "l", "hello"),
        ("hellooo" + "\x7f" * 2, "hello"),
        ("ello" + HOME + "h", "hello"),
        ("one two three" + WORD_LEFT * 2 + "\x0b", "one "),
        ("one two" + "\x17", "one "),
        ("rubbish\x15fine", "fine"),
        ("ab" + LEFT + "\x04", "a"),
        ("grün 日本" + LEFT + "\x7f", "grün 本"),
        ("\x1b[200~two\r\nlines\x1b[201~!", "two\nlines!"),
        ("no\x1b[15~ commands\x1b[99;1u\x07", "no commands"),
        (UP, "second"),
        (UP + UP + UP, "first"),
        ("draft" + UP + DOWN, "draft"),
        (UP + UP + DOWN + " more", "second more"),
    ],
)
@pytest.mark.parametrize("size", [1, 3, 1000])
def test_keys_make_a_line_however_they_come(typed: str, text: str, size: int) -> None:
    line = Line(earlier=["first", "second"])
    pieces = [typed[start : start + size] for start in range(0, len(typed), size)]
    assert [line.feed(piece) for piece in pieces] == [False] * len(pieces)
    assert line.text == text
    assert line.feed("\r")


def test_ctrl_d_ends_the_input_on_an_empty_line_only() -> None:
    line = Line("x")
    assert not line.feed("\x04")
    with pytest.raises(EOFError):
        line.feed("\x7f\x04")


@pytest.fixture
def screen() -> Screen:
    screen = Screen()
    screen.console = Console(file=io.StringIO(), width=30, highlight=False, soft_wrap=True)
    screen.live = True
    return screen


def shown(screen: Screen) -> str:
    assert isinstance(screen.console.file, io.StringIO)
    return screen.console.file.getvalue()


SAID = "It is a lamp, and it was broken on arrival.\n\n- so it goes\n    back"


@pytest.mark.parametrize("size", [1, 4, 1000])
def test_a_reply_is_spoken_in_whole_words_and_lines_that_fit(
    screen: Screen, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    monkeypatch.setattr(Screen, "width", 30)
    spoken = Spoken(screen)
    for start in range(0, len(SAID) - 4, size):
        spoken.add(SAID[: len(SAID) - 4][start : start + size])
    spoken.finish(SAID)
    assert [line.rstrip() for line in shown(screen).splitlines()] == [
        "● It is a lamp, and it was",
        "  broken on arrival.",
        "",
        "  - so it goes",
        "      back",
    ]


def test_what_comes_between_begins_a_line_and_a_turn_that_starts_over_says_so(screen: Screen) -> None:
    spoken = Spoken(screen)
    spoken.add("One two ")
    screen.line("  ! call_model, try 2")
    spoken.add("three ")
    spoken.void()
    spoken.add("Four \x1b[2Jfive")
    spoken.finish("Four \x1b[2Jfive")
    assert [line.rstrip() for line in shown(screen).splitlines()] == [
        "● One two",
        "  ! call_model, try 2",
        "  three",
        "  ! the model was interrupted, and starts again",
        "● Four \N{REPLACEMENT CHARACTER}[2Jfive",
    ]


def test_a_reply_that_is_not_what_was_spoken_is_shown_whole(screen: Screen) -> None:
    spoken = Spoken(screen)
    spoken.add("Some ")
    spoken.finish("Another")
    assert shown(screen).splitlines()[-1] == "● Another"


@pytest.mark.parametrize(
    ("text", "line"),
    [("one", "one"), ("", ""), ("\n\none\ntwo", "one … 1 more line"), ("a  b\nc\nd", "a b … 2 more lines")],
)
def test_a_result_is_folded_to_its_first_line(text: str, line: str) -> None:
    assert first_line(text, 60) == line


@pytest.mark.parametrize(("written", "why"), [("", "Nothing was left"), ("{", "not JSON"), ("[1]", "JSON object")])
def test_an_edit_that_is_none_says_why(written: str, why: str) -> None:
    with pytest.raises(NotEdited, match=why):
        arguments_of(written)
