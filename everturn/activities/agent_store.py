"""Agents that a worker looks up when a conversation asks for them: made by users, in a store, without a deploy."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta

from everturn.agent import Agent
from everturn.errors import InvalidSetting
from everturn.logs import get_logger
from everturn.validation import durations
from everturn.validation.spelling import known_options

FindAgent = Callable[[str, str | None], Agent | Awaitable[Agent | None] | None]
"""Given a name and a version (None: the current one), returns the agent, or None if there is none."""

_log = get_logger("everturn.worker")


class StoreFailed(Exception):
    """The agent store failed. The message is the cause of a stall."""


class AgentStore:
    """A worker's agents by a function: `Worker(client, agents=AgentStore(find))`, or `agents=find` for short.

    `find`, sync or async, is given what a conversation asks for: of "clerk@3" the name "clerk" and the version "3", of
    "clerk" the version None. It returns an Agent, or None for a name that it does not know: then the work is left for
    another worker.

    - `cache_for`: how long an agent without a version is used before the store is asked again. One with a version is
      taken to stay what it is. If the store fails, the worker goes on with the older agent.
    - `timeout`: how long `find` may take.
    - `patience`: how long a store that fails is asked again before the conversation stalls.

    Raises InvalidSetting.
    """

    @known_options("AgentStore", InvalidSetting)
    def __init__(
        self,
        find: FindAgent,
        *,
        cache_for: timedelta = timedelta(seconds=30),
        timeout: timedelta = timedelta(seconds=10),
        patience: timedelta = timedelta(minutes=30),
    ) -> None:
        if not callable(find):
            raise InvalidSetting(f"AgentStore was given {find!r}, which can't be called.", cure="Give a function.")
        for name, value in (("cache_for", cache_for), ("timeout", timeout), ("patience", patience)):
            if problem := durations.problem_of(value, may_be_zero=name == "cache_for"):
                raise InvalidSetting(f"AgentStore has {name}={value!r}.", cure=problem)
        self.find = find
        self.cache_for = cache_for
        self.timeout = timeout
        self.patience = patience
