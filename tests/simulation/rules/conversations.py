"""What has to be true of a conversation that is over, by its transcript, its histories and the world outside.

Most of it is worked out here once more, from what happened: a mistake in what the conversation and the readers of its
history share would not show in a comparison of the two.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING

from everturn import names
from everturn.activities.compaction import ASK, messages_shown
from everturn.activities.prefix_cache import chain_digest
from everturn.activities.turn_request import with_notes
from everturn.events import Event
from everturn.heartbeats.details import SeenReply, longer_reply
from everturn.history import steps
from everturn.history.transcript import filled_delta
from everturn.limits import Limits
from everturn.payloads import Control, ModelRequest, Start
from everturn.records import Message, Outcome, Text, ToolCall, ToolResult, Usage, results_in
from tests.simulation.agents import asking_and_hooked, run_time
from tests.simulation.agents.cast import (
    AGENTS,
    APPROVED,
    CHOOSING,
    HANDING,
    HELPER,
    LIMITS_LATER,
    LOCAL,
    ONCE,
    instructions_of,
)
from tests.simulation.agents.ledger import Effect, Try
from tests.simulation.agents.mcp import MCP_ERRORS
from tests.simulation.agents.model import Asked
from tests.simulation.agents.reviewed import REVIEWED, approves
from tests.simulation.temporal.runs import Run

if TYPE_CHECKING:
    from tests.simulation.agents.mcp_servers import Called
    from tests.simulation.people.people import Acknowledged

AGENTS_BY_NAME = {**AGENTS, HELPER.name: HELPER}

CLOCK_SECONDS = 10.0
"""How late a timer may be looked at: workers are killed, and tasks wait."""


@dataclass(frozen=True)
class Evidence:
    """One conversation."""

    id: str
    agent: str
    transcript: tuple[Message, ...]
    runs: Sequence[tuple[Run, Sequence[steps.Step]]]
    """Of all its lives, with their steps."""
    asked: Sequence[Asked]
    effects: Sequence[Effect]
    told: Acknowledged
    deploys: bool
    """Workers had another version of the agents, or none of them."""
    events: Sequence[Event] = ()
    """Of its last life, as they are read at its end."""
    begun: frozenset[str] = frozenset()
    """The calls whose tool was begun by a worker."""
    labelled: bool = False
    """It was started for a tenant, and with metadata."""
    sealed: bool = False
    """What is in its history is encrypted."""
    seen: Sequence[Sequence[str]] = ()
    """The words of each turn that was cancelled, as far as the server knew them by its end."""
    mcp_calls: Sequence[Called] = ()
    """What MCP servers have taken up for it."""
    tries: Sequence[Try] = ()
    """Those of tools that say when they want to be tried again."""
    quiet: bool = False
    """No worker is lost in this world."""

    @property
    def life(self) -> Sequence[tuple[Run, Sequence[steps.Step]]]:
        """The runs of its last life."""
        return [(run, taken) for run, taken in self.runs if run.first_run_id == self.runs[-1][0].first_run_id]

    @cached_property
    def steps(self) -> Sequence[steps.Step]:
        return [step for _, taken in self.runs for step in taken]

    @property
    def lasting(self) -> Iterator[tuple[Run, steps.Step]]:
        """All steps but those that a reset has undone."""
        undone: dict[str, int] = {}
        for run, _ in reversed(self.runs):
            if run.base:  # and if this one was reset to what it shares with that one, that is undone there, too
                known = (undone.get(one, run.base[1]) for one in (run.id, run.base[0]))
                undone[run.base[0]] = min(run.base[1], *known)
        for run, taken in self.runs:
            yield from ((run, step) for step in taken if step.id <= undone.get(run.id, step.id))

    @property
    def limits(self) -> Limits:
        """The agent's, and before those the ones that it was started with."""
        start = next(step.start for step in self.steps if isinstance(step, steps.RunStarted))
        own = start.limits.model_dump(exclude_unset=True) if start.limits else {}
        return AGENTS_BY_NAME[self.agent].limits.model_copy(update=own)

    @property
    def loosest(self) -> Limits:
        """Those, or of each limit that of the next version if that is the looser one."""
        own, later = self.limits, LIMITS_LATER.get(self.agent) if self.deploys else None
        started = next(step.start.limits for step in self.steps if isinstance(step, steps.RunStarted))
        kept = started.model_fields_set if started else set()
        names_of = {*("max_turns", "max_tool_calls", "max_parallel_calls")} - kept if later else set()
        most = {name: max(getattr(own, name), getattr(later, name)) for name in names_of if getattr(own, name)}
        return own.model_copy(update=most)

    @property
    def own_calls(self) -> dict[str, ToolCall]:
        """Without those of the conversation that this one was forked from."""
        return _called(self.steps)

    @property
    def undone_calls(self) -> set[str]:
        """Those of replies that a reset has undone."""
        return self.own_calls.keys() - _called(step for _, step in self.lasting).keys()


