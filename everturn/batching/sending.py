"""A collector's activities: a batch is sent once, followed until it is over, or cancelled."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal

from temporalio import activity
from temporalio.client import Client
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory
from temporalio.service import RPCError

from everturn import names
from everturn.activities import activity_errors
from everturn.activities.agent_lookup import agent_of
from everturn.activities.model_turns import ModelTurns, model_named
from everturn.activities.patience import spend
from everturn.activities.retry_delays import retry_delay
from everturn.activities.turn_place import TurnPlace, standing_in_for
from everturn.agent import Agent
from everturn.batching.keys import is_of_another_key, without_key
from everturn.batching.records import CREATING, Batch, BatchLine, BatchNotice, SentBatch
from everturn.batching.turns import model_of_collector
from everturn.errors import FAULTS, EverturnError, KeyMissing, ProviderError
from everturn.heartbeats.worker_heartbeats import Heartbeats
from everturn.history.waiting_turn import waiting_request
from everturn.logs import get_logger
from everturn.lost_workers.journal import RPC_TIMEOUT
from everturn.lost_workers.poison_calls import details_left, leave_details, leave_for_certain
from everturn.system.bounded_concurrency import in_order
from everturn.temporal.temporal_errors import not_found
from everturn.text.iso_times import iso_time_at

if TYPE_CHECKING:
    from everturn.providers.batching.api import BatchApi
    from everturn.providers.http import PreparedRequest

TOLD: Final = "everturn_told"
"""The key of what a try leaves to the next: what conversations have been told."""

SETTLE_SECONDS: Final = 30.0
"""A batch whose creation was not answered is looked for until so long after it was sent: a provider may still be at
work on it, and its list may be late."""

LOOK_SECONDS: Final = 2.0
"""How soon it is looked for again. Then twice as late each time, up to LONGEST_POLL_SECONDS."""

PATIENCE: Final = timedelta(hours=24)
"""How long a batch may fail to be sent before its turns stall."""

FIRST_POLL_SECONDS: Final = 1.0
LONGEST_POLL_SECONDS: Final = 600.0
POLL_PART: Final = 0.1
"""A batch is polled again after a tenth of its age."""

AT_ONCE: Final = 8
"""Histories that are read, or conversations that are told, at the same time."""

_log = get_logger("everturn.batch")


@dataclass(frozen=True, slots=True)
class _RequestLine:
    line: BatchLine
    prepared: PreparedRequest


class BatchSending:
    def __init__(
        self,
        agents: Mapping[str, Agent],
        turns: ModelTurns,
        client: Client,
        *,
        task_queue: str,
        heartbeats: Heartbeats,
    ) -> None:
        """`task_queue`: that of the conversations."""
        self._agents = agents
        self._task_queue = task_queue
        self._turns = turns
        self._client = client
        self._heartbeats = heartbeats

    def activities(self) -> list[Any]:
        return [self.send_batch, self.follow_batch, self.cancel_batch]

    def _api_of(self, agent: Agent, batch: Batch) -> BatchApi:
        from everturn.providers.batching.turns import batches_of

        known = model_named(agent, batch.model)
        others = (
            model.model_copy(update={"name": batch.model})
            for model in (agent.model, *agent.fallback_models)
            if model.provider == known.provider
        )
        collector = batch.lines[0].turn.collector
        return batches_of(model_of_collector((known, *others), collector, task_queue=self._task_queue) or known)

    # ------------------------------------------------------------ it is sent

    @activity.defn(name=names.SEND_BATCH)
    async def send_batch(self, batch: Batch) -> SentBatch:
        await self._heartbeats.check_ours()
        agent = await agent_of(self._agents, batch, heartbeats=self._heartbeats)
        with self._heartbeats.beating():
            try:
                self._api_of(agent, batch)
                return await self._find(agent, batch) or await self._create(agent, batch)
            except KeyMissing as error:
                raise without_key(batch.batch_id, error, batch.hand_back_for) from None
            except ProviderError as error:
                _log.warning("batch.not_sent", name=batch.name, turns=len(batch.lines), error=str(error))
                raise _of_provider(error) from None
            except EverturnError as error:
                raise activity_errors.final_error(error) from None

    async def _find(self, agent: Agent, batch: Batch) -> SentBatch | None:
        """The batch that a try before this one has perhaps created; None if none has."""
        from everturn.providers.batching.api import UnknownCreation

        tried = details_left().get(CREATING, (batch.left or {}).get(CREATING))
        if not isinstance(tried, dict):
            return None
        lines = [str(line) for line in tried["lines"]]
        since = float(tried["at"])
        try:
            batch_id = await self._api_of(agent, batch).find(batch.name, lines, since=since)
        except UnknownCreation as undecided:
            raise _look_again(f"Whether it was created is not known yet: {undecided}.") from None
        if batch_id:
            _log.info("batch.found", batch=batch_id, name=batch.name, turns=len(lines))
            return _sent(batch_id, since, lines, possible={line.id for line in batch.lines})
        if 0 <= time.time() - since < SETTLE_SECONDS:
            raise _look_again("A batch whose creation was not answered is looked for.")
        details_left()[CREATING] = None
        return None

    async def _create(self, agent: Agent, batch: Batch) -> SentBatch:
        ready, again = await self._make_lines(agent, batch)
        if not ready:
            return SentBatch(again=again)
        fitting = _fitting(ready)
        from everturn.providers.batching.api import BatchRequest
        from everturn.providers.batching.turns import api_of

        api = api_of(ready[0].prepared)
        ids = [entry.line.id for entry in fitting]
        sent_at = time.time()
        # If this try is not this worker's any more, it ends here: RPCError.
        await leave_for_certain(**{CREATING: {"at": sent_at, "lines": ids}})
        try:
            requests = [BatchRequest(entry.line.id, entry.prepared.content) for entry in fitting]
            batch_id = await api.create(batch.name, requests)
        except ProviderError as error:
            if error.status is not None and 400 <= error.status < 500:  # it said so: there is none
                leave_details(**{CREATING: None})
            raise
        _log.info("batch.sent", batch=batch_id, name=batch.name, turns=len(fitting))
        return _sent(batch_id, sent_at, ids, possible={entry.line.id for entry in ready}, again=again)

    async def _make_lines(self, agent: Agent, batch: Batch) -> tuple[list[_RequestLine], tuple[str, ...]]:
        """The lines that are still waited for, and those whose request can't be made."""
        entries = await in_order(batch.lines, partial(self._make_line, agent), max_running=AT_ONCE)
        again = tuple(entry for entry in entries if isinstance(entry, str))
        return [entry for entry in entries if isinstance(entry, _RequestLine)], again

    async def _make_line(self, agent: Agent, line: BatchLine) -> _RequestLine | str | None:
        """None if nobody waits for it any more; its id if its request can't be made."""
        from everturn.providers.batching.turns import line_of

        try:
            waiting = await waiting_request(self._client, line)
        except RPCError as error:
            if not_found(error):
                return None
            raise
        if waiting is None:
            return None
        run_id, request = waiting
        with standing_in_for(TurnPlace(line.conversation, run_id, line.activity_id)):
            try:
                question = await self._turns.question_of(agent, request)
                if question is None or question.model.name != line.turn.model:
                    return line.id
                return _RequestLine(line, line_of(question, without_thoughts=line.turn.without_thoughts).prepared)
            except (ApplicationError, EverturnError, *FAULTS) as error:  # the conversation's own try says so
                _log.warning("batch.line_not_made", line=line.id, error=type(error).__name__)
                return line.id

    # ------------------------------------------------------------ it is followed

    @activity.defn(name=names.FOLLOW_BATCH)
    async def follow_batch(self, batch: Batch) -> None:
        await self._heartbeats.check_ours()
        agent = await agent_of(self._agents, batch, heartbeats=self._heartbeats)
        with self._heartbeats.beating():
            try:
                is_over = await self._api_of(agent, batch).is_over(batch.batch_id)
            except ProviderError as error:
                if is_of_another_key(error):
                    raise without_key(batch.batch_id, error, batch.hand_back_for) from None
                await self._tell_all(batch, "sent")
                if not error.retry and time.time() - batch.sent_at > 2 * PATIENCE.total_seconds():
                    raise activity_errors.final_error(error) from None
                _log.warning("batch.not_polled", batch=batch.batch_id, error=str(error))
                raise _runs_on(batch, error.message, error.retry_after) from None
            except EverturnError as error:
                raise activity_errors.final_error(error) from None
            if not is_over:
                await self._tell_all(batch, "sent")
                raise _runs_on(batch, f"The batch {batch.batch_id} is not over yet.")
            await self._tell_all(batch, "ended")
            _log.info("batch.ended", batch=batch.batch_id, turns=len(batch.lines))

    async def _tell_all(self, batch: Batch, state: Literal["sent", "ended"]) -> None:
        """Tells each conversation once, but for a try that was lost in the middle of it."""
        if details_left().get(TOLD) in (state, "ended"):
            return
        await in_order(batch.lines, partial(self._tell, batch, state), max_running=AT_ONCE)
        leave_details(**{TOLD: state})

    async def _tell(self, batch: Batch, state: Literal["sent", "ended"], line: BatchLine) -> None:
        notice = BatchNotice.about(
            line,
            state=state,
            batch_id=batch.batch_id,
            number=line.number,
            sent_at=iso_time_at(batch.sent_at),
        )
        handle = self._client.get_workflow_handle(line.conversation)
        try:
            await handle.signal(names.BATCH, notice, rpc_timeout=RPC_TIMEOUT)
        except RPCError as error:
            if not not_found(error):  # it has ended
                raise

    # ------------------------------------------------------------ it is cancelled

    @activity.defn(name=names.CANCEL_BATCH)
    async def cancel_batch(self, batch: Batch) -> None:
        agent = await agent_of(self._agents, batch, heartbeats=self._heartbeats)
        with self._heartbeats.beating():
            try:
                await self._api_of(agent, batch).cancel(batch.batch_id)
                _log.info("batch.cancelled", batch=batch.batch_id)
            except KeyMissing as error:
                raise without_key(batch.batch_id, error, batch.hand_back_for) from None
            except ProviderError as error:
                if error.retry:
                    raise _of_provider(error) from None
                _log.warning("batch.not_cancelled", batch=batch.batch_id, error=str(error))


