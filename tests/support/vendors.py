"""Vendors' libraries, which take seconds to import: each is imported once a test asks it for something.

Every process of xdist collects all tests, and runs those of a few files."""

from __future__ import annotations

from importlib import import_module
from typing import Any


class _Later:
    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        if name[0] == "_":  # pytest asks everything in a file whether it is a fixture, or a mock
            raise AttributeError(name)
        return getattr(import_module(self._name), name)


agents = _Later("agents")
anthropic_types = _Later("anthropic.types")
chat_types = _Later("openai.types.chat")
gemini_types = _Later("google.genai.types")
langchain_callbacks = _Later("langchain_core.callbacks")
langchain_tools = _Later("langchain_core.tools")
openai = _Later("openai")
pydantic_ai = _Later("pydantic_ai")
pydantic_ai_messages = _Later("pydantic_ai.messages")
pydantic_ai_temporal = _Later("pydantic_ai.durable_exec.temporal")
pydantic_evaluators = _Later("pydantic_evals.evaluators")
responses_types = _Later("openai.types.responses")
