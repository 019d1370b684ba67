"""Deterministic code: the loop, the calls that wait for people, what the Web UI shows; and tenants' budgets."""

from everturn.workflows.conversation import ConversationWorkflow
from everturn.workflows.tenant_budget import TenantBudgetWorkflow

__all__ = ["ConversationWorkflow", "TenantBudgetWorkflow"]
