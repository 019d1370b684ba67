"""Deterministic code: the loop, the calls that wait for people, what the Web UI shows; tenants' budgets, and the
collectors of batches."""

from everturn.workflows.batch_collector import BatchCollectorWorkflow
from everturn.workflows.conversation import ConversationWorkflow
from everturn.workflows.tenant_budget import TenantBudgetWorkflow

__all__ = ["BatchCollectorWorkflow", "ConversationWorkflow", "TenantBudgetWorkflow"]
