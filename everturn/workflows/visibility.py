"""Shows the state of a conversation to people: current details for the Web UI, search attributes for lists."""

from __future__ import annotations

from collections.abc import Callable
from math import isfinite
from typing import Any

from temporalio import workflow
from temporalio.api.sdk.v1 import WorkflowMetadata
from temporalio.common import SearchAttributeKey, SearchAttributeUpdate
from temporalio.worker import HandleQueryInput, WorkflowInboundInterceptor

from everturn import names
from everturn.payloads import BATCHED_STATUS, Status
from everturn.sizes import MAX_KEYWORD_INT
from everturn.state import State
from everturn.temporal.ids import keyword
from everturn.tenants.metadata import index_keywords
from everturn.workflows import web_ui
from everturn.workflows.eviction_guard import OwnLoop
from everturn.workflows.recent_messages import RecentMessages

STATUS = SearchAttributeKey.for_keyword(names.EVERTURN_STATUS)
AGENT = SearchAttributeKey.for_keyword(names.EVERTURN_AGENT)
MODEL = SearchAttributeKey.for_keyword(names.EVERTURN_MODEL)
TOKENS = SearchAttributeKey.for_int(names.EVERTURN_TOKENS)
METADATA = SearchAttributeKey.for_keyword_list(names.EVERTURN_METADATA)
COST_USD = SearchAttributeKey.for_float(names.EVERTURN_COST_USD)


class VisibleState:
    """`status` returns the full status. It is called only when somebody looks. `is_batched`: whether a turn waits for a
    provider's batch."""

    def __init__(
        self, state: State, recent: RecentMessages, *, status: Callable[[], Status], is_batched: Callable[[], bool]
    ) -> None:
        self._is_batched = is_batched
        self._state = state
        self._recent = recent
        self._status = status
        # A client that found the search attributes in the namespace has set the first state itself.
        first = workflow.info().typed_search_attributes
        self._indexed_state = first.get(STATUS) or ""
        self._indexed_agent = first.get(AGENT) or keyword(self._state.agent)
        self._indexed_tenant = first.get(METADATA) is not None
        """Whether it is in the index, or whoever started the conversation has left it out."""
        self._expected_model = first.get(MODEL) or ""
        """The model that the client expects, if it knows one."""
        self._own_loop = OwnLoop()

    @property
    def model(self) -> str:
        """The agent's model, if it is known."""
        return self._state.asked_model or self._expected_model

    @property
    def turn_model(self) -> str:
        """The model that the next turn asks, if it is known and may be shown."""
        if self._is_minimal:
            return ""
        return self._state.model.name or self.model

    @property
    def turn_agent(self) -> str:
        """The agent that the next turn asks, if the conversation was handed over to it and this may be shown."""
        if self._is_minimal or not self._state.in_charge.handed_on:
            return ""
        return self._state.agent

    @property
    def _is_minimal(self) -> bool:
        return self._state.start.visibility == "minimal"

    def show(self) -> None:
        if not self._own_loop.is_running:
            return
        name = self._listed_state
        agent = self._indexed_agent if self._is_minimal else keyword(self._state.agent)
        known = (self._indexed_state, names.unversioned(self._indexed_agent))
        if self._is_indexed and (name, names.unversioned(agent)) != known:
            # An upsert is a history event: one for each change of the state or the agent, none for a turn; a version is
            # written with the next of these.
            self._indexed_state = name
            self._indexed_agent = agent
            attributes: list[SearchAttributeUpdate[Any]] = [STATUS.value_set(name)]
            if not self._is_minimal:
                attributes += [*_state_attributes(self._state, self.model), *self._tenant_attribute()]
            workflow.upsert_search_attributes(attributes)

    @property
    def _listed_state(self) -> str:
        if self._state.name == "running" and self._is_batched():
            return BATCHED_STATUS
        return self._state.name

    def _tenant_attribute(self) -> list[SearchAttributeUpdate[Any]]:
        """For conversations that others than Python's client have started: agents that are asked, too."""
        state = self._state
        if self._indexed_tenant or not state.start.tenant or not (state.facts and state.facts.tenants_indexed):
            return []
        self._indexed_tenant = True
        return [METADATA.value_set(index_keywords([], tenant=state.start.tenant))]

    @property
    def _is_indexed(self) -> bool:
        """The namespace has everturn's search attributes. Upserting one that it lacks would fail the workflow task."""
        return bool(self._indexed_state) or (self._state.facts is not None and self._state.facts.indexed)

    def current_details(self) -> str:
        """Markdown for the Web UI. No event of the history is spent on it."""
        this = workflow.info().workflow_id
        if self._is_minimal:
            return web_ui.current_details(
                web_ui.without_content(self._status()), conversation_id=this, agent="A conversation"
            )
        return web_ui.current_details(
            self._status(),
            conversation_id=this,
            agent=self._state.agent,
            model=self.model,
            latest_lines=self._recent.latest_lines(self._state.unseen.messages),
        )


class CurrentDetails(WorkflowInboundInterceptor):
    """Has the current details written when somebody asks for them, and not whenever something has changed."""

    async def handle_query(self, input: HandleQueryInput) -> Any:  # noqa: A002
        answer = await self.next.handle_query(input)
        if isinstance(answer, WorkflowMetadata):
            answer.current_details = workflow.instance().visibility.current_details()
        return answer


def _state_attributes(state: State, model: str) -> list[SearchAttributeUpdate[Any]]:
    attributes: list[SearchAttributeUpdate[Any]] = [
        # If the server rejects an attribute, the workflow task fails again and again.
        AGENT.value_set(keyword(state.agent)),
        MODEL.value_set(keyword(model)),
        TOKENS.value_set(min(state.totals.usage.total_tokens, MAX_KEYWORD_INT)),
    ]
    if state.totals.cost_usd is not None and isfinite(state.totals.cost_usd):
        attributes.append(COST_USD.value_set(float(state.totals.cost_usd)))
    return attributes
