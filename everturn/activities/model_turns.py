"""One model turn: complete the prefix, ask the provider, plan the reply.

What `call_model` passes before it asks, in this order (1 to 5 are interceptors of worker/hosting.py):

1. `Attempts`: each log line says which turn it is about, and times are counted by this process's clock.
2. `UnexpectedErrors`: an error that nobody foresaw is tried again with longer pauses than after a lost worker.
3. `LostTries`: a turn that its workers die of is not tried for ever. It comes before all that costs time.
4. `Metrics`, traces, `GenAiMetrics`: they count what the next one refuses, too.
5. `TenantBudgets`: a turn that its tenant's budget does not allow is not asked.
6. `check_ours`: after a late start, the server may have given the turn to another worker. Both would ask the model.
7. `agent_of`: a worker that does not host the agent hands the turn back to the queue.
8. `beating`: from here on, a worker that is lost is noticed in seconds, and a cancelled turn hands over what it has.
9. `retrying_for`: from here on the agent is known, and its patience says how long such an error is tried again.
10. `free_queue_of_lost_worker`: if the worker before this one was lost, the conversation is not to wait for it again.
11. `_prepare_turn`: MCP servers name their tools; the messages are made whole, from memory or from the history; the
    user's functions decide on instructions and tools. What fails here stalls or is retried, and nothing was asked.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

from pydantic import JsonValue
from temporalio import activity
from temporalio.exceptions import ApplicationError

from everturn import names
from everturn.activities import activity_errors, compaction, empty_replies, fallbacks, hook_runs
from everturn.activities.agent_lookup import agent_of
from everturn.activities.handoff_planning import SaidBefore, sign_reply, takes_over
from everturn.activities.hook_runs import HookRuns, StoppedByHook
from everturn.activities.kept_response_ids import KeptResponse
from everturn.activities.large_replies import fit_reply, without_large_details
from everturn.activities.mcp_tools import for_turn
from everturn.activities.mcp_toolsets import Toolsets
from everturn.activities.planning import MAX_PLANNED_CALLS, plan_calls
from everturn.activities.prefix_cache import PrefixCache, chain_digest, digest_of, follow_prefix
from everturn.activities.prompt_cache_watch import PromptCacheWatch
from everturn.activities.tool_contexts import ToolContexts, TurnSpending
from everturn.activities.tool_times import ToolTimes
from everturn.activities.turn_agent import agent_for_turn
from everturn.activities.turn_place import turn_place
from everturn.activities.turn_request import turn_request_of
from everturn.activities.worker_facts import Facts, webhook_of
from everturn.agent import Agent
from everturn.batching.turns import BatchedTurns, NotBatched, has_batches
from everturn.carryover import TranscriptView
from everturn.errors import (
    FAULTS,
    ConfigError,
    ConnectionFailed,
    ContextTooLong,
    ConversationError,
    InvalidSetting,
    ProviderError,
)
from everturn.heartbeats.details import SeenReply, beaten_out
from everturn.heartbeats.heartbeat import Heartbeat, is_unwanted
from everturn.heartbeats.worker_heartbeats import Heartbeats
from everturn.history.last_results import last_results
from everturn.history.reader import read_steps
from everturn.history.steps import TurnScheduled
from everturn.history.transcript import Transcript, filled_delta, read_transcript
from everturn.live.heartbeat_text import HeartbeatText, TextStreaming
from everturn.logs import get_logger
from everturn.lost_workers import poison_calls
from everturn.lost_workers.free_sticky_queue import free_queue_of_lost_worker
from everturn.models import Model
from everturn.payloads import ModelReply, ModelRequest
from everturn.plans import PlannedCall
from everturn.prices import asked_tier, cost_of_reply, cost_usd
from everturn.prompts import Prompt, PromptTool, RecordedPrompt
from everturn.providers import Request, ToolSpec, ask, specs_of
from everturn.providers.rate_limits.turn_waits import within_limit
from everturn.records import Message, Reply, ToolResult, Usage
from everturn.sizes import MAX_BESIDE_REPLY_BYTES, MAX_CAUSE_BYTES, MAX_DEPTH, size_of, too_deep
from everturn.storage.artifacts import Artifacts
from everturn.temporal.namespace import Namespace
from everturn.text.shortening import shortened
from everturn.tools import user_code
from everturn.tools.context import TurnContext
from everturn.tools.output_type import InvalidOutput
from everturn.tools.results import safe_error_text

_log = get_logger("everturn.turn")


@dataclass(frozen=True, kw_only=True)
class Turn:
    """One turn with all that it is asked with: what travels together from the first guard to the reply."""

    agent: Agent
    """As it is for this turn."""
    request: ModelRequest
    """With the digest of what was found."""
    prefix: Sequence[Message]
    delta: Sequence[Message]
    messages: Sequence[Message]
    """The prefix and the delta."""
    hooks: HookRuns
    prompt: RecordedPrompt | None
    """To be recorded; None if the agent is the same for all turns."""

    @property
    def model(self) -> Model:
        """The agent's own, unless the conversation was put on another: a fallback, or one that a person chose. Raises
        ConfigError."""
        if not self.request.model:
            return self.agent.model
        return model_named(self.agent, self.request.model)

    def cost_of(self, reply: Reply) -> float | None:
        return cost_of_reply(self.model, reply)

    def cost_so_far(self, usage: Usage) -> float | None:
        """Of a reply that is not whole yet, and has no details."""
        return cost_usd(self.model, usage, details=asked_tier(self.agent.settings))


@dataclass(frozen=True)
class PlannedReply:
    """What follows from a reply."""

    reply: Reply
    """As hooks left it."""
    plan: tuple[PlannedCall, ...] = ()
    output: JsonValue = None
    """A final reply as the agent's `output` type, in JSON."""
    output_problem: str | None = None
    """Why the reply does not fit the type."""


