"""One tool call: an activity under the tool's own name, so that the Web UI reads as a story."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any

from pydantic import JsonValue
from temporalio import activity
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory, FailureError

from everturn import names
from everturn.activities import activity_errors, attempts, before_reset, nexus_endpoints, patience, retry_delays
from everturn.activities.agent_lookup import (
    NoLongerAvailable,
    agent_of,
    handed_back,
    not_registered,
    request_of,
    tool_of,
)
from everturn.activities.hook_runs import HookRuns, StoppedByHook, after_hooks, seconds_at
from everturn.activities.mcp_memory import set_planned, take_left
from everturn.activities.mcp_tools import NeverListed, for_call
from everturn.activities.mcp_toolsets import Toolsets
from everturn.activities.prefix_cache import PrefixCache
from everturn.activities.quarantine import Quarantine
from everturn.activities.tool_contexts import ToolContexts
from everturn.activities.tool_retries import retry_or_text
from everturn.activities.tool_times import ToolTimes
from everturn.activities.turn_agent import with_its_tools
from everturn.activities.user_activities import user_activities
from everturn.agent import Agent
from everturn.calls.pending_calls import EDITED
from everturn.errors import NeedsApproval, OutcomeUnknown, Retry
from everturn.heartbeats.heartbeat import Heartbeat
from everturn.heartbeats.worker_heartbeats import Heartbeats
from everturn.logs import get_logger
from everturn.lost_workers import poison_calls
from everturn.lost_workers.free_sticky_queue import free_queue_of_lost_worker
from everturn.payloads import ToolRequest
from everturn.plans import CheckedCall
from everturn.policy import same_json
from everturn.records import ResultPart, Text, ToolCall, ToolResult
from everturn.size_estimates import is_larger
from everturn.sizes import (
    INLINE_BYTES,
    MAX_CAUSE_BYTES,
    MAX_LEFT_BYTES,
    MAX_REASON_BYTES,
    MAX_REPLY_BYTES,
    MAX_RESULT_BYTES,
    size_of,
)
from everturn.storage.artifacts import Artifacts
from everturn.text.shortening import shortened
from everturn.tools import raised, user_code
from everturn.tools.argument_defaults import defaults_in_words
from everturn.tools.arguments import InvalidArguments
from everturn.tools.context import ToolContext
from everturn.tools.context_ask import AsksPerson, Questions, set_answer
from everturn.tools.other_libraries import RanTooLong
from everturn.tools.read_result import READ_RESULT
from everturn.tools.results import parts_of_error, safe_error_text, safe_text
from everturn.tools.tool import Tool
from everturn.tools.user_code import NoThread, TookTooLong
from everturn.truncation import Notice, bound_content, edit_notice, result_fits

_log = get_logger("everturn.tool")

KEEP_SECONDS = 30.0
"""How long a result may take to be kept."""

Content = tuple[ResultPart, ...]
ToolActivity = Callable[[ToolRequest], Coroutine[Any, Any, ToolResult]]


class ToolCalls:
    def __init__(
        self,
        agents: Mapping[str, Agent],
        *,
        prefixes: PrefixCache,
        heartbeats: Heartbeats,
        threads: Executor,
        artifacts: Artifacts | None = None,
        toolsets: Toolsets | None = None,
        contexts: ToolContexts | None = None,
        times: ToolTimes | None = None,
        quarantine: Quarantine | None = None,
    ) -> None:
        self._quarantine = quarantine or Quarantine()
        self._agents = agents
        self._contexts = contexts or ToolContexts()
        self._toolsets = toolsets or Toolsets(agents.values())
        self._artifacts = artifacts
        self._times = times or ToolTimes()
        self._prefixes = prefixes
        self._heartbeats = heartbeats
        self._threads = threads
        self._alone = poison_calls.OneAtATime()
        self._local_tries = poison_calls.LocalTries()

    def activities(self) -> list[Callable[..., Any]]:
        """One for each tool name, after the worker's prefix. Agents may have different tools of one name: the request
        says whose is meant."""
        tools = {
            agent.activity_prefix + tool.name
            for agent in self._agents.values()
            for tool in agent.tools
            if tool.is_function
        }
        hosted = user_activities(self._agents, tool_names=tools)
        return [*map(self._make_activity, sorted(tools)), *hosted, self.check_call, self._any_other]

    @activity.defn(name=names.CHECK_CALL)
    async def check_call(self, request: ToolRequest) -> CheckedCall:
        """Before a call runs that is no function of a worker's: do the arguments that a person put in fit? And of a
        user's own activity or a Nexus operation: has it run before a reset, is its endpoint there?"""
        await self._heartbeats.check_ours()
        agent = await agent_of(self._agents, request, heartbeats=self._heartbeats)
        tool = agent.tool(request.tool)
        with self._heartbeats.beating() as beat:
            edited = request.decision is not None and request.decision.arguments is not None
            if tool is None and edited and (agent.mcp_servers or agent.prepare_tools):
                agent, tool = await self._find_turn_tool(agent, request)
            once = tool is None or (tool.effect == "once" and tool.runs_on == "worker")
            if once:
                await self._quarantine.check_call(request.tool, request)
            if request.endpoint:
                await nexus_endpoints.check_endpoint(request)
            elif once:
                await before_reset.check_not_run(request.tool, request)
            checked = CheckedCall(run_id=activity.info().workflow_run_id or "")
            if not edited:
                return checked
            arguments = request.arguments
            if tool is None and request.given:
                _refuse_edit(request.tool, request, "are not taken: no hook can see them, since the tool is gone")
            if tool is not None:  # else a deploy has removed it, and it runs as it was planned
                context = self._make_context(tool.name, request, beat)
                if given := await _show_to_hooks(HookRuns(agent), tool, request, context):
                    result = await after_hooks(agent, _call_of(tool.name, request), given, context)
                    return checked.model_copy(update={"arguments": arguments, "result": result})
                try:
                    if tool.runs_on == "client":  # it reads them itself
                        await tool.checked(arguments, context)
                    else:
                        arguments = await tool.inputs(arguments, context)
                    if (size := size_of(arguments)) > MAX_REPLY_BYTES:  # a type can make much of a short text
                        raise InvalidArguments(f"they have {size:,} bytes as JSON; the limit is {MAX_REPLY_BYTES:,}")
                except InvalidArguments as error:
                    _refuse_edit(tool.name, request, f"do not fit: {error}")
            return checked.model_copy(update={"arguments": arguments})

    def _make_activity(self, kind: str) -> ToolActivity:
        @activity.defn(name=kind)
        async def run_tool(request: ToolRequest) -> ToolResult:
            return await self._run_call(request.tool or kind, request)

        return run_tool

    @activity.defn(dynamic=True)
    async def _any_other(self, arguments: Sequence[RawValue]) -> ToolResult:
        """Runs calls of tools without an activity of their own here: they may belong to another version of the code."""
        info = activity.info()
        if info.workflow_type != names.CONVERSATION:
            raise not_registered(info)
        request = request_of(arguments)
        attempts.bind_request(request)
        return await self._run_call(request.tool or info.activity_type, request)

    async def _run_call(self, name: str, request: ToolRequest) -> ToolResult:
        await self._heartbeats.check_ours()
        take_left(request.left)
        try:
            agent, tool = await self._find_tool(name, request)
        except NeverListed as error:
            return _make_result(name, request, (Text(text=str(error)),), is_error=True)
        except NoLongerAvailable:  # gone with a deploy, after the call was planned
            return _make_result(name, request, (Text(text=f"The tool {name} is no longer available."),), is_error=True)
        try:
            return await self._run_tool(agent, tool, name, request)
        except FailureError:
            raise  # it says itself when to try again
        except Exception as error:
            if tool.effect == "once":
                raise  # it may have taken effect: a person decides
            failed = await activity_errors.of_unexpected(error, patience=tool.patience)
            if not failed.non_retryable:
                raise failed from None
            text = f"{name} has no result: {failed.message.rstrip('.')}.{_doubt_text(tool)}"
            return _make_result(name, request, (Text(text=text),), is_error=True)

    async def _run_tool(self, agent: Agent, tool: Tool, name: str, request: ToolRequest) -> ToolResult:
        started = time.monotonic()
        with self._heartbeats.beating(begins=False) as beat:
            await free_queue_of_lost_worker()
            lost = await self._local_tries.count_lost() if activity.info().is_local else poison_calls.blamed_tries()
            if lost >= poison_calls.MOST_OF_A_TOOL:
                result_lost = _make_result(name, request, _lost_text(tool, lost), is_error=True)
                return result_lost.model_copy(update={"extra": {names.WORKERS_LOST: lost}})
            if tool.effect == "once":
                _check_first_try(name, request)
                await before_reset.check_not_run(name, request)
                await self._quarantine.check_call(name, request)
                self._quarantine.note_begun()
            async with self._alone.if_lost_before():
                started = time.monotonic()
                whole_result = None
                hooks = HookRuns(agent)
                questions = Questions(request.answer)
                context = self._make_context(name, request, beat, questions)
                try:
                    if given := await _show_to_hooks(hooks, tool, request, context):
                        content = given.content
                        failed = given.is_error
                    else:
                        content, failed = await self._outcome_of(tool, request, context, beat, questions)
                    ran = _make_result(name, request, content, is_error=failed)
                    whole_result = await hooks.after_tool(_call_of(name, request), ran, context)
                finally:
                    self._times.note_run(agent, name, time.monotonic() - started, whole_result)
            if not failed and (notice := edit_notice(request.decision)):
                whole_result = whole_result.model_copy(update={"content": (*notice, *whole_result.content)})
            until = started + tool.timeout.total_seconds() + seconds_at(agent, name, "before_tool", "after_tool")
            result = await self._fit_result(whole_result, request, max_chars=agent.limits.max_result_chars, until=until)
        # A smaller one comes with the delta. Of a call that is not local, the conversation lends it: it knows which try
        # counts. A worker that was out of reach may come back with the result of a try that nobody got.
        if activity.info().is_local and is_larger(result, INLINE_BYTES):
            self._prefixes.remember_result(activity.info().workflow_run_id or "", result)
        _log.info("tool.finished", tool=name, failed=failed, seconds=round(time.monotonic() - started, 3))
        return result

    async def _find_tool(self, name: str, request: ToolRequest) -> tuple[Agent, Tool]:
        """The agent and its tool. Raises NeverListed, and what `tool_of` raises."""
        agent = await agent_of(self._agents, request, heartbeats=self._heartbeats)
        if agent.tool(name) or not (agent.mcp_servers or agent.prepare_tools):
            return agent, tool_of(agent, name, request)
        with self._heartbeats.beating(begins=False):  # its server may have to be started first
            agent = await self._with_turn_tools(agent, name, request)
        tool = tool_of(agent, name, request)
        # Its server's list may have changed since it was planned: Temporal tries it again as the plan says.
        if request.once and tool.attaches:
            tool = replace(tool, effect="once")
        return agent, tool

    async def _with_turn_tools(self, agent: Agent, name: str, request: ToolRequest) -> Agent:
        if agent.mcp_servers:
            set_planned(once=request.once, again=request.again)
            agent = await for_call(self._toolsets, agent, name, may_have_run=request.again)
        if agent.tool(name) is None:
            agent = await with_its_tools(agent, self._contexts.of_turn(request))
        return agent

    async def _find_turn_tool(self, agent: Agent, request: ToolRequest) -> tuple[Agent, Tool | None]:
        """The agent with the tools that it has only in its turns, of MCP servers and from `prepare_tools`, and the
        request's tool; None if there is none by now."""
        try:
            agent = await self._with_turn_tools(agent, request.tool, request)
        except NeverListed:
            return agent, None
        return agent, agent.tool(request.tool)

    async def _outcome_of(
        self, tool: Tool, request: ToolRequest, context: ToolContext, beat: Heartbeat, questions: Questions
    ) -> tuple[Content, bool]:
        """What the model is told, and whether it is an error. Raises only what is not the tool's own doing."""
        set_answer(request.answer)
        try:
            begin = partial(self._heartbeats.begin_tool, activity.info().task_token)
            content = await tool.run(
                _approved_arguments(tool, request), context, executor=self._threads, on_begin=begin
            )
        except TookTooLong:
            return self._try_again(
                tool, f"{tool.name} did not finish within {tool.timeout}.", kind=names.TIMED_OUT
            ), True
        except NoThread as error:
            _log.error("tool.not_begun", tool=tool.name, error=str(error))
            delay = retry_delays.retry_delay(None, attempt=activity.info().attempt, longest=tool.patience)
            return self._try_again(tool, f"{tool.name} has not run: {error}.", kind=names.NO_THREAD, delay=delay), True
        except InvalidArguments as error:
            return _refuse_arguments(tool.name, request, error), True
        except AsksPerson as error:
            raise _asking_error(tool, request, error) from None
        except asyncio.CancelledError:  # from Temporal: the tool's own comes as another error
            beat.cancelled = True
            if activity.is_worker_shutdown():
                raise activity_errors.worker_shutdown() from None
            details = activity.cancellation_details()
            if tool.effect == "once" and details and (details.paused or details.reset):
                # An operator did this to the activity. Later, Temporal would run it again by itself.
                error_text = f"{tool.name} was cut short: its activity was {'paused' if details.paused else 'reset'}"
                raise ApplicationError(error_text, type=names.CUT_SHORT, non_retryable=True) from None
            raise
        except Exception as error:  # noqa: BLE001 - a tool may raise anything, and the model may know what to do
            if questions.open:
                raise _asking_error(tool, request, questions.open) from None
            if tool.effect == "once" and raised.find_error(error, (OutcomeUnknown, RanTooLong), also_handled=True):
                error_text = shortened(await safe_error_text(error), max_bytes=MAX_CAUSE_BYTES)
                raise ApplicationError(error_text, type=names.OUTCOME_UNKNOWN, non_retryable=True) from None
            if asks := raised.find_error(error, NeedsApproval):
                raise await _needs_approval(tool, request, asks) from None
            if raised.all_are(error, (Retry, OutcomeUnknown, *tool.retry)):
                text = await retry_or_text(tool, error)
            else:
                text = await safe_error_text(error, whole=True)
            if not raised.all_are(error, raised.PLAIN_WORDS):
                # No text of it: what a tool says stays out of logs.
                kind = user_code.class_name(error)
                _log.warning("tool.raised", tool=tool.name, error=kind, at=user_code.raised_at(error))
            return (Text(text=text), *parts_of_error(error)), True
        if questions.open:  # the tool has caught the exception that asks
            raise _asking_error(tool, request, questions.open)
        return content, False

    async def _fit_result(
        self, result: ToolResult, request: ToolRequest, *, max_chars: int, until: float
    ) -> ToolResult:
        """The result. If it is too large, it is cut, and kept whole in the artifact store if there is one."""
        most = MAX_RESULT_BYTES if request.room is None else request.room
        max_bytes = max(0, most - size_of(result.decision))
        if result_fits(result.content, max_chars=max_chars, max_bytes=max_bytes):
            return result
        notice = Notice()
        if self._artifacts:
            notice = await self._keep_whole(result, until=until)
        content = bound_content(result.content, max_chars=max_chars, max_bytes=max_bytes, notice=notice)
        return result.model_copy(update={"content": content})

    async def _keep_whole(self, result: ToolResult, *, until: float) -> Notice:
        """Keeps the whole result; the notice says how to find it. A failure raises nothing: the tool has run."""
        assert self._artifacts is not None
        conversation_id = activity.info().workflow_id or ""
        call_id = result.call_id
        # After the tool's own time-out comes the server's.
        limit = min(KEEP_SECONDS, max(1.0, until + 2 - time.monotonic()))
        try:
            name = await asyncio.wait_for(
                asyncio.get_running_loop().run_in_executor(
                    self._threads, self._artifacts.keep, conversation_id, result
                ),
                limit,
            )
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - file systems raise all kinds
            error_text = f"{type(error).__name__}: {error}"
            _log.warning("artifact.lost", error=error_text)
            lost = "The rest is lost: it could not be stored."
            return Notice(text=f"{lost} {Notice.text}", other=f"{lost} {Notice.other}")
        read_on = f'{READ_RESULT}(call_id="{call_id}", offset={{shown}})'
        return Notice(
            text=f"All of it is kept as {name}: {read_on} reads on, and search= finds a text in it.",
            other=f"It is kept as {name}.",
        )

    def _try_again(self, tool: Tool, text: str, *, kind: str, delay: timedelta = timedelta()) -> Content:
        """For a run without a result. Raises to try again while patience lasts, then returns the text for the model."""
        if tool.effect == "once":
            raise ApplicationError(text, type=kind, non_retryable=True)
        if patience.spend(delay, tool.patience):
            raise ApplicationError(text, type=kind, next_retry_delay=delay or None)
        return (Text(text=text),)

    def _make_context(
        self, tool: str, request: ToolRequest, beat: Heartbeat, questions: Questions | None = None
    ) -> ToolContext:
        return self._contexts.of_call(
            request,
            request.call_id,
            chain_id=request.chain_id,
            approved=request.decision is not None and request.decision.verdict == "approve",
            ask=(questions or Questions()).ask_person,
            heartbeat=beat.report_progress,
            is_cancelled=lambda: beat.cancelled,
            log=_log.bind(tool=tool),
        )


