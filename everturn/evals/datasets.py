"""Cases as a data set of pydantic-evals, and a candidate as the task that it evaluates. Needs the extra `evals`.

dataset = load_dataset("cases", evaluators=[SameCalls(), DeniedCallsNotMade(), NoOnceCallTwice()])
async with candidate_task(client, agent=clerk, instructions="Be brief.") as task:
    report = await dataset.evaluate(task, max_concurrency=16)
report.print(include_reasons=True)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, TypeAlias

from everturn.activities.tool_contexts import MakeDeps
from everturn.agent import Agent, Instructions, ToolItem
from everturn.client.client import Client
from everturn.errors import InvalidSetting
from everturn.evals.candidates import candidate_of
from everturn.evals.case_files import read_cases
from everturn.evals.cases import Action, CaseFacts, CaseInputs, CaseOutcome, Expected, recorded_of_inputs
from everturn.evals.comparison import Comparison
from everturn.evals.recorded import RecordedCall
from everturn.evals.rerun_answers import Matcher, StandIn, ends_rerun
from everturn.evals.reruns import HostedCandidate, RerunOptions, host_candidate
from everturn.evaluations.pydantic_evaluators import call_attributes
from everturn.limits import Limits
from everturn.models import Model
from everturn.system.extras import install

try:
    from opentelemetry import trace
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import ProxyTracerProvider, Status, StatusCode
    from pydantic_evals import Dataset, set_eval_attribute
    from pydantic_evals.evaluators import Evaluator
except ImportError:
    raise InvalidSetting(
        "everturn.evals.datasets needs pydantic-evals, which is not installed.", cure=install("evals")
    ) from None

from everturn.evals.evaluators import EVALUATORS

CaseDataset: TypeAlias = Dataset[CaseInputs, Expected, CaseFacts]
"""Its cases are conversations."""

CaseTask = Callable[[CaseInputs], Awaitable[CaseOutcome]]
"""What `Dataset.evaluate` takes."""

TRACER: Final = "everturn.evals"


def load_dataset(
    path: Path | str,
    *,
    name: str | None = None,
    evaluators: Sequence[Evaluator[Any, Any, Any]] = (),
    custom_evaluator_types: Iterable[type[Evaluator[Any, Any, Any]]] = (),
) -> CaseDataset:
    """The cases of a folder, or of one file. `evaluators`: for all cases, beside those that files name for theirs;
    `custom_evaluator_types`: your own that files name. Raises InvalidFile, and what pydantic-evals raises."""
    cases = [case.model_dump(mode="json") for case in read_cases(path)]
    dataset = CaseDataset.from_dict(
        {"name": name or Path(path).stem, "cases": cases},
        custom_evaluator_types=[*EVALUATORS, *custom_evaluator_types],
    )
    dataset.evaluators = [*dataset.evaluators, *evaluators]
    return dataset


@asynccontextmanager
async def candidate_task(
    client: Client,
    *,
    agent: Agent | None = None,
    model: str | Model | None = None,
    instructions: str | Instructions | None = None,
    tools: Sequence[ToolItem] | None = None,
    run_reads: bool = False,
    matches: Matcher | None = None,
    stand_in: StandIn | str | Model | None = None,
    limits: Limits | None = None,
    tenant: str | None = None,
    deps: MakeDeps | None = None,
    task_queue: str | None = None,
    again: bool = False,
) -> AsyncIterator[CaseTask]:
    """A task for `Dataset.evaluate`: reruns a case with the candidate, which is hosted here as long as the block runs.
    The options are those of `rerun`, and so is what they promise: no tool runs that may have an effect.

    A rerun is durable: if the process is killed, run the evaluation once more, and it goes on where it was. With
    `repeat=`, each repetition is a rerun of its own.

    What the rerun did is written as OpenTelemetry spans for pydantic-evals' own evaluators of tools and requests. If
    nobody has set a tracer provider, an empty one is set. Raises InvalidAgent, Refused.
    """
    _ensure_tracer_provider()
    candidate = candidate_of(agent, recorded_agent="", model=model, instructions=instructions, tools=tools)
    hosting = host_candidate(
        client,
        candidate,
        run_reads=run_reads,
        matches=matches,
        stand_in=stand_in,
        deps=deps,
        to=None,
        task_queue=task_queue,
        options=RerunOptions(limits, tenant, again),
    )
    samples: Counter[str] = Counter()
    async with hosting as hosted:

        async def rerun_case(inputs: CaseInputs) -> CaseOutcome:
            inputs = CaseInputs.model_validate(inputs)
            recorded = recorded_of_inputs(inputs)
            samples[recorded.key] += 1
            comparison = await hosted.run(hosted.plan(recorded, inputs.at_turn, samples[recorded.key]))
            set_eval_attribute("rerun", comparison.rerun.id)
            _write_spans(hosted, comparison)
            return _outcome_of(hosted, comparison)

        yield rerun_case


def _outcome_of(hosted: HostedCandidate, comparison: Comparison) -> CaseOutcome:
    return CaseOutcome(
        calls=tuple(_action_of(hosted, call) for call in comparison.calls[1]),
        text=comparison.answers[1],
        output=comparison.rerun.output,
        verdict=comparison.verdict,
        differences=tuple(comparison.findings()),
        rerun=comparison.rerun.id,
    )


def _action_of(hosted: HostedCandidate, call: RecordedCall) -> Action:
    return Action(
        tool=call.call.name, arguments=call.call.arguments, effect=_effect_of(hosted, call.call.name), turn=call.turn
    )


def _effect_of(hosted: HostedCandidate, tool_name: str) -> str:
    """As the candidate's tools say it; empty for what is no function."""
    for agent in hosted.hook.agents.values():
        tool = agent.tool(tool_name)
        if tool is not None and tool.is_function:
            return tool.effect
    return ""


