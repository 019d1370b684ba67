"""A conversation on the screen, event by event: what happened in lines, and replies as they are written."""

from __future__ import annotations

from collections import Counter
from typing import assert_never

from everturn import events, names
from everturn.cli.progress import progress_text
from everturn.cli.render import EventLines, cut_off, folded
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

    def take(self, event: events.Event) -> None:
        """Keeps track of an event without showing anything."""
        match event:
            case events.TurnStarted():
                self._phase, self._thought = f"turn {event.turn} · thinking", ""
                self._reply_text = ReplyText(self._screen)
            case events.ToolCalled():
                self._lines.take(event)
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
            case events.WorkerAwaited():
                self._phase = "waiting for a worker that hosts it"
            case events.Stalled():
                self._phase = "stalled"
            case events.Switched():
                self._phase = "paused" if event.name == names.PAUSE else "waiting for a worker"
            case _:
                pass

    def show(self, event: events.Event) -> None:
        """Shows an event that `take` was given before."""
        self._tell(event)
        self.spin()

    def _tell(self, event: events.Event) -> None:
        if isinstance(event, LiveEvent):
            self._follow(event)
        elif self._streaming and isinstance(event, events.Replied):
            self._reply_text.finish(event.message.text)
            self._screen.lines(cut_off(event))
        else:
            self._screen.lines(self._lines.of(event))

    def _follow(self, event: LiveEvent) -> None:
        match event:
            case events.TextDelta():
                self._phase = f"turn {event.turn} · thinking"
                if self._streaming:
                    self._reply_text.add(event.text)
            case events.ThinkingDelta():
                self._phase, self._thought = f"turn {event.turn} · thinking", (self._thought + event.text)[-200:]
            case events.ToolProgress():
                self._running[event.call_id] = f"{event.tool} {progress_text(event.progress)}".rstrip()
            case events.TurnRetried():
                self._reply_text.void()
            case events.TurnLimited():
                self._phase = f"waits for {event.provider}'s limit"
            case other:
                assert_never(other)

    def spin(self) -> None:
        """Starts or updates the spinner. It counts the seconds of the turn, of its tools or of a wait as a whole."""
        self._screen.busy(self._doing(), counted="tools" if self._running else self._phase)

    def _doing(self) -> str:
        running = Counter(self._running.values()).items()
        tools = ", ".join(f"{tool} ×{count}" if count > 1 else tool for tool, count in running)
        thought = f": … {folded(self._thought, 200)[-50:]}" if self._thought else ""
        return folded(tools, 60) or self._phase + thought
