"""`make exits`: how many runs of short programs end badly. COUNT= runs of each, half of them with all cores busy."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from everturn.devserver import DevServer
from everturn.testing import ScriptedModel
from tests.exits.programs import PROGRAMS, ROOT, written


def programs() -> Iterator[tuple[str, list[str]]]:
    """The short ones, the examples, and commands of the CLI."""
    for name in PROGRAMS:
        yield name, ["-c", written(name)]
    yield "examples/hello.py", [str(ROOT / "examples" / "hello.py")]
    yield "everturn list", ["-m", "everturn", "list"]
    yield "everturn doctor", ["-m", "everturn", "doctor", "--json"]


@contextmanager
def busy_cores() -> Iterator[None]:
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(os.cpu_count() or 2)]
    try:
        yield
    finally:
        for one in busy:
            one.kill()
            one.wait()


def count(arguments: list[str], times: int, environment: dict[str, str]) -> Counter[int]:
    return Counter(
        subprocess.run(
            [sys.executable, *arguments], env=environment, capture_output=True, timeout=120, check=False
        ).returncode
        for _ in range(times)
    )


async def main(times: int) -> int:
    killed = 0
    async with DevServer() as server:
        with ScriptedModel(lambda *_: "Hello.") as model:
            environment = {
                **os.environ,
                "TEMPORAL_ADDRESS": server.address,
                "EVERTURN_TASK_QUEUE": "exits",
                "MODEL": "scripted:demo",
                "SCRIPTED_BASE_URL": model.base_url,
            }
            for name, arguments in programs():
                started = time.monotonic()
                counted = await asyncio.to_thread(count, arguments, times - times // 2, environment)
                with busy_cores():
                    counted += await asyncio.to_thread(count, arguments, times // 2, environment)
                # A command may say no; none may be ended by a signal.
                bad = sum(number for status, number in counted.items() if status < 0 or status >= 128)
                killed += bad
                took = (time.monotonic() - started) / times
                print(f"{bad:4} of {times} killed   {took:5.2f} s each   {name}   {dict(counted)}", flush=True)
    return 1 if killed else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main(int(os.environ.get("COUNT", "100")))))
