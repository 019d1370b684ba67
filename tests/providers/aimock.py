"""aimock, somebody else's stand-in for all four protocols, as a server that tests can start.

It comes from npm, at one version whose hash is checked, into `.venv` (which git ignores), and is run by node. Where
node or npm are not there, or npm's registry can't be reached, its tests are skipped; with REQUIRE_AIMOCK=1 they fail.
"""

from __future__ import annotations

import atexit
import base64
import contextlib
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import threading
import urllib.request
from collections import deque
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

VERSION = "1.43.0"
SHA512 = "V8D8cjSMtAR4rHaD2ulp3DR/ZguXQjDNOqwKDNvjb/OJL/KR1I0SDf5xpRCd+TYKjhmf9fM8Xpg3QBKPmV9Kmw=="
PACKAGE = f"@copilotkit/aimock@{VERSION}"

UNUSED = {"match": {"userMessage": "nothing"}, "response": {"content": "Nothing."}}
"""It does not start without a fixture."""


@contextlib.contextmanager
def running(fixtures: list[dict[str, Any]]) -> Iterator[str]:
    """It has these fixtures, and has answered nothing yet; yields its address."""
    address = _started()
    _post(f"{address}/__aimock/reset", {})
    _post(f"{address}/__aimock/fixtures", {"fixtures": fixtures})
    yield address


@cache
def _started() -> str:
    """One for all tests of this process, since node takes a third of a second to start. It streams a few letters at a
    time."""
    with tempfile.TemporaryDirectory() as folder:
        (path := Path(folder, "fixtures.json")).write_text(json.dumps({"fixtures": [UNUSED]}))
        options = ["--port", "0", "--fixtures", str(path), "--strict", "--chunk-size", "5"]
        process = subprocess.Popen(
            [*command_line(), *options], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        atexit.register(process.kill)
        assert process.stdout
        lines = []
        for line in process.stdout:
            lines.append(line)
            if "listening on" in line:
                # What it logs from here on is read by nobody, and must not fill the pipe.
                threading.Thread(target=deque, args=(process.stdout, 0), daemon=True).start()
                return lines[-1].split()[-1]
    pytest.fail(f"aimock did not start: {''.join(lines)}")


def _post(url: str, body: Any) -> None:
    headers = {"content-type": "application/json"}
    with urllib.request.urlopen(urllib.request.Request(url, json.dumps(body).encode(), headers)):
        pass


def received(address: str) -> list[dict[str, Any]]:
    """The requests that it answered, oldest first, each as Chat Completions would have put it."""
    with urllib.request.urlopen(f"{address}/__aimock/journal") as answer:
        return [entry["body"] for entry in json.load(answer)]


@cache
def command_line() -> list[str]:
    node, npm = shutil.which("node"), shutil.which("npm")
    if not (node and npm):
        _missing("node and npm are not on the PATH")
    home = Path(sys.prefix, "share", f"aimock-{VERSION}")
    if not home.exists():
        _install(npm or "", home)
    return [node or "", str(home / "package" / "dist" / "cli.js")]


def _install(npm: str, home: Path) -> None:
    home.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=home.parent) as folder:
        # Packed and not installed: it needs no other package, and none of its scripts is run.
        command = [npm, "pack", PACKAGE, "--silent"]
        packed = subprocess.run(command, cwd=folder, capture_output=True, timeout=100, check=False)
        if packed.returncode:
            _missing(f"npm can't get {PACKAGE}: {packed.stderr.decode()[-200:]}")
        (archive,) = Path(folder).glob("*.tgz")
        assert base64.b64encode(hashlib.sha512(archive.read_bytes()).digest()).decode() == SHA512, "not what was pinned"
        with tarfile.open(archive) as tar:
            tar.extractall(unpacked := Path(folder, "unpacked"), filter="data")
        with contextlib.suppress(OSError):  # somebody else was quicker
            unpacked.rename(home)


def _missing(why: str) -> None:
    if os.environ.get("REQUIRE_AIMOCK"):
        pytest.fail(why)
    pytest.skip(why)
