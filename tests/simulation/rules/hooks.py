"""What has to be true of what hooks, policies and a conversation's context have a say in: a denial is never run."""

from __future__ import annotations

from collections.abc import Iterator

from everturn import names
from everturn.history import steps
from tests.simulation.agents import asking_and_hooked
from tests.simulation.people.people import labels
from tests.simulation.rules.conversations import Evidence

HOOKED = "hooked"


def what_hooks_deny_never_runs(one: Evidence) -> Iterator[str]:
    """Neither as the model called it, nor as a person edited it."""
    for effect in one.effects if one.agent == HOOKED else ():
        number = effect.arguments.get("cents", effect.arguments.get("number", 1))
        if effect.tool == "pay" and asking_and_hooked.is_denied(int(number)):
            yield f"pay {effect.call_id} ran with {effect.arguments}, which a hook denies"
        if effect.tool == "look" and asking_and_hooked.stops(int(number)):
            yield f"look {effect.call_id} ran, and a hook had answered in its place"


def what_hooks_change_is_changed_once(one: Evidence) -> Iterator[str]:
    if one.agent != HOOKED:
        return
    for effect in one.effects:
        text = str(effect.arguments.get("text", "!"))
        if not text.endswith("!") or text.endswith("!!"):
            yield f"note {effect.call_id} ran with {text!r}, and a hook adds one mark"
    for message in one.transcript:
        for result in message.tool_results:
            if result.name == "long" and not result.is_error and result.text != f"short {result.call_id}":
                yield f"long {result.call_id} has the result {result.text[:50]!r}, and a hook writes its own"
        if message.role == "assistant" and message.text and not message.tool_calls:
            times = message.text.count(asking_and_hooked.SEEN)
            if times != 1 and not message.text.startswith("stopped "):
                yield f"a reply was seen {times} times by its hook: {message.text[-50:]!r}"


def what_asks_in_the_middle_is_heard(one: Evidence) -> Iterator[str]:
    """A question is answered with what a person said to it."""
    words: dict[str, set[str]] = {}
    for step in one.steps:
        if isinstance(step, steps.CommandSent) and step.name == names.ANSWER:
            words.setdefault(str(step.payload.get("call_id")), set()).add(str(step.payload.get("content")))
    for message in one.transcript:
        for result in message.tool_results:
            told = result.text.partition(" did its work (")[2].removesuffix(")")
            if result.name == "inquire" and told and told not in words.get(result.call_id, ()):
                yield f"inquire {result.call_id} was told {told!r}, which nobody said"


def the_context_goes_along(one: Evidence) -> Iterator[str]:
    """Each tool is told for whom it works: in all runs and lives, in forks, and in what other agents are asked."""
    if not one.labelled:
        return
    for effect in one.effects:
        asked_by = one.id.partition("-fork")[0]
        wanted = labels(asked_by)
        if (effect.tenant, dict(effect.metadata)) != (wanted["tenant"], wanted["metadata"]):
            yield f"{effect.tool} {effect.call_id} was told {effect.tenant!r} and {dict(effect.metadata)}, not {wanted}"


def nothing_is_written_plainly(one: Evidence) -> Iterator[str]:
    """What people and tools said is nowhere in an encrypted history."""
    if not one.sealed:
        return
    for run, _ in one.runs:
        for event in run.history.events:
            written = event.SerializeToString()
            for plain in (f"message 0 of {one.id}".encode(), b"did its work", b'"order_id"'):
                if plain in written:
                    yield f"run {run.id}, event {event.event_id} has {plain!r} in plain"
                    return


HOOK_RULES = (
    what_hooks_deny_never_runs,
    what_hooks_change_is_changed_once,
    what_asks_in_the_middle_is_heard,
    the_context_goes_along,
    nothing_is_written_plainly,
)
