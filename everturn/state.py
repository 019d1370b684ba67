"""The state of a conversation, as one value.

The workflow holds it and moves it on while things happen; state_by_history.py moves one on by the steps of a history.
Both do it by the same methods, so that what a message, a reply or a decision changes is said once. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from pydantic import JsonValue

from everturn.agent_in_charge import InCharge
from everturn.calls.causes import Stall
from everturn.calls.pending_calls import PendingCall
from everturn.carryover import CarryOver, Earlier, OpenReply, StoredInRun, TakenIds, WorkerFacts
from everturn.corrections import correction_request
from everturn.heartbeats.details import SeenReply, longer_reply
from everturn.limits import Limits
from everturn.payloads import Control, MessageIn, ModelReply, Start, StateName
from everturn.policy import Policy
from everturn.prompts import KnownPrompts
from everturn.records import Message, ToolResult, Usage, cost_with, is_said_by_person, results_in
from everturn.size_estimates import how_many_fit
from everturn.sizes import MAX_INBOX_BYTES, MAX_LAST_TEXT_BYTES, MAX_NAME_CHARS
from everturn.text.shortening import shortened
from everturn.truncation import shortened_reason

Observer = Callable[[Sequence[Message]], None]


class TranscriptPrefix:
    """All that the model has seen or said. `observer` is told of the messages that become a part of it."""

    def __init__(self, carry: CarryOver, observer: Observer | None) -> None:
        self.base = carry.length
        """The number of messages before this run."""
        self.earlier: Earlier | None = carry.earlier
        """Where the messages before this run are."""
        self.keep_by = carry.keep_by
        """When they have to be copied into this run, because Temporal deletes the histories of earlier runs."""
        self.position = carry.length
        """Its length, counted through all runs."""
        self.digest = carry.digest
        self._observer = observer

    def extend(self, messages: Sequence[Message], *, digest: str) -> None:
        self.position += len(messages)
        self.digest = digest
        if self._observer:
            self._observer(messages)

    def take_earlier(self, earlier: Earlier) -> None:
        """The messages of earlier runs were copied into this one."""
        self.earlier = earlier
        self.keep_by = None


class UnseenMessages:
    """What comes after the prefix (results and taken messages), with which the model is asked next."""

    def __init__(self, carry: CarryOver) -> None:
        self.messages: list[Message] = list(carry.unseen)
        self.recorded: frozenset[str] = frozenset()
        """Calls whose results are in the events of their tools' activities."""
        self._in_events: frozenset[str] = frozenset()
        """Calls whose results are in events of this run, of whatever kind."""
        self._handed = frozenset(results_in(carry.unseen))
        """Calls whose results are in the carry-over."""

    @property
    def in_events(self) -> tuple[str, ...]:
        """The calls whose results are in events, of this run or an earlier one."""
        return tuple(call_id for call_id in results_in(self.messages) if call_id in self._in_events | self._handed)

    def add_results(
        self, results: tuple[ToolResult, ...], recorded: Iterable[str], from_outputs: Iterable[str]
    ) -> None:
        self.messages.append(Message(role="tool", parts=results))
        self.recorded = frozenset(recorded)
        self._in_events = frozenset((*recorded, *from_outputs))

    def note_in_events(self) -> None:
        """A turn brings them to the model: they are in its events, too."""
        self._in_events |= frozenset(results_in(self.messages))

    def clear(self) -> None:
        """The model has seen them."""
        self.messages = []
        self.recorded = frozenset()
        self._in_events = frozenset()
        self._handed = frozenset()


class MessageInbox:
    """Messages that no turn has taken yet."""

    def __init__(self, carry: CarryOver) -> None:
        self.messages: list[Message] = list(carry.inbox)
        self.late: list[Message] = []
        """Messages that came after the conversation was closed: they are for the run that continues it."""
        self.unanswered = carry.unanswered
        """How many of them the answer at hand is to: those with which it began, until its first turn takes them."""
        self.taken_ids = TakenIds(carry.message_ids)

    @property
    def everything(self) -> list[Message]:
        return [*self.messages, *self.late]

    def add(self, message: Message, *, late: bool) -> None:
        if late:
            self.late.append(message)
        else:
            self.messages.append(message)

    def take_unanswered(self) -> list[Message]:
        """Takes out those that the first turn of the answer would have taken; none if there was that turn."""
        count = min(self.unanswered, max(1, how_many_fit(self.messages, MAX_INBOX_BYTES)))
        messages = self.messages[:count]
        self.messages = self.messages[count:]
        return messages

    def take_in_late(self) -> None:
        self.messages = self.everything
        self.late = []


