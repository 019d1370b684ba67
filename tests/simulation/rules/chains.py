"""What has to be true of a conversation through all its runs and lives: from a run to the next, after an end, after an
operator's reset."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from everturn import names
from everturn.activities.compaction import ASK
from everturn.carryover import PackedTranscript
from everturn.events import ApprovalRequested
from everturn.history import steps
from everturn.sizes import size_of
from tests.simulation.agents.cast import AGENTS, APPROVED, ONCE
from tests.simulation.rules.conversations import Evidence, approval_words
from tests.support.bounds import CONSTANTS

LONG_CHARS = 150
"""What is longer may be cut where it is told."""

MOST_IN_A_ROW = 8
"""Turns that come to nothing, and that nobody asked for."""

ENDS_A_TURN = (names.CANCEL_TURN, names.CLOSE)


def turns_are_counted_once(one: Evidence) -> Iterator[str]:
    """A turn without a reply is asked again under its number."""
    last, over, closing = 0, True, False
    for run, taken in one.runs:
        for step in taken:
            match step:
                case steps.RunStarted(previous_run_id=before):
                    over |= closing or not before  # of another life, or what was said while it closed
                    closing = False
                case steps.TurnScheduled(request=request):
                    if request.turn != last and not over:
                        yield f"turn {request.turn} of run {run.id} comes before turn {last} has its reply"
                        return
                    last, over = request.turn, False
                case steps.TurnCompleted():
                    over = True
                case steps.CommandSent(name=name) if name in ENDS_A_TURN:
                    over, closing = True, closing or name == names.CLOSE
                case _:
                    pass


def the_chosen_model_is_asked(one: Evidence) -> Iterator[str]:
    """Whoever chose another model has it until somebody or a fallback chooses again, or another agent takes over.
    A turn that nobody could be asked is the same request once there is somebody, whatever was chosen meanwhile."""
    chosen, agent, awaits = "", one.agent, 0
    for run, taken in one.runs:
        for step in taken:
            match step:
                case steps.TurnScheduled(request=request):
                    chosen, agent = chosen if request.agent == agent else "", request.agent
                    if chosen and not request.model and request.turn != awaits:
                        yield f"turn {request.turn} of run {run.id} asks the agent's own model, and not {chosen}"
                        return
                    awaits = 0
                case steps.CommandSent(name=names.RESUME, payload=payload, accepted=True) if payload.get("model"):
                    chosen = str(payload["model"])
                case steps.TurnFailed(fallback=str(model)) if model:
                    chosen = ""
                case steps.TurnFailed(request=request, awaited=True):
                    awaits = request.turn
                case _:
                    pass


def what_was_left_out_stays_so(one: Evidence) -> Iterator[str]:
    """A compacted conversation is not shown whole again, nor one whose handoff said what its next agent sees."""
    shown_from: dict[str, int] = {}
    for run, taken in one.runs:
        for step in taken:
            match step:
                case steps.TurnScheduled(request=request) if not request.summarise:
                    keep = request.view.keep_from if request.view else 0
                    before = shown_from.get(request.agent, 0)
                    if keep < before:
                        yield f"turn {request.turn} of run {run.id} is shown from {keep} on, after {before}"
                        return
                    shown_from[request.agent] = keep
                case _:
                    pass


def one_summary_is_shown(one: Evidence) -> Iterator[str]:
    for asked in one.asked:
        summaries = sum(bool(message.summary) for message in asked.messages)
        if summaries > 1 and asked.messages[-1].text != ASK:
            yield f"a model was shown {summaries} summaries"
            return


def the_last_messages_stay(one: Evidence) -> Iterator[str]:
    """A summary leaves as many of the messages before it as the agent says. Older summaries are none of these."""
    wanted = AGENTS[one.agent].compaction
    for step in one.steps if wanted else ():
        view = step.request.view if isinstance(step, steps.TurnScheduled) else None
        if wanted and view and view.summary_at is not None:
            said, kept = (
                sum(not message.summary for message in one.transcript[start : view.summary_at])
                for start in (0, view.keep_from)
            )
            if kept < min(said, wanted.keep_messages):
                yield f"of {said} messages before the summary at {view.summary_at}, {kept} stay"
                return


def no_result_is_shown_without_its_call(one: Evidence) -> Iterator[str]:
    """However much of a conversation is left out: providers refuse such messages."""
    for asked in one.asked:
        called = {call.call_id for message in asked.messages for call in message.tool_calls}
        for message in asked.messages:
            if alone := [result.call_id for result in message.tool_results if result.call_id not in called]:
                yield f"a model was shown the results of {alone}, and not their calls"
                return


def what_comes_to_nothing_ends(one: Evidence) -> Iterator[str]:
    """Turns and summaries do not follow one another for ever."""
    in_a_row = 0
    for step in one.steps:
        match step:
            case steps.TurnScheduled():
                in_a_row += 1
                if in_a_row > MOST_IN_A_ROW:
                    yield f"{in_a_row} turns in a row come to nothing, and nobody asked for them"
                    return
            case steps.TurnCompleted(request=request) if not request.summarise:
                in_a_row = 0
            case steps.CommandSent() | steps.MessageSent():
                in_a_row = 0
            case _:
                pass


def nothing_is_gone(one: Evidence) -> Iterator[str]:
    """No turn fails since what was said before it can't be read any more: it was brought along in time."""
    for step in one.steps:
        if isinstance(step, steps.TurnFailed) and re.search(
            r" is deleted up to run |can't be read from the history", step.cause
        ):
            yield f"turn {step.request.turn} failed: {step.cause}"


