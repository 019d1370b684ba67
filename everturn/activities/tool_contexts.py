"""The contexts that user code is given for its turn or call, with what the worker's `deps=` opened."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import AbstractAsyncContextManager
from contextvars import ContextVar
from typing import Any, NoReturn, Self, get_args

from temporalio import activity

from everturn.activities.turn_place import turn_place
from everturn.agent import Agent
from everturn.errors import InvalidAgent, InvalidSetting
from everturn.hooks import has_point, name_of
from everturn.logs import get_logger
from everturn.payloads import DecisionCheck, ModelRequest, ToolRequest
from everturn.records import HookPoint, Usage, cost_with
from everturn.tools.context import ToolContext, TurnContext
from everturn.tools.given_schema import annotations_of
from everturn.tools.results import error_text
from everturn.tools.signature import find_mention

MakeDeps = Callable[[], AbstractAsyncContextManager[Any]]
"""Makes what `async with` opens when the worker starts, and closes when it has drained."""

SAY_SECONDS = 10.0
CLOSE_SECONDS = 30.0

_log = get_logger("everturn.worker")


class TurnSpending:
    """What a turn has spent: the model's reply, and what user code reports."""

    def __init__(self) -> None:
        self.usage = Usage()
        self.cost_usd: float | None = 0.0

    def add_usage(self, usage: Usage, cost_usd: float | None = None) -> None:
        self.usage += usage
        self.cost_usd = cost_with(self.cost_usd, cost_usd)

    @classmethod
    def of_this_turn(cls) -> Self:
        """To be called when a turn's activity begins. From then on, its contexts add to what this returns."""
        _spent.set(spent := cls())
        return spent


_spent: ContextVar[TurnSpending] = ContextVar("spent")
_NOBODY = TurnSpending()


def spend_in_turn(usage: Usage, cost_usd: float | None) -> None:
    """Counts what was spent beside the model's reply, if this is a turn."""
    _spent.get(_NOBODY).add_usage(usage, cost_usd)


class ToolContexts:
    """Enter it with the worker: `async with Contexts(make_deps) as contexts`. Each worker opens its own."""

    def __init__(self, make_deps: MakeDeps | None = None) -> None:
        self._make_deps = make_deps
        self._opened: AbstractAsyncContextManager[Any] | None = None
        self.deps: Any = None

    async def __aenter__(self) -> Self:
        if self._make_deps is None:
            return self
        try:
            opened = self._make_deps()
            if not isinstance(opened, AbstractAsyncContextManager):
                if inspect.iscoroutine(opened):
                    opened.close()
                raise InvalidSetting(
                    f"The worker's deps={self._make_deps!r} gave {type(opened).__name__}, "
                    "which is not an async context manager.",
                    cure="Write @asynccontextmanager above an async function that yields the deps.",
                )
            self.deps = await _await_with_log(opened.__aenter__())
        except InvalidSetting:
            raise
        except Exception as error:
            raise InvalidSetting(
                f"The worker's deps could not be opened: {error_text(error)}",
                cure="The worker has not started. Correct this and start it again.",
            ) from error
        self._opened = opened
        return self

    async def __aexit__(self, *_: object) -> None:
        opened = self._opened
        self._opened = None
        if opened is None:
            return
        try:
            async with asyncio.timeout(CLOSE_SECONDS) as limit:
                await opened.__aexit__(None, None, None)
        except Exception as error:  # noqa: BLE001 - the user's own, and all work is done
            late = f"they took longer than {CLOSE_SECONDS:g} s"
            _log.error("deps.not_closed", error=late if limit.expired() else error_text(error))

    def of_turn(self, request: ModelRequest | ToolRequest) -> TurnContext[Any]:
        info = activity.info()
        return TurnContext(
            conversation_id=turn_place().conversation_id,
            agent=request.agent,
            **request.labels,
            deps=self.deps,
            turn=request.turn,
            now=info.scheduled_time,
            attempt=info.attempt,
            spend=_spent.get(_NOBODY).add_usage,
        )

    def of_call(
        self, request: ModelRequest | ToolRequest | DecisionCheck, call_id: str, **context_fields: Any
    ) -> ToolContext[Any]:
        """`context_fields`: other fields of the context."""
        info = activity.info()
        return ToolContext(
            conversation_id=info.workflow_id or "",
            call_id=call_id,
            agent=request.agent,
            **request.labels,
            deps=self.deps,
            attempt=info.attempt,
            turn=request.turn,
            **context_fields,
        )


async def _await_with_log(opening: Awaitable[Any]) -> Any:
    """What `opening` returns. Until then, writes a log line every SAY_SECONDS: nothing else says why a worker that was
    started does nothing."""

    async def log_waiting() -> NoReturn:
        while True:
            await asyncio.sleep(SAY_SECONDS)
            _log.warning("deps.still_opening", cure="The worker takes no work until its deps are open.")

    logging_task = asyncio.create_task(log_waiting())
    try:
        return await opening
    finally:
        logging_task.cancel()


def check_deps(agents: Iterable[Agent], make_deps: object) -> None:
    """Raises InvalidSetting if `make_deps` can't make any, and InvalidAgent if deps are wanted and there are none."""
    if make_deps is None:
        for agent in agents:
            for what, function in _functions_of(agent):
                if (wanted := _deps_type(function)) is not None:
                    raise InvalidAgent(
                        f"{what} of agent {agent.name!r} wants deps ({getattr(wanted, '__name__', wanted)}), and the "
                        "worker opens none.",
                        cure="Write Worker(..., deps=make_deps), or EverturnPlugin(..., deps=make_deps).",
                    )
    elif not callable(make_deps):
        raise InvalidSetting(
            f"A worker was given deps={make_deps!r}, which can't be called.",
            cure="Give a function that makes an async context manager: each worker opens its own.",
        )


def _functions_of(agent: Agent) -> Iterator[tuple[str, Callable[..., Any]]]:
    """The user's functions that may take a context, with what they are."""
    for tool in agent.tools:
        if tool.function is not None and tool.is_function:
            yield f"Tool {tool.name!r}", tool.function
        if callable(tool.needs_approval):
            yield f"needs_approval of tool {tool.name!r}", tool.needs_approval
    named = {
        "instructions": agent.instructions,
        "prepare_tools": agent.prepare_tools,
        "approvers": agent.approvers,
    }
    yield from ((what, function) for what, function in named.items() if callable(function))
    for hook in agent.hooks:
        for point in get_args(HookPoint):
            if has_point(hook, point):
                yield f"{point} of hook {name_of(hook)!r}", getattr(hook, point)


def _deps_type(function: Callable[..., Any]) -> Any:
    """What the function's annotation of its context says that deps are; None if it says nothing."""
    for annotation in annotations_of(function, (ToolContext, TurnContext)).values():
        for context in (ToolContext, TurnContext):
            context_type = find_mention(annotation, context)
            if (
                context_type is not None
                and (arguments := get_args(context_type))
                and arguments[0] not in (Any, None, type(None))
            ):
                return arguments[0]
    return None
