"""PostgreSQL on a host, on a disk that can be made full."""

from __future__ import annotations

import os
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path

from tests.stack.compose import Service
from tests.stack.hosts import NETWORK, Host, NotHere
from tests.stack.unit import Unit, wait_until

USER = "postgres"
"""Of this machine: PostgreSQL does not run as root."""
CHUNK = b"\0" * (1 << 20)


class Postgres:
    def __init__(self, host: Host, service: Service, programs: Path, folder: Path, *, disk_mb: int = 0) -> None:
        """`service`: what compose says of it. `disk_mb`: a disk of its own of this size, in memory; 0: the folder's."""
        self.host = host
        self._service = service
        self._programs = programs
        self._folder = folder
        self._data = folder / "data"
        self._disk_mb = disk_mb
        options = (
            "-D", str(self._data), "-c", "listen_addresses=*", "-c", f"unix_socket_directories={folder}",
        )  # fmt: skip
        # Its command in compose: the program, then its options.
        command = (str(programs / "postgres"), *options, *service.command[1:])
        self.unit = Unit(host, command, {}, folder.parent / "logs" / "postgres.log", user=USER)

    @property
    def address(self) -> str:
        return self.host.address

    def make(self) -> None:
        """The disk, and an empty database on it."""
        self._folder.mkdir()
        if self._disk_mb:
            _do("mount", "-t", "tmpfs", "-o", f"size={self._disk_mb}m", "everturn-stack", str(self._folder))
        (password := self._folder / "password").write_text(self._service.environment["POSTGRES_PASSWORD"])
        _do("chown", "-R", f"{USER}:{USER}", str(self._folder))
        initdb = [str(self._programs / "initdb"), "-D", str(self._data), "--pwfile", str(password), "--encoding=UTF8"]
        initdb += ["--username", self._service.environment["POSTGRES_USER"], "--locale=C.UTF-8"]
        _do("setpriv", f"--reuid={USER}", f"--regid={USER}", "--init-groups", *initdb, "--auth=scram-sha-256")
        password.unlink()
        with (self._data / "pg_hba.conf").open("a") as rules:
            rules.write(f"host all all {NETWORK}.0/24 scram-sha-256\n")

    def start(self) -> None:
        self.unit.start()
        wait_until(self.answers, "PostgreSQL answers", self.unit)

    def answers(self) -> bool:
        asked = [str(self._programs / "pg_isready"), "--quiet", "--host", self.address]
        return subprocess.run(asked, check=False).returncode == 0

    def kill(self) -> None:
        """SIGKILL to all of its processes, as a power cut would; the disk's cache stays."""
        self.unit.hold()
        self.host.kill_all()
        wait_until(lambda: not self.host.pids(), "PostgreSQL is gone", self.unit)
        (self._data / "postmaster.pid").unlink(missing_ok=True)

    def fill_disk(self) -> None:
        """Until nothing more fits."""
        assert self._disk_mb, "on a disk that is not its own nobody fills up"
        with self._ballast.open("ab", buffering=0) as ballast, suppress(OSError):
            while ballast.write(CHUNK):
                pass

    def free_disk(self) -> None:
        self._ballast.unlink(missing_ok=True)

    def remove(self) -> None:
        unmount(self._folder)
        shutil.rmtree(self._folder, ignore_errors=True)

    def sizes(self) -> tuple[int, int]:
        """Bytes of all tables and indexes; and of the log so far, of which PostgreSQL keeps only the end."""
        asked = "SELECT sum(pg_database_size(datname))::bigint, (pg_current_wal_lsn() - '0/0')::bigint FROM pg_database"
        command = ["psql", "--host", self.address, "--username", self._service.environment["POSTGRES_USER"]]
        done = subprocess.run(
            [*command, "--no-align", "--tuples-only", "--command", asked, "postgres"],
            env={"PATH": os.environ["PATH"], "PGPASSWORD": self._service.environment["POSTGRES_PASSWORD"]},
            capture_output=True,
            text=True,
            check=True,
        )
        tables, log = map(int, done.stdout.split("|"))
        return tables, log

    @property
    def _ballast(self) -> Path:
        return self._folder / "ballast"


def unmount(folder: Path) -> None:
    while folder.is_mount():
        _do("umount", "--lazy", str(folder))


def _do(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd="/")
    if done.returncode:
        raise NotHere(f"{' '.join(command)}: {done.stderr.strip() or done.stdout.strip()}")
