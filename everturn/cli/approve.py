"""`everturn approve`, `deny` and `answer`: a person's decision on tool calls that wait."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from everturn.cli import completion
from everturn.cli.options import IdArgument, JsonOption
from everturn.cli.output import tell, tell_json

if TYPE_CHECKING:
    from everturn.client.conversation import Conversation

CallArgument = Annotated[
    str,
    typer.Argument(metavar="CALL", help="The call's id; without one, all that wait.", autocompletion=completion.calls),
]


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
    """Refuse a tool call that waits: it does not run."""
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


def _decide(
    conversation_id: str,
    how: Callable[[Conversation], Awaitable[tuple[str, ...]]],
    *,
    said: str,
    as_json: bool,
) -> None:
    from everturn.cli.connect import act_on

    call_ids = asyncio.run(act_on(conversation_id, how))
    if as_json:
        tell_json({"call_ids": call_ids})
    else:
        tell(f"{said}: {', '.join(call_ids)}")


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
