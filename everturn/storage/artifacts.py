"""Results that are too large for a transcript, kept whole: in a directory, or wherever fsspec writes."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol
from urllib.parse import unquote, urlsplit

from everturn.errors import InvalidSetting
from everturn.records import Record, ToolResult
from everturn.storage import directory
from everturn.system import extras

if TYPE_CHECKING:
    from temporalio.api.common.v1 import Payload
    from temporalio.converter import PayloadCodec


class KeptResult(Record):
    """What an artifact holds. It names its conversation: some file systems take `A` and `a` for the same name."""

    conversation_id: str
    result: ToolResult


class Place(Protocol):
    """Keeps files by name. `write` is all or nothing; `read` raises OSError if there is no such file."""

    def write(self, name: str, data: bytes) -> None: ...
    def read(self, name: str) -> bytes: ...
    def count(self, folder: str) -> int:
        """How many files are named `folder/...`."""
        ...

    def delete(self, folder: str) -> int:
        """Deletes the files named `folder/...`; returns how many there were."""
        ...


class Artifacts:
    """A store of whole results, found by conversation and call. Its methods block: call them from a thread.

    `codec` encodes each file, as everturn's `Encryption` does; without one, a worker uses its client's codec. Files
    kept without a codec stay readable.
    """

    def __init__(self, place: Place, *, codec: PayloadCodec | None = None) -> None:
        self._place = place
        self._codec = codec

    @classmethod
    def at(cls, place: str | Path, *, codec: PayloadCodec | None = None) -> Artifacts:
        """The store in a directory, or at any URL that fsspec opens. Raises InvalidSetting."""
        url = urlsplit(str(place)) if "://" in str(place) else None
        if url is None or not url.scheme:
            return cls(directory.Directory(Path(place), holds="artifacts"), codec=codec)
        if url.scheme == "file":
            return cls(directory.Directory(Path(unquote(url.path)), holds="artifacts"), codec=codec)
        return cls(Remote(str(place)), codec=codec)

    def encode_with(self, codec: PayloadCodec | None) -> None:
        """For a worker: encodes new artifacts with this codec, unless the store has one of its own."""
        self._codec = self._codec or codec

    def keep(self, conversation_id: str, result: ToolResult) -> str:
        """Writes a result over any earlier one of the same call; returns its name. Raises OSError and,
        with fsspec, whatever its file system raises."""
        name = name_of(conversation_id, result.call_id)
        data = KeptResult(conversation_id=conversation_id, result=result).model_dump_json().encode()
        if self._codec is not None:
            data = _encode_data(self._codec, data)
        self._place.write(name, data)
        return name

    def read(self, conversation_id: str, call_id: str) -> ToolResult | None:
        """The whole result; None if none was kept. Raises as `keep` does."""
        try:
            data = self._place.read(name_of(conversation_id, call_id))
        except FileNotFoundError:
            return None
        kept = KeptResult.model_validate_json(_decode_data(self._codec, data))
        if (kept.conversation_id, kept.result.call_id) != (conversation_id, call_id):
            return None
        return kept.result

    def count(self, conversation_id: str) -> int:
        """How many results are kept for a conversation. Raises as `keep` does."""
        return self._place.count(directory.path_segments(conversation_id))

    def delete(self, conversation_id: str) -> int:
        """Deletes all files of a conversation; returns how many there were. Raises as `keep` does."""
        return self._place.delete(directory.path_segments(conversation_id))


def _encode_data(codec: PayloadCodec, data: bytes) -> bytes:
    from temporalio.api.common.v1 import Payload

    plain = Payload(metadata={"encoding": b"json/plain"}, data=data)
    (payload,) = _run_codec(codec.encode([plain]))
    return _ENCODED + payload.SerializeToString()


def _decode_data(codec: PayloadCodec | None, data: bytes) -> bytes:
    """Raises InvalidSetting if the data is encoded and there is no codec, and whatever the codec raises."""
    if not data.startswith(_ENCODED):
        return data
    from temporalio.api.common.v1 import Payload

    from everturn.storage.encryption import key_id_of, lacking_key

    payload = Payload.FromString(data[len(_ENCODED) :])
    if codec is None:
        if key_id := key_id_of(payload):
            raise lacking_key(key_id)
        raise InvalidSetting(
            "An artifact is encoded, but no codec is set to read it.",
            cure="Give Artifacts(codec=) the workers' payload codec.",
        )
    (plain,) = _run_codec(codec.decode([payload]))
    return plain.data


def _run_codec(answer: Coroutine[Any, Any, list[Payload]]) -> list[Payload]:
    """Waits for a codec's answer: codecs are asynchronous, and the store's methods block."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(answer)
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, answer).result()


def name_of(conversation_id: str, call_id: str) -> str:
    """`conversation/call`, quoted: a safe path that no other call has."""
    return f"{directory.path_segments(conversation_id)}/{directory.path_segments(call_id)}"


_ENCODED: Final = b"everturn payload 1\n"
"""The first bytes of a file that a codec encoded. JSON begins with a brace."""


class Remote:
    """Any file system of fsspec's: s3://, gs://, az://, memory:// ... An object store's writes are all or nothing."""

    def __init__(self, url: str) -> None:
        try:
            import fsspec
        except ImportError:
            raise InvalidSetting(f"Artifacts at {url!r} need fsspec.", cure=extras.install("artifacts")) from None
        try:
            self._files, self._root = fsspec.core.url_to_fs(url)
        except (ImportError, ValueError) as error:
            raise InvalidSetting(
                f"fsspec does not open {url!r}: {error}.",
                cure="Install fsspec's package for that file system, or use a directory.",
            ) from None

    def write(self, name: str, data: bytes) -> None:
        path = f"{self._root}/{name}"
        self._files.makedirs(path.rpartition("/")[0], exist_ok=True)
        self._files.pipe_file(path, data)

    def read(self, name: str) -> bytes:
        data: bytes = self._files.cat_file(f"{self._root}/{name}", end=directory.MAX_FILE_BYTES)
        return data

    def count(self, folder: str) -> int:
        try:
            return len(self._files.find(f"{self._root}/{folder}"))
        except FileNotFoundError:
            return 0

    def delete(self, folder: str) -> int:
        try:
            if count := self.count(folder):
                self._files.rm(f"{self._root}/{folder}", recursive=True)
        except FileNotFoundError:
            return 0
        return count
