"""`everturn chat`: message after message. The conversation outlives the command."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated
from uuid import uuid4

import typer

from everturn.cli.options import AgentOption, ModelOption, SystemOption, ToolOption, YesOption

if TYPE_CHECKING:
    from everturn.cli.follow import Follower
    from everturn.cli.hosts import Host, Wanted
    from everturn.cli.terminal import Screen
    from everturn.conversation import Conversation

KEEP_OPEN = timedelta(days=7)
SHOWN_MESSAGES = 6
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

    wanted = Wanted(model=model, tools=tool or (), system=system, agent=agent)
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
            if said in ("/help", "/?"):
                self._screen.line(HELP, style="dim")
            elif said.startswith("/resume"):
                await self._resume(said.removeprefix("/resume").strip())
            elif said:
                await self._say(said)
        return await self._close()

    async def _greet(self) -> None:
        from everturn.cli.render import transcript_lines
        from everturn.errors import NotFound

        self._screen.idle()
        self._screen.line(HELP, style="dim")
        try:
            messages = await self._conversation.transcript()
        except NotFound:
            return
        self._screen.lines(transcript_lines(messages[-SHOWN_MESSAGES:], width=self._screen.width))
        await self._catch_up()

    async def _catch_up(self) -> None:
        """What still goes on from the last time is waited for before anything new is said."""
        status = await self._conversation.status()
        if status.state not in ("idle", "done"):
            await self._until_answered(follower=self._make_follower(since=None), shown=True)

    async def _say(self, text: str) -> None:
        client, name = self._place.client, self._conversation.id
        since = await self._last_cursor()
        message_id = uuid4().hex
        if since is None:
            await client.start(
                self._place.agent,
                text,
                id=name,
                keep_open=KEEP_OPEN,
                model=self._place.model,
                message_id=message_id,
            )
        else:
            await client.send(self._place.agent, text, id=name, keep_open=KEEP_OPEN, message_id=message_id)
        await self._until_answered(self._follower or self._make_follower(since), shown=False)