def _called(all_steps: Iterable[steps.Step]) -> dict[str, ToolCall]:
    replies = (step.reply.message for step in all_steps if isinstance(step, steps.TurnCompleted))
    return {call.call_id: call for message in replies for call in message.tool_calls}


# ------------------------------------------------------------ the transcript


def calls_are_answered(one: Evidence) -> Iterator[str]:
    """Each call has one result, in the order of the calls, right after them."""
    seen: set[str] = set()
    said = [message for message in one.transcript if not message.summary]
    for message, after in pairwise((*said, Message.user("the end"))):
        wanted = [call.call_id for call in message.tool_calls]
        if again := seen & set(wanted):
            yield f"calls {sorted(again)} come twice"
        seen |= set(wanted)
        told = [result.call_id for result in after.tool_results]
        if wanted != told:
            yield f"the calls {wanted} have results for {told}"
        for call, result in zip(message.tool_calls, after.tool_results, strict=False):
            yield from _result(call, result, deploys=one.deploys or one.agent == CHOOSING)


_CUT = r"This call was (cut short|denied)|^The outcome of this call is unknown"
_LOST = r"has no result: its worker was lost|is not run again because workers were lost"
_NEVER = rf"{_CUT}|{_LOST}|^No more tool calls|^Not run: the conversation's limit|timed out: no answer came"
_OWN = {
    "slow": r"slow did not finish within",
    "slowly": r"slowly did not finish within|^There is no tool|is no longer available",
    "fails": r"it can't be done|it broke",
    # The latter if workers were lost with the reply: then arguments are looked at as the tool runs.
    "refund": r"^The arguments of refund do not fit|^cents: Field required$",
    "peep": r"did not finish within",
    "linger": r"did not finish within",
    "helper": r"helper could not answer|helper did not finish|^There is no tool",
    "no_such_tool": r"^There is no tool 'no_such_tool'",
    "outside": r"^There is no tool",
    "flaky": r"^There is no tool",
    **MCP_ERRORS,
    **{f"transfer_to_{name}": r"^Not handed over|^There is no tool" for name in HANDING},
}


_LATER = r"is no longer available|^There is no tool|do not fit|No worker on|Field required|is not a parameter|count"
"""What is said after a deploy."""


def _result(call: ToolCall, result: ToolResult, *, deploys: bool) -> Iterator[str]:
    decision = result.decision
    if decision and decision.verdict == "answer" and decision.by == "me":
        if result.text != f"A{call.call_id}":
            yield f"{call.call_id} was answered, and its result is {result.text[:100]!r}"
    elif decision and decision.verdict == "deny" and not result.is_error:
        yield f"{call.call_id} was denied, and its result is {result.text[:100]!r}"
    elif not result.is_error:
        if result.successor:
            if call.name != f"transfer_to_{result.successor.agent}":
                yield f"{call.name} {call.call_id} put {result.successor.agent} in charge"
            given = call.arguments if not decision or decision.arguments is None else decision.arguments
            if not any(told in result.text for told in run_time.handed(result.successor.agent, given)):
                yield f"{call.name} {call.call_id} was made with {given}, and {result.successor.agent} is not told"
        elif call.call_id not in result.text and call.name != HELPER.name:
            yield f"{call.name} {call.call_id} has the result {result.text[:100]!r}, which is not its own"
        if (
            decision
            and decision.arguments is not None
            and not result.successor
            and "with other arguments" not in result.text
        ):
            yield f"{call.name} {call.call_id} ran with other arguments, and the model is not told"
    elif deploys and re.search(_LATER, result.text):
        pass
    elif not re.search(rf"{_NEVER}|{_OWN.get(call.name, '^There is no tool')}", result.text):
        yield f"{call.name} {call.call_id} has the error {result.text[:200]!r}"


