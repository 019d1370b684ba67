"""Connects to Temporal, with the data converter that the settings ask for."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import temporalio.client
from temporalio.converter import ExternalStorage

from everturn.client import interpreter_exit, process_identity
from everturn.errors import InvalidSetting, Unreachable
from everturn.settings import Settings
from everturn.storage.codecs import with_encryption
from everturn.storage.data_converter import configured_converter, with_storage
from everturn.storage.encryption import Encryption
from everturn.temporal.connect_options import connect_options
from everturn.text.utf8 import check_utf8

_PORT = re.compile(r":\d+/?$")
_HOST_AND_PORT = re.compile(r"(?P<scheme>\w+://)?(?P<rest>[^/:].*?)/*")


async def connect_to_temporal(
    settings: Settings,
    address: str | None,
    storage: ExternalStorage | Path | str | None,
    encryption: Encryption | None,
    options: dict[str, Any],
) -> temporalio.client.Client:
    """As `Client.connect` says. Raises Unreachable and InvalidSetting."""
    merged: dict[str, Any] = {"identity": process_identity.own_identity(), **connect_options(), **options}
    if "data_converter" in merged:
        encryption = encryption or Encryption.of_settings(settings)
        merged["data_converter"] = with_encryption(merged["data_converter"], encryption)
    else:
        merged["data_converter"] = configured_converter(encryption)
    if stores := storage or settings.storage:
        merged["data_converter"] = with_storage(merged["data_converter"], stores)
    place = "TEMPORAL_ADDRESS"
    if address:
        place = "the address"
        merged["target_host"] = check_utf8("address", address)
    _check_host(merged["target_host"], place)
    interpreter_exit.runtime_is_used()
    try:
        return await temporalio.client.Client.connect(**merged)
    except RuntimeError as error:
        if not _PORT.search(host := merged["target_host"]):
            raise Unreachable(
                f"No Temporal server answers at {host!r}: the port is missing.",
                cure=f"Write {host}:7233 in {place}, if it has the usual port.",
            ) from error
        raise Unreachable(
            f"No Temporal server answers at {merged['target_host']}.",
            cure="Start one with `everturn up` (with TEMPORAL_ADDRESS unset), or set "
            "TEMPORAL_ADDRESS to a running server.",
        ) from error
    except AssertionError as error:  # the SDK's, if this process was forked from one that had connected
        raise InvalidSetting(
            f"This process can't connect: {error}.",
            cure="Fork a process before it connects, or start others with multiprocessing's 'spawn'.",
        ) from error


def _check_host(host: str, place: str) -> None:
    """Raises InvalidSetting for an address that names no host, or that is a URL: of a URL, the scheme alone decides
    whether the SDK encrypts, whatever `tls` says, and a later version refuses it."""
    match = _HOST_AND_PORT.fullmatch(host)
    if match is None:
        raise InvalidSetting(
            f"Temporal can't be reached at {host!r}: the host is missing.", cure=f"Write HOST:PORT in {place}."
        )
    if match["scheme"]:
        raise InvalidSetting(
            f"Temporal can't be reached at {host!r}: its address is no URL.",
            cure=f"Write {match['rest']} in {place}. For TLS, set TEMPORAL_TLS=true, or pass tls=True.",
        )
