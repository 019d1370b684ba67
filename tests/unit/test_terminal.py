"""What is typed and what is spoken, on a terminal: without one."""

from __future__ import annotations

import io
from types import SimpleNamespace

import pytest
from rich.console import Console

from everturn import events
from everturn.cli import terminal
from everturn.cli.approval_prompt import NotEdited, parse_arguments
from everturn.cli.narration import Narration
from everturn.cli.render import first_line
from everturn.cli.reply_text import ReplyText
from everturn.cli.terminal import Screen
from everturn.records import Message, ToolCall


@pytest.fixture
def screen() -> Screen:
    screen = Screen()
    screen.console = Console(file=io.StringIO(), width=30, highlight=False, soft_wrap=True)
    screen.live = True
    return screen


def shown(screen: Screen) -> str:
    assert isinstance(screen.console.file, io.StringIO)
    return screen.console.file.getvalue()


SAID = "It is a lamp, and it was broken on arrival.\n\nso it goes\n    back"


@pytest.mark.parametrize("size", [1, 4, 1000])
def test_a_reply_is_spoken_in_whole_words_and_lines_that_fit(
    screen: Screen, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    monkeypatch.setattr(Screen, "width", 30)
    spoken = ReplyText(screen)
    for start in range(0, len(SAID) - 4, size):
        spoken.add_piece(SAID[: len(SAID) - 4][start : start + size])
    spoken.finish_reply(SAID)
    assert [line.rstrip() for line in shown(screen).splitlines()] == [
        "● It is a lamp, and it was",
        "  broken on arrival.",
        "",
        "  so it goes",
        "      back",
    ]


def test_markdown_is_shown_as_what_it_means_once_it_is_whole(screen: Screen, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Screen, "width", 30)
    said = "It is **a lamp**, and it was broken on arrival.\n\n- so it goes"
    spoken = ReplyText(screen)
    for start in range(0, len(said) - 2, 7):
        spoken.add_piece(said[: len(said) - 2][start : start + 7])
    spoken.finish_reply(said)
    written, back, again = shown(screen).partition("\r\x1b[3A\x1b[J")  # four rows, and it stands in the last
    assert len(written.splitlines()) == 4, written
    assert back, "what was written is taken back"
    assert [line.strip() for line in again.splitlines()] == [
        "● It is a lamp, and it was",
        "broken on arrival.",
        "",
        "• so it goes",
    ]


def test_markdown_stays_as_it_was_written_if_something_came_between(screen: Screen) -> None:
    spoken = ReplyText(screen)
    spoken.add_piece("One **two** ")
    screen.print_line("  ! call_model, try 2")
    spoken.finish_reply("One **two** three")
    assert [line.rstrip() for line in shown(screen).splitlines()] == [
        "● One **two**",
        "  ! call_model, try 2",
        "  three",
    ]


def test_what_comes_between_begins_a_line_and_a_turn_that_starts_over_says_so(screen: Screen) -> None:
    spoken = ReplyText(screen)
    spoken.add_piece("One two ")
    screen.print_line("  ! call_model, try 2")
    spoken.add_piece("three ")
    spoken.discard_text()
    spoken.add_piece("Four \x1b[2Jfive")
    spoken.finish_reply("Four \x1b[2Jfive")
    assert [line.rstrip() for line in shown(screen).splitlines()] == [
        "● One two",
        "  ! call_model, try 2",
        "  three",
        "  ! the model was interrupted, and starts again",
        "● Four \\u001b[2Jfive",
    ]


def test_a_reply_that_is_not_what_was_spoken_is_shown_whole(screen: Screen) -> None:
    spoken = ReplyText(screen)
    spoken.add_piece("Some ")
    spoken.finish_reply("Another")
    assert shown(screen).splitlines()[-1] == "● Another"


@pytest.mark.parametrize(
    ("text", "line"),
    [("one", "one"), ("", ""), ("\n\none\ntwo", "one … 1 more line"), ("a  b\nc\nd", "a b … 2 more lines")],
)
def test_a_result_is_folded_to_its_first_line(text: str, line: str) -> None:
    assert first_line(text, 60) == line


@pytest.mark.parametrize(("written", "why"), [("", "empty file"), ("{", "not JSON"), ("[1]", "JSON object")])
def test_an_edit_that_is_none_says_why(written: str, why: str) -> None:
    with pytest.raises(NotEdited, match=why):
        parse_arguments(written)


def test_the_spinner_counts_a_turn_whatever_is_thought_in_it_and_tools_whatever_they_tell(
    screen: Screen, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr(terminal, "time", SimpleNamespace(monotonic=lambda: now[0]))
    narration = Narration(screen, streaming=False)

    def after(seconds: float, event: events.Event) -> str:
        now[0] += seconds
        narration.track_event(event)
        narration.show_event(event)
        return str(screen._doing.__rich__())

    asked = ToolCall(call_id="a", name="fetch", arguments={})
    try:
        assert after(0, events.TurnStarted(turn=1)) == "turn 1 · thinking · 0 s"
        assert after(3, events.ThinkingDelta(turn=1, text="A lamp")) == "turn 1 · thinking: … A lamp · 3 s"
        assert (
            after(4, events.ThinkingDelta(turn=1, text=", it seems")) == "turn 1 · thinking: … A lamp, it seems · 7 s"
        )
        after(0, events.Replied(turn=1, message=Message(role="assistant", parts=(asked,))))
        assert after(0, events.ToolStarted(turn=1, call_id="a", tool="fetch")) == "fetch · 0 s"
        told = events.ToolProgress(turn=1, call_id="a", tool="fetch", progress="half of it")
        assert after(5, told) == "fetch half of it · 5 s"
        assert after(1, events.TurnStarted(turn=2)).endswith("· 6 s")
    finally:
        screen.stop_spinner()
