"""The Dockerfile's steps in an empty root, in which is nothing but Debian and its Python.

`make image`. The root is made of Debian's packages, by debootstrap; the image's Python is another build of the same
version of the language.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from everturn import Client
from everturn.devserver import DevServer
from everturn.testing import ScriptedModel, call
from tests.support.dockerfile import AGENT, ROOT, own_lock, sent, steps

PACKAGES = "python3,python3-venv,python-is-python3,ca-certificates"
CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"
AS_HERE = ("/etc/resolv.conf", "/etc/hosts", CERTIFICATES)
"""By which a container reaches the network, too."""
PATH = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
MINUTES = 60

pytestmark = [
    pytest.mark.skipif("EMPTY_ROOT" not in os.environ, reason="it takes minutes: make image"),
    pytest.mark.timeout(20 * MINUTES),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root may change its root"),
    pytest.mark.skipif(not shutil.which("debootstrap"), reason="debootstrap is not installed"),
]


@dataclass
class Stage:
    root: Path
    workdir: str = "/"
    environment: dict[str, str] = field(default_factory=lambda: {"PATH": PATH})
    command: list[str] = field(default_factory=list)
    user: str = "root"

    def path(self, inside: str) -> Path:
        return self.root / inside.lstrip("/") if inside.startswith("/") else self.path(self.workdir) / inside

    def enter(self, command: list[str]) -> list[str]:
        given = [f"{name}={value}" for name, value in self.environment.items()]
        inside = f"cd {self.workdir} && exec {shlex.join(command)}"
        entered = ["chroot", f"--userspec={self.user}", str(self.root), "/usr/bin/env", "-i", *given]
        # What a container has as well, and nobody else sees: it is gone with the process.
        mount = f"mount -t proc proc {shlex.quote(str(self.root / 'proc'))}"
        inside = shlex.join([*entered, "/bin/sh", "-c", inside])
        return ["unshare", "--mount", "/bin/sh", "-c", f"{mount} && exec {inside}"]


class Image:
    """Docker's part: each FROM begins a stage."""

    def __init__(self, base: Path, folder: Path) -> None:
        self._base = base
        self._folder = folder
        self._stages: dict[str, Stage] = {}
        self.stage = Stage(base)

    def take(self, instruction: str, rest: str) -> None:
        stage, words = self.stage, shlex.split(rest)
        match instruction:
            case "ARG" | "STOPSIGNAL":
                pass
            case "FROM":
                assert re.fullmatch(r"python:.*-slim-bookworm", words[0])
                root = self._folder / f"stage-{len(self._stages)}"
                subprocess.run(["cp", "-a", self._base, root], check=True)
                self.stage = self._stages[words[-1]] = Stage(root)
            case "ENV":
                for name, value in (word.split("=", 1) for word in words):
                    stage.environment[name] = value.replace("$PATH", stage.environment["PATH"])
            case "WORKDIR":
                stage.workdir = rest
                stage.path(rest).mkdir(parents=True, exist_ok=True)
            case "COPY":
                self._copy(words)
            case "RUN":
                self._run(rest)
            case "USER":
                stage.user = rest
            case "CMD":
                stage.command = json.loads(rest)
            case _:
                raise AssertionError(f"this test does not know {instruction}")

    def _copy(self, words: list[str]) -> None:
        if words[0].startswith("--from="):
            built = self._stages[words[0].removeprefix("--from=")]
            subprocess.run(["cp", "-a", built.path(words[1]), self.stage.path(words[2])], check=True)
            return
        for source in words[:-1]:
            assert source in sent(), f".dockerignore keeps {source} out"
            to = self.stage.path(source if words[-1] == "./" else words[-1])
            to.parent.mkdir(parents=True, exist_ok=True)
            if source == "deploy/agents.lock":
                to.write_text(own_lock())
            elif (ROOT / source).is_dir():
                shutil.copytree(ROOT / source, to, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(ROOT / source, to)

    def _run(self, command: str) -> None:
        here = {name: value for name, value in os.environ.items() if "proxy" in name.lower() or name == "PIP_INDEX_URL"}
        stage = Stage(self.stage.root, self.stage.workdir, self.stage.environment | here | {"PIP_CERT": CERTIFICATES})
        done = subprocess.run(stage.enter(["/bin/sh", "-c", command]), capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"RUN {command}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Debian with its Python, and nothing else."""
    root = tmp_path_factory.mktemp("debian") / "root"
    mirror = [*_mirrors()][:1]
    command = ["debootstrap", "--variant=minbase", f"--include={PACKAGES}", "bookworm", str(root), *mirror]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=10 * MINUTES)
    if done.returncode:
        pytest.skip(f"debootstrap made no root: {done.stdout.splitlines()[-1:]} {done.stderr[-300:]}")
    for path in AS_HERE:
        shutil.copy(path, root / path.lstrip("/"))
    return root


def _mirrors() -> Iterator[str]:
    """Where apt-get has its packages from on this machine."""
    for file in [Path("/etc/apt/sources.list"), *Path("/etc/apt/sources.list.d").glob("*")]:
        for word in file.read_text().split() if file.is_file() else ():
            if word.startswith("http") and "debian" in word and "security" not in word and "archive" not in word:
                yield word


async def test_the_image_is_built_from_nothing_and_its_worker_runs_as_nobody_special(
    base: Path, tmp_path: Path, server: DevServer, scripted: Callable[..., ScriptedModel]
) -> None:
    image = Image(base, tmp_path)
    for instruction, rest in steps():
        await asyncio.to_thread(image.take, instruction, rest)
    stage = image.stage
    assert not stage.path("/src").exists(), "what it was built from stays behind"
    assert (stage.user, stage.workdir) == ("everturn", "/app")
    stage.path("agents.py").write_text(AGENT)
    model = scripted([call("get_weather", {"city": "Paris"}), "Sunny."])
    stage.environment |= {
        "TEMPORAL_ADDRESS": server.address,
        "EVERTURN_TASK_QUEUE": "empty-root",
        "EVERTURN_AGENTS": "agents.py",
        "SCRIPTED_BASE_URL": model.base_url,
    }
    worker = subprocess.Popen(stage.enter(stage.command), stderr=subprocess.PIPE, text=True)
    try:
        client = await Client.connect(server.address, task_queue="empty-root")
        outcome = await asyncio.wait_for(client.run("contained", "How is the weather?"), 4 * MINUTES)
        assert (outcome.status, outcome.text) == ("completed", "Sunny.")
        told = Path(f"/proc/{worker.pid}/status").read_text()
        assert "\nUid:\t10001\t10001\t10001\t10001\n" in told
        check = await asyncio.to_thread(subprocess.run, stage.enter([*stage.command, "--check"]), timeout=MINUTES)
        assert check.returncode == 0
        worker.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(worker.wait, MINUTES) == 0
    finally:
        worker.kill()
        said = worker.communicate()[1]
    assert "Traceback" not in said, said
