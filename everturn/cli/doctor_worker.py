"""`everturn doctor --worker`: what the settings of an application's own worker warning its conversations."""

from __future__ import annotations

import inspect
from typing import Any, Literal

import temporalio.worker

from everturn.errors import EverturnError, InvalidSetting
from everturn.system.user_modules import load_object
from everturn.worker.config_warnings import warnings_of
from everturn.worker.hosting import Hosting

Told = tuple[Literal["ok", "wrong", "note"], str, str]
"""As in a finding: state, text, cure."""


async def problems_of(spec: str) -> list[Told]:
    """`spec`: `module:name` or `path.py:name` of a function that returns the Worker. The Worker is not run."""
    try:
        worker = await _made(spec)
    except EverturnError as error:
        return [("wrong", error.message, error.cure)]
    if not any(isinstance(one, Hosting) for one in worker.config(active_config=True).get("interceptors", ())):
        cure = "Make it with plugins=[EverturnPlugin(agents=[...])]."
        return [("wrong", f"it hosts no agents on task queue {worker.task_queue!r}", cure)]
    told: list[Told] = [
        ("note", f"{warning.setting}: {warning.what}", warning.cure) for warning in warnings_of(worker.config())
    ]
    return told or [
        ("ok", f"hosts agents on task queue {worker.task_queue!r}, and none of its settings slows them down", "")
    ]


async def _made(spec: str) -> temporalio.worker.Worker:
    """Raises EverturnError."""
    made: Any = load_object(spec)
    cure = "Name a function that takes no arguments and returns a temporalio Worker. It may be async."
    if callable(made):
        try:
            made = made()
            if inspect.isawaitable(made):
                made = await made
        except EverturnError:
            raise
        except Exception as error:
            raise InvalidSetting(f"The worker of {spec!r} can't be made: {error!r}.", cure=cure) from error
    if not isinstance(made, temporalio.worker.Worker):
        raise InvalidSetting(f"{spec!r} is a {type(made).__name__}, not a Worker.", cure=cure)
    return made
