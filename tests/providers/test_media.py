"""Pictures, files and sounds: what a provider takes goes out as it takes it, and of the rest it is told in words.

A type that it does not take is a 400, in this request and in every later one.
"""

from __future__ import annotations

import base64
import json
from typing import Any
from urllib.parse import quote

import pytest

from everturn.models import Model
from everturn.providers.base import Request
from everturn.providers.catalog import row_of
from everturn.providers.http import protocol_by_name
from everturn.providers.media import OFFICE, TEXTS, file_name
from everturn.records import Document, Image, Message, Text, ToolCall, ToolResult

MODELS = ["openai-chat:m", "openrouter:m", "mistral:m", "groq:m", "openai:m", "anthropic:m", "google:gemini-3-flash"]
DOCX = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"


def data(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def body_of(model: str, *messages: Message) -> dict[str, Any]:
    request = Request(model=Model(model), messages=messages)
    body = protocol_by_name(row_of(request.model.provider).protocol).encode(request)[1]
    assert json.loads(json.dumps(body)) == body
    return body


def sent(model: str, part: Image | Document) -> dict[str, Any]:
    """What the part becomes in a user's message."""
    body = body_of(model, Message.user([Text(text="See:"), part]))
    (message,) = body.get("messages") or body.get("input") or body["contents"]
    found: dict[str, Any] = dict((message.get("parts") or message["content"])[-1])
    found.pop("cache_control", None)
    return found


def words(model: str, part: Image | Document) -> str:
    """The text that stands in the part's place; empty where it goes out as what it is."""
    found = sent(model, part)
    return str(found["text"]) if found.keys() in ({"text"}, {"type", "text"}) else ""


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(
    "part",
    [
        Document(data="UEsDBA==", media_type="application/zip", name="a.zip"),
        Document(data="AAAA", media_type="application/octet-stream", name="a.bin"),
        Document(data="AAAA", media_type="audio/midi", name="a.mid"),
        Document(url="https://x.org/a.zip", name="a.zip"),
        Image(data="AAAA", media_type="image/tiff"),
        Image(data="AAAA", media_type="image/svg+xml"),
        Image(data="AAAA", media_type="image/bmp"),
        Image(url="data:image/svg+xml;base64,AAAA"),
        Image(url="https://x.org/logo.svg?v=2"),
        Document(data="AAAA", media_type="image/tiff", name="scan.tiff"),
    ],
    ids=lambda part: f"{part.kind} {part.media_type or (part.url or '')[:24]}",
)
def test_what_nobody_takes_is_told_in_words(model: str, part: Image | Document) -> None:
    assert words(model, part).startswith(f"[{part.kind}")
    assert "which this model can't be shown]" in words(model, part)


@pytest.mark.parametrize(
    ("media_type", "takers"),
    [
        ("audio/wav", "openai-chat:m openrouter:m google:gemini-3-flash"),
        ("audio/mpeg", "openai-chat:m openrouter:m google:gemini-3-flash"),
        ("audio/ogg", "google:gemini-3-flash"),
        ("video/mp4", "google:gemini-3-flash"),
        ("application/pdf", "openai-chat:m openrouter:m mistral:m openai:m anthropic:m google:gemini-3-flash"),
        (DOCX, "mistral:m openai:m"),
        ("application/vnd.ms-excel", "mistral:m openai:m"),
        ("image/heic", "google:gemini-3-flash"),
        ("image/gif", "openai-chat:m openrouter:m mistral:m groq:m openai:m anthropic:m"),
        ("image/png", " ".join(MODELS)),
        ("image/jpg", " ".join(MODELS)),
    ],
)
def test_each_takes_its_own_types(media_type: str, takers: str) -> None:
    part = (
        Image(data="AAAA", media_type=media_type)
        if media_type.startswith("image/")
        else Document(data="AAAA", media_type=media_type, name="a")
    )
    assert [model for model in MODELS if not words(model, part)] == takers.split()


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("media_type", ["text/plain", "text/x-rust", "application/x-ndjson", "text/csv; charset=utf-8"])
def test_a_text_reaches_every_model(model: str, media_type: str) -> None:
    part = Document(data=data("round and round"), media_type=media_type, name="song")
    told = json.dumps(sent(model, part))
    assert "round and round" in told or data("round and round") in told
    assert "can't be shown" not in told


def test_sounds_are_chats_input_audio() -> None:
    for media_type, name in (("audio/wav", "wav"), ("audio/x-wav", "wav"), ("audio/mpeg", "mp3"), ("audio/mp3", "mp3")):
        part = Document(data="AAAA", media_type=media_type)
        assert sent("openai-chat:gpt-audio", part) == {
            "type": "input_audio",
            "input_audio": {"data": "AAAA", "format": name},
        }


def test_a_document_that_is_a_picture_is_shown_as_one() -> None:
    part = Document(data="AAAA", media_type="image/png", name="map.png")
    assert sent("openai:m", part) == {
        "type": "input_image",
        "image_url": "data:image/png;base64,AAAA",
        "detail": "auto",
    }
    assert sent("openai-chat:m", part)["type"] == "image_url"
    assert sent("anthropic:m", part)["type"] == "image"


def test_a_file_without_a_name_gets_one_that_tells_its_type() -> None:
    part = Document(data="AAAA", media_type=DOCX)
    assert sent("openai:m", part)["filename"] == "document.docx"
    for media_type in OFFICE | TEXTS:
        assert file_name(Document(data="AAAA", media_type=media_type)).startswith("document.")


@pytest.mark.parametrize("model", MODELS)
def test_so_it_is_with_what_a_tool_returns(model: str) -> None:
    call = ToolCall(call_id="c1", name="look")
    zipped = Document(data="UEsDBA==", media_type="application/zip", name="a.zip")
    png = Image(data="iVBO", media_type="image/png")
    result = ToolResult(call_id="c1", name="look", content=(Text(text="Found:"), zipped, png))
    messages = (
        Message.user("?"),
        Message(role="assistant", parts=(call,)),
        Message(role="tool", parts=(result,)),
    )
    told = json.dumps(body_of(model, *messages))
    assert "UEsDBA==" not in told
    assert "[document: a.zip, which this model can't be shown]" in told
    assert "iVBO" in told


TEN_BYTES = data("ten bytes.")


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(
    "written",
    [base64.encodebytes(b"ten bytes.").decode(), TEN_BYTES.rstrip("="), f"{TEN_BYTES[:4]}\r\n {TEN_BYTES[4:]}"],
)
def test_base64_in_lines_or_without_padding_goes_out_as_all_read_it(model: str, written: str) -> None:
    told = json.dumps(sent(model, Image(data=written, media_type="IMAGE/PNG")))
    assert TEN_BYTES in told
    assert "image/png" in told


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(
    "part",
    [
        Image(data="%%%", media_type="image/png"),
        Image(data="", media_type="image/png"),
        Document(data="{}", media_type="application/pdf", name="a.pdf"),
        Document(data="", media_type="text/plain", name="a.txt"),
        Image(url="data:image/png;base64,AAAAA"),
    ],
)
def test_what_is_no_base64_is_told_in_words(model: str, part: Image | Document) -> None:
    assert "which can't be read]" in words(model, part)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("url", ["file:///home/ann/a.png", "ftp://x.org/a.png", "/home/ann/a.png", "a.pdf"])
def test_an_address_that_no_provider_can_fetch_is_told_in_words(model: str, url: str) -> None:
    assert "which this model can't be shown]" in words(model, Image(url=url))
    assert "which this model can't be shown]" in words(model, Document(url=url))


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("url", ["gs://bucket/a.png", "GS://bucket/a.pdf"])
def test_an_address_in_googles_storage_is_fetched_by_google_alone(model: str, url: str) -> None:
    for part in (Image(url=url), Document(url=url)):
        fetched = sent(model, part).get("fileData", {}).get("fileUri") == url
        assert fetched == model.startswith("google:")
        assert fetched or "which this model can't be shown]" in words(model, part)


@pytest.mark.parametrize("model", MODELS)
def test_base64_that_is_escaped_for_an_address_is_read(model: str) -> None:
    written = base64.b64encode(b"\xfb\xff\xbf~").decode()  # +/+/fg==
    told = json.dumps(sent(model, Image(url=f"data:image/png;base64,{quote(written, safe='')}")))
    assert written in told


@pytest.mark.parametrize("model", MODELS)
def test_what_is_in_an_address_is_read_and_not_quoted(model: str) -> None:
    told = json.dumps(sent(model, Document(url="data:text/plain;charset=utf-8,hello%2C%20all")))
    assert "hello, all" in told or data("hello, all") in told
    sound = Document(url=f"data:audio/midi;base64,{'A' * 40_000}")
    assert words(model, sound) == "[document: data:audio/midi;base64, which this model can't be shown]"
