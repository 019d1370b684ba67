"""MCP: servers, and clients of `everturn mcp`, with the official SDKs and others."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tomllib
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any, ClassVar

from everturn import Agent, Client, Image, McpServer, Model, Text, Worker
from everturn.devserver import DevServer
from everturn.errors import OutcomeUnknown, Retry, ToolFailed
from everturn.testing import ScriptedModel
from everturn.tools.context import ToolContext
from everturn.tools.mcp.calls import ServerCall
from everturn.tools.mcp.connections import NotConnected, ServerConnections
from everturn.tools.mcp.greetings import OLD_TRANSPORT
from everturn.tools.mcp.listed_tools import ListedTool, list_tools
from peers.bench import HOST, Bench, NotInstalled, free_port

MINUTES = 35

PROGRAMS = Path(__file__).parent / "mcp_programs"
PYTHON = {"mcp1": "mcp==1.30.0", "mcp2": "mcp==2.3.0", "fastmcp": "fastmcp==4.2.3"}
TYPESCRIPT = "@modelcontextprotocol/sdk"
NPM = (
    f"{TYPESCRIPT}@1.32.2",
    "zod@4.1.13",
    "@modelcontextprotocol/server-everything@2026.8.31",
    "@modelcontextprotocol/server-filesystem@2026.8.31",
    "@modelcontextprotocol/server-memory@2026.8.31",
    "@modelcontextprotocol/server-sequential-thinking@2026.8.31",
)
GO = "github.com/modelcontextprotocol/go-sdk"
GO_VERSION = "v1.8.0"
RUST = "rmcp"
RUST_VERSION = "3.11.0"
CARGO = """
[package]
name = "peer"
version = "0.1.0"
edition = "2024"

[[bin]]
name = "peer"
path = "main.rs"

[dependencies]
axum = "0.8"
serde = {{ version = "1", features = ["derive"] }}
serde_json = "1"
tokio = {{ version = "1", features = ["io-std", "macros", "net", "process", "rt-multi-thread"] }}

[dependencies.rmcp]
version = "{version}"
features = [
    "client",
    "server",
    "transport-child-process",
    "transport-io",
    "transport-streamable-http-client-reqwest",
    "transport-streamable-http-server",
]

