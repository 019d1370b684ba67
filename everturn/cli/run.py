"""`everturn run`: one prompt, one reply."""

from __future__ import annotations

import asyncio
import shlex
import sys
from typing import TYPE_CHECKING, Annotated, Any
from uuid import uuid4

import typer

from everturn.cli import streams
from everturn.cli.labels import MetadataOption, TenantOption, labels_of
from everturn.cli.options import AgentOption, JsonOption, ModelOption, SystemOption, ToolOption, YesOption
from everturn.cli.output import print_json, print_result
from everturn.text.commands import command_about

if TYPE_CHECKING:
    from everturn.cli.connect import AgentChoice, Connection
    from everturn.cli.terminal import Screen
    from everturn.client.conversation import Conversation
    from everturn.records import Outcome


def run(
    prompt: Annotated[
        str, typer.Argument(metavar="PROMPT", help="The message. A single - reads it from standard input.")
    ],
    model: ModelOption = None,
    tool: ToolOption = None,
    system: SystemOption = "",
    agent: AgentOption = None,
    yes: YesOption = False,
    id: Annotated[  # noqa: A002
        str | None,
        typer.Option(
            "--id", metavar="ID", help="The conversation's id: run again, it gives the same answer. Default: a new one."
        ),
    ] = None,
    again: Annotated[bool, typer.Option("--again", help="Start anew if the one with this id is over.")] = False,
    tenant: TenantOption = None,
    metadata: MetadataOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run a conversation until its final reply, which goes to standard output; a terminal shows it as it is written.
    Everything else goes to stderr."""
    from everturn.cli.connect import AgentChoice

    choice = AgentChoice.from_options(model=model, tools=tool, system=system, agent=agent)
    text = prompt
    if prompt == "-":
        text = _read_all()
    if not text.strip():
        raise typer.BadParameter("the message is empty.", param_hint="PROMPT")
    name = id or f"{agent or 'run'}-{uuid4().hex[:8]}"
    labels = labels_of(tenant, metadata)
    shows_text = sys.stdout.isatty() and not as_json
    # What tools print is not the reply, so it goes to stderr.
    with streams.results_only():
        outcome, is_shown = asyncio.run(
            _run_conversation(choice, text, name, labels, approve_all=yes, again=again, streaming=shows_text)
        )
    _print_outcome(outcome, name, as_json=as_json, is_shown=is_shown)


def _read_all() -> str:
    from everturn.errors import InvalidFile

    try:
        return sys.stdin.buffer.read().decode().strip()
    except UnicodeDecodeError as error:
        raise InvalidFile(
            f"Standard input is not UTF-8: {error.reason}, at byte {error.start}.",
            cure="Convert it: iconv -f ENCODING -t UTF-8.",
        ) from None


async def _run_conversation(
    choice: AgentChoice,
    text: str,
    name: str,
    labels: dict[str, Any],
    *,
    approve_all: bool,
    again: bool,
    streaming: bool,
) -> tuple[Outcome, bool]:
    """The outcome, and whether its text is on the terminal already, where it was shown as it was written."""
    from everturn.cli.connect import connect
    from everturn.cli.terminal import Screen

    screen = Screen()
    streaming = streaming and screen.live
    options = {**labels, "stream": streaming}
    try:
        async with connect(choice, name, screen=screen, db=None, joins=not again) as place:
            conversation = await _start_conversation(place, text, name, options, again=again)
            try:
                return await _follow_to_outcome(
                    conversation, place, screen, approve_all=approve_all, streaming=streaming
                )
            except asyncio.CancelledError:
                _say_what_becomes_of_it(place, name, choice, screen)
                raise
    finally:
        screen.stop_spinner()


async def _start_conversation(
    place: Connection, text: str, name: str, options: dict[str, Any], *, again: bool
) -> Conversation:
    """The same id is the same work: see Client.start."""
    from everturn.errors import AlreadyStarted

    try:
        return await place.client.start(place.agent, text, id=name, model=place.model, again=again, **options)
    except AlreadyStarted as error:
        send = f"`{command_about('send', name)} TEXT`"
        cure = f"Use another --id. {send} says more to it; --again starts anew once it is over."
        raise AlreadyStarted(error.message, cure=cure) from None


async def _follow_to_outcome(
    conversation: Conversation, place: Connection, screen: Screen, *, approve_all: bool, streaming: bool
) -> tuple[Outcome, bool]:
    from everturn import events
    from everturn.cli.follow import Follower
    from everturn.errors import Ended, Stalled

    follower = Follower(
        conversation,
        screen=screen,
        temporal=place.client.temporal,
        approve_all=approve_all,
        prefix=place.prefix,
        streaming=streaming,
    )
    shown_text: str | None = None
    while True:
        stop = await follower.next_stop()
        if isinstance(stop, events.Replied) and streaming:
            shown_text = stop.message.text
        if isinstance(stop, events.Stalled):
            then = f"Then: {command_about('resume', conversation.id)}" if place.lasts else ""
            raise Stalled(stop.cause, cure=f"{stop.cure} {then}".strip())
        if isinstance(stop, events.Done):
            if stop.outcome is None:
                raise Ended(
                    f"Conversation {conversation.id!r} ended without a reply: {stop.why.rstrip('.')}.",
                    cure=f"`{command_about('show', conversation.id)}` shows its transcript." if place.lasts else "",
                )
            return stop.outcome, stop.outcome.text == shown_text


def _print_outcome(outcome: Outcome, name: str, *, as_json: bool, is_shown: bool) -> None:
    from everturn.errors import Ended

    if as_json:
        print_json({"id": name, **outcome.model_dump(mode="json")})
    elif not is_shown:
        _print_text(outcome.text)
    if outcome.status == "completed" and outcome.reason:
        print(f"! {outcome.reason}", file=sys.stderr)
    if outcome.status != "completed":
        raise Ended(f"Conversation {name!r} ended early: {outcome.reason or outcome.status}.")


def _print_text(text: str) -> None:
    """Prints the reply. A program or a file gets it as it was written; a terminal gets it rendered."""
    if not sys.stdout.isatty():
        print_result(text)
        return
    from everturn.cli.markdown_text import markdown_lines
    from everturn.cli.terminal import Screen

    screen = Screen(to_stdout=True)
    screen.print_lines(markdown_lines(text, width=screen.width))


def _say_what_becomes_of_it(place: Connection, name: str, choice: AgentChoice, screen: Screen) -> None:
    screen.stop_spinner()
    if not place.lasts:
        screen.print_line("Stopped. The conversation ended, with the server that was started for it.")
    elif choice.agent:
        screen.print_line(f"The conversation goes on. To follow it: {command_about('watch', name)}")
    else:
        screen.print_line(
            "The conversation waits for its worker, which ended with this command. "
            f"To continue: {_chat_command(name, choice)}"
        )


def _chat_command(name: str, choice: AgentChoice) -> str:
    """The command that continues the conversation."""
    words = ["everturn", "chat", "--id", name]
    if choice.model:
        words += ["-m", choice.model]
    for path in choice.tools:
        words += ["--tool", str(path)]
    if choice.system:
        words += ["-s", choice.system]
    return shlex.join(words)
