"""Payloads as histories have them, for tests that play a server."""

from __future__ import annotations

from typing import Any

from temporalio.api.common.v1 import Payload, Payloads

from everturn.storage.data_converter import NOT_HAD, data_converter


def payload_of(value: Any) -> Payload:
    """`value` itself, if it is a payload already."""
    return value if isinstance(value, Payload) else data_converter.payload_converter.to_payload(value)


def payloads_of(value: Any) -> Payloads:
    """As most events and commands hold a value."""
    return Payloads(payloads=[payload_of(value)])


def value_in(payload: Payload) -> Any:
    return data_converter.payload_converter.from_payload(payload)


def readable_elsewhere(why: str) -> Payload:
    """What this worker can't read, though another one may be able to."""
    return Payload(metadata={"encoding": NOT_HAD}, data=why.encode())


def of_unknown_encoding() -> Payload:
    """What everturn has never written."""
    return Payload(metadata={"encoding": b"of somebody else"}, data=b"?")
