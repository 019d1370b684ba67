"""A request that is refused for the thoughts in it is sent once more, without them: once, and only then."""

from __future__ import annotations

import json
from typing import Any

import pytest

from everturn import Message, Model, ModelSettings, Text, ToolCall, ToolResult, generate
from everturn.errors import RequestRefused
from everturn.providers import Request
from everturn.providers.bound_thoughts import LEFT_OUT, marked_reply, without_stale_thoughts, without_thoughts
from everturn.providers.openai_chat.messages import UNKNOWN
from everturn.records import Opaque, Part, Reply, Thinking
from tests.support.provider_server import Asked, ProviderServer, Status, claude, in_order, message_item, response

CALL = ToolCall(call_id="c1", name="look_up", arguments={"id": "81"})
RESULT = Message(role="tool", parts=(ToolResult(call_id="c1", content=(Text(text="A lamp."),)),))
GEMINI = {
    "candidates": [{"content": {"role": "model", "parts": [{"text": "Done."}]}, "finishReason": "STOP", "index": 0}]
}
CHAT = {
    "id": "c",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "Done."}, "finish_reason": "stop"}],
}
BOUND = "messages.1.content.0: Invalid `signature` in `thinking` block. The block is bound to a different conversation."


@pytest.fixture(autouse=True)
def _keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ANTHROPIC", "OPENAI", "GEMINI", "OPENROUTER"):
        monkeypatch.setenv(f"{name}_API_KEY", "sk-test-0000000000")


def transcript(provider: str, *parts: Part) -> list[Message]:
    return [Message.user("?"), Message(role="assistant", parts=parts, provider=provider), RESULT]


SIGNED = Thinking(text="hm", extra={"signature": "SEAL"})
REDACTED = Opaque(data={"type": "redacted_thinking", "data": "SEAL"})
ITEM = {"type": "reasoning", "id": "rs_1", "encrypted_content": "SEAL", "summary": []}
ENCRYPTED = Thinking(text="", extra={"item": ITEM})
DETAILS = Thinking(text="hm", extra={"reasoning_details": [{"type": "reasoning.text", "signature": "SEAL"}]})
GEMINIS = CALL.model_copy(update={"extra": {"thoughtSignature": "SEAL"}})


IN_GATEWAYS = Text(text="hm", extra={UNKNOWN: {"thinking_blocks": [{"type": "thinking", "signature": "SEAL"}]}})
IN_A_CALL = CALL.model_copy(update={"extra": {"function": {"thought_signature": "SEAL"}}})


@pytest.mark.parametrize(
    ("model", "parts", "error", "reply"),
    [
        ("openrouter:any", (IN_GATEWAYS, CALL), {"message": f"litellm.BadRequestError: {BOUND}"}, CHAT),
        ("openrouter:any", (IN_A_CALL,), {"message": "Corrupted thought signature.", "code": 400}, CHAT),
        ("anthropic:claude-opus-5-5", (SIGNED, CALL), {"message": BOUND}, claude({"type": "text", "text": "Done."})),
        ("anthropic:claude-opus-5-5", (REDACTED, CALL), {"message": BOUND}, claude({"type": "text", "text": "Done."})),
        ("anthropic:any", (SIGNED, CALL), {"message": BOUND}, claude({"type": "text", "text": "Done."})),
        (
            "openai:gpt-6-sol",
            (ENCRYPTED, CALL),
            {"message": "The encrypted content gAAA...Q== could not be verified.", "code": "invalid_encrypted_content"},
            response(message_item("Done.")),
        ),
        ("google:gemini-4-argon", (GEMINIS,), {"message": "Corrupted thought signature.", "code": 400}, GEMINI),
        ("openrouter:anthropic/claude-opus-5.5", (DETAILS, CALL), {"message": f"Provider returned: {BOUND}"}, CHAT),
    ],
)
async def test_it_is_sent_once_more_without_them(model: str, parts: Any, error: Any, reply: Any) -> None:
    provider = model.partition(":")[0]
    with ProviderServer(in_order(Status(400, {"error": error}), reply)) as server:
        one = Model(model, base_url=server.base_url)
        got = await generate(one, transcript(provider, *parts), settings=ModelSettings(stream=False))
        first, second = map(json.dumps, server.bodies)
    assert (got.text, got.details[LEFT_OUT]) == ("Done.", 1)
    assert ("SEAL" in first, "SEAL" in second) == (True, False)
    assert "look_up" in second
    assert "A lamp." in second
    assert got.message.bound_to


@pytest.mark.parametrize(
    ("parts", "error", "extra", "requests"),
    [
        ((SIGNED, CALL), BOUND, {}, 2),  # refused again: not a third time
        ((CALL,), BOUND, {}, 1),  # there is no thought to leave out
        ((SIGNED, CALL), "max_tokens: too large", {}, 1),
        (
            (SIGNED, CALL),
            BOUND,
            {"thinking": {"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "error"}}},
            1,
        ),
    ],
)
async def test_any_other_refusal_stays_one(parts: Any, error: str, extra: Any, requests: int) -> None:
    def refuse(_: Asked) -> Status:
        return Status(400, {"error": {"type": "invalid_request_error", "message": error}})

    with ProviderServer(refuse) as server:
        model = Model("anthropic:claude-opus-5-5", base_url=server.base_url)
        with pytest.raises(RequestRefused):
            await generate(model, transcript("anthropic", *parts), settings=ModelSettings(stream=False, extra=extra))
        assert len(server.bodies) == requests


def test_what_is_left_out_later_follows_from_the_marks_alone() -> None:
    model = Model("anthropic:claude-opus-5-5")
    old = Message(role="assistant", parts=(SIGNED, Text(text="a")), provider="anthropic")
    asked = Request(model=model, messages=[Message.user("?"), old, Message.user("?")], instructions="One.")
    sent = without_thoughts(asked)
    assert sent is not None
    reply = Reply(message=Message(role="assistant", parts=(SIGNED, Text(text="b")), provider="anthropic"))
    marked = marked_reply(reply, sent).message
    later = [*asked.messages, marked, Message.user("?")]
    same = without_stale_thoughts(Request(model=model, messages=later, instructions="One."))
    assert [sum(part.kind == "thinking" for part in message.parts) for message in same.request.messages] == [
        0,
        0,
        0,
        1,
        0,
    ]
    assert (same.left_out, same.beginning) == (0, "")  # that was said before
    other = without_stale_thoughts(Request(model=model, messages=later, instructions="Two."))
    assert all(part.kind != "thinking" for message in other.request.messages for part in message.parts)
    assert (other.left_out, bool(other.beginning)) == (1, True)
    # Another provider's request, and one without a mark, are sent as they are.
    assert without_stale_thoughts(asked).request is asked


def test_the_thoughts_of_a_concluding_reply_are_not_sent_back_for_its_note_is_not() -> None:
    message = Message(role="assistant", parts=(SIGNED, REDACTED, Text(text="b")), provider="anthropic")
    request = Request(model=Model("anthropic:claude-opus-5-5"), messages=[Message.user("?")], conclude=True)
    kept = marked_reply(Reply(message=message), without_stale_thoughts(request)).message
    assert kept.parts == (Thinking(text="hm"), Text(text="b"))
