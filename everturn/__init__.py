"""everturn: durable agent loops on Temporal.

Every public name is here, and is loaded when it is first used, so that a program pays for what it touches.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from everturn.system.gc_pauses import paused

if TYPE_CHECKING:
    from everturn import workflow as workflow  # for type checkers: of what __getattr__ gives, they know nothing
    from everturn.activities.agent_store import AgentStore
    from everturn.agent import Agent
    from everturn.agent_settings import Approvals, Compaction
    from everturn.client.client import Client
    from everturn.client.conversation import Conversation
    from everturn.errors import EverturnError, NeedsApproval, OutcomeUnknown, Retry, ToolFailed
    from everturn.limits import Budget, Limits, Patience, QueueLimit, RateLimit
    from everturn.models import Model, ModelSettings
    from everturn.providers.generate import generate, generate_sync
    from everturn.records import Document, Image, Message, Outcome, Reply, Text, ToolCall, ToolResult, Usage
    from everturn.reviews.reviewer import Reviewer
    from everturn.storage.encryption import Encryption
    from everturn.tools.activity_tool import activity_tool
    from everturn.tools.ask_user import ask_user
    from everturn.tools.context import ToolContext, TurnContext
    from everturn.tools.handoff import HandOff, Shown
    from everturn.tools.mcp.config import McpOAuth, McpServer, McpTool
    from everturn.tools.nexus_tool import nexus_tool
    from everturn.tools.options import ToolOptions
    from everturn.tools.server_tools import CodeExecution, UnsupportedParameter, WebSearch, XSearch
    from everturn.tools.tool import Tool, tool
    from everturn.webhooks.webhook import Webhook
    from everturn.worker.deployment import Deployment
    from everturn.worker.options import WorkerOptions
    from everturn.worker.plugin import EverturnPlugin
    from everturn.worker.traces import Traces
    from everturn.worker.worker import Worker

_HOMES = {
    "Agent": "agent",
    "AgentStore": "activities.agent_store",
    "Approvals": "agent_settings",
    "Budget": "limits",
    "Client": "client.client",
    "CodeExecution": "tools.server_tools",
    "Compaction": "agent_settings",
    "Conversation": "client.conversation",
    "Deployment": "worker.deployment",
    "Document": "records",
    "Encryption": "storage.encryption",
    "EverturnError": "errors",
    "EverturnPlugin": "worker.plugin",
    "HandOff": "tools.handoff",
    "Image": "records",
    "Limits": "limits",
    "McpServer": "tools.mcp.config",
    "McpOAuth": "tools.mcp.config",
    "McpTool": "tools.mcp.config",
    "Message": "records",
    "Model": "models",
    "ModelSettings": "models",
    "NeedsApproval": "errors",
    "Outcome": "records",
    "OutcomeUnknown": "errors",
    "Patience": "limits",
    "QueueLimit": "limits",
    "RateLimit": "limits",
    "Reply": "records",
    "Retry": "errors",
    "Reviewer": "reviews.reviewer",
    "Shown": "tools.handoff",
    "Text": "records",
    "Tool": "tools.tool",
    "ToolCall": "records",
    "ToolContext": "tools.context",
    "ToolFailed": "errors",
    "ToolOptions": "tools.options",
    "ToolResult": "records",
    "Traces": "worker.traces",
    "TurnContext": "tools.context",
    "UnsupportedParameter": "tools.server_tools",
    "Usage": "records",
    "Webhook": "webhooks.webhook",
    "WebSearch": "tools.server_tools",
    "Worker": "worker.worker",
    "WorkerOptions": "worker.options",
    "XSearch": "tools.server_tools",
    "activity_tool": "tools.activity_tool",
    "ask_user": "tools.ask_user",
    "generate": "providers.generate",
    "generate_sync": "providers.generate",
    "nexus_tool": "tools.nexus_tool",
    "tool": "tools.tool",
}

__all__ = [
    "Agent",
    "AgentStore",
    "Approvals",
    "Budget",
    "Client",
    "CodeExecution",
    "Compaction",
    "Conversation",
    "Deployment",
    "Document",
    "Encryption",
    "EverturnError",
    "EverturnPlugin",
    "HandOff",
    "Image",
    "Limits",
    "McpOAuth",
    "McpServer",
    "McpTool",
    "Message",
    "Model",
    "ModelSettings",
    "NeedsApproval",
    "Outcome",
    "OutcomeUnknown",
    "Patience",
    "QueueLimit",
    "RateLimit",
    "Reply",
    "Retry",
    "Reviewer",
    "Shown",
    "Text",
    "Tool",
    "ToolCall",
    "ToolContext",
    "ToolFailed",
    "ToolOptions",
    "ToolResult",
    "Traces",
    "TurnContext",
    "UnsupportedParameter",
    "Usage",
    "WebSearch",
    "Webhook",
    "Worker",
    "WorkerOptions",
    "XSearch",
    "activity_tool",
    "ask_user",
    "generate",
    "generate_sync",
    "nexus_tool",
    "tool",
]


def __getattr__(name: str) -> Any:
    if name == "workflow":  # everturn.workflow.ask(), after no more than `import everturn`
        return _loaded("everturn.workflow")
    home = _HOMES.get(name)
    if home is None:
        raise _no_name(name)
    value = getattr(_loaded(f"everturn.{home}"), name)
    globals()[name] = value
    return value


def _no_name(name: str) -> AttributeError:
    from everturn.validation.names_of_other_libraries import ATTRIBUTES

    instead = ATTRIBUTES["everturn"].get(name) or f"It has {', '.join(__all__)}."
    return AttributeError(f"module 'everturn' has no attribute {name!r}. {instead}")


def _loaded(module: str) -> Any:
    if not _sandboxed():
        with paused():
            return import_module(module)
    with sys.modules["temporalio.workflow"].unsafe.imports_passed_through():
        return __import__(module, fromlist=["*"])


def _sandboxed() -> bool:
    """Whether Temporal's sandbox loads this, for a user's workflow file."""
    workflow = sys.modules.get("temporalio.workflow")
    return workflow is not None and bool(workflow.unsafe.in_sandbox())


def __dir__() -> list[str]:
    return __all__


_loaded("everturn.temporal.sandbox_imports").pass_through()
