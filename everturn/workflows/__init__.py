"""Deterministic code: the loop, the desk where calls wait for people, and what the Web UI shows."""

from everturn.workflows.conversation import ConversationWorkflow

__all__ = ["ConversationWorkflow"]