[profile.dev]
debug = false
incremental = false
"""

OWN_TOOLS = {"clerk", "start", "send", "status", "events", "approve", "deny", "answer", "close"}

PAY = [("pay", {"cents": 5}, ["paid 5"])]
OFFICIAL = [
    *PAY,
    ("count", {}, ["3"]),
    ("nothing", {}, ["(no output)"]),
    ("picture", {}, [Image]),
    ("boom", {}, "boom"),
]
RUST_CALLS = [*PAY, ("count", {}, ['{"lamps":3}']), *OFFICIAL[2:]]
FILES = [
    ("read_text_file", {"path": "a.txt"}, ["hello"]),
    ("read_media_file", {"path": "a.png"}, [Image]),
    ("read_text_file", {"path": "/etc/hostname"}, "Access denied"),
]
ENTITY = {"name": "Ada", "entityType": "person", "observations": ["likes lamps"]}


async def run(bench: Bench) -> None:
    clients: dict[str, tuple[str, list[str]]] = {}
    for kind, requirement in PYTHON.items():
        package = requirement.partition("==")[0]
        try:
            python = bench.python(requirement)
        except NotInstalled as error:
            bench.row(package, "", "its server and client", "not installed", str(error))
            continue
        number = bench.version(python, package)
        program = [str(python), str(PROGRAMS / "server.py"), kind]
        clients[kind] = f"{package} {number}", [str(python), str(PROGRAMS / "client.py"), kind]
        with bench.check(package, number, "its server over stdio: texts, numbers, pictures, failures"):
            await _calls_fit(McpServer(command=[*program, "stdio"]), OFFICIAL)
        with bench.check(package, number, "its server over HTTP, restarted between two run-once calls"):
            await _outlives_a_restart(bench, [*program, "streamable-http"], "pay", {"cents": 5})
        if kind == "mcp1":
            with bench.check(package, number, "its server of the old HTTP+SSE transport is named as that"):
                await _is_named_as_old(bench, [*program, "sse"])
    await _node(bench, clients)
    await _go(bench, clients)
    await _rust(bench, clients)
    await _serves(bench, clients)


async def _node(bench: Bench, clients: dict[str, tuple[str, list[str]]]) -> None:
    try:
        folder = bench.node(*NPM)
        node = bench.program("node")
    except NotInstalled as error:
        bench.row(TYPESCRIPT, "", "its server and client, and npm's servers", "not installed", str(error))
        return
    for name in ("server.mjs", "client.mjs"):
        (folder / name).write_text((PROGRAMS / name).read_text())
    number = bench.version(folder, TYPESCRIPT)
    clients["typescript"] = f"{TYPESCRIPT} {number}", [node, str(folder / "client.mjs")]
    with bench.check(TYPESCRIPT, number, "its server with sessions over HTTP, restarted between two run-once calls"):
        await _outlives_a_restart(bench, [node, str(folder / "server.mjs")], "pay", {"cents": 5})

    def of_npm(name: str, *arguments: str, **environ: str) -> tuple[str, str, McpServer]:
        package = f"@modelcontextprotocol/server-{name}"
        command = [str(folder / "node_modules" / ".bin" / f"mcp-server-{name}"), *arguments]
        return package, bench.version(folder, package), McpServer(command=command, env=environ)

    files = folder / "files"
    files.mkdir()
    (files / "a.txt").write_text("hello")
    (files / "a.png").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(100))
    package, number, server = of_npm("filesystem", str(files))
    with bench.check(package, number, "texts, pictures and refusals, each once"):
        await _calls_fit(server, [(name, {"path": str(files / given["path"])}, told) for name, given, told in FILES])
    package, number, server = of_npm("memory", MEMORY_FILE_PATH=str(folder / "memory.json"))
    with bench.check(package, number, "lists under a name are told once"):
        entities = json.dumps([ENTITY], indent=2)
        name = '{"entities":"(already shown)"}'  # what the list is called is in the structured content alone
        await _calls_fit(server, [("create_entities", {"entities": [ENTITY]}, [entities, name])])
    package, number, server = of_npm("sequential-thinking")
    with bench.check(package, number, "a list of tools, and a call"):
        thought = {"thought": "x", "nextThoughtNeeded": False, "thoughtNumber": 1, "totalThoughts": 1}
        await _calls_fit(server, [("sequentialthinking", thought, [Text])])
    package, number, server = of_npm("everything")
    with bench.check(package, number, "over stdio: texts, pictures, structured content, links, progress"):
        calls = [
            ("echo", {"message": "hi"}, ["Echo: hi"]),
            ("get-tiny-image", {}, [Text, Image, Text]),
            ("get-structured-content", {"location": "New York"}, [Text]),
            ("get-resource-links", {"count": 2}, [Text, Text, Text]),
            ("trigger-long-running-operation", {"duration": 1, "steps": 2}, [Text]),
        ]
        await _calls_fit(server, calls)
    program = [node, str(folder / "node_modules" / package / "dist" / "index.js")]
    with bench.check(package, number, "over HTTP, restarted between two run-once calls (lost sessions: 400)"):
        await _outlives_a_restart(bench, [*program, "streamableHttp"], "echo", {"message": "hi"}, by_environ=True)
    with bench.check(package, number, "over the old HTTP+SSE transport, which is named as that"):
        await _is_named_as_old(bench, [*program, "sse"], by_environ=True)


async def _go(bench: Bench, clients: dict[str, tuple[str, list[str]]]) -> None:
    folder = bench.folder / "go"
    folder.mkdir()
    (folder / "main.go").write_text((PROGRAMS / "main.go").read_text())
    (folder / "go.mod").write_text("module peer\n\ngo 1.25\n")
    try:
        go = bench.program("go")
        wanted = "latest" if bench.latest else GO_VERSION
        for command in (["get", f"{GO}@{wanted}"], ["mod", "tidy"], ["build", "-o", "peer", "."]):
            await _ran_in(folder, [go, *command], seconds=600)
    except NotInstalled as error:
        bench.row(GO, "", "its server and client", "not installed", str(error))
        return
    [line] = [line for line in (folder / "go.mod").read_text().splitlines() if f"{GO} " in line]
    number = line.split()[-1] if "//" not in line else line.split()[-3]
    program = str(folder / "peer")
    clients["go"] = f"{GO} {number}", [program, "client"]
    with bench.check(GO, number, "its server over stdio"):
        await _calls_fit(McpServer(command=[program, "stdio"]), PAY)
    with bench.check(GO, number, "its server over HTTP, restarted between two run-once calls"):
        await _outlives_a_restart(bench, [program], "pay", {"cents": 5})


async def _rust(bench: Bench, clients: dict[str, tuple[str, list[str]]]) -> None:
    folder = bench.folder / "rust"
    folder.mkdir()
    (folder / "main.rs").write_text((PROGRAMS / "main.rs").read_text())
    wanted = "*" if bench.latest else f"={RUST_VERSION}"
    (folder / "Cargo.toml").write_text(CARGO.format(version=wanted))
    try:
        await _ran_in(folder, [bench.program("cargo"), "build", "--quiet"], seconds=1200)
    except NotInstalled as error:
        bench.row(RUST, "", "its server and client", "not installed", str(error))
        return
    packages = tomllib.loads((folder / "Cargo.lock").read_text())["package"]
    [number] = [package["version"] for package in packages if package["name"] == RUST]
    program = str(folder / "target" / "debug" / "peer")
    clients["rust"] = f"{RUST} {number}", [program, "client"]
    with bench.check(RUST, number, "its server over stdio: texts, numbers, pictures, failures"):
        await _calls_fit(McpServer(command=[program, "stdio"]), RUST_CALLS)
    with bench.check(RUST, number, "its server over HTTP, restarted between two run-once calls"):
        await _outlives_a_restart(bench, [program], "pay", {"cents": 5})


async def _ran_in(folder: Path, command: Sequence[str], *, seconds: float) -> None:
    """Runs a build; NotInstalled says what it ended with."""
    try:
        done = await asyncio.to_thread(
            subprocess.run, command, cwd=folder, capture_output=True, text=True, timeout=seconds, check=False
        )
    except subprocess.TimeoutExpired:
        raise NotInstalled(f"building it took longer than {seconds:g} s") from None
    if done.returncode:
        raise NotInstalled(f"{' '.join(command[:2])} failed: {done.stderr.strip()[-300:]}")


# ---------------------------------------------------------------- everturn as the client


class _FirstTry:
    again = sent = is_cancelled = False
    task: ClassVar[None] = None
    once = True

    async def keep(self, *, task: str | None = None) -> None: ...


@asynccontextmanager
async def _connections() -> AsyncIterator[ServerConnections]:
    opened = ServerConnections(on_change=lambda _: None)
    try:
        async with asyncio.timeout(120):
            yield opened
    finally:
        await opened.close()


async def _told(opened: ServerConnections, server: McpServer, name: str, arguments: Mapping[str, Any]) -> Any:
    """The parts of a run-once call's result, or the words of its failure."""
    call = ServerCall(opened, server, ListedTool(name, "once"), ToolContext(), _FirstTry())
    try:
        return await call.call_tool(dict(arguments))
    except (ToolFailed, Retry, OutcomeUnknown) as error:
        return f"{type(error).__name__}: {error}"


