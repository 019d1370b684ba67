"""Follows one conversation for somebody who waits for it: shows what happens, and asks where a person has to decide."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from contextlib import suppress
from typing import Any

from everturn import events
from everturn.cli.render import EventLines, arguments_block, folded, marked
from everturn.cli.terminal import Screen
from everturn.conversation import Conversation
from everturn.errors import Ended, Refused
from everturn.payloads import WaitingCall
from everturn.records import ToolCall

RETRY_GLANCE_SECONDS = 2.0

OUTCOME_UNKNOWN = "outcome unknown"
_LOST = {"activity Heartbeat timeout": "its worker was lost"}


class Follower:
    """`next_stop` goes on to where there is something to say for the one who follows.

    `approve_all`: nobody is asked. `prefix`: stands before a command in another terminal.
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
        show_messages: bool = False,
    ) -> None:
        self._conversation = conversation
        self._temporal = temporal
        self._screen = screen
        self._approve_all = approve_all
        self._prefix = prefix
        self._show_messages = show_messages
        self._events = conversation.events(since)
        self._lines = EventLines(width=screen.width, announce=not screen.live)
        self._running: dict[str, str] = {}
        self._lost: set[str] = set()
        self._turn = 0

    async def next_stop(self) -> events.Replied | events.Stalled | events.Done:
        """The next final reply, stall or end. Everything before it is shown, and decided on, on the way."""
        self._screen.busy("waiting for a worker" if not self._turn else self._doing())
        glance = asyncio.create_task(self._glance_at_retries())
        try:
            async for event in self._events:
                if isinstance(event, events.Replied) and event.final:
                    return event
                if isinstance(event, events.Stalled | events.Done):
                    return event
                await self._take(event)
        finally:
            glance.cancel()
            self._screen.idle()
        raise Ended(f"The history of conversation {self._conversation.id!r} breaks off.")

    async def _take(self, event: events.Event) -> None:
        if not isinstance(event, events.MessageReceived) or self._show_messages:
            self._screen.lines(self._lines.of(event))
        match event:
            case events.TurnStarted():
                self._turn = event.turn
            case events.ToolStarted():
                self._running[event.call_id] = event.tool
            case events.ToolFinished():
                self._running.pop(event.result.call_id, None)
            case events.ToolLost():
                self._running.pop(event.call_id, None)
                self._lost.add(event.call_id)
            case events.ApprovalRequested() | events.AnswerRequested():
                await self.decide(event.call.call_id)
            case _:
                pass
        self._screen.busy(self._doing())

    def _doing(self) -> str:
        running = Counter(self._running.values()).items()
        tools = ", ".join(f"{tool} ×{count}" if count > 1 else tool for tool, count in running)
        return folded(tools, 60) or f"turn {self._turn} · thinking"

    # ------------------------------------------------------------ decisions

    async def decide(self, call_id: str) -> None:
        """Decides on a call, or says how somebody can, if it really waits."""
        waiting = await self._waiting(call_id)
        if waiting is None:
            return  # somebody else was quicker
        call = ToolCall(call_id=call_id, name=waiting.tool, arguments=waiting.arguments)
        wants_answer = "runs outside" in waiting.why
        # Whether to run again what may have run already is not for a --yes to say.
        doubtful = call_id in self._lost or waiting.why.startswith(OUTCOME_UNKNOWN)
        try:
            if self._approve_all and not doubtful and not wants_answer:
                await self._conversation.approve(call_id)
            elif self._screen.can_ask:
                await self._ask(call, waiting, wants_answer=wants_answer)
            else:
                self._tell_how(call_id, wants_answer=wants_answer)
        except Refused as refusal:
            self._screen.line(f"    {refusal}", style="yellow")
            await self.decide(call_id)

    async def _waiting(self, call_id: str) -> WaitingCall | None:
        # The events run ahead of the workflow by one step of it.
        for delay in (0.05, 0.2, 0.5):
            status = await self._conversation.status()
            if found := next((one for one in status.waiting if one.call_id == call_id), None):
                return found
            await asyncio.sleep(delay)
        return None

    def _tell_how(self, call_id: str, *, wants_answer: bool) -> None:
        place = f"{self._conversation.id} {call_id}"
        if wants_answer:
            ways = [f"answer {place} CONTENT", f"deny {place} --reason WHY"]
        else:
            ways = [f"approve {place}", f"deny {place} --reason WHY"]
        self._screen.line("    It waits for you. In another terminal:")
        for way in ways:
            self._screen.line(f"      {self._prefix}everturn {way}")

    async def _ask(self, call: ToolCall, waiting: WaitingCall, *, wants_answer: bool) -> None:
        self._screen.idle()
        self._screen.line(arguments_block(call))
        try:
            if wants_answer:
                await self._conversation.answer(call.call_id, await self._screen.ask("    its result: "))
                return
            if waiting.why.startswith(OUTCOME_UNKNOWN):
                self._screen.line("    It may have taken effect already. Yes runs it again.", style="yellow")
            await self._ask_for_approval(call)
        except EOFError:
            self._screen.line("")
            self._tell_how(call.call_id, wants_answer=wants_answer)

    async def _ask_for_approval(self, call: ToolCall) -> None:
        while True:
            said = (await self._screen.ask("    approve? [y]es, [n]o, [e]dit: ")).lower()
            if said in ("y", "yes"):
                await self._conversation.approve(call.call_id)
            elif said in ("n", "no"):
                reason = await self._screen.ask("    why not? (the model is told; Enter for no reason) ")
                await self._conversation.deny(call.call_id, reason=reason or None)
            elif said in ("e", "edit"):
                await self._conversation.approve(call.call_id, arguments=await self._edited(call))
            else:
                continue
            return

    async def _edited(self, call: ToolCall) -> dict[str, Any]:
        written = json.dumps(call.arguments, ensure_ascii=False)
        while True:
            written = await self._screen.ask("    arguments: ", prefill=written)
            try:
                edited = json.loads(written)
            except ValueError as error:
                self._screen.line(f"    This is not JSON: {error}", style="yellow")
                continue
            if isinstance(edited, dict):
                return edited
            self._screen.line("    The arguments are a JSON object: {...}", style="yellow")

    # ------------------------------------------------------------ retries

    async def _glance_at_retries(self) -> None:
        """Retries are no events: now and then, look whether something is tried again, and say why."""
        shown: set[str] = set()
        handle = self._temporal.get_workflow_handle(self._conversation.id)
        while True:
            await asyncio.sleep(RETRY_GLANCE_SECONDS)
            with suppress(Exception):  # only a glance: the follower itself meets what is really wrong
                described = await handle.describe()
                for pending in described.raw_description.pending_activities:
                    why = folded(pending.last_failure.message, 300)
                    line = f"{pending.activity_type.name}, try {pending.attempt}: {_LOST.get(why, why)}"
                    if why and line not in shown:
                        shown.add(line)
                        self._screen.line(marked("trouble", line, indent=2))
