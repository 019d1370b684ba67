"""Files that hold what was said, in folders of their own: for their owner only, and never through somebody's link.

The temporary folder is everybody's. What is found at a path there may be a symlink, a pipe or somebody else's, and may
change between two looks: so a PrivateFolder uses its path once, and everything after that goes through descriptors.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Final, Self

OWNER_ONLY: Final = 0o600
UMASK: Final = 0o077
"""For programs that make such files."""

MAX_ENTRIES: Final = 10_000
"""Of a folder with more, the rest is not looked at."""

_OTHERS_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH
_FILE: Final = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
_TRUSTED: Final = (0,)
"""Beside ourselves: root could do whatever it likes anyway."""


def make_folder(path: Path) -> None:
    """Makes what is missing of it, readable by its owner only. What is there stays as it is. Raises OSError."""
    for missing in reversed([folder for folder in (path, *path.parents) if not os.path.lexists(folder)]):
        missing.mkdir(mode=0o700, exist_ok=True)  # `parents=True` would leave those open to be read
    if not path.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path))


def open_to_append(path: Path) -> int:
    """A descriptor of a file, which is made if it is missing. Raises OSError, also for a link or a pipe."""
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    descriptor = os.open(path, flags, OWNER_ONLY)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file", str(path))
        if status.st_uid == os.geteuid():
            os.fchmod(descriptor, OWNER_ONLY)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def close_to_others(path: Path) -> None:
    """Takes everybody else's rights to a file of ours, if there is one. Raises OSError."""
    try:
        status = path.lstat()
    except FileNotFoundError:
        return
    if stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid():
        path.chmod(stat.S_IMODE(status.st_mode) & OWNER_ONLY)


def read_bounded(path: Path, *, max_bytes: int) -> bytes:
    """A file's content. Raises OSError, also for a pipe or a folder, and if it has more than `max_bytes` bytes."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file", str(path))
        if status.st_size > max_bytes:
            raise OSError(errno.EFBIG, f"it has {status.st_size:,} bytes, and the limit is {max_bytes:,}", str(path))
        return file.read(max_bytes)


def write_atomically(path: Path, data: bytes) -> None:
    """A file that is whole or not there, also after a power cut. One that is there is replaced. Raises OSError."""
    make_folder(path.parent)
    # Its name can't be guessed, and it is new: nobody can have put a link there.
    with NamedTemporaryFile(dir=path.parent, prefix=".", suffix=".part", delete=False) as file:
        try:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
            Path(file.name).replace(path)
        except BaseException:
            Path(file.name).unlink(missing_ok=True)
            raise


class NotPrivate(Exception):
    """Not this user's alone. The message says why."""


class PrivateFolder:
    """A folder that nobody else writes into, and files in it that are this user's, each held by its descriptor.

    Made if it is missing, readable by this user only. `close` it.
    """

    def __init__(self, path: Path) -> None:
        """Raises NotPrivate, and OSError."""
        self.path = path
        make_folder(path)
        for link in (path, *path.parents):
            if link.is_symlink() and link.lstat().st_uid not in (os.geteuid(), *_TRUSTED):
                raise NotPrivate(f"{str(link)!r} is a link that another user made")
        self._fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            status = os.fstat(self._fd)
            if status.st_uid != os.geteuid():
                raise NotPrivate(f"{str(path)!r} belongs to user {status.st_uid}, not to {os.geteuid()}")
            if status.st_mode & _OTHERS_WRITE:
                raise NotPrivate(f"others may write into {str(path)!r}")
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        os.close(self._fd)

    def changed_at(self) -> float:
        """When a file last came into it or left it, by the clock of its disk."""
        return os.fstat(self._fd).st_mtime

    def names(self) -> list[str]:
        """Of the files in it: no links, folders or pipes. Raises OSError."""
        with os.scandir(self._fd) as entries:
            return [entry.name for entry in islice(entries, MAX_ENTRIES) if entry.is_file(follow_symlinks=False)]

    def create(self, name: str) -> int:
        """A descriptor of a new file, to read and write. Raises OSError, also if there is one of this name."""
        return os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL | _FILE, OWNER_ONLY, dir_fd=self._fd)

    @contextlib.contextmanager
    def reading(self, name: str) -> Iterator[int]:
        """A descriptor of a file, to read, as long as the block runs. Raises OSError, and NotPrivate if it is not
        a regular file, or if others own it or can write to it."""
        descriptor = os.open(name, os.O_RDONLY | _FILE, dir_fd=self._fd)
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise NotPrivate(f"{name!r} is not a regular file")
            if status.st_uid != os.geteuid() or status.st_mode & _OTHERS_WRITE or status.st_nlink != 1:
                raise NotPrivate(f"{name!r} is not private to this user")
            yield descriptor
        finally:
            os.close(descriptor)

    def remove(self, name: str, identity: tuple[int, int]) -> None:
        """Removes the file, unless another one has taken its name. Raises OSError."""
        if identity_of(os.stat(name, dir_fd=self._fd, follow_symlinks=False)) == identity:
            os.unlink(name, dir_fd=self._fd)


def identity_of(status: os.stat_result) -> tuple[int, int]:
    """What tells a file from every other one, whatever its name."""
    return status.st_dev, status.st_ino
