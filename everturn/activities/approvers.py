"""Whether a person may decide on a call: the agent's own policy, which runs here and not in the workflow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from temporalio import activity

from everturn import names
from everturn.activities.agent_lookup import agent_of
from everturn.activities.tool_contexts import ToolContexts
from everturn.agent import Agent
from everturn.heartbeats.worker_heartbeats import Heartbeats
from everturn.logs import get_logger
from everturn.payloads import DecisionCheck
from everturn.text.utf8 import mend
from everturn.tools import user_code
from everturn.tools.results import safe_error_text
from everturn.tools.with_context import with_context
from everturn.truncation import shortened_reason

_log = get_logger("everturn.decision")


class Approvers:
    def __init__(
        self, agents: Mapping[str, Agent], *, heartbeats: Heartbeats, contexts: ToolContexts | None = None
    ) -> None:
        self._agents = agents
        self._contexts = contexts or ToolContexts()
        self._heartbeats = heartbeats

    @activity.defn(name=names.CHECK_DECISION)
    async def check_decision(self, check: DecisionCheck) -> str:
        """Why the person may not decide; empty if they may. A policy that fails lets nobody decide."""
        await self._heartbeats.check_ours()
        agent = await agent_of(self._agents, check, heartbeats=self._heartbeats)
        if agent.approvers is None:
            return ""
        context = self._contexts.of_call(check, check.call.call_id, log=_log)
        try:
            with self._heartbeats.beating():
                policy = with_context(agent.approvers, check.call, check.decision, context=context)
                verdict: str = await user_code.call(policy, seconds=user_code.QUICK_SECONDS, finish=_in_words)
        except Exception as error:  # noqa: BLE001 - the policy's own, whatever it is
            _log.error("approvers.failed", agent=agent.name, error=await safe_error_text(error))
            return f"the policy failed with {user_code.class_name(error)}"
        return verdict


def _in_words(verdict: Any) -> str:
    """Only True lets a decision count: whatever else is returned does not say that the person may decide."""
    if verdict is True:
        return ""
    if isinstance(verdict, str) and verdict.strip():
        return shortened_reason(mend(verdict))
    if verdict is False:
        return "not among the approvers"
    returned = "an empty text" if isinstance(verdict, str) else f"something of type {user_code.class_name(verdict)}"
    _log.error("approvers.failed", error=f"it returned {returned}, and not True, False or a reason")
    return f"the policy returned {returned}"
