"""`python -m benchmarks.sandboxed plain`: prints how many milliseconds Temporal's sandbox takes for an instance of the
workflow of that file; each run of a workflow on a worker takes one, and so does each replay from its start."""

from __future__ import annotations

import asyncio
import importlib
import sys
import time
from statistics import median

from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner
from temporalio.workflow import _Definition

TIMES = 41


async def milliseconds(name: str) -> float:
    workflow = _Definition.must_from_class(importlib.import_module(f"{__package__}.{name}").Asks)
    took = []
    for _ in range(TIMES):
        began = time.perf_counter()
        SandboxedWorkflowRunner().prepare_workflow(workflow)  # it makes an instance, to see whether it can
        took.append((time.perf_counter() - began) * 1000)
    return median(took[1:])  # the first imports what the process lacks


if __name__ == "__main__":
    print(asyncio.run(milliseconds(*sys.argv[1:])))