def what_is_handed_on_is_little(one: Evidence) -> Iterator[str]:
    """What no model has seen goes along to the next run if it is little; else it stays where it is."""
    most = getattr(*CONSTANTS["handed_bytes"])
    for run, taken in one.runs:
        for step in taken[:1]:
            if isinstance(step, steps.RunStarted) and step.previous_run_id and (carry := step.start.carry):
                size = size_of(carry.unseen) + size_of(carry.told)
                if size > most and not carry.open:
                    yield f"run {run.id} was handed {size} bytes that no model has seen"
                packed = len(carry.earlier.data) if isinstance(carry.earlier, PackedTranscript) else 0
                if packed > getattr(*CONSTANTS["packed_bytes"]):
                    yield f"run {run.id} was handed the messages of earlier runs, in {packed} bytes"


def policies_are_asked_about_people(one: Evidence) -> Iterator[str]:
    for step in one.steps:
        if isinstance(step, steps.DecisionChecked):
            decision = step.check.decision
            if decision.by == names.THE_CLOCK or decision.note == "The conversation was closed.":
                yield f"a policy was asked about what {decision.by or 'the end'} says"


def what_activities_brought_is_told(one: Evidence) -> Iterator[str]:
    """The result that a tool's activity brought is the one in the transcript."""
    told = {result.call_id: result for message in one.transcript for result in message.tool_results}
    for run, step in one.lasting:
        if isinstance(step, steps.ToolCompleted) and step.outcome is None:
            brought, found = step.result, told.get(step.result.call_id)
            if found is None:
                yield f"run {run.id} has the result of {brought.call_id}, and the transcript has none"
            elif len(brought.text) < LONG_CHARS and found.text != brought.text:
                yield f"{brought.name} {brought.call_id} brought {brought.text!r}, not {found.text!r}"


def what_was_withdrawn_is_not_carried_out(one: Evidence) -> Iterator[str]:
    for step in one.steps:
        if isinstance(step, steps.CommandSent) and step.payload.get("note") in one.told.not_taken:
            yield f"{step.name} ({step.payload['note']}) was said not to be taken, and was carried out"