async def _calls_fit(server: McpServer, calls: Sequence[tuple[str, Mapping[str, Any], Any]]) -> None:
    """Each call's result has these texts, or parts of these kinds; or its failure has these words."""
    async with _connections() as opened:
        names = {
            tool.name for tool in (await list_tools(await opened.connection_to(server).opened_session(), server)).tools
        }
        for name, arguments, wanted in calls:
            assert name in names, f"{name} is not listed: {sorted(names)}"
            told = await _told(opened, server, name, arguments)
            if isinstance(wanted, str):
                assert isinstance(told, str), f"{name} did not fail"
                assert wanted in told, f"{name}: {told}"
                continue
            assert not isinstance(told, str), f"{name}: {told}"
            assert len(told) == len(wanted), f"{name}: {told}"
            for part, fits in zip(told, wanted, strict=True):
                right = isinstance(part, fits) if isinstance(fits, type) else part.text == fits
                assert right, f"{name}: {part}"


async def _started(bench: Bench, program: Sequence[str], port: int, *, by_environ: bool) -> subprocess.Popen[bytes]:
    if by_environ:
        return await bench.start(program, port=port, environ={"PORT": str(port)})
    return await bench.start([*program, str(port)], port=port)


async def _outlives_a_restart(
    bench: Bench, program: Sequence[str], name: str, arguments: Mapping[str, Any], *, by_environ: bool = False
) -> None:
    port = free_port()
    server = McpServer(url=f"http://{HOST}:{port}/mcp")
    process = await _started(bench, program, port, by_environ=by_environ)
    async with _connections() as opened:
        first = await _told(opened, server, name, arguments)
        process.kill()
        process.wait()
        await _started(bench, program, port, by_environ=by_environ)
        second = await _told(opened, server, name, arguments)
    assert not isinstance(first, str), first
    assert first == second, second


