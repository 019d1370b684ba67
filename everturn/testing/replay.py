"""Recorded histories, replayed against today's code: so that a change that breaks running conversations fails a test.

await record_history(client, "order-81", Path("tests/histories/order-81.json"))
await replay_history(Path("tests/histories/order-81.json"))
"""

from __future__ import annotations

import asyncio
import json
import re
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, cast

from everturn import names
from everturn.client import interpreter_exit
from everturn.errors import EverturnError, NotFound

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator

    from temporalio.client import WorkflowExecution, WorkflowHistory
    from temporalio.converter import DataConverter
    from temporalio.worker import WorkflowReplayResult

    from everturn.client.client import Client

AT_ONCE = 4
"""How many histories are fetched and replayed at the same time."""

SOMEBODY = "somebody"
"""Replaces the names of machines and processes in recordings."""

STACK_TRACE = "stackTrace"
"""Of a failure. A replay does not need it."""


class Diverged(EverturnError):
    """Today's code would not have made this history. After a deploy, a conversation like it would stop.

    `where`: the event at which it differs, in the SDK's words.
    """

    def __init__(self, place: str, where: str) -> None:
        super().__init__(f"{place} diverges: {where}", cure="See docs/howto/change-workflows-safely.md.")
        self.where = where

    @property
    def kind(self) -> str:
        """The same text for all histories that diverge in the same way: `where`, without the numbers and ids of this
        one."""
        return re.sub(r"'[^']*'|\"[^\"]*\"|\d+", "…", self.where)


@dataclass(frozen=True)
class Replayed:
    """A run of a conversation, replayed."""

    history: WorkflowHistory
    """Without events if it was deleted in the meantime."""
    problem: EverturnError | None = None
    """A Diverged, or the reason why it can't be read."""