def what_never_began_is_in_no_doubt(one: Evidence) -> Iterator[str]:
    """A model is told of a doubt only if a worker had the call in hand, or was lost with it."""
    lost: dict[str, set[str]] = {}
    for step in one.steps:
        if isinstance(step, steps.ToolRunFailed):
            lost.setdefault(step.request.call_id, set()).add(step.kind)
    for message in one.transcript:
        for result in (result for result in message.tool_results if result.call_id in one.own_calls):
            doubtful = "outcome of this call is unknown" in result.text
            if doubtful and result.call_id not in one.begun and lost.get(result.call_id, set()) <= names.NEVER_BEGUN:
                yield f"{result.name} {result.call_id} never began, and its outcome is told to be unknown"
    for event in one.events:
        if isinstance(event, ApprovalRequested) and event.reason == "outcome_unknown":
            call_id = event.call.call_id
            if call_id not in one.begun and lost.get(call_id, {""}) <= names.NEVER_BEGUN:
                yield f"{event.call.name} {call_id} never began, and people are asked about its outcome"


# ------------------------------------------------------------ after an end


def what_a_terminated_life_had_is_kept(one: Evidence) -> Iterator[str]:
    """What was said before it was terminated is in the transcript of the life after it."""
    texts = {message.text for message in one.transcript if message.role == "user"}
    for number, (run, taken) in enumerate(one.runs):
        last = taken[-1] if taken else None
        if not (isinstance(last, steps.RunClosed) and last.outcome is None and not last.next_run_id):
            continue
        if not any(later.first_run_id != run.first_run_id for later, _ in one.runs[number + 1 :]):
            continue
        for step in taken:
            own = isinstance(step, steps.MessageSent) and step.said.text in one.told.said.values()
            if isinstance(step, steps.MessageSent) and own and step.said.text not in texts:
                yield f"{step.said.text!r} was said before it was terminated, and is not in the transcript"


# ------------------------------------------------------------ after resets


def once_is_once(one: Evidence) -> Iterator[str]:
    """Also after a reset: for each run of a call that must not happen twice, somebody has said so."""
    words = approval_words(one)
    calls = Counter((effect.tool, effect.call_id) for effect in one.effects if effect.tool in ONCE)
    for (tool, call_id), times in calls.items():
        if times > words(call_id) + (tool not in APPROVED):
            yield f"{tool} {call_id} took effect {times} times, and {words(call_id)} people said so"


def keys_are_new_after_a_reset(one: Evidence) -> Iterator[str]:
    """A call that is made again after a reset has another key than before, unless it was made before the point that
    the reset went back to."""
    keys: dict[tuple[str, str], str] = {}
    """By key and call: the run that had it first."""
    made: dict[str, set[str]] = {}
    """By run: the calls that were made in it for the first time, but for what a reset has undone."""
    before: set[str] = set()
    for run, step in one.lasting:
        shared = run.base[1] if run.base else 0
        if isinstance(step, steps.ToolScheduled) and step.id > shared:
            if step.request.call_id not in before:
                made.setdefault(run.id, set()).add(step.request.call_id)
            before.add(step.request.call_id)
    places = {run.id: place for place, (run, _) in enumerate(one.runs)}
    # By their runs: what a run that was reset had begun may take effect after it did in the run that took it over.
    for effect in sorted(one.effects, key=lambda effect: places.get(effect.run_id, len(places))):
        here = made.get(effect.run_id, set())
        first = keys.setdefault((effect.key, effect.call_id), effect.run_id)
        if first != effect.run_id and effect.call_id in here and _came_of_reset(one, effect.run_id):
            yield f"{effect.tool} {effect.call_id} ran before and after a reset, both times as {effect.key}"


def _came_of_reset(one: Evidence, run_id: str) -> bool:
    return any(run.id == run_id and run.base for run, _ in one.runs)


CHAIN_RULES = (
    turns_are_counted_once,
    the_chosen_model_is_asked,
    what_was_left_out_stays_so,
    one_summary_is_shown,
    the_last_messages_stay,
    no_result_is_shown_without_its_call,
    what_comes_to_nothing_ends,
    nothing_is_gone,
    what_is_handed_on_is_little,
    policies_are_asked_about_people,
    what_activities_brought_is_told,
    what_was_withdrawn_is_not_carried_out,
    what_never_began_is_in_no_doubt,
)
