#!/usr/bin/env bash
# PYDANTIC-EVALS PASSES MaxToolCalls(0) FOR A TASK THAT CALLED A TOOL, if the tool ran in a worker that was there before.
#
# Software:  pydantic-evals 2.62.0 (PyPI) with opentelemetry-sdk
# Expected:  spans of tools are counted; evaluators of agents "gracefully degrade to a failing EvaluationReason if spans
#            were not captured" (pydantic_evals/evaluators/agentic.py)
# Seen:      only spans that end in the task's own context are captured. A task that hands its work to a worker (a queue,
#            a thread pool, Temporal) has an empty tree, which is none of the errors: "0 tool call(s)" passes every budget
# It matters to: who evaluates an agent behind a queue: write spans of what it did in the task itself, when it is done
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check "pydantic-evals==2.62.0" "opentelemetry-sdk>=1.35" || exit 2
"$folder/venv/bin/python" - <<'PY'
import asyncio

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from pydantic_evals import Case, Dataset
from pydantic_evals.evaluators import MaxToolCalls

trace.set_tracer_provider(TracerProvider())


def use_tool() -> None:
    with trace.get_tracer("agent").start_as_current_span("execute_tool pay", attributes={"gen_ai.tool.name": "pay"}):
        pass


async def main() -> str:
    queue: asyncio.Queue[asyncio.Future[str]] = asyncio.Queue()

    async def work() -> None:
        while True:
            done = await queue.get()
            use_tool()
            done.set_result("paid")

    async def by_worker(_: str) -> str:
        done: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        await queue.put(done)
        return await done

    async def in_task(_: str) -> str:
        use_tool()
        return "paid"

    worker = asyncio.create_task(work())
    dataset = Dataset(name="payments", cases=[Case(name="one", inputs="Pay")], evaluators=[MaxToolCalls(0)])
    seen = []
    for task in (in_task, by_worker):
        report = await dataset.evaluate(task, progress=False)
        result = report.cases[0].assertions["MaxToolCalls"]
        seen.append(f"{task.__name__}: {result.value} ({result.reason})")
    worker.cancel()
    return "; ".join(seen)


seen = asyncio.run(main())
print(seen)
expected = "in_task: False (1 tool call(s), budget=0); by_worker: True (0 tool call(s), budget=0)"
assert seen == expected, f"it has changed: {seen!r}"
PY
# Output of 2026-11-27:
# in_task: False (1 tool call(s), budget=0); by_worker: True (0 tool call(s), budget=0)
