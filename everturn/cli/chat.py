"""`everturn chat`: message after message. The conversation outlives the command."""

from __future__ import annotations

import asyncio
import os
import shlex
import sys
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from uuid import uuid4

import typer

from everturn.cli.options import AgentOption, ModelOption, SystemOption, ToolOption, YesOption

if TYPE_CHECKING:
    from everturn.cli.follow import Follower
    from everturn.cli.hosts import Host, Wanted
    from everturn.cli.terminal import Screen
    from everturn.conversation import Conversation
    from everturn.records import Message

KEEP_OPEN = timedelta(days=7)
SHOWN_EXCHANGES = 2
"""How much of an earlier conversation is shown when somebody comes back to it."""

HELP = "Ctrl-C leaves, and the conversation stays. /quit or Ctrl-D closes it. /resume [MODEL] goes on after a stall."


def chat(
    model: ModelOption = None,
    tool: ToolOption = None,
    system: SystemOption = "",
    agent: AgentOption = None,
    yes: YesOption = False,
    id: Annotated[str | None, typer.Option("--id", help="Start it with this id, or come back to it.")] = None,  # noqa: A002
) -> None:
    """Talk, message after message. Ctrl-C leaves, and the conversation can be taken up again."""
    from everturn.cli.hosts import Wanted

    wanted = Wanted.of(model=model, tools=tool, system=system, agent=agent)
    name = id or f"{agent or 'chat'}-{uuid4().hex[:8]}"
    asyncio.run(_chat(wanted, name, approve_all=yes))


async def _chat(wanted: Wanted, name: str, *, approve_all: bool) -> None:
    from everturn.cli.hosts import host
    from everturn.cli.terminal import Screen

    screen = Screen()
    database = database_of(name)
    closed = False
    try:
        async with host(wanted, name, screen=screen, db=database) as place:
            talk = _Talk(place, name, screen, approve_all=approve_all)
            closed = await talk.until_left()
    except asyncio.CancelledError:
        screen.idle()
        screen.line(f"\nThe conversation stays. To come back: {again(name, wanted)}")
        raise
    finally:
        screen.idle()
        if closed:
            for path in database.parent.glob(f"{database.stem}.*"):
                path.unlink()


