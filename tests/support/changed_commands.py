"""A conversation's commands, one of which does something else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from everturn.workflows.commands import Commands
from everturn.workflows.message_dispatch import CommandType


def with_another(name: str, take: Callable[..., dict[str, Any]]) -> Callable[[Commands, str], CommandType | None]:
    """A `Commands.find_type` by which the command of that name does this; `take` gets the Commands and the payload."""
    find_type = Commands.find_type

    def find_changed(self: Commands, wanted: str) -> CommandType | None:
        command_type = find_type(self, wanted)
        if command_type is None or wanted != name:
            return command_type
        return replace(command_type, take=take)

    return find_changed
