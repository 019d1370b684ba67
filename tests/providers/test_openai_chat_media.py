"""Chat: sound and pictures in replies, whole and streamed, and back."""

from __future__ import annotations

import base64
import json
import time
from typing import Any

import pytest

from everturn.http.sse import Event
from everturn.models import Model, ModelSettings
from everturn.providers.base import Delta, Request
from everturn.providers.openai_chat import Assembler, decode, encode
from everturn.records import Document, Image, Message, Reply, Text

SOUND = base64.b64encode(b"RIFF-a-sound").decode()
LATER = int(time.time()) + 3600
ASK = Message.user("?")


def request(model: str = "openai-chat:gpt-audio", *messages: Message, format: str = "wav") -> Request:  # noqa: A002
    settings = ModelSettings(extra={"modalities": ["text", "audio"], "audio": {"voice": "alloy", "format": format}})
    return Request(model=Model(model), messages=messages or [ASK], settings=settings)


def sent(model: str, reply: Reply) -> dict[str, Any]:
    """The reply as it goes back with the next request."""
    message: dict[str, Any] = encode(request(model, ASK, reply.message, ASK))[1]["messages"][1]
    return message


def spoken(expires_at: int = LATER) -> Reply:
    audio = {"id": "audio_1", "data": SOUND, "expires_at": expires_at, "transcript": "Hello."}
    message = {"role": "assistant", "content": None, "audio": audio}
    return decode({"choices": [{"message": message, "finish_reason": "stop"}]}, request())


def streamed(deltas: list[dict[str, Any]], asked: Request) -> tuple[Reply, list[Delta]]:
    assembler = Assembler(asked)
    said = []
    for delta in [*deltas, {}]:
        finish = None if delta else "stop"
        said += assembler.feed(Event(json.dumps({"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})))
    assembler.feed(Event("[DONE]"))
    return assembler.finish(), said


def test_a_sound_is_its_transcript_and_the_sound() -> None:
    text, sound = spoken().message.parts
    assert spoken().text == "Hello."
    assert isinstance(text, Text)
    assert isinstance(sound, Document)
    assert (sound.data, sound.media_type) == (SOUND, "audio/wav")
    assert not spoken().is_empty


def test_a_streamed_one_is_put_together() -> None:
    pieces = [base64.b64encode(piece).decode() for piece in (b"RIFF-", b"a-so", b"und")]
    deltas: list[dict[str, Any]] = [{"role": "assistant", "audio": {"id": "audio_1", "transcript": "Hel"}}]
    deltas += [{"audio": {"data": piece}} for piece in pieces]
    deltas += [{"audio": {"transcript": "lo."}}, {"audio": {"expires_at": LATER}}]
    reply, said = streamed(deltas, request())
    assert reply.message == spoken().message
    assert [delta.text for delta in said] == ["Hel", "lo."]


def test_its_format_is_the_one_that_was_asked_for() -> None:
    reply, _ = streamed([{"audio": {"id": "a", "data": SOUND, "expires_at": LATER}}], request(format="pcm16"))
    assert [part.media_type for part in reply.message.parts if isinstance(part, Document)] == ["audio/pcm16"]


def test_it_goes_back_by_its_id_as_long_as_that_lives() -> None:
    assert sent("openai-chat:gpt-audio", spoken()) == {
        "role": "assistant",
        "content": None,
        "audio": {"id": "audio_1"},
    }
    assert sent("openai-chat:gpt-audio", spoken(expires_at=1)) == {"role": "assistant", "content": "Hello."}


@pytest.mark.parametrize("model", ["groq:m", "azure:m", "mistral:m"])
def test_others_read_what_was_said(model: str) -> None:
    assert sent(model, spoken()) == {"role": "assistant", "content": "Hello."}


PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBO"}, "index": 0}


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
def test_openrouters_pictures_are_images_and_go_back_as_they_came(stream: bool) -> None:
    asked = request("openrouter:google/gemini-image")
    if stream:
        reply, _ = streamed([{"content": "Here:"}, {"content": "", "images": [PICTURE]}], asked)
    else:
        message = {"content": "Here:", "images": [PICTURE]}
        reply = decode({"choices": [{"message": message, "finish_reason": "stop"}]}, asked)
    text, picture = reply.message.parts
    assert (reply.text, text) == ("Here:", Text(text="Here:"))
    assert isinstance(picture, Image)
    assert (picture.data, picture.media_type) == ("iVBO", "image/png")
    back = sent("openrouter:google/gemini-image", reply)
    assert back["content"] == "Here:"
    assert back["images"] == [{"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBO"}}]
    assert "iVBO" not in json.dumps(sent("openai-chat:m", reply))
    assert "[image: image/png" in sent("openai-chat:m", reply)["content"]


def test_a_picture_in_a_list_of_content_is_one_too() -> None:
    content = [{"type": "text", "text": "Here:"}, PICTURE, {"type": "image_url", "image_url": "https://x.org/y.png"}]
    reply = decode({"choices": [{"message": {"content": content}, "finish_reason": "stop"}]}, request())
    assert reply.message.parts[1:] == (
        Image(data="iVBO", media_type="image/png"),
        Image(url="https://x.org/y.png"),
    )


@pytest.mark.parametrize("junk", [[None], [7], [{}], [{"image_url": {"url": ""}}], "x", {"url": "x"}])
def test_pictures_that_are_none_are_no_parts(junk: Any) -> None:
    reply = decode({"choices": [{"message": {"content": "Hi.", "images": junk}, "finish_reason": "stop"}]}, request())
    assert reply.message == Message(role="assistant", parts=(Text(text="Hi."),))