async def _show_to_hooks(hooks: HookRuns, tool: Tool, request: ToolRequest, context: ToolContext) -> ToolResult | None:
    """Shows hooks the arguments that a person put in; they have seen the model's own when the call was planned. What
    runs is what the person approved: raises ApplicationError if hooks refuse it or change it, and then the person is
    asked about what they made of it. If a hook gives the result, that is returned, and nothing is to run."""
    if request.as_shown or request.decision is None or request.decision.arguments is None:
        return None
    call = ToolCall(call_id=request.call_id, name=tool.name, arguments=request.arguments)
    try:
        await tool.checked(call.arguments, context)
    except InvalidArguments:
        return None  # the run says so
    proposed: dict[str, JsonValue] | None = None
    given: ToolResult | None = None
    try:
        verdict = await hooks.before_tool(call, tool, context)
        given = verdict.result
        problem = verdict.denied
        if not problem and verdict.failed:
            problem = verdict.asks
        if not problem and not same_json(verdict.call.arguments, request.arguments):
            problem = (
                f"{', '.join(verdict.changed_by)} would change them. To run the call as it is shown now, approve it"
            )
            proposed = verdict.call.arguments
            problem += _defaults_in_words(tool.defaults_for(proposed))
    except StoppedByHook as stop:
        problem = stop.text
    except ApplicationError as stall:
        problem = stall.message
    if not problem and request.given and given is None:
        problem = (
            "a hook gave the call's result, and gives none for them. Approve the call as it is, deny it or answer it"
        )
    if problem:
        _refuse_edit(tool.name, request, f"are not taken: {problem}", proposed=proposed)
    return given


