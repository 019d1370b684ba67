"""`python -m tests.stack [up|check|down]`: Temporal as in production, on one machine without containers.

`up` runs until Ctrl-C. `check` starts it, has conversations, asks what the dashboard asks, and stops it. `down` ends
one, and removes what is left of it.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
from contextlib import suppress

from everturn import Client
from everturn.testing import ScriptedModel
from tests.stack import hosts
from tests.stack.agents import script
from tests.stack.hosts import HERE, NotHere
from tests.stack.stack import FOLDER, PROMETHEUS_PORT, Stack, remove, running
from tests.stack.watch import Prometheus, queries, until_empty

CONVERSATIONS = 6
MODEL_PORT = 8001
LONGEST_SECONDS = 120.0
STOP_SECONDS = 180.0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.stack", description=__doc__)
    parser.add_argument("what", choices=["up", "check", "down"], nargs="?", default="up")
    what = parser.parse_args().what
    try:
        return down() if what == "down" else run(forever=what == "up")
    except NotHere as error:
        print(f"stack: {error}", file=sys.stderr)
        return 1


def run(*, forever: bool) -> int:
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _end)
    print("Temporal with PostgreSQL, two of each service, each with an address of its own. Needs Linux and root.")
    with suppress(KeyboardInterrupt):
        environment = {"SCRIPTED_BASE_URL": f"http://{HERE}:{MODEL_PORT}/v1"}
        stack = Stack(environment=environment, say=lambda what: print(what, flush=True))
        with stack, ScriptedModel(script, host=HERE, port=MODEL_PORT, keep=0):
            print(f"\n{stack.table()}\n")
            status = check(stack)
            if forever:
                print(f"\nTEMPORAL_ADDRESS={stack.address} everturn run clerk 'How is the weather?'")
                print(f"Logs: {FOLDER / 'logs'}. Ctrl-C, or `make stack-down`, ends it.", flush=True)
                signal.pause()
            return status
    return 0


def check(stack: Stack) -> int:
    """0 if conversations go through and every query of the dashboard is answered."""
    if "EVERTURN_AGENTS" in os.environ:
        print("EVERTURN_AGENTS names your own agents: talk to them.")
        return 0
    replies = asyncio.run(_talk(stack.address))
    print(f"{len(replies)} conversations went through: {replies[0]!r}")
    prometheus = Prometheus(f"http://{stack.prometheus_host.address}:{PROMETHEUS_PORT}")
    down = until_empty(prometheus.down, LONGEST_SECONDS)
    lacking = until_empty(lambda: _after_more(stack, prometheus), LONGEST_SECONDS)
    asked = len(queries())
    print(f"Prometheus answers {asked - len(lacking)} of the dashboard's {asked} queries.")
    for query, title in lacking.items():
        print(f"  no number: {title}: {query}")
    for url in down:
        print(f"  not read: {url}")
    return 1 if down or lacking else 0


def _after_more(stack: Stack, prometheus: Prometheus) -> dict[str, str]:
    """A rate needs two readings with something between them."""
    asyncio.run(_talk(stack.address))
    return prometheus.unanswered()


async def _talk(address: str) -> list[str]:
    client = await Client.connect(address)
    async with asyncio.timeout(LONGEST_SECONDS):
        ran = [client.run("clerk", f"How is the weather? ({number})") for number in range(CONVERSATIONS)]
        return [outcome.text or "" for outcome in await asyncio.gather(*ran)]


def down() -> int:
    """Ends a stack that runs, and removes what one left that was killed."""
    hosts.look()
    if pid := running():
        os.kill(pid, signal.SIGTERM)
        if until_empty(running, STOP_SECONDS):
            raise NotHere(f"The stack (process {pid}) has not ended within {STOP_SECONDS:g} s.")
    remove()
    print(f"No stack is left: {len(hosts.left())} namespaces.")
    return 0


def _end(*_: object) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
