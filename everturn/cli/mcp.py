"""`everturn mcp`: agents as the tools of an MCP server."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from everturn.cli.options import AgentsOption, settings_with, url_host
from everturn.errors import EverturnError
from everturn.system import extras


def mcp(
    agent: Annotated[
        list[str] | None, typer.Option("--agent", metavar="NAME", help="An agent that a worker hosts. May be repeated.")
    ] = None,
    agents: AgentsOption = None,
    http: Annotated[bool, typer.Option("--http", help="Serve over HTTP instead of standard input and output.")] = False,
    host: Annotated[
        str, typer.Option("--host", help="The address to listen on. Other machines can reach it only with a token.")
    ] = ("127.0.0.1"),
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="0 takes any free port.")] = 8235,
    decisions: Annotated[
        bool, typer.Option("--decisions/--no-decisions", help="Whether callers may approve, deny and answer.")
    ] = True,
    wait: Annotated[
        float, typer.Option("--wait", min=0, help="How many seconds a call waits for the agent's answer.")
    ] = 50.0,
) -> None:
    """Serve agents as tools of an MCP server. Workers run the agents, so this process may be killed and restarted."""
    asyncio.run(_serve_mcp(agent or [], agents, http=http, host=host, port=port, decisions=decisions, wait=wait))


async def _serve_mcp(
    named: list[str], agents: str | None, *, http: bool, host: str, port: int, decisions: bool, wait: float
) -> None:
    try:
        from everturn.mcp_server.server import AgentServer
        from everturn.mcp_server.serving import PATH, serve_http
        from everturn.web.auth import check_token
    except ImportError as error:
        raise EverturnError(
            f"An MCP server needs {error.name}, which is not installed.", cure=extras.install("mcp")
        ) from None
    from everturn.cli.connect import remote_client, require_namespace
    from everturn.cli.terminal import Screen
    from everturn.loading import load_agents
    from everturn.web.server import open_socket

    settings = settings_with(agents, None)
    loaded = load_agents(",".join(settings.agents)) if settings.agents else []
    served = dict.fromkeys(named, "") | {agent.name: agent.description for agent in loaded}
    token: str | None = None
    if settings.mcp_token:
        token = settings.mcp_token.get_secret_value()
    if http:
        check_token(token, host=host, what="MCP server", variable="EVERTURN_MCP_TOKEN")
    screen = Screen()
    async with remote_client() as client:
        server = AgentServer(client, served, decisions=decisions, wait_seconds=wait)
        await require_namespace(client)
        if not http:
            await server.mcp.run_stdio_async()
            return
        with open_socket(host, port) as bound:
            place = f"{url_host(host)}:{bound.getsockname()[1]}"

            def announce_address() -> None:
                screen.print_line(f"MCP      http://{place}{PATH}")
                screen.print_line(f"Agents   {', '.join(served) or 'any, by `start`'}")
                screen.print_line("Ctrl-C ends it.", style="dim")

            await serve_http(server, bound, token=token, hosts=settings.mcp_hosts, started=announce_address)
