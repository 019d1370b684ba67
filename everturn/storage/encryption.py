"""Encrypts payloads with AES-GCM before they leave a process: the server can't read what it stores.

The format is that of Temporal's own samples in Go, TypeScript and Python (encoding `binary/encrypted`, the key's id in
the metadata, a 12-byte nonce before the ciphertext): a worker in another language can read it with their codec.
"""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import subprocess
import threading
import time
from base64 import b64decode, urlsafe_b64decode
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, Self

from temporalio.api.common.v1 import Payload
from temporalio.converter import PayloadCodec

from everturn.errors import InvalidSetting
from everturn.sizes import MAX_KEY_ID_CHARS
from everturn.system import extras
from everturn.validation.spelling import known_options

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    from everturn.settings import Settings

Compression = Literal["none", "zstd"]

ENCRYPTED: Final = b"binary/encrypted"
ZSTD: Final = b"binary/zstd"
KEY_ID: Final = "encryption-key-id"

NONCE_BYTES: Final = 12
KEY_BYTES: Final = (16, 24, 32)

SMALL_BYTES: Final = 512
"""Smaller payloads are not compressed: that would not make them smaller."""

MAX_DECOMPRESSED_BYTES: Final = 256 * 1024 * 1024
"""A limit, since anybody with the key could send a small payload that decompresses to a thousand times its size."""

COMMAND_SECONDS: Final = 30.0
ASK_AGAIN_SECONDS: Final = 30.0
"""For an unknown key, the key source is called again at most this often."""

_ID: Final = re.compile(rf"[A-Za-z0-9._-]{{1,{MAX_KEY_ID_CHARS}}}")
_CURE: Final = "Write id:key, with a comma between keys. `openssl rand -base64 32` makes a key. The first key encrypts."

KeySource = Callable[[], Mapping[str, bytes]]


