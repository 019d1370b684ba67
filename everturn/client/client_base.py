"""What a client and its conversation handles share: the connection, who uses it, and how to start a conversation."""

from __future__ import annotations

from copy import copy
from functools import cached_property
from typing import Any, Self

import temporalio.client
from temporalio.common import (
    Priority,
    SearchAttributeKey,
    SearchAttributePair,
    TypedSearchAttributes,
    WorkflowIDConflictPolicy,
    WorkflowIDReusePolicy,
)
from temporalio.converter import JSONPlainPayloadConverter
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.service import RPCError

from everturn import names
from everturn.agent import Agent
from everturn.client.read_positions import ReadPositions
from everturn.client.trace_context import current_context
from everturn.client.unhosted_agents import CheckedAgents
from everturn.errors import AlreadyStarted, Refused, Unreachable
from everturn.history.reader import first_step
from everturn.live.configured_lane import lane_of
from everturn.live.lane import Lane
from everturn.payloads import Start
from everturn.settings import Settings
from everturn.sizes import MAX_ID_BYTES, MAX_KEYWORD_BYTES
from everturn.temporal import temporal_errors
from everturn.temporal.ids import id_problem, keyword
from everturn.temporal.namespace import Namespace
from everturn.temporal.task_timeout import TASK_TIMEOUT
from everturn.temporal.versioned_queues import may_start_eagerly
from everturn.tenants.metadata import RESERVED_KEYS, TENANT, fits_index, in_index, in_words, index_keywords
from everturn.tenants.priorities import priority_of, read_weights, with_weight, without_name
from everturn.text.markdown import code, first_line, inline
from everturn.text.shortening import clipped
from everturn.text.utf8 import check_utf8

MAX_LISTED_TOOLS = 40

MAX_NAME_SHOWN = 200
"""How many characters of a name the Web UI's details show. Temporal accepts 20,000 bytes of details."""


class _Environment:
    """A client's settings from the environment, read at first use, since reading them takes milliseconds."""

    def __init__(self, temporal: temporalio.client.Client) -> None:
        self._temporal = temporal

    @cached_property
    def settings(self) -> Settings:
        return Settings.load()

    @cached_property
    def weights(self) -> dict[str, float]:
        return read_weights(self.settings.tenant_weights)

    @cached_property
    def live(self) -> Lane | None:
        return lane_of(self.settings, self._temporal.data_converter)


