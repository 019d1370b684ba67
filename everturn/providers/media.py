"""Which pictures, files and sounds a provider takes. Any other is a 400, now and in every later request: so each
protocol has a list of types that may be sent, and other media are replaced by a text.

Sources: OpenAI's guides on images and on file inputs ("Chat Completions accepts only PDF files"), and its error text
"... supported image formats: ['image/jpeg', 'image/png', 'image/gif', 'image/webp']"; the openai SDK's
ChatCompletionContentPartInputAudioParam ("wav", "mp3"); Anthropic's guides on vision and PDF support; Gemini's guides
on image, document, audio and video understanding; Mistral's on document Q&A.
"""

from __future__ import annotations

import binascii
import codecs
import mimetypes
import re
from base64 import b64decode, b64encode
from typing import Final, NamedTuple
from urllib.parse import unquote_to_bytes, urlsplit

from everturn.http.headers import media_type_in
from everturn.providers.base import placeholder
from everturn.providers.media_signatures import UNSAID, is_ole, true_type
from everturn.records import Document, Image
from everturn.text.base64_text import as_base64

PICTURES: Final = frozenset({"image/png", "image/jpeg", "image/webp", "image/gif"})
"""OpenAI's, Anthropic's, and those of all servers that speak like them."""

PDF: Final = "application/pdf"

UNREADABLE: Final = "which can't be read"

_OPENXML = "application/vnd.openxmlformats-officedocument."
OFFICE: Final = frozenset(
    {
        *(PDF, "application/rtf", "text/rtf", "application/msword", f"{_OPENXML}wordprocessingml.document"),
        *("application/vnd.ms-powerpoint", f"{_OPENXML}presentationml.presentation"),
        *("application/vnd.ms-excel", f"{_OPENXML}spreadsheetml.sheet", "application/vnd.oasis.opendocument.text"),
    }
)
"""Files other than text, as OpenAI's Responses and Mistral take them."""

TEXTS: Final = frozenset(
    {
        *("text/plain", "text/markdown", "text/html", "text/csv", "text/tab-separated-values", "text/xml", "text/css"),
        *("text/javascript", "text/x-python", "text/x-script.python", "text/x-c", "text/x-c++", "text/x-csharp"),
        *("text/x-java", "text/x-php", "text/x-ruby", "text/x-tex", "application/json", "application/xml"),
        *("application/x-sh", "application/typescript", "application/javascript"),
    }
)
"""Text files that OpenAI's Responses takes as files. Other text files are put into the message as text."""

SOUNDS: Final = {"audio/wav": "wav", "audio/mpeg": "mp3"}
"""The types that Chat's `input_audio` takes, and its names for them."""

GEMINI: Final = frozenset(
    {
        *("image/png", "image/jpeg", "image/webp", "image/heic", "image/heif"),
        *(PDF, "text/plain", "text/html", "text/css", "text/markdown", "text/csv", "text/xml", "text/rtf"),
        *("text/javascript", "text/x-python", "text/x-typescript"),
        *("audio/wav", "audio/mpeg", "audio/aiff", "audio/aac", "audio/ogg", "audio/flac", "audio/mp4", "audio/opus"),
        *("audio/webm", "audio/pcm"),
        *("video/mp4", "video/mpeg", "video/mov", "video/quicktime", "video/avi", "video/x-flv", "video/webm"),
        *("video/wmv", "video/3gpp"),
    }
)

_SAME: Final = {
    "image/jpg": "image/jpeg",
    "image/pjpeg": "image/jpeg",
    "application/x-pdf": PDF,
    "audio/x-wav": "audio/wav",
    "audio/wave": "audio/wav",
    "audio/vnd.wave": "audio/wav",
    "audio/mp3": "audio/mpeg",
    "audio/x-mp3": "audio/mpeg",
    "audio/mpga": "audio/mpeg",
    "audio/m4a": "audio/mp4",
    "audio/x-m4a": "audio/mp4",
    "audio/x-aiff": "audio/aiff",
    "audio/x-aac": "audio/aac",
    "audio/x-flac": "audio/flac",
    "video/mpg": "video/mpeg",
    "video/x-msvideo": "video/avi",
    "video/x-ms-wmv": "video/wmv",
    "application/x-javascript": "application/javascript",
}
_TEXTUAL = re.compile(
    r"text/(?!rtf).*|application/(?:[\w.-]+\+)?(?:json|xml|yaml)"
    r"|application/(?:x-yaml|toml|x-toml|sql|x-sql|x-ndjson|jsonl|javascript|typescript|x-sh|graphql)"
)
_CHARSET = re.compile(r";\s*charset\s*=\s*(?:\"([\w.:+-]+)\"|([\w.:+-]+))", re.I)
_DATA_URL = re.compile(
    r"\s*data:([\w.+-]+/[\w.+-]+)?((?:;\s*(?!base64\s*$)[\w.+-]+(?:=[^;,]*)?)*)(;\s*base64\s*)?", re.I
)
_PLAIN_TEXT: Final = "text/plain"
"""The type of a `data:` URL that names none (RFC 2397)."""
SCHEMES: Final = ("http://", "https://")
"""Schemes of addresses that every provider can fetch: never a file of this machine."""


