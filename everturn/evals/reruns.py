"""Reruns: what would this candidate have done with conversations that really happened?"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Final

from everturn import names
from everturn.activities.tool_contexts import MakeDeps
from everturn.agent import Agent, Instructions, ToolItem, with_sub_agents
from everturn.client.client import Client
from everturn.client.conversation import Conversation
from everturn.client.messages import start_payload
from everturn.errors import AlreadyStarted, Ended, Refused, Stalled
from everturn.evals.candidates import candidate_fingerprint, candidate_of, for_rerun, left_out_tools
from everturn.evals.comparison import Comparison, Reruns, compare
from everturn.evals.judging import same_meaning
from everturn.evals.recorded import Recorded, read_recorded
from everturn.evals.recorded_answers import AT_TURN, RERUN_OF, Matcher, RecordedAnswers, StandIn, ended_at
from everturn.evals.stand_ins import played_by
from everturn.history.fork_start import Changes, start_of_fork
from everturn.limits import Limits
from everturn.models import Model
from everturn.policy import Rule
from everturn.records import ToolCall
from everturn.sizes import MAX_ID_BYTES
from everturn.worker.worker import Worker

KEPT_OPEN: Final = timedelta(days=1)
"""How long a rerun waits for the next recorded message: until a rerun that was killed is called once more."""

LOOK_SECONDS: Final = 5.0
"""Between two looks whether a rerun waits for somebody who will not come."""

STUCK: Final = ("awaiting_approval", "awaiting_answer", "paused", "stalled")

NOTHING_RUNS: Final = Rule(tool="*", then="approve", by="rerun", reason="a rerun answers calls, and runs none")


@dataclass(frozen=True)
class _Plan:
    """What one rerun is to do."""

    recorded: Recorded
    sample: int
    id: str


async def rerun(
    client: Client,
    id: str | Iterable[str],  # noqa: A002 - as everywhere else
    *,
    agent: Agent | None = None,
    model: str | Model | None = None,
    instructions: str | Instructions | None = None,
    tools: Sequence[ToolItem] | None = None,
    at_turn: int | None = None,
    samples: int = 1,
    run_reads: bool = False,
    matches: Matcher | None = None,
    stand_in: StandIn | str | Model | None = None,
    judge: str | Model | None = None,
    limits: Limits | None = None,
    tenant: str | None = None,
    deps: MakeDeps | None = None,
    to: Client | None = None,
    task_queue: str | None = None,
    parallel: int = 16,
    again: bool = False,
) -> Reruns:
    """What a candidate does with a recorded conversation, or with several: the recorded users' messages are put to it
    in order, and its calls are answered with the recorded results.

    The candidate is `agent`, with `model`, `instructions` and `tools` in place of its own. A call is answered with the
    result of the recorded call of the same tool with the same arguments, each one once, whatever people had decided on
    it; `matches` says which other calls of the tool count as the same. **No other call runs.** With `run_reads`, tools
    with effect `read` do that need no approval; without it, a read that is repeated gets what it got before. What is
    left goes to `stand_in`: a function of the call and its context that returns a result, or a model that plays the
    tool. Without one, or if it returns None, the rerun ends there as "diverged". Functions for instructions and tools,
    and hooks, do run.

    `at_turn`: only the reply of this turn is asked for, after the exact transcript before it. `samples`: how often.
    `judge`: a model that says whether both answers mean the same, if their texts differ.

    Each rerun is a durable conversation, hosted here on a task queue of its own, with an id that begins with `rerun:`,
    and in no list of conversations. The same call with the same candidate goes on with reruns that were begun before a
    kill, and takes those that are over as they are; `again` starts these anew.
    A rerun is erased with its conversation. `to`: a client of another namespace, to make them there (not with
    `at_turn`). `limits` and `tenant` are theirs, and so are the tenant's budgets. To throw
    one away: `client.erase(comparison.rerun.id)`.

    Raises InvalidAgent, NotFound, Refused.
    """
    ids = [id] if isinstance(id, str) else list(id)
    if to is not None and at_turn is not None:
        raise Refused("A rerun of one turn has to be in the namespace of its conversation.", cure="Leave out to=.")
    recorded = [await read_recorded(client, conversation_id) for conversation_id in ids]
    if not recorded:
        return Reruns(())
    candidate = candidate_of(
        agent, recorded_agent=recorded[0].agent, model=model, instructions=instructions, tools=tools
    )
    mark = candidate_fingerprint(
        candidate, run_reads, at_turn or "", limits or "", getattr(stand_in, "name", stand_in) or ""
    )
    host = Client((to or client).temporal, task_queue=task_queue or f"{client.task_queue}-rerun-{mark}", by="rerun")
    played = played_by(stand_in) if isinstance(stand_in, str | Model) else stand_in
    hook = RecordedAnswers(client, host, run_reads=run_reads, matches=matches, stand_in=played)
    plans = [
        _Plan(conversation, sample, rerun_id(conversation.id, mark, at_turn=at_turn, sample=sample))
        for conversation in recorded
        for sample in range(1, samples + 1)
    ]
    for conversation in recorded:
        hook.remember_recorded(conversation)
    async with _host_candidate(host, candidate, hook, deps) as hosted:
        slots = asyncio.Semaphore(parallel)

        async def run_plan(plan: _Plan) -> Comparison:
            async with slots:
                return await _run_and_compare(
                    host, client, hosted, plan, at_turn=at_turn, limits=limits, tenant=tenant, again=again
                )

        compared = await asyncio.gather(*map(run_plan, plans))
    if judge is not None:
        compared = [replace(comparison, same_meaning=await same_meaning(judge, comparison)) for comparison in compared]
    return Reruns(tuple(compared), left_out=left_out_tools(candidate), queue=host.task_queue)


def rerun_id(recorded_id: str, mark: str, *, at_turn: int | None = None, sample: int = 1) -> str:
    """The id of a rerun. `mark`: the candidate's fingerprint."""
    end = f":{mark}:{sample}"
    if at_turn is not None:
        end = f":{mark}:turn-{at_turn}:{sample}"
    room = MAX_ID_BYTES - len(names.RERUN) - len(end)
    if len(recorded_id.encode()) > room:
        recorded_id = hashlib.sha256(recorded_id.encode()).hexdigest()
    return f"{names.RERUN}{recorded_id}{end}"