def messages_are_kept(one: Evidence) -> Iterator[str]:
    said = Counter(message.text for message in one.transcript if message.role == "user")
    for text in (*one.told.said.values(), *one.told.maybe.values()):
        if said[text] > 1:
            yield f"{text!r} stands {said[text]} times in the transcript"
    if not one.told.ended:
        yield from (f"{text!r} was acknowledged, and is not in it" for text in one.told.said.values() if not said[text])
    places = [text for message in one.transcript if (text := message.text) in one.told.said.values()]
    if not one.told.crowded and places != sorted(places, key=lambda text: int(text.split()[1])):
        yield f"messages stand in another order than they were sent: {places}"


def prompts_are_the_transcript(one: Evidence) -> Iterator[str]:
    """Whatever a model was shown is how the transcript begins, unless it is compacted."""
    if _narrowed(one):
        return
    said = [message.model_dump_json() for message in with_notes(one.transcript)]
    turns = [step.request for step in one.steps if isinstance(step, steps.TurnScheduled)]
    notes = {(_length(turn), note.text) for turn in turns for note in _note(turn, one.transcript[: _length(turn)])}
    always_noted = {length for length, _ in notes} - {_length(turn) for turn in turns if turn.conclude is None}
    for asked in one.asked:
        *before, last = asked.messages or (Message.user(""),)
        if last.author == "everturn" and (len(before), last.text) in notes:
            messages: Sequence[Message] = before
        elif len(asked.messages) in always_noted:
            yield f"a model was to conclude after {len(asked.messages)} messages, and was not told"
            return
        else:
            messages = asked.messages
        shown = [message.model_dump_json() for message in messages]
        if shown != said[: len(shown)]:
            place = next((n for n, both in enumerate(zip(shown, said, strict=False)) if both[0] != both[1]), len(said))
            yield (
                f"a model was shown {len(shown)} messages, of which number {place} is not the transcript's: "
                f"{shown[place][:300]} instead of {said[place][:300] if place < len(said) else 'nothing'}"
            )
            return


def _length(turn: ModelRequest) -> int:
    """Of the transcript that its model is shown."""
    return turn.position + len(turn.delta)


def _note(turn: ModelRequest, messages: Sequence[Message]) -> Iterator[Message]:
    """What a concluding turn says beside the transcript, and to that turn only. A reply that was paused goes on without
    it."""
    if turn.conclude is not None and not (messages and messages[-1].role == "assistant"):
        text = f"You have reached {turn.conclude}: conclude now, in words, without calling tools."
        yield Message(role="user", parts=(Text(text=text),), author="everturn")


def prompts_after_a_reset_are_the_transcript(one: Evidence) -> Iterator[str]:
    """Whatever else was asked is undone."""
    last = max((number for number, (run, _) in enumerate(one.runs) if run.base), default=0)
    runs = {run.id for run, _ in one.runs[last:]}
    yield from prompts_are_the_transcript(replace(one, asked=[asked for asked in one.asked if asked.run_id in runs]))


_WITH_A_RESULT = (steps.ToolCompleted, steps.ActivityEnded)


def _narrowed(one: Evidence) -> bool:
    """Its models may be shown less than all of it."""
    return bool(AGENTS_BY_NAME[one.agent].compaction) or one.agent in HANDING


def compacted_prompts_are_right(one: Evidence) -> Iterator[str]:
    """A model is shown what the view of its turn makes of the transcript."""
    if not _narrowed(one) or one.told.ended:
        return
    results = {step.result.call_id: step.result for step in one.steps if isinstance(step, _WITH_A_RESULT)}
    results |= results_in(one.transcript)
    possible = set[str]()
    for step in one.steps:
        if isinstance(step, steps.TurnScheduled) and not step.request.summarise:
            # Not what the transcript has there by its end: a summary may have come between the two.
            whole = [*one.transcript[: step.request.position], *filled_delta(step.request, results)]
            view = with_notes(messages_shown(whole, step.request.view))
            possible.add(_written([*view, *_note(step.request, view)]))
    for asked in one.asked:
        if asked.messages and asked.messages[-1].text != ASK and _written(asked.messages) not in possible:
            yield f"a model was shown {len(asked.messages)} messages that no view of the transcript has"
            return


