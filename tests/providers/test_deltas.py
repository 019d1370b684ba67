"""What is shown while a reply is written is what the reply says in the end: over every recorded stream."""

from __future__ import annotations

from collections import Counter

import pytest

from everturn.errors import ProviderError
from everturn.providers.failures import ErrorInReply
from everturn.records import Thinking
from tests.providers.recorded import HERE, asked, events_of, everything, needs_recordings, protocol_of, stream_of

pytestmark = needs_recordings

OTHERWISE = {
    "response_only/anthropic-spliced-message-start.stream.json": "a proxy took the first message back in mid-stream",
    "response_only/openai-openai-phase.1.stream.json": "its author left most of the deltas out",
}
"""Streams whose deltas say something else than their replies. Clients are told to start over (TurnRetried)."""

STREAMS = {name: one for name, one in everything().items() if stream_of(one)} if HERE.exists() else {}


def test_streams_of_all_four_protocols_were_recorded() -> None:
    assert len(Counter(one["protocol"] for one in STREAMS.values())) == 4


@pytest.mark.parametrize("name", STREAMS)
def test_the_deltas_of_a_stream_joined_are_the_reply(name: str) -> None:
    one = STREAMS[name]
    assembler = protocol_of(one).Assembler(asked(one))
    told = {"text": "", "thinking": ""}
    try:
        for event in events_of(stream_of(one)):
            for delta in assembler.feed(event):
                told[delta.kind] += delta.text
        reply = assembler.finish()
    except (ErrorInReply, ProviderError):
        return  # no reply came of it
    thinking = "".join(part.text for part in reply.message.parts if isinstance(part, Thinking))
    assert (told == {"text": reply.text, "thinking": thinking}) is (name not in OTHERWISE)
