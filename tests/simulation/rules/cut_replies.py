"""What has to be true of replies that are cut short: what people saw of them stays, once, and the model is shown it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from everturn.events import Event, Replied, TextDelta, TurnRetried
from everturn.history import steps
from tests.simulation.agents.words import WORDS, words_in
from tests.simulation.rules.conversations import Evidence


def what_was_seen_is_kept(one: Evidence) -> Iterator[str]:
    """What the server knew of a turn when it was over, after somebody had cancelled it."""
    kept = set(words_in("".join(message.text for message in one.transcript)))
    for words in one.seen:
        if lost := [word for word in words if word not in kept]:
            yield f"{lost} were seen when their turn was cancelled, and are not in the transcript"


def what_is_kept_is_there_once(one: Evidence) -> Iterator[str]:
    times = Counter(word for message in one.transcript for word in words_in(message.text))
    if double := [word for word, count in times.items() if count > 1]:
        yield f"the transcript has more than once: {double}"
    for message in one.transcript:
        if 0 < len(words_in(message.text)) < WORDS and not message.cut_short:
            yield f"{message.text!r} is no whole reply, and nothing says that it was cut short"


def the_model_is_shown_it(one: Evidence) -> Iterator[str]:
    """With each turn after it."""
    cut = {place: words_in(message.text) for place, message in enumerate(one.transcript) if message.cut_short}
    said = [(place, message.text) for place, message in enumerate(one.transcript) if message.role == "user"]
    for asked in one.asked:
        texts = {message.text for message in asked.messages}
        last = max((place for place, text in said if text in texts), default=-1)
        shown = set(words_in("".join(texts)))
        for place, words in cut.items():
            if place < last and not shown.issuperset(words):
                yield f"{words} were cut short before {one.transcript[last].text!r}, and the model is not shown them"
                return


def what_is_cut_short_is_counted(one: Evidence) -> Iterator[str]:
    """The model says what it counts before its first word."""
    for step in one.steps:
        if isinstance(step, steps.TurnCompleted) and step.reply.message.cut_short and step.reply.message.text:
            counted = step.reply.usage.input_tokens
            if not counted:
                yield f"turn {step.request.turn} was cut short, and nothing of it is counted"


def what_was_told_live_is_replied(told: list[Event]) -> Iterator[str]:
    """The deltas of a turn are the beginning of its reply, unless they were withdrawn."""
    shown: dict[int, str] = {}
    for event in told:
        match event:
            case TextDelta():
                shown[event.turn] = shown.get(event.turn, "") + event.text
            case TurnRetried():
                shown.pop(event.turn, None)
            case Replied():
                text = shown.pop(event.turn, "")
                if words_in(text) and not event.message.text.startswith(text):
                    yield f"turn {event.turn} replied {event.message.text[:100]!r}, and was seen to say {text!r}"


CUT_RULES = (
    what_was_seen_is_kept,
    what_is_kept_is_there_once,
    the_model_is_shown_it,
    what_is_cut_short_is_counted,
)
