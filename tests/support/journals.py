"""Journals that workers left behind: whole ones, and what may lie in their place."""

from __future__ import annotations

import json
import os
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path
from typing import Any

from everturn.lost_workers import journal
from everturn.lost_workers.journal import Task

SCOPE = {"server": "s", "namespace": "n", "task_queue": "q"}
NAME = "everturn-1-0123456789abcdef.jsonl"


def task(name: str) -> Task:
    return {"token": b64encode(name.encode()).decode(), "conversation": "c", "run": "r", "activity": "a"}


def left(folder: Path, *lines: dict[str, Any] | str, scope: dict[str, str] = SCOPE, name: str = NAME) -> Path:
    """The journal of a worker that died."""
    file = folder / name
    with file.open("x") as written:
        written.write(json.dumps(journal._make_header(scope, os.fstat(written.fileno()).st_ino)) + "\n")
        written.writelines(line if isinstance(line, str) else json.dumps(line) + "\n" for line in lines)
    file.chmod(0o600)
    return file


def fifo(file: Path) -> None:
    os.mkfifo(file)


def directory(file: Path) -> None:
    file.mkdir()


def loop(file: Path) -> None:
    file.symlink_to(file)


def to_another(file: Path) -> None:
    file.symlink_to(left(file.parent, task("x"), name=NAME.replace("0123", "cccc")))


def sparse(file: Path) -> None:
    left(file.parent, task("x"), name=file.name)
    os.truncate(file, 8 * 1024**3)


def unreadable(file: Path) -> None:
    left(file.parent, task("x"), name=file.name).chmod(0)


def holding(*lines: dict[str, Any] | str) -> Callable[[Path], None]:
    return lambda file: left(file.parent, *lines, name=file.name) and None


def beginning(content: bytes) -> Callable[[Path], Any]:
    return lambda file: file.write_bytes(content)


DAMAGED: dict[str, Callable[[Path], Any]] = {
    "a pipe": fifo,
    "a folder": directory,
    "a link to itself": loop,
    "a link to another": to_another,
    "8 GB of nothing": sparse,
    "one that can't be read": unreadable,
    "not UTF-8": beginning(b"\xff\xfe\x00"),
    "not UTF-8 further on": lambda file: left(file.parent, task("x"), name=file.name).write_bytes(
        file.read_bytes() + b"\xff\xfe\n"
    ),
    "an endless first line": beginning(b"{" * 100_000),
    "a list": beginning(b"[]\n"),
    "a number": beginning(b"1\n"),
    "100,000 levels": beginning(b"[" * 100_000 + b"\n"),
    "no token": holding({"conversation": "c", "run": "r", "activity": "a"}),
    "no run": holding({name: value for name, value in task("x").items() if name != "run"}),
    "no text": holding({**task("x"), "token": 5}, {"done": {}}, {"done": ["x"]}),
    "bad base64": holding({**task("x"), "token": "no base64!"}, {**task("x"), "token": "a"}),
    "lone surrogates": holding('{"token":"\\udc80","conversation":"c","run":"r","activity":"a"}\n'),
    "deep lines": holding("[" * 100_000 + "\n"),
}
