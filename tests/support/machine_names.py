"""What a recording says about the machine that it comes from."""

from __future__ import annotations

import re
from base64 import b64decode

PROCESS = r"\b\d{2,7}@"
FOLDER = r"(?<![\w.\-/])/(?:home|Users|root|tmp|var|opt|usr|srv|mnt|work)/[^\s\"]*"
SOURCE = r"(?<![\w.\-/])/[\w.\-/]+\.py\b"
WINDOWS = r"\b[A-Z]:\\+\w[^\s\"]*"


def named_in(recorded: str) -> list[str]:
    """What a recorded history says about the machine that it comes from: processes and absolute paths."""
    payloads = re.findall(r'"data":\s*"([A-Za-z0-9+/=]+)"', recorded)
    text = "\n".join([recorded, *(b64decode(data).decode(errors="replace") for data in payloads)])
    return re.findall("|".join((PROCESS, FOLDER, SOURCE, WINDOWS)), text)