@asynccontextmanager
async def _host_candidate(
    host: Client, candidate: Agent, hook: RecordedAnswers, deps: MakeDeps | None
) -> AsyncIterator[Agent]:
    hosted = for_rerun(candidate, hook)
    hook.agents = with_sub_agents([hosted])
    async with Worker(host, agents=[hosted], deps=deps, drain_timeout=timedelta(seconds=5)):
        yield hosted


async def _run_and_compare(
    host: Client,
    source: Client,
    agent: Agent,
    plan: _Plan,
    *,
    at_turn: int | None,
    limits: Limits | None,
    tenant: str | None,
    again: bool,
) -> Comparison:
    labels = {**plan.recorded.metadata, RERUN_OF: plan.recorded.id}
    options: dict[str, Any] = {"limits": limits, "tenant": tenant, "again": again}
    if at_turn is None:
        driven = _put_messages(host, agent, plan, metadata=labels, **options)
    else:
        driven = _ask_once(host, source, agent, plan, at_turn, metadata={**labels, AT_TURN: at_turn}, **options)
    problem = await driven
    rerun = await read_recorded(host, plan.id)
    ended: ToolCall | None = None
    if not problem:
        ended = ended_at(rerun.messages)
    return compare(plan.recorded, rerun, ended_at=ended, sample=plan.sample, at_turn=at_turn, problem=problem)


