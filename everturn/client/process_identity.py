"""How this process names itself to Temporal: pid@host, as the SDK does; and in a container, its PID namespace.

Containers on one machine may share a host name, and the first process in each has the pid 1. Whoever counts workers by
their names would take them for one, or for one that has died.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path

_OF_THE_MACHINE = "4026531836"
"""The PID namespace in which Linux begins: PROC_PID_INIT_INO."""


def own_identity() -> str:
    """pid@host, or pid@host/namespace in a container."""
    return f"{os.getpid()}@{_host_of_process()}"


def is_here(identity: str) -> bool:
    """Whether a process names itself so that runs on this machine, or in this container. An application's worker may
    have the SDK's name, without the container's namespace."""
    return identity.partition("@")[2] in (_host_of_process(), socket.gethostname())


def died_here(identity: str) -> bool:
    """Whether a process of here is gone. False for one of elsewhere, or with another kind of name."""
    pid = identity.partition("@")[0]
    if not pid.isdecimal() or identity != f"{pid}@{_host_of_process()}":  # elsewhere, the pid is another process's
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except (PermissionError, OverflowError):
        pass
    return False


def _host_of_process() -> str:
    try:
        namespace = str(Path("/proc/self/ns/pid").readlink()).strip("pid:[]")
    except OSError:  # not Linux
        namespace = _OF_THE_MACHINE
    if namespace == _OF_THE_MACHINE:
        return socket.gethostname()
    return f"{socket.gethostname()}/{namespace}"
