"""Asks the person at the terminal to decide on the calls that wait: one question at a time.

If somebody decides elsewhere, the question goes away.
"""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import tempfile
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

from rich.text import Text

from everturn import events, names
from everturn.cli.render import arguments_block, one_line, path_prefix, place_of, ways_to_decide
from everturn.cli.terminal import Screen
from everturn.client.conversation import Conversation
from everturn.errors import Ended, Refused, Unreachable
from everturn.payloads import WaitingCall, address_of
from everturn.plans import WaitReason
from everturn.records import ToolCall
from everturn.system.json_numbers import parse_json
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


class NotEdited(Exception):
    """There are no new arguments: the message says why not."""


class ApprovalPrompt:
    """Asks with `ask_until_cancelled`. `nudge` makes it look at once: something may wait now, or no longer.

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
        self._open_call: WaitingCall | None = None
        self._question: asyncio.Task[Decide | None] | None = None
        self._waiting: tuple[WaitingCall, ...] = ()
        self._nudged = asyncio.Event()
        self._looks: list[float] = []

    def track_event(self, event: events.Event) -> None:
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

    async def ask_until_cancelled(self) -> None:
        """Asks about the calls that wait, until it is cancelled."""
        try:
            while True:
                await self._until_next_look()
                with suppress(Unreachable):  # the worker will come back, and the question can wait
                    self._waiting = (await self._conversation.status()).waiting
                    self._settled &= set(map(_waiting_key, self._waiting))
                await self._go_on()
        finally:
            await self._give_up()

    async def _until_next_look(self) -> None:
        delay: float | None = None
        if self._looks:
            delay = self._looks.pop(0)
        elif self._question:
            delay = LOOK_SECONDS
        with suppress(TimeoutError):
            async with asyncio.timeout(delay):
                await self._nudged.wait()
        self._nudged.clear()

    async def _go_on(self) -> None:
        open_call = self._open_call
        if open_call and self._question and self._question.done():
            await self._settle_question(open_call, self._question)
        elif open_call and open_call not in self._waiting:
            await self._give_up()
            if not {open_call.address, address_of(open_call.path, names.EVERY_CALL)} & self._decided:
                name = f"{path_prefix(open_call.path)}{open_call.tool}"
                self._screen.print_line(f"    {name} ({open_call.call_id}) waits no longer.", style="yellow")
        if self._question is None and (call := self._next_unsettled()):
            await self._handle_call(call)

    def _next_unsettled(self) -> WaitingCall | None:
        return next((call for call in self._waiting if _waiting_key(call) not in self._settled), None)

    async def _handle_call(self, call: WaitingCall) -> None:
        plain = call.reason in YES_APPROVES and call.address not in self._approved
        if self._approve_all and call.needs == "approval" and plain:
            self._approved.add(call.address)
            place = self._conversation.where(call)
            approve = partial(place.approve, call.call_id, expected=call, children=False)
            await self._apply_decision(call, approve)
        elif self._screen.can_ask:
            self._open_call = call
            self._question = asyncio.create_task(self._ask_person(call))
            self._question.add_done_callback(lambda _: self._nudged.set())
        else:
            self._settled.add(_waiting_key(call))
            self._tell_how(call)

    async def _settle_question(self, call: WaitingCall, question: asyncio.Task[Decide | None]) -> None:
        self._open_call = self._question = None
        if decide := question.result():
            await self._apply_decision(call, decide)
        else:
            self._settled.add(_waiting_key(call))

    async def _apply_decision(self, call: WaitingCall, decide: Decide) -> None:
        try:
            await decide()
            self._settled.add(_waiting_key(call))
        except Ended:
            pass  # nothing has to be decided any more, and whoever follows the events sees the end
        except (Refused, Unreachable) as problem:
            # Without a worker, the decision did not arrive: ask again, or let --yes approve again.
            if isinstance(problem, Unreachable):
                self._approved.discard(call.address)
            self._screen.print_line(f"    {problem}", style="yellow")
        self.nudge()

    async def _give_up(self) -> None:
        if self._question:
            self._question.cancel()
            await asyncio.wait({self._question})
        self._open_call = self._question = None

    # ------------------------------------------------------------ the question

    async def _ask_person(self, waits: WaitingCall) -> Decide | None:
        """The person's decision; None if the input has ended."""
        call = ToolCall(call_id=waits.call_id, name=waits.tool, arguments=waits.arguments)
        self._screen.stop_spinner()
        named = f"{path_prefix(waits.path)}{one_line(call.name, 60)} ({one_line(call.call_id, 60)})"
        heading = Text(f"    {named}", style="bold")
        block = Text("\n").join([heading, arguments_block(call)])
        if waits.reason == "outcome_unknown":
            block.append("\n    It may already have taken effect. Yes runs it again.", style="yellow")
        try:
            if waits.needs == "answer":
                return await self._ask_for_answer(waits, block)
            return await self._ask_for_approval(waits, block)
        except EOFError:
            self._screen.print_line()
            self._tell_how(waits)
            return None

    async def _ask_for_answer(self, call: WaitingCall, block: Text) -> Decide:
        question = f"    your answer to {one_line(call.tool, 60)}: "
        while not (answer := await self._screen.ask_line(question, above=block, fresh=True)):
            pass
        return partial(self._conversation.where(call).answer, call.call_id, answer, expected=call, children=False)

    async def _ask_for_approval(self, call: WaitingCall, block: Text) -> Decide:
        place = self._conversation.where(call)
        approve = partial(place.approve, call.call_id, expected=call, children=False)
        written = printable(json.dumps(call.arguments, ensure_ascii=False, indent=2))
        while True:
            question = f"    approve {one_line(call.tool, 60)}? [y]es, [n]o, [e]dit: "
            reply = (await self._screen.ask_line(question, above=block, fresh=True)).lower()
            if reply in ("y", "yes"):
                return approve
            if reply in ("n", "no"):
                reason = await self._screen.ask_line("    why not? (the model reads it; Enter for no reason) ")
                return partial(place.deny, call.call_id, reason=reason or None, expected=call, children=False)
            if reply in ("e", "edit"):
                try:
                    written = await _edit_arguments(self._screen, call.tool, written)
                    arguments = parse_arguments(written)
                except NotEdited as problem:
                    self._screen.print_line(f"    {problem}", style="yellow")
                    continue
                return partial(approve, arguments=arguments)

    def _tell_how(self, call: WaitingCall) -> None:
        place = place_of(self._conversation.id, call, self._waiting)
        again = " It may have run already, and an approval runs it again." if call.reason == "outcome_unknown" else ""
        self._screen.print_line(f"    It waits for you.{again} In another terminal:")
        ways = ways_to_decide(self._conversation.id, call, self._waiting)
        for way in (*ways, f"everturn deny {place} --reason WHY"):
            self._screen.print_line(f"      {self._prefix}{way}")


