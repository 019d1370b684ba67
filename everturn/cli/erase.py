"""`everturn erase`: a conversation and all that belongs to it, for ever."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from everturn.cli.options import IdArgument, JsonOption
from everturn.cli.output import tell, tell_json

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
    done = asyncio.run(_erase(id, dry_run=dry_run, force=force, keep_forks=keep_forks, yes=yes, quiet=as_json))
    if done is None:
        raise typer.Exit(1)
    erased, journals = done
    if as_json:
        tell_json({"id": id, "dry_run": dry_run, **asdict(erased), "journals": journals[0]})
    elif dry_run:
        tell("\n".join(_listed(id, erased)))
    else:
        _say(id, erased, journals)
    if erased.left or erased.refused:
        raise typer.Exit(1)


async def _erase(
    conversation_id: str, *, dry_run: bool, force: bool, keep_forks: bool, yes: bool, quiet: bool
) -> tuple[Erased, tuple[int, int]] | None:
    """What was erased; None if the person said no."""
    from everturn.activities.journal import forget_conversations
    from everturn.cli.connect import remote_client

    async with remote_client() as client:
        if dry_run or not yes:
            found = await client.erase(conversation_id, dry_run=True, force=force, keep_forks=keep_forks)
            if dry_run:
                return found, (0, 0)
            if found.conversations and not found.refused:  # a refusal is shown on its own
                if not quiet:
                    tell("\n".join(_listed(conversation_id, found)))
                if not _agreed():
                    tell("Nothing was erased.")
                    return None
        erased = await client.erase(conversation_id, force=force, keep_forks=keep_forks)
        ids = {conversation_id, *(one.id for one in erased.conversations)}
        return erased, await asyncio.to_thread(forget_conversations, ids)


def _agreed() -> bool:
    if not sys.stdin.isatty():
        from everturn.errors import Refused

        raise Refused("Nobody can be asked: this is not a terminal.", cure="To erase without a question, use --yes.")
    return typer.confirm("Erase all of this for ever?", default=False)


def _listed(conversation_id: str, erased: Erased) -> list[str]:
    lines = [_line(one) for one in erased.conversations] or [f"nothing is left of {conversation_id}"]
    lines += [f"{fork}, a fork of it, stays, with what was said before it branches off" for fork in erased.kept]
    lines += [f"not reached: {where}" for where in erased.elsewhere]
    return [*lines, *([f"refused: {erased.refused}"] if erased.refused else [])]


def _line(one: ErasedConversation) -> str:
    from everturn.cli.render import count

    what = {"named": "", "asked": f" (answered a call of {one.of})", "fork": f" (forked from {one.of})"}[one.was]
    parts = [count(one.runs, "run")]
    parts += [count(one.artifacts, "artifact")] if one.artifacts else []
    parts += [count(one.payloads, "stored payload")] if one.payloads else []
    return f"{one.id}{what}: {', '.join(parts)}{', still running' if one.running else ''}"


def _say(conversation_id: str, erased: Erased, journals: tuple[int, int]) -> None:
    from everturn.cli.render import count

    if not erased.conversations and not journals[0]:
        tell(f"nothing is left of {conversation_id}")
    for one in erased.conversations:
        tell(f"erased {_line(one)}".replace(", still running", ", terminated"))
    if journals[0]:
        tell(f"erased {count(journals[0], 'journal')} of dead workers on this machine")
    if erased.under_way:
        tell(f"under way: the server deletes {erased.under_way} of the histories within minutes")
    for left in erased.left:
        tell(f"left: {left}")
    if journals[1]:
        tell(f"left: its id, in {count(journals[1], 'journal')} of workers that run, until they have nothing in hand")
    for where in erased.elsewhere:
        tell(f"not reached: {where}")
