"""A conversation on the screen, event by event: what happened in lines, and replies as they are written."""

from __future__ import annotations

from collections import Counter
from typing import assert_never

from everturn import events, names
from everturn.cli.progress import progress_text
from everturn.cli.render import EventLines, cut_off, one_line
from everturn.cli.reply_text import ReplyText
from everturn.cli.terminal import Screen

LiveEvent = events.TextDelta | events.ThinkingDelta | events.ToolProgress | events.TurnRetried | events.TurnLimited


class Narration:
    """`streaming`: replies are shown as they are written."""

    def __init__(self, screen: Screen, *, streaming: bool) -> None:
        self._screen = screen
        self._streaming = streaming
        self._lines = EventLines(width=screen.width, announce=not screen.live)
        self._reply_text = ReplyText(screen)
        self._running: dict[str, str] = {}
        """The running tools by call id, with their progress."""
        self._phase = "waiting for a worker"
        self._thought = ""

    def track_event(self, event: events.Event) -> None:
        """Keeps track of an event without showing anything."""
        match event:
            case events.TurnStarted():
                self._phase = f"turn {event.turn} · thinking"
                self._thought = ""
                self._reply_text = ReplyText(self._screen)
            case events.ToolCalled():
                self._lines.remember_call(event)
            case events.ToolStarted():
                self._running[event.call_id] = event.tool
            case events.ToolFinished():
                self._running.pop(event.result.call_id, None)
            case events.ToolLost():
                self._running.pop(event.call_id, None)
            case events.ApprovalRequested() | events.AnswerRequested():
                self._phase = "waiting for somebody to decide"
            case events.HandedOff():
                self._phase = f"waiting for {event.agent}"
            case events.Replied(final=True):
                self._phase = "waiting for a message"
            case events.MessageReceived() | events.Decided():
                self._phase = "waiting for a worker"
            case events.TurnBatched():
                self._phase = "waiting for a batch"
            case events.WorkerAwaited():
                self._phase = "waiting for a worker that hosts it"
            case events.Stalled():
                self._phase = "stalled"
            case events.Switched():
                self._phase = "waiting for a worker"
                if event.name == names.PAUSE:
                    self._phase = "paused"
            case _:
                pass

    def show_event(self, event: events.Event) -> None:
        """Shows an event that `track_event` was given before."""
        self._print_event(event)
        self.update_spinner()

    def _print_event(self, event: events.Event) -> None:
        if isinstance(event, LiveEvent):
            self._follow_live(event)
        elif self._streaming and isinstance(event, events.Replied):
            self._reply_text.finish_reply(event.message.text)
            self._screen.print_lines(cut_off(event))
        else:
            self._screen.print_lines(self._lines.lines_for(event))

    def _follow_live(self, event: LiveEvent) -> None:
        match event:
            case events.TextDelta():
                self._phase = f"turn {event.turn} · thinking"
                if self._streaming:
                    self._reply_text.add_piece(event.text)
            case events.ThinkingDelta():
                self._phase = f"turn {event.turn} · thinking"
                self._thought = (self._thought + event.text)[-200:]
            case events.ToolProgress():
                self._running[event.call_id] = f"{event.tool} {progress_text(event.progress)}".rstrip()
            case events.TurnRetried():
                self._reply_text.discard_text()
            case events.TurnLimited():
                self._phase = f"waits for {event.provider}'s limit"
            case other:
                assert_never(other)

    def update_spinner(self) -> None:
        """Starts or updates the spinner. It counts the seconds of the turn, of its tools or of a wait as a whole."""
        self._screen.show_busy(self._activity_text(), counted="tools" if self._running else self._phase)

    def _activity_text(self) -> str:
        running = Counter(self._running.values()).items()
        tools = ", ".join(f"{tool} ×{count}" if count > 1 else tool for tool, count in running)
        if tools:
            return one_line(tools, 60)
        if self._thought:
            return f"{self._phase}: … {one_line(self._thought, 200)[-50:]}"
        return self._phase
