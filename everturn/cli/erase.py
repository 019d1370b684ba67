"""`everturn erase`: a conversation and all that belongs to it, for ever."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from everturn.cli.options import IdArgument, JsonOption
from everturn.cli.output import print_json, print_text

if TYPE_CHECKING:
    from everturn.client.erasure import Erased, ErasedConversation


def erase(
    id: IdArgument,  # noqa: A002
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list what would be erased.")] = False,
    force: Annotated[bool, typer.Option("--force", help="End at once what still runs.")] = False,
    keep_forks: Annotated[bool, typer.Option("--keep-forks", help="Leave its forks, with what they share.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Don't ask.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Erase a conversation with everything that belongs to it: runs, sub-agents, forks, files. Safe to repeat."""
    result = asyncio.run(
        _erase_conversation(id, dry_run=dry_run, force=force, keep_forks=keep_forks, yes=yes, quiet=as_json)
    )
    if result is None:
        raise typer.Exit(1)
    erased, journals = result
    if as_json:
        print_json({"id": id, "dry_run": dry_run, **asdict(erased), "journals": journals[0]})
    elif dry_run:
        print_text("\n".join(_erasure_lines(id, erased)))
    else:
        _print_erased(id, erased, journals)
    if erased.left or erased.refused:
        raise typer.Exit(1)


async def _erase_conversation(
    conversation_id: str, *, dry_run: bool, force: bool, keep_forks: bool, yes: bool, quiet: bool
) -> tuple[Erased, tuple[int, int]] | None:
    """What was erased; None if the person said no."""
    from everturn.cli.connect import remote_client
    from everturn.lost_workers.journal import forget_conversations

    async with remote_client() as client:
        if dry_run or not yes:
            preview = await client.erase(conversation_id, dry_run=True, force=force, keep_forks=keep_forks)
            if dry_run:
                return preview, (0, 0)
            if preview.conversations and not preview.refused:  # a refusal is shown on its own
                if not quiet:
                    print_text("\n".join(_erasure_lines(conversation_id, preview)))
                if not _is_confirmed():
                    print_text("Nothing was erased.")
                    return None
        erased = await client.erase(conversation_id, force=force, keep_forks=keep_forks)
        ids = {conversation_id, *(conversation.id for conversation in erased.conversations)}
        return erased, await asyncio.to_thread(forget_conversations, ids)


def _is_confirmed() -> bool:
    if not sys.stdin.isatty():
        from everturn.errors import Refused

        raise Refused("Nobody can be asked: this is not a terminal.", cure="To erase without a question, use --yes.")
    return typer.confirm("Erase all of this for ever?", default=False)


def _erasure_lines(conversation_id: str, erased: Erased) -> list[str]:
    lines = [_conversation_line(conversation) for conversation in erased.conversations] or [
        f"nothing is left of {conversation_id}"
    ]
    lines += [f"{fork}, a fork of it, stays, with what was said before it branches off" for fork in erased.kept]
    lines += [f"not reached: {where}" for where in erased.elsewhere]
    if erased.refused:
        lines.append(f"refused: {erased.refused}")
    return lines


def _conversation_line(conversation: ErasedConversation) -> str:
    from everturn.cli.render import format_count

    what = {
        "named": "",
        "asked": f" (answered a call of {conversation.of})",
        "fork": f" (forked from {conversation.of})",
        "evaluation": f" (judged an answer of {conversation.of})",
        "webhook": f" (what a webhook was sent about {conversation.of})",
    }[conversation.was]
    parts = [format_count(conversation.runs, "run")]
    if conversation.artifacts:
        parts.append(format_count(conversation.artifacts, "artifact"))
    if conversation.payloads:
        parts.append(format_count(conversation.payloads, "stored payload"))
    if conversation.running:
        parts.append("still running")
    return f"{conversation.id}{what}: {', '.join(parts)}"


def _print_erased(conversation_id: str, erased: Erased, journals: tuple[int, int]) -> None:
    from everturn.cli.render import format_count

    if not erased.conversations and not journals[0]:
        print_text(f"nothing is left of {conversation_id}")
    for conversation in erased.conversations:
        print_text(f"erased {_conversation_line(conversation)}".replace(", still running", ", terminated"))
    if journals[0]:
        print_text(f"erased {format_count(journals[0], 'journal')} of dead workers on this machine")
    if erased.under_way:
        print_text(f"under way: the server deletes {erased.under_way} of the histories within minutes")
    for leftover in erased.left:
        print_text(f"left: {leftover}")
    if journals[1]:
        in_use = format_count(journals[1], "journal")
        print_text(f"left: its id, in {in_use} of workers that run, until they have nothing in hand")
    for where in erased.elsewhere:
        print_text(f"not reached: {where}")
