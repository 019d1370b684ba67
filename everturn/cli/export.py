"""`everturn export`: whole conversations for other programs."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from everturn.cli import completion
from everturn.cli.output import print_result, print_text
from everturn.system.private_files import write_atomically

if TYPE_CHECKING:
    from everturn.exporting import Exported

Format = Literal["jsonl", "markdown", "sqlite"]

_FORMAT_OF: dict[str, Format] = {
    ".jsonl": "jsonl",
    ".md": "markdown",
    ".db": "sqlite",
    ".sqlite": "sqlite",
    ".sqlite3": "sqlite",
}


def export(
    ids: Annotated[
        list[str], typer.Argument(metavar="ID", help="The conversations.", autocompletion=completion.offer_ids)
    ],
    format: Annotated[  # noqa: A002 - the contract's name
        Format | None, typer.Option("--format", help="Default: by the file's ending; jsonl without a file.")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            metavar="FILE",
            help="Write to this file instead of standard output. An existing SQLite file is added to.",
        ),
    ] = None,
) -> None:
    """Write whole conversations as JSON lines, Markdown or a SQLite database."""
    chosen = format or _format_of(output)
    if output is None and chosen == "sqlite":
        raise typer.BadParameter("a SQLite database needs a file: use --output FILE", param_hint="--format")
    exported = asyncio.run(_read_conversations(ids))
    if output is None:
        print_result(_format_exported(exported, chosen), end="")
        return
    if chosen == "sqlite":
        from everturn.exporting import write_sqlite

        write_sqlite(output, exported)
    else:
        _replace_file(output, _format_exported(exported, chosen))
    print_text(f"exported: {', '.join(ids)} to {output}")


def _format_of(output: Path | None) -> Format:
    if output is None or not (output.suffix or output.is_file()):
        return "jsonl"
    if chosen := _FORMAT_OF.get(output.suffix.lower()):
        return chosen
    if not output.suffix or (output.exists() and not output.is_file()):  # a pipe, or /dev/stdout
        return "jsonl"
    known = ", ".join(_FORMAT_OF)
    raise typer.BadParameter(f"{output.name} has no known ending: use {known}, or add --format", param_hint="--output")


async def _read_conversations(ids: list[str]) -> list[Exported]:
    from everturn.cli.connect import remote_client
    from everturn.exporting import read_conversation

    async with remote_client() as client:
        return [await read_conversation(client, conversation_id) for conversation_id in ids]


def _format_exported(exported: list[Exported], chosen: Format) -> str:
    from everturn.exporting import to_jsonl, to_markdown

    if chosen == "markdown":
        return "".join(map(to_markdown, exported))
    return "".join(map(to_jsonl, exported))


def _replace_file(file: Path, text: str) -> None:
    """Replaces the file's text. Whatever goes wrong, the file has either the old text or the new one."""
    from everturn.errors import InvalidFile

    try:
        if file.exists() and not file.is_file():  # a pipe, or /dev/stdout
            file.write_text(text, encoding="utf-8")
        else:
            write_atomically(file, text.encode())
    except OSError as error:
        raise InvalidFile(f"{file} can't be written: {error.strerror}.", cure="Name another file.") from error
