"""Follows one conversation for a person who waits for it: shows what happens, and asks when a person has to decide."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress
from typing import Any

from temporalio.api.enums.v1 import TimeoutType

from everturn import events, names
from everturn.calls.causes import read_cause
from everturn.cli.approval_prompt import ApprovalPrompt
from everturn.cli.narration import LiveEvent, Narration
from everturn.cli.render import marked_text, one_line
from everturn.cli.terminal import Screen
from everturn.client.conversation import Conversation
from everturn.temporal import temporal_errors

RETRY_GLANCE_SECONDS = 2.0

LOST = TimeoutType.TIMEOUT_TYPE_HEARTBEAT
LOST_IN_WORDS = "its worker was lost, or could not reach Temporal"

Stop = events.Replied | events.Stalled | events.Switched | events.Done
"""The events at which the caller has to act: a final reply, a stall, a pause, the end; and a cancellation or a reset,
after which no reply may come."""

STOPPING = (names.PAUSE, names.CANCEL_TURN, events.RESET)


class Follower:
    """`next_stop` follows to the next stop. On the way, it shows all events and asks for the decisions.

    `since`, `seen`: cursors of one run. It reads from the first on, and shows what comes after the second.
    `streaming`: replies are shown as they come, final ones too.
    """

    def __init__(
        self,
        conversation: Conversation,
        *,
        screen: Screen,
        temporal: Any,
        approve_all: bool = False,
        prefix: str = "",
        since: str | None = None,
        seen: str = "",
        show_messages: bool = False,
        streaming: bool = False,
    ) -> None:
        self._conversation = conversation
        self._temporal = temporal
        self._screen = screen
        self._prompt = ApprovalPrompt(conversation, screen=screen, approve_all=approve_all, prefix=prefix)
        self._show_messages = show_messages
        self._streaming = streaming
        self._events = conversation.events(since, deltas=screen.live)
        self._seen = _split_cursor(seen)
        self._narration = Narration(screen, streaming=streaming)
        self._expected: Counter[str] = Counter()
        if since:
            self._prompt.nudge()  # no event will come for what waits already

    def expect_message(self, text: str) -> None:
        """Don't show the next message with this text: the person typed it here."""
        self._expected[text] += 1

    async def next_stop(self) -> Stop:
        """Shows what happens until the next stop. Raises Ended if the history breaks off."""
        self._narration.update_spinner()
        stop = asyncio.create_task(self._until_stop())
        beside = [
            asyncio.create_task(self._prompt.ask_until_cancelled()),
            asyncio.create_task(self._glance_at_retries()),
        ]
        try:
            done, _ = await asyncio.wait({stop, *beside}, return_when=asyncio.FIRST_COMPLETED)
            for task in done.intersection(beside):
                task.result()  # these two tasks end only with an error
            return await stop
        finally:
            for task in (stop, *beside):
                task.cancel()
            await asyncio.wait({stop, *beside})
            self._screen.stop_spinner()

    async def _until_stop(self) -> Stop:
        async for event in self._events:
            self._prompt.track_event(event)
            self._narration.track_event(event)
            if self._is_seen(event):
                continue
            if self._is_to_be_shown(event):
                self._narration.show_event(event)
            match event:
                case events.Replied(final=True) | events.Stalled() | events.Done():
                    return event
                case events.Switched(name=name) if name in STOPPING:
                    return event
                case _:
                    pass
        raise temporal_errors.breaks_off(self._conversation.id)

    def _is_seen(self, event: events.Event) -> bool:
        run, position = _split_cursor(event.cursor)
        live = isinstance(event, LiveEvent) or bool(event.child)
        return not live and run == self._seen[0] and position <= self._seen[1]

    def _is_to_be_shown(self, event: events.Event) -> bool:
        match event:
            case events.Replied(final=True):
                return self._streaming
            case events.Stalled() | events.Done():
                return False  # the caller shows it
            case events.MessageReceived() if self._expected[event.message.text]:
                self._expected[event.message.text] -= 1
                return False
            case events.MessageReceived():
                return self._show_messages
            case _:
                return True

    async def _glance_at_retries(self) -> None:
        """Retries leave no events: looks now and then whether something is retried, and shows why."""
        printed: set[str] = set()
        handle = self._temporal.get_workflow_handle(self._conversation.id)
        while True:
            await asyncio.sleep(RETRY_GLANCE_SECONDS)
            with suppress(Exception):  # only a look: the follower itself meets real errors
                described = await handle.describe()
                for pending in described.raw_description.pending_activities:
                    failure = pending.last_failure
                    lost = failure.timeout_failure_info.timeout_type == LOST
                    reason = ""
                    if lost:
                        reason = LOST_IN_WORDS
                    elif failure.message:
                        failure_cause = await read_cause(self._temporal.data_converter, failure)
                        reason = one_line(f"{failure_cause.cause} {failure_cause.cure}".strip(), 300)
                    line = f"{pending.activity_type.name}, try {pending.attempt}: {reason}"
                    # Once for each cause, since there may be a retry each second. But every lost worker is shown.
                    once = line if lost else f"{pending.activity_id}: {reason}"
                    if reason and once not in printed:
                        printed.add(once)
                        self._screen.print_line(marked_text("trouble", line, indent=2))


def _split_cursor(cursor: str) -> tuple[str, int]:
    """A cursor's run and position."""
    run, _, position = cursor.rpartition("/")
    return run, int(position.partition(".")[0] or 0)
