"""A model turn that may wait: it says which batch it can join, and reads its reply once that is over."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import replace
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakValueDictionary

from temporalio.client import Client
from temporalio.common import WorkflowIDConflictPolicy
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory

from everturn import names
from everturn.activities import empty_replies, fallbacks
from everturn.agent import Agent
from everturn.batching.keys import is_of_another_key, without_key
from everturn.batching.records import MOST_ROUNDS, BatchNotice, BatchTurn, CollectorStart
from everturn.errors import ContextTooLong, EverturnError, InvalidSetting, ProviderError
from everturn.limits import Patience
from everturn.logs import get_logger
from everturn.lost_workers.journal import RPC_TIMEOUT
from everturn.models import Model
from everturn.payloads import ModelRequest
from everturn.providers import Request
from everturn.records import Reply
from everturn.settings import Settings
from everturn.temporal.task_timeout import TASK_TIMEOUT
from everturn.vendor_models.batches import check_batches

if TYPE_CHECKING:
    from everturn.providers.batching.api import BatchApi, LineResult, LineResults
    from everturn.providers.batching.turns import TurnLine

MOST_RESULTS_BYTES: Final = 128 * 1024 * 1024
"""Of batches' results that a worker keeps: the turns of a batch are taken up together, and each reads one line."""

UNREADABLE: Final = "its result could not be read"

_IN_NO_BATCH: Final = BatchNotice(line="-", round=0)
"""In the place of a notice, for a turn that has not joined a batch yet."""

_log = get_logger("everturn.batch")


def has_batches(question: Request) -> bool:
    """Whether the question is to wait for a batch, and its model has them: a person may have put the conversation on
    another model."""
    if not question.settings.batch:
        return False
    try:
        check_batches(question.model)
    except InvalidSetting:
        return False
    return True


class NotBatched(Exception):
    """The turn is to wait for no batch any more: its agent's settings have changed. It is asked at once."""


def collector_id(model: Model, task_queue: str) -> str:
    """The id of the collector for a model's provider, address and key. Raises as `resolve_endpoint`."""
    from everturn.providers.catalog import resolve_endpoint

    endpoint = resolve_endpoint(model)
    written = "\n".join((task_queue, endpoint.base_url, endpoint.secret)).encode()
    digest = blake2b(written, digest_size=8, person=b"batches").hexdigest()  # the key can't be read in it
    return f"{names.BATCHES_OF}{model.provider}:{digest}"


def model_of_collector(models: Iterable[Model], collector: str, *, task_queue: str) -> Model | None:
    """The first of them whose address and key lead to this collector: a deploy may have given the agent another model
    since. None if this worker has none."""
    return next((model for model in models if _leads_to(collector, model, task_queue)), None)


def _leads_to(collector: str, model: Model, task_queue: str) -> bool:
    try:
        return collector_id(model, task_queue) == collector
    except EverturnError:  # this worker lacks its key
        return False


class BatchResults:
    """The results of batches that are over, read once by each worker."""

    def __init__(self) -> None:
        self._ended: OrderedDict[tuple[str, str], LineResults] = OrderedDict()
        self._locks: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()
        """Of batches that are being read."""

    async def of_batch(self, api: BatchApi, address: str, batch_id: str) -> LineResults:
        """Raises ProviderError."""
        key = address, batch_id
        async with self._locks.setdefault(key, asyncio.Lock()):
            if (ended := self._ended.get(key)) is None:
                ended = self._ended[key] = await api.results(batch_id)
                self._forget_the_oldest()
        self._ended.move_to_end(key)
        return ended

    def _forget_the_oldest(self) -> None:
        sizes = {key: sum(map(len, ended.raw.values())) for key, ended in self._ended.items()}
        while len(self._ended) > 1 and sum(sizes[key] for key in self._ended) > MOST_RESULTS_BYTES:
            self._ended.popitem(last=False)