def whoever_is_in_charge_answers(one: Evidence) -> Iterator[str]:
    """A model is asked as the agent that the conversation was handed to last, by what it is shown itself."""
    if one.agent not in HANDING:
        return
    for asked in one.asked:
        handed = [
            result.successor.agent for message in asked.messages for result in message.tool_results if result.successor
        ]
        wanted = handed[-1] if handed else one.agent
        if asked.instructions != instructions_of(wanted) and not (asked.messages and asked.messages[-1].text == ASK):
            yield f"a model was told {asked.instructions!r}, and {wanted!r} is in charge"
            return


def _written(messages: Sequence[Message]) -> str:
    return "".join(message.model_dump_json() for message in messages)


def replies_answer(one: Evidence) -> Iterator[str]:
    """reply() gives the text of a reply without calls that came after the message."""
    for text, reply in one.told.replies:
        place = next((n for n, message in enumerate(one.transcript) if message.text == text), None)
        if place is None:
            continue
        replies = (message for message in one.transcript[place:] if message.role == "assistant")
        after = [message.text for message in replies if not message.tool_calls]
        if reply not in after:
            yield f"{text!r} was answered with {reply[:100]!r}, and the answers after it are {after}"


def digests_are_right(one: Evidence) -> Iterator[str]:
    """Every prefix has its digest, and every turn begins where the one before has ended."""
    digests, digest = [""], ""
    for message in one.transcript:
        digest = chain_digest(digest, [message])
        digests.append(digest)
    for step in one.steps:
        match step:
            case steps.TurnScheduled(request=request):
                if request.position >= len(digests):
                    yield f"turn {request.turn} begins after {request.position} messages, of {len(one.transcript)}"
                elif request.digest and request.digest != digests[request.position]:
                    yield f"turn {request.turn} names a prefix of {request.position} messages that is another one"
            case steps.TurnCompleted(request=request, reply=reply) if reply.message.parts and not one.told.ended:
                if reply.digest not in digests:
                    yield f"the reply of turn {request.turn} has a digest that is none of the transcript's"
            case _:
                pass


# ------------------------------------------------------------ what tools did


def effects_are_allowed(one: Evidence) -> Iterator[str]:
    """`once`: at most once for each approval. Nothing runs without the approval that its plan asks for."""
    calls = {call.call_id: call for message in one.transcript for call in message.tool_calls}
    approvals = Counter[str]()
    chains: dict[str, set[str]] = {}
    for run, taken in one.runs:
        for step in taken:
            if isinstance(step, steps.ToolRunFailed) and (step.awaited or step.stalled or step.kind == names.ASKS):
                # Nobody had it (by itself, or once somebody resumes), or it has asked a question first: it is sent
                # again, as it was approved.
                approvals[step.request.call_id] -= step.request.decision is not None
            if isinstance(step, steps.ToolScheduled):
                approvals[step.request.call_id] += step.request.decision is not None
                chains.setdefault(step.request.call_id, set()).add(run.first_run_id)
    words = approval_words(one)
    for effect in one.effects:
        if effect.call_id not in calls:
            yield f"{effect.tool} took effect for {effect.call_id}, which nobody called"
    for call_id, times in Counter(effect.call_id for effect in one.effects).items():
        if (call := calls.get(call_id)) is None:
            continue
        if needs_approval(call, one.agent) and not (words(call_id) if call.name in LOCAL else approvals[call_id]):
            yield f"{call.name} {call_id} took effect without an approval"
        if approvals[call_id] > words(call_id):
            yield f"{call.name} {call_id} ran as approved {approvals[call_id]} times; {words(call_id)} people said so"
        if call.name in ONCE and times > approvals[call_id] + (not needs_approval(call, one.agent)):
            yield f"{call.name} {call_id} took effect {times} times, and was approved {approvals[call_id]} times"
        keys = {effect.key for effect in one.effects if effect.call_id == call_id}
        wanted = {f"{one.id}:{chain}:{call_id}" for chain in chains.get(call_id, ())}
        if wanted and call.name not in LOCAL and keys != wanted and not any(run.base for run, _ in one.runs):
            yield f"{call_id} took effect under the keys {sorted(keys)}, not {sorted(wanted)}"


