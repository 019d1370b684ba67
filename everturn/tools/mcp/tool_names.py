"""What models call an MCP server's tools: names of letters, digits, _ and -, and no two alike."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable

from everturn import names
from everturn.tools.mcp.config import McpServer

MAX_TOOL_NAME_CHARS = 64
"""As of all tools: OpenAI refuses longer names."""

_NOT_IN_NAMES = re.compile(r"[^a-zA-Z0-9_-]")


def names_of(server: McpServer, own_names: Iterable[str]) -> dict[str, str]:
    """What the model calls these tools of the server, by the server's own names. A name that had to be changed takes
    nobody's place: if another tool has it, it gets a mark."""
    known = {name: known_as(server, name) for name in own_names}
    times = Counter(known.values())
    return {
        name: marked_name(server, name) if times[plain] > 1 and is_changed(server, name) else plain
        for name, plain in known.items()
    }


def known_as(server: McpServer, name: str) -> str:
    """What the model calls it: letters, digits, _ and -, 64 at the most."""
    plain = _plain_name(_full_name(server, name))
    fits = len(plain) <= MAX_TOOL_NAME_CHARS and plain not in names.RESERVED_TOOL_NAMES
    if not fits:
        return marked_name(server, name)
    return plain


def marks_of(server: McpServer, own_names: Iterable[str]) -> dict[str, str]:
    """For each of the names that were changed, as the model knows it: a name that no other tool has."""
    known = names_of(server, own_names)
    return {plain: marked_name(server, name) for name, plain in known.items() if is_changed(server, name)}


def is_changed(server: McpServer, name: str) -> bool:
    """Whether what the model calls it is not as the server, or the user, wrote it."""
    return known_as(server, name) != _full_name(server, name)


def marked_name(server: McpServer, name: str) -> str:
    """A name that no other tool has: its end is a digest of the server's name for it."""
    whole = _full_name(server, name)
    digest = hashlib.sha256(whole.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{_plain_name(whole)[: MAX_TOOL_NAME_CHARS - 9]}_{digest}"


def _full_name(server: McpServer, name: str) -> str:
    override = server.overrides.get(name)
    tool_name = (override and override.name) or name
    return f"{server.prefix}_{tool_name}" if server.prefix else tool_name


def _plain_name(whole: str) -> str:
    plain = _NOT_IN_NAMES.sub("_", whole)
    if plain[:1].isalpha() or plain[:1] == "_":
        return plain
    return f"_{plain}"
