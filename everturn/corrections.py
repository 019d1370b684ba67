"""Final replies that do not fit the agent's output type: how often the model is asked to correct them, and how."""

from __future__ import annotations

from typing import Final

from everturn.records import OWN_AUTHOR, Message

MAX_CORRECTIONS = 2
"""How often the model is asked to correct a final reply. After that, its answer ends without an output."""

UNFIT_OUTPUT: Final = "the last reply does not fit the output type"


def correction_request(problem: str | None, *, corrections: int) -> Message | None:
    """What the model is told of a reply with this problem, after so many corrections; None if the reply has none, or
    there were enough."""
    if problem is None or corrections >= MAX_CORRECTIONS:
        return None
    text = f"Your reply does not fit the output's schema:\n{problem}\nReply again, with the JSON only."
    return Message.user(text).model_copy(update={"author": OWN_AUTHOR})


def asks_for_correction(message: Message) -> bool:
    """Whether everturn says in it why the reply before does not fit the output type."""
    return message.role == "user" and message.author == OWN_AUTHOR and not message.summary


def unfit_reason(problem: str) -> str:
    """The reason of an answer that failed. What follows UNFIT_OUTPUT quotes the reply."""
    return f"{UNFIT_OUTPUT}: {problem}"
