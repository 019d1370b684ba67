"""everturn: durable agent loops on Temporal.

Every public name is here, and is loaded when it is first used, so that a program pays for what it touches.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from everturn.agent import Agent
    from everturn.asking import ask_user
    from everturn.client import Client
    from everturn.conversation import Conversation
    from everturn.deployment import Deployment
    from everturn.errors import EverturnError, Retry, ToolFailed
    from everturn.hosting import Worker
    from everturn.models import Approvals, Limits, Model, ModelSettings, Patience
    from everturn.providers import generate
    from everturn.records import Document, Image, Message, Outcome, Reply, Text, ToolCall, ToolResult, Usage
    from everturn.servertools import CodeExecution, UnsupportedParameter, WebSearch, XSearch
    from everturn.tooloptions import ToolOptions
    from everturn.tools import Tool, ToolContext, tool

_HOMES = {
    "Agent": "agent",
    "Approvals": "models",
    "Client": "client",
    "CodeExecution": "servertools",
    "Conversation": "conversation",
    "Deployment": "deployment",
    "Document": "records",
    "EverturnError": "errors",
    "Image": "records",
    "Limits": "models",
    "Message": "records",
    "Model": "models",
    "ModelSettings": "models",
    "Outcome": "records",
    "Patience": "models",
    "Reply": "records",
    "Retry": "errors",
    "Text": "records",
    "Tool": "tools",
    "ToolCall": "records",
    "ToolContext": "tools",
    "ToolFailed": "errors",
    "ToolOptions": "tooloptions",
    "ToolResult": "records",
    "UnsupportedParameter": "servertools",
    "Usage": "records",
    "WebSearch": "servertools",
    "Worker": "hosting",
    "XSearch": "servertools",
    "ask_user": "asking",
    "generate": "providers",
    "tool": "tools",
}

__all__ = [
    "Agent",
    "Approvals",
    "Client",
    "CodeExecution",
    "Conversation",
    "Deployment",
    "Document",
    "EverturnError",
    "Image",
    "Limits",
    "Message",
    "Model",
    "ModelSettings",
    "Outcome",
    "Patience",
    "Reply",
    "Retry",
    "Text",
    "Tool",
    "ToolCall",
    "ToolContext",
    "ToolFailed",
    "ToolOptions",
    "ToolResult",
    "UnsupportedParameter",
    "Usage",
    "WebSearch",
    "Worker",
    "XSearch",
    "ask_user",
    "generate",
    "tool",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'everturn' has no attribute {name!r}; it has {', '.join(__all__)}")
    value = getattr(_loaded(f"everturn.{home}"), name)
    globals()[name] = value
    return value


def _loaded(module: str) -> Any:
    workflow = sys.modules.get("temporalio.workflow")
    if workflow is None or not workflow.unsafe.in_sandbox():
        return import_module(module)
    # A user's workflow file: agents and tools are defined there, and run elsewhere. The sandbox need not have copies of
    # our modules, and of all that they import.
    with workflow.unsafe.imports_passed_through():
        return __import__(module, fromlist=["*"])


def __dir__() -> list[str]:
    return __all__
