"""The agent as it is for one turn: its instructions and tools, if functions of the user's decide them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from temporalio import activity
from temporalio.exceptions import ApplicationError

from everturn import names
from everturn.activities import patience, retry_delays
from everturn.agent import Agent
from everturn.declared_tools import with_declared_tools, with_offered
from everturn.errors import InvalidTool
from everturn.logs import get_logger
from everturn.payloads import ModelRequest
from everturn.providers.transcript_facts import facts_of
from everturn.records import Message
from everturn.tools import raised, user_code
from everturn.tools.context import TurnContext
from everturn.tools.mcp.config import McpServer
from everturn.tools.results import safe_error_text
from everturn.tools.with_context import with_context

_log = get_logger("everturn.turn")


async def agent_for_turn(
    agent: Agent, turn: Callable[[], TurnContext[Any]], messages: Sequence[Message], request: ModelRequest
) -> Agent:
    """The agent with what its functions return for this turn, with the tools that came with what was said last, and
    with no others than those that a message named for its answer; the same object if there is none of that. If a
    function raises, it is tried again while the agent's patience lasts; then the conversation stalls. It stalls at once
    if what a function returns can't be used, or a message names what is not there. `turn` makes their context."""
    agent = await _by_functions(agent, turn)
    try:
        agent = with_declared_tools(agent, facts_of(messages).last_said)
    except InvalidTool as error:
        raise _unusable_error(agent, "What the front end declares for", error.message.rstrip("."), error.cure) from None
    return _offered_agent(agent, request)


def _offered_agent(agent: Agent, request: ModelRequest) -> Agent:
    """The names were said to the first agent: one that has taken over need not have them."""
    if request.tools is None:
        return agent
    try:
        return with_offered(agent, request.tools, lenient=request.signed)
    except InvalidTool as error:
        raise ApplicationError(
            f"A message's tools can't be offered. {error.message}",
            {"cure": f"{error.cure} `cancel_turn`, and send it again; or deploy an agent that has it, and `resume`."},
            type=names.NOT_PREPARED,
            non_retryable=True,
        ) from None


async def _by_functions(agent: Agent, turn: Callable[[], TurnContext[Any]]) -> Agent:
    if not callable(agent.instructions) and agent.prepare_tools is None:
        return agent
    context = turn()
    if callable(agent.instructions):
        instructions = await _call_function(agent, "instructions", with_context(agent.instructions, context=context))
        if not isinstance(instructions, str):
            raise _unusable_error(
                agent, "instructions of", f"it returned {user_code.class_name(instructions)}", "Return a text."
            )
        agent = agent.for_turn(instructions=instructions)
    return await with_its_tools(agent, context)


async def with_its_tools(agent: Agent, context: TurnContext[Any]) -> Agent:
    """The agent with the tools that it has in this turn."""
    if agent.prepare_tools is None:
        return agent
    prepare = partial(agent.prepare_tools, context, list(agent.tools))
    items = await _call_function(agent, "prepare_tools", prepare, finish=_as_list)
    if not isinstance(items, list):
        raise _unusable_error(
            agent, "prepare_tools of", f"it returned {user_code.class_name(items)}", "Return the list of tools."
        )
    try:
        for item in items:
            _check_tool(item)
        return agent.for_turn(tools=items)
    except InvalidTool as error:
        raise _unusable_error(agent, "prepare_tools of", error.message.rstrip("."), error.cure) from None


def _as_list(items: Any) -> Any:
    """What the function returned, as a list: it may be a generator. Unchanged if it is no series of tools."""
    if isinstance(items, str | Mapping) or not isinstance(items, Iterable):
        return items
    return list(items)


def _check_tool(item: Any) -> None:
    """Raises InvalidTool for an item that a worker can set up only when it starts."""
    if isinstance(item, McpServer):
        raise InvalidTool(
            "It returned an McpServer.", cure="Put the server into tools=. Then its tools are in the list."
        )
    runs = getattr(item, "activity", None)
    if runs is not None and runs.hosted is not None:
        raise InvalidTool(
            f"It returned the activity {runs.name!r} with its function.",
            cure="Put it into tools=, or use activity_tool() with its name and its task_queue=.",
        )


async def _call_function(
    agent: Agent, what: str, function: Callable[[], Any], finish: Callable[[Any], Any] | None = None
) -> Any:
    try:
        return await user_code.call(function, seconds=user_code.QUICK_SECONDS, finish=finish)
    except Exception as error:  # noqa: BLE001 - whatever the user's code raises
        attempt = activity.info().attempt
        after = raised.longest_wait(error)
        longest = agent.patience.max_retry_delay
        seconds = None if after is None else after.total_seconds()
        delay = retry_delays.retry_delay(seconds, attempt=attempt, longest=longest)
        is_retried = patience.spend(delay, agent.patience.model)
        error_text = f"{what} of agent {agent.name!r} failed: {await safe_error_text(error)}"
        _log.warning("agent.not_prepared", why=error_text, again=is_retried)
        if not is_retried:
            error_text = f"{error_text} ({patience.effort_text()})"
        raise ApplicationError(
            error_text,
            {"cure": "Fix it and deploy, then `resume`."},
            type=names.NOT_PREPARED,
            non_retryable=not is_retried,
            next_retry_delay=delay if is_retried else None,
        ) from None


def _unusable_error(agent: Agent, what: str, problem: str, cure: str) -> ApplicationError:
    return ApplicationError(
        f"{what} agent {agent.name!r} can't be used: {problem}.",
        {"cure": f"{cure} Then `resume`."},
        type=names.NOT_PREPARED,
        non_retryable=True,
    )
