"""The visitor of a page: what your `authorize` function says of a request, and which conversation this opens."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from everturn.errors import InvalidSetting

if TYPE_CHECKING:
    from starlette.requests import Request

CHAT_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,128}")
"""A page's id for its chat. It has no colon, so it can't stand for several parts of a conversation's id."""

MAX_VISITOR_CHARS: Final = 200
"""Of the name. The conversation's id holds it, beside the agent's and the chat's, and Temporal takes ids of 1,000
bytes: 200 characters have up to 800."""


@dataclass(frozen=True, kw_only=True)
class Visitor:
    """The person who asks, as your application knows them."""

    name: str
    """The person's own, such as a user id. It is part of the conversation's id, so nobody can open another person's
    chats; approvals record it as who decided."""
    tenant: str | None = None
    """As in `Client.start`, for a new conversation. It is part of the conversation's id, too: two tenants may each have
    an Ann."""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """As in `Client.start`, for a new conversation: what its tools have to know of the person."""
    decides: bool = True
    """Whether the person may approve and deny calls here. If not, the page shows that a call waits, and goes on after
    somebody else has decided."""
    conversation: str = ""
    """The id of the conversation to open, whatever the page calls its chat: for a conversation that several people
    share, or that was started elsewhere. Empty: the person's own."""

    def __post_init__(self) -> None:
        # "no" and 0 would count as yes and no: who may decide is said in so many words.
        if not isinstance(self.decides, bool):
            raise InvalidSetting(f"Visitor has decides={self.decides!r:.100}.", cure="Give True or False.")
        if not isinstance(self.name, str):
            raise InvalidSetting(f"Visitor has name={self.name!r:.100}.", cure="Give the person's own id, as a str.")

    def conversation_id(self, agent: str, chat_id: str) -> str:
        """The same id each time for this person, tenant and chat. Colons in names are escaped, so two people never get
        the same id."""
        owners = [self.name] if self.tenant is None else [self.tenant, self.name]
        return self.conversation or ":".join([agent, *map(_without_colons, owners), chat_id])


def _without_colons(name: str) -> str:
    return name.replace("%", "%25").replace(":", "%3A")


Authorize = Callable[["Request", str], Visitor | Awaitable[Visitor | None] | None]
"""Your function. Given the request and the page's id for its chat, it returns who asks, or None if they may not open
the chat. Sync or async."""


def anybody(request: Request, chat_id: str) -> Visitor:  # noqa: ARG001 - every authorize takes both
    """An `authorize` for trying things out: everybody is the same person, and whoever knows a chat's id may open it."""
    return Visitor(name="")
