"""Deterministic code: the loop, the calls that wait for people, what the Web UI shows; tenants' budgets, the collectors
of batches, evaluations, and what is sent to webhooks."""

from everturn.workflows.batch_collector import BatchCollectorWorkflow
from everturn.workflows.conversation import ConversationWorkflow
from everturn.workflows.evaluation import EvaluationWorkflow
from everturn.workflows.evaluation_collector import EvaluationCollectorWorkflow
from everturn.workflows.tenant_budget import TenantBudgetWorkflow
from everturn.workflows.webhook_delivery import WebhookWorkflow

__all__ = [
    "BatchCollectorWorkflow",
    "ConversationWorkflow",
    "EvaluationCollectorWorkflow",
    "EvaluationWorkflow",
    "TenantBudgetWorkflow",
    "WebhookWorkflow",
]
