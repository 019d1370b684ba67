"""Lets the person who decides edit a call's arguments in an editor."""

from __future__ import annotations

import asyncio
import os
import shlex
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

from everturn.cli.terminal import Screen
from everturn.system.json_numbers import parse_json


class NotEdited(Exception):
    """There are no new arguments: the message says why not."""


async def edit_arguments(screen: Screen, name: str, written: str) -> str:
    """The text after editing: in $VISUAL or $EDITOR, or in the input line if neither is set. Raises NotEdited.

    If it is cancelled, the editor is asked to end.
    """
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR")
    if not editor:
        return await screen.ask_line("    arguments: ", prefill=" ".join(map(str.strip, written.splitlines())))
    with tempfile.TemporaryDirectory(prefix="everturn-") as folder, screen.lend_terminal():
        file = Path(folder) / f"{Path(name).name}.json"
        file.write_text(written + "\n", encoding="utf-8")
        try:
            process = await asyncio.create_subprocess_exec(*shlex.split(editor), str(file))
        except (OSError, ValueError) as error:
            raise NotEdited(f"The editor {editor!r} can't be started: {error}. Set EDITOR to another.") from None
        try:
            status = await process.wait()
        finally:
            if process.returncode is None:
                with suppress(ProcessLookupError):
                    process.terminate()
                await process.wait()
        if status:
            raise NotEdited(f"The editor {editor!r} ended with status {status}: nothing was changed.")
        try:
            return file.read_text(encoding="utf-8").strip()
        except (OSError, ValueError) as error:
            raise NotEdited(f"The file that the editor saved can't be read: {error}.") from None


def parse_arguments(written: str) -> dict[str, Any]:
    """Raises NotEdited if the text is no JSON object."""
    if not written:
        raise NotEdited("The editor saved an empty file: nothing was changed.")
    try:
        arguments = parse_json(written)
    except (ValueError, RecursionError) as error:
        raise NotEdited(f"This is not JSON: {error}") from None
    if not isinstance(arguments, dict):
        raise NotEdited("The arguments have to be a JSON object: {...}")
    return arguments
