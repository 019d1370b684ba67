"""What has to be true of what one run hands to the next. It is worked out here from what happened: the workflow and the
readers of its history both begin with what was handed on, so they agree even if it is wrong."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from everturn import names
from everturn.calls.decision_records import policy_after
from everturn.carryover import CarryOver, StoredInRun, WorkerFacts
from everturn.corrections import MAX_CORRECTIONS
from everturn.history import steps
from everturn.policy import Policy
from everturn.records import Message, Outcome, Usage
from everturn.temporal.ids import known_id
from tests.simulation.agents.cast import HANDING
from tests.simulation.rules.conversations import AGENTS_BY_NAME, Evidence
from tests.support.bounds import CONSTANTS

LOCAL_SECONDS = 60.0
"""By how much a workflow's clock may be ahead of its history: local tools take time."""

CENT = 1e-9

LONG_CHARS = 500
"""What the model said last is cut if it is long."""


@dataclass
class _Account:
    """Of one life. What may have been passed over, or is not known, is None or left out."""

    paused: bool | None = False
    policy: Policy | None = ()
    tool_calls: int = 0
    usage: Usage | None = None
    cost_usd: float | None = 0.0
    message_ids: set[str] = field(default_factory=set)
    perhaps: set[str] = field(default_factory=set)
    """The ids of messages by signal: one that is refused has none."""
    begun: float | None = None
    facts: WorkerFacts | None = None
    summary_due: bool = False
    last_text: str | None = ""
    digest: str | None = None
    called_in: int = 0
    """The turn of the last reply that called tools."""
    shown_from: dict[str, int] = field(default_factory=dict)
    """How far back each agent that was in charge was shown the transcript, the last time."""
    resumes_early: bool = False
    """A `resume` came by signal while nothing was held up: it may be for what stalls later."""
    closed: bool = False

    def begin(self, step: steps.RunStarted) -> None:
        start, carry = step.start, step.start.carry or CarryOver()
        self.closed = self.resumes_early = False
        if step.previous_run_id:
            self.begun = self.begun if self.begun is not None else carry.started_at
            self.paused = carry.paused if self.paused is None else self.paused
            self.policy = carry.policy if self.policy is None else self.policy
            return
        self.paused, self.policy = carry.paused, carry.policy if start.carry else start.policy
        self.tool_calls, self.usage, self.cost_usd = carry.tool_calls, carry.usage, carry.cost_usd
        self.facts, self.summary_due = carry.facts, carry.summary_due
        self.last_text, self.called_in = None if start.carry else "", carry.called_in or carry.turn
        self.shown_from = {names.unversioned(agent): view.keep_from for agent, view in carry.views.items()}
        self.begun = step.at.timestamp() if carry.started_at is None else carry.started_at
        self.message_ids = {known_id(one) for one in (*carry.message_ids, start.message_id) if one}

    def take(self, step: steps.Step) -> None:
        match step:
            case steps.TurnCompleted(request=request, reply=reply):
                self._spend(reply.usage, reply.cost_usd)
                self.facts = reply.facts or self.facts
                self.digest = reply.digest if reply.message.parts else self.digest
                if request.summarise:
                    self.summary_due = False
                elif not reply.message.cut_short:
                    self.tool_calls += len(reply.message.tool_calls)
                    self.summary_due, self.last_text = reply.summary_due, reply.message.text
                    self.called_in = request.turn if reply.message.tool_calls else self.called_in
            case steps.TurnScheduled(request=request) if not request.summarise:
                self.shown_from[names.unversioned(request.agent)] = request.view.keep_from if request.view else 0
            case steps.PrefixExtended(digest=digest):
                self.digest = digest
            case steps.ToolCompleted(outcome=Outcome() as outcome):
                self._spend(outcome.usage, outcome.cost_usd)
            case steps.TurnCancelled():
                self.usage = None
            case steps.TurnFailed() | steps.ToolRunFailed():
                self.paused = None if self.paused and self.resumes_early else self.paused
            case steps.MessageSent(said=said, accepted=True) if said.message_id:
                self.message_ids.add(known_id(said.message_id))
            case steps.MessageSent(said=said) if said.message_id:
                self.perhaps.add(known_id(said.message_id))
            case steps.CommandSent():
                self._follow(step)
            case _:
                pass

    def _follow(self, sent: steps.CommandSent) -> None:
        match sent.name:
            case names.PAUSE:
                self.paused = True
            case names.RESUME:
                self.resumes_early |= not sent.accepted
                stays = sent.payload.get("only_stalled")
                if self.paused is not False and not stays:
                    self.paused = False if sent.accepted else None
            case names.CANCEL_TURN:
                self.usage = None
                self.paused = self.paused and (False if sent.accepted else None)
            case names.CLOSE:
                self.paused, self.closed = False, True
            case names.SET_POLICY:
                self.policy = policy_after(sent.payload, self.policy or ())
            case _ if sent.payload.get("always"):
                self.policy = None
            case _:
                pass

    def _spend(self, usage: Usage, cost_usd: float | None) -> None:
        self.usage = self.usage and self.usage + usage
        self.cost_usd = None if self.cost_usd is None or cost_usd is None else self.cost_usd + cost_usd

    def differences(self, carry: CarryOver, transcript: Sequence[Message], *, hands_over: bool) -> Iterator[str]:
        """Between what happened and what the next run is told of it. `transcript`: as far as it went by then."""
        if self.paused is not None and carry.paused != self.paused:
            yield f"paused is {carry.paused}, not {self.paused}"
        if self.policy is not None and carry.policy != self.policy:
            yield f"its policy is {carry.policy}, not {self.policy}"
        if carry.tool_calls != self.tool_calls:
            yield f"there were {carry.tool_calls} calls, not {self.tool_calls}"
        if self.digest and not carry.digest:  # digests_are_right looks whether it is the right one
            yield f"its prefix has no digest, and the last reply said {self.digest!r}"
        if self.usage is not None:
            if carry.usage != self.usage:
                yield f"it used {carry.usage}, not {self.usage}"
            unknown = carry.cost_usd is None or self.cost_usd is None
            if carry.cost_usd != self.cost_usd if unknown else abs(carry.cost_usd - self.cost_usd) > CENT:  # type: ignore[operator]
                yield f"it cost {carry.cost_usd}, not {self.cost_usd}"
        lost = self.message_ids - {known_id(message_id) for message_id in carry.message_ids}
        if lost and len(self.message_ids | self.perhaps) <= getattr(*CONSTANTS["remembered_ids"]):
            yield f"the messages {sorted(lost)} are not among those that were taken"
        if self.begun is not None and not self.closed:
            late = None if carry.started_at is None else carry.started_at - self.begun
            if late is None or abs(late) > LOCAL_SECONDS:
                yield f"it began at {carry.started_at}, not at {self.begun}"
        if self.facts and (carry.facts is None or (not hands_over and carry.facts != self.facts)):
            yield f"its worker's facts are {carry.facts}, not {self.facts}"
        if not hands_over and carry.summary_due != self.summary_due:
            yield f"that a summary is due is {carry.summary_due}, not {self.summary_due}"
        if self.last_text is not None and carry.last_text != self.last_text and len(self.last_text) < LONG_CHARS:
            yield f"the model said last {carry.last_text[:100]!r}, not {self.last_text!r}"
        if any(message.tool_results for message in carry.unseen) and carry.called_in != self.called_in:
            yield f"the results at hand are of turn {carry.called_in}, not of turn {self.called_in}"
        yield from self._of_an_answer(carry, transcript)
        known = {names.unversioned(agent): view.keep_from for agent, view in carry.views.items()}
        for agent, shown_from in self.shown_from.items() if hands_over else ():
            if agent != names.unversioned(carry.agent) and carry.agent and known.get(agent) != shown_from:
                yield f"{agent} was shown the transcript from {known.get(agent)} on, not from {shown_from}"

    def _of_an_answer(self, carry: CarryOver, transcript: Sequence[Message]) -> Iterator[str]:
        """What is counted from the message on that is being answered."""
        if not carry.owed or carry.inbox:
            return
        repairs = handoffs = 0
        for message in transcript:
            if message.role == "user" and not message.author:
                repairs = handoffs = 0
            repairs += _is_repair(message)
            handoffs += sum(result.successor is not None for result in message.tool_results)
        if carry.repairs < repairs:
            yield f"the model was asked for {carry.repairs} corrections, not for {repairs}"
        if carry.handoffs < handoffs:
            yield f"it was handed over {carry.handoffs} times, not {handoffs} times"


