"""Which answers are judged, decided by a hash: so anybody can tell, and a look that is repeated decides the same.

The hash is of the conversation and of the hour in which the answer was given. Temporal's index has no row for each
answer: by the hour, the index alone tells which histories have to be read at all, and no answer is missed that is
followed by the next one before somebody looks. Decision 0058.
"""

from __future__ import annotations

import math
from hashlib import blake2b
from typing import Final

from everturn import names
from everturn.sizes import MAX_ID_BYTES

HOUR_SECONDS: Final = 3_600
_MOST_OF_AN_ID: Final = MAX_ID_BYTES - 200
"""What a conversation's id may have of an evaluation's: the rest is for the prefix, the answer and the evaluator."""


def sample_number(conversation_id: str, answered_at: float) -> float:
    """From 0 up to, and without, 1. An answer is judged if its number is lower than the rate. `answered_at`: seconds
    since 1970."""
    hour = math.floor(answered_at / HOUR_SECONDS)
    digest = blake2b(f"{conversation_id}\n{hour}".encode("utf-8", "replace"), digest_size=7).digest()
    return int.from_bytes(digest) / 2**56


def may_be_sampled(conversation_id: str, since: float, until: float, rate: float) -> bool:
    """Whether an answer that it gave in this time would be judged."""
    hours = range(math.floor(since / HOUR_SECONDS), math.floor(until / HOUR_SECONDS) + 1)
    return any(sample_number(conversation_id, hour * HOUR_SECONDS) < rate for hour in hours)


def evaluations_prefix(conversation_id: str) -> str:
    """How the ids of a conversation's evaluations begin. Others may begin so, too: see `is_evaluation_of`."""
    if len(conversation_id.encode("utf-8", "replace")) > _MOST_OF_AN_ID:
        conversation_id = f"blake2b:{blake2b(conversation_id.encode('utf-8', 'replace'), digest_size=16).hexdigest()}"
    return f"{names.EVALUATION_OF}{conversation_id}:"


def evaluation_id(conversation_id: str, turn: int, answered_at: float, evaluator: str) -> str:
    """The id of one evaluator's judgement of one answer. The time tells answers of the same turn apart, of which a
    reset has undone one; runs that share an answer give it the same id."""
    mark = blake2b(f"{answered_at:.6f}".encode(), digest_size=5).hexdigest()
    return f"{evaluations_prefix(conversation_id)}{turn}-{mark}:{evaluator}"


def is_evaluation_of(workflow_id: str, conversation_id: str) -> bool:
    """Whether this is the id of one of the conversation's evaluations. Neither an answer's mark nor an evaluator's
    name has a colon."""
    return f"{workflow_id.rsplit(':', 2)[0]}:" == evaluations_prefix(conversation_id)


def collector_id(task_queue: str) -> str:
    return f"{names.EVALUATIONS_AT}{task_queue}"


def evaluations_queue(task_queue: str) -> str:
    """The task queue of the evaluations of a queue's conversations."""
    return f"{task_queue}{names.EVALUATIONS_QUEUE}"
