"""What the bytes of a picture or a file are goes before what somebody said that they are."""

from __future__ import annotations

from base64 import b64encode

import pytest

from everturn.providers.media import Medium, can_take, in_words, medium_of
from everturn.records import Document, Image

PNG, JPEG = b"\x89PNG\r\n\x1a\n" + bytes(8), b"\xff\xd8\xff\xe0\x00\x10JFIF\x00"
GIF, WEBP = b"GIF89a\x01\x00", b"RIFF\x00\x00\x00\x00WEBPVP8 "
PDF, WAV, MP3 = b"%PDF-1.7\n", b"RIFF\x00\x00\x00\x00WAVEfmt ", b"ID3\x04\x00"
MP4, HEIC, WEBM = b"\x00\x00\x00\x18ftypisom", b"\x00\x00\x00\x18ftypheic", b"\x1aE\xdf\xa3\x01"
ZIP, TIFF, BMP = b"PK\x03\x04\x14", b"II*\x00\x08", b"BM\x36\x00"
HTML, SVG = b"<!DOCTYPE html><html>", b"<svg xmlns='http://www.w3.org/2000/svg'>"
DOCX = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"
OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(8)


def coded(content: bytes) -> str:
    return b64encode(content).decode()


@pytest.mark.parametrize(
    ("declared", "content", "is_really"),
    [
        ("image/png", PNG, "image/png"),
        ("image/png", JPEG, "image/jpeg"),
        ("image/jpg", PNG, "image/png"),
        ("image/jpeg", WEBP, "image/webp"),
        ("image/webp", GIF, "image/gif"),
        ("IMAGE/PNG; q=1", JPEG, "image/jpeg"),
        ("image/*", PNG, "image/png"),
        ("application/octet-stream", PDF, "application/pdf"),
        ("image/png", HTML, "text/html"),
        ("image/png", SVG, "image/svg+xml"),
        ("image/png", TIFF, "image/tiff"),
        ("image/png", BMP, "image/bmp"),
        ("image/jpeg", HEIC, "image/heic"),
        ("image/heif", HEIC, "image/heif"),
        ("application/pdf", PNG, "image/png"),
        ("application/pdf", ZIP, "application/zip"),
        ("text/plain", PDF, "application/pdf"),
        ("audio/mpeg", WAV, "audio/wav"),
        ("audio/wav", MP3, "audio/mpeg"),
        # One signature for several types: what was said is right.
        ("audio/mp4", MP4, "audio/mp4"),
        ("video/quicktime", MP4, "video/quicktime"),
        ("audio/webm", WEBM, "audio/webm"),
        (DOCX, ZIP, DOCX),
        # Nothing is known about these bytes.
        ("image/png", b"fake", "image/png"),
        ("text/plain", b"BM is no picture", "text/plain"),
        ("text/html", HTML, "text/html"),
        ("text/csv", b"ID3,name", "text/csv"),
    ],
)
@pytest.mark.parametrize("inline", [False, True], ids=["data", "data: URL"])
def test_a_type_is_what_the_bytes_are(declared: str, content: bytes, is_really: str, inline: bool) -> None:
    if inline and "*" in declared:
        return
    url = f"data:{declared.replace(' ', '')};base64,{coded(content)}"
    part = Document(url=url) if inline else Document(data=coded(content), media_type=declared)
    assert medium_of(part) == Medium(is_really, coded(content))


def test_a_picture_that_is_none_is_not_sent_as_one() -> None:
    assert not can_take(Image(data=coded(HTML), media_type="image/png"), frozenset({"image/png"}))


@pytest.mark.parametrize(
    ("media_type", "content"),
    [
        ("text/plain; charset=utf-8", "Zürich".encode()),
        ("text/csv; charset=iso-8859-1", "Zürich".encode("latin-1")),
        ('text/csv;header=present;CHARSET="windows-1252"', "Zürich".encode("cp1252")),
        ("application/json; charset=utf-16", '"Zürich"'.encode("utf-16")),
        ("text/plain", "Zürich".encode("utf-16")),
        ("text/plain", "Zürich".encode("utf-8-sig")),
        ("text/plain; charset=nonsense", "Zürich".encode()),
    ],
)
def test_a_text_is_read_in_the_charset_that_it_came_in(media_type: str, content: bytes) -> None:
    assert "Zürich" in in_words(Document(data=coded(content), media_type=media_type))


def test_the_charset_of_a_data_url_counts() -> None:
    url = f"data:text/csv;charset=iso-8859-1;base64,{coded('Zürich'.encode('latin-1'))}"
    assert "Zürich" in in_words(Document(url=url))


@pytest.mark.parametrize(
    ("url", "media_type", "content"),
    [
        (f"data:;base64,{coded(PNG)}", "image/png", PNG),
        (f" \ndata:image/png; base64 ,{coded(PNG)}", "image/png", PNG),
        (f"DATA:image/png;base64,{coded(PNG)}", "image/png", PNG),
        ("data:,hello%20all", "text/plain", b"hello all"),
        ("data:;charset=iso-8859-1,Z%FCrich", "text/plain", "Zürich".encode()),
        ("data:text/plain; charset=utf-8,hello%20all", "text/plain", b"hello all"),
        ("data:text/markdown;utf8,hello%20all", "text/markdown", b"hello all"),
    ],
)
def test_a_data_url_is_read_in_every_form_of_it(url: str, media_type: str, content: bytes) -> None:
    """RFC 2397 lets the type out; browsers take spaces, and parameters without a value."""
    expected = Medium(media_type, coded(content))
    assert medium_of(Document(url=url)) == expected
    assert medium_of(Document(data=url, media_type="image/gif")) == expected


@pytest.mark.parametrize(
    ("declared", "name", "content", "is_really"),
    [
        ("application/octet-stream", "notes.md", b"# Notes", "text/markdown"),
        ("application/vnd.ms-excel", "a.csv", b"a,b", "text/csv"),
        ("application/vnd.ms-excel", "a.csv", OLE, "application/vnd.ms-excel"),
        ("application/vnd.ms-excel", "a.xls", b"a,b", "application/vnd.ms-excel"),
        ("text/plain", "a.csv", b"a,b", "text/plain"),
        ("application/octet-stream", "a.md", PNG, "image/png"),
    ],
)
def test_a_name_tells_the_type_where_nothing_else_does(
    declared: str, name: str, content: bytes, is_really: str
) -> None:
    part = Document(data=coded(content), media_type=declared, name=name)
    assert medium_of(part).media_type == is_really


def test_a_text_in_utf_16_goes_out_in_utf_8() -> None:
    part = Document(data=coded(b"\xfe\xff" + "Zürich".encode("utf-16-be")), media_type="text/csv")
    assert medium_of(part) == Medium("text/csv", coded("Zürich".encode()))
