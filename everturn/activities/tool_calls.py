"""One tool call: an activity under the tool's own name, so that the Web UI reads as a story."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Executor
from typing import Any

from temporalio import activity
from temporalio.exceptions import ApplicationError

from everturn.activities import failures
from everturn.activities.beat import Beat, Heart
from everturn.activities.prefixes import Prefixes
from everturn.agent import Agent
from everturn.logs import get_logger
from everturn.payloads import INVALID_EDIT, ToolRequest
from everturn.records import Image, Text, ToolResult
from everturn.results import error_text, to_json
from everturn.schemas import InvalidArguments
from everturn.tools import Tool, ToolContext

_log = get_logger("everturn.tool")

MAX_RESULT_CHARS = 200_000
MAX_IMAGE_CHARS = 1_000_000
"""Base64. Temporal takes payloads of 2 MB; a larger one would be retried for ever in silence."""

Content = tuple[Text | Image, ...]
ToolActivity = Callable[[ToolRequest], Coroutine[Any, Any, ToolResult]]


class ToolCalls:
    def __init__(self, agents: Mapping[str, Agent], *, prefixes: Prefixes, heart: Heart, threads: Executor) -> None:
        self._agents = agents
        self._prefixes = prefixes
        self._heart = heart
        self._threads = threads

    def activities(self) -> list[ToolActivity]:
        """One for each tool name. Agents may have different tools of one name: the request says whose is meant."""
        tools = {tool.name for agent in self._agents.values() for tool in agent.tools if tool.runs_on == "worker"}
        return [self._activity(name) for name in sorted(tools)]

    def _activity(self, name: str) -> ToolActivity:
        @activity.defn(name=name)
        async def run_tool(request: ToolRequest) -> ToolResult:
            return await self._run(name, request)

        return run_tool

    async def _run(self, name: str, request: ToolRequest) -> ToolResult:
        if not await self._heart.still_ours():
            raise ApplicationError("This run came too late: it was given to another worker.", type="TooLate")
        started = time.monotonic()
        tool = self._tool(name, request)
        if tool is None:  # gone with a deploy, after the call was planned
            return _result(name, request, (Text(text=f"The tool {name} is no longer available."),), is_error=True)
        with self._heart.beating() as beat:
            content, failed = await self._outcome(tool, request, beat)
        result = _result(name, request, content, is_error=failed)
        self._prefixes.remember_result(activity.info().workflow_run_id or "", result)
        _log.info("tool.finished", **_facts(tool, request), failed=failed, seconds=round(time.monotonic() - started, 3))
        return result

    def _tool(self, name: str, request: ToolRequest) -> Tool | None:
        if agent := self._agents.get(request.agent):
            return agent.tool(name)
        # Another worker of this task queue planned the call, so another can run it.
        raise ApplicationError(f"No agent {request.agent!r} on this worker.", type="InvalidAgent")

    async def _outcome(self, tool: Tool, request: ToolRequest, beat: Beat) -> tuple[Content, bool]:
        """What the model is told, and whether it is an error. Raises only what is not the tool's own doing."""
        try:
            content = await self._in_time(tool, request, self._context(tool, request, beat))
        except asyncio.CancelledError:
            beat.cancelled = True
            if activity.is_worker_shutdown():
                raise failures.handed_over() from None
            raise
        except _TookTooLong:
            return self._late(tool), True
        except InvalidArguments as error:
            return _refused(request, error), True
        except Exception as error:  # noqa: BLE001 - a tool may raise anything, and the model may know what to do
            return (Text(text=error_text(error)),), True
        return bounded((*_edit_notice(request), *content)), False

    async def _in_time(self, tool: Tool, request: ToolRequest, context: ToolContext) -> Content:
        try:
            async with asyncio.timeout(tool.timeout.total_seconds()) as limit:
                return await tool.run(request.arguments, context, executor=self._threads)
        except TimeoutError:
            # A tool may raise TimeoutError itself: that is its own failure, and no reason to run it again.
            if limit.expired():
                raise _TookTooLong from None
            raise

    def _late(self, tool: Tool) -> Content:
        """The tool's own time-out: another try while patience lasts, then the model is told."""
        text = f"{tool.name} did not finish within {tool.timeout}."
        if tool.effect == "once":
            raise ApplicationError(text, type="TimedOut", non_retryable=True)
        if failures.waited() + tool.timeout <= tool.patience:
            raise ApplicationError(text, type="TimedOut")
        return (Text(text=text),)

    def _context(self, tool: Tool, request: ToolRequest, beat: Beat) -> ToolContext:
        info = activity.info()
        return ToolContext(
            conversation_id=info.workflow_id or "",
            call_id=request.call_id,
            attempt=info.attempt,
            turn=request.turn,
            heartbeat=beat.report,
            is_cancelled=lambda: beat.cancelled,
            log=get_logger("everturn.tool", tool=tool.name),
        )


class _TookTooLong(Exception): ...


def bounded(content: Content) -> Content:
    """The content, cut to what a payload and a model can take, with a notice that the model can read."""
    room = MAX_RESULT_CHARS
    kept: list[Text | Image] = []
    for part in content:
        if isinstance(part, Image) and len(part.data or "") > MAX_IMAGE_CHARS:
            kept.append(Text(text=f"[An image of {len(part.data or ''):,} base64 characters was left out: too large.]"))
        elif isinstance(part, Text) and len(part.text) > room:
            notice = f"\n[Cut: {room:,} of {len(part.text):,} characters are shown. Ask for less, or for a part.]"
            kept.append(Text(text=part.text[:room] + notice))
            room = 0
        else:
            kept.append(part)
            room -= len(part.text) if isinstance(part, Text) else 0
    return tuple(kept)


def _edit_notice(request: ToolRequest) -> Content:
    """The model is told that it was not its own arguments that ran."""
    decision = request.decision
    if decision is None or (decision.arguments is None and not decision.note):
        return ()
    by = f" by {decision.by}" if decision.by else ""
    edited = f" with other arguments: {to_json(decision.arguments)}" if decision.arguments is not None else ""
    note = f". Note: {decision.note}" if decision.note else ""
    return (Text(text=f"[Approved{by}{edited}{note}]\n"),)


def _refused(request: ToolRequest, error: InvalidArguments) -> Content:
    if request.decision and request.decision.arguments is not None:
        # A human's slip is the human's to mend: the call goes back to the desk.
        raise ApplicationError(f"the edited arguments do not fit: {error}", type=INVALID_EDIT, non_retryable=True)
    return (Text(text=str(error)),)


def _result(name: str, request: ToolRequest, content: Content, *, is_error: bool) -> ToolResult:
    return ToolResult(call_id=request.call_id, name=name, content=content, is_error=is_error, decision=request.decision)


def _facts(tool: Tool, request: ToolRequest) -> dict[str, object]:
    info = activity.info()
    return {
        "conversation": info.workflow_id,
        "turn": request.turn,
        "tool": tool.name,
        "call": request.call_id,
        "attempt": info.attempt,
    }