def approval_words(one: Evidence):  # type: ignore[no-untyped-def]
    """How often a call may have been approved: by people, a reviewer, the clock, and rules of people. The clock
    has no say about a call that may have run."""
    by_call, every = Counter[str](), 0
    if one.agent == REVIEWED:
        by_call.update(call.call_id for message in one.transcript for call in message.tool_calls if approves(call))
    for _, taken in one.runs:
        doubtful: set[str] = set()
        for step in taken:
            match step:
                case steps.RunStarted(start=start) if start.carry and start.carry.open:
                    doubtful = {asked.call_id for asked in start.carry.open.waits if asked.doubtful}
                case steps.CommandSent(name=names.APPROVE, payload=payload):
                    if payload.get("call_id") == names.EVERY_CALL:
                        every += 1
                    else:
                        by_call[str(payload.get("call_id"))] += 1
                case steps.CallExpired(call_id=call_id) if call_id not in doubtful:
                    by_call[call_id] += 1
                case steps.ToolScheduled(request=request) if request.decision and request.decision.by_policy:
                    by_call[request.call_id] += 1
                case steps.ToolRunFailed(request=request, kind=names.ASKS | names.NEEDS_APPROVAL):
                    doubtful.discard(request.call_id)
                case steps.ToolRunFailed(request=request, kind=kind) if kind not in _DID_NOT_RUN:
                    doubtful.add(request.call_id)
                case _:
                    pass
    return lambda call_id: by_call[call_id] + every


_DID_NOT_RUN = {*names.NEVER_BEGUN, names.INVALID_EDIT}


def results_follow_effects(one: Evidence) -> Iterator[str]:
    """A tool that says that it did its work has done it; one that was denied has not."""
    done, own = Counter(effect.call_id for effect in one.effects), one.own_calls
    was_reset = any(
        run.base for run, _ in one.runs
    )  # who denies a call then speaks of what is left, not of what was undone
    for message in one.transcript:
        for result in message.tool_results:
            if result.call_id not in own:
                continue
            if "did its work" in result.text and not result.is_error and not done[result.call_id]:
                yield f"{result.name} {result.call_id} has a result, and never ran"
            if "and did not run" in result.text and done[result.call_id] and not was_reset:
                yield f"{result.name} {result.call_id} is said not to have run, and took effect"


def arguments_are_those(one: Evidence) -> Iterator[str]:
    """A tool runs with the arguments that the model gave, or that a person put in who approved the call."""
    calls = {call.call_id: call for message in one.transcript for call in message.tool_calls}
    wanted: dict[str, list[object]] = {}
    for step in one.steps:
        if isinstance(step, steps.ToolScheduled) and (call := calls.get(step.request.call_id)):
            edited = step.request.decision.arguments if step.request.decision else None
            wanted.setdefault(call.call_id, []).append(call.arguments if edited is None else edited)
    for effect in one.effects:
        if effect.call_id in wanted and effect.arguments not in wanted[effect.call_id]:
            due = wanted[effect.call_id]
            yield f"{effect.tool} {effect.call_id} ran with {effect.arguments}, and was to run with {due}"


def needs_approval(call: ToolCall, agent: str) -> bool:
    """By its tool, or by a hook."""
    number = int(str(call.arguments.get("cents", call.arguments.get("number", 0))))
    asked = (call.name == "pay" and asking_and_hooked.is_asked(number)) or (
        call.name == "look" and asking_and_hooked.breaks(number)
    )
    return call.name in APPROVED or (call.name in ("gift", "borrow") and number > 10) or (agent == "hooked" and asked)


# ------------------------------------------------------------ what it comes to


