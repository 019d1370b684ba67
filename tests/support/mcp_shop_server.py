"""The MCP server of mcp_shop.py, for the tests that use it."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from everturn import McpServer
from tests.support.ports import free_port, listens
from tests.support.prepared import ROOT, Program, command_of
from tests.support.waiting import until


class McpShop:
    """In a folder of its own. Over stdio, each connection starts a program; over HTTP, one server has them all."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def arguments(self) -> tuple[str, ...]:
        return "-m", "tests.support.mcp_shop", str(self.folder)

    def stdio(self, **options: Any) -> McpServer:
        return McpServer(command=command_of(*self.arguments), cwd=str(ROOT), **options)

    @property
    def log(self) -> list[str]:
        file = self.folder / "log"
        return file.read_text().splitlines() if file.exists() else []

    def lines(self, word: str) -> list[str]:
        return [line for line in self.log if line.split()[0] == word]

    def go(self) -> None:
        (self.folder / "go").touch()

    @contextmanager
    def http(self, port: int = 0, **options: Any) -> Iterator[McpServer]:
        port = port or free_port()
        process = Program(*self.arguments, str(port), cwd=ROOT, stderr=subprocess.DEVNULL)
        try:
            until(lambda: listens(port))
            yield McpServer(url=f"http://127.0.0.1:{port}/mcp", **options)
        finally:
            process.kill()
            process.wait()
