"""What has to be true of conversations that people steer: what they close, cut short, and say meanwhile."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from everturn import names
from everturn.history import steps
from everturn.records import Outcome
from tests.simulation.agents.cast import LOCAL, ONCE
from tests.simulation.agents.mcp import MCP_FOLLOWED, MCP_MOODS
from tests.simulation.rules.conversations import Evidence
from tests.simulation.rules.mcp import planned_once


def what_was_cut_short_may_have_run(one: Evidence) -> Iterator[str]:
    """The model is told so of a call that took effect. What a once call has done is the question that it waits with."""
    done, own = Counter(effect.call_id for effect in one.effects), one.own_calls
    moods = planned_once(one)
    for message in one.transcript:
        for result in message.tool_results:
            cut = (
                result.text.startswith("This call was cut short")
                and "may or may not have taken effect" not in result.text
            )
            if (
                cut
                and done[result.call_id]
                and result.call_id in own
                and result.name not in (*ONCE, *LOCAL)
                and not (result.name in MCP_MOODS and result.call_id in moods)
            ):
                yield f"{result.name} {result.call_id} is said to be cut short, without a doubt, and took effect"


def what_is_closed_asks_no_model(one: Evidence) -> Iterator[str]:
    """A conversation that is closed while it is stalled begins no turn any more."""
    for run, taken in one.runs:
        failed = stalled = closed = False
        for step in taken:
            match step:
                case steps.TurnFailed(passing=False, fallback=""):
                    failed = True
                case steps.WorkflowTaskCompleted():
                    stalled = failed
                case steps.CommandSent(name=names.CLOSE) if stalled:
                    closed = True
                case steps.CommandSent(name=names.RESUME | names.CANCEL_TURN) if not closed:
                    failed = stalled = False
                case steps.TurnScheduled(request=request):
                    if closed:
                        yield f"turn {request.turn} of run {run.id} began after it was closed while it was stalled"
                        return
                    failed = stalled = False
                case _:
                    pass


def what_is_closed_begins_nothing(one: Evidence) -> Iterator[str]:
    """Once a workflow task has taken a close in, what runs may come to its end, and what was said before is answered,
    by one turn; no tool, no agent, and no other turn begins. What a turn was asked with that was too long is answered
    after its summary, by the next one."""
    for run, taken in one.runs:
        closed = settled = False
        unanswered = in_turn = True  # what the run begins with
        turn = 0
        for step in taken:
            match step:
                case steps.CommandSent(name=names.CLOSE):
                    closed = True
                case steps.MessageSent() if not closed:
                    unanswered = True
                case steps.WorkflowTaskCompleted():
                    settled = closed
                case steps.TurnScheduled(request=request) if not request.summarise:
                    if settled and request.turn > turn and not unanswered:
                        yield f"turn {request.turn} of run {run.id} began at event {step.id}, after it was closed"
                        return
                    if request.turn != turn:  # the same turn, asked again, has no more in it
                        in_turn, unanswered = unanswered, False
                    turn = request.turn
                case steps.TurnFailed(passing=True, awaited=False):
                    unanswered = unanswered or in_turn
                case steps.ToolScheduled() if settled:
                    yield f"{step.tool} {step.request.call_id} of run {run.id} began after it was closed"
                    return
                case _:
                    pass


def what_goes_on_needs_no_resume(one: Evidence) -> Iterator[str]:
    """After close, cancel_turn and resume, a conversation is neither stalled nor paused."""
    for run, taken in one.runs:
        held: bool | None = True
        """None if that is not known: a signal may have been passed over."""
        failed = failed_with_it = False
        for step in taken:
            match step:
                case steps.RunStarted(start=start):
                    held = bool(start.carry and start.carry.paused)
                case steps.WorkflowTaskCompleted():
                    failed, failed_with_it = False, failed
                case steps.CommandSent(name=names.PAUSE):
                    held = True
                case steps.TurnFailed() | steps.ToolRunFailed():
                    held = failed = True
                case steps.CommandSent(name=names.RESUME, accepted=True) if held is False:
                    yield f"a resume was taken in run {run.id}, at event {step.id}, and nothing was held up"
                case steps.CommandSent(name=names.CANCEL_TURN | names.RESUME, accepted=False):
                    held = None
                case steps.CommandSent(name=names.RESUME) if failed_with_it:
                    held = None  # it stalls over what failed in the same workflow task, if that is still to be done
                case steps.CommandSent(name=names.CLOSE | names.RESUME | names.CANCEL_TURN):
                    held = False
                case _:
                    pass


def what_is_said_meanwhile_is_kept(one: Evidence) -> Iterator[str]:
    """Whatever a history has of what people said is in the transcript, also if the conversation was being closed."""
    said = Counter(message.text for message in one.transcript if message.role == "user")
    for run, taken in one.runs:
        if run.cancel_requested or not any(_came_to_something(step) for step in taken[-1:]):
            continue
        for step in taken:
            text = step.said.text if isinstance(step, steps.MessageSent) else None
            if text in one.told.said.values() and not said[text]:
                yield f"{text!r} is in the history, and not in the transcript"


def what_is_said_as_it_closes_takes_it_up_again(one: Evidence) -> Iterator[str]:
    """A conversation that is completed has answered what was said after it was told to close."""
    answered = max((n for n, message in enumerate(one.transcript) if message.role == "assistant"), default=-1)
    left = {message.text for message in one.transcript[answered + 1 :] if message.role == "user"}
    for run, taken in one.runs[-1:]:
        last = taken[-1] if taken else None
        if run.cancel_requested or not (isinstance(last, steps.RunClosed) and _status(last) == "completed"):
            continue
        closes = False
        for step in taken:
            closes = closes or (isinstance(step, steps.CommandSent) and step.name == names.CLOSE)
            if closes and isinstance(step, steps.MessageSent) and step.said.text in left:
                yield f"{step.said.text!r} was said after it was told to close, and it is completed without an answer"


def what_was_approved_is_what_runs(one: Evidence) -> Iterator[str]:
    """With the arguments that a person put in, if one did; and what must not happen twice is not tried again."""
    for step in one.steps:
        if not isinstance(step, steps.ToolScheduled):
            continue
        edited = step.request.decision.arguments if step.request.decision else None
        if edited is not None and step.request.arguments != edited:
            yield f"{step.request.call_id} runs with {step.request.arguments}, not with {edited}"
    for effect in one.effects:
        if effect.tool in ONCE - MCP_FOLLOWED and effect.attempt > 1:
            yield f"{effect.tool} {effect.call_id} took effect in try {effect.attempt}, by itself"


def what_is_cancelled_ends_so(one: Evidence) -> Iterator[str]:
    for run, taken in one.runs:
        last = taken[-1] if taken else None
        outcome = last.outcome if isinstance(last, steps.RunClosed) else None
        if run.cancel_requested and outcome and outcome.status != "cancelled":
            yield f"the workflow of run {run.id} was cancelled, and it ended as {outcome.status}"


def what_is_completed_has_its_answer(one: Evidence) -> Iterator[str]:
    last = [*one.steps][-1:]
    completed = any(isinstance(step, steps.RunClosed) and _status(step) == "completed" for step in last)
    if completed and not one.told.ended and one.transcript[-1].role != "assistant":
        yield f"it is completed, and its transcript ends with what the {one.transcript[-1].role} has to say"


def _status(closed: steps.RunClosed) -> str:
    return closed.outcome.status if closed.outcome else ""


def _came_to_something(step: steps.Step) -> bool:
    return isinstance(step, steps.RunClosed) and (isinstance(step.outcome, Outcome) or bool(step.next_run_id))


def what_is_answered_is_not_given_up(one: Evidence) -> Iterator[str]:
    """reply() says that there is no answer only if there is none, or if somebody cut the turn short. A reply in which
    the model paused is none: it was not asked to go on."""
    last = one.transcript[-1]
    replies = [step.reply for step in one.steps if isinstance(step, steps.TurnCompleted) and not step.request.summarise]
    if replies and replies[-1].stop == "paused":
        return
    if last.role != "assistant" or last.tool_calls or len({run.first_run_id for run, _ in one.runs}) > 1:
        return
    for text, why in one.told.given_up:
        place = next((n for n, message in enumerate(one.transcript) if message.text == text), len(one.transcript))
        if "cancelled" not in why and any(message.role == "assistant" for message in one.transcript[place:]):
            yield f"reply() gave up on {text!r}, which is answered: {why}"


def what_is_cancelled_stays_so(one: Evidence) -> Iterator[str]:
    """After cancel_turn no turn is begun until somebody says something, be it in the first moment of a new run."""
    for run, taken in one.runs:
        answers = said = cut = False
        turn = 0
        for step in taken:
            match step:
                case steps.RunStarted(start=start):
                    answers = bool(start.carry and start.carry.owed)
                    said = bool(start.message or (start.carry and start.carry.inbox))
                case steps.MessageSent():
                    said = True
                case steps.TurnScheduled(request=request):
                    if cut and not said:
                        yield f"turn {request.turn} of run {run.id} begins after its answer was cancelled"
                        return
                    said = said and (request.summarise or request.turn == turn)  # one that is asked again is as it was
                    answers, cut, turn = True, False, request.turn
                case steps.TurnCompleted(request=request, reply=reply):
                    answers = request.summarise or not reply.final
                case steps.CommandSent(name=names.CANCEL_TURN):
                    cut = answers and not said
                case _:
                    pass


STEERING_RULES = (
    what_was_cut_short_may_have_run,
    what_is_closed_asks_no_model,
    what_is_closed_begins_nothing,
    what_goes_on_needs_no_resume,
    what_is_said_meanwhile_is_kept,
    what_is_said_as_it_closes_takes_it_up_again,
    what_was_approved_is_what_runs,
    what_is_cancelled_ends_so,
    what_is_completed_has_its_answer,
    what_is_answered_is_not_given_up,
    what_is_cancelled_stays_so,
)
