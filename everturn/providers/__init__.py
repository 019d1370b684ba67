"""Asking a model, whoever serves it: `ask(Request(...))` once, `generate(...)` for people. No Temporal in here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from everturn.providers.base import Delta, Request, ToolSpec, specs_of
from everturn.providers.generate import generate

if TYPE_CHECKING:
    from everturn.providers.asking import ask

__all__ = ["Delta", "Request", "ToolSpec", "ask", "generate", "specs_of"]


def __getattr__(name: str) -> Any:
    # httpx takes its time to import, and who only builds a Request has no need of it.
    if name == "ask":
        from everturn.providers.asking import ask

        return ask
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