class ModelTurns:
    def __init__(
        self,
        agents: Mapping[str, Agent],
        *,
        prefixes: PrefixCache,
        heartbeats: Heartbeats,
        namespace: Namespace,
        streaming: TextStreaming,
        artifacts: Artifacts | None = None,
        toolsets: Toolsets | None = None,
        contexts: ToolContexts | None = None,
        times: ToolTimes | None = None,
        index_tenants: bool = False,
        batches: BatchedTurns | None = None,
    ) -> None:
        self._agents = agents
        self._times = times or ToolTimes()
        self._contexts = contexts or ToolContexts()
        self._toolsets = toolsets or Toolsets(agents.values())
        self._artifacts = artifacts
        self._batches = batches
        self._prefixes = prefixes
        self._heartbeats = heartbeats
        self._streaming = streaming
        self._specs: WeakKeyDictionary[Agent, tuple[ToolSpec, ...]] = WeakKeyDictionary()
        self._facts = Facts(namespace, index_tenants=index_tenants)

    @activity.defn(name=names.CALL_MODEL)
    async def call_model(self, request: ModelRequest) -> ModelReply:
        await self._heartbeats.check_ours()
        agent = await agent_of(self._agents, request, heartbeats=self._heartbeats)
        with self._heartbeats.beating() as beat:
            beat.hands_over = True
            spent = TurnSpending.of_this_turn()
            try:
                async with activity_errors.retrying_for(agent.patience.model):
                    return await self._run_turn(agent, request, beat, spent)
            except asyncio.CancelledError:
                return _cut_reply(request, beat, spent, self._prefixes)
            except ApplicationError as error:
                activity_errors.say_webhook(error, webhook_of(agent))
                raise

    async def _run_turn(self, agent: Agent, request: ModelRequest, beat: Heartbeat, spent: TurnSpending) -> ModelReply:
        started = time.monotonic()
        await free_queue_of_lost_worker()
        is_new_here = not self._prefixes.knows(request.digest)
        turn = await self._prepare_turn(agent, request)
        request = turn.request
        if request.summarise:
            return await self._write_summary(turn, spent)
        cache = PromptCacheWatch(request, turn.prefix, turn.delta)
        heartbeat_text = self._begin_heartbeat_text(beat, turn)
        reply = await self._reply_of_model(turn, turn.messages, heartbeat_text=heartbeat_text, cache=cache)
        planned = await self._plan_reply(turn, reply)
        reply = sign_reply(planned.reply, request)
        spent.add_usage(reply.usage, turn.cost_of(reply))
        digest = self._prefixes.remember(request.digest, turn.prefix, (*turn.delta, reply.message))
        cache.keep(self._prefixes, digest)
        self._prefixes.forget_results(activity.info().workflow_run_id or "", request.named)
        view, summary_due = compaction.next_view(
            turn.agent.compaction, request.view, follow_prefix(turn.messages, (reply.message,)), reply.usage
        )
        model_reply = ModelReply(
            message=reply.message,
            plan=planned.plan,
            # That it wants tools is plain from the message; every field that is written costs history bytes.
            stop="end" if reply.stop == "tool_calls" else reply.stop,
            digest=digest,
            usage=spent.usage,
            cost_usd=spent.cost_usd,
            details=reply.details,
            prompt=turn.prompt,
            output=planned.output,
            output_problem=planned.output_problem,
            view=view,
            summary_due=summary_due,
            hooks=tuple(turn.hooks.actions),
            facts=await self._facts.facts_for(turn.agent, request, is_new=is_new_here or takes_over(turn.delta)),
        )
        _log.info("turn.finished", **_log_fields(reply), seconds=round(time.monotonic() - started, 3))
        return model_reply

    async def _prepare_turn(self, agent: Agent, request: ModelRequest) -> Turn:
        agent = await for_turn(self._toolsets, agent)
        request, prefix, delta = await self._complete_messages(request)
        messages = follow_prefix(prefix, delta)
        context = partial(self._contexts.of_turn, request)
        decided = await agent_for_turn(agent, context, messages, request)
        prompt: RecordedPrompt | None = None
        if decided is not agent and not request.summarise:
            prompt = _record_prompt(decided, request)
        hooks = HookRuns(decided, context, summary=request.summarise)
        return Turn(
            agent=decided, request=request, prefix=prefix, delta=delta, messages=messages, hooks=hooks, prompt=prompt
        )

    async def _plan_reply(self, turn: Turn, reply: Reply) -> PlannedReply:
        """What is to be done with the reply. The reply is paid for: a failure here does not ask the model again by
        itself."""
        request = turn.request
        hooks = turn.hooks
        if hooks.is_stopped:
            return PlannedReply(reply)
        careful = poison_calls.lost_tries() >= poison_calls.MOST_OF_A_PLAN
        # Without a number, the agent's own limit holds, unless the agent has taken over from another.
        calls_left = request.calls_left
        if calls_left is None and request.signed:
            calls_left = MAX_PLANNED_CALLS
        try:
            plan = await plan_calls(
                turn.agent,
                reply.tool_calls,
                conclude=request.conclude,
                calls_left=calls_left,
                careful=careful,
                given_up=poison_calls.given_up(turn.messages) if reply.tool_calls else frozenset(),
                context=lambda call: self._contexts.of_call(request, call.call_id),
                hooks=hooks,
                said_before=SaidBefore(turn.messages, request),
                times=self._times,
                ruled=request.ruled,
            )
            output, problem = await _read_output(turn.agent, reply, lambda: hooks.context)
            return PlannedReply(hooks.with_changes(reply), tuple(plan), output, problem)
        except StoppedByHook as stop:
            return PlannedReply(hook_runs.stopped_reply(reply, stop.text))
        except ApplicationError:  # a hook's, or a filter's, which stalls the conversation
            raise
        except Exception as error:  # noqa: BLE001 - any of them would ask the model again
            raise activity_errors.after_reply(await safe_error_text(error)) from None

    @activity.defn(name=names.EXTEND_PREFIX)
    async def extend_prefix(self, request: ModelRequest) -> str:
        """The digest of the prefix followed by the delta. No model is asked: the next run begins after both."""
        with self._heartbeats.beating():
            await free_queue_of_lost_worker()
            request, prefix, delta = await self._complete_messages(request)
        self._prefixes.forget_results(activity.info().workflow_run_id or "", request.named)
        return self._prefixes.remember(request.digest, prefix, delta)

    def _begin_heartbeat_text(self, beat: Heartbeat, turn: Turn) -> HeartbeatText | None:
        """What carries the reply while it is written; None if a hook is to see the reply before anybody else does."""
        if not all(hook.streams for hook in hook_runs.hooks_at(turn.agent, "after_model")):
            return None
        return self._streaming.begin_stream(beat, turn.request, cost=turn.cost_so_far)

    async def _write_summary(self, turn: Turn, spent: TurnSpending) -> ModelReply:
        """The model's summary of the old messages, as the message that replaces them from now on."""
        wanted = turn.agent.compaction
        view = turn.request.view
        old_messages, keep_from = compaction.to_summarise(turn.prefix, view, wanted) if wanted else ([], 0)
        if not old_messages:
            return ModelReply(message=Message(role="user", parts=()), digest=turn.request.digest)
        reply = await self._reply_of_model(turn, [*old_messages, Message.user(compaction.ASK)])
        spent.add_usage(reply.usage, turn.cost_of(reply))
        summary = compaction.summary_of(reply.text)
        _log.info("transcript.summarised", **_log_fields(reply), messages=len(old_messages))
        return ModelReply(
            message=summary,
            digest=self._prefixes.remember(turn.request.digest, turn.prefix, (summary,)),
            usage=spent.usage,
            cost_usd=spent.cost_usd,
            hooks=tuple(turn.hooks.actions),
            view=(view or TranscriptView()).model_copy(update={"summary_at": len(turn.prefix), "keep_from": keep_from}),
        )

    async def _reply_of_model(
        self,
        turn: Turn,
        messages: Sequence[Message],
        *,
        heartbeat_text: HeartbeatText | None = None,
        cache: PromptCacheWatch | None = None,
    ) -> Reply:
        """The model's reply to these messages as hooks left it, or what a hook answers in its place."""
        question = self._make_question(turn, messages)
        if (text := hook_runs.stopped_before(messages)) is not None:
            return turn.hooks.answer_with(question, text)
        planned = question
        question = await turn.hooks.before_model(question)
        if turn.hooks.is_stopped:
            return turn.hooks.answer_with(question, turn.hooks.answer)
        kept = KeptResponse(question.model)
        async with kept.awaited():
            reply = await self._send_question(turn, question, messages, heartbeat_text, kept)
        if cache:
            cache.take_reply(question, reply, changed=question is not planned)
        return await fit_reply(await turn.hooks.after_model(reply), turn=turn.request.turn, artifacts=self._artifacts)

    async def question_of(self, agent: Agent, request: ModelRequest) -> Request | None:
        """What a turn that waits for a batch asks, worked out anew from its conversation's history; None if a hook
        answers it."""
        turn = await self._prepare_turn(agent, request)
        if hook_runs.stopped_before(turn.messages) is not None:
            return None
        question = await turn.hooks.before_model(self._make_question(turn, turn.messages))
        return None if turn.hooks.is_stopped else question

    def _make_question(self, turn: Turn, messages: Sequence[Message]) -> Request:
        """What the provider is asked. A `request`, in this module, is what the workflow asks of the worker."""
        try:
            model = turn.model
        except ConfigError as error:
            raise activity_errors.final_error(error) from None
        return turn_request_of(turn.agent, turn.request, messages, model=model, tools=self._specs_of(turn.agent))

    async def _read_batched(self, question: Request, turn: Turn, *, fallback: str | None) -> Reply | None:
        """The reply of a turn whose batch is over; None if it is to wait for none, and is asked at once. Raises the
        error that makes it wait."""
        request = turn.request
        has_result = request.batch is not None and request.batch.has_result
        if self._batches is None or request.summarise or not (has_result or has_batches(question)):
            return None
        with suppress(NotBatched):
            return await self._batches.reply_to(question, request, turn.agent, fallback=fallback)
        return None

    async def _send_question(
        self,
        turn: Turn,
        question: Request,
        messages: Sequence[Message],
        heartbeat_text: HeartbeatText | None,
        kept: KeptResponse,
    ) -> Reply:
        """What the model replies to the question, which is made of the `messages`."""
        agent = turn.agent
        fallback = fallbacks.next_after(agent, question.model)
        seconds = agent.patience.turn_timeout.total_seconds()
        async with _explained_failures(turn, messages, fallback=fallback):
            with heartbeat_text or nullcontext() as text:
                if batched := await self._read_batched(question, turn, fallback=fallback):
                    return batched
                call = partial(self._ask_once, question, text, kept, seconds)
                reply = await within_limit(question, call, patience=agent.patience, fallback=fallback)
        if again := empty_replies.error_of_another_try(reply, agent.patience):
            _log.warning("turn.empty")
            kept.forget()
            raise again
        return reply

    async def _ask_once(
        self, question: Request, heartbeat_text: HeartbeatText | None, kept: KeptResponse, seconds: float
    ) -> Reply:
        options: dict[str, Any] = {}
        if heartbeat_text:
            options |= {"on_delta": heartbeat_text.take_delta, "on_start": heartbeat_text.counted_by}
        if kept.response_id:  # which is paid, also if the next deploy has no background=True any more
            settings = question.settings.model_copy(update={"background": True})
            question = replace(question, settings=settings)
        if question.settings.background:
            options["kept"] = kept
        async with asyncio.timeout(seconds):
            return without_large_details(await ask(question, **options))

    def _specs_of(self, agent: Agent) -> tuple[ToolSpec, ...]:
        """Made once for each set of tools."""
        if agent not in self._specs:
            self._specs[agent] = specs_of(agent.tools)
        return self._specs[agent]

    # ------------------------------------------------------------ the transcript

    async def _complete_messages(self, request: ModelRequest) -> tuple[ModelRequest, Sequence[Message], list[Message]]:
        """The request, the prefix and the delta, whole. The history is read only for what this worker does not
        remember; the request then has the digest of what was found there."""
        run_id = turn_place().run_id
        prefix = self._prefixes.find(request.digest, request.position)
        results = self._prefixes.find_results(run_id, request.named)
        if prefix is None or results is None:
            self._prefixes.misses += 1
            try:
                request, prefix, results = await self._read_history(request, prefix)
            except InvalidSetting as error:  # a part of the history is in a storage that this worker lacks
                raise activity_errors.final_error(error) from None
        elif request.position:
            self._prefixes.hits += 1
        return request, prefix, filled_delta(request, results)

    async def _read_history(
        self, request: ModelRequest, known: Sequence[Message] | None
    ) -> tuple[ModelRequest, Sequence[Message], dict[str, ToolResult]]:
        place = turn_place()
        client = activity.client()
        transcript = Transcript()
        conversation_id = place.conversation_id
        run_id = place.run_id
        if known is not None:
            last = await last_results(
                client, conversation_id, run_id, call_ids=request.named, activity_id=place.activity_id
            )
            if last is not None:
                return request, known, last
        async for step in read_steps(client, conversation_id, run_id=run_id):
            # Not by the turn's number: one that is asked again after a stall or a summary has an event for each time,
            # and what came between them belongs to the prefix.
            if isinstance(step, TurnScheduled) and step.activity_id == place.activity_id:
                break
            transcript.take_step(step)
        results = transcript.results_of(request.named)
        if known is not None:
            return request, known, results
        try:
            prefix = (await read_transcript(client, conversation_id, transcript))[: request.position]
        except ConversationError as error:
            raise activity_errors.final_error(error) from None
        if len(prefix) < request.position:
            # A model that is not shown all messages would answer what was never asked.
            raise activity_errors.final_error(
                ConversationError(
                    f"{request.position - len(prefix)} of the {request.position} messages before turn {request.turn} "
                    "can't be read from the history by this worker.",
                    cure="If a newer version of the code wrote them, deploy that version, then resume.",
                )
            )
        _log.info("prefix.read", messages=len(prefix))
        if request.digest and (digest := digest_of(prefix)) != request.digest:
            # The history is the truth. This can happen after an upgrade that writes a record differently; so the
            # prefix is remembered under its own digest, and never taken for the one that was asked for.
            _log.warning("prefix.digest_differed", messages=len(prefix))
            request = request.model_copy(update={"digest": digest})
        return request, self._prefixes.remember_whole(request.digest, prefix), results


