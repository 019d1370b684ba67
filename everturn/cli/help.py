"""The help of a command says how a value is written, and not which type Python has for it: no `<list[str]>`."""

from __future__ import annotations

from typing import Any

from typer.core import TyperArgument, TyperCommand


class Command(TyperCommand):
    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        for param in self.params:
            if isinstance(param, TyperArgument) or getattr(param, "metavar", None) is None:
                _hide_type(param)

    def get_help_option(self, ctx: Any) -> Any:
        option = super().get_help_option(ctx)
        _hide_type(option)
        return option


def _hide_type(param: Any) -> None:
    # Choices stay, since they say what may be written. An older Typer has no such column.
    described = getattr(param, "type_descriptor", None)
    if described is not None and not described.is_choice:
        param.display_type_rich = lambda ctx: None  # noqa: ARG005 - Typer's name
