"""Where a conversation is forked: what had been said and counted behind one of its turns, from its history alone."""

from __future__ import annotations

from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from everturn.bounds import size_of
from everturn.carryover import CarryOver, InRun, Packed
from everturn.errors import NotFound, Refused
from everturn.history import first_step, read_steps
from everturn.packing import pack
from everturn.payloads import ModelReply, Start
from everturn.records import Message, Outcome, Usage, results_in
from everturn.steps import Started, Step, ToolFinished, TurnFinished
from everturn.transcript import Transcript, read_transcript

MAX_PACKED_CHARS = 1_000_000
"""Temporal takes payloads of 2 MB, and what no model has seen comes beside it."""

MAX_UNSEEN_BYTES = 400_000
"""Of the results behind the prefix. Larger ones become part of it, and cost the next model turn a look into history."""

MAX_LAST_TEXT_CHARS = 20_000

IDLE_SECONDS = 7 * 24 * 3600.0
"""How long a fork waits for its first message, where the conversation itself would not have waited for another."""


async def start_of_fork(client: Client, conversation_id: str, run_id: str, *, turn: int) -> Start:
    """The input of a conversation that goes on behind that turn. Raises Refused where nothing can go on from there,
    and NotFound where its history is gone. `run_id` is of the latest run."""
    if not isinstance(turn, int) or turn < 1:
        raise Refused(f"Conversation {conversation_id!r} has no turn {turn!r}.", cure="Turns count from 1.")
    origin = await _run_of(client, InRun(run_id=run_id, conversation_id=conversation_id), turn)
    here, point = origin.run_id, _Point(turn)
    while here:
        origin, here = origin.model_copy(update={"run_id": here}), ""
        async for step in read_steps(client, origin.conversation_id, run_id=origin.run_id):
            point.take(step)
            if point.reached:
                return await _start(client, origin, point)
            here = getattr(step, "next_run_id", "")
    raise Refused(f"Conversation {conversation_id!r} can't be forked at turn {turn}: {point.missing}.", cure=point.cure)


class _Point:
    """A fold over steps, up to the end of one turn: its reply and, where that has calls, their results."""

    def __init__(self, turn: int) -> None:
        self.transcript = Transcript()
        self.start = Start.model_construct(agent="")
        self.carry = CarryOver()
        self.reply: ModelReply | None = None
        self._turn = turn
        self._summary = False
        """The turn was no turn of the conversation: the model wrote a summary."""
        self._last = 0
        """The last turn that has a reply."""

    def take(self, step: Step) -> None:
        self.transcript.take(step)
        match step:
            case Started(start=start) if self.reply is None:
                self.start, self.carry = start, start.carry or CarryOver()
                self._last = self.carry.turn
            case ToolFinished(outcome=Outcome() as outcome) if not self.reached:
                self._spend(outcome.usage, outcome.cost_usd)
            case TurnFinished(request=request, reply=reply):
                self._count(step)
                self._last = request.turn
                if request.turn == self._turn:
                    self.reply, self._summary = (None, True) if request.summarise else (reply, False)

    def _count(self, step: TurnFinished) -> None:
        """As the conversation itself does it, in `progress.py`."""
        request, reply, carry = step.request, step.reply, self.carry
        self.carry = carry.model_copy(
            update={
                "turn": request.turn,
                "length": request.position + len(request.delta) + bool(reply.message.parts or not request.summarise),
                "digest": reply.digest,
                "view": reply.view or request.view,
                "summary_due": reply.summary_due,
                "tool_calls": carry.tool_calls + len(reply.message.tool_calls),
                "last_text": carry.last_text if request.summarise else reply.message.text[:MAX_LAST_TEXT_CHARS],
                "facts": reply.facts or carry.facts,
                "model": request.model or "",
            }
        )
        self._spend(reply.usage, reply.cost_usd)

    def _spend(self, usage: Usage, cost_usd: float | None) -> None:
        carry = self.carry
        known = carry.cost_usd is not None and cost_usd is not None
        cost = (carry.cost_usd or 0.0) + (cost_usd or 0.0) if known else None
        self.carry = carry.model_copy(update={"usage": carry.usage + usage, "cost_usd": cost})

    @property
    def reached(self) -> bool:
        return self.reply is not None and (not self.reply.plan or self.results() is not None)

    def results(self) -> tuple[int, Message] | None:
        """The message with the results of the reply's calls, and its position. It is written down with the next turn
        or with the end; None until then. A summary may stand between the reply and this."""
        base = self.transcript.base
        for index in range(max(0, self.carry.length - base), len(self.transcript.messages)):
            if (message := self.transcript.messages[index]).role == "tool":
                return base + index, message
        return None

    @property
    def missing(self) -> str:
        if self.reply:
            calls = ", ".join(repr(call.call_id) for call in self.reply.message.tool_calls)
            return f"not all of its calls have results yet ({calls})"
        if self._summary:
            return "in that turn the model only wrote a summary"
        if self._turn <= self._last:
            return "that turn was cut short before the model replied"
        return f"its last reply is that of turn {self._last}" if self._last else "the model has not replied yet"

    @property
    def cure(self) -> str:
        if self.reply:
            return f"Wait for turn {self._turn + 1}, or fork at turn {self._turn - 1}."
        return f"Fork at one from 1 to {self._last}." if self._last else "Wait for the first reply."