async def _is_named_as_old(bench: Bench, program: Sequence[str], *, by_environ: bool = False) -> None:
    port = free_port()
    await _started(bench, program, port, by_environ=by_environ)
    async with _connections() as opened:
        problem = ""
        try:
            await opened.connection_to(McpServer(url=f"http://{HOST}:{port}/sse")).opened_session()
        except NotConnected as error:
            problem = str(error)
    assert OLD_TRANSPORT in problem, problem or "it is connected"


# ---------------------------------------------------------------- everturn as the server


async def _serves(bench: Bench, clients: Mapping[str, tuple[str, list[str]]]) -> None:
    async with _agents() as (address, queue):
        environ = {**os.environ, "TEMPORAL_ADDRESS": address, "EVERTURN_TASK_QUEUE": queue}
        command = [sys.executable, "-m", "everturn", "mcp", "--agent", "clerk"]
        port = free_port()
        await bench.start([*command, "--http", "--port", str(port)], port=port, environ=environ)
        places = {"stdio": command, "HTTP": [f"http://{HOST}:{port}/mcp"]}
        for peer, client in clients.values():
            name, _, number = peer.rpartition(" ")
            for over, place in places.items():
                with bench.check(name, number, f"its client of `everturn mcp` over {over}: tools, an agent, start"):
                    _check_client(await _output([*client, *place], environ))


def _check_client(said: dict[str, Any]) -> None:
    assert set(said["tools"]) == OWN_TOOLS, said
    assert said["version"] in (None, version("everturn")), said
    assert said["result"]["text"] == "Hello.", said
    assert said["begun"] == {"conversation_id": "a"}, said


async def _output(command: Sequence[str], environ: Mapping[str, str]) -> dict[str, Any]:
    done = await asyncio.to_thread(
        subprocess.run, command, env=environ, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr[-1000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@asynccontextmanager
async def _agents() -> AsyncIterator[tuple[str, str]]:
    """The address of a dev server, and the task queue of a worker with the agent `clerk`."""
    server = DevServer(port=free_port(), ui_port=free_port())
    await server.start()
    try:
        async with ScriptedModel(lambda _: "Hello.") as model:
            client = await Client.connect(server.address, task_queue="peers")
            clerk = Agent("clerk", model=Model("scripted:any", base_url=model.base_url))
            async with Worker(client, agents=[clerk]):
                yield server.address, "peers"
    finally:
        server.kill()
