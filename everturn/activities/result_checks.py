"""Hooks see every result: those of tools on workers where the tools run, and all others here."""

from __future__ import annotations

from collections.abc import Mapping

from temporalio import activity

from everturn import names
from everturn.activities.agent_lookup import agent_of
from everturn.activities.hook_runs import HookRuns
from everturn.activities.tool_contexts import ToolContexts
from everturn.agent import Agent
from everturn.heartbeats.worker_heartbeats import Heartbeats
from everturn.logs import get_logger
from everturn.payloads import ToolRequest
from everturn.records import ToolCall, ToolResult
from everturn.sizes import MAX_RESULT_BYTES, size_of
from everturn.truncation import Notice, bound_content, chars_of, edit_notice

_log = get_logger("everturn.tool")


class ResultChecks:
    def __init__(self, agents: Mapping[str, Agent], *, heartbeats: Heartbeats, contexts: ToolContexts) -> None:
        self._agents = agents
        self._contexts = contexts
        self._heartbeats = heartbeats

    @activity.defn(name=names.CHECK_RESULT)
    async def check_result(self, request: ToolRequest) -> ToolResult:
        """The result as the agent's `after_tool` hooks leave it."""
        await self._heartbeats.check_ours()
        agent = await agent_of(self._agents, request, heartbeats=self._heartbeats)
        assert request.result is not None
        given = request.result
        notice = edit_notice(given.decision)  # ours, and not of whoever gave the result
        noted = bool(notice) and given.content[: len(notice)] == notice
        bare_result = given
        if noted:
            bare_result = given.model_copy(update={"content": given.content[len(notice) :]})
        call = ToolCall(call_id=request.call_id, name=request.tool, arguments=request.arguments)
        context = self._contexts.of_call(request, request.call_id, log=_log)
        with self._heartbeats.beating():
            result = await HookRuns(agent).after_tool(call, bare_result, context)
        content = result.content
        if noted:
            content = (*notice, *content)
        most = MAX_RESULT_BYTES if request.room is None else request.room
        max_chars = max(agent.limits.max_result_chars, chars_of(given.content))
        max_bytes = max(0, most - size_of(result.decision))
        content = bound_content(content, max_chars=max_chars, max_bytes=max_bytes, notice=Notice())
        return result.model_copy(update={"content": content})