class ClientBase:
    """Temporal's client, and what everturn knows about the server and its settings."""

    by: str

    def __init__(self, temporal: temporalio.client.Client, *, task_queue: str) -> None:
        self.temporal = temporal
        self.task_queue = task_queue
        self.namespace = Namespace(temporal)
        self._environment = _Environment(temporal)
        self._checked_agents = CheckedAgents(temporal, task_queue, self.namespace)
        self.read_positions = ReadPositions(temporal)

    async def indexed(self) -> bool:
        """Whether the namespace has all of everturn's search attributes; False if the server does not answer."""
        return await self.namespace.indexed()

    def unreachable_error(self, error: RPCError) -> Unreachable:
        return temporal_errors.unreachable(self.temporal, error)

    def acting_as(self, by: str) -> Self:
        """The same client for another person. Both share what is known about the server and the settings."""
        another = copy(self)
        another.by = check_utf8("name of who decides", by)
        return another

    @property
    def _settings(self) -> Settings:
        return self._environment.settings

    @property
    def _weights(self) -> dict[str, float]:
        return self._environment.weights

    @property
    def live(self) -> Lane | None:
        """Carries streamed text outside of Temporal; None if text comes by heartbeats only. Raises InvalidSetting."""
        return self._environment.live

    @property
    def _is_minimal(self) -> bool:
        """EVERTURN_VISIBILITY=minimal: conversations started here show as little as possible in Temporal."""
        return self._settings.visibility == "minimal"

    async def _check_searchable(self, start: Start) -> None:
        """Raises Refused if the conversation can't be made searchable by what `searchable` names."""
        if start.visibility == "minimal":
            raise Refused(
                "Metadata can't be searched for with EVERTURN_VISIBILITY=minimal: search attributes are plain text.",
                cure="Leave out searchable=, or change the setting.",
            )
        if unknown := [key for key in start.searchable if key not in (TENANT, *start.metadata)]:
            has = ", ".join(start.metadata) or "nothing"
            raise Refused(f"searchable= names {unknown[0]!r:.100}, but the metadata has {has}.", cure="Add it.")
        if reserved := RESERVED_KEYS.intersection(start.searchable, start.metadata):
            raise Refused(
                f"The metadata has {min(reserved)!r}, which means something else in the index.",
                cure="Use another name for it, or leave it out of searchable=.",
            )
        if not fits_index(in_index(start, start.searchable)):
            raise Refused(
                f"What searchable= names is too long: Temporal's index takes {MAX_KEYWORD_BYTES:,} bytes of it.",
                cure="Name fewer keys, or shorter values.",
            )
        if not (await self.indexed() and await self.namespace.searchable()):
            raise Refused(
                f"The namespace {self.temporal.namespace!r} lacks the search attribute "
                f"{names.EVERTURN_METADATA}, or another one that everturn needs.",
                cure="`everturn doctor --fix` registers them; running clients notice within a minute.",
            )

    async def _first_attributes(self, start: Start, agent: Agent | str) -> TypedSearchAttributes | None:
        """None if the namespace lacks them."""
        if not await self.indexed():
            return None
        if not await self.namespace.searchable():
            return _search_attributes(start, agent, [])
        named = in_index(start, start.searchable)
        metadata_keywords = index_keywords(named, tenant=self._indexed_tenant(start), forked_from=start.forked_from)
        return _search_attributes(start, agent, metadata_keywords)

    def _indexed_tenant(self, start: Start) -> str | None:
        """The tenant, if it is found by that without being asked: its name may be in the index as plain text."""
        hidden = start.visibility == "minimal" or self.temporal.data_converter.payload_codec
        if hidden or not self._settings.index_tenants:
            return None
        return start.tenant

    async def _start_workflow(
        self,
        start: Start,
        conversation_id: str,
        agent: Agent | str = "",
        *,
        after_end: bool = False,
        priority: Priority | None = None,
        ours: str = "",
    ) -> None:
        """Raises AlreadyStarted if something with this id runs or, without `after_end`, is over. `priority`: without
        it, the tenant is the fairness key. `ours`: how the id of a conversation of our own making begins."""
        check_id(conversation_id, ours=ours)
        message = start.as_message().text
        id_reuse_policy = WorkflowIDReusePolicy.REJECT_DUPLICATE
        if after_end:
            id_reuse_policy = WorkflowIDReusePolicy.ALLOW_DUPLICATE
        if isinstance(agent, str) and agent:
            await self._checked_agents.refuse_unhosted(agent)
        start = start.model_copy(update={"trace": current_context()})
        if self._is_minimal:
            start = start.model_copy(update={"visibility": "minimal"})
        minimal = start.visibility == "minimal"
        if start.searchable:
            await self._check_searchable(start)
        priority = priority or priority_of(None, None, None, tenant=start.tenant)
        priority = with_weight(priority, start.tenant, self._weights)
        if minimal or self.temporal.data_converter.payload_codec:
            priority = without_name(priority, start.tenant)
        if (name := _in_charge(start)) != start.agent:  # another agent has taken over
            agent = name
        summary = None if minimal else first_line(message or _origin_in_words(start) or _in_charge(start))
        attempts = 0

        async def start_workflow() -> None:
            nonlocal attempts
            attempts += 1
            try:
                await self.temporal.start_workflow(
                    names.CONVERSATION,
                    start,
                    id=conversation_id,
                    task_queue=self.task_queue,
                    task_timeout=TASK_TIMEOUT,
                    id_conflict_policy=WorkflowIDConflictPolicy.FAIL,
                    id_reuse_policy=id_reuse_policy,
                    search_attributes=attributes,
                    static_summary=summary,
                    static_details=None if minimal else _details_in_markdown(start, agent),
                    memo=_build_memo(start),
                    priority=priority,
                    # A worker in this process, if there is one, begins at once.
                    request_eager_start=may_start_eagerly(self.task_queue),
                )
            except WorkflowAlreadyStartedError:
                # By the ask before, perhaps, whose answer did not come.
                if attempts == 1 or not await self._is_started_with(start, conversation_id):
                    raise

        try:
            attributes = await self._first_attributes(start, agent)
            await self.namespace.once_noticed(temporal_errors.ask_until_answered, start_workflow)
        except WorkflowAlreadyStartedError:
            raise AlreadyStarted(
                f"Conversation {conversation_id!r} {'is already running' if after_end else 'exists already'}.",
                cure="Send to it with client.send(), or use another id.",
            ) from None
        except RPCError as error:
            raise self.unreachable_error(error) from error

    async def _is_started_with(self, start: Start, conversation_id: str) -> bool:
        start_step = await first_step(self.temporal, conversation_id)
        return start_step is not None and start_step.start == start


