"""Commands that send something to a running conversation."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer

from everturn.cli import completion
from everturn.cli.options import IdArgument, JsonOption
from everturn.cli.output import tell, tell_json

if TYPE_CHECKING:
    from everturn.client.conversation import Conversation

CallArgument = Annotated[
    str,
    typer.Argument(
        metavar="[CALL]", help="The call's id; without one, all that wait.", autocompletion=completion.calls
    ),
]


def send(
    id: IdArgument,  # noqa: A002
    text: Annotated[str, typer.Argument(metavar="TEXT", help="What to say.")],
    message_id: Annotated[
        str | None, typer.Option("--message-id", help="Makes it safe to repeat: it is taken once.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Say something to a conversation, and revive it where it is over. Returns once Temporal has it."""
    revived = asyncio.run(_send(id, text, message_id))
    if as_json:
        tell_json({"id": id, "did": "sent", "revived": revived})
    else:
        tell(f"sent: {id}" + (", which was over and goes on" if revived else ""))


async def _send(conversation_id: str, text: str, message_id: str | None) -> bool:
    from everturn.cli.connect import remote_client
    from everturn.errors import Ended

    async with remote_client() as client:
        conversation = client.conversation(conversation_id)
        try:
            await conversation.send(text, message_id=message_id)
        except Ended:
            before = (await conversation.state()).start
            keep_open = timedelta(seconds=before.keep_open) if before.keep_open else None
            await client.send(before.agent, text, id=conversation_id, keep_open=keep_open, message_id=message_id)
            return True
    return False


def approve(
    id: IdArgument,  # noqa: A002
    call: CallArgument = "*",
    arguments: Annotated[
        str | None, typer.Option("--arguments", metavar="JSON", help="Run it with these arguments instead.")
    ] = None,
    note: Annotated[str | None, typer.Option("--note", help="A note; the model is told.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Let a tool call that waits run."""
    edited = _arguments(arguments)
    _decide(id, lambda it: it.approve(call, arguments=edited, note=note), said="approved", as_json=as_json)


def deny(
    id: IdArgument,  # noqa: A002
    call: CallArgument = "*",
    reason: Annotated[str | None, typer.Option("--reason", help="Why; the model is told.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Let a tool call that waits not run."""
    _decide(id, lambda conversation: conversation.deny(call, reason=reason), said="denied", as_json=as_json)


def answer(
    id: IdArgument,  # noqa: A002
    call: Annotated[str, typer.Argument(metavar="CALL", help="The call's id.", autocompletion=completion.calls)],
    content: Annotated[str, typer.Argument(metavar="CONTENT", help="The result: JSON, or else a text.")],
    error: Annotated[bool, typer.Option("--error", help="It says what went wrong.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Give a tool call's result, in the tool's place."""
    _decide(id, lambda it: it.answer(call, _json_or_text(content), is_error=error), said="answered", as_json=as_json)


def pause(
    id: IdArgument,  # noqa: A002
    reason: Annotated[str | None, typer.Option("--reason", help="Why.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Hold a conversation before its next model turn."""
    _tell(id, lambda conversation: conversation.pause(reason), said="paused", as_json=as_json)


def resume(
    id: IdArgument,  # noqa: A002
    model: Annotated[
        str | None,
        typer.Option(
            "-m",
            "--model",
            metavar="PROVIDER:NAME",
            help="Go on with another model.",
            autocompletion=completion.models,
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Go on after a pause or a stall."""
    if model is not None:
        _check_model(model)
    _tell(id, lambda conversation: conversation.resume(model=model), said="resumed", as_json=as_json)


def cancel_turn(
    id: IdArgument,  # noqa: A002
    reason: Annotated[str | None, typer.Option("--reason", help="Why.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Stop the model call and the tools that run; the conversation is then ready for the next message."""
    _tell(id, lambda conversation: conversation.cancel_turn(reason), said="cancelled", as_json=as_json)


def close(
    id: IdArgument,  # noqa: A002
    reason: Annotated[str | None, typer.Option("--reason", help="Why.")] = None,
    as_json: JsonOption = False,
) -> None:
    """End a conversation: what runs is finished, what waits is denied."""
    _tell(id, lambda conversation: conversation.close(reason), said="closing", as_json=as_json)


def _decide(
    conversation_id: str,
    how: Callable[[Conversation], Awaitable[tuple[str, ...]]],
    *,
    said: str,
    as_json: bool,
) -> None:
    call_ids = asyncio.run(_with_conversation(conversation_id, how))
    if as_json:
        tell_json({"call_ids": call_ids})
    else:
        tell(f"{said}: {', '.join(call_ids)}")


def _tell(
    conversation_id: str, how: Callable[[Conversation], Awaitable[None]], *, said: str, as_json: bool = False
) -> None:
    asyncio.run(_with_conversation(conversation_id, how))
    if as_json:
        tell_json({"id": conversation_id, "did": said})
    else:
        tell(f"{said}: {conversation_id}")


async def _with_conversation(conversation_id: str, how: Callable[[Conversation], Awaitable[Any]]) -> Any:
    from everturn.cli.connect import remote_client
    from everturn.errors import Ended

    async with remote_client() as client:
        try:
            return await how(client.conversation(conversation_id))
        except Ended as error:
            cure = f"`everturn send {conversation_id} TEXT` takes it up again."
            raise Ended(error.message, cure=cure) from None


def _arguments(written: str | None) -> dict[str, Any] | None:
    if written is None:
        return None
    try:
        value = json.loads(written)
    except (ValueError, RecursionError) as error:
        raise typer.BadParameter(f"it is not JSON: {error}", param_hint="--arguments") from None
    if not isinstance(value, dict):
        raise typer.BadParameter("it is a JSON object, such as '{\"cents\": 900}'", param_hint="--arguments")
    return value


def _json_or_text(content: str) -> Any:
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        return content


def _check_model(name: str) -> None:
    from everturn.models import Model
    from everturn.providers.catalog import row_of

    row_of(Model(name).provider)