def _fitting(ready: Sequence[_RequestLine]) -> list[_RequestLine]:
    """Those of them that one batch can hold: with the headers of the first, and within the provider's size."""
    first_entry = ready[0]
    size = 0
    fitting = []
    for entry in ready:
        size += len(entry.prepared.content)
        same = (entry.prepared.headers, entry.prepared.path) == (
            first_entry.prepared.headers,
            first_entry.prepared.path,
        )
        if same and (size <= entry.line.turn.most_bytes or entry is first_entry):
            fitting.append(entry)
    return fitting


def _sent(
    batch_id: str, sent_at: float, ids: Sequence[str], *, possible: set[str], again: tuple[str, ...] = ()
) -> SentBatch:
    """`possible`: lines that could have been in it."""
    put_back = tuple(sorted(possible - set(ids)))
    return SentBatch(batch_id=batch_id, sent_at=sent_at, lines=tuple(ids), put_back=put_back, again=again)


def _look_again(reason: str) -> ApplicationError:
    return _try_again(reason, min(LOOK_SECONDS * 2 ** min(activity.info().attempt - 1, 16), LONGEST_POLL_SECONDS))


def _runs_on(batch: Batch, reason: str, retry_after: float | None = None) -> ApplicationError:
    age = time.time() - batch.sent_at
    return _try_again(reason, max(FIRST_POLL_SECONDS, min(POLL_PART * age, LONGEST_POLL_SECONDS), retry_after or 0.0))


def _try_again(reason: str, seconds: float) -> ApplicationError:
    return ApplicationError(
        reason,
        type=names.BATCH_RUNS,
        next_retry_delay=timedelta(seconds=seconds),
        category=ApplicationErrorCategory.BENIGN,
    )


def _of_provider(error: ProviderError) -> ApplicationError:
    if not error.retry:
        return activity_errors.final_error(error)
    delay = retry_delay(
        error.retry_after, attempt=activity.info().attempt, longest=timedelta(seconds=LONGEST_POLL_SECONDS)
    )
    return ApplicationError(
        error.message,
        {"cure": error.cure},
        type=type(error).__name__,
        next_retry_delay=delay,
        non_retryable=not spend(delay, PATIENCE),
    )
