"""How many connections a server of ours may hold."""

from __future__ import annotations


def files_to_spare(most: int) -> int:
    """Half of the files that this process may open, since the rest of it needs some; `most` if that is more, or if
    nobody knows."""
    try:
        import resource

        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    except (ImportError, OSError, ValueError):
        return most
    if soft <= 0:
        return most
    return min(most, max(1, soft // 2))
