"""The bytes of an answer, decompressed in pieces of bounded size.

httpx decompresses a piece of an answer as a whole, through as many layers as the header names: 58 KB can become
gigabytes before anybody counts them. So we take the raw bytes, and decompress them here, one layer only.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from typing import Final, Protocol

ACCEPTED: Final = "gzip, deflate"
"""What we ask for: Accept-Encoding."""

PIECE_BYTES: Final = 64 * 1024
"""No decompressed piece is larger."""

_GZIP: Final = 16 + zlib.MAX_WBITS
_MEMBER: Final = b"\x1f\x8b"
MAX_MEMBERS: Final = 1000
"""Most members of one gzip body. An empty member has 20 bytes, and costs as much as a long one."""

_COMPRESSED: Final = ("gzip", "x-gzip", "deflate", "br", "zstd", "compress", "x-compress", "bzip2", "xz", "lzma")
"""Other words in the header, such as identity or utf-8, are ignored: some gateways write them."""


class UnknownEncoding(Exception):
    """The answer is compressed in a way that we did not ask for. The message says how."""


class UnreadableBody(Exception):
    """The bytes do not have the encoding that the header names."""


class Decompressor(Protocol):
    def decode_pieces(self, data: bytes) -> Iterator[bytes]:
        """`data` decompressed, in pieces of at most PIECE_BYTES. Raises UnreadableBody."""


def decoder_of(headers: Mapping[str, str]) -> Decompressor:
    """The decompressor for the body of an answer with these headers. Raises UnknownEncoding."""
    words = [word.strip().lower() for word in headers.get("content-encoding", "").split(",")]
    layers = [word for word in words if word in _COMPRESSED]
    if len(layers) > 1:
        raise UnknownEncoding(f"it is compressed {len(layers)} times over ({', '.join(layers)[:100]})")
    match layers:
        case []:
            return _Plain()
        case ["gzip" | "x-gzip"]:
            return _Inflate(_GZIP)
        case ["deflate"]:
            return _Inflate(zlib.MAX_WBITS)
        case _:
            raise UnknownEncoding(f"it is compressed as {layers[0]!r}, but only {ACCEPTED} were asked for")


class _Plain:
    def decode_pieces(self, data: bytes) -> Iterator[bytes]:
        for start in range(0, len(data), PIECE_BYTES):
            yield data[start : start + PIECE_BYTES]


class _Inflate:
    def __init__(self, window: int) -> None:
        self._inflate = zlib.decompressobj(window)
        self._gzip = self._begun = window == _GZIP
        self._members = 1

    def decode_pieces(self, data: bytes) -> Iterator[bytes]:
        while data or not self._inflate.eof:
            if self._inflate.eof and not self._goes_on(data):
                return  # bytes after the end are nothing to us, and would be collected
            piece = self._next_piece(data)
            data = self._inflate.unused_data if self._inflate.eof else self._inflate.unconsumed_tail
            if piece:
                yield piece
            if not data and len(piece) < PIECE_BYTES:
                return

    def _goes_on(self, data: bytes) -> bool:
        """Whether another member comes: a gzip file may be several, one after another (RFC 1952, 2.2)."""
        if not (self._gzip and data.startswith(_MEMBER[: len(data)])):
            return False
        self._members += 1
        if self._members > MAX_MEMBERS:
            raise UnreadableBody(f"it is compressed in more than {MAX_MEMBERS} pieces")
        self._inflate = zlib.decompressobj(_GZIP)
        return True

    def _next_piece(self, data: bytes) -> bytes:
        try:
            return self._inflate.decompress(data, PIECE_BYTES)
        except zlib.error as error:
            if self._begun:
                raise UnreadableBody("its body can't be decompressed") from error
            # "deflate" is to have zlib's header, which some servers leave out.
            self._inflate = zlib.decompressobj(-zlib.MAX_WBITS)
            return self._retry_raw(data)
        finally:
            self._begun = True

    def _retry_raw(self, data: bytes) -> bytes:
        try:
            return self._inflate.decompress(data, PIECE_BYTES)
        except zlib.error as error:
            raise UnreadableBody("its body can't be decompressed") from error
