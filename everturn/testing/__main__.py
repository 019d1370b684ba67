"""`python -m everturn.testing SCRIPT.py [--port N]`: a scripted model as a process of its own.

SCRIPT.py defines `script`: a list of replies or a function. The first line printed is the base URL.
"""

from __future__ import annotations

import argparse
import contextlib
import runpy
import signal
import sys
import threading

from everturn.testing import ScriptedModel


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m everturn.testing", description="Serves a scripted model.")
    parser.add_argument("script", metavar="SCRIPT.py", help="a Python file that defines `script`")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="0, the default, takes any free port")
    arguments = parser.parse_args()
    script = runpy.run_path(arguments.script).get("script")
    if script is None:
        sys.stderr.write(f"{arguments.script} defines no `script`: give it a list of replies or a function.\n")
        return 2
    stopped = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    with ScriptedModel(script, host=arguments.host, port=arguments.port, keep=0) as model:
        print(model.base_url, flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            stopped.wait()
    return 0


if __name__ == "__main__":
    sys.exit(main())
