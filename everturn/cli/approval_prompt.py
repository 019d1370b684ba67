"""Asks the person at the terminal to decide on the calls that wait: one question at a time.

If somebody decides elsewhere, the question goes away.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Final

from rich.text import Text

from everturn import events, names
from everturn.cli.argument_editor import NotEdited, arguments_of, edited
from everturn.cli.render import arguments_block, by_agents, folded, place_of, ways_to_decide
from everturn.cli.terminal import Screen
from everturn.client.conversation import Conversation
from everturn.errors import Ended, Refused, Unreachable
from everturn.payloads import WaitingCall, address_of
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
"""A call's address, `since` and `why`. A call that waits a second time differs in `why` or `since`."""


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
        """Addresses of calls that --yes has approved once. If one of them waits again, a person has to look at it."""
        self._decided: set[str] = set()
        """Addresses of calls for which an event has said who decided."""
        self._asked: WaitingCall | None = None
        self._question: asyncio.Task[Decide | None] | None = None
        self._waiting: tuple[WaitingCall, ...] = ()
        self._nudged = asyncio.Event()
        self._looks: list[float] = []

    def take(self, event: events.Event) -> None:
        match event:
            case events.Decided():
                self._decided.add(address_of(event.path, event.call_id))
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
            if not {asked.address, address_of(asked.path, names.EVERY_CALL)} & self._decided:
                name = f"{by_agents(asked.path)}{asked.tool}"
                self._screen.line(f"    {name} ({asked.call_id}) waits no longer.", style="yellow")
        if self._question is None and (waits := self._next()):
            await self._begin(waits)

    def _next(self) -> WaitingCall | None:
        return next((one for one in self._waiting if _key(one) not in self._settled), None)

    async def _begin(self, waits: WaitingCall) -> None:
        plain = waits.reason in YES_APPROVES and waits.address not in self._approved
        if self._approve_all and waits.needs == "approval" and plain:
            self._approved.add(waits.address)
            place = self._conversation.where(waits)
            approve = partial(place.approve, waits.call_id, expected=waits, children=False)
            await self._decide(waits, approve)
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
                self._approved.discard(waits.address)
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
        named = f"{by_agents(waits.path)}{folded(call.name, 60)} ({folded(call.call_id, 60)})"
        heading = Text(f"    {named}", style="bold")
        block = Text("\n").join([heading, arguments_block(call)])
        if waits.reason == "outcome_unknown":
            block.append("\n    It may already have taken effect. Yes runs it again.", style="yellow")
        try:
            if waits.needs == "answer":
                return await self._ask_for_answer(waits, block)
            return await self._ask_for_approval(waits, block)
        except EOFError:
            self._screen.line()
            self._tell_how(waits)
            return None

    async def _ask_for_answer(self, waits: WaitingCall, block: Text) -> Decide:
        question = f"    your answer to {folded(waits.tool, 60)}: "
        while not (said := await self._screen.ask(question, above=block, fresh=True)):
            pass
        return partial(self._conversation.where(waits).answer, waits.call_id, said, expected=waits, children=False)

    async def _ask_for_approval(self, waits: WaitingCall, block: Text) -> Decide:
        place = self._conversation.where(waits)
        approve = partial(place.approve, waits.call_id, expected=waits, children=False)
        written = printable(json.dumps(waits.arguments, ensure_ascii=False, indent=2))
        while True:
            question = f"    approve {folded(waits.tool, 60)}? [y]es, [n]o, [e]dit: "
            said = (await self._screen.ask(question, above=block, fresh=True)).lower()
            if said in ("y", "yes"):
                return approve
            if said in ("n", "no"):
                reason = await self._screen.ask("    why not? (the model reads it; Enter for no reason) ")
                return partial(place.deny, waits.call_id, reason=reason or None, expected=waits, children=False)
            if said in ("e", "edit"):
                try:
                    written = await edited(self._screen, waits.tool, written)
                    arguments = arguments_of(written)
                except NotEdited as problem:
                    self._screen.line(f"    {problem}", style="yellow")
                    continue
                return partial(approve, arguments=arguments)

    def _tell_how(self, waits: WaitingCall) -> None:
        place = place_of(self._conversation.id, waits, self._waiting)
        again = " It may have run already, and an approval runs it again." if waits.reason == "outcome_unknown" else ""
        self._screen.line(f"    It waits for you.{again} In another terminal:")
        ways = ways_to_decide(self._conversation.id, waits, self._waiting)
        for way in (*ways, f"everturn deny {place} --reason WHY"):
            self._screen.line(f"      {self._prefix}{way}")


def _key(waits: WaitingCall) -> _Key:
    return waits.address, waits.since, waits.why
