"""Our workflows, as they are told to Temporal's SDK."""

from __future__ import annotations

from typing import Any

import pytest
from temporalio import workflow

from everturn.batching.collector import BatchCollectorWorkflow
from everturn.budgets.workflow import TenantBudgetWorkflow
from everturn.evaluations.collector import EvaluationCollectorWorkflow
from everturn.evaluations.workflow import EvaluationWorkflow
from everturn.webhooks.delivery_workflow import WebhookWorkflow
from everturn.workflows.conversation import ConversationWorkflow

OURS = (
    ConversationWorkflow,
    TenantBudgetWorkflow,
    BatchCollectorWorkflow,
    EvaluationWorkflow,
    EvaluationCollectorWorkflow,
    WebhookWorkflow,
)


@pytest.mark.parametrize("ours", OURS, ids=lambda ours: ours.__name__)
def test_none_of_our_workflows_runs_in_the_sandbox(ours: type[Any]) -> None:
    """The SDK's: it guards user code from itself, and there is none in them. It costs time and memory for each run."""
    assert not workflow._Definition.must_from_class(ours).sandboxed


@pytest.mark.parametrize("ours", OURS, ids=lambda ours: ours.__name__)
def test_whoever_looks_at_our_workflows_reads_what_each_of_its_messages_is_for(ours: type[Any]) -> None:
    definition = workflow._Definition.must_from_class(ours)
    handlers: list[Any] = [*definition.signals.values(), *definition.queries.values(), *definition.updates.values()]
    assert [handler.name for handler in handlers if handler.name and not handler.description] == []