def outcomes_add_up(one: Evidence) -> Iterator[str]:
    """The tokens, turns and calls of the outcome are those of the history."""
    usage, calls, turns = Usage(), 0, 0
    replied, text, runs = 0, "", False
    cut: SeenReply | None = None
    for run, taken in one.runs:
        start = _start_of(taken)
        carry = start.start.carry if start else None
        if run.started.continued_execution_run_id and carry and not carry.owed:
            replied = turns  # what the run before had begun was given up: it was closed, and somebody said more
        turns = replied  # the run before may have begun one that nobody asked for again
        if not run.started.continued_execution_run_id and carry:
            usage, calls, text = carry.usage, carry.tool_calls, carry.last_text
            turns = replied = carry.turn
        elif not run.started.continued_execution_run_id:
            usage, calls, text = Usage(), 0, ""
            turns = replied = 0
        for step in taken:
            match step:
                case steps.TurnCompleted(request=request, reply=reply):
                    usage += reply.usage
                    replied, runs = request.turn, False
                    if not request.summarise and not reply.message.cut_short:
                        calls += len(reply.message.tool_calls)
                        text = reply.message.text
                case steps.TurnScheduled(request=request):
                    turns, cut, runs = max(turns, request.turn), None, True
                case steps.TurnFailed():
                    runs = False
                case steps.CommandSent(name=names.CANCEL_TURN, payload=payload) if turns > replied:
                    cut = longer_reply(cut, Control.model_validate(payload).seen)
                    if not runs:
                        usage += cut.usage if cut and cut.turn == turns else Usage()
                        replied = turns  # and none that is asked again
                case steps.TurnCancelled(said=said):
                    cut = longer_reply(cut, said)
                    usage += cut.usage if cut and cut.turn == turns else Usage()
                    replied, runs = turns, False
                case steps.ToolCompleted(outcome=Outcome() as outcome):
                    usage += outcome.usage
                case steps.RunClosed(outcome=Outcome() as outcome) if outcome:
                    # A turn that was begun and cancelled within one workflow task, after another one's cancellation,
                    # counts, and has left no event.
                    if outcome.reason == "the workflow was cancelled" and replied == turns and not runs:
                        turns = max(turns, min(outcome.turns, turns + 1))
                    wanted = (usage, calls, turns, text)
                    found = (outcome.usage, outcome.tool_calls, outcome.turns, outcome.text)
                    if wanted != found:
                        yield f"its outcome says {found}, and its history {wanted}"
                case _:
                    pass


def _start_of(taken: Sequence[steps.Step]) -> steps.RunStarted | None:
    return next((step for step in taken if isinstance(step, steps.RunStarted)), None)


def limits_hold(one: Evidence) -> Iterator[str]:
    limits, begun_with, cancelled, summaries = one.loosest, 0, 0, 0
    for step in one.steps:
        match step:
            case steps.CommandSent(name=names.CANCEL_TURN):
                cancelled += 1  # the concluding reply was none
            case steps.RunStarted(start=start, previous_run_id=""):
                begun_with = start.carry.turn if start.carry else 0
            case steps.RunStarted(start=start) if start.carry and not start.carry.owed:
                begun_with = start.carry.turn  # with messages that came while it closed, it begins anew
            case steps.TurnCompleted(request=request) if request.summarise and request.turn > limits.max_turns:
                summaries += 1  # the concluding turn was too long without one
            case steps.RunClosed(outcome=Outcome() as outcome):
                # Who is revived counts on.
                most = max(limits.max_turns, begun_with) + limits.conclude + cancelled + summaries
                if outcome.turns > most:
                    yield f"it took {outcome.turns} turns, and {most} are the most"
                if limits.max_tool_calls is not None:
                    ran = len({effect.call_id for effect in one.effects} - one.undone_calls)
                    if ran > limits.max_tool_calls and not begun_with:
                        yield f"{ran} calls took effect, and {limits.max_tool_calls} are the most"
            case _:
                pass
    for _, taken in one.runs:
        at_once: set[str] = set()
        for step in taken:
            match step:
                case steps.ToolScheduled(request=request):
                    at_once.add(request.call_id)
                    if len(at_once) > limits.max_parallel_calls:
                        yield f"{sorted(at_once)} ran at the same time, and {limits.max_parallel_calls} may"
                case steps.ToolCompleted(request=request) | steps.ToolRunFailed(request=request):
                    at_once.discard(request.call_id)
                case steps.TurnScheduled():
                    at_once.clear()
                case _:
                    pass


