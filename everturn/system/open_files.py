"""How many connections a server of ours may hold."""

from __future__ import annotations


def files_to_spare(max_files: int) -> int:
    """Half of the files that this process may open, since the rest of it needs some; `max_files` if that is more, or if
    nobody knows."""
    try:
        import resource

        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    except (ImportError, OSError, ValueError):
        return max_files
    if soft <= 0:
        return max_files
    return min(max_files, max(1, soft // 2))
