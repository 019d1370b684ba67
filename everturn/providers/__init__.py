"""Asking a model, whoever serves it: `ask(Request(...))` once, `generate(...)` for people. No Temporal in here."""

from everturn.providers.asking import ask
from everturn.providers.base import Delta, Request, ToolSpec, specs_of
from everturn.providers.generate import generate

__all__ = ["Delta", "Request", "ToolSpec", "ask", "generate", "specs_of"]
