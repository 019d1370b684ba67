"""Tools that the provider runs on its own side: asked for in `Agent(tools=[WebSearch(), ...])`, never run by us.

The folder of each protocol translates them. A field that a provider can't honour gives a warning
(UnsupportedParameter); a tool that it does not have is refused before anything is sent.
"""

from __future__ import annotations

from datetime import date
from typing import Literal

from pydantic import Field

from everturn.agent_settings import Setting
from everturn.errors import InvalidTool


class UnsupportedParameter(UserWarning):
    """A provider can't do what a setting or a field asks for; the request goes out without it."""


class ServerTool(Setting):
    """Base of all tools that a provider runs."""

    _error = InvalidTool


class WebSearch(ServerTool):
    """Searches the web."""

    allowed_domains: tuple[str, ...] = ()
    """Search only these; empty: all."""
    blocked_domains: tuple[str, ...] = ()
    """Never search these."""
    max_uses: int | None = Field(default=None, ge=1)
    """The most searches in one reply."""
    user_location: dict[str, str] | None = None
    """Any of city, region, country (two letters) and timezone (IANA)."""
    context_size: Literal["low", "medium", "high"] | None = None
    """How much of the results the model is given."""


class XSearch(ServerTool):
    """Searches posts on X."""

    allowed_x_handles: tuple[str, ...] = ()
    """Only posts by these; empty: by everybody."""
    excluded_x_handles: tuple[str, ...] = ()
    """No posts by these."""
    from_date: date | None = None
    """The first day."""
    to_date: date | None = None
    """The last day."""
    enable_image_understanding: bool | None = None
    enable_video_understanding: bool | None = None


class CodeExecution(ServerTool):
    """Runs code that the model writes, in the provider's sandbox."""
