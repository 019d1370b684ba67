"""The programs of the stack: Temporal's from their Go modules, the rest from Debian's packages."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.stack.compose import ROOT, Compose
from tests.stack.hosts import NotHere

DEBIAN = {"haproxy": "haproxy", "prometheus": "prometheus", "psql": "postgresql"}
"""Program and package. PostgreSQL's own are not on the PATH: see `postgres`."""


@dataclass(frozen=True)
class Programs:
    server: Path
    sql_tool: Path
    ui: Path
    postgres: Path
    """The folder with postgres and initdb."""
    temporal: Path
    """The CLI."""

    @property
    def folders(self) -> str:
        """A PATH on which the scripts in deploy/ find what they call."""
        return os.pathsep.join([str(self.sql_tool.parent), str(self.temporal.parent), os.environ["PATH"]])


def find(compose: Compose, say: Callable[[str], None]) -> Programs:
    """Builds what is not there yet: some minutes, once for each version. Raises NotHere with the next step."""
    lacking = [package for program, package in DEBIAN.items() if not shutil.which(program)]
    database = postgres()
    if lacking or database is None:
        raise NotHere(f"apt-get install {' '.join(sorted({*lacking, 'postgresql'}))}")
    temporal = Path(sys.executable).with_name("temporal")  # the one that the lock file pins
    return Programs(
        _built("go.temporal.io/server/cmd/server", compose["temporal"].version, "temporal-server", say),
        _built("go.temporal.io/server/cmd/tools/sql", compose["schema"].version, "temporal-sql-tool", say),
        _built("github.com/temporalio/ui-server/v2/cmd/server", compose["ui"].version, "temporal-ui", say),
        database,
        temporal if temporal.exists() else Path(shutil.which("temporal") or temporal),
    )


def cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "everturn" / "stack"


def _built(package: str, version: str, name: str, say: Callable[[str], None]) -> Path:
    """`go install PACKAGE@vVERSION`, kept by version under a name of its own: Go calls two of the three `server`."""
    module, program = f"{package}@v{version}", cache() / f"{name}-{version}" / name
    if program.exists():
        return program
    if not shutil.which("go"):
        raise NotHere(f"There is no Go, which {name} is built with: install Go 1.26 or later.")
    say(f"Building {module} (once; ten minutes on two cores) ...")
    made = program.parent / "made"
    done = subprocess.run(
        ["go", "install", "-ldflags=-s -w", module],
        cwd=ROOT,
        env={**os.environ, "GOBIN": str(made), "CGO_ENABLED": "0"},
        check=False,
    )
    if done.returncode:
        raise NotHere(f"go install {module} failed: see above.")
    (built,) = made.iterdir()
    built.rename(program)
    made.rmdir()
    return program


def postgres() -> Path | None:
    """The newest that Debian's packages have put here."""
    folders = [path.parent for path in Path("/usr/lib/postgresql").glob("*/bin/postgres")]
    return max(folders, key=lambda folder: int(folder.parent.name), default=None)