async def _run_of(client: Client, latest: InRun, turn: int) -> InRun:
    """The run in which the turn began: back from run to run, and to what was revived or forked."""
    run = latest
    while True:
        started = await _first_step(client, run)
        carry = started.start.carry if started else None
        if started is None or carry is None or carry.turn < turn:
            return run
        before = InRun(run_id=started.previous_run_id) if started.previous_run_id else carry.origin
        if before is None:
            raise NotFound(f"Turn {turn} of conversation {latest.conversation_id!r} was in none of its runs.")
        run = InRun(run_id=before.run_id, conversation_id=before.conversation_id or run.conversation_id)


async def _first_step(client: Client, run: InRun) -> Started | None:
    try:
        return await first_step(client, run.conversation_id, run.run_id)
    except RPCError as error:
        if error.status is not RPCStatusCode.NOT_FOUND:
            raise
        raise NotFound(
            f"The history of conversation {run.conversation_id!r} is gone from run {run.run_id} back: it has outlived "
            "the namespace's retention.",
            cure="Fork at a later turn.",
        ) from None


async def _start(client: Client, origin: InRun, point: _Point) -> Start:
    assert point.reply is not None
    carry, results = point.carry, point.results() if point.reply.plan else None
    unseen: tuple[Message, ...] = ()
    if results and size_of(results[1]) <= MAX_UNSEEN_BYTES:
        # The prefix ends where a digest is known, so that the workers that know it need not read it.
        carry, unseen = carry.model_copy(update={"length": results[0]}), (results[1],)
    elif results:
        carry = carry.model_copy(update={"length": results[0] + 1, "digest": ""})
    transcript = await read_transcript(client, origin.conversation_id, point.transcript)
    packed = pack(transcript[: carry.length])
    fits = len(packed) <= MAX_PACKED_CHARS
    handed = carry.model_copy(
        update={
            "earlier": Packed(data=packed) if fits else origin,
            # What stands in another conversation's history is brought into the fork's own at once.
            "keep_by": None if fits else 0.0,
            "origin": origin,
            "unseen": unseen,
            "told": tuple(results_in(unseen)),
            "owed": not point.reply.final,
            "inbox": (),
            "message_ids": (),
            "chain_id": "",
            "started_at": None,
            "paused": False,
            "repairs": 0,
        }
    )
    idle = IDLE_SECONDS if point.reply.final and point.start.keep_open is None else point.start.keep_open
    return point.start.model_copy(
        update={"message": (), "message_id": None, "provider": "", "keep_open": idle, "carry": handed}
    )
