"""Collects cases: conversations that a query finds, redacted, into a folder for git; and what was erased out of it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from pydantic import JsonValue
from temporalio.client import WorkflowExecution
from temporalio.service import RPCError

from everturn import names
from everturn.client.client import Client
from everturn.client.conversations_by_query import draw_sample, find_matching
from everturn.client.listing import ListedConversation, build_query, read_labelled
from everturn.errors import EverturnError, NotFound
from everturn.evals.case_files import case_files, read_case_file, write_cases
from everturn.evals.cases import Label, RecordedCase, cases_of, labels_of
from everturn.evals.recorded import read_recorded
from everturn.evals.redaction import DIGEST, PATTERNS, Redactor, id_digest, make_redactor, redact_case, redact_id
from everturn.guardrails import Pattern
from everturn.logs import get_logger
from everturn.system.bounded_concurrency import in_order
from everturn.temporal.temporal_errors import not_found

AT_ONCE: Final = 8
"""Histories that are read at the same time."""

UNDER_WAY: Final = ("running", "awaiting_approval", "awaiting_answer")
"""States of conversations that are no cases yet: what they come to is not known."""

_log = get_logger("everturn.evals")


@dataclass(frozen=True)
class Collected:
    """What an export did to its folder."""

    cases: tuple[RecordedCase, ...] = ()
    """Of the conversations that it found, and of those that the folder had."""
    written: tuple[Path, ...] = ()
    """The files that are new or have changed."""
    removed: tuple[Path, ...] = ()
    """Their conversations were erased."""
    gone: tuple[Path, ...] = ()
    """Kept, although Temporal has their conversations no more: their retention may be over."""
    under_way: int = 0
    """Conversations that are left out, since they have not come to anything yet."""


async def collect_cases(
    client: Client,
    folder: Path | str,
    *,
    query: str | None = None,
    agent: str | None = None,
    version: str | None = None,
    status: str | None = None,
    tenant: str | None = None,
    metadata: Mapping[str, JsonValue] | None = None,
    labels: Collection[Label] = (),
    sample: int | None = None,
    redact: Iterable[str | Pattern | Redactor] = tuple(PATTERNS),
    prune: bool = False,
) -> Collected:
    """Writes the conversations that it finds into `folder` as cases: a YAML file for each.

    `query`: a filter in Temporal's own language. `agent`, `version`, `status`: as lists have them. `tenant` and
    `metadata` are compared with what the conversation was started with, whether the index has them or not.
    `labels`: only conversations with at least one of them, read from their histories: `denied` and `edited` (a person
    did so with a call), `answered`, `stalled` (at least once). `sample`: only so many, drawn at random before labels
    are looked at. Conversations in the middle of an answer are left out, and so are reruns.

    `redact` runs over every text, argument, result, reason and label, and over files that are in the folder already:
    names of everturn.evals.PATTERNS, guardrails' `Pattern`s, functions of a text. Files of conversations that
    were erased are removed. Files of those that Temporal may have deleted by itself stay, and are in `gone`; `prune`
    removes these, too.

    Raises Refused, InvalidFile, NotFound, Unreachable.
    """
    folder = Path(folder)
    redactor = make_redactor(redact)
    present = _present_cases(folder)
    executions = _find(client, query=query, agent=agent, version=version, status=status)
    listed = draw_sample(_labelled(executions, tenant=tenant, metadata=metadata or {}), sample)
    reader = _CaseReader(client, redactor, frozenset(labels), finished_only=status is None)
    collected = await in_order(listed, reader.read_execution, max_running=AT_ONCE)
    kept = {case.inputs.conversation for cases in collected for case in cases}
    earlier = [cases for cases in present.values() if cases[0].inputs.conversation not in kept]
    fate = await _ConversationFates(client).sort(earlier, reader)
    cases = [case for cases in (*collected, *fate.refreshed, *fate.gone) for case in cases]
    if prune:
        cases = [case for cases in (*collected, *fate.refreshed) for case in cases]
    removed = _remove(present, keep={case.inputs.conversation for case in cases})
    redacted = [redact_case(case, redactor) for case in cases]
    written = write_cases(folder, redacted)
    gone = [file for file in present if file not in removed and present[file] in fate.gone]
    return Collected(tuple(redacted), tuple(written), tuple(removed), tuple(gone), reader.under_way)


def _present_cases(folder: Path) -> dict[Path, list[RecordedCase]]:
    if not folder.is_dir():
        return {}
    return {file: cases for file in case_files(folder) if (cases := read_case_file(file))}


def _remove(present: dict[Path, list[RecordedCase]], *, keep: set[str]) -> list[Path]:
    removed = [file for file, cases in present.items() if cases[0].inputs.conversation not in keep]
    for file in removed:
        file.unlink()
    return removed


# ------------------------------------------------------------ what the query finds


async def _find(
    client: Client, *, query: str | None, agent: str | None, version: str | None, status: str | None
) -> AsyncIterator[WorkflowExecution]:
    """Each conversation once: a list may have several runs of one."""
    if agent and version:
        agent = names.versioned(agent, version)
    ours = build_query(status=status, agent=agent)
    seen: set[str] = set()
    async for execution in find_matching(client.temporal, query or ours, also=ours):
        if execution.id not in seen:
            seen.add(execution.id)
            if version is None or agent or await _has_version(execution, version):
                yield execution


async def _has_version(execution: WorkflowExecution, version: str) -> bool:
    return (await read_labelled(execution)).agent.endswith(f"@{version}")


async def _labelled(
    executions: AsyncIterator[WorkflowExecution], *, tenant: str | None, metadata: Mapping[str, JsonValue]
) -> AsyncIterator[WorkflowExecution]:
    async for execution in executions:
        if not (tenant or metadata) or _fits(await read_labelled(execution), tenant, metadata):
            yield execution


def _fits(conversation: ListedConversation, tenant: str | None, metadata: Mapping[str, JsonValue]) -> bool:
    if tenant is not None and conversation.tenant != tenant:
        return False
    return all(key in conversation.metadata and conversation.metadata[key] == metadata[key] for key in metadata)


class _CaseReader:
    """Reads conversations as cases, with no personal data in their ids."""

    def __init__(self, client: Client, redact: Redactor, labels: frozenset[Label], *, finished_only: bool) -> None:
        self._client = client
        self._redact = redact
        self._labels = labels
        self._finished_only = finished_only
        self.under_way = 0

    async def read_execution(self, execution: WorkflowExecution) -> list[RecordedCase]:
        try:
            return await self.read(execution.id, labels=self._labels)
        except NotFound:  # erased since it was listed
            return []
        except EverturnError as error:  # one that can't be read, such as an encrypted one, never hides the others
            _log.warning("case.unreadable", conversation=execution.id, error=str(error))
            return []

    async def read(self, conversation_id: str, *, labels: frozenset[Label] = frozenset()) -> list[RecordedCase]:
        """Empty if it is no case: without a reply, or still under way. Raises NotFound."""
        recorded = await read_recorded(self._client, conversation_id)
        if not recorded.replies or (labels and not labels & set(labels_of(recorded))):
            return []
        if self._finished_only and recorded.status in UNDER_WAY:
            self.under_way += 1
            return []
        return [self._with_own_id(case) for case in cases_of(recorded)]

    def _with_own_id(self, case: RecordedCase) -> RecordedCase:
        written = redact_id(case.inputs.conversation, self._redact)
        return case.model_copy(update={"inputs": case.inputs.model_copy(update={"conversation": written})})


# ------------------------------------------------------------ what became of those that the folder has


@dataclass(frozen=True)
class _SortedCases:
    refreshed: list[list[RecordedCase]]
    """Read once more."""
    gone: list[list[RecordedCase]]
    """Temporal has them no more, and nobody can say that they were erased."""


class _ConversationFates:
    """Which conversations of a folder still exist, and which were erased."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._ids_by_digest: dict[str, str] | None = None

    async def sort(self, earlier: Sequence[list[RecordedCase]], reader: _CaseReader) -> _SortedCases:
        refreshed: list[list[RecordedCase]] = []
        gone_cases: list[list[RecordedCase]] = []
        for cases in earlier:
            conversation_id = await self._find_id(cases[0].inputs.conversation)
            if conversation_id:
                with suppress(NotFound):  # erased in this moment
                    refreshed.append(await reader.read(conversation_id) or cases)
            elif not await self._was_erased(cases[0].metadata.ended_at):
                gone_cases.append(cases)
        return _SortedCases(refreshed, gone_cases)

    async def _find_id(self, written: str) -> str | None:
        """None if Temporal has no such conversation."""
        if written.startswith(DIGEST):
            return (await self._read_digests()).get(written)
        try:
            await self._client.temporal.get_workflow_handle(written).describe()
        except RPCError as error:
            if not_found(error):
                return None
            raise self._client.unreachable_error(error) from error
        return written

    async def _was_erased(self, ended_at: datetime | None) -> bool:
        """Whether somebody deleted it: Temporal itself does not before its retention is over."""
        retention = await self._client.namespace.retention()
        if retention is None:
            return True
        return ended_at is not None and datetime.now(UTC) < ended_at + timedelta(seconds=retention)

    async def _read_digests(self) -> dict[str, str]:
        if self._ids_by_digest is None:
            listed = self._client.temporal.list_workflows(build_query())
            self._ids_by_digest = {id_digest(execution.id): execution.id async for execution in listed}
        return self._ids_by_digest