@asynccontextmanager
async def _explained_failures(turn: Turn, messages: Sequence[Message], *, fallback: str | None) -> AsyncGenerator[None]:
    """Raises what the block raises as ApplicationErrors, which say whether and when the turn is tried again.
    `messages`: what the model is asked with."""
    patience = turn.agent.patience
    try:
        yield
    except TimeoutError:
        late = ConnectionFailed(
            f"The model turn took longer than {patience.turn_timeout}.", cure="See Patience(turn_timeout=)."
        )
        raise fallbacks.after_error(late, patience, fallback=fallback) from None
    except ContextTooLong as error:
        too_long = _would_shorten(turn, messages)
        raise activity_errors.final_error(error, fallback=fallback, too_long=too_long) from None
    except ProviderError as error:
        _log.warning("turn.failed", error=str(error))
        raise fallbacks.after_error(error, patience, fallback=fallback) from None
    except ConfigError as error:
        raise activity_errors.final_error(error, fallback=fallback) from None
    except FAULTS as error:
        raise activity_errors.not_asked(await safe_error_text(error), fallback=fallback) from None
    except asyncio.CancelledError:
        if activity.is_worker_shutdown():
            raise activity_errors.worker_shutdown() from None
        raise


def _would_shorten(turn: Turn, messages: Sequence[Message]) -> bool:
    """Whether a summary of old messages would make the turn shorter."""
    request = turn.request
    wanted = turn.agent.compaction
    if wanted is None or request.summarise:
        return False
    old_messages, _ = compaction.to_summarise(messages[: request.position], request.view, wanted)
    return bool(old_messages)


