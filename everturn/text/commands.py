"""Commands in error texts and hints, to be copied into a shell."""

from __future__ import annotations

import shlex


def command_about(command: str, target: str) -> str:
    """`everturn COMMAND TARGET`. Strangers may have chosen the conversation's id, or the tenant: whatever is in it, a
    shell takes it for one word."""
    return f"everturn {command} {shlex.quote(target)}"
