"""Waits for conditions, never for a fixed time."""

from __future__ import annotations

import asyncio
import inspect
import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest

from everturn import Client, Conversation
from everturn.errors import NotFound, Unreachable
from everturn.payloads import Status
from everturn.workflows.commands import COMMANDS, Commands
from tests.support.bounds import CONSTANTS
from tests.support.changed_commands import with_another

WAIT_SECONDS = 180.0
"""What a test waits for comes within a second; a process that has to start on a full machine takes a while."""

BUSY_SECONDS = 1.2
"""Longer than what is sent meanwhile takes; shorter than the time-out of a workflow task."""


QUERY_SECONDS = 0.05
"""Between two queries: each one makes a worker without a cache replay the whole conversation."""


def pause_after(waited: float, *, least: float = 0.02) -> float:
    """Seconds until a condition is looked at again: seldom if it takes long."""
    return min(max(least, waited / 4), 0.25)


async def eventually(
    condition: Callable[[], Any | Awaitable[Any]],
    *,
    seconds: float = WAIT_SECONDS,
    what: str = "",
    pause: float = 0.02,
) -> Any:
    """The condition's value as soon as it is true; fails where it does not become so in time."""
    began = time.monotonic()
    while True:
        value = condition()
        if inspect.isawaitable(value):
            value = await value
        if value:
            return value
        waited = time.monotonic() - began
        assert waited < seconds, f"not so within {seconds} s: {what or inspect.getsource(condition)}"
        await asyncio.sleep(pause_after(waited, least=pause))


async def waiting(conversation: Conversation, *, calls: int = 1) -> tuple[str, ...]:
    """The ids of the calls that wait, once there are so many."""

    async def enough() -> tuple[str, ...]:
        with suppress(Unreachable, NotFound):  # its worker is yet to come, or a sub-agent's start
            status = await conversation.status()
            return tuple(call.call_id for call in status.waiting) if len(status.waiting) >= calls else ()
        return ()

    return tuple(await eventually(enough, what=f"{calls} calls wait", pause=QUERY_SECONDS))


async def reaches(conversation: Conversation, state: str) -> Status:
    """The conversation's status, once it is in that state."""
    seen: list[Status] = []

    async def there() -> bool:
        with suppress(Unreachable, NotFound):
            seen[:] = [await conversation.status()]
            return seen[0].state == state
        return False

    await eventually(there, what=f"it is {state}", pause=QUERY_SECONDS)
    return seen[0]


async def says_why(conversation: Conversation, words: str) -> bool:
    """Whether its status gives a cause with these words."""
    return words in ((await conversation.status()).cause or "")


async def nothing_runs(client: Client, conversation: Conversation) -> None:
    """Returns once every activity that was begun has ended, whether the conversation has seen its end or not."""
    handle = client.temporal.get_workflow_handle(conversation.id)

    async def no_activity() -> bool:
        return not (await handle.describe()).raw_description.pending_activities

    await eventually(no_activity, what="no activity runs")


def busy_in(
    monkeypatch: pytest.MonkeyPatch,
    owner: type,
    name: str,
    *,
    when: Callable[..., bool] = lambda *_: True,
    seconds: float = BUSY_SECONDS,
) -> threading.Event:
    """Keeps the worker busy in that method of a workflow, once: what comes in meanwhile, the next workflow task brings
    together. Set as soon as the worker is in it. All steps run in threads, for the event loop is the test's."""
    monkeypatch.setattr(*CONSTANTS["short_step_bytes"], -1)
    busy = threading.Event()
    monkeypatch.setattr(owner, name, _slowed(getattr(owner, name), busy, when, seconds))
    return busy


def busy_taking(
    monkeypatch: pytest.MonkeyPatch,
    command: str,
    *,
    when: Callable[..., bool] = lambda *_: True,
    seconds: float = BUSY_SECONDS,
) -> threading.Event:
    """The same, while it takes a command of that name."""
    monkeypatch.setattr(*CONSTANTS["short_step_bytes"], -1)
    busy = threading.Event()
    take_instead(monkeypatch, command, _slowed(COMMANDS[command].take, busy, when, seconds))
    return busy


def take_instead(monkeypatch: pytest.MonkeyPatch, command: str, take: Callable[..., Any]) -> None:
    """What a command of that name does from here on; it gets the conversation's Commands and the payload."""
    monkeypatch.setattr(Commands, "find_type", with_another(command, take))


def _slowed(
    function: Callable[..., Any], busy: threading.Event, when: Callable[..., bool], seconds: float
) -> Callable[..., Any]:
    def slowly(self: Any, *args: Any, **options: Any) -> Any:
        if not busy.is_set() and when(*args):
            busy.set()
            time.sleep(seconds)
        return function(self, *args, **options)

    return slowly


def until(condition: Callable[[], Any], *, seconds: float = WAIT_SECONDS) -> Any:
    """The same, for tests without an event loop."""
    began = time.monotonic()
    while not (value := condition()):
        waited = time.monotonic() - began
        assert waited < seconds, f"not so within {seconds} s: {inspect.getsource(condition)}"
        time.sleep(pause_after(waited))
    return value
