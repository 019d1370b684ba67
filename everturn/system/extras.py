"""How an optional part of everturn (an extra) is installed: from where everturn itself came."""

from __future__ import annotations

import json
import shlex
from functools import cache


def install(extra: str) -> str:
    """The command that installs an extra, for an error's cure: `pip install 'everturn[web]'`, or from the checkout that
    everturn was installed from."""
    source = _installed_from()
    if source is None:
        return f"pip install {shlex.quote(f'everturn[{extra}]')}"
    folder, editable = source
    target = shlex.quote(f"{folder}[{extra}]")
    return f"pip install -e {target}" if editable else f"pip install {target}"


@cache
def _installed_from() -> tuple[str, bool] | None:
    """The folder, and whether everturn runs from there; None if it came from an index.

    pip writes that down (PEP 610, direct_url.json).
    """
    # Slow to import, and wanted only when something is missing.
    from importlib.metadata import PackageNotFoundError, distribution
    from urllib.parse import urlsplit
    from urllib.request import url2pathname

    try:
        written = json.loads(distribution("everturn").read_text("direct_url.json") or "{}")
        url = urlsplit(written["url"])
        editable = bool(written["dir_info"].get("editable"))
    except (PackageNotFoundError, ValueError, KeyError, TypeError, AttributeError):
        return None
    if url.scheme != "file":
        return None
    return url2pathname(url.path), editable
