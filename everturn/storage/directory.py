"""A directory for payloads or artifacts: files are written whole or not at all, and read up to a size limit."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Final
from urllib.parse import quote

from everturn.errors import InvalidSetting
from everturn.system.private_files import make_folder, read_bounded, write_atomically

MAX_FILE_BYTES: Final = 256 * 1024 * 1024
"""Larger than any payload or result that everturn writes."""


SEGMENT_CHARS: Final = 200
"""File systems take names of 255 bytes."""


def path_segments(text: str) -> str:
    """The text as a safe path; different texts have different paths."""
    # A dot could make `..`; and + is never in what quote() gives, so it can say that a long name goes on.
    quoted = quote(text, safe="").replace(".", "%2E")
    return "+/".join(quoted[start : start + SEGMENT_CHARS] for start in range(0, len(quoted), SEGMENT_CHARS))


class Directory:
    """Files by name. Names may have slashes; the caller must keep them inside the directory. `holds` is a word for
    errors. Raises InvalidSetting."""

    def __init__(self, root: Path, *, holds: str) -> None:
        self.root = root.expanduser().absolute()
        try:
            make_folder(self.root)
        except OSError as error:
            raise InvalidSetting(
                f"{str(root)!r} can't hold {holds}: {error.strerror}.",
                cure="Name a directory that this process can write to.",
            ) from None

    def write(self, name: str, data: bytes) -> None:
        write_atomically(self.root / name, data)

    def read(self, name: str) -> bytes:
        """Raises OSError."""
        return read_bounded(self.root / name, max_bytes=MAX_FILE_BYTES)

    def count(self, folder: str) -> int:
        """How many files are in a folder and its subfolders. Raises OSError."""
        if not self._has_folder(folder):
            return 0
        return sum(len(files) for _, _, files in os.walk(self.root / folder))

    def delete(self, folder: str) -> int:
        """Deletes a folder with all that is in it; returns how many files it had. Raises OSError."""
        count = self.count(folder)
        if self._has_folder(folder):
            shutil.rmtree(self.root / folder)
        return count

    def _has_folder(self, folder: str) -> bool:
        path = self.root / folder
        # If the disk ignores case, a folder found under a name in other case belongs to somebody else.
        return path.is_dir() and not path.is_symlink() and path.name in {entry.name for entry in path.parent.iterdir()}