class Encryption(PayloadCodec):
    """A payload codec: AES-GCM, with as many keys as are in use. The first of `keys` encrypts; all of them decrypt.

    `keys`: by their ids, 16, 24 or 32 bytes each, such as `{"2026-11": key, "2026-05": older_key}`; or a function
    that returns them, which is called again if an unknown key comes up. `compression="zstd"`: payloads are made
    smaller first (their sizes then say a little more of what is in them). What is not encrypted is read as it is: the
    conversations of before, and what people send by Temporal's Web UI. Raises InvalidSetting.
    """

    @known_options("Encryption", InvalidSetting)
    def __init__(self, keys: Mapping[str, bytes] | KeySource, *, compression: Compression = "none") -> None:
        if compression not in ("none", "zstd"):
            raise InvalidSetting(f"There is no compression {compression!r}.", cure="Use 'none' or 'zstd'.")
        self._compression = compression
        if compression == "zstd":
            _import_zstd()  # a missing package is an error now, not at the first large payload
        self._source = keys if callable(keys) else None
        self._asked_at = time.monotonic()
        self._asking = threading.Lock()
        self._ciphers: dict[str, AESGCM] = {}
        self.key_id = ""
        """The id of the key that encrypts."""
        self._set_keys(keys() if callable(keys) else keys)

    @classmethod
    def of_settings(cls, settings: Settings) -> Self | None:
        """The encryption that EVERTURN_ENCRYPTION_KEYS or EVERTURN_ENCRYPTION_COMMAND sets; None if neither is set."""
        command = settings.encryption_command
        if settings.encryption_keys is not None and command:
            raise InvalidSetting(
                "EVERTURN_ENCRYPTION_KEYS and EVERTURN_ENCRYPTION_COMMAND are both set.", cure="Set one of them."
            )
        if settings.encryption_keys is not None:
            keys = read_keys(settings.encryption_keys.get_secret_value(), source="EVERTURN_ENCRYPTION_KEYS")
            return cls(keys, compression=settings.encryption_compression)
        if command:
            return cls(lambda: keys_of_command(command), compression=settings.encryption_compression)
        return None

    @property
    def key_ids(self) -> tuple[str, ...]:
        """The ids of the keys that decrypt; the first one encrypts."""
        return tuple(self._ciphers)

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        return [self._encrypt_payload(payload) for payload in payloads]

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """Raises InvalidSetting for an unknown key, and for a payload that was changed on its way."""
        for payload in payloads:
            if is_encrypted(payload) and _key_id(payload) not in self._ciphers:
                await asyncio.to_thread(self._ask_for_key, _key_id(payload))
        return [self._decrypt_payload(payload) if is_encrypted(payload) else payload for payload in payloads]

    # ------------------------------------------------------------ one payload

    def _encrypt_payload(self, payload: Payload) -> Payload:
        nonce = os.urandom(NONCE_BYTES)
        data = self._compress_payload(payload).SerializeToString()
        metadata = {"encoding": ENCRYPTED, KEY_ID: self.key_id.encode()}
        return Payload(metadata=metadata, data=nonce + self._ciphers[self.key_id].encrypt(nonce, data, None))

    def _decrypt_payload(self, payload: Payload) -> Payload:
        from cryptography.exceptions import InvalidTag

        key_id = _key_id(payload)
        nonce = payload.data[:NONCE_BYTES]
        data = payload.data[NONCE_BYTES:]
        try:
            inner_payload = Payload.FromString(self._ciphers[key_id].decrypt(nonce, data, None))
        except (InvalidTag, ValueError) as error:
            raise InvalidSetting(
                f"A payload can't be decrypted with the key {key_id!r}: it was changed, or "
                "encrypted with another key of the same id.",
                cure="Give each key its own id, and never use an id again.",
            ) from error
        return _decompress_payload(inner_payload)

    def _compress_payload(self, payload: Payload) -> Payload:
        if self._compression == "none" or payload.ByteSize() < SMALL_BYTES:
            return payload
        small = Payload(
            metadata={"encoding": ZSTD}, data=_import_zstd().ZstdCompressor().compress(payload.SerializeToString())
        )
        if small.ByteSize() >= payload.ByteSize():
            return payload
        return small

    # ------------------------------------------------------------ keys

    def _set_keys(self, keys: Mapping[str, bytes]) -> None:
        aesgcm = _import_aesgcm()
        if not keys:
            raise InvalidSetting("There is no key to encrypt with.", cure=_CURE)
        ciphers: dict[str, AESGCM] = {}
        for key_id, key in keys.items():
            if not isinstance(key_id, str) or not _ID.fullmatch(key_id):
                raise InvalidSetting(
                    f"{str(key_id)[:MAX_KEY_ID_CHARS]!r} is not a key id.",
                    cure=f"Use 1 to {MAX_KEY_ID_CHARS} letters, digits, dots, dashes and underscores.",
                )
            if not isinstance(key, bytes) or len(key) not in KEY_BYTES:
                raise InvalidSetting(f"The key {key_id!r} has {len(key)} bytes; AES takes 16, 24 or 32.", cure=_CURE)
            ciphers[key_id] = aesgcm(key)
        self._ciphers = ciphers
        self.key_id = next(iter(ciphers))

    def _ask_for_key(self, key_id: str) -> None:
        """Blocks. Raises InvalidSetting if the key can't be had."""
        failed: InvalidSetting | None = None
        with self._asking:
            due = time.monotonic() - self._asked_at >= ASK_AGAIN_SECONDS
            if self._source is not None and key_id not in self._ciphers and due:
                self._asked_at = time.monotonic()
                try:
                    self._set_keys(self._source())
                except InvalidSetting as error:
                    failed = error
        if key_id not in self._ciphers:
            if not failed:
                raise lacking_key(key_id, known=self.key_ids)
            reason = f", and asking for it failed: {failed.message.rstrip('.')}"
            # An OSError as the cause: the command may answer later, so a worker retries for as long as it fails.
            raise lacking_key(key_id, known=self.key_ids, reason=reason) from OSError(failed.message)


def is_encrypted(payload: Payload) -> bool:
    return payload.metadata.get("encoding") == ENCRYPTED


def lacking_key(key_id: str, *, known: Iterable[str] = (), reason: str = "") -> InvalidSetting:
    cure = (
        "Set EVERTURN_ENCRYPTION_KEYS (or EVERTURN_ENCRYPTION_COMMAND) to the same "
        "value as where the conversation runs."
    )
    if has := ", ".join(map(repr, known)):
        cure = f"It has {has}: add that key at the end of EVERTURN_ENCRYPTION_KEYS (or to the key command's output)."
    return InvalidSetting(
        f"This conversation is encrypted with the key {key_id!r}, which this process does not have{reason}.", cure=cure
    )


