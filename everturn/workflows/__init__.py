"""Deterministic code: the loop, the calls that wait for people, and what the Web UI shows."""

from everturn.workflows.conversation import ConversationWorkflow

__all__ = ["ConversationWorkflow"]
