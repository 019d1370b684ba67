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
        worker = await _make_worker(spec)
    except EverturnError as error:
        return [Finding(part, "wrong", error.message, error.cure)]
    if not any(
        isinstance(interceptor, Hosting) for interceptor in worker.config(active_config=True).get("interceptors", ())
    ):
        cure = "Make it with plugins=[EverturnPlugin(agents=[...])]."
        return [Finding(part, "wrong", f"it hosts no agents on task queue {worker.task_queue!r}", cure)]
    findings = [
        Finding(part, "note", f"{warning.setting}: {warning.what}", warning.cure)
        for warning in warnings_of(worker.config())
    ]
    fine = f"hosts agents on task queue {worker.task_queue!r}, and none of its settings slows them down"
    return findings or [Finding(part, "ok", fine)]


async def _make_worker(spec: str) -> temporalio.worker.Worker:
    """Raises EverturnError."""
    worker: Any = load_object(spec)
    cure = "Name a function that takes no arguments and returns a temporalio Worker. It may be async."
    if callable(worker):
        try:
            worker = worker()
            if inspect.isawaitable(worker):
                worker = await worker
        except EverturnError:
            raise
        except Exception as error:
            raise InvalidSetting(f"The worker of {spec!r} can't be made: {error!r}.", cure=cure) from error
    if not isinstance(worker, temporalio.worker.Worker):
        raise InvalidSetting(f"{spec!r} is a {type(worker).__name__}, not a Worker.", cure=cure)
    return worker
