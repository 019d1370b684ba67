"""What was encoded for one request is not encoded again for the next; and its bytes are the same as if it were."""

from __future__ import annotations

import gc
import tracemalloc
from base64 import b64encode
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from everturn.activities import compaction
from everturn.activities.prefix_cache import Prefix, PrefixCache, follow_prefix
from everturn.activities.turn_request import shown_to_model, with_notes
from everturn.carryover import TranscriptView
from everturn.models import Model, ModelSettings
from everturn.providers.base import Request
from everturn.providers.bound_thoughts import beginning_of, without_stale_thoughts
from everturn.providers.catalog import row_of
from everturn.providers.encoded_messages import WireItems, body_in_json
from everturn.providers.http import protocol_by_name
from everturn.providers.json_values import write_json
from everturn.providers.transcript_facts import facts_of
from everturn.records import Document, Image, Message, Opaque, ServerToolUse, Text, Thinking, ToolCall, ToolResult
from tests.providers.messages import result, results
from tests.providers.recorded import HERE, READERS, everything, model_of

MODELS = ["openai-chat:m", "mistral:m", "openai:gpt-5.5", "anthropic:claude-opus-4-7", "google:gemini-3-pro"]
NOW = datetime(2026, 11, 27, tzinfo=UTC)
ASK = Message.user("What is the weather?")


def body_of(request: Request) -> dict[str, Any]:
    return protocol_by_name(row_of(request.model.provider).protocol).encode(request)[1]


def encoded_anew(request: Request) -> bytes:
    return write_json(body_of(replace(request, messages=[*request.messages])))


def turn_by_turn(messages: Sequence[Message], prefixes: PrefixCache | None = None) -> Iterator[Sequence[Message]]:
    """The transcript as a worker asks with it: before each reply of the model's, and at its end."""
    prefixes, digest, begin = prefixes or PrefixCache(), "", 0
    replies = [place for place, message in enumerate(messages) if message.role == "assistant"]
    for place in [*replies, len(messages)]:
        prefix = prefixes.find(digest, begin)
        assert prefix is not None
        yield follow_prefix(prefix, messages[begin:place])
        if place < len(messages):
            digest = prefixes.remember(digest, prefix, messages[begin : place + 1])
            begin = place + 1


def check_all_turns(messages: Sequence[Message], request: Request, prefixes: PrefixCache | None = None) -> None:
    for asked in turn_by_turn(messages, prefixes):
        turn = replace(request, messages=asked)
        assert body_in_json(body_of(turn)) == encoded_anew(turn)


def conversation(turns: int, text: str = "sun") -> list[Message]:
    said = [ASK]
    for turn in range(turns):
        call = ToolCall(call_id=f"call_{turn}", name="weather", arguments={"city": "Oslo"})
        said += [Message(role="assistant", parts=(Text(text="I look."), call)), results(result(call.call_id, text))]
    return said


@pytest.mark.parametrize("model", MODELS)
def test_only_what_is_new_is_encoded(model: str) -> None:
    items = [
        next(filter(None, map(_wire_items, body_of(_request(model, messages)).values()))) for messages in turns(40)
    ]
    assert max(map(len, items)) < 10, "not more than the last turns are left to write"
    assert len(items[-1].written) > 70


@pytest.mark.parametrize("model", MODELS)
def test_a_transcript_is_in_memory_once(model: str) -> None:
    """With what it is encoded to: a text that both hold is one."""
    lines = [message.model_dump_json() for message in conversation(60, "def line(self): return 1\n" * 160)]
    check_all_turns([*map(Message.model_validate_json, lines[:7])], _request(model, ()), PrefixCache())  # made once
    prefixes = PrefixCache()
    tracemalloc.start()
    said = [*map(Message.model_validate_json, lines)]
    for asked in turn_by_turn(said, prefixes):
        body_in_json(body_of(_request(model, asked)))
    del said, asked
    gc.collect()
    taken, written = tracemalloc.get_traced_memory()[0], sum(map(len, lines))
    tracemalloc.stop()
    assert taken < 1.3 * written
    assert 0.8 * taken < prefixes.bytes < 1.3 * taken


@pytest.mark.parametrize("own", [True, False])
@pytest.mark.parametrize("model", MODELS)
def test_what_is_not_written_yet_and_what_is_short_is_counted_too(model: str, own: bool) -> None:
    """A document in the last message; as the front end's own message it is known as what was said last, too."""
    request = _request(model, ())
    provider = request.model.provider if own else ""

    def ask(number: int, size: int, prefixes: PrefixCache) -> None:
        data = b64encode(b"%PDF-1.4 " + number.to_bytes(2) * size).decode()
        document = Document(data=data, media_type="application/pdf")
        question = Message(role="user", parts=(document, Text(text="Read it.")), provider=provider)
        transcript = [question, Message(role="assistant", parts=(Text(text="Done."),)), Message.user(f"{number}?")]
        for messages in turn_by_turn(transcript, prefixes):
            facts_of(messages)
            body_in_json(body_of(replace(request, messages=messages)))

    for size, count in ((50_000, 2), (1, 30)):
        ask(0, size, PrefixCache())  # made once
        prefixes = PrefixCache()
        gc.collect()
        tracemalloc.start()
        for number in range(count):
            ask(number, size, prefixes)
        gc.collect()
        taken = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
        assert 0.8 * taken < prefixes.bytes < 1.3 * taken


