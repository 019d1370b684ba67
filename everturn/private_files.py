"""Files that hold what was said, in folders of their own: for their owner only, and never through somebody's link."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Final

OWNER_ONLY: Final = 0o600
UMASK: Final = 0o077
"""For programs that make such files."""


def make_folder(path: Path) -> None:
    """Makes what is missing of it, readable by its owner only. What is there stays as it is. Raises OSError."""
    for missing in reversed([one for one in (path, *path.parents) if not os.path.lexists(one)]):
        missing.mkdir(mode=0o700, exist_ok=True)  # `parents=True` would leave those open to be read
    if not path.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path))


def open_to_append(path: Path) -> int:
    """A descriptor of a file, which is made if it is missing. Raises OSError, also for a link or a pipe."""
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    descriptor = os.open(path, flags, OWNER_ONLY)
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EINVAL, "it is no file", str(path))
        if found.st_uid == os.geteuid():
            os.fchmod(descriptor, OWNER_ONLY)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def close_to_others(path: Path) -> None:
    """Takes everybody else's rights to a file of ours, if there is one. Raises OSError."""
    try:
        found = path.lstat()
    except FileNotFoundError:
        return
    if stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid():
        path.chmod(stat.S_IMODE(found.st_mode) & OWNER_ONLY)


def read_bounded(path: Path, *, most: int) -> bytes:
    """A file's content. Raises OSError, also for a pipe or a folder, and if it has more than `most` bytes."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    with os.fdopen(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EINVAL, "it is no file", str(path))
        if found.st_size > most:
            raise OSError(errno.EFBIG, f"it has {found.st_size:,} bytes, and the limit is {most:,}", str(path))
        return file.read(most)


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
