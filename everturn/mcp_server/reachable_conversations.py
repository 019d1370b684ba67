"""Which conversations callers of `everturn mcp` may reach: those of the agents that it offers, and those of
agents that work for them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Collection
from contextlib import aclosing, suppress
from dataclasses import dataclass
from typing import Final

from temporalio.service import RPCError, RPCStatusCode

from everturn import names
from everturn.client.client import Client
from everturn.client.conversation import Conversation
from everturn.errors import NotFound, Refused
from everturn.history.reader import first_step
from everturn.temporal import temporal_errors

MAX_LEVELS: Final = 20
"""How many agents that ask each other are looked through."""


@dataclass(frozen=True)
class BegunConversation:
    """A conversation, and what it was begun with."""

    id: str
    agent: str
    """The agent that it was started with, without its version: hand-offs change nothing in whose conversation it is."""
    parent: tuple[str, str] | None
    """The id and the run of the workflow that it works for."""


class ReachableConversations:
    """`agents`: the names of those that are offered. Empty: every conversation of the namespace may be reached."""

    def __init__(self, client: Client, agents: Collection[str]) -> None:
        self._client = client
        self._agents = frozenset(agents)

    def check_agent(self, agent: str) -> None:
        """Raises Refused for an agent that is not offered."""
        if self._agents and agent not in self._agents:
            raise Refused(
                f"The agent {agent!r:.200} is not offered here; {self._offers_in_words}.",
                cure="Ask one of these, or add `--agent NAME` to `everturn mcp`.",
            )

    async def open_conversation(self, conversation_id: str) -> Conversation:
        """The handle of one that may be reached. Raises NotFound for any other, whether or not there is one."""
        if self._agents and not await self._is_offered(conversation_id):
            raise NotFound(
                f"There is no conversation {conversation_id!r:.300} of an agent that is offered here; "
                f"{self._offers_in_words}.",
                cure="Use an id that `start` or an agent's tool returned.",
            )
        return self._client.conversation(conversation_id)

    async def asked_by_tool(self, conversation_id: str, agent: str) -> str:
        """The conversation of this agent that the given one is, or works for: its own tool may have begun that. Raises
        NotFound if there is none."""
        async with aclosing(self._walk_parents(conversation_id)) as line:
            async for begun in line:
                if begun.agent == names.unversioned(agent):
                    return begun.id
        raise NotFound(f"There is no conversation {conversation_id!r:.300} of the agent {agent!r}.")

    @property
    def _offers_in_words(self) -> str:
        return f"this server offers {', '.join(sorted(self._agents)):.500}"

    async def _is_offered(self, conversation_id: str) -> bool:
        offered = {names.unversioned(name) for name in self._agents}
        with suppress(NotFound):
            async with aclosing(self._walk_parents(conversation_id)) as line:
                async for begun in line:
                    if begun.agent in offered:
                        return True
        return False

    async def _walk_parents(self, conversation_id: str) -> AsyncGenerator[BegunConversation]:
        """The conversation, then the one that it works for, and so on. Raises NotFound and Unreachable."""
        place: tuple[str, str] | None = (conversation_id, "")
        for _ in range(MAX_LEVELS):
            if place is None:
                return
            begun = await self._read_begun(*place)
            yield begun
            place = begun.parent

    async def _read_begun(self, conversation_id: str, run_id: str) -> BegunConversation:
        temporal = self._client.temporal
        with temporal_errors.explained(temporal, conversation_id):
            try:
                described = await temporal.get_workflow_handle(conversation_id, run_id=run_id or None).describe()
                step = await first_step(temporal, conversation_id, described.run_id)
            except RPCError as error:
                if error.status is RPCStatusCode.INVALID_ARGUMENT:  # Temporal takes no such id
                    raise NotFound(f"There is no conversation {conversation_id!r:.300}.") from None
                raise
        agent = names.unversioned(step.start.agent) if step else ""
        parent = described.raw_description.workflow_execution_info.parent_execution
        if not parent.workflow_id:
            return BegunConversation(conversation_id, agent, None)
        return BegunConversation(conversation_id, agent, (parent.workflow_id, parent.run_id))