def model_named(agent: Agent, name: str) -> Model:
    """The agent's model of that name, with its address and key; or another one of that name."""
    known = {model.name: model for model in (agent.model, *agent.fallback_models)}
    return known.get(name) or Model(name)


def _record_prompt(agent: Agent, request: ModelRequest) -> RecordedPrompt:
    tools = tuple(
        PromptTool(name=tool.name, description=tool.description, parameters=tool.parameters) for tool in agent.tools
    )
    prompt = Prompt(instructions=agent.instructions if isinstance(agent.instructions, str) else "", tools=tools)
    return RecordedPrompt.from_prompt(prompt, known=request.prompts, room=request.prompt_room)


def _log_fields(reply: Reply) -> dict[str, object]:
    tokens = {"input_tokens": reply.usage.input_tokens, "output_tokens": reply.usage.output_tokens}
    return {"model": reply.model, "tool_calls": len(reply.tool_calls), **tokens}


async def _read_output(
    agent: Agent, reply: Reply, turn: Callable[[], TurnContext[Any]]
) -> tuple[JsonValue, str | None]:
    """A final reply as the agent's `output` type, in JSON, or None and what is wrong with it; twice None for other
    replies. `turn` makes the context that the type's validators are given."""
    if agent.output_adapter is None or reply.stop != "end" or reply.tool_calls:
        return None, None
    try:
        if size_of(reply.text) > MAX_BESIDE_REPLY_BYTES:
            raise InvalidOutput(f"It has more than {MAX_BESIDE_REPLY_BYTES:,} bytes.")
        output = await user_code.in_thread(partial(agent.read_output, reply.text, turn()))
        if (size := size_of(output)) > MAX_BESIDE_REPLY_BYTES:  # a type can make much of a short text
            raise InvalidOutput(f"It has {size:,} bytes as JSON; the limit is {MAX_BESIDE_REPLY_BYTES:,}.")
        if too_deep(output):
            raise InvalidOutput(f"It is nested more than {MAX_DEPTH} levels deep.")
        return output, None
    except InvalidOutput as error:
        _log.warning("output.refused", error=str(error))
        return None, shortened(str(error), max_bytes=MAX_CAUSE_BYTES)
    except Exception as error:  # noqa: BLE001 - of the user's validators, which may also hang
        problem = f"It could not be checked: {await safe_error_text(error)}"
        return None, shortened(problem, max_bytes=MAX_CAUSE_BYTES)


