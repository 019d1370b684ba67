"""Whether a person may decide on a call: the agent's own policy, which runs here and not in the workflow."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Mapping

from temporalio import activity
from temporalio.exceptions import ApplicationError

from everturn import names
from everturn.activities import failures
from everturn.activities.beat import Heart
from everturn.agent import Agent
from everturn.logs import get_logger
from everturn.payloads import DecisionCheck

LONGEST_SECONDS = 20.0
"""For a policy to decide; then nobody may."""

LONGEST_CHARS = 2_000
"""Of its words."""

_log = get_logger("everturn.decision")


class Decisions:
    def __init__(self, agents: Mapping[str, Agent], *, heart: Heart) -> None:
        self._agents = agents
        self._heart = heart

    @activity.defn(name=names.CHECK_DECISION)
    async def check_decision(self, check: DecisionCheck) -> str:
        """Why the person may not decide; empty where they may. A policy that fails lets nobody decide."""
        agent = self._agents.get(check.agent)
        if agent is None:
            raise ApplicationError(f"No agent {check.agent!r} on this worker.", type="InvalidAgent")
        if agent.approvers is None:
            return ""
        try:
            with self._heart.beating():
                async with asyncio.timeout(LONGEST_SECONDS):
                    verdict = agent.approvers(check.call, check.decision)
                    if inspect.isawaitable(verdict):
                        verdict = await verdict
        except (Exception, asyncio.CancelledError) as error:
            if failures.cancels_us(error):
                raise
            _log.error("approvers.failed", agent=agent.name, error=f"{type(error).__name__}: {error}")
            return f"the policy failed with {type(error).__name__}"
        if isinstance(verdict, str):
            return verdict[:LONGEST_CHARS]
        return "" if verdict else "not among the approvers"
