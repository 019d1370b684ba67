"""The worker process: hosts agents until it is told to stop, then finishes what is running.

    EVERTURN_AGENTS=examples/bookkeeper.py python worker.py

Settings come from the environment: EVERTURN_ for us, TEMPORAL_ for the server, and the models' keys. SIGTERM drains.
`python worker.py --check` exits with 0 if a worker on this machine is at work: a container's health check.
"""

from __future__ import annotations

import sys

from everturn.errors import EverturnError
from everturn.settings import Settings
from everturn.worker.drain_deadline import end_process
from everturn.worker.process import check, run, serve


def main(arguments: list[str]) -> int:
    try:
        settings = Settings.load()
        run(check(settings) if arguments == ["--check"] else serve(settings))
    except EverturnError as error:
        print(f"worker: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:  # before the worker was there to drain
        return 130
    return 0


if __name__ == "__main__":
    end_process(main(sys.argv[1:]))
