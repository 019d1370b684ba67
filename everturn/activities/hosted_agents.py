"""The agents that a worker hosts: those that it was given, and those that its store knows."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from everturn import names
from everturn.activities.agent_store import AgentStore, StoreFailed
from everturn.agent import Agent
from everturn.errors import InvalidAgent
from everturn.logs import get_logger
from everturn.tools import user_code
from everturn.tools.results import safe_error_text

MOST_HOSTED = 1_000
"""Agents that a worker keeps at hand. The one that was used least recently goes first."""

_log = get_logger("everturn.worker")


class HostedAgents(Mapping[str, Agent]):
    """A worker's agents by the names that conversations use: those that it was given, and those of its store that are
    at hand. Iteration gives only the former."""

    def __init__(
        self, given: Mapping[str, Agent], store: AgentStore | None, *, complete: Callable[[Agent], Agent]
    ) -> None:
        self._given = given
        self.store = store
        self._complete = complete
        self._found: OrderedDict[str, tuple[Agent, float]] = OrderedDict()
        self._asking: dict[str, asyncio.Task[Agent | None]] = {}

    def __getitem__(self, name: str) -> Agent:
        if name in self._given:
            return self._given[name]
        return self._found[name][0]

    def __contains__(self, name: object) -> bool:
        return name in self._given or name in self._found

    def __iter__(self) -> Iterator[str]:
        return iter(self._given)

    def __len__(self) -> int:
        return len(self._given)

    def __bool__(self) -> bool:
        return bool(self._given) or self.store is not None

    def at_hand(self, name: str) -> Agent | None:
        """The agent if the store need not be asked."""
        if name in self._given or self.store is None:
            return self._given.get(name)
        agent, since = self._found.get(name, (None, 0.0))
        if agent is None or not ("@" in name or time.monotonic() - since < self.store.cache_for.total_seconds()):
            return None
        self._found.move_to_end(name)
        return agent

    async def look_up(self, name: str) -> Agent | None:
        """The store's agent. The store is asked once for all that wait for the same name. Raises StoreFailed, and
        InvalidAgent for an agent that can't be used."""
        if self.store is None:
            return None
        task = self._asking.get(name)
        if task is None:
            task = self._asking[name] = asyncio.create_task(self._ask_store(self.store, name))
            task.add_done_callback(lambda done: self._forget_task(name, done))
        return await asyncio.shield(task)

    def _forget_task(self, name: str, task: asyncio.Task[Any]) -> None:
        self._asking.pop(name, None)
        if not task.cancelled():
            task.exception()

    async def _ask_store(self, store: AgentStore, name: str) -> Agent | None:
        plain, _, version = name.partition("@")
        try:
            stored = await user_code.call(
                partial(store.find, plain, version or None), seconds=store.timeout.total_seconds()
            )
        except Exception as error:  # noqa: BLE001 - the user's own, whatever it is
            error_text = f"The agent {name!r} can't be looked up: {await safe_error_text(error)}"
            _log.warning("agent_store.failed", agent=name, error=error_text, goes_on_with_older=name in self._found)
            if name in self._found:
                return self._found[name][0]
            raise StoreFailed(error_text) from None
        if stored is None:
            self._found.pop(name, None)
            return None
        known = self._found.get(name)
        if known and getattr(known[0], "_found_as", None) is stored:
            agent = known[0]
        else:
            agent = self._complete_stored(stored, name)
        self._found[name] = agent, time.monotonic()
        self._found.move_to_end(name)
        while len(self._found) > MOST_HOSTED:
            self._found.popitem(last=False)
        return agent

    def _complete_stored(self, stored: Any, name: str) -> Agent:
        if not isinstance(stored, Agent):
            raise InvalidAgent(
                f"The store returned {type(stored).__name__} for the agent {name!r}.",
                cure="Return an Agent, or None if the store has none of that name.",
            )
        for tool in stored.tools:
            if tool.activity is not None and tool.activity.hosted is not None:
                raise InvalidAgent(
                    f"The agent {name!r} of the store has the activity {tool.activity.name!r} with its "
                    "function, but a worker registers functions only when it starts.",
                    cure="Give activity_tool() the activity's name and its schema, and host "
                    "the activity on your own worker.",
                )
        # From now on, conversations ask for an agent with a version by that version.
        completed = self._complete(stored).named(name if "@" in name else names.versioned(name, stored.version))
        vars(completed)["_found_as"] = stored  # if the store returns it again, the agent made of it is kept
        return completed