def check_id(conversation_id: str, *, ours: str = "") -> None:
    """Raises Refused if no conversation may be started with this id. `ours`: as in `id_problem`."""
    check_utf8("id", conversation_id)
    if problem := id_problem(conversation_id, ours=ours):
        raise Refused(problem, cure=f"Use another one, of 1 to {MAX_ID_BYTES:,} bytes.")


def _in_charge(start: Start) -> str:
    """The agent that answers next: the one that took over, if any."""
    if start.carry and start.carry.agent:
        return start.carry.agent
    return start.agent


def _build_memo(start: Start) -> dict[str, Any] | None:
    """What can be known about a conversation without reading its history."""
    memo = start.labels
    if line := start.forked_from:
        # Finished payloads, which no codec encrypts: ids are no secret, and erasing has to find forks without a key.
        plain = JSONPlainPayloadConverter()
        memo |= {names.FORKED_FROM: plain.to_payload(line[0]), names.FORK_LINE: plain.to_payload(line)}
    return memo or None


def _origin_in_words(start: Start) -> str:
    """Which conversation and turn it was forked from, in words; empty if it is not a fork."""
    carry = start.carry
    if carry is None or carry.origin is None or start.message:
        return ""
    return f"fork of {carry.origin.conversation_id} at turn {carry.turn}"


def _search_attributes(start: Start, agent: Agent | str, metadata_keywords: list[str]) -> TypedSearchAttributes:
    """`metadata_keywords`: what the one for tenants, metadata and forks holds."""
    indexed = {names.EVERTURN_STATUS: "running"}
    if start.visibility == "full":
        indexed[names.EVERTURN_AGENT] = _in_charge(start)
        if model := _expected_model(start, agent):
            indexed[names.EVERTURN_MODEL] = model
    pairs: list[SearchAttributePair[Any]] = [
        SearchAttributePair(SearchAttributeKey.for_keyword(name), keyword(value)) for name, value in indexed.items()
    ]
    if metadata_keywords:
        pairs.append(
            SearchAttributePair(SearchAttributeKey.for_keyword_list(names.EVERTURN_METADATA), metadata_keywords)
        )
    return TypedSearchAttributes(pairs)


def _expected_model(start: Start, agent: Agent | str) -> str:
    """The model that will be called; empty if only the worker knows it."""
    if start.model or isinstance(agent, str):
        return start.model or ""
    return agent.model.name


def _details_in_markdown(start: Start, agent: Agent | str) -> str:
    """Markdown for the Web UI."""
    model = _expected_model(start, agent)
    facts = [f"Agent **{inline(_in_charge(start)[:MAX_NAME_SHOWN])}**"]
    if model:
        facts.append(f"model **{inline(model[:MAX_NAME_SHOWN])}**")
    if start.tenant:
        facts.append(f"for **{inline(start.tenant[:MAX_NAME_SHOWN])}**")
    if metadata := clipped(in_words(start.metadata), MAX_NAME_SHOWN):
        facts.append(f"with {code(metadata)}")
    details = ", ".join(facts)
    tools = _tool_lines(agent) if isinstance(agent, Agent) else []
    if not tools:
        return details
    return f"{details}\n\nTools:\n\n" + "\n".join(tools)


def _tool_lines(agent: Agent) -> list[str]:
    lines = [
        f"- {code(tool.name)}{', after an approval' if tool.needs_approval is True else ''}" for tool in agent.tools
    ]
    lines += [f"- those of {code(server.label)}, by MCP" for server in agent.mcp_servers]
    if len(lines) > MAX_LISTED_TOOLS:
        return [*lines[:MAX_LISTED_TOOLS], f"- and {len(lines) - MAX_LISTED_TOOLS:,} more"]
    return lines
