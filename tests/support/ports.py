"""Ports for what tests start. Between finding one free and its being taken nobody else may take it: so none is one of
those that the kernel gives to outgoing connections, and each process that tests has some to itself."""

from __future__ import annotations

import os
import socket

from everturn import devserver

PROCESSES = 9
"""So many that `make test` starts at most."""


def ports_of_this_process() -> range:
    every = range(20_000, 30_000)
    number = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % PROCESSES
    size = len(every) // PROCESSES
    return every[number * size : (number + 1) * size]


def free_port() -> int:
    return devserver._free_port()


def listens(port: int) -> bool:
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0
