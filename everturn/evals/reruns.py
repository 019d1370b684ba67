"""Reruns: what would this candidate have done with conversations that really happened?"""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import json
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from itertools import chain, groupby, takewhile
from typing import Any, Final

from everturn import names
from everturn.activities.tool_contexts import MakeDeps
from everturn.agent import Agent, Instructions, ToolItem, with_sub_agents
from everturn.client.client import Client
from everturn.client.conversation import Conversation
from everturn.client.earlier_transcript import begun_with
from everturn.client.messages import start_payload
from everturn.client.pollers import find_live_workers
from everturn.errors import AlreadyStarted, Ended, NotFound, Refused, Stalled, Unreachable
from everturn.evals.candidates import candidate_of, for_rerun, left_out_tools
from everturn.evals.cases import RecordedCase
from everturn.evals.comparison import Comparison, Reruns, compare
from everturn.evals.fingerprints import Fingerprint, fingerprint_of
from everturn.evals.model_stand_in import played_by
from everturn.evals.recorded import Recorded, read_recorded, spoken_counts
from everturn.evals.redaction import DIGEST
from everturn.evals.rerun_answers import AT_TURN, RERUN_OF, Matcher, RecordedAnswers, StandIn, ended_at
from everturn.evals.same_meaning import same_meaning
from everturn.history.fork_start import Changes, start_of_fork
from everturn.limits import Limits
from everturn.models import Model
from everturn.payloads import Start, Status
from everturn.policy import Rule
from everturn.records import Message, ToolCall, is_said_by_person
from everturn.sizes import MAX_ID_BYTES
from everturn.worker.worker import Worker

KEPT_OPEN: Final = timedelta(days=1)
"""How long a rerun waits for the next recorded message: until a rerun that was killed is called once more."""

LOOK_SECONDS: Final = 5.0
"""Between two looks whether a rerun waits for somebody who will not come."""

STUCK: Final = ("awaiting_approval", "awaiting_answer", "paused", "stalled")

NOTHING_RUNS: Final = Rule(tool="*", then="approve", by="rerun", reason="a rerun answers calls, and runs none")


@dataclass(frozen=True)
class Plan:
    """What one rerun is to do."""

    recorded: Recorded
    sample: int
    id: str
    at_turn: int | None = None


@dataclass(frozen=True)
class RerunOptions:
    """What holds for all reruns of a candidate."""

    limits: Limits | None = None
    tenant: str | None = None
    again: bool = False