class LastReply:
    """The model's last reply that was whole."""

    def __init__(self, carry: CarryOver) -> None:
        self.text = carry.last_text
        self.stop = carry.last_stop
        self.output: JsonValue = None
        """The text as the agent's output type, if it has one."""
        self.output_problem: str | None = None
        self.corrections = carry.repairs
        """The number of final replies in a row that did not fit the output type."""
        self.final = carry.begins_at_rest and not carry.owed
        """It has no calls."""
        self.in_answer = carry.open is not None or bool(results_in(carry.unseen))
        """It belongs to the answer that is given now or was given last."""
        self.cut_text = ""
        """What was said of a later reply, of the same answer, that was cut short."""

    def begin_answer(self) -> None:
        self.final = self.in_answer = False
        self.cut_text = ""

    def replace(self, reply: ModelReply) -> None:
        self.final = reply.final
        self.in_answer = True
        self.text = reply.message.text
        # Calls say themselves that the model went on; what was cut off before them is told to the model.
        self.stop = "end" if reply.stop == "tool_calls" else reply.stop
        self.output = reply.output
        self.output_problem = reply.output_problem


class ModelChoice:
    """The model that a person chose instead of the agent's, or a fallback; empty if neither."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.first = name
        """The first model of the current turn. After a stall, `resume` starts the fallbacks again from it."""


class Totals:
    """What the conversation has used, of which its limits and budgets say how much it may."""

    def __init__(self, carry: CarryOver, *, run_began: float) -> None:
        self.tool_calls = carry.tool_calls
        self.usage = carry.usage
        self.cost_usd = carry.cost_usd
        self.budget = carry.budget
        """What the last turn hands on about its tenant's budget."""
        self.started_at = run_began if carry.started_at is None else carry.started_at
        """When the conversation began, in seconds since 1970."""

    def add_usage(self, usage: Usage, cost_usd: float | None) -> None:
        self.usage += usage
        self.cost_usd = cost_with(self.cost_usd, cost_usd)

    def give_back_budget(self) -> None:
        self.budget = self.budget and self.budget.given_back()


