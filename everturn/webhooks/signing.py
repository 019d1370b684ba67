"""Signatures of webhooks as Standard Webhooks has them (https://www.standardwebhooks.com, version 1.0.0)."""

from __future__ import annotations

import hmac
from base64 import b64decode, b64encode
from binascii import Error
from collections.abc import Iterable, Mapping
from typing import Final

SECRET_PREFIX: Final = "whsec_"
LEAST_KEY_BYTES: Final = 24
MOST_KEY_BYTES: Final = 64


def signing_keys(secrets: str) -> tuple[bytes, ...]:
    """The keys of one secret, or of several with spaces between them, while a secret is replaced. Raises ValueError."""
    keys = tuple(map(_key_of, secrets.split()))
    if not keys:
        raise ValueError("it is empty")
    return keys


def _key_of(secret: str) -> bytes:
    encoded = secret.removeprefix(SECRET_PREFIX)
    if encoded == secret:
        raise ValueError(f"it does not begin with {SECRET_PREFIX}")
    try:
        key = b64decode(encoded + "=" * (-len(encoded) % 4), validate=True)
    except Error:
        raise ValueError(f"what follows {SECRET_PREFIX} is no base64") from None
    if not LEAST_KEY_BYTES <= len(key) <= MOST_KEY_BYTES:
        raise ValueError(f"its key has {len(key)} bytes, and not {LEAST_KEY_BYTES} to {MOST_KEY_BYTES}")
    return key


def signed_headers(keys: Iterable[bytes], message_id: str, timestamp: int, body: bytes) -> Mapping[str, str]:
    """The headers that let a receiver check the body. `timestamp`: of this try, in seconds since 1970."""
    content = f"{message_id}.{timestamp}.".encode() + body
    signatures = (b64encode(hmac.digest(key, content, "sha256")).decode() for key in keys)
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": " ".join(f"v1,{signature}" for signature in signatures),
    }
