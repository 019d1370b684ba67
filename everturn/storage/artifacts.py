"""Results that are too large for a transcript, kept whole: in a directory, or wherever fsspec writes."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol
from urllib.parse import quote, unquote, urlsplit

from everturn.errors import InvalidSetting
from everturn.records import Record, ToolResult
from everturn.storage import directory

SEGMENT_CHARS = 200
"""File systems take names of 255 bytes."""


class KeptResult(Record):
    """What an artifact holds. It says itself whose it is: a file system may not tell `A` from `a`."""

    conversation_id: str
    result: ToolResult


class Place(Protocol):
    """Where artifacts are, by name. `write` is all or nothing; `read` raises OSError if there is none."""

    def write(self, name: str, data: bytes) -> None: ...
    def read(self, name: str) -> bytes: ...


class Artifacts:
    """A store of whole results, found by conversation and call. Its methods block: call them from a thread."""

    def __init__(self, place: Place) -> None:
        self._place = place

    @classmethod
    def at(cls, place: str | Path) -> Artifacts:
        """The store in a directory, or at any URL that fsspec opens. Raises InvalidSetting."""
        scheme = urlsplit(str(place)).scheme if "://" in str(place) else ""
        if scheme == "file":
            return cls(directory.Directory(Path(unquote(urlsplit(str(place)).path)), holds="artifacts"))
        return cls(Remote(str(place)) if scheme else directory.Directory(Path(place), holds="artifacts"))

    def keep(self, conversation_id: str, result: ToolResult) -> str:
        """Writes a result, in the place of an earlier one of the same call; returns its name. Raises OSError and,
        with fsspec, whatever its file system raises."""
        name = name_of(conversation_id, result.call_id)
        self._place.write(name, KeptResult(conversation_id=conversation_id, result=result).model_dump_json().encode())
        return name

    def read(self, conversation_id: str, call_id: str) -> ToolResult | None:
        """The whole result; None if none was kept. Raises as `keep` does."""
        try:
            kept = KeptResult.model_validate_json(self._place.read(name_of(conversation_id, call_id)))
        except FileNotFoundError:
            return None
        return kept.result if (kept.conversation_id, kept.result.call_id) == (conversation_id, call_id) else None


def name_of(conversation_id: str, call_id: str) -> str:
    """`conversation/call`, quoted so that it is a safe path, and no other call's."""
    return f"{_segments(conversation_id)}/{_segments(call_id)}"


def _segments(text: str) -> str:
    # A dot could make `..`; and + is never in what quote() gives, so it can say that a long name goes on.
    quoted = quote(text, safe="").replace(".", "%2E")
    return "+/".join(quoted[start : start + SEGMENT_CHARS] for start in range(0, len(quoted), SEGMENT_CHARS))


class Remote:
    """Any file system of fsspec's: s3://, gs://, az://, memory:// ... An object store's writes are all or nothing."""

    def __init__(self, url: str) -> None:
        try:
            import fsspec
        except ImportError:
            raise InvalidSetting(
                f"Artifacts at {url!r} need fsspec.", cure="pip install 'everturn[artifacts]'"
            ) from None
        try:
            self._files, self._root = fsspec.core.url_to_fs(url)
        except (ImportError, ValueError) as error:
            raise InvalidSetting(
                f"fsspec does not open {url!r}: {error}.",
                cure="Install the package of that file system, or name a directory.",
            ) from None

    def write(self, name: str, data: bytes) -> None:
        path = f"{self._root}/{name}"
        self._files.makedirs(path.rpartition("/")[0], exist_ok=True)
        self._files.pipe_file(path, data)

    def read(self, name: str) -> bytes:
        data: bytes = self._files.cat_file(f"{self._root}/{name}", end=directory.MAX_FILE_BYTES)
        return data
