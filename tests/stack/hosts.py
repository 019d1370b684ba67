"""Hosts on one machine: network namespaces with an address each, on a bridge. Linux, as root."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from signal import SIGKILL, SIGTERM

BRIDGE = "everturn0"
NETWORK = "10.73.17"
HERE = f"{NETWORK}.1"
"""This machine's address on the bridge."""
PREFIX = "everturn-"
"""How the names of the namespaces begin: all that do are ours."""
STOP_SECONDS = 20.0


class NotHere(Exception):
    """The stack can't run on this machine: says why, and what to do."""


@dataclass(eq=False)
class Running:
    """A program on a host."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def stop(self, seconds: float = STOP_SECONDS) -> None:
        """SIGTERM; SIGKILL if it does not end."""
        self.process.send_signal(SIGTERM)
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()

    def last_lines(self) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-8:])


@dataclass(eq=False)
class Host:
    name: str
    number: int
    """The last part of its address."""
    cut_off: bool = field(default=False, init=False)

    @property
    def address(self) -> str:
        return f"{NETWORK}.{self.number}"

    @property
    def namespace(self) -> str:
        return f"{PREFIX}{self.name}"

    @property
    def cable(self) -> str:
        """The end of its cable that is in the bridge."""
        return f"everturn-{self.number}"

    def start(
        self, *command: str, log: Path, environment: Mapping[str, str], user: str = "", folder: Path | str = "/"
    ) -> Running:
        """`ip netns exec` becomes the program: its pid is the program's."""
        as_user = ["setpriv", f"--reuid={user}", f"--regid={user}", "--init-groups"] if user else []
        with log.open("ab") as file:
            process = subprocess.Popen(
                ["ip", "netns", "exec", self.namespace, *as_user, *command],
                cwd=folder,
                env={"PATH": os.environ["PATH"], "LANG": "C.UTF-8", **environment},
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                start_new_session=True,  # Ctrl-C is for the stack, which stops them in order
            )
        return Running(self.name, process, log)

    def kill_all(self) -> None:
        """SIGKILL to all that runs on it."""
        for pid in self.pids():
            with suppress(ProcessLookupError):
                os.kill(pid, SIGKILL)

    def pids(self) -> list[int]:
        """Of all that runs on it."""
        return [int(pid) for pid in _said("ip", "netns", "pids", self.namespace).split()]

    def cut(self) -> None:
        """Pulls the cable: nothing comes or goes, and nobody is told."""
        _do("ip", "link", "set", self.cable, "down")
        self.cut_off = True

    def heal(self) -> None:
        _do("ip", "link", "set", self.cable, "up")
        self.cut_off = False

    def make(self) -> None:
        _do("ip", "netns", "add", self.namespace)
        _do("ip", "link", "add", self.cable, "type", "veth", "peer", "name", "eth0", "netns", self.namespace)
        _do("ip", "link", "set", self.cable, "master", BRIDGE, "up")
        for words in ("addr add 127.0.0.1/8 dev lo", f"addr add {self.address}/24 dev eth0"):
            subprocess.run(["ip", "-n", self.namespace, *words.split()], check=False, capture_output=True)
        for device in ("lo", "eth0"):
            _do("ip", "-n", self.namespace, "link", "set", device, "up")


def make(hosts: Sequence[Host]) -> None:
    """The bridge and the hosts. What an earlier stack left is removed first."""
    look()
    remove()
    _do("ip", "link", "add", BRIDGE, "type", "bridge")
    _do("ip", "addr", "add", f"{HERE}/24", "dev", BRIDGE)
    _do("ip", "link", "set", BRIDGE, "up")
    for host in hosts:
        host.make()


def remove() -> None:
    """Ends what runs in our namespaces, and removes them and the bridge. Safe to repeat."""
    for namespace in left():
        pids = _said("ip", "netns", "pids", namespace).split()
        for pid in map(int, pids):
            with suppress(ProcessLookupError):
                os.kill(pid, SIGKILL)
        _said("ip", "netns", "del", namespace)
    if f" {BRIDGE}:" in _said("ip", "link", "show", "type", "bridge"):
        _said("ip", "link", "del", BRIDGE)


def left() -> list[str]:
    """Our namespaces that there are."""
    lines = _said("ip", "netns", "list").splitlines()
    return [line.split()[0] for line in lines if line.startswith(PREFIX)]


def look() -> None:
    """Raises NotHere if namespaces can't be had, or our addresses are somebody else's."""
    if sys.platform != "linux":
        raise NotHere("The stack needs Linux: its hosts are network namespaces.")
    if os.geteuid() != 0:
        raise NotHere("The stack makes network namespaces, and only root may. Run it as root, or with sudo.")
    if not shutil.which("ip") or not shutil.which("setpriv"):
        raise NotHere("There is no `ip` or no `setpriv`: apt-get install iproute2 util-linux")
    for line in _said("ip", "route", "show", f"{NETWORK}.0/24").splitlines():
        if BRIDGE not in line:
            raise NotHere(f"{NETWORK}.0/24 is used here already: {line}. Change NETWORK in {__file__}.")


def _do(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise NotHere(f"{' '.join(command)}: {done.stderr.strip() or done.returncode}")


def _said(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout
