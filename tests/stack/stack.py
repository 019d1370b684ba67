"""The whole: PostgreSQL, Temporal, its Web UI, everturn's workers and Prometheus, each on a host of its own."""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import shutil
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Self

from tests.stack import hosts, programs
from tests.stack.cluster import METRICS_PORT, SERVICES, Cluster
from tests.stack.compose import ROOT, read, shell
from tests.stack.hosts import Host, NotHere
from tests.stack.postgres import Postgres, unmount
from tests.stack.unit import Unit, wait_until

FOLDER = Path("/var/tmp/everturn-stack")
LOCK = Path("/run/everturn-stack.lock")
WORKER_METRICS_PORT = 9464
PROMETHEUS_PORT = 9090
UI_PORT = 8080
WATCH_SECONDS = 0.5
SCRAPE = "2s"
EACH = 2
"""Of each of Temporal's services, and of everturn's workers."""


class Stack:
    """A context manager. One at a time on a machine: it has fixed addresses, and its folder a fixed place."""

    def __init__(
        self,
        *,
        agents: str = "tests/stack/agents.py",
        workers: int = EACH,
        hosts_for_workers: int = EACH,
        disk_mb: int = 0,
        dynamic: Mapping[str, str] | None = None,
        environment: Mapping[str, str] | None = None,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`workers`: how many everturn workers. `hosts_for_workers`: at least so many hosts are there for them.
        `disk_mb`: of the database, if it is to have a disk of its own. `environment`: of the workers, over what compose
        gives them."""
        self._say = say
        self._given = {"POSTGRES_PASSWORD": secrets.token_hex(8), **shell()}
        self._given.setdefault("EVERTURN_AGENTS", agents)
        self._workers = workers
        self._disk_mb = disk_mb
        self._dynamic = dynamic or {}
        self._environment = dict(environment or {})
        self._lock: IO[str] | None = None
        self._over = threading.Event()
        self._watching: threading.Thread | None = None
        self.database_host = Host("postgres", 10)
        self.balancer_host = Host("temporal", 20)
        self.service_hosts = [
            (service, Host(f"{service}-{number}", 20 + 10 * place + number))
            for place, service in enumerate(SERVICES)
            for number in range(1, EACH + 1)
        ]
        self.ui_host = Host("ui", 60)
        self.worker_hosts = [
            Host(f"everturn-{number}", 70 + number) for number in range(1, max(workers, hosts_for_workers) + 1)
        ]
        self.prometheus_host = Host("prometheus", 80)
        self.units: list[Unit] = []

    @property
    def address(self) -> str:
        return self.cluster.address

    @property
    def hosts(self) -> list[Host]:
        ours = [host for _, host in self.service_hosts]
        return [
            self.database_host, self.balancer_host, *ours, self.ui_host, *self.worker_hosts, self.prometheus_host,
        ]  # fmt: skip

    @property
    def workers(self) -> list[Unit]:
        return [unit for unit in self.units if unit.host in self.worker_hosts]

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    # ------------------------------------------------------------ from nothing to all of it

    def start(self) -> None:
        """Raises NotHere, with what lacks or with what a program said last."""
        hosts.look()
        self._take_the_lock()
        compose = read(self._given)
        found = programs.find(compose, self._say)
        remove()
        (FOLDER / "logs").mkdir(parents=True, exist_ok=True)
        hosts.make(self.hosts)
        self._say("PostgreSQL and its schema ...")
        self.database = Postgres(
            self.database_host, compose["postgres"], found.postgres, FOLDER / "postgres", disk_mb=self._disk_mb
        )
        self.units.append(self.database.unit)
        self.database.make()
        self.database.start()
        self.cluster = Cluster(
            compose, found, self.database.address, self.balancer_host, self.service_hosts, FOLDER,
            dynamic=self._dynamic,
        )  # fmt: skip
        self.cluster.make_schema()
        self._say("Temporal: two of each service, and its namespace ...")
        self.units += [*self.cluster.services.values(), self.cluster.balancer]
        self._watching = threading.Thread(target=self._watch, name="stack", daemon=True)
        self._watching.start()
        self.cluster.start()
        self.cluster.make_namespace()
        self._start_ui(found.ui, compose["ui"].environment)
        self._start_prometheus()
        for host in self.worker_hosts[: self._workers]:
            self._start_worker(host, compose["worker"].environment)
        for unit in self.workers:
            wait_until(lambda unit=unit: "worker.started" in unit.log.read_text(), f"{unit.name} has started", unit)  # type: ignore[misc]

    def stop(self) -> None:
        """The workers drain, then all ends, and nothing is left but the logs."""
        self._over.set()
        if self._watching:
            self._watching.join()
        for unit in [*self.workers, *reversed([unit for unit in self.units if unit not in self.workers])]:
            unit.stop()
        if self._lock:
            remove(logs=False)
            self._lock.close()
            self._lock = None

    def table(self) -> str:
        """What runs where."""
        rows = [
            (self.database_host, "PostgreSQL", f"{self.database.address}:5432"),
            (self.balancer_host, "Temporal: the two frontends", self.address),
            *((host, f"Temporal's {service} service", host.address) for service, host in self.service_hosts),
            (self.ui_host, "Temporal's Web UI", f"http://{self.ui_host.address}:{UI_PORT}"),
            *((unit.host, "an everturn worker", f"http://{unit.host.address}:{WORKER_METRICS_PORT}/metrics")
              for unit in self.workers),
            (self.prometheus_host, "Prometheus", f"http://{self.prometheus_host.address}:{PROMETHEUS_PORT}"),
        ]  # fmt: skip
        widths = [max(len(row[0].name) for row in rows), max(len(row[1]) for row in rows)]
        return "\n".join(f"{host.name:{widths[0]}}  {what:{widths[1]}}  {where}" for host, what, where in rows)

    # ------------------------------------------------------------ what is not Temporal's server

    def _start_ui(self, program: Path, environment: dict[str, str]) -> None:
        (folder := FOLDER / "ui").mkdir()
        # In the image, the same is made of the variables: TEMPORAL_ADDRESS is the one that compose sets.
        assert environment.keys() == {"TEMPORAL_ADDRESS"}
        config = {"temporalGrpcAddress": self.address, "host": self.ui_host.address, "port": UI_PORT, "enableUi": True}
        (folder / "stack.yaml").write_text(json.dumps(config))
        command = (str(program), "--root", str(folder), "--config", ".", "--env", "stack", "start")
        self._add(Unit(self.ui_host, command, {}, FOLDER / "logs" / "ui.log", folder=folder)).start()

    def _start_prometheus(self) -> None:
        (folder := FOLDER / "prometheus").mkdir()
        temporal = [f"{host.address}:{METRICS_PORT}" for _, host in self.service_hosts]
        everturn = [f"{host.address}:{WORKER_METRICS_PORT}" for host in self.worker_hosts[: self._workers]]
        jobs = [{"job_name": "temporal", "static_configs": [{"targets": temporal}]}]
        jobs += [{"job_name": "everturn", "static_configs": [{"targets": everturn}]}]
        config = {"global": {"scrape_interval": SCRAPE, "scrape_timeout": SCRAPE}, "scrape_configs": jobs}
        (folder / "prometheus.yml").write_text(json.dumps(config))  # JSON is YAML
        command = ("prometheus", f"--config.file={folder / 'prometheus.yml'}", f"--storage.tsdb.path={folder / 'data'}")
        listen = f"--web.listen-address={self.prometheus_host.address}:{PROMETHEUS_PORT}"
        unit = Unit(self.prometheus_host, (*command, listen), {}, FOLDER / "logs" / "prometheus.log", folder=folder)
        self._add(unit).start()

    def _start_worker(self, host: Host, environment: dict[str, str]) -> None:
        (folder := FOLDER / host.name).mkdir()
        agents = environment["EVERTURN_AGENTS"]
        more = {
            "TEMPORAL_ADDRESS": self.address,
            "EVERTURN_AGENTS": agents if agents.startswith("/") else str(ROOT / agents),
            "EVERTURN_METRICS": f"{host.address}:{WORKER_METRICS_PORT}",
            "HOME": str(folder),
            "TMPDIR": str(folder),  # journals are a machine's own
            **self._environment,
        }
        command = (sys.executable, str(ROOT / "worker.py"))
        unit = Unit(host, command, environment | more, FOLDER / "logs" / f"{host.name}.log", folder=ROOT)
        self._add(unit).start()

    def _add(self, unit: Unit) -> Unit:
        self.units.append(unit)
        return unit

    def _watch(self) -> None:
        while not self._over.wait(WATCH_SECONDS):
            for unit in [*self.units]:
                unit.come_back()

    def _take_the_lock(self) -> None:
        lock = LOCK.open("a+")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.close()
            raise NotHere("A stack is running on this machine: end it with Ctrl-C, or with make stack-down.") from None
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        self._lock = lock


def running() -> int:
    """The process that runs a stack here; 0 if none does."""
    with suppress(FileNotFoundError), LOCK.open() as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return int(lock.read() or 0)
    return 0


def remove(*, logs: bool = True) -> None:
    """Everything that a stack leaves: processes, namespaces, the bridge, the database. Safe to repeat."""
    hosts.remove()
    unmount(FOLDER / "postgres")
    for path in FOLDER.iterdir() if FOLDER.exists() else ():
        if logs or path.name != "logs":
            shutil.rmtree(path) if path.is_dir() else path.unlink()
