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
from temporalio.api.enums.v1 import ArchivalState
from temporalio.api.namespace.v1 import NamespaceConfig
from temporalio.api.workflowservice.v1 import DeleteWorkflowExecutionRequest, DescribeNamespaceRequest
from temporalio.client import Client
from temporalio.converter import StorageDriverClaim
from temporalio.service import RPCError, RPCStatusCode

from everturn import names
from everturn.client.belongings import Belonging, Belongings, Was, find_belongings
from everturn.client.client_base import ClientBase
from everturn.client.fork_lines import ForkLines
from everturn.client.listing import quoted
from everturn.client.runs import describe
from everturn.errors import InvalidSetting, Refused
from everturn.logs import get_logger
from everturn.settings import Settings
from everturn.storage.artifacts import Artifacts
from everturn.storage.external import delete_stored
from everturn.temporal import temporal_errors
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
    """`named`: the one that `erase` was called for; `asked`: it answers a call of another one; `fork`: it is a fork."""
    of: str = ""
    """The conversation whose call it answers, or that it was forked from."""
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
        return sum(one.runs for one in self.conversations)

    @property
    def artifacts(self) -> int:
        return sum(one.artifacts for one in self.conversations)

    @property
    def payloads(self) -> int:
        return sum(one.payloads for one in self.conversations)


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
        forks and their forks, with the artifacts and stored payloads of each. Safe to repeat, also after it stopped in
        the middle.

        `dry_run`: only says what it would erase. `force`: terminates conversations that still run; their running
        tools may still take effect. `keep_forks`: forks stay, with their copy of the beginning. `artifacts`: where
        they are; None means EVERTURN_ARTIFACTS, if set. Raises Refused if one of them runs (without `force`), if a
        fork that stays can't be read without it, and if it answers a call of a conversation that still exists. Raises
        Unreachable, and errors of the stores.
        """
        kept_at = artifacts or Settings.load().artifacts
        opened = Artifacts.at(kept_at) if isinstance(kept_at, str | Path) else kept_at
        with temporal_errors.explained(self.temporal, check_utf8("id", conversation_id), "erasure"):
            found = await find_belongings(self.temporal, conversation_id, keep_forks=keep_forks)
            refusal = _refusal(found, force=force)
            if dry_run:
                return await _would_erase(self.temporal, found, opened, refusal)
            if refusal:
                raise refusal
            return await _erase(self.temporal, found, opened)


def _refusal(found: Belongings, *, force: bool) -> Refused | None:
    name = repr(found.id)
    if found.asked_by:
        return Refused(
            f"Conversation {name} answers a call of {found.asked_by!r}, whose history holds its answer.",
            cure=f"Erase {found.asked_by!r}: that erases this one, too.",
        )
    running = sorted(one.id for one in found.conversations.values() if one.running)
    if running and not force:
        return Refused(
            f"Conversation {name} can't be erased: {', '.join(map(repr, running))} still runs.",
            cure="Close it first (`everturn close`, or close()); or terminate it, with --force or "
            "force=True. A running tool may then still take effect.",
        )
    if found.bound:
        return Refused(
            f"{', '.join(map(repr, found.bound))} can't be read without the history of {name}: they are forks of it.",
            cure="Start a worker for the forks: they copy what they need at their next step. "
            "Or erase them, too: without --keep-forks or keep_forks=True.",
        )
    return None


async def _would_erase(
    client: Client, found: Belongings, artifacts: Artifacts | None, refusal: Refused | None
) -> Erased:
    listed = []
    for one in found.conversations.values():
        kept = await asyncio.to_thread(artifacts.count, one.id) if artifacts else 0
        listed.append(replace(_listed(one), runs=len(one.runs), artifacts=kept, payloads=one.payloads))
    return Erased(
        conversations=tuple(filter(None, listed)),
        kept=tuple(found.kept),
        elsewhere=(*found.outside, *await _elsewhere(client)),
        refused=str(refusal or ""),
    )


async def _erase(client: Client, found: Belongings, artifacts: Artifacts | None) -> Erased:
    left: list[str] = []
    erased: dict[str, ErasedConversation] = {}
    for one in found.conversations.values():
        if one.running:
            await _terminate(client, one.id)
    # A conversation goes before the one that it belongs to, whose history says that it belongs there.
    for one in reversed(found.conversations.values()):
        kept = await asyncio.to_thread(artifacts.delete, one.id) if artifacts else 0
        stored, unknown = await _erase_payloads(client, one)
        left += unknown
        erased[one.id] = replace(_listed(one), artifacts=kept, payloads=stored)
    for one in reversed(found.conversations.values()):
        taken = [run for run in one.runs if await _delete_run(client, one.id, run)]
        erased[one.id] = replace(erased[one.id], runs=len(taken))
    under_way = await _still_there(client, list(found.conversations.values()))
    left += await _late_forks(client, found)
    done = Erased(
        conversations=tuple(filter(None, reversed(erased.values()))),
        kept=tuple(found.kept),
        under_way=under_way,
        left=tuple(left),
        elsewhere=(*found.outside, *await _elsewhere(client)),
    )
    # The ids stay out of the log: it outlives what is erased.
    _log.info("conversation.erased", conversations=len(done.conversations), runs=done.runs, artifacts=done.artifacts)
    return done


async def _late_forks(client: Client, found: Belongings) -> list[str]:
    """Forks that the index did not show yet when it was asked first: they were started a moment before."""
    forks, known = ForkLines(client), {*found.conversations, *found.kept}
    late = {fork.id: None for one in found.conversations for fork in await forks.of(one) if fork.id not in known}
    return [f"{one}: a fork of it that was started just before. Repeat the erasure" for one in late]


def _listed(one: Belonging) -> ErasedConversation:
    return ErasedConversation(one.id, was=one.was, of=one.of, running=one.running)


async def _erase_payloads(client: Client, one: Belonging) -> tuple[int, list[str]]:
    """Returns how many payloads were erased, and what is left, in words."""
    count, left, claims = 0, [], dict(one.claims)
    if (storage := client.data_converter.external_storage) is not None:
        for driver in storage.drivers:
            named = [StorageDriverClaim(dict(claim)) for claim in claims.pop(driver.name(), ())]
            stored, trouble = await delete_stored(driver, named, owners=[one.id])
            count += stored
            left += [f"{one.id}: {trouble}"] if trouble else []
    left += [
        f"{one.id}: {len(some)} payloads in the external storage {driver!r}, which is not set up here"
        for driver, some in claims.items()
    ]
    return count, left


async def _terminate(client: Client, conversation_id: str) -> None:
    try:
        await client.get_workflow_handle(conversation_id).terminate(reason="it is erased")
    except RPCError as error:
        if error.status is not RPCStatusCode.NOT_FOUND:  # it ended meanwhile
            raise


async def _delete_run(client: Client, conversation_id: str, run: str) -> bool:
    """Returns False if the history is already gone."""
    execution = WorkflowExecution(workflow_id=conversation_id, run_id=run)
    request = DeleteWorkflowExecutionRequest(namespace=client.namespace, workflow_execution=execution)
    try:
        await client.workflow_service.delete_workflow_execution(request)
    except RPCError as error:
        if error.status is not RPCStatusCode.NOT_FOUND:
            raise
        return False
    return True


async def _still_there(client: Client, conversations: Sequence[Belonging]) -> int:
    """How many histories the server still has after at most GONE_SECONDS, including those only in its index."""
    until = time.monotonic() + GONE_SECONDS
    runs = [(one.id, run) for one in conversations for run in one.runs]
    listed = {one.id for one in conversations if one.runs}
    while runs or listed:
        runs = [one for one in runs if await describe(client, *one) is not None]
        listed = {one for one in listed if await _is_listed(client, one)}
        if time.monotonic() > until:
            break
        await asyncio.sleep(0.1)
    return len(runs) + len(listed - {name for name, _ in runs})


async def _is_listed(client: Client, conversation_id: str) -> bool:
    """Whether lists still show it: the server empties its index after the history."""
    query = f"WorkflowId = {quoted(conversation_id)} AND WorkflowType = {quoted(names.CONVERSATION)}"
    return (await client.count_workflows(query)).count > 0


async def _elsewhere(client: Client) -> tuple[str, ...]:
    try:
        described = await client.workflow_service.describe_namespace(
            DescribeNamespaceRequest(namespace=client.namespace)
        )
    except RPCError as error:
        if error.status is not RPCStatusCode.PERMISSION_DENIED:
            raise
        return ("It is not known whether the namespace archives histories: these credentials may not ask.",)
    return archives_of(described.config)


def archives_of(config: NamespaceConfig) -> tuple[str, ...]:
    """Where a namespace archives workflows that have ended, in words."""
    enabled = ArchivalState.ARCHIVAL_STATE_ENABLED
    found = []
    if config.history_archival_state == enabled:
        found.append(f"Temporal's archive of histories at {config.history_archival_uri}: what had ended may be there.")
    if config.visibility_archival_state == enabled:
        found.append(f"Temporal's archive of its index at {config.visibility_archival_uri}: what had ended is listed.")
    return tuple(found)
