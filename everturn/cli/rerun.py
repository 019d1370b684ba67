"""`everturn rerun`: what would another prompt, model or set of tools have done?"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from everturn.cli import completion
from everturn.cli.options import ModelOption
from everturn.cli.output import print_json, print_text

if TYPE_CHECKING:
    from everturn.agent import Agent
    from everturn.evals import Reruns

Format = Literal["table", "markdown", "json"]


def rerun(
    ids: Annotated[
        list[str] | None,
        typer.Argument(metavar="ID", help="The recorded conversations.", autocompletion=completion.offer_ids),
    ] = None,
    agent: Annotated[
        str, typer.Option("--agent", metavar="FILE.py:NAME", help="The candidate: an agent in a file or a module.")
    ] = "",
    model: ModelOption = None,
    system: Annotated[
        Path | None, typer.Option("-s", "--system", metavar="FILE", help="The candidate's instructions, in a file.")
    ] = None,
    query: Annotated[
        str | None,
        typer.Option("--query", metavar="QUERY", help="All conversations that Temporal's filter finds, instead of ID."),
    ] = None,
    cases: Annotated[
        Path | None,
        typer.Option(
            "--cases", metavar="FOLDER", help="Cases of `everturn cases`, instead of ID: a folder, or a file."
        ),
    ] = None,
    sample: Annotated[
        int | None, typer.Option("--sample", metavar="N", min=1, help="With --query: only N, drawn at random.")
    ] = None,
    at_turn: Annotated[
        int | None, typer.Option("--at-turn", metavar="N", min=1, help="Ask only for the reply of this turn.")
    ] = None,
    samples: Annotated[int, typer.Option("--samples", metavar="K", min=1, help="How often each is run.")] = 1,
    run_reads: Annotated[
        bool, typer.Option("--run-reads", help="Run tools that only read, if a call is not recorded.")
    ] = False,
    stand_in: Annotated[
        str | None, typer.Option("--stand-in", metavar="PROVIDER:NAME", help="A model that plays tools.")
    ] = None,
    judge: Annotated[
        str | None, typer.Option("--judge", metavar="PROVIDER:NAME", help="A model that compares the answers.")
    ] = None,
    same_calls: Annotated[
        float, typer.Option("--same-calls", min=0, max=1, help="The share of reruns that has to make the same calls.")
    ] = 1.0,
    same_ending: Annotated[
        float,
        typer.Option(
            "--same-ending",
            min=0,
            max=1,
            help="The share that has to complete, or to end as recorded: not at a limit, say, or with a cut reply.",
        ),
    ] = 1.0,
    same_meaning: Annotated[
        float | None, typer.Option("--same-meaning", min=0, max=1, help="The share that the judge has to find alike.")
    ] = None,
    cost_ratio: Annotated[
        float | None, typer.Option("--cost-ratio", min=0, help="At most this many times the recorded cost.")
    ] = None,
    uncorrected: Annotated[
        int | None,
        typer.Option(
            "--uncorrected",
            metavar="N",
            min=0,
            help="At most N calls that people denied or edited may be made as before. Default with --cases: 0.",
        ),
    ] = None,
    again: Annotated[bool, typer.Option("--again", help="Start reruns anew that are over.")] = False,
    format: Annotated[Format, typer.Option("--format", help="How to print it.")] = "table",  # noqa: A002 - as of export
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FILE", help="Also write it as Markdown, to this file.")
    ] = None,
) -> None:
    """Rerun recorded conversations with another agent, without harm: their calls are answered with what was recorded.

    No tool runs that may have an effect. The exit status is 1 if a threshold is missed.
    """
    if [bool(ids), query is not None, cases is not None].count(True) != 1:
        raise typer.BadParameter("name conversations, or find them with --query, or give --cases", param_hint="ID")
    if cases and uncorrected is None:
        uncorrected = 0
    if not agent:
        raise typer.BadParameter("which candidate? Name it with --agent FILE.py:NAME", param_hint="--agent")
    if sample and query is None:
        raise typer.BadParameter("it goes with --query", param_hint="--sample")
    candidate = _load_candidate(agent)
    words = system.read_text(encoding="utf-8") if system else None
    options: dict[str, object] = {"model": model, "instructions": words, "at_turn": at_turn, "samples": samples}
    options |= {"run_reads": run_reads, "stand_in": stand_in, "judge": judge, "again": again}
    reruns = asyncio.run(_rerun_conversations(ids or [], query, sample, cases, candidate, options))
    from everturn.evals import Thresholds

    thresholds = Thresholds(
        same_calls=same_calls,
        same_ending=same_ending,
        same_meaning=same_meaning,
        cost_ratio=cost_ratio,
        uncorrected=uncorrected,
    )
    missed = reruns.failures(thresholds)
    if output:
        output.write_text(reruns.as_markdown() + "\n", encoding="utf-8")
    match format:
        case "json":
            print_json({**reruns.as_json(), "failures": missed})
        case "markdown":
            print_text(
                "\n".join([reruns.as_markdown(), "", *(f"- **missed:** {threshold}" for threshold in missed)]).rstrip()
            )
        case "table":
            notes = [f"left out, since its provider would run it: {name}" for name in reruns.left_out]
            print_text("\n".join([reruns.as_table(), *notes, *(f"MISSED {threshold}" for threshold in missed)]))
    if missed:
        raise typer.Exit(1)


def _load_candidate(spec: str) -> Agent:
    from everturn.loading import load_agents

    agents = load_agents(spec)
    if len(agents) != 1:
        names = ", ".join(sorted(agent.full_name for agent in agents))
        raise typer.BadParameter(f"{spec} has several agents ({names}): write {spec}:NAME", param_hint="--agent")
    return agents[0]


async def _rerun_conversations(
    ids: list[str],
    query: str | None,
    sample: int | None,
    cases: Path | None,
    candidate: Agent,
    options: dict[str, object],
) -> Reruns:
    from everturn.cli.connect import remote_client
    from everturn.client.conversations_by_query import draw_sample, find_matching
    from everturn.evals import read_cases
    from everturn.evals import rerun as rerun_all

    read = read_cases(cases) if cases else []
    async with remote_client() as client:
        if query is not None:
            executions = draw_sample(find_matching(client.temporal, query), sample)
            ids = list(dict.fromkeys([execution.id async for execution in executions]))
        return await rerun_all(client, [*ids, *read], agent=candidate, **options)  # type: ignore[arg-type]
