"""`everturn doctor --against`: do these agents fit the conversations that run?"""

from __future__ import annotations

import logging

from everturn.cli.doctor_finding import Finding

CURE = "Keep the agent or tool that it was planned with until it is over, or decide on its waiting call."


async def deploy_findings(against: list[str], sample: int | None) -> list[Finding]:
    """One for each kind of conflict, or a single one if all fit. Raises EverturnError and RPCError."""
    from everturn.client.client import Client
    from everturn.loading import load_agents
    from everturn.worker.deploy_check import find_conflicts, group_conflicts

    logging.getLogger("temporalio").setLevel(logging.CRITICAL)  # it logs each divergence, with a traceback
    agents = load_agents(",".join(against))
    client = await Client.connect()
    kinds = group_conflicts([conflict async for conflict in find_conflicts(client, agents, sample=sample)])
    if not kinds:
        sample_note = f" (checked {sample} of them at most, drawn at random)" if sample else ""
        names = ", ".join(sorted(agent.name for agent in agents))
        return [Finding("deploy", "ok", f"{names} fit the running conversations{sample_note}")]
    return [Finding("deploy", "wrong", kind.in_words, CURE, tuple(kind.conversations)) for kind in kinds]
