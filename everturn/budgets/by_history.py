"""A tenant's budget, worked out from its history: as its workflow holds it, without a worker of its task queue."""

from __future__ import annotations

from dataclasses import dataclass

from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client
from temporalio.converter import DataConverter

from everturn import names
from everturn.budgets.ledger import Ledger
from everturn.budgets.records import BudgetStart, BudgetTerms, SetBudget, SpendingBatch
from everturn.history import event_types
from everturn.history.decoding import Decoder


@dataclass
class KeptBudget:
    """The state that a run has reached, or ended with."""

    ledger: Ledger
    removed: bool = False
    """It was taken away."""
    moves: bool = False
    """It was ended, to go on elsewhere."""


class BudgetReader:
    """Takes a run's events, from the first on, in order."""

    def __init__(self, converter: DataConverter) -> None:
        self._decoder = Decoder(converter)
        self._now = 0.0
        """The workflow's clock, in its last workflow task."""
        self._resumed: dict[int, str] = {}
        """Who was told to go on, by the event."""
        self.kept: KeptBudget | None = None
        """None until the first event was read, or if that can't be."""

    async def take_event(self, event: HistoryEvent) -> None:
        if event.event_type == event_types.WORKFLOW_EXECUTION_STARTED:
            began = await self._decoder.read_record(
                event.workflow_execution_started_event_attributes.input, BudgetStart
            )
            self.kept = KeptBudget(Ledger(began)) if began else None
        if self.kept is None:
            return
        ledger = self.kept.ledger
        match event.event_type:
            case event_types.WORKFLOW_TASK_STARTED:
                self.settle()
                self._now = event.event_time.ToNanoseconds() / 1e9  # as workflow.time() has it
            case event_types.WORKFLOW_EXECUTION_SIGNALED:
                signal = event.workflow_execution_signaled_event_attributes
                change = await self._decoder.read_record(signal.input, SetBudget)
                if signal.signal_name == names.SET_BUDGET and change:
                    self.kept.removed = change.budget is None
                    ledger.set_terms(change.budget or BudgetTerms(), set_by=change.by)
            case event_types.WORKFLOW_EXECUTION_UPDATE_ACCEPTED:
                update = event.workflow_execution_update_accepted_event_attributes.accepted_request.input
                if update.name == names.COUNT_SPENDING and (
                    batch := await self._decoder.read_record(update.args, SpendingBatch)
                ):
                    ledger.take_batch(batch, now=self._now)
            case event_types.SIGNAL_EXTERNAL_WORKFLOW_EXECUTION_INITIATED:
                resumed = event.signal_external_workflow_execution_initiated_event_attributes
                self._resumed[event.event_id] = resumed.workflow_execution.workflow_id
            case event_types.SIGNAL_EXTERNAL_WORKFLOW_EXECUTION_FAILED:
                failed = event.signal_external_workflow_execution_failed_event_attributes
                ledger.forget(self._resumed.pop(failed.initiated_event_id, ""))
            case event_types.WORKFLOW_EXECUTION_TERMINATED:
                ended = event.workflow_execution_terminated_event_attributes
                self.kept.moves = await self._decoder.read_text(ended.details) == names.BUDGET_MOVES
            case _:
                pass

    def settle(self) -> None:
        """After the last event of a workflow task: the workflow then resumes whom it can."""
        if self.kept and self._now:
            self.kept.ledger.wake_waiting(self._now)


async def kept_budget(client: Client, budget_id: str, *, run_id: str | None = None) -> KeptBudget | None:
    """The state of the run, or of the last one; None if it can't be read. Raises RPCError, and InvalidSetting for what
    needs another key or storage."""
    reader = BudgetReader(client.data_converter)
    async for event in client.get_workflow_handle(budget_id, run_id=run_id).fetch_history_events():
        await reader.take_event(event)
    reader.settle()
    return reader.kept
