"""How worlds write what is in their histories: plainly, or encrypted as `Encryption` does it."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from temporalio.converter import DataConverter

from everturn.storage.data_converter import data_converter
from everturn.storage.encryption import Encryption

KEYS = {"new": b"n" * 16, "old": b"o" * 16}


@cache
def converter(*, sealed: bool) -> DataConverter:
    return replace(data_converter, payload_codec=Encryption(KEYS)) if sealed else data_converter
