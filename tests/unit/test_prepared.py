"""A program that is forked from a process which has its imports is, but for its start, the one that Python starts."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support import prepared
from tests.support.prepared import FORKED, Program, command_of, run

pytestmark = pytest.mark.skipif(not FORKED, reason="programs really start on this Python")

LOOKS = """
import json, os, signal, sys, threading, time
print(json.dumps({
    "name": __name__, "file": globals().get("__file__"), "main": sys.modules["__main__"].__dict__ is globals(),
    "arguments": sys.argv, "original": sys.orig_argv, "path": sys.path, "folder": os.getcwd(),
    "environment": dict(os.environ), "zone": time.tzname, "said": sys.stdin.read(), "bytecode": sys.dont_write_bytecode,
    "streams": [
        [one.encoding, one.errors, one.line_buffering, one.write_through, one.isatty(), one.seekable()]
        for one in (sys.stdin, sys.stdout, sys.stderr)
    ],
    "open": sorted(int(one) for one in os.listdir("/proc/self/fd"))[:-1],
    "threads": threading.active_count(), "on Ctrl-C": str(signal.getsignal(signal.SIGINT)),
    "blocked": [str(one) for one in signal.pthread_sigmask(signal.SIG_BLOCK, [])],
}))
print("é", file=sys.stderr)
sys.exit(7)
"""


@pytest.mark.parametrize("kind", ["-c", "-m", "a file"])
@pytest.mark.parametrize("more", [{}, {"PYTHONUNBUFFERED": "1", "PYTHONPATH": "/nowhere", "TZ": "Asia/Tokyo"}], ids=str)
def test_it_finds_what_a_program_of_its_own_finds(tmp_path: Path, kind: str, more: dict[str, str]) -> None:
    (tmp_path / "looks.py").write_text(LOOKS)
    arguments = {"-c": ["-c", LOOKS, "a", "b"], "-m": ["-m", "looks", "a"], "a file": ["./looks.py"]}[kind]
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHONUN")}
    options: dict[str, Any] = {"cwd": tmp_path, "env": {**kept, **more, "GIVEN": "ü"}}
    real = subprocess.run(
        [sys.executable, *arguments], input="a line\n", text=True, capture_output=True, check=False, **options
    )
    forked = run(*arguments, says="a line\n", **options)
    assert json.loads(forked.stdout) == json.loads(real.stdout)
    assert (forked.stderr, forked.returncode) == (real.stderr, real.returncode) == ("é\n", 7)


def test_it_ends_as_python_ends() -> None:
    ends = (
        "import atexit, threading; atexit.register(print, 'last'); threading.Thread(target=print, args=['1']).start()"
    )
    done = run("-c", f"{ends}; 1 / 0")
    assert (done.returncode, done.stdout) == (1, "1\nlast\n")
    assert done.stderr.endswith("ZeroDivisionError: division by zero\n")
    assert run("-c", "import os; os._exit(5)").returncode == 5
    assert run("-c", "pass").returncode == 0


WAITS = "import time; print('here', flush=True); time.sleep(600)"


@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_signals_reach_it_and_nothing_else(sent: signal.Signals) -> None:
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with Program("-c", WAITS, **streams) as other, Program("-c", WAITS, **streams) as program:
        assert program.stdout
        assert program.stdout.readline() == "here\n"
        assert program.poll() is None
        program.send_signal(sent)
        _, error_text = program.communicate(timeout=180)
        assert program.returncode == -sent
        assert ("KeyboardInterrupt" in error_text) == (sent is signal.SIGINT)
        assert other.poll() is None
        other.kill()
    assert other.returncode == -signal.SIGKILL


def test_what_python_reads_as_it_starts_is_read() -> None:
    for seed in ("1", "2"):
        done = run("-c", "import os, sys; print(os.getppid(), hash('x'))", env={**os.environ, "PYTHONHASHSEED": seed})
        parent, number = done.stdout.split()
        real = subprocess.run(
            [sys.executable, "-c", "print(hash('x'))"],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        )
        assert (int(parent), number) == (os.getpid(), real.stdout.strip())


def test_an_environment_variable_starts_all_of_them_for_real(monkeypatch: pytest.MonkeyPatch) -> None:
    asks = ("-c", "import os; print(os.getppid())")
    assert int(run(*asks).stdout) != os.getpid()
    monkeypatch.setenv("REAL_STARTS", "1")
    assert int(run(*asks).stdout) == os.getpid()


def test_who_starts_commands_by_itself_has_a_forked_program_for_the_one_it_started(tmp_path: Path) -> None:
    options: dict[str, Any] = {"cwd": tmp_path, "env": {"GIVEN": "ü"}, "text": True, "input": "a line\n"}
    looks = "import os, sys; print(os.getcwd(), os.environ['GIVEN'], sys.argv, input(), os.getppid(), flush=True)"
    for end, status in (("sys.exit(7)", 7), ("os.kill(os.getpid(), 9)", -9), ("1 / 0", 1)):
        ran = [
            subprocess.run(command, capture_output=True, check=False, **options)
            for command in ([sys.executable, "-c", f"{looks}; {end}", "x"], command_of("-c", f"{looks}; {end}", "x"))
        ]
        assert [done.returncode for done in ran] == [status] * 2
        (*real, parent), (*forked, other_parent) = (done.stdout.split() for done in ran)
        assert real == forked
        assert int(parent) == os.getpid() != int(other_parent)
        assert ("ZeroDivisionError" in ran[1].stderr) == (status == 1)


def test_a_forked_program_ends_with_the_command_that_started_it() -> None:
    goes = "import os, time; print(os.getpid(), flush=True); time.sleep(600)"
    with subprocess.Popen(command_of("-c", goes), stdout=subprocess.PIPE, text=True) as command:
        assert command.stdout
        process = os.pidfd_open(int(command.stdout.readline()))
        command.kill()
        assert command.stdout.read() == "", "it has closed its output"
    ready, _, _ = select.select([process], [], [], 60)
    os.close(process)
    assert ready


def test_what_forks_for_another_process_of_the_test_run_is_forked_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    first = prepared._forks("everturn")
    second = prepared._Forks("everturn", first=prepared._behind(first.door))
    ran = [run("-c", LOOKS, says="a line\n")]
    monkeypatch.setattr(prepared, "_forks", lambda _: second)
    ran.append(run("-c", LOOKS, says="a line\n"))
    assert ran[0].stdout == ran[1].stdout
    assert [done.returncode for done in ran] == [7, 7]
    with Program("-c", "input()", stdin=subprocess.PIPE) as program:
        program.send_signal(signal.SIGTERM)
        assert program.wait(60) == -signal.SIGTERM
    second.stop()
    monkeypatch.undo()
    assert run("-c", "print(1)").stdout == "1\n"


def test_a_door_behind_which_nobody_is_any_more_is_none(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        prepared._behind(f"{tmp_path}/door")
