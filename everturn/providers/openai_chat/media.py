"""Chat Completions: a model's media. OpenAI's sound (`audio`), and OpenRouter's pictures (`images`).

A sound is a Text, its transcript, and a Document with the sound itself. It is sent back by its id, until that expires.
"""

from __future__ import annotations

import binascii
from base64 import b64decode, b64encode
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from math import inf
from typing import Any, Final

from everturn.providers.base import Request
from everturn.providers.json_values import a_dict, a_str, mend_texts
from everturn.providers.media import PICTURES, can_take, url_of
from everturn.records import Document, Image, Message, Part, Text
from everturn.text.utf8 import mend

AUDIO: Final = "audio"
"""In the `extra` of both parts of a sound: its id, and when the id expires."""
IMAGES: Final = "images"
"""The field that OpenRouter gives pictures in, and takes them back in."""


@dataclass(slots=True)
class Media:
    """The sound and the pictures of a reply, as received so far."""

    request: Request
    _id: dict[str, Any] = field(default_factory=dict)
    _sound: list[str] = field(default_factory=list)
    _transcript: list[str] = field(default_factory=list)
    _pictures: list[Image] = field(default_factory=list)

    def take_audio(self, audio: dict[str, Any]) -> str:
        """Reads a piece of the sound, or all of it; returns what it adds to the transcript."""
        self._id |= {name: audio[name] for name in ("id", "expires_at") if audio.get(name) is not None}
        if data := a_str(audio.get("data")):
            self._sound.append(data)
        if words := a_str(audio.get("transcript")):
            self._transcript.append(words)
        return words

    def take_images(self, blocks: Sequence[Any], *, beside: bool) -> None:
        """Reads blocks of type image_url; `beside`: they came beside the content, not in it."""
        for block in map(a_dict, blocks):
            given = block.get("image_url")
            url = mend(a_str(given) or a_str(a_dict(given).get("url")))
            header, comma, data = url.partition(",")
            extra: dict[str, Any] = {IMAGES: True} if beside else {}
            if comma and header.startswith("data:") and header.endswith(";base64") and data:
                media_type = header[5:].partition(";")[0] or "image/png"
                self._pictures.append(Image(data=data, media_type=media_type, extra=extra))
            elif url and not url.startswith("data:"):
                self._pictures.append(Image(url=url, extra=extra))

    def as_parts(self) -> Iterator[Part]:
        if self._id or self._sound or self._transcript:
            extra = {AUDIO: mend_texts(self._id)}
            yield Text(text=mend("".join(self._transcript)), extra=extra)
            if self._sound:
                audio_settings = a_dict(self.request.settings.extra.get("audio"))
                media_type = f"audio/{a_str(audio_settings.get('format')) or 'wav'}"
                yield Document(data=mend(_joined_base64(self._sound)), media_type=media_type, extra=extra)
        yield from self._pictures


def find_sound(message: Message, now: datetime | None) -> tuple[str, frozenset[int]]:
    """The id that stands for a message's sound, and the places of the parts that it replaces; empty if there is none or
    if it has expired by `now`, or by our clock if the provider's is not known."""
    sounds = [place for place, part in enumerate(message.parts) if AUDIO in part.extra]
    if not sounds:
        return "", frozenset()
    audio = a_dict(message.parts[sounds[0]].extra[AUDIO])
    name = a_str(audio.get("id"))
    expires_at = audio.get("expires_at")
    if not name or not isinstance(expires_at, int | float) or expires_at <= (now or datetime.now(UTC)).timestamp():
        return "", frozenset()
    return name, frozenset(sounds)


def sound_expiry(message: Message, now: datetime | None) -> float:
    """When the id of a message's sound expires, as a timestamp; infinite if there is none."""
    name, places = find_sound(message, now)
    if not name:
        return inf
    return float(a_dict(message.parts[min(places)].extra[AUDIO])["expires_at"])


def is_sound(part: Part) -> bool:
    """Whether the part is a sound whose transcript is in the same message."""
    return isinstance(part, Document) and AUDIO in part.extra


def pictures_beside(message: Message) -> list[dict[str, Any]]:
    """The pictures that came beside a message's content, to go back there."""
    images = (part for part in message.parts if isinstance(part, Image) and IMAGES in part.extra)
    accepted = [part for part in images if can_take(part, PICTURES)]
    return [{"type": "image_url", "image_url": {"url": url_of(part)}} for part in accepted]


def _joined_base64(pieces: Sequence[str]) -> str:
    """Pieces of base64 as one: a piece may end anywhere in the sound, and then with a padding of its own."""
    if not any(piece.endswith("=") for piece in pieces[:-1]):
        return "".join(pieces)
    try:
        return b64encode(b"".join(map(b64decode, pieces))).decode()
    except (binascii.Error, ValueError):
        return "".join(pieces)
