"""The Dockerfile's steps, really done: in an empty folder, with what .dockerignore lets in, and without a home.

No container is started here. The image's absolute paths (/venv, /src, /app) are folders in a temporary one.
"""

from __future__ import annotations

import asyncio
import fnmatch
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from everturn import Client
from everturn.devserver import DevServer
from everturn.testing import ScriptedModel, call
from tests.support.dockerfile import AGENT, own_lock, sent, steps

ROOT = Path(__file__).parents[2]


@dataclass
class Image:
    """A folder in the place of /."""

    root: Path
    workdir: Path = field(init=False)
    environment: dict[str, str] = field(default_factory=dict)
    command: list[str] = field(default_factory=list)
    user: str = "root"

    def inside(self, text: str) -> str:
        return re.sub(r"(?<![\w./])/(?=(venv|src|app)\b)", f"{self.root}/", text)

    def take(self, instruction: str, rest: str) -> None:
        match instruction:
            case "ARG" | "STOPSIGNAL":
                pass
            case "FROM":
                self.workdir, self.environment = self.root, {"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin"}
            case "ENV":
                for name, value in (pair.split("=", 1) for pair in shlex.split(rest)):
                    self.environment[name] = self.inside(value).replace("$PATH", self.environment["PATH"])
            case "WORKDIR":
                self.workdir = Path(self.inside(rest))
                self.workdir.mkdir(exist_ok=True)
            case "COPY":
                self.copy(shlex.split(rest))
            case "RUN":
                self.run(rest)
            case "USER":
                self.user = rest
            case "CMD":
                self.command = json.loads(rest)
            case _:
                raise AssertionError(f"this test does not know {instruction}")

    def copy(self, arguments: list[str]) -> None:
        if arguments[0].startswith("--from="):
            assert Path(self.inside(arguments[1])).is_dir()
            assert arguments[1] == arguments[2], "a venv does not move"
            return
        *sources, target = arguments
        for source in sources:
            assert source in sent(), f".dockerignore keeps {source} out"
            to = self.workdir / (source if target == "./" else target)
            to.parent.mkdir(exist_ok=True)
            if (ROOT / source).is_dir():
                ignored = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("**/")]
                names = shutil.ignore_patterns(*(one.removeprefix("**/") for one in ignored))
                shutil.copytree(ROOT / source, to, ignore=names)
            elif source == "deploy/agents.lock":
                to.write_text(own_lock())
            else:
                shutil.copy(ROOT / source, to)

    def run(self, command: str) -> None:
        if command.startswith("useradd "):  # for root in a container only
            assert fnmatch.fnmatch(command, "useradd * --no-create-home everturn")
            return
        environment = {**self.environment, **_of_this_machine()}
        environment.pop("PIP_NO_CACHE_DIR")  # whatever its value, pip keeps no cache with it
        done = subprocess.run(
            ["/bin/sh", "-c", self.inside(command)],
            cwd=self.workdir,
            env=environment,
            capture_output=True,
            text=True,
            timeout=400,
            check=False,
        )
        assert done.returncode == 0, f"RUN {command}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"


def _of_this_machine() -> dict[str, str]:
    """How pip reaches a registry from here, and where it keeps wheels: it need not fetch them for each test."""
    kept = {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "SSL_")) or "proxy" in name}
    return {
        **kept,
        "PIP_NO_COMPILE": "no",  # which switches compiling off
        "PIP_CACHE_DIR": str(Path("~/.cache/pip").expanduser()),
    }


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Image:
    image = Image(tmp_path_factory.mktemp("image"))
    for instruction, rest in steps():
        image.take(instruction, rest)
    return image


@pytest.mark.timeout(600)
@pytest.mark.long
async def test_the_image_is_built_and_its_worker_hosts_an_agent(
    image: Image, server: DevServer, scripted: Callable[..., ScriptedModel]
) -> None:
    assert image.user == "everturn"
    (image.root / "app" / "agents.py").write_text(AGENT)
    (no_home := image.root / "no-home").write_text("a file, in which nobody can make a folder")
    model = scripted([call("get_weather", {"city": "Paris"}), "Sunny."])
    environment = {
        **image.environment,
        "HOME": str(no_home / "of-nobody"),
        "TMPDIR": str(image.root),
        "TEMPORAL_ADDRESS": server.address,
        "EVERTURN_TASK_QUEUE": "image",
        "EVERTURN_AGENTS": "agents.py",
        "SCRIPTED_BASE_URL": model.base_url,
    }
    worker = subprocess.Popen(image.command, cwd=image.workdir, env=environment, stderr=subprocess.PIPE, text=True)
    try:
        client = await Client.connect(server.address, task_queue="image")
        outcome = await asyncio.wait_for(client.run("contained", "How is the weather?"), 200)
        assert (outcome.status, outcome.text) == ("completed", "Sunny.")
        check = [*image.command, "--check"]
        healthy = await asyncio.to_thread(subprocess.run, check, cwd=image.workdir, env=environment, timeout=180)
        assert healthy.returncode == 0
        worker.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(worker.wait, 60) == 0
    finally:
        worker.kill()
        said = worker.communicate()[1]
    assert "Traceback" not in said, said
