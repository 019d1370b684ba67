"""What has to be true of what each turn was asked with, and of what a conversation began with."""

from __future__ import annotations

from collections.abc import Iterator

from everturn.history import steps
from everturn.prompts import Prompt
from tests.simulation.agents import run_time
from tests.simulation.people.people import EARLIER
from tests.simulation.rules.conversations import Evidence


def each_turn_is_told_its_own(one: Evidence) -> Iterator[str]:
    """Instructions of a function are those of the turn and of its conversation; and the history says the same."""
    if one.agent != run_time.TOLD:
        return
    for asked in one.asked:
        turn, _, whose = asked.instructions.partition("\n")[0].removeprefix("turn ").partition(" of ")
        if whose != one.id or not turn.isdigit():
            yield f"a model was told {asked.instructions!r}"
        if ("look" in asked.tools) != bool(int(turn or 0) % 3) or "extra" not in asked.tools:
            yield f"in turn {turn}, a model was offered {asked.tools}"
    for _, taken in one.runs:
        texts: dict[str, Prompt] = {}
        for step in taken:
            if not isinstance(step, steps.TurnCompleted) or step.request.summarise:
                continue
            recorded = step.reply.prompt
            if recorded is None:
                yield f"nothing says what turn {step.request.turn} was asked with"
                continue
            if text := recorded.unpack_prompt():
                texts[recorded.digest] = text
            found = texts.get(recorded.digest)
            if found and not found.instructions.startswith(f"turn {step.request.turn} of {one.id}"):
                yield f"turn {step.request.turn} was asked with {found.instructions!r}, by the history"


def a_call_is_forced_once_for_a_message(one: Evidence) -> Iterator[str]:
    """By what a user said last, and by nothing else."""
    if one.agent != run_time.FORCED:
        return
    for asked in one.asked:
        last = asked.messages[-1]
        wanted = "required" if last.role == "user" and not last.author else None
        if asked.tool_choice != wanted:
            yield f"after {last.role} {last.text[:40]!r}, a model was asked with tool_choice={asked.tool_choice!r}"


def it_begins_with_what_was_said_before(one: Evidence) -> Iterator[str]:
    """In each prompt, and in the transcript."""
    if not one.told.began_with:
        return
    texts = [said["content"] for said in EARLIER]
    if [message.text for message in one.transcript[: len(texts)]] != texts:
        yield f"it began with {texts}, and the transcript with {[message.text for message in one.transcript[:3]]}"
    for asked in one.asked:
        if [message.text for message in asked.messages[: len(texts)]] != texts:
            yield f"it began with {texts}, and a model was shown {[message.text for message in asked.messages[:3]]}"
            return


def what_a_provider_doubts_is_for_a_person(one: Evidence) -> Iterator[str]:
    """A call of its own tools that it wants somebody to look at does not run without a person's word."""
    doubted = {
        call.call_id
        for message in one.transcript
        for call in message.tool_calls
        if call.extra.get("pending_safety_checks")
    }
    approved = {
        step.request.call_id for step in one.steps if isinstance(step, steps.ToolScheduled) and step.request.decision
    }
    for effect in one.effects:
        if effect.call_id in doubted - approved:
            yield f"{effect.tool} {effect.call_id} ran, its provider had doubts, and nobody has approved it"


TURN_RULES = (
    each_turn_is_told_its_own,
    a_call_is_forced_once_for_a_message,
    it_begins_with_what_was_said_before,
    what_a_provider_doubts_is_for_a_person,
)