def _refuse_edit(
    name: str, request: ToolRequest, problem: str, *, proposed: dict[str, JsonValue] | None = None
) -> None:
    """Raises ApplicationError if it was a person who put these arguments in: the call waits for a person again.
    `proposed`: those that hooks would take."""
    if request.decision and request.decision.arguments is not None:
        # A person made the mistake, so a person corrects it.
        raise ApplicationError(
            shortened(f"{EDITED} {problem}", max_bytes=MAX_CAUSE_BYTES),
            # The event of a local activity does not say whose it is.
            {"call_id": request.call_id, "tool": name, **_proposal_details(proposed)},
            type=names.INVALID_EDIT,
            non_retryable=True,
        ) from None


def _proposal_details(arguments: dict[str, JsonValue] | None) -> dict[str, Any]:
    """Too large a one is not carried along: the person has to put in others."""
    if arguments is None or size_of(arguments) > MAX_LEFT_BYTES:
        return {}
    return {"proposed": arguments}


def _approved_arguments(tool: Tool, request: ToolRequest) -> dict[str, JsonValue]:
    """The arguments, with the defaults that the person was shown if a deploy has changed them since."""
    if not request.by_default or request.as_shown:  # what hooks propose is shown with the defaults of today
        return request.arguments
    defaults = tool.defaults_for(request.arguments)
    changed = {name: value for name, value in request.by_default.items() if not same_json(defaults.get(name), value)}
    return {**changed, **request.arguments}