def what_is_handed_on_is_so(one: Evidence) -> Iterator[str]:
    account = _Account()
    for run, taken in one.runs:
        for step in taken:
            if not isinstance(step, steps.RunStarted):
                account.take(step)
                continue
            if step.previous_run_id and step.start.carry:
                carry = step.start.carry
                by_then = one.transcript[: carry.length + len(carry.unseen)]
                found = account.differences(carry, by_then, hands_over=one.agent in HANDING)
                yield from (f"run {run.id} is told by the run before that {what}" for what in found)
            account = account if step.previous_run_id else _Account()
            if account.closed:  # what was said while it closed takes it up again
                account.begun = None
            account.begin(step)


def another_life_has_all_of_its_time(one: Evidence) -> Iterator[str]:
    """A fork, or a conversation that was revived: its limit of time begins with it."""
    for run, taken in one.runs:
        for step in taken:
            carry = step.start.carry if isinstance(step, steps.RunStarted) else None
            if carry and carry.origin and carry.started_at is not None:
                yield f"run {run.id} begins another life, and has the time of the one before"


def what_has_to_be_brought_along_is_so_in_time(one: Evidence) -> Iterator[str]:
    """When the messages of earlier runs have to be brought along, is not put off from run to run."""
    keep_by: float | None = None
    for run, taken in one.runs:
        for step in taken:
            match step:
                case steps.RunStarted(start=start, previous_run_id=before):
                    now = start.carry.keep_by if start.carry else None
                    elsewhere = start.carry is not None and isinstance(start.carry.earlier, StoredInRun)
                    if before and elsewhere and keep_by is not None and (now is None or now > keep_by):
                        yield f"run {run.id} is to bring earlier messages along by {now}; it was by {keep_by} before"
                    keep_by = now
                case steps.TranscriptKept():
                    keep_by = None
                case _:
                    pass