async def rerun(
    client: Client,
    id: str | RecordedCase | Iterable[str | RecordedCase],  # noqa: A002 - as everywhere else
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
    in order, and its calls are answered with the recorded results. `id`: of conversations; or cases (`read_cases`),
    which need nothing of the conversation that they were made from.

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
    kill, and takes those that are over as they are, which the report says; `again` starts these anew. They start anew
    also if a function of the candidate's may read something else than constants, such as a file or the clock: nobody
    can know whether it is still the same.
    `to`: a client of another namespace, to make them there (not with `at_turn`). `task_queue`: theirs, which no other
    worker may poll; None: one of the candidate's own. `parallel`: how many run at the same time. `deps`: as a Worker's.
    `limits` and `tenant` are theirs, and so are the tenant's budgets. A rerun is erased with its conversation; to throw
    one away: `client.erase(comparison.rerun.id)`.

    Returns a Comparison for each sample of each conversation, in order, as Reruns. Raises InvalidAgent, NotFound,
    Refused.
    """
    sources = [id] if isinstance(id, str | RecordedCase) else list(id)
    _check_options(matches, stand_in, samples=samples, parallel=parallel)
    if to is not None and at_turn is not None:
        raise Refused(
            f"A rerun of one turn, at_turn={at_turn}, has to be in the namespace of its conversation.",
            cure="Leave out to=; or leave out at_turn=, and the whole conversation is rerun there.",
        )
    recorded = [await _read_source(client, source, at_turn) for source in sources]
    if not recorded:
        return Reruns(())
    if not any(turn is None or turn in conversation.replies for conversation, turn in recorded):
        conversation, turn = recorded[0]
        raise Refused(f"Conversation {conversation.id!r} has {_no_turn(conversation, turn)}", cure="Name another turn.")
    candidate = candidate_of(
        agent, recorded_agent=recorded[0][0].agent, model=model, instructions=instructions, tools=tools
    )
    options = RerunOptions(limits, tenant, again)
    hosting = host_candidate(
        client,
        candidate,
        run_reads=run_reads,
        matches=matches,
        stand_in=stand_in,
        deps=deps,
        to=to,
        task_queue=task_queue,
        options=options,
        mark_of_turn=at_turn,
    )
    async with hosting as hosted:
        plans = [
            hosted.plan(conversation, turn, sample)
            for conversation, turn in recorded
            for sample in range(1, samples + 1)
        ]
        slots = asyncio.Semaphore(parallel)

        async def run_plan(plan: Plan) -> Comparison:
            async with slots:
                return await hosted.run(plan)

        compared = await asyncio.gather(*map(run_plan, plans))
    if judge is not None:
        compared = [replace(comparison, same_meaning=await same_meaning(judge, comparison)) for comparison in compared]
    return Reruns(tuple(compared), left_out=left_out_tools(candidate), queue=hosted.host.task_queue)


def _check_options(matches: object, stand_in: object, **numbers: int) -> None:
    """Raises Refused."""
    if matches is not None and (not callable(matches) or inspect.iscoroutinefunction(matches)):
        raise Refused(
            f"matches={matches!r:.100} can't say which calls count as the same.",
            cure="Give a function that is not async: of the candidate's call and a recorded one, to True or False.",
        )
    if not (stand_in is None or isinstance(stand_in, str | Model) or callable(stand_in)):
        raise Refused(f"stand_in={stand_in!r:.100} can't play a tool.", cure="Give a function, or a model.")
    for name, number in numbers.items():
        if number < 1:
            raise Refused(f"{name}={number} reruns nothing.", cure="Give 1 or more.")


async def _read_source(client: Client, source: str | RecordedCase, at_turn: int | None) -> tuple[Recorded, int | None]:
    """The conversation, and the turn whose reply alone is asked for."""
    if isinstance(source, str):
        return await read_recorded(client, source), at_turn
    return source.as_recorded(), at_turn or source.inputs.at_turn


def rerun_id(recorded_id: str, mark: str, *, at_turn: int | None = None, sample: int = 1) -> str:
    """The id of a rerun. `mark`: the candidate's fingerprint."""
    end = f":{mark}:{sample}"
    if at_turn is not None:
        end = f":{mark}:turn-{at_turn}:{sample}"
    room = MAX_ID_BYTES - len(names.RERUN) - len(end)
    if len(recorded_id.encode()) > room:
        recorded_id = hashlib.sha256(recorded_id.encode()).hexdigest()
    return f"{names.RERUN}{recorded_id}{end}"


@dataclass(frozen=True)
class HostedCandidate:
    """A candidate on a worker of this process, ready for reruns."""

    source: Client
    host: Client
    agent: Agent
    hook: RecordedAnswers
    fingerprint: Fingerprint
    options: RerunOptions

    def plan(self, recorded: Recorded, at_turn: int | None = None, sample: int = 1) -> Plan:
        """A rerun of the conversation. From here on, its calls can be answered."""
        mark = f"{self.fingerprint.digest}-{_digest_of(recorded, at_turn)}"
        self.hook.remember_recorded(recorded)
        return Plan(recorded, sample, rerun_id(recorded.id, mark, at_turn=at_turn, sample=sample), at_turn)

    async def run(self, plan: Plan) -> Comparison:
        """Runs it, or goes on with it where it was, and compares."""
        if plan.at_turn is None and not plan.recorded.asked:
            return _not_rerun(plan, "nobody has said anything in the recorded conversation yet")
        if plan.at_turn is not None and plan.at_turn not in plan.recorded.replies:
            return _not_rerun(plan, f"the recorded conversation has {_no_turn(plan.recorded, plan.at_turn)}")
        labels = {**plan.recorded.metadata, RERUN_OF: plan.recorded.key or plan.recorded.id}
        if plan.at_turn is None:
            start = _start_of(self, plan, metadata=labels)
        else:
            start = await _start_of_turn(self, plan, plan.at_turn, metadata={**labels, AT_TURN: plan.at_turn})
        conversation, is_new = await _begin(self, plan, start)
        if plan.at_turn is None:
            problem = await _put_messages(self, conversation, plan)
        else:
            problem = await _wait_for_turn(conversation)
        rerun = await read_recorded(self.host, plan.id)
        ended: ToolCall | None = None
        if not problem:
            ended = ended_at(rerun.messages)
        comparison = compare(
            plan.recorded, rerun, ended_at=ended, sample=plan.sample, at_turn=plan.at_turn, problem=problem
        )
        return replace(comparison, is_earlier=not is_new)


def _no_turn(recorded: Recorded, at_turn: int | None) -> str:
    turns = ", ".join(map(str, recorded.replies)) or "none"
    return f"no reply of turn {at_turn}. Its turns with a reply: {turns}."


def _not_rerun(plan: Plan, problem: str) -> Comparison:
    """What is said of a conversation that nothing can be made of. The others go on."""
    recorded = plan.recorded
    nothing = Recorded(plan.id, recorded.agent, "", "not started", messages=(), asked=(), replies={}, calls=(), text="")
    return compare(recorded, nothing, sample=plan.sample, at_turn=plan.at_turn, problem=problem)


async def _check_queue_is_free(source: Client, host: Client) -> None:
    """Another worker would run the tools of the reruns that it gets. Raises Refused."""
    queue = host.task_queue
    cure = "Leave out task_queue=, and the reruns get one of their own; or name one that nobody polls."
    if queue == source.task_queue:
        raise Refused(f"Reruns can't be on the task queue {queue!r}: it is that of the conversations.", cure=cure)
    looks = [find_live_workers(host.temporal, queue, activities=activities) for activities in (False, True)]
    if workers := dict.fromkeys(chain.from_iterable(await asyncio.gather(*looks))):
        raise Refused(
            f"Reruns can't be on the task queue {queue!r}: other workers poll it ({', '.join(workers)}), and would run "
            "tools.",
            cure=cure,
        )


def _digest_of(recorded: Recorded, at_turn: int | None) -> str:
    """Of what the candidate is put: the conversation may have gone on since, or be another one with the same id."""
    messages = recorded.messages
    if at_turn in recorded.replies:
        messages = messages[: _place_of(recorded, at_turn)]
    written = [recorded.agent, recorded.key, *(message.model_dump_json() for message in messages)]
    return hashlib.sha256(json.dumps(written).encode()).hexdigest()[:12]


@asynccontextmanager
async def host_candidate(
    client: Client,
    candidate: Agent,
    *,
    run_reads: bool,
    matches: Matcher | None,
    stand_in: StandIn | str | Model | None,
    deps: MakeDeps | None,
    to: Client | None,
    task_queue: str | None,
    options: RerunOptions,
    mark_of_turn: int | None = None,
) -> AsyncIterator[HostedCandidate]:
    """Hosts it on a task queue of its own, as long as the block runs. `mark_of_turn`: a part of the fingerprint."""
    played = played_by(stand_in) if isinstance(stand_in, str | Model) else stand_in
    fingerprint = fingerprint_of(candidate, mark_of_turn, options.limits, stand_in, matches, deps, run_reads=run_reads)
    mark = fingerprint.digest
    host = Client((to or client).temporal, task_queue=task_queue or f"{client.task_queue}-rerun-{mark}", by="rerun")
    if task_queue is not None:
        await _check_queue_is_free(client, host)
    hook = RecordedAnswers(client, host, run_reads=run_reads, matches=matches, stand_in=played)
    hosted = for_rerun(candidate, hook)
    hook.agents = with_sub_agents([hosted])
    async with Worker(host, agents=[hosted], deps=deps, drain_timeout=timedelta(seconds=5)):
        yield HostedCandidate(client, host, hosted, hook, fingerprint, options)


def _start_options(options: RerunOptions) -> dict[str, Any]:
    return {"limits": options.limits, "tenant": options.tenant}


def _start_of(hosted: HostedCandidate, plan: Plan, *, metadata: dict[str, Any]) -> Start:
    """With the first of the recorded messages."""
    first_message, *later_messages = _put_together(plan.recorded)
    return start_payload(
        first_message,
        agent=hosted.agent.full_name,
        keep_open=KEPT_OPEN.total_seconds() if later_messages else None,
        policy=(NOTHING_RUNS,),
        forked_from=_erased_with(plan.recorded),
        metadata=metadata,
        **_start_options(hosted.options),
    )


async def _put_messages(hosted: HostedCandidate, conversation: Conversation, plan: Plan) -> str:
    """Puts the other recorded messages to the candidate, one after the other. Returns why it did not end, or an empty
    text."""
    later_messages = _put_together(plan.recorded)[1:]
    with suppress(Ended):  # a limit was reached, or it was over before this process began
        for number, message in enumerate(later_messages, 2):
            if problem := await _wait_for_reply(conversation):
                return problem
            if ended_at(await conversation.transcript()):
                break
            hosted.hook.times_spoken[plan.id] = number
            await conversation.send(message, message_id=f"{names.RERUN}{number}")
        if problem := await _wait_for_reply(conversation):
            return problem
        if later_messages:
            await conversation.close()
    await conversation.outcome()
    return ""


async def _begin(hosted: HostedCandidate, plan: Plan, start: Start) -> tuple[Conversation, bool]:
    """The rerun, and whether it was begun now, and not before. One that is over counts only for a candidate that is
    known to be the same."""
    anew = hosted.options.again or not hosted.fingerprint.is_certain
    conversation = hosted.host.conversation(plan.id)
    try:
        await hosted.host._start_workflow(start, plan.id, hosted.agent, after_end=anew, ours=names.RERUN)
    except AlreadyStarted:
        return conversation, False
    return conversation, True


def _erased_with(recorded: Recorded) -> tuple[str, ...]:
    """The conversation that a rerun is erased with."""
    if recorded.id.startswith(DIGEST):
        return ()
    return (recorded.id,)


async def _start_of_turn(hosted: HostedCandidate, plan: Plan, at_turn: int, *, metadata: dict[str, Any]) -> Start:
    """Asks for the reply of one turn, after the exact transcript before it."""
    begun = await _start_at(hosted, plan.recorded, at_turn)
    return begun.model_copy(
        update={
            "agent": hosted.agent.full_name,
            "model": None,
            "keep_open": None,
            "caller": None,
            "notify": None,
            "webhooks": (),
            "policy": () if begun.carry else (NOTHING_RUNS,),
            "inherited": (),
            "searchable": (),
            "metadata": metadata,
            **_start_options(hosted.options),
        }
    )


async def _wait_for_turn(conversation: Conversation) -> str:
    """Returns why there is no reply, or an empty text."""
    with suppress(Ended):
        if problem := await _wait_for_reply(conversation):
            return problem
        await conversation.close()
    return ""


async def _start_at(hosted: HostedCandidate, recorded: Recorded, at_turn: int) -> Start:
    """The start of a conversation whose first reply is that of this turn."""
    message = _message_before(recorded, at_turn)
    if recorded.key:
        return _start_of_case(recorded, at_turn, message)
    run_id = await hosted.source.conversation(recorded.id).latest_run()
    begun = await start_of_fork(
        hosted.source.temporal,
        recorded.id,
        run_id,
        turn=at_turn - 1,
        changes=Changes(message=message.parts, tools=message.tools) if message else None,
    )
    if begun.carry is None:
        return begun
    carry_changes: dict[str, Any] = {
        "agent": "",
        "facts": None,  # with its webhook: a rerun is nobody's news
        "policy": (NOTHING_RUNS,),
        "inherited": (),
        "views": {},
        "budget": None,
        "model": "",
    }
    return begun.model_copy(update={"carry": begun.carry.model_copy(update=carry_changes)})


def _start_of_case(recorded: Recorded, at_turn: int, message: Message | None) -> Start:
    """With the messages that the case holds, and none of the conversation's history."""
    before = list(recorded.messages[: _place_of(recorded, at_turn)])
    while before and is_said_by_person(before[-1]):
        before.pop()
    carry = begun_with(before)
    if carry is not None:
        own = {"turn": at_turn - 1, "owed": message is None, "policy": (NOTHING_RUNS,)}
        carry = carry.model_copy(update=own)
    parts = message.parts if message else ()
    forked_from = _erased_with(recorded)
    return start_payload(parts, may_be_empty=True, agent=recorded.agent, carry=carry, forked_from=forked_from)


def _message_before(recorded: Recorded, at_turn: int) -> Message | None:
    """What people said right before that turn's reply, as one message; None if tools had answered, and nobody
    spoke."""
    place = _place_of(recorded, at_turn)
    messages = list(takewhile(is_said_by_person, reversed(recorded.messages[:place])))
    return _as_one(messages[::-1]) if messages else None


def _put_together(recorded: Recorded) -> list[Message]:
    """What people said, with what one reply answered as one message."""
    messages = [
        (number, message)
        for number, message in zip(spoken_counts(recorded.messages), recorded.messages, strict=True)
        if is_said_by_person(message)
    ]
    return [_as_one([message for _, message in group]) for _, group in groupby(messages, key=lambda pair: pair[0])]


def _as_one(messages: Sequence[Message]) -> Message:
    if len(messages) == 1:
        return messages[0]
    return messages[-1].model_copy(update={"parts": tuple(part for message in messages for part in message.parts)})


def _place_of(recorded: Recorded, at_turn: int) -> int:
    """Of that turn's reply, among the messages. Others may say the same."""
    reply = recorded.replies[at_turn]
    return next(place for place, message in enumerate(recorded.messages) if message is reply)


async def _wait_for_reply(conversation: Conversation) -> str:
    """Waits for the reply to all that was said. Returns why there will be none, or an empty text: nobody decides on
    calls of a rerun, and nobody resumes it."""
    replying = asyncio.ensure_future(conversation.reply())
    try:
        while not replying.done():
            await asyncio.wait({replying}, timeout=LOOK_SECONDS)
            if replying.done():
                break
            status: Status | None = None
            with suppress(Unreachable, NotFound):  # worker or server is busy: the next look, or the reply, will tell
                status = await conversation.status(children=False)
            if status and status.state in STUCK:
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