@pytest.mark.parametrize("model", MODELS)
def test_a_long_text_is_the_same_object_in_the_transcript_and_in_the_requests(model: str) -> None:
    prefix = PrefixCache().remember_whole("", conversation(6, "a long text " * 100))
    assert isinstance(prefix, Prefix)
    items = next(filter(None, map(_wire_items, body_of(_request(model, follow_prefix(prefix, (ASK,)))).values())))
    texts = {id(text) for text in prefix.long_texts(0)}
    shared = [id(piece) in texts for piece in items.written if len(piece) > 1_000]
    assert len(shared) >= 3
    assert all(shared)


def turns(count: int) -> Iterator[Sequence[Message]]:
    return turn_by_turn(conversation(count))


def _wire_items(value: Any) -> WireItems | None:
    return value if isinstance(value, WireItems) else None


def _request(model: str, messages: Sequence[Message], **options: Any) -> Request:
    return Request(model=Model(model), messages=messages, now=NOW, **options)


OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "instructions": {"instructions": "Be kind."},
    "concluding": {"conclude": True},
    "cached": {"settings": ModelSettings(cache=True), "conversation_id": "c", "instructions": "Be kind."},
    "whole": {"settings": ModelSettings(stream=False)},
    "uncached": {"settings": ModelSettings(cache=False)},
    "stored": {"settings": ModelSettings(extra={"store": True})},
    "browsing": {"raw_tools": [{"computerUse": {}}]},
    "schema": {"output_schema": {"type": "object", "properties": {}}},
    "overridden": {"settings": ModelSettings(extra={"messages": [], "input": [], "contents": []})},
}


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize("model", MODELS)
def test_the_bytes_are_those_of_encoding_anew(model: str, options: dict[str, Any]) -> None:
    check_all_turns(MIXED, _request(model, (), **options))


