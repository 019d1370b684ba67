"""Says of each seed that it is given, line by line, whether every invariant holds in its world."""

from __future__ import annotations

import sys

from tests.simulation.world import run

if __name__ == "__main__":
    for line in sys.stdin:
        print("broken" if run(int(line)).broken else "holds", flush=True)
