"""Workers in containers that share a host name are told apart, and none is taken for one that has died."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys

import pytest

from everturn.client import process_identity

HERE = f"@{socket.gethostname()}"


def test_a_process_of_here_is_known_to_run_or_to_be_gone() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    named = process_identity.own_identity().replace(str(os.getpid()), str(child.pid), 1)
    assert not process_identity.died_here(named)
    child.communicate(b"\n")
    assert process_identity.died_here(named)


@pytest.mark.parametrize("identity", ["", "ann", "ann@laptop", f"worker-1{HERE}", "1@elsewhere", f"1{HERE}/4026539999"])
def test_nobody_of_elsewhere_or_with_a_name_of_their_own_is_taken_for_gone(identity: str) -> None:
    assert not process_identity.died_here(identity)
    assert not process_identity.is_here(f"{identity}/4026539999")


def _may_make_namespaces() -> bool:
    command = ["unshare", "--pid", "--fork", "--mount-proc", "true"]
    return bool(shutil.which("unshare")) and subprocess.run(command, capture_output=True, check=False).returncode == 0


@pytest.mark.skipif(
    not _may_make_namespaces(), reason="this machine lets nobody make a PID namespace, or not this user"
)
def test_two_containers_with_one_host_name_have_names_of_their_own() -> None:
    program = "from everturn.client import process_identity; print(process_identity.own_identity())"
    command = ["unshare", "--pid", "--fork", "--mount-proc", sys.executable, "-c", program]
    began = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    names = [process.communicate(timeout=180)[0].strip() for process in began]
    assert all(name.startswith(f"1{HERE}/") for name in names)
    assert process_identity.own_identity() not in names
    assert not any(map(process_identity.died_here, names))
