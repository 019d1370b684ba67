"""Worker processes that a test can kill."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from everturn import Client
from everturn.testing import ScriptedModel
from tests.crash.proxy import Proxy
from tests.stack.hosts import Host
from tests.support.prepared import Program

ROOT = Path(__file__).parents[2]


class WorkerProcess:
    """`python worker.py`, as users run it; its log goes to a file in `folder`.

    One with a `machine` sees nothing of those on other ones: the kernel is the same, the temporary folder is not."""

    def __init__(
        self,
        client: Client,
        model: ScriptedModel | Proxy,
        folder: Path,
        *,
        agents: str = "tests/crash/agents.py",
        environment: Mapping[str, str] | None = None,
        machine: str = "",
        host: Host | None = None,
    ) -> None:
        """`host`: one of the stack's, with an address of its own."""
        self.host = host
        machine = machine or (host.name if host else "")
        self.log = folder / f"worker-{len(list(folder.glob('worker-*')))}.log"
        self.process: subprocess.Popen[Any]
        variables = {
            **os.environ,
            **(environment or {}),
            "TEMPORAL_ADDRESS": client.temporal.service_client.config.target_host,
            "EVERTURN_TASK_QUEUE": client.task_queue,
            "EVERTURN_AGENTS": str(ROOT / agents),
            "SCRIPTED_BASE_URL": model.base_url,
            "CRASH_TEST_FOLDER": str(folder),
        }
        if machine:
            (folder / machine).mkdir(exist_ok=True)
            variables["TMPDIR"] = str(folder / machine)
        if host:
            command = (sys.executable, str(ROOT / "worker.py"))
            self.process = host.start(*command, log=self.log, environment=variables, folder=ROOT).process
            return
        with self.log.open("wb") as log:
            self.process = Program("worker.py", cwd=ROOT, env=variables, stderr=log, stdout=log)

    @property
    def started(self) -> bool:
        assert self.process.poll() is None, self.log.read_text()
        return "worker.started" in self.log.read_text()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        """SIGTERM; returns the exit status."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=180)


@contextmanager
def workers(client: Client, model: ScriptedModel, folder: Path) -> Iterator[Callable[..., WorkerProcess]]:
    """A function that starts worker processes, on a machine if given one; what still runs afterwards is killed."""
    running: list[WorkerProcess] = []

    def start(machine: str = "") -> WorkerProcess:
        running.append(WorkerProcess(client, model, folder, machine=machine))
        return running[-1]

    try:
        yield start
    finally:
        for worker in running:
            worker.kill()