def _check_first_try(name: str, request: ToolRequest) -> None:
    """Raises ApplicationError for a further try of a call that was planned before a deploy made its effect `once`:
    Temporal tries it again as the plan says."""
    if request.once:
        return
    if activity.info().is_local:  # where a further try can't be told from the first: the queue has it
        raise handed_back(f"The effect of {name} is `once` by now.", "It goes on by itself.", None, lacks="local run")
    if poison_calls.may_have_run():
        raise ApplicationError(
            f"{name} was lost with its worker, and its effect is `once` by now",
            type=names.MAY_HAVE_RUN,
            non_retryable=True,
            category=ApplicationErrorCategory.BENIGN,
        )


def _asking_error(tool: Tool, request: ToolRequest, error: AsksPerson) -> ApplicationError:
    """The error that ends the activity: the wait for a person is the workflow's."""
    details = {**_call_details(tool, request), "left": error.left}
    question = error.question or f"{tool.name} asks a question"
    return ApplicationError(
        question, details, type=names.ASKS, non_retryable=True, category=ApplicationErrorCategory.BENIGN
    )


async def _needs_approval(tool: Tool, request: ToolRequest, error: NeedsApproval) -> ApplicationError:
    message = ""
    if error.message is not None:
        message = await safe_text(error.message)
    message = message or f"{tool.name} needs approval"
    return ApplicationError(
        shortened(message, max_bytes=MAX_CAUSE_BYTES)
        + _defaults_in_words(tool.defaults_for(request.arguments) | request.by_default),
        _call_details(tool, request),
        type=names.NEEDS_APPROVAL,
        non_retryable=True,
        category=ApplicationErrorCategory.BENIGN,
    )


