"""Each file of the recordings, whatever it holds: read, or a typed error; and written again as it was recorded.

The tests of a protocol's own recordings look closer. This one leaves none out, and takes any folder of them:
`RECORDINGS=/elsewhere pytest tests/providers/test_every_recording.py`. The differences that change nothing are listed
in `benign`.
"""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from typing import Any

import pytest

from everturn.errors import (
    InvalidReply,
    ModelNotFound,
    ProviderError,
    QuotaExhausted,
    RateLimited,
    RequestRefused,
)
from everturn.models import Model
from everturn.providers import anthropic_messages, failures, openai_chat
from everturn.providers.catalog import ModelEndpoint, row_of
from everturn.providers.failures import ErrorInReply
from everturn.providers.json_values import a_dict
from everturn.records import Message, Reply, Text
from tests.providers.benign import opaque, plain
from tests.providers.recorded import (
    HERE,
    READERS,
    Recording,
    asked,
    events_of,
    everything,
    model_of,
    needs_recordings,
    protocol_of,
    read,
    stream_of,
)

pytestmark = needs_recordings

ERRORS: dict[str, type[ProviderError]] = {
    "anth-404-model.0.json": ModelNotFound,
    "chat-groq-tool-use-failed-400.0.json": InvalidReply,
    "chat-openrouter-429.0.json": RateLimited,
    "chat-openrouter-429.1.json": RateLimited,
    "chat-openrouter-429.2.json": RateLimited,
    "gem-404-model.0.json": ModelNotFound,
    "resp-http-error-400.0.json": RequestRefused,
    "resp-reasoning-missing-item-400.1.json": RequestRefused,
    "response_only/openai-openai-error.1.stream.json": QuotaExhausted,
    "response_only/openai-parallel-tool-call-wrapper.1.stream.json": InvalidReply,
    "response_only/openai-reasoning-model-temperature-error.json": RequestRefused,
}
"""What the answers are that are none. One of them is cut off in the recording itself."""

ALTERED: dict[str, str] = {
    "resp-reasoning-missing-item-400.1.json": "its author took away what follows a reasoning, to see it refused",
    "resp-reasoning-missing-item-400.2.json": "its author put the thoughts of a reasoning into an assistant's words",
}
"""Recorded requests that say something else than the recorded replies, and why."""

VOID = {"sig-first"}
"""Of a message that a proxy took back in the middle of a stream."""

UNFINISHED = {"response.created", "response.in_progress", "response.output_item.added", "response.completed"}
"""Events of Responses whose items are not taken: not whole yet, or encrypted anew after they came whole."""

ALL = everything() if HERE.exists() else {}
ASKED = [name for name, one in ALL.items() if isinstance((one.get("request") or {}).get("body"), dict)]


def error_of(one: Recording, *, status: int, body: object) -> ProviderError:
    model = model_of(one)
    endpoint = ModelEndpoint(
        model=model.name, provider=model.provider, row=row_of(model.provider), base_url="https://x"
    )
    return failures.of_response(endpoint, status=status, headers=one["response"].get("headers", {}), body=body)


def outcome_of(one: Recording) -> Reply | ProviderError:
    response = one["response"]
    if response["status"] != 200:
        return error_of(one, status=response["status"], body=json.dumps(response["body"]).encode())
    try:
        return read(one)
    except ErrorInReply as error:
        return error_of(one, status=200, body=error.body)
    except InvalidReply as error:
        return error


def test_the_index_names_every_file_and_each_is_of_a_protocol_that_is_tested() -> None:
    if (index := HERE / "INDEX.tsv").exists():
        with index.open() as lines:
            assert {row["file"] for row in csv.DictReader(lines, delimiter="\t")} == ALL.keys()
    assert {one["protocol"] for one in ALL.values()} <= READERS.keys()
    assert ERRORS.keys() <= ALL.keys() or "INDEX.tsv" not in {path.name for path in HERE.iterdir()}


@pytest.mark.parametrize("name", ALL)
def test_an_answer_is_read_or_is_the_typed_error_that_it_should_be(name: str) -> None:
    outcome = outcome_of(ALL[name])
    if isinstance(outcome, ProviderError):
        assert type(outcome) is ERRORS.get(name)
        assert outcome.message
        assert outcome.cure or isinstance(outcome, InvalidReply)
        return
    assert name not in ERRORS
    assert outcome.message.parts or outcome.stop in {"length", "filtered", "refused"}
    assert outcome.stop != "tool_calls" or outcome.tool_calls
    assert all(call.unparsed is None and call.call_id and call.name for call in outcome.tool_calls)
    assert type(outcome).model_validate_json(outcome.model_dump_json()) == outcome


@pytest.mark.parametrize("name", [name for name in ASKED if name not in ALTERED])
def test_a_recorded_history_is_written_as_it_was(name: str) -> None:
    one = ALL[name]
    read_all, write_all, field = READERS[one["protocol"]]
    given = one["request"]["body"][field]
    given = [{"role": "user", "content": given}] if isinstance(given, str) else given
    records = read_all(given, provider=model_of(one).provider)
    written = write_all(records, model=model_of(one))
    assert plain(one["protocol"], written) == plain(one["protocol"], given)
    after = json.dumps(written, ensure_ascii=False)
    assert all(json.dumps(text, ensure_ascii=False)[1:-1] in after for text in opaque(given))


@pytest.mark.parametrize("name", ALL)
def test_what_is_opaque_goes_back_byte_for_byte_and_to_its_maker_only(name: str) -> None:
    one = ALL[name]
    if isinstance(outcome_of(one), ProviderError):
        return  # nothing was said
    said = [Message.user("?"), *paused_before(name)]
    reply = read(one, *said)
    strings = {*opaque(last_words_of(one))} - VOID
    asking = asked(one, *said, reply.message)
    sent = written_in(protocol_of(one).encode(asking)[1])
    assert [text for text in strings if written_in(text)[1:-1] not in sent] == []
    from_anthropic = one["protocol"] == "anthropic_messages"
    encode = openai_chat.encode if from_anthropic else anthropic_messages.encode
    other = "openai-chat:gpt-5.5" if from_anthropic else "anthropic:claude-opus-5"
    elsewhere = written_in(encode(replace(asking, model=Model(other)))[1])
    ids = {text for call in reply.tool_calls for text in (call.call_id, call.provider_id)}
    assert [text for text in strings - ids if written_in(text)[1:-1] in elsewhere] == []
    texts = [part.text for part in reply.message.parts if isinstance(part, Text) and part.text.strip()]
    assert all(written_in(text)[1:-1] in elsewhere for text in texts)


def paused_before(name: str) -> list[Message]:
    """The reply that this one continues."""
    stem, _, turn = name.removesuffix(".json").rpartition(".")
    before = f"{stem}.{int(turn) - 1}.json" if turn.isdecimal() else ""
    if before not in ALL or isinstance(outcome_of(ALL[before]), ProviderError):
        return []
    earlier = paused_before(before)
    reply = read(ALL[before], *earlier)
    return [*earlier, reply.message] if reply.stop == "paused" else []


def written_in(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def last_words_of(one: Recording) -> list[Any]:
    """The answer, or of a stream the events that hold what is whole: not the first event of a Responses item."""
    if "body" in one["response"]:
        return [one["response"]["body"]]
    chunks = [json.loads(event.data) for event in events_of(stream_of(one)) if event.data.startswith("{")]
    return [chunk for chunk in chunks if a_dict(chunk).get("type") not in UNFINISHED]