def test_each_switch_of_provider_and_options_between_turns() -> None:
    prefixes, requests = (
        PrefixCache(),
        [_request(model, (), **options) for model in MODELS for options in OPTIONS.values()],
    )
    for asked in turn_by_turn(conversation(len(requests)), prefixes):
        turn = replace(requests[len(asked) // 2 % len(requests)], messages=asked)
        assert body_in_json(body_of(turn)) == encoded_anew(turn)


@pytest.mark.parametrize("model", MODELS)
def test_a_fork_and_a_retry_have_bytes_of_their_own(model: str) -> None:
    prefixes, said = PrefixCache(), conversation(12)
    check_all_turns(said, _request(model, ()), prefixes)
    for place in (3, 9, 15):
        check_all_turns([*said[:place], *conversation(4, "rain")[1:]], _request(model, ()), prefixes)
    check_all_turns(said, _request(model, ()), prefixes)


@pytest.mark.parametrize("model", MODELS)
def test_a_small_memory_forgets_what_was_encoded(model: str) -> None:
    prefixes = PrefixCache(max_bytes=40_000)
    for number in range(8):
        check_all_turns(conversation(6, f"{number}" * 200), _request(model, ()), prefixes)
        assert prefixes.bytes <= prefixes.max_bytes
    prefixes.clear()
    assert prefixes.bytes == 0


def test_a_sound_is_named_until_its_name_expires() -> None:
    sound = Text(text="hello", extra={"audio": {"id": "audio_1", "expires_at": (NOW + timedelta(hours=1)).timestamp()}})
    said = [ASK, Message(role="assistant", parts=(sound,), provider="openai-chat"), *conversation(3)]
    seen = set()
    for number, asked in enumerate(turn_by_turn(said)):
        turn = replace(_request("openai-chat:m", asked), now=NOW + timedelta(minutes=20 * number))
        assert body_in_json(body_of(turn)) == encoded_anew(turn)
        seen.add(b"audio_1" in encoded_anew(turn))
    assert seen == {True, False}


VIEWS = [
    TranscriptView(trim_before=4),
    TranscriptView(keep_from=3),
    TranscriptView(tools_from=5, keep_from=1),
    TranscriptView(summary_at=6, keep_from=3),
    TranscriptView(summary_at=6, keep_from=3, trim_before=9, tools_from=2),
]


@pytest.mark.parametrize("view", [None, *VIEWS], ids=str)
@pytest.mark.parametrize("model", MODELS)
def test_what_a_model_is_shown_of_a_transcript_is_encoded_once_too(model: str, view: TranscriptView | None) -> None:
    """Trimmed results, a summary, a handoff's filter, and a note in what was cut short."""
    summary = Message.user("In short: sun.").model_copy(update={"summary": True, "author": "everturn"})
    cut = Message(role="assistant", parts=(Text(text="I w"),), cut_short=True)
    empty = Message(role="assistant", parts=())
    said = [*conversation(3, "sun" * 100)[:6], summary, *conversation(9)[6:10], cut, ASK, empty, ASK]
    said += conversation(12)[11:]
    written = set()
    for asked in turn_by_turn(said):
        shown = shown_to_model(asked, view if len(asked) > 9 else None)
        anew = with_notes(compaction.messages_shown([*asked], view if len(asked) > 9 else None))
        turn, plain = _request(model, shown), _request(model, anew)
        assert body_in_json(body_of(turn)) == write_json(body_of(plain))
        written.add(max(len(items.written) for items in map(_wire_items, body_of(turn).values()) if items is not None))
    assert len(written) > 5, "what is kept grows with the conversation"


@pytest.mark.parametrize("model", MODELS)
def test_a_transcript_without_its_stale_thoughts_is_encoded_once_too(model: str) -> None:
    provider = Model(model).provider
    thought = Message(
        role="assistant", parts=(Thinking(text="hm", extra={"signature": "s"}), Text(text="So.")), provider=provider
    )
    asking = _request(model, ())
    marked = thought.model_copy(update={"bound_to": beginning_of(asking)})
    said = [ASK, thought, *conversation(2), marked, ASK, thought, *conversation(8), thought, ASK]
    written = 0
    for asked in turn_by_turn(said):
        turn = without_stale_thoughts(replace(asking, messages=asked)).request
        plain = without_stale_thoughts(replace(asking, messages=[*asked])).request
        assert body_in_json(body_of(turn)) == write_json(body_of(plain))
        written = max(len(items.written) for items in map(_wire_items, body_of(turn).values()) if items is not None)
    assert written > 10


CHANGES = [["One."] * 3 + ["Two."] * 4 + ["Three."] * 4, [f"It is {hour} o'clock." for hour in range(24)]]


@pytest.mark.parametrize("instructions_by_turn", CHANGES, ids=["twice", "each turn"])
@pytest.mark.parametrize("model", MODELS)
def test_thoughts_are_left_out_up_to_another_place_after_each_change_of_the_instructions(
    model: str, instructions_by_turn: list[str]
) -> None:
    provider = Model(model).provider
    thought = Thinking(text="hm", extra={"signature": "s"})
    prefixes, digest, length, new, before = PrefixCache(), "", 0, [ASK], instructions_by_turn[0]
    written = 0
    for turn, instructions in enumerate(instructions_by_turn):
        prefix = prefixes.find(digest, length)
        assert prefix is not None
        request = _request(model, follow_prefix(prefix, new), instructions=instructions)
        sent = without_stale_thoughts(request)
        anew = without_stale_thoughts(replace(request, messages=[*request.messages]))
        assert body_in_json(body_of(sent.request)) == write_json(body_of(anew.request))
        written = max(
            len(items.written) for items in map(_wire_items, body_of(sent.request).values()) if items is not None
        )
        # A provider that binds its thoughts to the instructions refuses them after the first change.
        bound_to = sent.beginning or (beginning_of(request) if instructions != before else "")
        call = ToolCall(call_id=f"call_{turn}", name="weather", arguments={})
        reply = Message(role="assistant", parts=(thought, call), provider=provider, bound_to=bound_to)
        digest, length = prefixes.remember(digest, prefix, [*new, reply]), length + len(new) + 1
        new, before = [results(result(call.call_id))], instructions
    assert written > len(instructions_by_turn) / 2, "what is kept grows with the conversation"


# ---------------------------------------------------------------- any transcript

_IDS = st.sampled_from(["a", "b", "c", "d", "an id with spaces"])
_EXTRAS = st.sampled_from(
    [
        *[{}] * 4,
        {"signature": "s"},
        {"cache_control": {"type": "ephemeral"}},
        {"thoughtSignature": "t"},
        {"caller": {"type": "code", "tool_id": "a"}},
        {"audio": {"id": "audio_1", "expires_at": NOW.timestamp() + 60}},
        {"type": "custom_tool_call"},
        {"type": "custom"},
        {"item": {"id": "rs_1", "summary": [], "encrypted_content": "x"}},
        {"reasoning_details": [{"text": "hm"}]},
    ]
)
_TEXTS = st.sampled_from(["", " ", "sun", "héllo \u2028 😀", 'quoted " \\'])
_MEDIA = st.sampled_from(
    [Image(data="AAAA", media_type="image/png"), Document(data="AAAA", media_type="application/pdf", name="y")]
)
_SERVERS = st.builds(
    lambda use, id_: {"type": use, ("tool_use_id" if "result" in use else "id"): id_, "input": {}},
    st.sampled_from(["server_tool_use", "code_execution_tool_result", "web_search_call"]),
    _IDS,
)
_OPAQUE = st.sampled_from(
    [
        {"type": "redacted_thinking", "data": "x"},
        {"container": {"id": "cont_1", "expires_at": "2026-11-27T01:00:00Z"}},
        {"container": {}},
        {"type": "reasoning", "id": "rs_2", "summary": []},
        {"executableCode": {"code": "1"}},
    ]
)
_WORDS = st.builds(Text, text=_TEXTS, extra=_EXTRAS)
_CALLS = st.builds(
    ToolCall,
    call_id=_IDS,
    name=st.sampled_from(["weather", "a b", "$web_search"]),
    provider_id=st.one_of(st.none(), _IDS),
    unparsed=st.one_of(st.none(), st.just("{")),
    extra=_EXTRAS,
)
_RESULTS = st.builds(
    ToolResult,
    call_id=_IDS,
    content=st.lists(st.one_of(_WORDS, _MEDIA), max_size=2).map(tuple),
    is_error=st.booleans(),
    extra=_EXTRAS,
)
_PARTS = st.one_of(
    _WORDS,
    _CALLS,
    _RESULTS,
    _MEDIA,
    st.builds(Thinking, text=_TEXTS, extra=_EXTRAS),
    st.builds(ServerToolUse, name=st.just("code"), data=_SERVERS),
    st.builds(Opaque, data=_OPAQUE),
)
_MESSAGES = st.builds(
    Message,
    role=st.sampled_from(["user", "assistant", "assistant", "tool", "tool", "system"]),
    parts=st.lists(_PARTS, max_size=3).map(tuple),
    provider=st.sampled_from(["", "openai-chat", "mistral", "openai", "anthropic", "google"]),
)

MIXED = [
    Message(role="system", parts=(Text(text="Be brief."),)),
    ASK,
    Message(role="assistant", parts=(Thinking(text="hm", extra={"signature": "s"}), Text(text=""), Text(text="So: "))),
    Message(role="assistant", parts=(ToolCall(call_id="a", name="weather"), ToolCall(call_id="b", name="time"))),
    results(result("a", "sun", Image(data="AAAA", media_type="image/png")), result("b", "noon", is_error=True)),
    Message(role="system", parts=(Text(text="Be quick."),)),
    Message.user([Text(text="And now?", extra={"cache_control": {"type": "ephemeral"}})]),
    Message(role="assistant", parts=(ServerToolUse(name="code", data={"type": "server_tool_use", "id": "s1"}),)),
    Message(role="assistant", parts=(ToolCall(call_id="c", name="weather", extra={"caller": {"tool_id": "s1"}}),)),
    results(result("c", Image(data="AAAA", media_type="image/png"))),
    Message(
        role="assistant", parts=(Opaque(data={"container": {"id": "c1"}}), Text(text="Fine.")), provider="anthropic"
    ),
    ASK,
    Message(role="assistant", parts=()),
    ASK,
    # What the server began and never ended is left out once a person speaks.
    Message(
        role="assistant",
        parts=(
            ServerToolUse(name="code", data={"type": "server_tool_use", "id": "s2"}),
            ToolCall(call_id="d", name="weather", extra={"caller": {"tool_id": "s2"}}),
        ),
        provider="anthropic",
    ),
    results(result("d", "rain")),
    Message(role="assistant", parts=(Text(text="Hm."),)),
    ASK,
    *conversation(4)[1:],
]


@settings(max_examples=75, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(st.sampled_from(MODELS), st.lists(_MESSAGES, max_size=12), st.sampled_from(list(OPTIONS.values())))
def test_any_transcript(model: str, messages: list[Message], options: dict[str, Any]) -> None:
    check_all_turns(messages, _request(model, (), **options))


@pytest.mark.parametrize("name", [name for name in (everything() if HERE.exists() else {}) if name])
def test_every_recorded_transcript(name: str) -> None:
    one = everything()[name]
    body = (one.get("request") or {}).get("body")
    if not isinstance(body, dict):
        return
    read, _, field = READERS[one["protocol"]]
    said = [{"role": "user", "content": body[field]}] if isinstance(body[field], str) else body[field]
    messages = read(said, provider=model_of(one).provider)
    for model in {model_of(one).name, *MODELS}:
        for asked in turn_by_turn([*messages, *conversation(3)]):
            turn = _request(model, asked)
            assert body_in_json(body_of(turn)) == encoded_anew(turn)
