"""`everturn pause`, `resume`, `cancel-turn` and `close`: what a person can do to a conversation as a whole."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated

import typer

from everturn.cli import completion
from everturn.cli.options import IdArgument, JsonOption, ReasonOption
from everturn.cli.output import print_json, print_text
from everturn.cli.steer_many import steer_many

if TYPE_CHECKING:
    from everturn.client.conversation import Conversation

IdOrQuery = Annotated[
    str | None, typer.Argument(metavar="ID", help="The conversation.", autocompletion=completion.offer_ids)
]
QueryOption = Annotated[
    str | None,
    typer.Option(
        "--query",
        metavar="QUERY",
        help="All running conversations that this filter finds, written as for `temporal workflow list`.",
    ),
]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="With --query: don't ask for confirmation.")]


def pause(
    id: IdOrQuery = None,  # noqa: A002
    reason: ReasonOption = None,
    query: QueryOption = None,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Pause a conversation before its next model turn; with --query, many of them."""
    if (wanted := _one_of(id, query)) is not None:
        steer_many(wanted, lambda client: client.pause_all(wanted, reason=reason), "pause", yes=yes, as_json=as_json)
        return
    assert id is not None
    _steer_one(id, lambda conversation: conversation.pause(reason), did="paused", as_json=as_json)


def resume(
    id: IdOrQuery = None,  # noqa: A002
    model: Annotated[
        str | None,
        typer.Option(
            "-m",
            "--model",
            metavar="PROVIDER:NAME",
            help="Continue with another model.",
            autocompletion=completion.offer_models,
        ),
    ] = None,
    query: QueryOption = None,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Continue a conversation after a pause or a stall; with --query, many of them."""
    if model is not None:
        _check_model(model)
    if (wanted := _one_of(id, query)) is not None:
        steer_many(wanted, lambda client: client.resume_all(wanted, model=model), "resume", yes=yes, as_json=as_json)
        return
    assert id is not None
    _steer_one(id, lambda conversation: conversation.resume(model=model), did="resumed", as_json=as_json)


def cancel_turn(
    id: IdArgument,  # noqa: A002
    reason: ReasonOption = None,
    as_json: JsonOption = False,
) -> None:
    """Cancel the running turn, model call and tools included. The conversation then waits for the next message."""
    _steer_one(id, lambda conversation: conversation.cancel_turn(reason), did="cancelled", as_json=as_json)


def close(
    id: IdArgument,  # noqa: A002
    reason: ReasonOption = None,
    as_json: JsonOption = False,
) -> None:
    """End a conversation: running calls finish, waiting ones are denied."""
    _steer_one(id, lambda conversation: conversation.close(reason), did="closing", as_json=as_json)


def _steer_one(
    conversation_id: str, act: Callable[[Conversation], Awaitable[None]], *, did: str, as_json: bool
) -> None:
    from everturn.cli.connect import act_on

    asyncio.run(act_on(conversation_id, act))
    if as_json:
        print_json({"id": conversation_id, "did": did})
    else:
        print_text(f"{did}: {conversation_id}")


def _one_of(conversation_id: str | None, query: str | None) -> str | None:
    """The query, if many conversations are meant; None if one is."""
    if (conversation_id is None) == (query is None):
        raise typer.BadParameter("which? Name one conversation, or many with --query", param_hint="ID")
    return query


def _check_model(name: str) -> None:
    from everturn.models import Model
    from everturn.providers.catalog import row_of

    row_of(Model(name).provider)
