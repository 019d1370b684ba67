"""What a part of `make peers` is given: an empty folder, ways to install real peers in it, and rows to write."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import socket
import subprocess
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal

from everturn.text.shortening import shortened_line

HOST = "127.0.0.1"

Result = Literal["right", "differs", "wrong", "not installed"]
"""`differs`: it is not right, and the row says why that is no fault of everturn's, or why it stays."""


class NotInstalled(Exception):
    """A peer that could not be installed or started here. Its text says why."""


@dataclass(frozen=True, slots=True)
class Row:
    peer: str
    version: str
    ran: str
    """What was run, in a few words."""
    result: Result = "right"
    note: str = ""
    """What is wrong, why it differs, or why it could not be installed."""


@dataclass(slots=True)
class Bench:
    folder: Path
    rows_file: Path
    latest: bool = False
    """Whether to take the newest releases, not the pinned ones: LATEST=1."""
    _processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def row(self, peer: str, version: str, ran: str, result: Result = "right", note: str = "") -> None:
        row = Row(peer, version, ran, result, shortened_line(note, 400))
        with self.rows_file.open("a") as file:
            file.write(json.dumps(asdict(row)) + "\n")
        print(
            f"  {row.result:<14}{row.peer} {row.version}: {row.ran}{f' ({row.note})' if row.note else ''}", flush=True
        )

    @contextmanager
    def check(self, peer: str, version: str, ran: str, *, differs: str = "") -> Iterator[None]:
        """A row for what runs inside: right if it raises nothing. `differs`: why it may be wrong; if it is right all
        the same, the row says so, so that the reason can go."""
        try:
            yield
        except NotInstalled as error:
            self.row(peer, version, ran, "not installed", str(error))
        except Exception as error:  # noqa: BLE001 - whatever a peer makes of it is what the row is for
            if not isinstance(error, AssertionError):
                traceback.print_exc()
            problem = f"{type(error).__name__}: {error}"
            self.row(peer, version, ran, "differs" if differs else "wrong", differs or problem)
        else:
            self.row(peer, version, ran, "right", f"right by now: {differs}" if differs else "")

    def python(self, *requirements: str, seconds: float = 600) -> Path:
        """The Python of a new virtual environment with these packages (`name==1.2.3`); with LATEST=1, their newest."""
        wanted = [requirement.split("==")[0] for requirement in requirements] if self.latest else [*requirements]
        environment = self.folder / f"python-{sum(1 for _ in self.folder.iterdir())}"
        self._ran([sys.executable, "-m", "venv", str(environment)], seconds=300)
        python = environment / "bin" / "python"
        self._ran([str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *wanted], seconds)
        return python

    def add(self, python: Path, *arguments: str, seconds: float = 600) -> None:
        """Installs more in an environment that has `uv`, quicker than pip; with LATEST=1, the newest ones."""
        wanted = [argument.split("==")[0] for argument in arguments] if self.latest else [*arguments]
        self._ran([str(python.with_name("uv")), "pip", "install", "--quiet", "--python", str(python), *wanted], seconds)

    def node(self, *packages: str, seconds: float = 600) -> Path:
        """A new folder whose node_modules has these packages (`name@1.2.3`); with LATEST=1, the newest ones."""
        wanted = [f"{package[:1]}{package[1:].split('@')[0]}" for package in packages] if self.latest else [*packages]
        folder = self.folder / f"node-{sum(1 for _ in self.folder.iterdir())}"
        folder.mkdir()
        (folder / "package.json").write_text('{"private": true, "type": "module"}')
        self._ran([self.program("npm"), "install", "--silent", "--no-audit", "--no-fund", *wanted], seconds, folder)
        return folder

    def sources(self, python: Path, package: str, seconds: float = 300) -> Path:
        """The folder of a package's source distribution (`name==1.2.3`) from PyPI."""
        target = self.folder / f"sources-{sum(1 for _ in self.folder.iterdir())}"
        download = [str(python), "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
        wanted = package.partition("==")[0] if self.latest else package
        self._ran([*download, "--no-binary", ":all:", "--dest", str(target), wanted], seconds)
        (archive,) = target.iterdir()
        shutil.unpack_archive(archive, target, filter="data")
        return target / archive.name.removesuffix(".tar.gz")

    def go(self, module: str, environ: Mapping[str, str], seconds: float = 3000) -> tuple[Path, str]:
        """The program of a Go module (`path@v1.2.3`; with LATEST=1, its newest), built here, and its version; quick
        only if Go's cache has its parts."""
        wanted = f"{module.partition('@')[0]}@latest" if self.latest else module
        target = self.folder / f"go-{sum(1 for _ in self.folder.iterdir())}"
        quick = {"GOBIN": str(target), "CGO_CFLAGS": "-O1", "CGO_CXXFLAGS": "-O1"}
        self._ran([self.program("go"), "install", "-p", "1", wanted], seconds, environ={**environ, **quick})
        (program,) = target.iterdir()
        built = [self.program("go"), "version", "-m", str(program)]
        lines = subprocess.run(built, check=True, capture_output=True, text=True).stdout.splitlines()
        return program, next(line.split()[2] for line in lines if line.split()[:1] == ["mod"])

    def program(self, name: str) -> str:
        """The path of a program of this machine."""
        if path := shutil.which(name):
            return path
        raise NotInstalled(f"there is no {name} on this machine")

    def version(self, installed: Path, package: str) -> str:
        """The version of a package that `python` or `node` installed."""
        if installed.is_dir():
            return str(json.loads((installed / "node_modules" / package / "package.json").read_text())["version"])
        code = f"import importlib.metadata; print(importlib.metadata.version({package!r}))"
        return subprocess.run([installed, "-c", code], check=True, capture_output=True, text=True).stdout.strip()

    async def start(
        self,
        command: Sequence[str | Path],
        *,
        port: int,
        environ: Mapping[str, str] | None = None,
        seconds: float = 120,
    ) -> subprocess.Popen[bytes]:
        """Starts a server and waits until it accepts connections at the port. It ends with the part."""
        log = self.folder / f"server-{port}.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                [*map(str, command)],
                cwd=self.folder,
                env={**os.environ, **(environ or {})},
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        self._processes.append(process)
        try:
            async with asyncio.timeout(seconds):
                while not _accepts(port):
                    if process.poll() is not None:
                        raise NotInstalled(f"it ended with {process.returncode}: {_end_of(log)}")
                    await asyncio.sleep(0.2)
        except TimeoutError:
            process.kill()
            raise NotInstalled(f"it did not listen within {seconds:g} s: {_end_of(log)}") from None
        return process

    def end(self) -> None:
        """Ends what the part started."""
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()

    def _ran(
        self, command: list[str], seconds: float, folder: Path | None = None, environ: Mapping[str, str] | None = None
    ) -> None:
        variables = {**os.environ, **(environ or {})}
        try:
            done = subprocess.run(
                command, cwd=folder, env=variables, capture_output=True, text=True, timeout=seconds, check=False
            )
        except subprocess.TimeoutExpired:
            raise NotInstalled(f"installing it took longer than {seconds:g} s") from None
        if done.returncode:
            raise NotInstalled(f"installing it failed: {(done.stderr or done.stdout).strip()[-300:]}")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def _accepts(port: int) -> bool:
    try:
        socket.create_connection((HOST, port), timeout=1).close()
    except OSError:
        return False
    return True


def _end_of(log: Path) -> str:
    return log.read_text(errors="replace").strip()[-300:]
