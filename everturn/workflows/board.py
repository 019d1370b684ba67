"""Shows the state of a conversation to people: current details for the Web UI, search attributes for the fleet."""

from __future__ import annotations

from typing import Any

from temporalio import workflow
from temporalio.common import SearchAttributeKey, SearchAttributeUpdate

from everturn import names
from everturn.payloads import Status
from everturn.workflows import display
from everturn.workflows.progress import Progress

STATUS = SearchAttributeKey.for_keyword(names.EVERTURN_STATUS)
AGENT = SearchAttributeKey.for_keyword(names.EVERTURN_AGENT)
MODEL = SearchAttributeKey.for_keyword(names.EVERTURN_MODEL)
TOKENS = SearchAttributeKey.for_int(names.EVERTURN_TOKENS)
COST_USD = SearchAttributeKey.for_float(names.EVERTURN_COST_USD)


class Board:
    def __init__(self) -> None:
        # A client that found the search attributes in the namespace has set the first state itself.
        first = workflow.info().typed_search_attributes
        self._indexed_state = first.get(STATUS) or ""
        self.model = first.get(MODEL) or ""
        """The one that the client expects to be asked, where it knows."""
        self.indexed = bool(self._indexed_state)
        """The namespace has everturn's search attributes. Upserting one that it lacks would fail the workflow task."""

    def show(self, status: Status, *, agent: str, progress: Progress) -> None:
        details = display.current_details(
            status,
            conversation_id=workflow.info().workflow_id,
            agent=agent,
            model=progress.model,
            latest=progress.latest(display.LATEST_LINES),
        )
        # In memory until somebody looks: no event of the history is spent on it.
        workflow.set_current_details(details)
        if self.indexed and status.state != self._indexed_state:
            # An upsert is a history event: one for each change of the state, none for a turn.
            self._indexed_state = status.state
            workflow.upsert_search_attributes(_attributes(status, agent, progress))


def _attributes(status: Status, agent: str, progress: Progress) -> list[SearchAttributeUpdate[Any]]:
    attributes: list[SearchAttributeUpdate[Any]] = [
        STATUS.value_set(status.state),
        AGENT.value_set(agent),
        MODEL.value_set(progress.model),
        TOKENS.value_set(status.usage.total_tokens),
    ]
    if status.cost_usd is not None:
        attributes.append(COST_USD.value_set(status.cost_usd))
    return attributes
