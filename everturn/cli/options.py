"""Options that several commands share, and the settings that they override."""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from everturn.cli import completion

if TYPE_CHECKING:
    from everturn.settings import Settings

ModelOption = Annotated[
    str | None,
    typer.Option(
        "-m",
        "--model",
        metavar="PROVIDER:NAME",
        help="The model, such as openai:gpt-5.5.",
        autocompletion=completion.offer_models,
    ),
]
ToolOption = Annotated[
    list[Path] | None,
    typer.Option("--tool", metavar="FILE.py", help="Every public function in it becomes a tool. May be repeated."),
]
SystemOption = Annotated[str, typer.Option("-s", "--system", metavar="TEXT", help="Instructions for the model.")]
AgentOption = Annotated[
    str | None,
    typer.Option(
        "--agent",
        metavar="NAME",
        help="An agent that a worker hosts. Without it, an agent is made here.",
        autocompletion=completion.offer_agents,
    ),
]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Approve every tool call.")]
ReasonOption = Annotated[str | None, typer.Option("--reason", help="Why.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
IdArgument = Annotated[str, typer.Argument(metavar="ID", help="The conversation.", autocompletion=completion.offer_ids)]
AgentsOption = Annotated[
    str | None,
    typer.Option("--agents", metavar="FILE.py|MODULE:NAME,...", help="The agents to host, instead of EVERTURN_AGENTS."),
]


def parse_moment(option: str, text: str) -> datetime:
    """A time as it is typed. Raises BadParameter."""
    with suppress(ValueError):
        if (parsed := datetime.fromisoformat(text)).tzinfo:
            return parsed
    raise typer.BadParameter("write it with its time zone, as in 2026-11-22T18:00:00Z", param_hint=option)


def url_host(host: str) -> str:
    """A host as a URL has it: an IPv6 address is in brackets."""
    return f"[{host}]" if ":" in host else host


def settings_with(
    agents: str | None, task_queue: str | None, *, restored_at: str | None = None, roles: str | None = None
) -> Settings:
    """The environment's settings, overridden by the options."""
    from everturn.settings import Settings

    given: dict[str, Any] = {}
    if agents is not None:
        given["agents"] = tuple(spec.strip() for spec in agents.split(",") if spec.strip())
    if task_queue is not None:
        given["task_queue"] = task_queue
    if roles is not None:
        given["roles"] = roles
    if restored_at is not None:
        given["restored_at"] = parse_moment("--restored-at", restored_at)
    return Settings.load().model_copy(update=given)
