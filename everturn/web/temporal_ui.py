"""The address of Temporal's Web UI, for links to it."""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

from everturn.errors import InvalidSetting
from everturn.web.auth import is_loopback

DEV_SERVERS_STEP: Final = 1_000
"""A dev server's Web UI listens at the server's port plus this."""


def check_address(address: str) -> str:
    """Returns the address. Raises InvalidSetting if it is not a web page's, since the inbox links to it."""
    try:
        parts = urlsplit(address)
        good = parts.scheme in ("http", "https") and bool(parts.hostname)
    except ValueError:
        good = False
    if not good:
        raise InvalidSetting(
            f"{address!r} is not the address of a page.",
            cure="Use one such as http://localhost:8233 or https://cloud.temporal.io.",
        )
    return address


def ui_of(target_host: str) -> str | None:
    """The Web UI of a dev server on this machine. None for any other Temporal: its Web UI's address is not known."""
    host, _, port = target_host.rpartition(":")
    if not port.isdecimal() or not is_loopback(host):
        return None
    return f"http://{host}:{int(port) + DEV_SERVERS_STEP}"