class _Talk:
    def __init__(self, place: Host, name: str, screen: Screen, *, approve_all: bool) -> None:
        self._place = place
        self._screen = screen
        self._approve_all = approve_all
        self._conversation: Conversation = place.client.conversation(name)
        self._follower: Follower | None = None

    async def until_left(self) -> bool:
        """Talks until the person closes the conversation; True where nothing of it is left to come back to."""
        await self._greet()
        while True:
            try:
                said = await self._screen.ask("▸ ")
            except EOFError:
                self._screen.line("")
                break
            if said == "/quit":
                break
            if said.startswith("/resume"):
                await self._resume(said.removeprefix("/resume").strip())
            elif said.startswith("/"):
                self._screen.line(HELP, style="dim")
            elif said:
                await self._say(said)
        return await self._close()

    async def _greet(self) -> None:
        """Shows where the conversation was left, and waits for what still goes on."""
        from everturn.cli.render import transcript_lines

        self._screen.idle()
        self._screen.line(HELP, style="dim")
        if not (cursor := await self._cursor()):
            return
        messages = _last_of(await self._conversation.transcript())
        self._screen.lines(transcript_lines(messages, width=self._screen.width))
        status = await self._conversation.status()
        if status.state == "stalled":
            self._screen.line(f"! stalled: {status.cause} {status.cure or ''}", style="red")
        elif status.state not in ("idle", "done"):
            self._follower = self._make_follower(since=cursor)
            for waiting in status.waiting:
                await self._follower.decide(waiting.call_id)
            await self._until_answered()

    async def _say(self, text: str) -> None:
        client, name, message_id = self._place.client, self._conversation.id, uuid4().hex
        cursor = await self._cursor()
        if cursor is None:
            await client.start(
                self._place.agent, text, id=name, keep_open=KEEP_OPEN, model=self._place.model, message_id=message_id
            )
        else:
            await client.send(self._place.agent, text, id=name, keep_open=KEEP_OPEN, message_id=message_id)
        if self._follower is None:
            self._follower = self._make_follower(since=cursor or None)
        await self._until_answered()

    async def _resume(self, model: str) -> None:
        from everturn.errors import EverturnError

        try:
            if self._follower is None:
                self._follower = self._make_follower(since=await self._cursor())
            await self._conversation.resume(model=model or None)
            await self._until_answered()
        except EverturnError as error:
            self._screen.line(f"! {error}", style="red")

    async def _until_answered(self) -> None:
        from everturn import events

        assert self._follower is not None
        while True:
            stop = await self._follower.next_stop()
            if isinstance(stop, events.Stalled):
                self._screen.line(f"! stalled: {stop.cause} {stop.cure} Then: /resume", style="red")
                return
            if isinstance(stop, events.Done):
                self._follower = None
                if stop.why or (stop.outcome and stop.outcome.reason):
                    self._screen.line(f"■ {stop.why or (stop.outcome and stop.outcome.reason)}", style="bold")
                return
            _print(stop.message.text)
            # Somebody else may have said something meanwhile, which is still to be answered.
            if (await self._conversation.status()).state in ("idle", "done", "paused"):
                return

    async def _close(self) -> bool:
        from everturn.errors import EverturnError

        try:
            if await self._cursor():
                await self._conversation.close()
                async with asyncio.timeout(5):
                    await self._conversation.outcome()
        except (EverturnError, TimeoutError) as error:
            self._screen.line(f"! It could not be closed: {error or 'it takes too long'}", style="red")
            return False
        return True

    async def _cursor(self) -> str | None:
        """Behind all that has happened so far; empty where the conversation is over and would begin anew, None where
        there is none."""
        from temporalio.client import WorkflowExecutionStatus
        from temporalio.service import RPCError, RPCStatusCode

        try:
            described = await self._place.client.temporal.get_workflow_handle(self._conversation.id).describe()
        except RPCError as error:
            if error.status is RPCStatusCode.NOT_FOUND:
                return None
            raise
        if described.status is not WorkflowExecutionStatus.RUNNING:
            return ""
        return f"{described.run_id}/{described.history_length}"

    def _make_follower(self, *, since: str | None) -> Follower:
        from everturn.cli.follow import Follower

        return Follower(
            self._conversation,
            screen=self._screen,
            temporal=self._place.client.temporal,
            approve_all=self._approve_all,
            prefix=self._place.prefix,
            since=since,
        )


def _last_of(messages: Sequence[Message]) -> Sequence[Message]:
    """The messages from the last but one of the user's on."""
    asked = [index for index, message in enumerate(messages) if message.role == "user"]
    return messages[asked[-SHOWN_EXCHANGES:][0] :] if asked else messages


def again(name: str, wanted: Wanted) -> str:
    """The command that comes back to a conversation."""
    words = ["everturn", "chat", "--id", name]
    words += ["--agent", wanted.agent] if wanted.agent else []
    words += ["-m", wanted.model] if wanted.model else []
    for path in wanted.tools:
        words += ["--tool", str(path)]
    words += ["-s", wanted.system] if wanted.system else []
    return shlex.join(words)


def database_of(name: str) -> Path:
    """Where a chat without a Temporal of its own is kept: a database for each, so that they never meet."""
    from urllib.parse import quote

    state = Path(os.environ.get("XDG_STATE_HOME") or "~/.local/state").expanduser()
    return state / "everturn" / "chats" / f"{quote(name, safe='')}.db"


def _print(text: str) -> None:
    from everturn.cli.render import clean, marked
    from everturn.cli.terminal import Screen

    if sys.stdout.isatty():
        Screen(to_stdout=True).line(marked("assistant", clean(text)))
    else:
        print(text, flush=True)
