"""The answers of a conversation, read from its history: each final reply, and how it came about."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from temporalio.client import Client
from temporalio.service import RPCError

from everturn import names
from everturn.corrections import asks_for_correction
from everturn.errors import NotFound
from everturn.evaluations.answers import AnsweredCall, Effect, JudgedAnswer
from everturn.history import steps
from everturn.history.reader import first_step, read_steps
from everturn.history.state_by_history import StateByHistory
from everturn.history.transcript import Transcript, read_transcript
from everturn.payloads import Start
from everturn.plans import RunPlan
from everturn.records import Message, Usage, cost_with, is_said_by_person, results_in
from everturn.temporal.temporal_errors import not_found
from everturn.tracing import TraceContext


@dataclass(frozen=True)
class FoundAnswer:
    """That an answer was given, without what it says."""

    run_id: str
    turn: int
    given_at: datetime
    agent: str
    answers_call: bool
    """It is to another agent's call."""
    minimal: bool
    """The conversation shows as little as possible in Temporal."""


@dataclass
class _AnswerUnderWay:
    """What is known of the answer that is under way, or was last."""

    begin: int | None = None
    """The position of its first message in the transcript; None if it began in an earlier run that was not read."""
    since: datetime | None = None
    turns: int = 0
    is_over: bool = False
    """It has ended: with a reply without calls, or since it was cancelled."""
    is_replied: bool = False
    """Its last turn has its reply. If the conversation is closing, another turn is another answer's."""
    unfit: bool = False
    """Its last reply does not fit the output type: a correction follows, or the answer has ended without an output."""
    usage: Usage = field(default_factory=Usage)
    cost_usd: float | None = 0.0
    effects: dict[str, Effect] = field(default_factory=dict)
    started: dict[str, datetime] = field(default_factory=dict)
    finished: dict[str, datetime] = field(default_factory=dict)


class AnswerReader:
    """Give it every step of a run, from the first one on."""

    def __init__(self, under_way: _AnswerUnderWay | None = None) -> None:
        """`under_way`: the answer with which the run begins, if earlier runs were read."""
        self.start: Start | None = None
        self.previous_run_id = ""
        self.began_at: datetime | None = None
        """The run."""
        self.under_way = under_way or _AnswerUnderWay()
        self._by_history = StateByHistory()
        self._model = ""

    @property
    def transcript(self) -> Transcript:
        return self._by_history.transcript

    def take_step(self, step: steps.Step) -> steps.TurnCompleted | None:
        """Returns the step if it ends an answer; until the next one, the reader is as of that moment."""
        if self._begins_answer(step):
            self.under_way = _AnswerUnderWay(begin=self.transcript.base + len(self.transcript.messages))
        self._by_history.take_step(step)
        for sent in self._by_history.take_followed():  # it may pass over what came by signal
            if isinstance(sent, steps.CommandSent) and sent.name == names.CANCEL_TURN:
                self.under_way.is_over = True
        match step:
            case steps.RunStarted():
                self.start = step.start
                self.previous_run_id = step.previous_run_id
                self.began_at = step.at
                if step.start.carry is None or not step.start.carry.owed:
                    self.under_way.begin = self.transcript.base
            case steps.TurnScheduled(request=request) if not request.summarise:
                self.under_way.since = self.under_way.since or step.at
                self.under_way.is_replied = False
            case steps.TurnCompleted(request=request, reply=reply) if not request.summarise:
                self._take_reply(step)
                # One that was cancelled may still bring a reply.
                self.under_way.is_over = self.under_way.is_over or reply.ends_answer
                return step if reply.ends_answer else None
            case steps.ToolScheduled(request=call):
                self.under_way.started[call.call_id] = step.at
            case steps.ToolCompleted(request=call) | steps.ActivityEnded(request=call):
                self.under_way.started.setdefault(call.call_id, step.at)
                self.under_way.finished[call.call_id] = step.at
        return None

    def _begins_answer(self, step: steps.Step) -> bool:
        """Whether this turn is the first one after an answer that has ended, if only with a reply that does not fit, or
        since the conversation was closed as its calls ran or waited."""
        if not isinstance(step, steps.TurnScheduled) or step.request.summarise:
            return False
        answer = self.under_way
        if answer.is_over or (answer.is_replied and self._by_history.state.closing):
            return True
        return answer.unfit and not any(map(asks_for_correction, step.request.delta))

    def _take_reply(self, step: steps.TurnCompleted) -> None:
        reply = step.reply
        self.under_way.unfit = reply.output_problem is not None
        self.under_way.is_replied = True
        self._model = step.request.model or (reply.facts.model if reply.facts else self._model)
        self.under_way.turns += 1
        self.under_way.usage += reply.usage
        self.under_way.cost_usd = cost_with(self.under_way.cost_usd, reply.cost_usd)
        self.under_way.effects |= {plan.call_id: plan.effect for plan in reply.plan if isinstance(plan, RunPlan)}

    async def read_answer(
        self, client: Client, conversation_id: str, run_id: str, end: steps.TurnCompleted
    ) -> JudgedAnswer:
        """The answer that `end` has ended just now. Raises NotFound if earlier messages are gone, and RPCError."""
        messages = await read_transcript(client, conversation_id, self.transcript)
        begin = _begin_of_answer(messages) if self.under_way.begin is None else self.under_way.begin
        questions = filter(is_said_by_person, messages[_first_question(messages, begin) :])
        start = self.start
        return JudgedAnswer(
            conversation_id=conversation_id,
            run_id=run_id,
            turn=end.request.turn,
            agent=end.request.agent,
            model=self._model,
            input="\n".join(message.text for message in questions),
            text=end.reply.message.text,
            stop=end.reply.stopped,
            output=end.reply.output,
            messages=tuple(messages),
            calls=self._calls_in(messages[begin:]),
            turns=self.under_way.turns,
            usage=self.under_way.usage,
            cost_usd=self.under_way.cost_usd,
            started_at=self.under_way.since or end.at,
            finished_at=end.at,
            tenant=start.tenant if start else None,
            metadata=(start.metadata if start else None) or {},
            trace=_span_of(end),
        )

    def _calls_in(self, messages: Sequence[Message]) -> tuple[AnsweredCall, ...]:
        results = results_in(messages)
        return tuple(
            AnsweredCall(
                call=call,
                effect=self.under_way.effects.get(call.call_id),
                result=results.get(call.call_id),
                started_at=self.under_way.started.get(call.call_id),
                finished_at=self.under_way.finished.get(call.call_id),
            )
            for message in messages
            for call in message.tool_calls
        )