def _waiting_key(call: WaitingCall) -> _Key:
    return call.address, call.since, call.why


async def _edit_arguments(screen: Screen, name: str, written: str) -> str:
    """The text after editing: in $VISUAL or $EDITOR, or in the input line if neither is set. Raises NotEdited.

    If it is cancelled, the editor is asked to end.
    """
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR")
    if not editor:
        return await screen.ask_line("    arguments: ", prefill=" ".join(map(str.strip, written.splitlines())))
    with tempfile.TemporaryDirectory(prefix="everturn-") as folder, screen.lend_terminal():
        file = Path(folder) / f"{Path(name).name}.json"
        file.write_text(written + "\n", encoding="utf-8")
        try:
            process = await asyncio.create_subprocess_exec(*shlex.split(editor), str(file))
        except (OSError, ValueError) as error:
            raise NotEdited(f"The editor {editor!r} can't be started: {error}. Set EDITOR to another.") from None
        try:
            status = await process.wait()
        finally:
            if process.returncode is None:
                with suppress(ProcessLookupError):
                    process.terminate()
                await process.wait()
        if status:
            raise NotEdited(f"The editor {editor!r} ended with status {status}: nothing was changed.")
        try:
            return file.read_text(encoding="utf-8").strip()
        except (OSError, ValueError) as error:
            raise NotEdited(f"The file that the editor saved can't be read: {error}.") from None


def parse_arguments(written: str) -> dict[str, Any]:
    """Raises NotEdited if the text is no JSON object."""
    if not written:
        raise NotEdited("The editor saved an empty file: nothing was changed.")
    try:
        arguments = parse_json(written)
    except (ValueError, RecursionError) as error:
        raise NotEdited(f"This is not JSON: {error}") from None
    if not isinstance(arguments, dict):
        raise NotEdited("The arguments have to be a JSON object: {...}")
    return arguments