_MARKS: Final = ((codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))
"""Byte order marks, which say by themselves how a text is written."""
_UTF_16_MARKS: Final = ("//", "/v")
"""How base64 of the two marks of UTF-16 begins."""
_EXCEL: Final = "application/vnd.ms-excel"
_SUFFIXES: Final = {
    **dict.fromkeys(("text/rtf", "application/rtf"), ".rtf"),
    "text/x-script.python": ".py",
    "text/x-c": ".c",
    "text/x-c++": ".cpp",
    "text/x-csharp": ".cs",
    "text/x-php": ".php",
    "text/x-ruby": ".rb",
    "application/typescript": ".ts",
}
"""What Python's table lacks."""


class Medium(NamedTuple):
    """The content of an Image or a Document."""

    media_type: str
    """By its most common name; empty if it is not known."""
    data: str | None
    """Base64; None if there is only a URL; empty if it is no base64, or nothing at all."""


def medium_of(part: Image | Document) -> Medium:
    """The part's content. A `data:` URL is decoded; of another URL, the path may show the type. What the bytes are goes
    before what was said; a text is in UTF-8, whatever `charset` it came in."""
    written = part.media_type or ""
    data = part.data
    if data and (inline := _inline_data(data)):  # a whole `data:` URL in the place of its content
        written = inline[0]
        data = inline[1]
    elif part.url and (inline := _inline_data(part.url)):
        written, data = inline
    elif part.url and not written:
        written = mimetypes.guess_type(_url_path(part.url))[0] or ""
    media_type = bare_type(written)
    if data is None:
        return Medium(media_type, None)
    data = as_base64(data)
    media_type = true_type(media_type, data)
    if isinstance(part, Document) and part.name:
        media_type = _type_by_name(media_type, data, part.name)
    if _TEXTUAL.fullmatch(media_type):
        charset = _CHARSET.search(written) or ("", "", "")
        data = _in_utf8(data, charset[1] or charset[2])
    return Medium(media_type, data)


def _type_by_name(media_type: str, data: str, name: str) -> str:
    """The type that a file's name shows, if nobody could say better. Browsers send files that their system does not
    know as octet-stream, and those of Windows a CSV as Excel's."""
    by_name = bare_type(mimetypes.guess_type(name)[0] or "")
    is_csv = media_type == _EXCEL and by_name == "text/csv" and not is_ole(data)
    if by_name and (media_type in UNSAID or is_csv):
        return by_name
    return media_type


def bare_type(written: str) -> str:
    """A media type by its most common name, without parameters such as `; charset=utf-8`."""
    media_type = media_type_in(written)
    return _SAME.get(media_type, media_type)


def _in_utf8(data: str, charset: str) -> str:
    """Base64 of a text, in UTF-8, by the charset that was named or by its byte order mark; unchanged if it is not in
    that charset."""
    try:
        if not charset and data[:2] in _UTF_16_MARKS:
            charset = "utf-16"
        if not charset or codecs.lookup(charset).name in ("utf-8", "ascii"):
            return data
        return b64encode(b64decode(data).decode(charset).encode()).decode()
    except (LookupError, binascii.Error, ValueError):
        return data


def _inline_data(url: str) -> tuple[str, str] | None:
    """The type and the base64 of a `data:` URL."""
    if url[:64].lstrip()[:5].lower() != "data:":
        return None
    head, comma, data = url.partition(",")
    match = _DATA_URL.fullmatch(head)
    if match is None or not comma:
        return None
    if not match[3]:
        data = b64encode(unquote_to_bytes(data)).decode()
    return (match[1] or _PLAIN_TEXT) + match[2], data


def url_of(part: Image | Document) -> str:
    """The part's address, or a `data:` URL with its content."""
    media_type, data = medium_of(part)
    if data is None:
        return part.url or ""
    return f"data:{media_type};base64,{data}"


def can_take(part: Image | Document, accepted_types: frozenset[str], *, schemes: tuple[str, ...] = SCHEMES) -> bool:
    """Whether the part can be sent: its content is readable and of an accepted type, or the provider fetches addresses
    of its scheme. A part of unknown type passes: the provider will find out its type."""
    media_type, data = medium_of(part)
    if data is None:
        return (not media_type or media_type in accepted_types) and (part.url or "").lower().startswith(schemes)
    return bool(data) and media_type in accepted_types


def is_picture(part: Image | Document) -> bool:
    return isinstance(part, Image) or medium_of(part).media_type in PICTURES


def in_words(part: Image | Document) -> str:
    """The part as a text: its content if that is text, else a notice that it is not shown."""
    media_type, data = medium_of(part)
    if data == "":
        return placeholder(part, UNREADABLE)
    if isinstance(part, Image) or data is None or not _TEXTUAL.fullmatch(media_type):
        return placeholder(part)
    text = _decode_text(data)
    if text is None:
        return placeholder(part, UNREADABLE)
    return f"[document: {part.name or part.media_type or media_type}]\n{text}"


def text_of(document: Document) -> str:
    """Its content, if that is text; else empty."""
    media_type, data = medium_of(document)
    if not data or not _TEXTUAL.fullmatch(media_type):
        return ""
    return _decode_text(data) or ""


def _decode_text(data: str) -> str | None:
    """The text in base64; None if it is not a text."""
    try:
        content = b64decode(data)
        with_mark = next((charset for mark, charset in _MARKS if content.startswith(mark)), "utf-8")
        return content.decode(with_mark)
    except (binascii.Error, ValueError):
        return None


def file_name(document: Document) -> str:
    """Its name, or one that shows its type."""
    media_type = medium_of(document).media_type
    return document.name or f"document{_SUFFIXES.get(media_type) or mimetypes.guess_extension(media_type) or ''}"


def _url_path(url: str) -> str:
    try:
        return urlsplit(url).path
    except ValueError:
        return ""