def _cut_reply(request: ModelRequest, beat: Heartbeat, spent: TurnSpending, prefixes: PrefixCache) -> ModelReply:
    """What a turn hands over when its conversation cancels it: the text so far, as its reply, marked as cut short, and
    without any calls in it. Raises CancelledError if nobody waits for it, or if nothing was said or counted."""
    if request.summarise or not is_unwanted():
        raise asyncio.CancelledError
    streamed = beat.reply_so_far() if beat.reply_so_far else None
    # People still see what the try before this one said, until this one says something.
    seen = SeenReply.from_streamed(streamed) or beaten_out(activity.info().heartbeat_details)
    if seen and seen.turn != request.turn:
        seen = None
    if counted := seen or streamed:
        spent.add_usage(counted.usage, counted.cost_usd)
    if not seen and not spent.usage.total_tokens:
        raise asyncio.CancelledError
    cut = Message(role="assistant", parts=(), cut_short=True)
    if seen:
        cut = seen.as_message(request.agent if request.signed else "")
    _log.info("turn.cut_short", characters=len(cut.text), output_tokens=spent.usage.output_tokens)
    return ModelReply(
        message=cut, digest=_digest_with(request, cut, prefixes), usage=spent.usage, cost_usd=spent.cost_usd
    )


def _digest_with(request: ModelRequest, cut: Message, prefixes: PrefixCache) -> str:
    """The digest of the transcript with `cut`; empty if that is not known. The worker does not remember this prefix: so
    it meets the conversation with the next turn, whose reply says the worker's facts."""
    results = prefixes.find_results(activity.info().workflow_run_id or "", request.named)
    if results is None or not cut.parts or (request.position and not request.digest):
        return ""
    return chain_digest(request.digest, (*filled_delta(request, results), cut))