def key_id_of(payload: Payload) -> str:
    """The id of the key that encrypts the payload; empty if it is not encrypted or names no key."""
    if not is_encrypted(payload) or KEY_ID not in payload.metadata:
        return ""
    return _key_id(payload)


def _key_id(payload: Payload) -> str:
    # Cut, since errors show it and anybody may have written it.
    return payload.metadata.get(KEY_ID, b"").decode("utf-8", "replace")[:MAX_KEY_ID_CHARS]


def _decompress_payload(payload: Payload) -> Payload:
    if payload.metadata.get("encoding") != ZSTD:
        return payload
    zstd = _import_zstd()
    try:
        if zstd.frame_content_size(payload.data) > MAX_DECOMPRESSED_BYTES:
            raise ValueError("its header gives a size larger than any payload's")
        return Payload.FromString(
            zstd.ZstdDecompressor().decompress(payload.data, max_output_size=MAX_DECOMPRESSED_BYTES)
        )
    except (zstd.ZstdError, ValueError) as error:
        raise ValueError(f"A payload can't be decompressed: {error}") from error


# ---------------------------------------------------------------- where keys come from


def read_keys(text: str, *, source: str) -> dict[str, bytes]:
    """Keys by their ids, of `id:key, id:key`: with commas or line ends between, and each key in base64. Raises
    InvalidSetting, which names `source` and never shows a key."""
    keys: dict[str, bytes] = {}
    for number, item in enumerate(filter(None, re.split(r"[,\s]+", text)), start=1):
        key_id, colon, written = item.partition(":")
        if not colon or not _ID.fullmatch(key_id):
            raise InvalidSetting(f"Item {number} of {source} is not id:key.", cure=_CURE)
        if key_id in keys:
            raise InvalidSetting(f"{source} has two keys with the id {key_id!r}.", cure="Give each key its own id.")
        try:
            key = urlsafe_b64decode(written) if {*"-_"} & {*written} else b64decode(written, validate=True)
        except ValueError:
            raise InvalidSetting(f"The key {key_id!r} in {source} is not base64.", cure=_CURE) from None
        if len(key) not in KEY_BYTES:
            raise InvalidSetting(
                f"The key {key_id!r} in {source} has {len(key)} bytes; AES takes 16, 24 or 32.", cure=_CURE
            )
        keys[key_id] = key
    if not keys:
        raise InvalidSetting(f"{source} holds no key.", cure=_CURE)
    return keys


def keys_of_command(command: str) -> dict[str, bytes]:
    """The keys that the command prints, written as in EVERTURN_ENCRYPTION_KEYS. Raises InvalidSetting."""
    source = "what EVERTURN_ENCRYPTION_COMMAND prints"
    try:
        words = shlex.split(command)
        done = subprocess.run(words, capture_output=True, timeout=COMMAND_SECONDS, check=False)
        printed = done.stdout.decode()
    except (OSError, ValueError, IndexError, subprocess.SubprocessError) as error:
        error_text = getattr(error, "strerror", None) or type(error).__name__
        raise InvalidSetting(
            f"EVERTURN_ENCRYPTION_COMMAND can't be run: {error_text}.", cure="Run it by hand: it has to print id:key."
        ) from None
    if done.returncode:  # its output is not shown: it may hold a key
        raise InvalidSetting(
            f"EVERTURN_ENCRYPTION_COMMAND failed, with exit status {done.returncode}.",
            cure="Run it by hand to see why.",
        )
    return read_keys(printed, source=source)


def _import_aesgcm() -> type[AESGCM]:
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    except ImportError:
        raise InvalidSetting(
            "Encryption needs cryptography, which is not installed.", cure=extras.install("encryption")
        ) from None
    return AESGCM


def _import_zstd() -> Any:
    try:
        import zstandard
    except ImportError:
        raise InvalidSetting(
            "Compression by zstd needs zstandard, which is not installed.", cure=extras.install("encryption")
        ) from None
    return zstandard
