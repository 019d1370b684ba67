"""A contestant's worker process: `python -m benchmarks.host CONTESTANT ADDRESS`. Ends with its parent."""

from __future__ import annotations

import asyncio
import importlib
import os
import sys
import threading


def _end_with_parent() -> None:
    os.read(0, 1)  # not sys.stdin: a daemon thread that holds its lock breaks the interpreter's own end
    os._exit(0)


if __name__ == "__main__":
    name, address = sys.argv[1:]
    threading.Thread(target=_end_with_parent, daemon=True).start()
    asyncio.run(importlib.import_module(f"benchmarks.contestants.{name}").serve(address))