def what_is_paused_asks_no_model(one: Evidence) -> Iterator[str]:
    """Through all runs: no turn begins until somebody has resumed it."""
    account, settled, awaits = _Account(), False, 0
    for run, taken in one.runs:
        for step in taken:
            match step:
                case steps.RunStarted(previous_run_id=before):
                    account, awaits = account if before else _Account(), 0
                    account.begin(step)
                    continue
                case steps.WorkflowTaskCompleted():
                    settled = account.paused is True
                case steps.TurnScheduled(request=request):
                    if settled and account.paused and request.turn != awaits:
                        yield f"turn {request.turn} of run {run.id} begins, and it is paused"
                        return
                case steps.TurnFailed(request=request, awaited=True):
                    awaits = request.turn
                case _:
                    pass
            account.take(step)
            settled = settled and account.paused is True


def a_summary_that_is_due_comes_next(one: Evidence) -> Iterator[str]:
    if one.agent in HANDING or not AGENTS_BY_NAME[one.agent].compaction:
        return
    account = _Account()
    for run, taken in one.runs:
        for step in taken:
            if isinstance(step, steps.RunStarted):
                account = account if step.previous_run_id else _Account()
                account.begin(step)
            if isinstance(step, steps.TurnScheduled) and account.summary_due and not step.request.summarise:
                yield f"turn {step.request.turn} of run {run.id} is asked, and a summary is due"
                return
            account.take(step)


def repairs_are_limited(one: Evidence) -> Iterator[str]:
    """Between two messages of a user, in whichever runs."""
    times = 0
    for message in one.transcript:
        times = times + _is_repair(message) if message.role != "user" or message.author else 0
        if times > MAX_CORRECTIONS:
            yield f"a model was told {times} times in a row that its reply does not fit"
            return


def replies_are_mended(one: Evidence) -> Iterator[str]:
    """A reply that does not fit is followed by a correction, as often as one may come in an answer; unless somebody
    ends the answer meanwhile."""
    repairs, unfit, final, cut, closing, turn = 0, False, False, False, False, 0
    for run, taken in one.runs if not any(run.base for run, _ in one.runs) else ():
        for step in taken:
            match step:
                case steps.TurnScheduled(request=request) if not request.summarise:
                    corrected = any(_is_repair(message) for message in request.delta)
                    if unfit and not corrected:
                        yield f"turn {request.turn} of run {run.id}: the reply before was to be corrected"
                        return
                    if request.turn != turn:  # a turn may be asked again
                        repairs = repairs + 1 if corrected else 0 if final else repairs
                    unfit, cut, turn = False, False, request.turn
                case steps.TurnCompleted(request=request, reply=reply) if not request.summarise:
                    may_be = repairs < MAX_CORRECTIONS and not (request.conclude or cut or closing)
                    unfit, final = bool(reply.output_problem) and may_be, reply.final
                case steps.CommandSent(name=names.CANCEL_TURN, accepted=accepted):  # a signal may be passed over
                    repairs, unfit, cut = 0 if accepted else repairs, False, True
                case steps.CancelRequested():
                    repairs, unfit, cut = 0, False, True
                case steps.CommandSent(name=names.CLOSE):
                    repairs, unfit, closing = 0, False, True
                case steps.RunStarted(start=start, previous_run_id=previous):
                    closing = False
                    if start.carry and not previous:
                        repairs = start.carry.repairs  # a fork goes on with an answer that has had some
                case steps.TurnCancelled() | steps.RunClosed(next_run_id=""):
                    repairs, unfit = 0, False
                case _:
                    pass


def _is_repair(message: Message) -> bool:
    return message.author == "everturn" and message.text.startswith("Your reply does not fit")


def handoffs_are_limited(one: Evidence) -> Iterator[str]:
    """The same of agents that hand a conversation to each other."""
    most, times = one.limits.max_handoffs, 0
    for message in one.transcript if most is not None else ():
        if message.role == "user" and not message.author:
            times = 0
        times += sum(result.successor is not None for result in message.tool_results)
        if most is not None and times > most:
            yield f"it was handed over {times} times after a message, and {most} are the most"
            return


CARRIED_RULES = (
    what_is_handed_on_is_so,
    what_has_to_be_brought_along_is_so_in_time,
    another_life_has_all_of_its_time,
    what_is_paused_asks_no_model,
    a_summary_that_is_due_comes_next,
    repairs_are_limited,
    replies_are_mended,
    handoffs_are_limited,
)
