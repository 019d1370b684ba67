"""`everturn doctor --worker`: which settings of an application's own worker slow down or harm its conversations."""

from __future__ import annotations

import inspect
from typing import Any

import temporalio.worker

from everturn.cli.doctor_finding import Finding
from everturn.errors import EverturnError, InvalidSetting
from everturn.system.user_modules import load_object
from everturn.worker.config_warnings import warnings_of
from everturn.worker.hosting import Hosting


async def worker_findings(spec: str) -> list[Finding]:
    """`spec`: `module:name` or `path.py:name` of a function that returns the Worker. The Worker is not run."""
    part = f"worker {spec}"
    try:
        worker = await _made(spec)
    except EverturnError as error:
        return [Finding(part, "wrong", error.message, error.cure)]
    if not any(isinstance(one, Hosting) for one in worker.config(active_config=True).get("interceptors", ())):
        cure = "Make it with plugins=[EverturnPlugin(agents=[...])]."
        return [Finding(part, "wrong", f"it hosts no agents on task queue {worker.task_queue!r}", cure)]
    found = [
        Finding(part, "note", f"{warning.setting}: {warning.what}", warning.cure)
        for warning in warnings_of(worker.config())
    ]
    fine = f"hosts agents on task queue {worker.task_queue!r}, and none of its settings slows them down"
    return found or [Finding(part, "ok", fine)]


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
