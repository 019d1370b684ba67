"""The README's hello, as somebody without a key runs it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from uuid import uuid4

from everturn.devserver import DevServer
from tests.support.namespaces import new_namespace
from tests.support.prepared import Program, run

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"


async def test_the_hello_answers_without_a_key(server: DevServer) -> None:
    [said] = re.findall(r"python examples/hello.py\n```\n\n```text\n(.+\n)```", (ROOT / "README.md").read_text())
    serve = ("-m", "everturn.testing", str(EXAMPLES / "hello_model.py"))
    with Program(*serve, stdout=subprocess.PIPE) as model:
        assert model.stdout is not None
        environment = {
            **{name: value for name, value in os.environ.items() if not name.endswith("_API_KEY")},
            "MODEL": "scripted:weather",
            "SCRIPTED_BASE_URL": model.stdout.readline().strip(),
            "TEMPORAL_ADDRESS": server.address,
            # The README's own blocks run under the same id, with another model: the same id is the same work.
            "TEMPORAL_NAMESPACE": await new_namespace(server),
            "EVERTURN_TASK_QUEUE": f"hello-{uuid4().hex}",
        }
        first = subprocess.run(
            [sys.executable, str(EXAMPLES / "hello.py")],
            env=environment,
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        model.terminate()
    again = run(str(EXAMPLES / "hello.py"), env=environment)
    assert (first.returncode, first.stdout) == (0, said), first.stderr
    assert (again.returncode, again.stdout) == (0, said), f"the same id is the same work: {again.stderr}"
