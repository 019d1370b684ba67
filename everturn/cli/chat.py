"""`everturn chat`: message after message. The conversation outlives the command."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated, Any
from uuid import uuid4

import typer

from everturn.cli import completion
from everturn.cli.labels import MetadataOption, TenantOption, labels_of
from everturn.cli.options import AgentOption, ModelOption, SystemOption, ToolOption, YesOption
from everturn.text.commands import command_about

if TYPE_CHECKING:
    from everturn.cli.connect import AgentChoice


def chat(
    model: ModelOption = None,
    tool: ToolOption = None,
    system: SystemOption = "",
    agent: AgentOption = None,
    yes: YesOption = False,
    id: Annotated[  # noqa: A002
        str | None,
        typer.Option(
            "--id", help="The id of a new conversation, or of one to come back to.", autocompletion=completion.offer_ids
        ),
    ] = None,
    tenant: TenantOption = None,
    metadata: MetadataOption = None,
) -> None:
    """Talk with an agent. Ctrl-C leaves the conversation running, and `everturn chat --id ID` comes back to it."""
    from everturn.cli.chat_files import load_options
    from everturn.cli.connect import AgentChoice

    choice = None
    if id and not (model or tool or system or agent):
        choice = load_options(id) or asyncio.run(_find_hosted_agent(id))
    choice = choice or AgentChoice.from_options(model=model, tools=tool, system=system, agent=agent)
    name = id or f"{agent or 'chat'}-{uuid4().hex[:8]}"
    asyncio.run(_run_chat(choice, name, labels_of(tenant, metadata), approve_all=yes))


async def _find_hosted_agent(name: str) -> AgentChoice:
    """The agent of a conversation that runs on another process's worker. Raises NotFound and Unreachable."""
    from temporalio.service import RPCError

    from everturn.cli.connect import AgentChoice, remote_client
    from everturn.errors import NotFound
    from everturn.history.reader import first_step
    from everturn.temporal.temporal_errors import not_found

    cure = "Start one with -m provider:name, or with --agent NAME."
    async with remote_client() as client:
        try:
            if started := await first_step(client.temporal, name):
                return AgentChoice(None, (), "", started.start.agent)
        except RPCError as error:
            if not not_found(error):
                raise client.unreachable_error(error) from error
    raise NotFound(f"There is no conversation {name!r} to come back to.", cure=cure)


async def _run_chat(choice: AgentChoice, name: str, labels: dict[str, Any], *, approve_all: bool) -> None:
    from everturn.cli.chat_files import ChatFiles
    from everturn.cli.chat_session import ChatSession
    from everturn.cli.connect import connect
    from everturn.cli.terminal import Screen

    screen = Screen()
    files = ChatFiles(name)
    session = None
    try:
        async with connect(choice, name, screen=screen, db=files.database) as place:
            session = ChatSession(place, name, screen, approve_all=approve_all, labels=labels)
            await session.talk_until_left(begun=lambda: files.save_options(choice))
    except asyncio.CancelledError:
        screen.stop_spinner()
        if session and session.begun:
            stays = "The conversation goes on without you." if choice.agent else "The conversation stays."
            screen.print_line(f"\n{stays} To come back: {command_about('chat --id', name)}")
        raise
    finally:
        screen.stop_spinner()
        if session and session.closed:
            files.delete_files()
