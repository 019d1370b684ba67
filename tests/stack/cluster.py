"""Temporal as compose has it, in two of each service, with a load balancer before the two frontends."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from tests.stack.compose import ROOT, Compose
from tests.stack.hosts import Host, NotHere
from tests.stack.programs import Programs
from tests.stack.unit import Unit, wait_until

SERVICES = {"frontend": 6933, "history": 6934, "matching": 6935, "worker": 6939}
"""And the ports at which the services know each other."""
PORT = 7233
METRICS_PORT = 9090
SETTING_UP_SECONDS = 300.0

BALANCER = """
defaults
  mode tcp
  timeout connect 2s
  timeout client 1h
  timeout server 1h
listen temporal
  bind {address}:{port}
  balance leastconn
  default-server check inter 1s fall 2 rise 1 on-marked-down shutdown-sessions
"""


class Cluster:
    def __init__(
        self,
        compose: Compose,
        programs: Programs,
        database: str,
        balancer: Host,
        hosts: list[tuple[str, Host]],
        folder: Path,
        *,
        dynamic: Mapping[str, str],
    ) -> None:
        """`hosts`: each with the service that runs there. `dynamic`: more dynamic configuration than deploy's."""
        self._compose = compose
        self._programs = programs
        self._database = database
        logs = folder / "logs"
        self._dynamic = folder / "temporal.yaml"
        more = "".join(f"{key}:\n  - value: {value}\n" for key, value in dynamic.items())
        self._dynamic.write_text((ROOT / "deploy/temporal.yaml").read_text() + more)
        self.services = {
            host.name: Unit(
                host, (str(programs.server), "start"), self.environment(service, host), logs / f"{host.name}.log"
            )
            for service, host in hosts
        }
        config = BALANCER.format(address=balancer.address, port=PORT)
        for service, host in hosts:
            if service == "frontend":
                config += f"  server {host.name} {host.address}:{PORT}\n"
        (folder / "haproxy.cfg").write_text(config)
        self.address = f"{balancer.address}:{PORT}"
        command = ("haproxy", "-db", "-f", str(folder / "haproxy.cfg"))
        self.balancer = Unit(balancer, command, {}, logs / f"{balancer.name}.log")

    def environment(self, service: str, host: Host) -> dict[str, str]:
        """What compose says, and what is not the same with more than one process: who, where, and numbers to read."""
        return self._compose["temporal"].environment | {
            "TEMPORAL_SERVICES": service,
            "BIND_ON_IP": host.address,
            "POSTGRES_SEEDS": self._database,
            "DYNAMIC_CONFIG_FILE_PATH": str(self._dynamic),
            "PROMETHEUS_ENDPOINT": f"{host.address}:{METRICS_PORT}",
            "LOG_LEVEL": "warn",
        }

    def make_schema(self) -> None:
        self._run("deploy/schema.sh", self._compose["schema"].environment | {"SQL_HOST": self._database})

    def start(self) -> None:
        for unit in (*self.services.values(), self.balancer):
            unit.start()
        for name in self.services:
            self.wait_for(name)

    def make_namespace(self) -> None:
        self._run("deploy/namespace.sh", self._compose["namespace"].environment | {"TEMPORAL_ADDRESS": self.address})

    def wait_for(self, name: str) -> None:
        """Until this one takes part again."""
        unit = self.services[name]
        wait_until(lambda: _listens(unit.host.address, SERVICES[name.rpartition("-")[0]]), f"{name} listens", unit)

    def _run(self, script: str, environment: dict[str, str]) -> None:
        """What compose's one-shot services run."""
        done = subprocess.run(
            ["/bin/sh", str(ROOT / script)],
            env={"PATH": self._programs.folders, "LANG": "C.UTF-8", "HOME": "/nonexistent", **environment},
            capture_output=True,
            text=True,
            timeout=SETTING_UP_SECONDS,
            check=False,
        )
        if done.returncode:
            raise NotHere(f"{script} ended with {done.returncode}:\n{(done.stdout + done.stderr)[-2000:]}")


def _listens(address: str, port: int) -> bool:
    with suppress(OSError):
        socket.create_connection((address, port), timeout=1).close()
        return True
    return False
