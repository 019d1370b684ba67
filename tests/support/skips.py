"""In CI, a test may be skipped only for a reason that is in this list: any other skip fails the run.

"X is not installed" is allowed only while X is missing: if it is there, the test has to run. `.ci/run` installs and
builds what it can.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class AllowedSkip:
    reason: str
    """How the reason that the test gives begins."""
    why: str
    """Why CI can do without the test."""
    holds: Callable[[], bool] = lambda: True


def missing(*programs: str) -> Callable[[], bool]:
    """Whether one of them is missing on this machine."""
    return lambda: not all(map(shutil.which, programs))


def unset(variable: str) -> Callable[[], bool]:
    return lambda: variable not in os.environ


APT = "a package of Debian's: there may be no apt-get, or no right to use it"
LANGUAGE = "CI uses the Go and the Node that are there, and installs none"
PEERS = "it needs other agent frameworks, hundreds of packages in an environment of their own"

ALLOWED = (
    AllowedSkip("tmux is not installed", APT, missing("tmux")),
    AllowedSkip("/usr/bin/chromium is not there", APT, missing("/usr/bin/chromium")),
    AllowedSkip("docker-compose is not installed", APT, missing("docker-compose")),
    AllowedSkip("prometheus is not installed", APT, missing("prometheus")),
    AllowedSkip("redis-server is not installed", APT, missing("redis-server")),
    AllowedSkip(
        "PostgreSQL of Debian is not installed", APT, lambda: not [*Path("/usr/lib/postgresql").glob("*/bin/postgres")]
    ),
    AllowedSkip("the worker is not built: run `go build", LANGUAGE, missing("go")),
    AllowedSkip("the worker is not built: run `npm install", LANGUAGE, missing("node", "npm")),
    AllowedSkip("the front ends are not there", LANGUAGE, missing("node", "npm")),
    AllowedSkip("axe-core is not there", LANGUAGE, missing("node", "npm")),
    AllowedSkip("pyright is not there", LANGUAGE, missing("node", "npm")),
    AllowedSkip("node is not installed", LANGUAGE, missing("node")),
    AllowedSkip("node and npm are not", LANGUAGE, missing("node", "npm")),
    AllowedSkip("needs git", "the source may have come without git", missing("git")),
    AllowedSkip("not a git checkout", "the source may have come as an archive", lambda: not (ROOT / ".git").exists()),
    AllowedSkip("no recordings here", "recordings are never committed: they are other people's"),
    AllowedSkip("this machine lets nobody make a PID namespace", "inside of a container, it often needs more rights"),
    AllowedSkip(
        "programs really start on this Python",
        "it tests the fork that replaces a start",
        lambda: sys.version_info >= (3, 14),
    ),
    AllowedSkip("only with PEERS=1", PEERS, unset("PEERS")),
    AllowedSkip("PEERS=1 runs it", PEERS, unset("PEERS")),
    AllowedSkip("it takes minutes, and root: STACK=1", "it changes the machine's network", unset("STACK")),
    AllowedSkip("it takes minutes: make image", "it needs root, and downloads a Debian", unset("EMPTY_ROOT")),
)


def watch_skips(config: pytest.Config) -> None:
    """With xdist, the process that starts the others sees all their reports: only it judges."""
    if os.environ.get("CI") == "true" and not hasattr(config, "workerinput"):
        config.pluginmanager.register(SkipWatch(ALLOWED))


class SkipWatch:
    """Fails the run if a test was skipped for a reason that is not `allowed`."""

    def __init__(self, allowed: Iterable[AllowedSkip]) -> None:
        self._reasons = tuple(one.reason for one in allowed if one.holds())
        self._forbidden: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.skipped and not hasattr(report, "wasxfail"):
            reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
            if not (reason := reason.removeprefix("Skipped: ")).startswith(self._reasons):
                self._forbidden.append(f"{report.nodeid}: {reason}")

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Iterator[None]:
        if self._forbidden and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        yield

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self._forbidden:
            terminalreporter.section("skipped, but CI has to run them (tests/support/skips.py)")
            for one in self._forbidden:
                terminalreporter.line(one)
