"""Asks the person at the terminal to decide on the calls that wait: one question at a time.

If somebody decides elsewhere, the question goes away.
"""

from __future__ import annotations

import asyncio
import json
import shlex
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

from rich.text import Text

from everturn import events, names
from everturn.cli.argument_editor import NotEdited, arguments_of, edited
from everturn.cli.render import arguments_block, folded, ways_to_decide
from everturn.cli.terminal import Screen
from everturn.client.conversation import Conversation
from everturn.errors import Ended, Refused, Unreachable
from everturn.payloads import WaitingCall
from everturn.plans import WaitReason
from everturn.records import ToolCall
from everturn.text.printable import printable

YES_APPROVES: Final[frozenset[WaitReason]] = frozenset(("needs_approval", "has_not_run", "invalid_edit", "not_allowed"))
"""The reasons for which --yes approves a call. A person has to decide on all others: the call may have run already."""

QUICK_LOOKS_SECONDS = (0.05, 0.2, 0.5, 1.0, 2.0, 4.0)
"""Pauses before looking after an event: events run ahead of the workflow, and a decision may turn out to be refused."""
LOOK_SECONDS = 2.0
"""The pause between looks while a question is open: a call that expires leaves no event."""

Decide = Callable[[], Awaitable[object]]
_Key = tuple[str, str, str]
"""A call's id, `since` and `why`. A call that waits a second time differs in `why` or `since`."""


class ApprovalPrompt:
    """`attend` asks until it is cancelled. `nudge` makes it look at once: something may wait now, or no longer.

    `approve_all`: approve without asking. `prefix`: comes before a command that is shown for another terminal.
    """

    def __init__(self, conversation: Conversation, *, screen: Screen, approve_all: bool, prefix: str) -> None:
        self._conversation = conversation
        self._screen = screen
        self._approve_all = approve_all
        self._prefix = prefix
        self._settled: set[_Key] = set()
        """Calls that may still wait, but need nothing more from this prompt."""
        self._approved: set[str] = set()
        """Calls that --yes has approved once. If one of them waits again, a person has to look at it."""
        self._decided: set[str] = set()
        """Calls for which an event has said who decided."""
        self._asked: WaitingCall | None = None
        self._question: asyncio.Task[Decide | None] | None = None
        self._waiting: tuple[WaitingCall, ...] = ()
        self._nudged = asyncio.Event()
        self._looks: list[float] = []

    def take(self, event: events.Event) -> None:
        match event:
            case events.Decided():
                self._decided.add(event.call_id)
                self.nudge()
            case events.ApprovalRequested() | events.AnswerRequested():
                self.nudge()
            case _:
                pass

    def nudge(self) -> None:
        self._looks = [*QUICK_LOOKS_SECONDS]
        self._nudged.set()

    async def attend(self) -> None:
        """Asks about the calls that wait, until it is cancelled."""
        try:
            while True:
                await self._until_next_look()
                with suppress(Unreachable):  # the worker will come back, and the question can wait
                    self._waiting = (await self._conversation.status()).waiting
                    self._settled &= set(map(_key, self._waiting))
                await self._go_on()
        finally:
            await self._give_up()

    async def _until_next_look(self) -> None:
        seconds = self._looks.pop(0) if self._looks else LOOK_SECONDS if self._question else None
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._nudged.wait()
        self._nudged.clear()

    async def _go_on(self) -> None:
        asked = self._asked
        if asked and self._question and self._question.done():
            await self._settle(asked, self._question)
        elif asked and asked not in self._waiting:
            await self._give_up()
            if not {asked.call_id, names.EVERY_CALL} & self._decided:
                self._screen.line(f"    {asked.tool} ({asked.call_id}) waits no longer.", style="yellow")
        if self._question is None and (waits := self._next()):
            await self._begin(waits)

    def _next(self) -> WaitingCall | None:
        return next((one for one in self._waiting if _key(one) not in self._settled), None)

    async def _begin(self, waits: WaitingCall) -> None:
        plain = waits.reason in YES_APPROVES and waits.call_id not in self._approved
        if self._approve_all and waits.needs == "approval" and plain:
            self._approved.add(waits.call_id)
            await self._decide(waits, lambda: self._conversation.approve(waits.call_id, expected=waits.arguments))
        elif self._screen.can_ask:
            self._asked = waits
            self._question = asyncio.create_task(self._ask(waits))
            self._question.add_done_callback(lambda _: self._nudged.set())
        else:
            self._settled.add(_key(waits))
            self._tell_how(waits)

    async def _settle(self, asked: WaitingCall, question: asyncio.Task[Decide | None]) -> None:
        self._asked = self._question = None
        if decide := question.result():
            await self._decide(asked, decide)
        else:
            self._settled.add(_key(asked))

    async def _decide(self, waits: WaitingCall, decide: Decide) -> None:
        try:
            await decide()
            self._settled.add(_key(waits))
        except Ended:
            pass  # nothing has to be decided any more, and whoever follows the events sees the end
        except (Refused, Unreachable) as problem:
            # Without a worker, the decision did not arrive: ask again, or let --yes approve again.
            if isinstance(problem, Unreachable):
                self._approved.discard(waits.call_id)
            self._screen.line(f"    {problem}", style="yellow")
        self.nudge()

    async def _give_up(self) -> None:
        if self._question:
            self._question.cancel()
            await asyncio.wait({self._question})
        self._asked = self._question = None

    # ------------------------------------------------------------ the question

    async def _ask(self, waits: WaitingCall) -> Decide | None:
        """The person's decision; None if the input has ended."""
        call = ToolCall(call_id=waits.call_id, name=waits.tool, arguments=waits.arguments)
        self._screen.idle()
        heading = Text(f"    {folded(call.name, 60)} ({folded(call.call_id, 60)})", style="bold")
        block = Text("\n").join([heading, arguments_block(call)])
        if waits.reason == "outcome_unknown":
            block.append("\n    It may already have taken effect. Yes runs it again.", style="yellow")
        try:
            if waits.needs == "answer":
                return await self._ask_for_answer(call, block)
            return await self._ask_for_approval(call, block)
        except EOFError:
            self._screen.line()
            self._tell_how(waits)
            return None

    async def _ask_for_answer(self, call: ToolCall, block: Text) -> Decide:
        while not (
            said := await self._screen.ask(f"    your answer to {folded(call.name, 60)}: ", above=block, fresh=True)
        ):
            pass
        return lambda: self._conversation.answer(call.call_id, said)

    async def _ask_for_approval(self, call: ToolCall, block: Text) -> Decide:
        written = printable(json.dumps(call.arguments, ensure_ascii=False, indent=2))
        while True:
            question = f"    approve {folded(call.name, 60)}? [y]es, [n]o, [e]dit: "
            said = (await self._screen.ask(question, above=block, fresh=True)).lower()
            if said in ("y", "yes"):
                return lambda: self._conversation.approve(call.call_id, expected=call.arguments)
            if said in ("n", "no"):
                reason = await self._screen.ask("    why not? (the model reads it; Enter for no reason) ")
                return lambda: self._conversation.deny(call.call_id, reason=reason or None)
            if said in ("e", "edit"):
                try:
                    written = await edited(self._screen, call.name, written)
                    arguments = arguments_of(written)
                except NotEdited as problem:
                    self._screen.line(f"    {problem}", style="yellow")
                    continue
                return lambda: self._conversation.approve(call.call_id, arguments=arguments, expected=call.arguments)

    def _tell_how(self, waits: WaitingCall) -> None:
        place = shlex.join([self._conversation.id, waits.call_id])
        again = " It may have run already, and an approval runs it again." if waits.reason == "outcome_unknown" else ""
        self._screen.line(f"    It waits for you.{again} In another terminal:")
        for way in (*ways_to_decide(self._conversation.id, waits), f"everturn deny {place} --reason WHY"):
            self._screen.line(f"      {self._prefix}{way}")


def _key(waits: WaitingCall) -> _Key:
    return waits.call_id, waits.since, waits.why