class State:
    """What one value of its own can say is in `prefix`, `unseen`, `inbox`, `totals`, `last_reply`, `model` and
    `in_charge`; what more than one of them has a part in is a method here.

    `run_began`: when the run did, in seconds since 1970. `on_prefix` is told of messages that become a part of the
    prefix."""

    def __init__(self, start: Start, *, run_began: float, on_prefix: Observer | None = None) -> None:
        carry = start.carry or CarryOver()
        # The carry-over may be large, and the state lives as long as the run.
        self.start = start.model_copy(update={"carry": None, "policy": (), "inherited": ()})
        self._began = start.carry.began if start.carry else None
        self.limits = start.limits or Limits()
        self.prompts = KnownPrompts()
        self.in_charge = InCharge(start.agent, start.model, carry)

        self.prefix = TranscriptPrefix(carry, on_prefix)
        self.view = carry.view
        """How compaction shows the transcript to the model."""
        self.summary_due = carry.summary_due

        self.unseen = UnseenMessages(carry)
        self.inbox = MessageInbox(carry)

        self.turn = carry.turn
        """The number of the last turn that was begun."""
        self._called_in = carry.called_in or carry.turn  # the last one whose reply is no summary
        self.reply_awaited = False
        """The last turn has no reply yet."""
        self.totals = Totals(carry, run_began=run_began)
        self.last_reply = LastReply(carry)
        self.model = ModelChoice(carry.model or self.in_charge.model)
        self.facts: WorkerFacts | None = None
        """The facts about the agent that a worker sent last, with its limits."""

        self.tools = carry.tools if carry.owed else None
        """The only tools that the model is offered until its final reply, by name; None: all."""
        self.answering = carry.owed
        """True from a message until its final reply. A run may begin in the middle of an answer."""
        open_reply = carry.open or OpenReply()
        self.limit = open_reply.limit
        """The limit for which the current turn concludes, in words; None while there is room for another turn."""
        self.pending = {
            question.call_id: PendingCall.from_question(*open_reply.planned[question.call_id], question)
            for question in open_reply.waits
        }
        """What people are asked about calls, by call_id."""
        self.stall: Stall | None = None
        self.paused = carry.paused
        self.policy: Policy = carry.policy
        """Its own rules that decide on calls."""
        self.inherited: Policy = carry.inherited
        """Those of the conversation that asked for this one."""
        if start.carry is None:
            self.policy = start.policy
            self.inherited = start.inherited
        self.cancelled = ""
        """Why the last answer was cut short, in words; empty if it was not."""
        self._seen: SeenReply | None = None
        """The part of the cut reply that people saw."""
        self.closing = self.abandoned = self.ended = False
        """Abandoned: it was closed while it was stalled or paused, and messages without an answer stay without one."""

        if carry.facts:
            self.take_facts(carry.facts)
        if start.message:
            self.receive_message(start.as_message(), start.message_id)

    @property
    def drawers(self) -> tuple[object, ...]:
        """The values that it is made of and that change in place."""
        return (self.prefix, self.unseen, self.inbox, self.totals, self.last_reply, self.model)

    # ------------------------------------------------------------ messages

    @property
    def message_ids(self) -> tuple[str, ...]:
        """The ids of accepted messages, as many as are remembered."""
        return tuple(self.inbox.taken_ids)

    def has_taken(self, message_ids: Iterable[str]) -> bool:
        """Whether all messages with these ids were accepted, as far as is remembered."""
        return self.inbox.taken_ids.have_all(message_ids)

    def message_problem(self, message: MessageIn, size: int) -> str | None:
        """Why a message of `size` bytes of JSON can't be accepted; None if it can."""
        return message.problem(size, after=self.inbox.everything if self.closing else None)

    def receive_message(self, message: Message, message_id: str | None = None) -> bool:
        """Puts a message into the inbox; False if one with this id came before. While the conversation closes, the
        message is for the run that continues it."""
        if not self.inbox.taken_ids.take_id(message_id, message):
            return False
        self.inbox.add(message, late=self.closing)
        return True

    # ------------------------------------------------------------ turns

    def begin_answer(self) -> None:
        if self.answering:  # the earlier run began this answer
            self.last_reply.final = False
        else:
            self.in_charge.handoffs = 0
            self.inbox.unanswered = len(self.inbox.messages)
            self.last_reply.begin_answer()
        self.answering = True
        self.cancelled = ""

    def end_answer(self) -> None:
        self.tools = None
        if self.reply_awaited and (seen := self._seen):
            self.unseen.messages.append(seen.as_message(self.in_charge.author))
            self.last_reply.cut_text = seen.text
            self.totals.add_usage(seen.usage, seen.cost_usd)
        if self.cancelled:  # before its first turn: the answer that was cancelled is the one to these
            self.unseen.messages += self.inbox.take_unanswered()
        self.inbox.unanswered = 0
        self._seen = None
        self.answering = False
        self.reply_awaited = False
        self.last_reply.corrections = 0
        self.pending.clear()

    def begin_turn(self, *, limit: str | None = None, messages: int = 0, summarise: bool = False) -> None:
        """The model is asked with all unseen messages and this many of the inbox, to conclude if a `limit` is used up;
        or with none of them, to `summarise`. A turn without a reply is asked again with the same messages."""
        self.limit = limit
        if not self.reply_awaited:
            for message in self.inbox.messages[:messages]:
                if message.tools is not None:
                    self.tools = message.tools
            self.unseen.messages += self.inbox.messages[:messages]
            self.inbox.messages = self.inbox.messages[messages:]
            if not summarise:
                self.inbox.unanswered = 0
            self.turn += 1
            self.reply_awaited = True
            self.model.first = self.model.name

    def take_reply(self, reply: ModelReply) -> None:
        """A cancelled turn brings the text so far, or only what the provider has counted: neither ends its answer."""
        self._count_reply(reply)
        if reply.message.cut_short:
            self._seen = self._seen and self._seen.model_copy(update={"usage": Usage(), "cost_usd": 0.0})
            if not reply.message.parts:
                return
        self.prefix.extend([*self.unseen.messages, reply.message], digest=reply.digest)
        self.unseen.clear()
        self.reply_awaited = False
        if reply.message.cut_short:
            self.last_reply.cut_text = reply.message.text
            return
        self._called_in = self.turn
        self.last_reply.replace(reply)
        self.summary_due = reply.summary_due
        self.totals.tool_calls += len(reply.message.tool_calls)

    def take_seen(self, seen: SeenReply | None) -> None:
        """What a cancelled turn had said, by whoever cancelled it or by its last heartbeat."""
        if seen and seen.turn == self.turn:
            self._seen = longer_reply(self._seen, seen)

    def take_summary(self, reply: ModelReply) -> None:
        """It comes after what the model has seen, and before what it has not."""
        self.summary_due = False
        self.reply_awaited = False
        self.totals.budget = reply.budget
        if reply.message.parts:
            self.prefix.extend([reply.message], digest=reply.digest)
            self._count_reply(reply)

    def take_results(
        self, results: tuple[ToolResult, ...], *, recorded: Iterable[str] = (), from_outputs: Iterable[str] = ()
    ) -> None:
        """The results of all calls of a reply. `recorded`: calls whose results are in events of this run.
        `from_outputs`: calls of users' own activities, whose events hold the output that the results are made from."""
        self.unseen.add_results(results, recorded, from_outputs)
        self.follow_handoffs(results)

    def follow_handoffs(self, results: Iterable[ToolResult]) -> None:
        """Puts the agent in charge that the results name, with its own model and its own view of the transcript."""
        for successor in filter(None, (result.successor for result in results)):
            self.view = self.in_charge.hand_over(successor, self.view)
            self.model.name = self.in_charge.model
            self.summary_due = False

    def take_in_unseen(self, digest: str) -> None:
        """The unseen messages are a part of the prefix now, which has this digest."""
        self.prefix.extend(self.unseen.messages, digest=digest)
        self.unseen.messages = []

    def take_facts(self, facts: WorkerFacts) -> None:
        if self.in_charge.handed_on and self.facts:  # these belong to the conversation, not to the agent in charge
            facts = facts.model_copy(update={"limits": self.facts.limits, "webhook": self.facts.webhook})
        self.facts = facts
        self.in_charge.pin(facts.agent)
        self.limits = Limits.merged(facts.limits, self.start.limits)

    def fall_back(self, model: str) -> None:
        """The model that was asked failed, and this one replaces it."""
        self.model.name = model

    def ask_for_correction(self) -> bool:
        """Tells the model why its reply does not fit the agent's output type, a limited number of times."""
        request = correction_request(self.last_reply.output_problem, corrections=self.last_reply.corrections)
        if request is None:
            return False
        self.last_reply.corrections += 1
        self.unseen.messages.append(request)
        return True

    def _count_reply(self, reply: ModelReply) -> None:
        self.view = reply.view or self.view
        self.totals.budget = reply.budget
        self.prompts.take_prompt(reply.prompt)
        self.totals.add_usage(reply.usage, reply.cost_usd)
        if reply.facts:
            self.take_facts(reply.facts)

    # ------------------------------------------------------------ what people steer

    def begin_stall(self, cause: str, cure: str | None) -> None:
        self.stall = Stall(cause, cure)
        self.totals.give_back_budget()

    def begin_fallbacks_anew(self) -> None:
        """After a stall, `resume` starts again with the first model and all fallbacks."""
        self.model.name = self.model.first

    def pause_problem(self) -> str | None:
        if self.closing:
            return "The conversation is closing: it ends once what runs now has finished."
        if self.paused:
            return "The conversation is already paused."
        return None

    def pause(self) -> None:
        self.paused = True

    def resume_problem(self, control: Control) -> str | None:
        if control.model and (":" not in control.model or len(control.model) > MAX_NAME_CHARS):
            return f"There is no model {control.model[:100]!r}. Write provider:name, as in openai:gpt-5.5."
        if self.stall is None and (control.only_stalled or not self.paused):
            return "There is nothing to resume: the conversation is neither stalled nor paused."
        return None

    def resume(self, control: Control) -> None:
        self.paused = self.paused and control.only_stalled
        self.stall = None
        if control.model:  # it stays the first model, however often the turn is resumed
            self.model.name = self.model.first = control.model

    def cancel_problem(self, control: Control) -> str | None:
        if not self.answering:
            return "No turn is running."
        return self.denial_problem(control)

    def denial_problem(self, control: Control) -> str | None:
        """Why who may not decide can't end what runs now: that would deny a call that waits for an approval."""
        if control.without_deciding and any(call.needs == "approval" for call in self.pending.values()):
            return "A call waits for somebody's decision."
        return None

    def cancel(self, control: Control) -> None:
        """The code that runs the turn ends the answer."""
        self.take_seen(control.seen)
        cancelled_by = shortened_reason(control.by)
        reason = shortened_reason(control.reason or "")
        self.totals.give_back_budget()
        self.cancelled = f"the turn was cancelled{cancelled_by and f' by {cancelled_by}'}{reason and f' ({reason})'}"
        self.paused = False
        self.stall = None

    def close(self) -> None:
        self.closing = True
        self.abandoned |= self.paused or self.stall is not None
        self.paused = False
        self.stall = None

    def take_up_again(self, now: float) -> None:
        """The next run answers the messages that came while it closed, as if the conversation began then."""
        self.end_answer()
        self.inbox.take_in_late()
        self.totals.started_at = now

    def end(self) -> None:
        self.end_answer()
        self.inbox.take_in_late()  # no run of its own takes it up again
        self.stall = None
        self.limit = None
        self.paused = False
        self.ended = True

    # ------------------------------------------------------------ read off it

    @property
    def name(self) -> StateName:
        """The state's name, as `status` shows it."""
        if self.ended:
            return "done"
        if self.stall:
            return "stalled"
        if self.paused:
            return "paused"
        if self.pending:
            approvals = any(pending.needs == "approval" for pending in self.pending.values())
            return "awaiting_approval" if approvals else "awaiting_answer"
        if self.is_idle:
            return "idle"
        return "running"

    @property
    def is_idle(self) -> bool:
        """The conversation waits for a message."""
        return not (self.ended or self.answering or self.inbox.messages) and self.start.keep_open is not None

    @property
    def is_answered(self) -> bool:
        """Every message has its final reply."""
        return self.last_reply.final and not (
            self.answering or self.cancelled or self.inbox.messages or self.inbox.late
        )

    @property
    def is_over_with_summary(self) -> bool:
        """It was closed while the model wrote a summary, and nobody has said what the next turn would answer."""
        return self.closing and not any(map(is_said_by_person, self.unseen.messages))

    @property
    def agent(self) -> str:
        """The name of the agent in charge."""
        return self.in_charge.agent

    @property
    def rules(self) -> Policy:
        """All that decide on its calls, and on those of the agents that it asks."""
        return (*self.inherited, *self.policy)

    @property
    def asked_model(self) -> str:
        """The agent's model, as its worker reported it."""
        return self.facts.model if self.facts else ""

    def limit_reached(self, now: float) -> str | None:
        """The first limit that is used up, in words; None while there is room for a turn, or for this one once more."""
        turns = self.turn - self.reply_awaited
        return self.limits.used_up(
            turns, self.totals.tool_calls, self.totals.usage, self.totals.cost_usd, now - self.totals.started_at
        )

    def limit_that_ends(self, now: float) -> str | None:
        """The same, if the model is not to conclude."""
        if self.limits.conclude:
            return None
        return self.limit_reached(now)

    def carry_over(self, *, earlier: Earlier, keep_by: float | None, reply: OpenReply | None = None) -> CarryOver:
        """What goes on from here begins with: the next run, the next life, a fork. `earlier`: the prefix, or where it
        is, and `keep_by`, when it has to be brought along. `reply`: the one at hand, if its calls wait for people;
        what the model said in it is not cut then."""
        return CarryOver(
            earlier=earlier,
            keep_by=keep_by if isinstance(earlier, StoredInRun) else None,
            length=self.prefix.position,
            digest=self.prefix.digest,
            unseen=tuple(self.unseen.messages),
            told=self.unseen.in_events,
            owed=self.answering,
            open=reply,
            inbox=tuple(self.inbox.messages),
            message_ids=self.message_ids,
            turn=self.turn - self.reply_awaited,
            called_in=self._called_in if self.unseen.messages else 0,
            tool_calls=self.totals.tool_calls,
            usage=self.totals.usage,
            cost_usd=self.totals.cost_usd,
            last_text=self.last_reply.text if reply else shortened(self.last_reply.text, max_bytes=MAX_LAST_TEXT_BYTES),
            started_at=self.totals.started_at,
            last_stop=self.last_reply.stop,
            facts=self.facts,
            model=self.model.name,
            paused=self.paused,
            policy=self.policy,
            inherited=self.inherited,
            **self.in_charge.carried,
            repairs=self.last_reply.corrections,
            view=self.view,
            summary_due=self.summary_due,
            budget=self.totals.budget,
            began=self._began or self.start.began,
            tools=self.tools,
            unanswered=self.inbox.unanswered,
        )
