"""`everturn doctor`: one line for each part that has to work."""

from __future__ import annotations

import asyncio
import os
import platform
from collections.abc import AsyncIterator
from dataclasses import asdict
from importlib.metadata import version
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from everturn.cli.doctor_batches import batch_findings
from everturn.cli.doctor_finding import Finding, wrong_finding
from everturn.cli.doctor_queues import queue_findings
from everturn.cli.doctor_temporal import TIMEOUT_SECONDS, temporal_findings
from everturn.cli.options import JsonOption
from everturn.cli.output import print_json
from everturn.errors import EverturnError
from everturn.system import extras

if TYPE_CHECKING:
    from everturn.agent import Agent
    from everturn.settings import Settings


def doctor(
    fix: Annotated[
        bool, typer.Option("--fix", help="Register everturn's search attributes if some are missing.")
    ] = False,
    against: Annotated[
        list[str] | None,
        typer.Option(
            "--against", metavar="AGENTS", help="Deploy check: do these agents fit the running conversations?"
        ),
    ] = None,
    sample: Annotated[
        int | None,
        typer.Option(
            "--sample", metavar="N", min=1, help="With --against: check only N conversations, drawn at random."
        ),
    ] = None,
    worker: Annotated[
        str | None,
        typer.Option(
            "--worker",
            metavar="FILE.py:NAME",
            help="Check whether your own worker's settings slow conversations down. Name a function that returns it.",
        ),
    ] = None,
    fairness: Annotated[
        bool,
        typer.Option(
            "--fairness",
            help="Start some workflows to test whether the server respects priorities and fairness keys, and how long "
            "it waits for a worker that was killed in a workflow task. Takes a few seconds.",
        ),
    ] = False,
    mcp: Annotated[
        bool, typer.Option("--mcp", help="Start the agents' MCP servers or connect to them, and list their tools.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Check everything that conversations need. The exit status is 1 if something is wrong."""
    looks = _collect_findings(fix=fix, against=against or [], sample=sample, worker=worker, fairness=fairness, mcp=mcp)
    findings = asyncio.run(looks)
    if as_json:
        print_json([asdict(finding) for finding in findings], indent=2)
    else:
        _print_findings(findings)
    if any(finding.state == "wrong" for finding in findings):
        raise typer.Exit(1)


async def _collect_findings(
    *, fix: bool, against: list[str], sample: int | None, worker: str | None, fairness: bool, mcp: bool
) -> list[Finding]:
    findings = [_versions_finding()]
    try:
        settings = _load_settings()
    except EverturnError as error:
        return [*findings, wrong_finding("settings", error)]
    findings.append(Finding("settings", "ok", f"task queue {settings.task_queue!r}"))
    findings.append(_encryption_finding(settings))
    findings += [finding async for finding in temporal_findings(fix=fix)]
    findings += await queue_findings()
    findings += await batch_findings()
    findings += [finding async for finding in _live_findings(settings)]
    findings += [finding async for finding in _fairness_findings(tries=fairness)]
    agents, agent_findings = _agents_and_findings(settings)
    if worker:
        from everturn.cli.doctor_worker import worker_findings

        findings += await worker_findings(worker)
    agent_findings += [finding async for finding in _mcp_findings(agents, starts=mcp)]
    findings += [*agent_findings, *_key_findings(agents), *_cost_findings(agents)]
    if against:
        findings += await _deploy_findings(against, sample)
    return findings


async def _mcp_findings(agents: list[Agent], *, starts: bool) -> AsyncIterator[Finding]:
    if not starts:
        if servers := {server.label for agent in agents for server in agent.mcp_servers}:
            cure = "To check them: everturn doctor --mcp."
            yield Finding("MCP servers", "note", f"{', '.join(sorted(servers))}: not checked", cure)
        return
    from everturn.cli.mcp_lists import servers_lists

    try:
        for tools_list in await servers_lists(agents):
            part = f"MCP server {tools_list.server.label}"
            if tools_list.problem:
                yield Finding(part, "wrong", tools_list.problem, tools_list.cut)
                continue
            tools = tools_list.tools
            detail = f"{len(tools)} tools: {', '.join(tool.name for tool in tools)}"
            yield Finding(part, "note" if tools_list.cut else "ok", detail, tools_list.cut)
    except EverturnError as error:
        yield wrong_finding("MCP servers", error)


async def _deploy_findings(against: list[str], sample: int | None) -> list[Finding]:
    from temporalio.service import RPCError

    from everturn.cli.doctor_deploy import deploy_findings

    try:
        return await deploy_findings(against, sample)
    except EverturnError as error:
        return [wrong_finding("deploy", error)]
    except RPCError as error:
        return [Finding("deploy", "wrong", f"Temporal said no: {error.message}")]


def _load_settings() -> Settings:
    from everturn.cli.connect import quiet_logs
    from everturn.settings import Settings

    settings = Settings.load()
    quiet_logs(None)
    return settings


def _encryption_finding(settings: Settings) -> Finding:
    from everturn.storage.codecs import encryption_of
    from everturn.storage.data_converter import configured_converter

    try:
        converter = configured_converter()
    except EverturnError as error:
        return wrong_finding("encryption", error)
    if encryption := encryption_of(converter):
        detail = f"AES-GCM; key {encryption.key_id!r} encrypts"
        if others := encryption.key_ids[1:]:
            detail += f", {', '.join(map(repr, others))} decrypt"
        return Finding("encryption", "ok", detail)
    if converter.payload_codec:
        return Finding("encryption", "note", f"by EVERTURN_DATA_CONVERTER={settings.data_converter}")
    return Finding("encryption", "note", "off: the server keeps plain JSON")


def _versions_finding() -> Finding:
    packages = " · ".join(f"{name} {version(name)}" for name in ("everturn", "temporalio"))
    return Finding("versions", "ok", f"{packages} · Python {platform.python_version()}")


async def _fairness_findings(*, tries: bool) -> AsyncIterator[Finding]:
    """Whether the server respects priorities and fairness keys. It does not say so itself, so this has to be tested."""
    from temporalio.service import RPCError

    from everturn.client.client import Client

    if not tries:
        cure = "To test it: everturn doctor --fairness."
        yield Finding("fairness", "note", "not tested: the server doesn't say whether it respects fairness keys", cure)
        return
    from everturn.cli.doctor_fairness import fairness_findings
    from everturn.cli.doctor_task_timeout import task_timeout_finding

    try:
        client = await Client.connect()
        async for finding in fairness_findings(client.temporal):
            yield finding
        if late := await task_timeout_finding(client.temporal):
            yield late
    except EverturnError as error:
        yield wrong_finding("fairness", error)
    except RPCError as error:
        yield Finding("fairness", "note", f"it could not be tested: {error.message}")


async def _live_findings(settings: Settings) -> AsyncIterator[Finding]:
    """Checks the live lane. Nothing if text comes by heartbeats: those have their own line."""
    from everturn.live.configured_lane import lane_of
    from everturn.live.lane import LaneDown
    from everturn.storage.data_converter import configured_converter

    cure = "Until then, text comes with heartbeats. Start Redis, or correct EVERTURN_LIVE."
    try:
        lane = lane_of(settings, configured_converter())
        if lane is None:
            return
        try:
            async with asyncio.timeout(TIMEOUT_SECONDS):
                yield Finding("live text", "ok", await lane.check())
        except (LaneDown, TimeoutError) as error:
            yield Finding("live text", "wrong", f"Redis doesn't answer: {error}", cure)
        finally:
            await lane.close()
    except EverturnError as error:
        yield wrong_finding("live text", error)


# ---------------------------------------------------------------- agents and keys


def _agents_and_findings(settings: Settings) -> tuple[list[Agent], list[Finding]]:
    from everturn.loading import load_agents

    if not settings.agents:
        return [], [Finding("agents", "note", "EVERTURN_AGENTS is not set here; only workers need it")]
    try:
        agents = load_agents(",".join(settings.agents))
    except EverturnError as error:
        return [], [wrong_finding("agents", error)]
    detail = ", ".join(f"{agent.name} ({agent.model.name}, {len(agent.tools)} tools)" for agent in agents)
    return agents, [Finding("agents", "ok", detail), *_handoff_findings(agents)]


def _handoff_findings(agents: list[Agent]) -> list[Finding]:
    """A note for each agent that is handed off to, and is not here."""
    from everturn.agent import with_sub_agents

    hosted = with_sub_agents(agents)
    cure = "Add it to EVERTURN_AGENTS, unless another worker of the task queue hosts it or an agent store has it."
    return [
        Finding(f"handoffs of {agent.name}", "note", f"{handoff.to!r} is not among the agents here", cure)
        for agent in hosted.values()
        for handoff in agent.handoffs
        if handoff.to not in hosted
    ]


def _key_findings(agents: list[Agent]) -> list[Finding]:
    from everturn.providers.catalog import all_rows, resolve_endpoint, row_of
    from everturn.vendor_models.plugins import points_by_name

    names = sorted({key for row in all_rows().values() for key in row.keys if os.environ.get(key, "").strip()})
    state: Literal["ok", "note"] = "ok" if names else "note"
    findings = [Finding("keys", state, ", ".join(names) or "none is set here; only workers need one")]
    for name in points_by_name():
        try:
            row_of(name)
        except EverturnError as error:
            findings.append(wrong_finding(f"provider {name}", error))
    for agent in agents:
        for model in (agent.model, *agent.fallback_models):
            try:
                resolve_endpoint(model)
            except EverturnError as error:
                findings.append(wrong_finding(f"model of {agent.name}", error))
    return findings


def _cost_findings(agents: list[Agent]) -> list[Finding]:
    """A note for what a limit in US dollars can't count."""
    from everturn.prices import unpriced

    cure = f"Run {extras.install('prices')}, or set Limits(max_total_tokens=)."
    return [
        Finding(f"cost of {agent.name}", "note", f"max_cost_usd has no effect: no price is known for {name}", cure)
        for agent in agents
        if agent.limits.max_cost_usd is not None
        for name in unpriced([agent.model, *agent.fallback_models])
    ]


# ---------------------------------------------------------------- how it looks


def _print_findings(findings: list[Finding]) -> None:
    from rich.text import Text

    from everturn.cli.terminal import Screen

    screen = Screen(to_stdout=True)
    words = {"ok": ("OK    ", "green"), "wrong": ("WRONG ", "bold red"), "note": ("–     ", "dim")}
    widest = max(len(finding.part) for finding in findings)
    for finding in findings:
        word, style = words[finding.state]
        line = Text(word, style=style).append(f"{finding.part:<{widest}}  ", style="bold").append(finding.detail)
        if finding.cure:
            if not finding.detail.endswith("."):
                line.append(".")
            line.append(f" {finding.cure}", style="yellow")
        screen.print_line(line)
