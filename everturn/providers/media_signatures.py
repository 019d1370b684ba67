"""What bytes are, whatever somebody says that they are: providers look at the bytes, and refuse a request in which both
differ, now and in every later turn.

Source of the signatures: the WHATWG's MIME Sniffing standard (section 6, 2026-09), and for HEIC, AVIF and the Office
formats the file(1) database.
"""

from __future__ import annotations

import binascii
import re
from base64 import b64decode
from typing import Final

_HEAD_CHARS: Final = 256
"""So much base64 is looked at: 192 bytes."""

_SURE: Final[tuple[tuple[bytes, str], ...]] = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"%PDF-", "application/pdf"),
    (b"fLaC", "audio/flac"),
    (b"OggS\x00", "audio/ogg"),
    (b"\x1aE\xdf\xa3", "video/webm"),
    (b"II*\x00", "image/tiff"),
    (b"MM\x00*", "image/tiff"),
    (b"PK\x03\x04", "application/zip"),
    (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "application/x-ole-storage"),
)
"""Signatures that no text begins with."""

_LIKELY: Final[tuple[tuple[bytes, str], ...]] = (
    (b"BM", "image/bmp"),
    (b"ID3", "audio/mpeg"),
    (b"\xff\xfb", "audio/mpeg"),
    (b"\xff\xf3", "audio/mpeg"),
    (b"\xff\xf2", "audio/mpeg"),
    (b"\xff\xf1", "audio/aac"),
    (b"\xff\xf9", "audio/aac"),
)
"""Short ones: they count only where the bytes are said to be a medium, too."""

_RIFF: Final = {b"WEBP": "image/webp", b"WAVE": "audio/wav", b"AVI ": "video/avi"}
_FTYP: Final = {
    **dict.fromkeys((b"heic", b"heix", b"heim", b"heis", b"hevc", b"mif1", b"msf1"), "image/heic"),
    **dict.fromkeys((b"avif", b"avis"), "image/avif"),
    **dict.fromkeys((b"M4A ", b"M4B "), "audio/mp4"),
    b"qt  ": "video/quicktime",
}
_MARKUP: Final = re.compile(rb"\s*<(?:(!doctype html|html|head|body)|(\?xml|svg))[\s>]", re.I)

_MEDIA: Final = ("image/", "audio/", "video/")
UNSAID: Final = frozenset(
    {"", "application/octet-stream", "binary/octet-stream", "image/*", "audio/*", "video/*", "*/*"}
)

_CONTAINERS: Final[dict[str, re.Pattern[str]]] = {
    "image/heic": re.compile("image/hei[cf](-sequence)?"),
    "audio/ogg": re.compile("(audio|video|application)/(ogg|opus)"),
    "video/webm": re.compile("(audio|video)/(webm|x-matroska)"),
    "video/mp4": re.compile("(audio|video)/(mp4|quicktime|mov|3gpp2?)|audio/aac"),
    "video/quicktime": re.compile("video/(quicktime|mov|mp4)"),
    "audio/mp4": re.compile("(audio|video)/mp4|audio/aac"),
    "audio/aac": re.compile("audio/(aac|mpeg|mp4)"),
    "audio/mpeg": re.compile("(audio|video)/mpeg|audio/aac"),
}
"""Types that the same signature may begin. Of these, what was said is right."""


def true_type(declared: str, data: str) -> str:
    """The media type of base64 data: what its bytes are if that can be told, else what was said. `declared`: by its
    most common name, without parameters."""
    head = _first_bytes(data)
    detected = _sure_type(head)
    if detected is None and (declared in UNSAID or declared.startswith(_MEDIA)):
        detected = _likely_type(head, declared)
    if detected is None or detected == declared:
        return declared
    if declared in UNSAID or not _is_container(detected):
        same = _CONTAINERS.get(detected)
        if same and same.fullmatch(declared):
            return declared
        return detected
    # A zip or an OLE file, which may be any of the Office formats.
    if declared.startswith(_MEDIA) or declared == "application/pdf":
        return detected
    return declared


def is_ole(data: str) -> bool:
    """Whether base64 data is a file of Office's before 2007."""
    return _sure_type(_first_bytes(data)) == "application/x-ole-storage"


def _is_container(media_type: str) -> bool:
    return media_type in ("application/zip", "application/x-ole-storage")


def _first_bytes(data: str) -> bytes:
    try:
        return b64decode(data[:_HEAD_CHARS])
    except (binascii.Error, ValueError):
        return b""


def _sure_type(head: bytes) -> str | None:
    if head[:4] == b"RIFF" and head[8:12] in _RIFF:
        return _RIFF[head[8:12]]
    if head[:4] == b"FORM" and head[8:12] in (b"AIFF", b"AIFC"):
        return "audio/aiff"
    if head[4:8] == b"ftyp":
        return _FTYP.get(head[8:12], "video/mp4")
    return next((kind for signature, kind in _SURE if head.startswith(signature)), None)


def _likely_type(head: bytes, declared: str) -> str | None:
    if markup := _MARKUP.match(head):
        if markup[1]:
            return "text/html"
        return "image/svg+xml" if b"<svg" in head.lower() else "text/xml"
    if declared.startswith("audio/") or declared in UNSAID or declared == "image/bmp":
        return next((kind for signature, kind in _LIKELY if head.startswith(signature)), None)
    # A picture's data may begin with any two bytes, if its type has no signature here.
    if head.startswith(b"BM") and declared.startswith("image/"):
        return "image/bmp"
    return None
