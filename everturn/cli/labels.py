"""`--tenant` and `--metadata`: what a conversation is started with besides its message."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from everturn.system.json_numbers import parse_json

TenantOption = Annotated[
    str | None, typer.Option("--tenant", metavar="NAME", help="The tenant (customer) that the conversation is for.")
]
MetadataOption = Annotated[
    list[str] | None,
    typer.Option(
        "--metadata",
        metavar="KEY=VALUE",
        help="A fact for its tools, besides the message. KEY:=JSON gives a value that is not text. May be repeated.",
    ),
]


def labels_of(tenant: str | None, metadata: list[str] | None) -> dict[str, Any]:
    """The labels as arguments of Client.start. Raises typer.BadParameter."""
    return {"tenant": tenant, "metadata": dict(map(_parse_metadata, metadata or ()))}


def _parse_metadata(given: str) -> tuple[str, Any]:
    key, equals, value = given.partition("=")
    if not equals or not key.removesuffix(":"):
        raise typer.BadParameter(f"{given!r} is not KEY=VALUE.", param_hint="--metadata")
    if not key.endswith(":"):
        return key, value
    try:
        return key.removesuffix(":"), parse_json(value)
    except ValueError:
        raise typer.BadParameter(f"the value of {given!r} is not JSON.", param_hint="--metadata") from None