class BatchedTurns:
    """One for each worker."""

    def __init__(self, client: Client, *, task_queue: str, settings: Settings) -> None:
        self._client = client
        self._task_queue = task_queue
        self._settings = settings
        self._results = BatchResults()

    async def reply_to(self, question: Request, request: ModelRequest, agent: Agent, *, fallback: str | None) -> Reply:
        """The reply, if the turn's batch is over. Raises the error that makes the turn wait, ProviderError and
        ConfigError as any question, and NotBatched."""
        notice = request.batch
        if notice is None:
            raise await self._to_join(question, request, _IN_NO_BATCH, "", fallback=fallback)
        if notice.state == "again":
            raise await self._to_join(question, request, notice, "its request could not be sent", fallback=fallback)
        if notice.state == "failed":
            raise _failed(notice, fallback=fallback)
        return await self._read_reply(question, request, notice, agent, fallback=fallback)

    async def _read_reply(
        self, question: Request, request: ModelRequest, notice: BatchNotice, agent: Agent, *, fallback: str | None
    ) -> Reply:
        from everturn.providers.batching.turns import line_of

        models = (question.model, agent.model, *agent.fallback_models)
        model = model_of_collector(models, notice.collector, task_queue=self._task_queue) or question.model
        try:
            line = line_of(replace(question, model=model), without_thoughts=notice.without_thoughts)
            result = await self._result_of(line, notice)
        except ProviderError as error:
            if self._is_of_another_key(error, model, notice):
                raise without_key(notice.batch_id, error, request.hand_back_for) from None
            raise _not_read(error, notice, agent.patience) from None
        match result.state:
            case "replied":
                try:
                    reply = line.read_reply(result.body)
                except ProviderError as error:  # read once more, it would be the same
                    if not error.retry:
                        raise
                    reason = f"its reply could not be used: {error.message.rstrip('.')}"
                    raise await self._to_join(question, request, notice, reason, fallback=fallback) from None
                if not empty_replies.is_asked_again(reply, notice.round):
                    return reply
                _log.warning("turn.empty")
                raise await self._to_join(question, request, notice, "its reply was empty", fallback=fallback)
            case "refused":
                refusal = line.error_of(result)
                if refusal.refuses_grammars and notice.round < empty_replies.EMPTY_REPLIES and line.loosen():
                    raise await self._to_join(question, request, notice, refusal.message, fallback=fallback)
                if refusal.refuses_thoughts and not notice.without_thoughts:
                    notice = notice.model_copy(update={"without_thoughts": True})
                elif isinstance(refusal, ContextTooLong) or not (refusal.retry or refusal.most_output_tokens):
                    refusal.retry = False
                    raise refusal
                raise await self._to_join(question, request, notice, refusal.message, fallback=fallback)
            case "cancelled":
                raise _cancelled(notice, question, fallback=fallback)
            case state:
                reason = "it expired" if state == "expired" else result.body or "the batch had no result for it"
                raise await self._to_join(question, request, notice, reason, fallback=fallback)

    def _is_of_another_key(self, error: ProviderError, model: Model, notice: BatchNotice) -> bool:
        """False for a batch that is gone: not found with the very key that it was sent with."""
        if error.status == 404 and notice.collector in ("", collector_id(model, self._task_queue)):
            return False
        return is_of_another_key(error)

    async def _result_of(self, line: TurnLine, notice: BatchNotice) -> LineResult:
        """What became of the line. Raises ProviderError if it could not be read: that costs nothing."""
        from everturn.providers.batching.api import LineResult
        from everturn.providers.batching.turns import api_of

        api = api_of(line.prepared)
        ended = await self._results.of_batch(api, line.prepared.endpoint.base_url, notice.batch_id)
        if notice.line in ended.raw:
            return api.read(ended.raw[notice.line])
        if ended.unreadable and ended.whole is None:
            return LineResult("missing", UNREADABLE)
        return ended.by_number.get(notice.number) or ended.whole or LineResult("missing")

    async def _to_join(
        self, question: Request, request: ModelRequest, notice: BatchNotice, reason: str, *, fallback: str | None
    ) -> ApplicationError:
        """The error that makes the conversation join a batch, for the first time or once more. Raises NotBatched."""
        from everturn.providers.batching.turns import api_of, line_of

        if not has_batches(question):
            raise NotBatched
        provider = question.model.provider
        if notice.round >= MOST_ROUNDS:
            return _final(
                f"The turn was in {notice.round} batches of {provider}, without a reply: in the last, {reason}.",
                "`resume` begins anew. Without batch=True it is asked at once.",
                fallback=fallback,
            )
        prepared = line_of(question, without_thoughts=notice.without_thoughts).prepared
        api = api_of(prepared)
        if (size := len(prepared.content)) > api.most_bytes:
            raise InvalidSetting(
                f"The request to {question.model.name} has {size:,} bytes, "
                f"and a batch of {provider} takes {api.most_bytes:,}.",
                cure="Send files as links, or leave out batch=True.",
            )
        turn = BatchTurn(
            collector=collector_id(question.model, self._task_queue),
            provider=provider,
            agent=request.agent,
            model=question.model.name,
            size=size,
            most_bytes=api.most_bytes,
            gather_seconds=self._settings.batch_seconds,
            most_turns=self._settings.batch_turns,
            round=notice.round + 1,
            without_thoughts=notice.without_thoughts,
        )
        await self._start_collector(turn)
        again = f": {reason}" if reason else ""
        return ApplicationError(
            f"The turn waits for a batch of {provider}{again}.",
            {"batch": turn.model_dump(mode="json"), "cure": "It goes on by itself."},
            type=names.BATCHED,
            non_retryable=True,
            category=ApplicationErrorCategory.BENIGN,
        )

    async def _start_collector(self, turn: BatchTurn) -> None:
        await self._client.start_workflow(
            names.BATCHES,
            CollectorStart(provider=turn.provider).model_dump(mode="json"),
            id=turn.collector,
            task_queue=self._task_queue,
            task_timeout=TASK_TIMEOUT,
            id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
            rpc_timeout=RPC_TIMEOUT,
        )


def _final(cause: str, cure: str, *, fallback: str | None, **details: Any) -> ApplicationError:
    more = {"cure": cure, **details}
    if fallback:
        more["fallback"] = fallback
    return ApplicationError(cause, more, type=names.BATCH_FAILED, non_retryable=True)


def _failed(notice: BatchNotice, *, fallback: str | None) -> ApplicationError:
    return _final(notice.cause or "The batch could not be sent.", notice.cure or "Then `resume`.", fallback=fallback)


def _cancelled(notice: BatchNotice, question: Request, *, fallback: str | None) -> ApplicationError:
    return _final(
        f"The batch {notice.batch_id} was cancelled at {question.model.provider} before it came to this turn.",
        "`resume` puts the turn into another batch.",
        fallback=fallback,
    )


def _not_read(error: ProviderError, notice: BatchNotice, patience: Patience) -> ApplicationError:
    """The reply is there, or was: a person who resumes has it read again, unless it is gone for good."""
    if error.status == 404:
        return _final(
            f"The results of batch {notice.batch_id} are gone: {error.message}",
            "`resume` asks the model anew, which is paid again.",
            fallback=None,
        )
    failure = fallbacks.after_error(error, patience, fallback=None)
    if failure.non_retryable:
        return _final(failure.message, error.cure, fallback=None, keeps_batch=True)
    return failure