def limits_are_those_that_a_worker_said_last(one: Evidence) -> Iterator[str]:
    """From the next turn on, and through all runs: a deploy may change them. Those that it was started with stay."""
    for run_id in dict.fromkeys(run.first_run_id for run, _ in one.runs):
        limits, calls, replied = Limits(), 0, 0
        for run, taken in one.runs:
            for step in taken if run.first_run_id == run_id else ():
                match step:
                    case steps.RunStarted(start=start, previous_run_id=""):
                        carry = start.carry
                        calls, replied = (carry.tool_calls, carry.turn) if carry else (0, 0)
                        limits = Limits.merged(carry.facts.limits if carry and carry.facts else {}, start.limits)
                    case steps.TurnCompleted(request=request, reply=reply):
                        replied = request.turn
                        calls += 0 if request.summarise or reply.message.cut_short else len(reply.message.tool_calls)
                        if reply.facts:
                            limits = Limits.merged(reply.facts.limits, run_start(one).limits)
                    case steps.TurnScheduled(request=request) if not (request.conclude or request.summarise):
                        if replied >= limits.max_turns and request.turn > replied:
                            yield f"turn {request.turn} goes on after {replied} of {limits.max_turns} turns"
                        if limits.max_tool_calls is not None and calls >= limits.max_tool_calls:
                            yield f"turn {request.turn} goes on after {calls} of {limits.max_tool_calls} calls"
                    case steps.TurnScheduled(request=request) if request.conclude == _in_words(
                        limits.max_turns, "turns"
                    ):
                        if request.turn - 1 < limits.max_turns:
                            yield f"turn {request.turn} concludes, and there may be {limits.max_turns}"
                    case steps.TurnScheduled(request=request) if request.conclude == _in_words(
                        limits.max_tool_calls, "tool calls"
                    ):
                        if calls < (limits.max_tool_calls or 0):
                            yield f"turn {request.turn} concludes after {calls} of {limits.max_tool_calls} calls"
                    case _:
                        pass


def _in_words(limit: int | None, what: str) -> str:
    return f"the limit of {limit} {what}"


def run_start(one: Evidence) -> Start:
    return next(step.start for step in one.steps if isinstance(step, steps.RunStarted))


def nothing_grows(one: Evidence) -> Iterator[str]:
    """No turn is sent what a model has seen."""
    for _, taken in one.runs:
        so_far, turn = -1, 0
        for step in taken:
            if not isinstance(step, steps.TurnScheduled) or step.request.summarise:
                continue
            request = step.request
            if request.turn != turn and request.position < so_far:
                yield f"turn {request.turn} begins at {request.position}, and the one before it at {so_far}"
            so_far, turn = request.position, request.turn


def turns_follow_on(one: Evidence) -> Iterator[str]:
    """The turns of a life have the numbers 1, 2, 3, and each has one reply at the most."""
    for run, taken in one.runs:
        replies = Counter(
            step.request.turn for step in taken if isinstance(step, steps.TurnCompleted) and not step.request.summarise
        )
        for turn, times in replies.items():
            if times > 1:
                yield f"turn {turn} of run {run.id} has {times} replies"
        numbers = [step.request.turn for step in taken if isinstance(step, steps.TurnScheduled)]
        for one_turn, following in pairwise(numbers):
            if following not in (one_turn, one_turn + 1):
                yield f"turn {following} follows turn {one_turn}"


AFTER_TERMINATION = (messages_are_kept, results_follow_effects, limits_hold)
AFTER_RESETS = (
    calls_are_answered,
    messages_are_kept,
    results_follow_effects,
    limits_hold,
    prompts_after_a_reset_are_the_transcript,
)
"""What holds even if a part of what happened was undone."""

RULES = (
    calls_are_answered,
    messages_are_kept,
    prompts_are_the_transcript,
    compacted_prompts_are_right,
    whoever_is_in_charge_answers,
    replies_answer,
    digests_are_right,
    effects_are_allowed,
    results_follow_effects,
    arguments_are_those,
    outcomes_add_up,
    limits_hold,
    limits_are_those_that_a_worker_said_last,
    nothing_grows,
    turns_follow_on,
)