def _defaults_in_words(defaults: Mapping[str, Any]) -> str:
    return shortened(defaults_in_words(defaults), max_bytes=MAX_REASON_BYTES)


def _call_details(tool: Tool, request: ToolRequest) -> dict[str, Any]:
    """What the event of a local activity does not say by itself."""
    details: dict[str, Any] = {"call_id": request.call_id, "tool": tool.name}
    if activity.info().is_local and request.decision:
        details["decision"] = request.decision.model_dump(mode="json")
    return details


def _lost_text(tool: Tool, times: int) -> Content:
    lost = f"its worker was lost {times} times while it ran, or could not reach Temporal"
    return (Text(text=f"{tool.name} has no result: {lost}. It is not run again.{_doubt_text(tool)}"),)


def _doubt_text(tool: Tool) -> str:
    if tool.effect == "read":
        return ""
    return " It may or may not have taken effect."


def _refuse_arguments(name: str, request: ToolRequest, error: InvalidArguments) -> Content:
    _refuse_edit(name, request, f"do not fit: {error}")
    return (Text(text=str(error)),)


def _call_of(name: str, request: ToolRequest) -> ToolCall:
    return ToolCall(call_id=request.call_id, name=name, arguments=request.arguments)


def _make_result(name: str, request: ToolRequest, content: Content, *, is_error: bool) -> ToolResult:
    return ToolResult(call_id=request.call_id, name=name, content=content, is_error=is_error, decision=request.decision)
