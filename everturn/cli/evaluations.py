"""`everturn evaluations`: what evaluators said about answers."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated, Any

import typer

from everturn.cli import completion
from everturn.cli.options import JsonOption
from everturn.cli.output import print_json

if TYPE_CHECKING:
    from everturn.evaluations.client import Evaluation, EvaluationMean

SHOWN = 20
"""Answers in the second table."""


def evaluations(
    evaluator: Annotated[str | None, typer.Option("--evaluator", metavar="NAME", help="Only this one's.")] = None,
    agent: Annotated[
        str | None,
        typer.Option(
            "--agent",
            metavar="NAME",
            help="Only answers of this agent; NAME@VERSION: of this version.",
            autocompletion=completion.offer_agents,
        ),
    ] = None,
    conversation: Annotated[
        str | None, typer.Option("--conversation", metavar="ID", help="Only answers of this conversation.")
    ] = None,
    below: Annotated[
        float | None, typer.Option("--below", metavar="SCORE", help="Only answers with a lower score.")
    ] = None,
    failed: Annotated[bool, typer.Option("--failed", help="Only those whose evaluator failed.")] = False,
    limit: Annotated[int, typer.Option("--limit", min=1, help="The largest number to read, the latest first.")] = 1000,
    as_json: JsonOption = False,
) -> None:
    """Show how a worker's evaluators judged answers: means by evaluator and agent, and the latest answers."""
    filters: dict[str, Any] = {"evaluator": evaluator, "agent": agent, "conversation_id": conversation, "below": below}
    if failed:
        filters["failed"] = True
    means, listed = asyncio.run(_read_evaluations(limit, filters))
    if as_json:
        print_json(
            {
                "means": [vars(mean) for mean in means],
                "evaluations": [evaluation.as_json() for evaluation in listed],
            }
        )
    else:
        _print_tables(means, listed)


async def _read_evaluations(limit: int, filters: dict[str, Any]) -> tuple[list[EvaluationMean], list[Evaluation]]:
    from everturn.cli.connect import remote_client
    from everturn.evaluations.client import means_of

    listed: list[Evaluation] = []
    async with remote_client() as client:
        async for evaluation in client.evaluations(**filters):
            listed.append(evaluation)
            if len(listed) == limit:
                break
    return means_of(listed), listed


def _print_tables(means: list[EvaluationMean], listed: list[Evaluation]) -> None:
    from everturn.cli.render import table_lines
    from everturn.cli.terminal import Screen

    if not listed:
        Screen().print_line("No answer is judged. Workers with evaluators judge them: Worker(evaluators=[...]).")
        return
    screen = Screen(to_stdout=True)
    heading = ("EVALUATOR", "AGENT", "JUDGED", "FAILED", "MEAN", "LABELS", "COST")
    screen.print_lines(table_lines(heading, [_mean_row(mean) for mean in means]))
    screen.print_line("")
    columns = ("CONVERSATION", "TURN", "EVALUATOR", "SAID", "WHY")
    screen.print_lines(table_lines(columns, [_evaluation_row(evaluation) for evaluation in listed[:SHOWN]]))
    if len(listed) > SHOWN:
        screen.print_line(f"{len(listed) - SHOWN:,} more: --json has all of them.", style="dim")


def _mean_row(mean: EvaluationMean) -> tuple[str, ...]:
    from everturn.records import in_dollars

    return (
        f"{mean.evaluator} {mean.version}".strip(),
        mean.agent,
        f"{mean.judged:,}",
        f"{mean.failed:,}",
        "-" if mean.mean is None else f"{mean.mean:.3g}",
        ", ".join(f"{count:,} {label}" for label, count in mean.labels.items()),
        "-" if mean.cost_usd is None else f"${in_dollars(mean.cost_usd)}",
    )


def _evaluation_row(evaluation: Evaluation) -> tuple[str, ...]:
    from everturn.cli.render import one_line

    results = ", ".join(_in_words(evaluation, number) for number in range(len(evaluation.results)))
    reasons = "; ".join(filter(None, (result.reason for result in evaluation.results)))
    return (
        evaluation.conversation_id,
        str(evaluation.turn),
        evaluation.evaluator,
        results or ("failed" if evaluation.error else "-"),
        one_line(reasons or evaluation.error_text, 80),
    )


def _in_words(evaluation: Evaluation, number: int) -> str:
    """A result: `pass`, `0.4`, or `tone 0.4` if there are several."""
    result = evaluation.results[number]
    value = result.label or ("-" if result.score is None else f"{result.score:.3g}")
    if result.name == evaluation.evaluator:
        return value
    return f"{result.name} {value}"
