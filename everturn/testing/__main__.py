"""`python -m everturn.testing SCRIPT.py [--port N]`: a scripted model as a process of its own.

SCRIPT.py defines `script`: a list of replies or a function. The first line printed is the base URL.
"""

from __future__ import annotations

import argparse
import contextlib
import signal
import sys
import threading
from pathlib import Path

from everturn.errors import InvalidFile
from everturn.system.user_modules import load_file
from everturn.testing import ScriptedModel


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m everturn.testing", description="Serves a scripted model.")
    parser.add_argument("script", metavar="SCRIPT.py", help="a Python file that defines `script`")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="0, the default, takes any free port")
    arguments = parser.parse_args()
    try:
        script = getattr(load_file(Path(arguments.script)), "script", None)
    except InvalidFile as error:
        return _report_failure(str(error), status=1)
    if script is None:
        return _report_failure(
            f"{arguments.script} defines no `script`: give it a list of replies or a function.", status=2
        )
    try:
        model = ScriptedModel(script, host=arguments.host, port=arguments.port, keep=0).start()
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        cure = "Choose another --port, or leave it out to take a free one."
        return _report_failure(
            f"Port {arguments.port} at {arguments.host} can't be listened on: {reason}. {cure}", status=1
        )
    stopped = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    try:
        print(model.base_url, flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            stopped.wait()
    finally:
        model.stop()
    return 0


def _report_failure(error_text: str, *, status: int) -> int:
    sys.stderr.write(f"{error_text}\n")
    return status


if __name__ == "__main__":
    sys.exit(main())
