"""A person and a conversation, in turns: what `everturn chat` does between its first prompt and its last."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any
from uuid import uuid4

from rich.text import Text

from everturn import events, names
from everturn.cli.connect import Connection
from everturn.cli.follow import Follower
from everturn.cli.output import print_result
from everturn.cli.render import marked_markdown, transcript_lines
from everturn.cli.terminal import Screen
from everturn.client.conversation import Conversation
from everturn.errors import Ended, EverturnError, NotFound, Unreachable
from everturn.records import Message

KEEP_OPEN = timedelta(days=7)
SHOWN_EXCHANGES = 2
"""How many exchanges of an earlier conversation are shown when somebody comes back to it."""

LOOK_SECONDS = 0.3
"""The pause between two checks whether a cancelled answer is over."""

RESUME_CONTINUES = "  /resume continues it."

OVER = "■ The conversation is over. Your next message continues it."
HELP = "Ctrl-C leaves the conversation running, /quit or Ctrl-D closes it, /resume [MODEL] continues after a stall."
PROMPT = Text.assemble(("▸", "bold cyan"), " ")


class ChatSession:
    def __init__(
        self, place: Connection, name: str, screen: Screen, *, approve_all: bool, labels: Mapping[str, Any] = {}
    ) -> None:
        self._place = place
        self._labels = labels
        """The tenant and metadata for a new conversation."""
        self._screen = screen
        self._approve_all = approve_all
        self._conversation: Conversation = place.client.conversation(name)
        self._follower: Follower | None = None
        self._streaming = screen.live and sys.stdout.isatty()
        self._sent_messages: list[str] = []
        self._is_held = False
        """Whether the last thing shown was that it stalls or is paused."""
        self.begun = False
        """Whether there is a conversation to come back to."""
        self.closed = False
        """Whether the conversation was closed."""

    async def talk_until_left(self, *, begun: Callable[[], None]) -> None:
        """Talks until the person closes the conversation. `begun` is called once there is one."""
        await self._show_earlier()
        while True:
            try:
                self._screen.print_line()
                line = await self._screen.ask_line(PROMPT, earlier=self._sent_messages)
            except EOFError:
                self._screen.print_line("")
                break
            if line == "/quit":
                break
            if line.startswith("/resume"):
                await self._resume_conversation(line.removeprefix("/resume").strip())
            elif line.startswith("/"):
                self._screen.print_line(HELP, style="dim")
            elif line:
                begun()
                await self._send_message(line)
        self.closed = await self._close_conversation()

    async def _show_earlier(self) -> None:
        """Shows where the conversation was left, and waits for what still goes on."""
        self._screen.stop_spinner()
        self._screen.print_line(HELP, style="dim")
        cursor = await self._current_cursor()
        if cursor is None:
            return
        self.begun = True
        messages = _last_exchanges(await self._conversation.transcript())
        self._screen.print_lines(transcript_lines(messages, width=self._screen.width))
        status = await self._conversation.status()
        match status.state:
            case "idle":
                pass
            case "done":
                self._screen.print_line(OVER, style="bold")
            case "stalled":
                self._screen.print_line(f"! stalled: {status.cause} {status.cure or ''} Then: /resume", style="red")
            case "paused":
                self._screen.print_line("◆ The conversation is paused. /resume continues it.", style="yellow")
            case _:
                run_id = cursor.partition("/")[0]
                self._follower = self._make_follower(since=f"{run_id}/0", seen=cursor)
                await self._wait_for_answer()

    async def _send_message(self, text: str) -> None:
        client = self._place.client
        name = self._conversation.id
        how: dict[str, Any] = {"keep_open": KEEP_OPEN, "message_id": uuid4().hex, "stream": self._streaming}
        cursor = await self._current_cursor()
        if cursor is None:
            await client.start(self._place.agent, text, id=name, model=self._place.model, **how, **self._labels)
        else:
            await client.send(self._place.agent, text, id=name, **how)
        self.begun = True
        self._sent_messages.append(text)
        if self._follower is None:
            self._follower = self._make_follower(since=cursor)
        self._follower.expect_message(text)
        if not (self._is_held and await self._is_still_held()):
            await self._wait_for_answer()

    async def _resume_conversation(self, model: str) -> None:
        try:
            if self._follower is None:
                self._follower = self._make_follower(since=await self._current_cursor())
            try:
                await self._conversation.resume(model=model or None)
            except Ended:
                self._screen.print_line(OVER, style="bold")
                return
            await self._wait_for_answer()
        except EverturnError as error:
            self._screen.print_line(f"! {error}", style="red")

    async def _wait_for_answer(self) -> None:
        assert self._follower is not None
        self._is_held = False
        while True:
            match await self._follower.next_stop():
                case events.Stalled() as stall:
                    self._is_held = True
                    self._show_stall(stall.cause, stall.cure)
                    return
                case events.Switched(name=names.PAUSE):
                    self._is_held = True
                    self._screen.print_line(RESUME_CONTINUES, style="dim")
                    return
                case events.Switched():
                    if await self._is_left_idle():
                        return
                case events.Done() as done:
                    self._follower = None
                    if reason := done.why or (done.outcome and done.outcome.reason):
                        self._screen.print_line(f"■ {reason}", style="bold")
                    return
                case events.Replied() as replied:
                    if not self._streaming:
                        _print_reply(replied.message.text)
                    if await self._is_at_rest():
                        return

    async def _is_still_held(self) -> bool:
        """Whether what is said now waits, too, since nobody has resumed it: no event will say so once more."""
        try:
            status = await self._conversation.status()
        except Unreachable:
            return False
        if status.state == "stalled":
            self._show_stall(status.cause or "", status.cure)
        elif status.state == "paused":
            self._screen.print_line(RESUME_CONTINUES, style="dim")
        return status.state in ("stalled", "paused")

    def _show_stall(self, cause: str, cure: str | None) -> None:
        words = " ".join(filter(None, (cause, cure)))
        self._screen.print_line(f"! stalled: {words} Then: /resume", style="red")

    async def _is_at_rest(self) -> bool:
        """Whether no answer is still to come. There may be one if somebody else has sent a message meanwhile."""
        try:
            return (await self._conversation.status()).state in ("idle", "done", "paused")
        except Unreachable:
            return True

    async def _is_left_idle(self) -> bool:
        """Waits for the end of an answer that somebody cancelled. Whether the conversation is idle then: a message of
        somebody else may be answered next, and it ends if it is not kept open."""
        while True:
            try:
                by_history = await self._conversation.by_history()
            except Unreachable:
                return True
            state = by_history.state
            if not (state.answering and state.cancelled):
                return state.is_idle and not by_history.signals.has_message
            await asyncio.sleep(LOOK_SECONDS)

    async def _close_conversation(self) -> bool:
        """Closes the conversation. True if nothing of it is left to come back to."""
        try:
            await self._conversation.close()
            async with asyncio.timeout(5):
                await self._conversation.outcome()
        except (NotFound, Ended):
            return True
        except (EverturnError, TimeoutError) as error:
            self._screen.print_line(
                f"! The conversation could not be closed: {error or 'it took too long'}", style="red"
            )
            return False
        return True

    async def _current_cursor(self) -> str | None:
        """The current cursor; None if there is no conversation yet."""
        try:
            return await self._conversation.cursor()
        except NotFound:
            return None

    def _make_follower(self, *, since: str | None, seen: str = "") -> Follower:
        return Follower(
            self._conversation,
            screen=self._screen,
            temporal=self._place.client.temporal,
            approve_all=self._approve_all,
            prefix=self._place.prefix,
            since=since,
            seen=seen,
            show_messages=True,
            streaming=self._streaming,
        )


def _last_exchanges(messages: Sequence[Message]) -> Sequence[Message]:
    """The messages from the user's last but one on."""
    starts = [index for index, message in enumerate(messages) if message.role == "user"]
    if not starts:
        return messages
    return messages[starts[-SHOWN_EXCHANGES:][0] :]


def _print_reply(text: str) -> None:
    if sys.stdout.isatty():
        screen = Screen(to_stdout=True)
        screen.print_line(marked_markdown(text, width=screen.width))
    else:
        print_result(text)