def _begin_of_answer(messages: Sequence[Message]) -> int:
    """The position of the first message of the last answer, by the messages alone: people may also write while its
    calls run or wait."""
    for place in reversed(range(1, len(messages))):
        message = messages[place - 1]
        is_reply = message.role == "assistant" and not (message.tool_calls or message.summary)
        if is_reply and is_said_by_person(messages[place]):
            return place
    return 0


def _first_question(messages: Sequence[Message], begin: int) -> int:
    """The position of the first message that is answered: of earlier ones, those that had no answer."""
    first = begin
    while first and is_said_by_person(messages[first - 1]):
        first -= 1
    return first


def _span_of(end: steps.TurnCompleted) -> TraceContext | None:
    trace = end.request.trace
    if trace is None or trace.answer is None or end.reply.traced != "sampled":
        return None
    return trace.answer_context(trace.answer.turn, sampled=True)


async def find_answers(client: Client, conversation_id: str, run_id: str, *, since: datetime) -> list[FoundAnswer]:
    """The answers that a run has given, and the runs before it that it continues, as far as they may have ended since
    then. Raises RPCError."""
    answers: list[FoundAnswer] = []
    while run_id:
        reader = AnswerReader()
        async for step in read_steps(client, conversation_id, run_id=run_id):
            end = reader.take_step(step)
            if end and end.at >= since:
                answers.append(_as_found(reader, run_id, end))
        if reader.began_at is None or reader.began_at < since:
            break
        run_id = reader.previous_run_id
    return answers


def _as_found(reader: AnswerReader, run_id: str, end: steps.TurnCompleted) -> FoundAnswer:
    start = reader.start
    return FoundAnswer(
        run_id=run_id,
        turn=end.request.turn,
        given_at=end.at,
        agent=end.request.agent,
        answers_call=start is not None and start.caller is not None,
        minimal=start is not None and start.visibility == "minimal",
    )


async def read_answer(client: Client, conversation_id: str, run_id: str, turn: int) -> JudgedAnswer:
    """The answer that ended with this turn. Raises NotFound if the run has none, and RPCError."""
    reader = AnswerReader()
    async for step in read_steps(client, conversation_id, run_id=run_id):
        if (end := reader.take_step(step)) and end.request.turn == turn:
            return await reader.read_answer(client, conversation_id, run_id, end)
        if isinstance(step, steps.RunStarted) and _begins_amid_answer(step):
            reader.under_way = await _read_earlier_runs(client, conversation_id, step.previous_run_id)
    raise NotFound(f"Run {run_id} of conversation {conversation_id!r} has no answer of turn {turn}.")


async def _read_earlier_runs(client: Client, conversation_id: str, last_run_id: str) -> _AnswerUnderWay:
    """The answer that is under way as this run ends, with what the runs before it did for it."""
    answer = _AnswerUnderWay()
    for run_id in await _runs_of_answer(client, conversation_id, last_run_id):
        reader = AnswerReader(answer)
        async for step in read_steps(client, conversation_id, run_id=run_id):
            reader.take_step(step)
        answer = reader.under_way
    return answer


async def _runs_of_answer(client: Client, conversation_id: str, last_run_id: str) -> list[str]:
    """The run in which the answer began that was under way as this one ended, and those up to it; without those that
    are gone, and all before them."""
    runs: list[str] = []
    run_id = last_run_id
    while run_id:
        try:
            started = await first_step(client, conversation_id, run_id)
        except RPCError as error:
            if not_found(error):
                break
            raise
        runs.insert(0, run_id)
        run_id = started.previous_run_id if started and _begins_amid_answer(started) else ""
    return runs


def _begins_amid_answer(started: steps.RunStarted) -> bool:
    """Whether the run goes on with an answer of the run before."""
    return started.start.carry is not None and started.start.carry.owed and bool(started.previous_run_id)
