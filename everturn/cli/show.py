"""`everturn show`: what goes on in a conversation, what waits, and its transcript."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated

import typer

from everturn.cli.options import IdArgument, JsonOption
from everturn.cli.output import print_json

if TYPE_CHECKING:
    from everturn.cli.terminal import Screen
    from everturn.client.conversation import Conversation
    from everturn.payloads import Status


def show(
    id: IdArgument,  # noqa: A002
    full: Annotated[
        bool, typer.Option("--full", help="Show arguments and results in full. Default: one line each.")
    ] = False,
    prompt: Annotated[
        int | None,
        typer.Option(
            "--prompt",
            metavar="TURN",
            help="Show the instructions and tools that this turn was asked with, if functions chose them.",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show a conversation: its state, waiting calls and transcript."""
    if prompt is None:
        asyncio.run(_show_conversation(id, full=full, as_json=as_json))
    else:
        asyncio.run(_show_prompt(id, prompt, as_json=as_json))


async def _show_prompt(conversation_id: str, turn: int, *, as_json: bool) -> None:
    from everturn.cli.connect import remote_client
    from everturn.cli.output import print_result

    async with remote_client() as client:
        prompt = await client.conversation(conversation_id).prompt(turn)
    tools = [tool.model_dump(mode="json") for tool in prompt.tools]
    if as_json:
        print_json({"turn": prompt.turn, "digest": prompt.digest, "instructions": prompt.instructions, "tools": tools})
        return
    listed = "\n".join(f"- {tool.name}: {tool.description}" for tool in prompt.tools)
    print_result(f"{prompt.instructions}\n\nTools:\n{listed or '- none'}\n\nDigest: {prompt.digest}")


async def _show_conversation(conversation_id: str, *, full: bool, as_json: bool) -> None:
    from everturn.cli.connect import remote_client
    from everturn.cli.render import open_call_lines, transcript_lines
    from everturn.cli.terminal import Screen
    from everturn.client.conversation import read_so_far

    async with remote_client() as client:
        conversation = client.conversation(conversation_id)
        messages, calls = await read_so_far(client, conversation_id)
        status, error_text = await _read_status(conversation)
    if as_json:
        messages_json = [message.model_dump(mode="json") for message in messages]
        state = status and status.as_json()
        still_open = [call.as_json() for call in calls]
        print_json({"id": conversation_id, "status": state, "messages": messages_json, "open_calls": still_open})
        return
    screen = Screen(to_stdout=True)
    if status:
        _print_status(conversation_id, status, screen)
    else:
        screen.print_line(f"! {error_text}", style="red")
    screen.print_lines(transcript_lines(messages, width=screen.width, full=full, markdown=screen.console.is_terminal))
    screen.print_lines(open_call_lines(calls, width=screen.width, full=full))


async def _read_status(conversation: Conversation) -> tuple[Status | None, str]:
    """The status; None and why if no worker answers. The transcript needs no worker."""
    from everturn.errors import Unreachable

    try:
        return await conversation.status(), ""
    except Unreachable as error:
        return None, str(error)


def _print_status(conversation_id: str, status: Status, screen: Screen) -> None:
    from everturn.cli.render import STATE_STYLES, arguments_block, marked_text, one_line, path_prefix, ways_to_decide
    from everturn.records import ToolCall

    facts = [conversation_id, one_line(status.agent, 64), status.state.replace("_", " "), f"turn {status.turn}"]
    facts = [fact for fact in facts if fact]
    facts.append(f"{status.usage.total_tokens:,} tokens")
    screen.print_line(" · ".join(facts), style=STATE_STYLES.get(status.state, "bold"))
    if status.cause:
        screen.print_line(marked_text("trouble", one_line(f"{status.cause} {status.cure or ''}", 1000)))
    for waiting in status.waiting:
        call = ToolCall(call_id=waiting.call_id, name=waiting.tool, arguments=waiting.arguments)
        line = f"{path_prefix(waiting.path)}{waiting.tool} ({waiting.call_id}) waits: {waiting.why}"
        screen.print_line(marked_text("waits", one_line(line, 500)))
        screen.print_line(arguments_block(call))
        ways = ways_to_decide(conversation_id, waiting, status.waiting)
        if len(ways) > 1:
            ways.insert(0, "It may have run already. To run it again, or to give its result instead:")
        for line in ways:
            screen.print_line(f"    {line}", style="dim")
