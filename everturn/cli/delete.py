"""`everturn delete`: a conversation and all that belongs to it."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from everturn.cli.options import IdArgument, JsonOption
from everturn.cli.output import tell, tell_json

if TYPE_CHECKING:
    from everturn.client.deletion import Belongings, Deleted


def delete(
    id: IdArgument,  # noqa: A002
    forks: Annotated[bool, typer.Option("--forks", help="Delete its forks, too.")] = False,
    terminate: Annotated[bool, typer.Option("--terminate", help="End it first, if it still runs.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Don't ask.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Delete a conversation with everything that belongs to it. Safe to repeat."""
    done = asyncio.run(_delete(id, forks=forks, terminate=terminate, yes=yes))
    if done is None:
        raise typer.Exit(1)
    deleted, journals = done
    if as_json:
        tell_json({"id": id, **asdict(deleted), "journals": journals[0]})
    else:
        _say(id, deleted, journals)


async def _delete(
    conversation_id: str, *, forks: bool, terminate: bool, yes: bool
) -> tuple[Deleted, tuple[int, int]] | None:
    """None if the person said no."""
    from everturn.activities.journal import forget
    from everturn.cli.connect import remote_client
    from everturn.client.deletion import find_belongings

    async with remote_client() as client:
        conversation = client.conversation(conversation_id)
        if not yes:
            found = await find_belongings(client.temporal, conversation_id)
            if found.conversations != [conversation_id] or found.runs[conversation_id]:
                tell("\n".join(_question(found, forks=forks, terminate=terminate)))
                if not _agreed():
                    tell("Nothing was deleted.")
                    return None
        deleted = await conversation.delete(forks=forks, terminate=terminate)
        names = {conversation_id, *deleted.conversations}
        return deleted, await asyncio.to_thread(forget, names)


def _agreed() -> bool:
    if not sys.stdin.isatty():
        from everturn.errors import Refused

        raise Refused("Nobody can be asked: this is not a terminal.", cure="To delete without a question, use --yes.")
    return typer.confirm("Delete all of this for ever?", default=False)


def _question(found: Belongings, *, forks: bool, terminate: bool) -> list[str]:
    from everturn.cli.render import count

    agents = [one for one in found.conversations if one != found.id]
    runs = sum(map(len, found.runs.values()))
    lines = [f"{found.id}: {count(runs, 'run')}, {count(found.payloads, 'payload')} in external storage"]
    lines += [f"  with {one}, which an agent of it answered in" for one in agents]
    lines += [
        f"  {one} still runs" + (", and will be terminated" if terminate else "") for one in sorted(found.running)
    ]
    for fork in found.forks:
        what = "will be deleted, too" if forks else "can't be read without it" if fork.needs else "stays, with a copy"
        lines.append(f"  {fork.id} was forked from it, and {what}")
    return lines


def _say(conversation_id: str, deleted: Deleted, journals: tuple[int, int]) -> None:
    from everturn.cli.render import count

    if not any((deleted.runs, deleted.artifacts, deleted.payloads, journals[0])):
        tell(f"nothing is left of {conversation_id}")
    else:
        tell(
            f"deleted: {', '.join(deleted.conversations) or conversation_id}: {count(deleted.runs, 'run')}, "
            f"{count(deleted.artifacts, 'artifact')}, {count(deleted.payloads, 'stored payload')}, "
            f"{count(journals[0], 'journal')}"
        )
    for left in deleted.left:
        tell(f"left: {left}")
    if journals[1]:
        tell(f"left: its id, in {count(journals[1], 'journal')} of workers that run, until they have nothing in hand")
