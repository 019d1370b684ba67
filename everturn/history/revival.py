"""The start of a conversation that continues another one, or itself after its own end."""

from __future__ import annotations

from collections.abc import Sequence

from everturn.carryover import CarryOver, PackedTranscript, StoredInRun
from everturn.packed_messages import pack
from everturn.records import Message, results_in
from everturn.sizes import MAX_INBOX_BYTES, MAX_PACKED_AT_START_BYTES, MAX_UNSEEN_BYTES, size_of
from everturn.state import State
from everturn.truncation import cut_messages


def next_life(state: State, transcript: Sequence[Message], *, origin: StoredInRun) -> CarryOver:
    """The start of what goes on from here: a fork, or the next life of a conversation that is over.

    `transcript`: the whole transcript, including that of earlier runs. `origin`: the run that it goes on from.
    """
    length = state.prefix.position
    digest = state.prefix.digest
    unseen_messages = tuple(transcript[state.prefix.position :])
    known = results_in(state.unseen.messages)
    state.follow_handoffs(result for call_id, result in results_in(unseen_messages).items() if call_id not in known)
    if size_of(unseen_messages) + size_of(tuple(results_in(unseen_messages))) > MAX_UNSEEN_BYTES:
        length = len(transcript)
        digest = ""
        unseen_messages = ()
    packed = pack(transcript[:length])
    fits = len(packed) <= MAX_PACKED_AT_START_BYTES
    # Temporal deletes that run's history some day: its messages are copied into the new one's at once.
    carry = state.carry_over(earlier=PackedTranscript(data=packed) if fits else origin, keep_by=0.0)
    changes = {
        "origin": origin,
        "length": length,
        "digest": digest,
        "unseen": unseen_messages,
        "told": (*results_in(unseen_messages),),
    }
    facts = state.facts and state.facts.model_copy(update={"agent": ""})  # it begins with the version of today
    at_rest = {"facts": facts, "owed": False, "paused": False, "repairs": 0, "started_at": None}
    return carry.model_copy(update={**changes, **at_rest, "inbox": cut_messages(state.inbox.messages, MAX_INBOX_BYTES)})