async def record_history(client: Client, conversation_id: str, path: Path | str) -> tuple[Path, ...]:
    """Writes a conversation's history to a file, as JSON; returns the files.

    If the conversation continued as new, each run is a file of its own: `name.json`, `name-2.json` ... The names
    of machines and processes are taken out, and stack traces, which have paths of the machine. What was said, and what
    tools returned, is in there: look before you publish it. Raises NotFound.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    written = []
    for number, history in enumerate(await read_histories(client, conversation_id), 1):
        file = path if number == 1 else path.with_name(f"{path.stem}-{number}{path.suffix}")
        file.write_text(json.dumps(_without_identities(history.to_json_dict()), separators=(",", ":")) + "\n")
        written.append(file)
    return tuple(written)


async def replay_history(history: Path | str | WorkflowHistory, *, data_converter: DataConverter | None = None) -> int:
    """Replays a history, from a file or as Temporal's client gives it; returns the number of its events.

    Takes what `record_history`, the Temporal CLI (`temporal workflow show -o json`) and the Web UI write. Raises
    Diverged, and says where; NotFound if there is no such file, or no history in it; InvalidSetting if it was
    written by another data converter. `data_converter`: unless given, what EVERTURN_DATA_CONVERTER names.
    """
    async with Replays(data_converter=data_converter) as replays:
        return await replays.replay(history)


class Replays:
    """Replays histories one after the other with one of the SDK's replayers, because making one takes as long as most
    replays. A replayer that found a divergence is not used again. `data_converter`: as for `replay_history`."""

    def __init__(self, *, data_converter: DataConverter | None = None) -> None:
        from everturn.storage.composed_converter import own_converter
        from everturn.storage.data_converter import configured_converter

        self._converter = own_converter(data_converter or configured_converter())
        self._stack = AsyncExitStack()
        self._todo: asyncio.Queue[WorkflowHistory] = asyncio.Queue()
        self._results: AsyncIterator[WorkflowReplayResult] | None = None

    async def replay(self, history: Path | str | WorkflowHistory) -> int:
        """As `replay_history`."""
        from everturn.history.reader import HistoryReader

        if isinstance(history, Path | str):
            place = str(history)
            history = _load_history(Path(history))
        else:
            place = history.workflow_id
        if history.events:
            await HistoryReader(self._converter).read_event(history.events[0])  # what can't be read is no divergence
        failure: Exception | None
        try:
            self._results = self._results or await self._open_replayer()
            self._todo.put_nowait(history)
            failure = (await anext(self._results)).replay_failure
        except (RuntimeError, ValueError) as error:
            failure = error
        if failure is not None:
            await self._close_replayer()
            raise Diverged(place, " ".join(str(failure).split())) from failure
        return len(history.events)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._close_replayer()

    async def _close_replayer(self) -> None:
        self._results = None
        await self._stack.aclose()

    async def _open_replayer(self) -> AsyncIterator[WorkflowReplayResult]:
        from temporalio.worker import Replayer

        from everturn.storage.unreadable import for_replayer
        from everturn.workflows.conversation import ConversationWorkflow

        interpreter_exit.runtime_is_used()  # or its threads could abort a test run as it ends
        converter = for_replayer(self._converter)
        # A build ID of ours: the SDK's own is a hash of all modules, read from the disk.
        replayer = Replayer(workflows=[ConversationWorkflow], data_converter=converter, build_id="replay")
        histories = await self._stack.enter_async_context(aclosing(self._queued_histories()))
        results = await self._stack.enter_async_context(replayer.workflow_replay_iterator(histories))
        return await self._stack.enter_async_context(aclosing(cast("AsyncGenerator[WorkflowReplayResult]", results)))

    async def _queued_histories(self) -> AsyncGenerator[WorkflowHistory]:
        while True:
            yield await self._todo.get()


async def replay_all(
    client: Client, runs: AsyncIterator[WorkflowExecution], *, at_once: int = AT_ONCE
) -> AsyncGenerator[Replayed]:
    """Fetches and replays the runs, several at the same time. Each result comes as soon as it is there."""
    from temporalio.client import WorkflowHistory
    from temporalio.service import RPCError

    from everturn.system.bounded_concurrency import at_once as bounded
    from everturn.temporal.temporal_errors import not_found

    idle_replays = [Replays(data_converter=client.temporal.data_converter) for _ in range(at_once)]

    async def replay_run(run: WorkflowExecution) -> Replayed:
        handle = client.temporal.get_workflow_handle(run.id, run_id=run.run_id)
        try:
            history = await handle.fetch_history()
        except RPCError as error:
            if not not_found(error):
                raise
            return Replayed(WorkflowHistory(run.id, []))  # it was deleted since it was listed
        free = idle_replays.pop()
        try:
            await free.replay(history)
        except EverturnError as error:
            return Replayed(history, error)
        finally:
            idle_replays.append(free)
        return Replayed(history)

    async with AsyncExitStack() as stack:
        for replays in idle_replays[:]:
            await stack.enter_async_context(replays)
        async with aclosing(bounded(runs, replay_run, max_running=at_once)) as done:
            async for replayed_run in done:
                yield replayed_run


async def read_histories(client: Client, conversation_id: str) -> list[WorkflowHistory]:
    """The histories of a conversation's runs, the first run first. Raises NotFound."""
    from temporalio.service import RPCError

    from everturn.temporal.temporal_errors import not_found

    histories: list[WorkflowHistory] = []
    run_id: str | None = None
    while run_id != "":
        handle = client.temporal.get_workflow_handle(conversation_id, run_id=run_id)
        try:
            history = await handle.fetch_history()
        except RPCError as error:
            if not not_found(error):
                raise client.unreachable_error(error) from error
            if histories:
                break  # earlier runs have outlived the namespace's retention
            raise NotFound(
                f"There is no conversation {conversation_id!r}.", cure="`everturn list` shows those there are."
            ) from None
        histories.insert(0, history)
        run_id = history.events[0].workflow_execution_started_event_attributes.continued_execution_run_id
    return histories


def _load_history(path: Path) -> WorkflowHistory:
    from temporalio.client import WorkflowHistory

    try:
        given = json.loads(path.read_text(encoding="utf-8"))
        history = WorkflowHistory.from_json(path.stem, given)
        if not history.run_id:
            raise ValueError("its first event has no run id")
    except OSError as error:
        raise NotFound(f"{path} can't be read: {error.strerror}.") from None
    except Exception as error:
        # Whatever is wrong with it: json, protobuf and the SDK each have their own errors.
        raise NotFound(
            f"{path} holds no history: {' '.join(str(error).split())[:200]}.",
            cure="`temporal workflow show -w ID -o json` writes one.",
        ) from error
    started = history.events[0].workflow_execution_started_event_attributes
    if started.workflow_type.name != names.CONVERSATION:
        raise NotFound(f"{path} holds the history of a {started.workflow_type.name!r}, not of a conversation.")
    return WorkflowHistory(started.workflow_id or path.stem, history.events)


def _without_identities(value: Any, key: str = "") -> Any:
    if isinstance(value, dict):
        if value.get("kind") == "TASK_QUEUE_KIND_STICKY":
            return {**value, "name": SOMEBODY}
        return {name: _without_identities(member, name) for name, member in value.items() if name != STACK_TRACE}
    if isinstance(value, list):
        return [_without_identities(member, key) for member in value]
    if key == "identity":
        return SOMEBODY
    return value
