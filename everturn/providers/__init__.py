"""Asking a model, whoever serves it: `ask(Request(...))` once, `generate(...)` for people. No Temporal in here."""

from everturn.providers.base import Delta, Request, ToolSpec, specs_of
from everturn.providers.generate import generate
from everturn.providers.model_call import ask

__all__ = ["Delta", "Request", "ToolSpec", "ask", "generate", "specs_of"]