async def _put_messages(host: Client, agent: Agent, plan: _Plan, *, again: bool, **options: Any) -> str:
    """Puts the recorded messages to the candidate, one after the other. Returns why it did not end, or an empty
    text."""
    if not plan.recorded.asked:
        return "nobody has said anything in the recorded conversation"
    first, *later = plan.recorded.asked
    start = start_payload(
        first,
        agent=agent.full_name,
        keep_open=KEPT_OPEN.total_seconds() if later else None,
        policy=(NOTHING_RUNS,),
        forked_from=(plan.recorded.id,),  # so that it is erased with it
        **options,
    )
    with suppress(AlreadyStarted):
        await host._start_workflow(start, plan.id, agent, again=again)
    conversation = host.conversation(plan.id)
    with suppress(Ended):  # a limit was reached, or it was over before this process began
        for number, message in enumerate(later, 2):
            if problem := await _wait_for_reply(conversation):
                return problem
            if ended_at(await conversation.transcript()):
                break
            await conversation.send(message, message_id=f"{names.RERUN}{number}")
        if problem := await _wait_for_reply(conversation):
            return problem
        if later:
            await conversation.close()
    await conversation.outcome()
    return ""


async def _ask_once(
    host: Client, source: Client, agent: Agent, plan: _Plan, at_turn: int, *, again: bool, **options: Any
) -> str:
    """Asks for the reply of one turn, after the exact transcript before it."""
    recorded = plan.recorded
    if at_turn not in recorded.replies:
        raise Refused(
            f"Conversation {recorded.id!r} has no reply of turn {at_turn}.",
            cure=f"Its turns with a reply: {', '.join(map(str, recorded.replies)) or 'none'}.",
        )
    message = _message_before(recorded, at_turn)
    parts = message and message.parts
    run_id = await source.conversation(recorded.id).latest_run()
    begun = await start_of_fork(
        source.temporal,
        recorded.id,
        run_id,
        turn=at_turn - 1,
        changes=Changes(message=parts, provider="", tools=message and message.tools),
    )
    carry = begun.carry
    if carry is not None:
        own: dict[str, Any] = {
            "agent": "",
            "facts": None,
            "policy": (NOTHING_RUNS,),
            "inherited": (),
            "views": {},
            "budget": None,
        }
        carry = carry.model_copy(update={**own, "model": ""})
    start = begun.model_copy(
        update={
            "agent": agent.full_name,
            "model": None,
            "keep_open": None,
            "caller": None,
            "notify": None,
            "policy": () if carry else (NOTHING_RUNS,),
            "inherited": (),
            "searchable": (),
            "carry": carry,
            **options,
        }
    )
    with suppress(AlreadyStarted):
        await host._start_workflow(start, plan.id, agent, again=again)
    conversation = host.conversation(plan.id)
    with suppress(Ended):
        if problem := await _wait_for_reply(conversation):
            return problem
        await conversation.close()
    return ""


def _message_before(recorded: Recorded, at_turn: int) -> Any:
    """What a person said right before that turn's reply; None if tools had answered, and nobody spoke."""
    place = recorded.messages.index(recorded.replies[at_turn])
    if not place or recorded.messages[place - 1].role != "user":
        return None
    return recorded.messages[place - 1]


async def _wait_for_reply(conversation: Conversation) -> str:
    """Waits for the reply to all that was said. Returns why there will be none, or an empty text: nobody decides on
    calls of a rerun, and nobody resumes it."""
    replying = asyncio.ensure_future(conversation.reply())
    try:
        while not replying.done():
            await asyncio.wait({replying}, timeout=LOOK_SECONDS)
            if replying.done():
                break
            status = await conversation.status(children=False)
            if status.state in STUCK:
                return await _give_up(
                    conversation, f"it is {status.state}: {status.cause or _waiting_words(status.waiting)}"
                )
        replying.result()
    except Stalled as error:
        return await _give_up(conversation, error.message)
    finally:
        replying.cancel()
    return ""


def _waiting_words(waiting: Sequence[Any]) -> str:
    return "; ".join(call.why for call in waiting) or "it waits for a person"


async def _give_up(conversation: Conversation, reason: str) -> str:
    with suppress(Exception):
        await conversation._handle.terminate(reason[:200])
    return reason
