"""`everturn pause`, `resume`, `cancel-turn` and `close`: what a person can do to a conversation as a whole."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated

import typer

from everturn.cli import completion
from everturn.cli.options import IdArgument, JsonOption, ReasonOption
from everturn.cli.output import tell, tell_json

if TYPE_CHECKING:
    from everturn.client.conversation import Conversation


def pause(
    id: IdArgument,  # noqa: A002
    reason: ReasonOption = None,
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
    reason: ReasonOption = None,
    as_json: JsonOption = False,
) -> None:
    """Stop the model call and the tools that run; the conversation is then ready for the next message."""
    _tell(id, lambda conversation: conversation.cancel_turn(reason), said="cancelled", as_json=as_json)


def close(
    id: IdArgument,  # noqa: A002
    reason: ReasonOption = None,
    as_json: JsonOption = False,
) -> None:
    """End a conversation: running calls finish, waiting ones are denied."""
    _tell(id, lambda conversation: conversation.close(reason), said="closing", as_json=as_json)


def _tell(conversation_id: str, how: Callable[[Conversation], Awaitable[None]], *, said: str, as_json: bool) -> None:
    from everturn.cli.connect import act_on

    asyncio.run(act_on(conversation_id, how))
    if as_json:
        tell_json({"id": conversation_id, "did": said})
    else:
        tell(f"{said}: {conversation_id}")


def _check_model(name: str) -> None:
    from everturn.models import Model
    from everturn.providers.catalog import row_of

    row_of(Model(name).provider)
