"""Tools that the provider runs on its own side: asked for in `Agent(tools=[WebSearch(), ...])`, never run by us.

What each provider makes of them is in its protocol's folder. A field that it can't honour is warned about
(UnsupportedParameter); a tool that it does not have is refused before anything is sent.
"""

from __future__ import annotations

from datetime import date
from typing import Literal

from pydantic import Field

from everturn.errors import InvalidTool
from everturn.models import Setting


class UnsupportedParameter(UserWarning):
    """A provider can't do what a setting or a field asks for; the request goes out without it."""


class ServerTool(Setting):
    """Base of all."""

    _error = InvalidTool


class WebSearch(ServerTool):
    """Searches the web."""

    allowed_domains: tuple[str, ...] = ()
    """Only there; empty: everywhere."""
    blocked_domains: tuple[str, ...] = ()
    """Not there."""
    max_uses: int | None = Field(default=None, ge=1)
    """Searches in one reply."""
    user_location: dict[str, str] | None = None
    """Any of city, region, country (two letters) and timezone (IANA)."""
    context_size: Literal["low", "medium", "high"] | None = None
    """How much of what is found is put before the model."""


class XSearch(ServerTool):
    """Searches posts on X."""

    allowed_x_handles: tuple[str, ...] = ()
    """Only by these; empty: by everybody."""
    excluded_x_handles: tuple[str, ...] = ()
    """Not by these."""
    from_date: date | None = None
    """The first day."""
    to_date: date | None = None
    """The last day."""
    enable_image_understanding: bool | None = None
    enable_video_understanding: bool | None = None


class CodeExecution(ServerTool):
    """Runs code that the model writes, in the provider's sandbox."""
