"""How to reach Temporal: what its own variables and profiles say."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from everturn.errors import InvalidSetting
from everturn.settings import refuse_garbled_variables
from everturn.text.utf8 import is_utf8


class ConnectOptions(dict[str, Any]):
    """Keyword arguments for temporalio's `Client.connect`. Its repr shows the address, and no key."""

    def __repr__(self) -> str:
        return f"ConnectOptions({self.get('target_host')!r}, namespace={self.get('namespace')!r})"


def connect_options() -> ConnectOptions:
    """How to reach Temporal: TEMPORAL_ variables over the profile over Temporal's defaults.

    Raises InvalidSetting for a profile that is not there, an unreadable file, a certificate that can't be read.
    """
    from temporalio.envconfig import ClientConfig

    file = os.environ.get("TEMPORAL_CONFIG_FILE")
    # Temporal passes over a missing file, and the conversation would go to another server than the one meant.
    if file and not Path(file).is_file():
        raise InvalidSetting(f"TEMPORAL_CONFIG_FILE={file!r} is not a file.")
    refuse_garbled_variables()
    # Any other variable that is not UTF-8 would make the SDK panic.
    readable = {name: value for name, value in os.environ.items() if is_utf8(name) and is_utf8(value)}
    try:
        loaded = ClientConfig.load_client_connect_config(override_env_vars=readable)
    except OSError as error:
        raise InvalidSetting(
            f"Temporal's settings name the file {error.filename!r}, but it can't be read: {error.strerror}."
        ) from None
    except RuntimeError as error:
        # The first line only: the next ones quote the file, where the API key may be.
        reason = str(error).partition("\n")[0]
        raise InvalidSetting(
            f"Temporal's settings can't be read: {reason}.", cure="Check TEMPORAL_PROFILE and TEMPORAL_CONFIG_FILE."
        ) from None
    return ConnectOptions({"target_host": "localhost:7233", "namespace": "default", **loaded})


def temporal_is_configured() -> bool:
    """Whether the environment names a server, so that none is started.

    An address in the default profile does not count: a demo should not surprise a production server.
    """
    return bool(os.environ.get("TEMPORAL_ADDRESS") or os.environ.get("TEMPORAL_PROFILE"))