# ------------------------------------------------------------ spans, for pydantic-evals' own evaluators


def _ensure_tracer_provider() -> None:
    """pydantic-evals sees no span without one."""
    if isinstance(trace.get_tracer_provider(), ProxyTracerProvider):
        trace.set_tracer_provider(TracerProvider())


def _write_spans(hosted: HostedCandidate, comparison: Comparison) -> None:
    """What happened, in order. It happened on a worker, perhaps in a process that is dead by now: only spans that begin
    and end here are the task's for pydantic-evals."""
    tracer = trace.get_tracer(TRACER)
    rerun = comparison.rerun
    turns = list(rerun.replies) if comparison.at_turn is None else [comparison.at_turn]
    for turn in turns:
        attributes: dict[str, Any] = {
            "gen_ai.operation.name": "chat",
            "gen_ai.request.model": rerun.model or hosted.agent.model.name,
        }
        if turn == turns[-1]:  # of all turns: pydantic-evals adds them up
            attributes |= _usage_attributes(comparison)
        tracer.start_span(f"chat {attributes['gen_ai.request.model']}", attributes=attributes).end()
        for call in rerun.at_turn(turn):
            _write_call_span(tracer, call)


def _usage_attributes(comparison: Comparison) -> dict[str, Any]:
    usage = comparison.rerun.usage
    attributes: dict[str, Any] = {
        "gen_ai.usage.input_tokens": usage.input_tokens,
        "gen_ai.usage.output_tokens": usage.output_tokens,
    }
    if comparison.rerun.cost_usd is not None:
        attributes["operation.cost"] = comparison.rerun.cost_usd
    return attributes


def _write_call_span(tracer: trace.Tracer, call: RecordedCall) -> None:
    attributes = {"gen_ai.operation.name": "execute_tool", **call_attributes(call.call)}
    span = tracer.start_span(f"execute_tool {call.call.name}", attributes=attributes)
    if call.result and call.result.is_error and not ends_rerun(call.result):
        span.set_status(Status(StatusCode.ERROR))
    span.end()
