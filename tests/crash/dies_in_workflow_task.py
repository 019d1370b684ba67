"""The agent of crash tests, on a worker that kills itself in the middle of a workflow task, once."""

from __future__ import annotations

import os
import signal
from typing import Any

from temporalio import workflow

from everturn.state import State
from tests.crash.agents import FOLDER, clerk

__all__ = ["clerk"]

STEP = os.environ["DIES_IN"]
"""The method of State in which it dies."""

_method = getattr(State, STEP)


def dying(self: State, *args: Any, **options: Any) -> Any:
    # A turn's activity works out the state, too.
    if workflow.in_workflow() and not (FOLDER / "died").exists():
        (FOLDER / "died").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return _method(self, *args, **options)


setattr(State, STEP, dying)
