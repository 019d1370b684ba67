"""A directory that payloads or artifacts are kept in: written whole or not at all, and read as far as they may go."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from everturn.errors import InvalidSetting
from everturn.private_files import make_folder, read_bounded, write_atomically

MAX_FILE_BYTES: Final = 256 * 1024 * 1024
"""More than any payload and any result; a larger file is none of ours."""


class Directory:
    """Files by their names, which may have slashes: whoever gives them sees to it that they stay inside. `holds` is for
    errors. Raises InvalidSetting."""

    def __init__(self, root: Path, *, holds: str) -> None:
        self.root = root.expanduser().absolute()
        try:
            make_folder(self.root)
        except OSError as error:
            raise InvalidSetting(
                f"{str(root)!r} can't hold {holds}: {error.strerror}.", cure="Name a directory that we may write to."
            ) from None

    def write(self, name: str, data: bytes) -> None:
        write_atomically(self.root / name, data)

    def read(self, name: str) -> bytes:
        """Raises OSError."""
        return read_bounded(self.root / name, most=MAX_FILE_BYTES)
