"""Erases a conversation with all that belongs to it: every run, the agents that it asked, forks, artifacts, payloads.

Everything that belongs to the conversation is found first. Then it is erased, the histories last: if that stops in the
middle, the histories still say what is left, and the next `erase` goes on with it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import DeleteWorkflowExecutionRequest
from temporalio.client import Client
from temporalio.converter import StorageDriverClaim
from temporalio.service import RPCError

from everturn import names
from everturn.client.belongings import Belonging, Belongings, Was, find_belongings
from everturn.client.client_base import ClientBase
from everturn.client.fork_search import ForkLines
from everturn.client.out_of_reach import find_archives
from everturn.client.runs import describe_run
from everturn.errors import InvalidSetting, Refused
from everturn.evaluations.client import evaluation_rows
from everturn.logs import get_logger
from everturn.settings import Settings
from everturn.storage.artifacts import Artifacts
from everturn.storage.external import delete_stored
from everturn.temporal import temporal_errors
from everturn.temporal.filter_values import quoted
from everturn.temporal.temporal_errors import not_found
from everturn.text.utf8 import check_utf8
from everturn.validation.spelling import known_options

GONE_SECONDS: Final = 10.0
"""How long to wait for the server, which deletes histories in the background. By default, it keeps a history that has
just ended for half a minute, until it has recorded that the end is dealt with."""

_log = get_logger("everturn.erasure")


@dataclass(frozen=True)
class ErasedConversation:
    """An erased conversation, and what was erased with it."""

    id: str
    was: Was = "named"
    """`named`: the one that `erase` was called for; `asked`: it answers a call of another one; `fork`: it is a fork;
    `evaluation`: it is no conversation, but what an evaluator said about an answer; `webhook`: what one was sent."""
    of: str = ""
    """The conversation whose call it answers, that it was forked from, that it judges, or that it is about."""
    running: bool = False
    """It still ran, and was terminated."""
    runs: int = 0
    """How many histories."""
    artifacts: int = 0
    payloads: int = 0
    """How many payloads in external storage."""

    def __bool__(self) -> bool:
        return bool(self.runs or self.artifacts or self.payloads)


@dataclass(frozen=True)
class Erased:
    """What `client.erase` has erased; with `dry_run`, what it would."""

    conversations: tuple[ErasedConversation, ...] = ()
    """The named one first. Empty if there was nothing."""
    kept: tuple[str, ...] = ()
    """With `keep_forks`: the forks that stay. They hold the messages from before they branch off."""
    under_way: int = 0
    """How many histories the server has agreed to delete, but still has: it deletes them within minutes."""
    left: tuple[str, ...] = ()
    """What could not be erased, in words."""
    elsewhere: tuple[str, ...] = ()
    """What is known to be kept where everturn can't delete it, in words: by workflows of the application that asked,
    say. Who they were is read from the histories: an `erase` after this one no longer knows."""
    refused: str = ""
    """With `dry_run`: why it would be refused, and the cure."""

    @property
    def runs(self) -> int:
        return sum(conversation.runs for conversation in self.conversations)

    @property
    def artifacts(self) -> int:
        return sum(conversation.artifacts for conversation in self.conversations)

    @property
    def payloads(self) -> int:
        return sum(conversation.payloads for conversation in self.conversations)


class ErasingClient(ClientBase):
    """The part of a client that erases conversations."""

    @known_options("Client.erase", InvalidSetting)
    async def erase(
        self,
        conversation_id: str,
        *,
        dry_run: bool = False,
        force: bool = False,
        keep_forks: bool = False,
        artifacts: Artifacts | Path | str | None = None,
    ) -> Erased:
        """Erases a conversation for ever: the history of every run, the conversations of the agents that it asked, its
        forks and their forks, with the artifacts and stored payloads of each, and what evaluators said about its
        answers. Safe to repeat, also after it stopped in the middle.

        `dry_run`: only says what it would erase. `force`: terminates conversations that still run; their running
        tools may still take effect. `keep_forks`: forks stay, with their copy of the beginning. `artifacts`: where
        they are; None means EVERTURN_ARTIFACTS, if set. Raises Refused if one of them runs (without `force`), if a
        fork that stays can't be read without it, and if it answers a call of a conversation that still exists. Raises
        Unreachable, and errors of the stores.
        """
        store = artifacts or Settings.load().artifacts
        if isinstance(store, str | Path):
            store = Artifacts.at(store)
        with temporal_errors.explained(self.temporal, check_utf8("id", conversation_id), "erasure"):
            belongings = await find_belongings(self.temporal, conversation_id, keep_forks=keep_forks)
            refusal = _find_refusal(belongings, force=force)
            if dry_run:
                return await _would_erase(self.temporal, belongings, store, refusal)
            if refusal:
                raise refusal
            return await _erase_all(self.temporal, belongings, store)


def _find_refusal(belongings: Belongings, *, force: bool) -> Refused | None:
    name = repr(belongings.id)
    if belongings.asked_by:
        return Refused(
            f"Conversation {name} answers a call of {belongings.asked_by!r}, whose history holds its answer.",
            cure=f"Erase {belongings.asked_by!r}: that erases this one, too.",
        )
    running = sorted(
        belonging.id
        for belonging in belongings.conversations.values()
        if belonging.running and belonging.was not in ("evaluation", "webhook")  # it harms nobody if these are ended
    )
    if running and not force:
        return Refused(
            f"Conversation {name} can't be erased: {', '.join(map(repr, running))} still runs.",
            cure="Close it first (`everturn close`, or close()); or terminate it, with --force or "
            "force=True. A running tool may then still take effect.",
        )
    if belongings.bound:
        forks = ", ".join(map(repr, belongings.bound))
        return Refused(
            f"{forks} can't be read without the history of {name}: they are forks of it.",
            cure="Start a worker for the forks: they copy what they need at their next step. "
            "Or erase them, too: without --keep-forks or keep_forks=True.",
        )
    return None


async def _would_erase(
    client: Client, belongings: Belongings, artifacts: Artifacts | None, refusal: Refused | None
) -> Erased:
    listed = []
    for belonging in belongings.conversations.values():
        kept = await asyncio.to_thread(artifacts.count, belonging.id) if artifacts else 0
        listed.append(
            replace(_as_erased(belonging), runs=len(belonging.runs), artifacts=kept, payloads=belonging.payloads)
        )
    return Erased(
        conversations=tuple(filter(None, listed)),
        kept=tuple(belongings.kept),
        elsewhere=(*belongings.outside, *await find_archives(client)),
        refused=str(refusal or ""),
    )


async def _erase_all(client: Client, belongings: Belongings, artifacts: Artifacts | None) -> Erased:
    leftovers: list[str] = []
    erased: dict[str, ErasedConversation] = {}
    for belonging in belongings.conversations.values():
        if belonging.running:
            await _terminate_conversation(client, belonging.id)
    # A conversation goes before the one that it belongs to, whose history says that it belongs there.
    for belonging in reversed(belongings.conversations.values()):
        kept = await asyncio.to_thread(artifacts.delete, belonging.id) if artifacts else 0
        stored, unknown = await _erase_payloads(client, belonging)
        leftovers += unknown
        erased[belonging.id] = replace(_as_erased(belonging), artifacts=kept, payloads=stored)
    for belonging in reversed(belongings.conversations.values()):
        deleted = [run_id for run_id in belonging.runs if await _delete_run(client, belonging.id, run_id)]
        erased[belonging.id] = replace(erased[belonging.id], runs=len(deleted))
    under_way = await _still_there(client, list(belongings.conversations.values()))
    leftovers += [*await _late_forks(client, belongings), *await _late_evaluations(client, belongings)]
    done = Erased(
        conversations=tuple(filter(None, reversed(erased.values()))),
        kept=tuple(belongings.kept),
        under_way=under_way,
        left=tuple(leftovers),
        elsewhere=(*belongings.outside, *await find_archives(client)),
    )
    # The ids stay out of the log: it outlives what is erased.
    _log.info("conversation.erased", conversations=len(done.conversations), runs=done.runs, artifacts=done.artifacts)
    return done


async def _late_forks(client: Client, belongings: Belongings) -> list[str]:
    """Forks that the index did not show yet when it was asked first: they were started a moment before."""
    forks = ForkLines(client)
    known = {*belongings.conversations, *belongings.kept}
    late_forks = {
        fork.id: None
        for conversation_id in belongings.conversations
        for fork in await forks.find_forks(conversation_id)
        if fork.id not in known
    }
    return [f"{fork_id}: a fork of it that was started just before. Repeat the erasure" for fork_id in late_forks]


async def _late_evaluations(client: Client, belongings: Belongings) -> list[str]:
    """Evaluations that the index did not show yet when it was asked first."""
    known = belongings.conversations
    late = [row.id for conversation_id in known for row in await evaluation_rows(client, conversation_id)]
    return [
        f"{name}: an evaluation that was started just before. Repeat the erasure" for name in late if name not in known
    ]


def _as_erased(belonging: Belonging) -> ErasedConversation:
    return ErasedConversation(belonging.id, was=belonging.was, of=belonging.of, running=belonging.running)


async def _erase_payloads(client: Client, belonging: Belonging) -> tuple[int, list[str]]:
    """Returns how many payloads were erased, and what is left, in words."""
    count = 0
    leftovers: list[str] = []
    claims = dict(belonging.claims)
    if (storage := client.data_converter.external_storage) is not None:
        for driver in storage.drivers:
            named = [StorageDriverClaim(dict(claim)) for claim in claims.pop(driver.name(), ())]
            stored, trouble = await delete_stored(driver, named, owners=[belonging.id])
            count += stored
            if trouble:
                leftovers.append(f"{belonging.id}: {trouble}")
    leftovers += [
        f"{belonging.id}: {len(some)} payloads in the external storage {driver!r}, which is not set up here"
        for driver, some in claims.items()
    ]
    return count, leftovers


async def _terminate_conversation(client: Client, conversation_id: str) -> None:
    try:
        await client.get_workflow_handle(conversation_id).terminate(reason="it is erased")
    except RPCError as error:
        if not not_found(error):  # it ended meanwhile
            raise


async def _delete_run(client: Client, conversation_id: str, run_id: str) -> bool:
    """Returns False if the history is already gone."""
    execution = WorkflowExecution(workflow_id=conversation_id, run_id=run_id)
    request = DeleteWorkflowExecutionRequest(namespace=client.namespace, workflow_execution=execution)
    try:
        await client.workflow_service.delete_workflow_execution(request, retry=True)
    except RPCError as error:
        if not not_found(error):
            raise
        return False
    return True


async def _still_there(client: Client, conversations: Sequence[Belonging]) -> int:
    """How many histories the server still has after at most GONE_SECONDS, including those only in its index."""
    until = time.monotonic() + GONE_SECONDS
    runs = [(belonging.id, run_id) for belonging in conversations for run_id in belonging.runs]
    listed = {belonging.id for belonging in conversations if belonging.runs}
    while runs or listed:
        runs = [run for run in runs if await describe_run(client, *run) is not None]
        listed = {conversation_id for conversation_id in listed if await _is_listed(client, conversation_id)}
        if time.monotonic() > until:
            break
        await asyncio.sleep(0.1)
    return len(runs) + len(listed - {name for name, _ in runs})


async def _is_listed(client: Client, conversation_id: str) -> bool:
    """Whether lists still show it: the server empties its index after the history."""
    kinds = f"{quoted(names.CONVERSATION)}, {quoted(names.EVALUATION)}, {quoted(names.WEBHOOK)}"
    query = f"WorkflowId = {quoted(conversation_id)} AND WorkflowType IN ({kinds})"
    return (await client.count_workflows(query)).count > 0
