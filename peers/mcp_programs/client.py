"""A client with each Python SDK, of `everturn mcp`: `client.py mcp1|mcp2|fastmcp ADDRESS`, or a command in its place.
Prints one line of JSON."""

import asyncio
import json
import os
import sys

KIND, PLACE = sys.argv[1], sys.argv[2:]
IS_HTTP = PLACE[0].startswith("http")


async def mcp1():
    from mcp import ClientSession, StdioServerParameters
    from mcp.client.stdio import stdio_client
    from mcp.client.streamable_http import streamablehttp_client

    command = StdioServerParameters(command=PLACE[0], args=PLACE[1:], env=dict(os.environ))
    async with (
        streamablehttp_client(PLACE[0]) if IS_HTTP else stdio_client(command) as (messages, answers, *_),
        ClientSession(messages, answers) as session,
    ):
        version = (await session.initialize()).serverInfo.version
        tools = [tool.name for tool in (await session.list_tools()).tools]
        result = await session.call_tool("clerk", {"message": "Hi"})
        begun = await session.call_tool("start", {"agent": "clerk", "message": "Hi", "conversation_id": "a"})
        return version, tools, result.structuredContent, begun.structuredContent


async def mcp2():
    from mcp import Client
    from mcp.client.stdio import StdioServerParameters

    command = StdioServerParameters(command=PLACE[0], args=PLACE[1:], env=dict(os.environ))
    async with Client(PLACE[0] if IS_HTTP else command) as client:
        tools = [tool.name for tool in (await client.list_tools()).tools]
        result = await client.call_tool("clerk", {"message": "Hi"})
        begun = await client.call_tool("start", {"agent": "clerk", "message": "Hi", "conversation_id": "a"})
        return client.server_info.version, tools, result.structured_content, begun.structured_content


async def fastmcp():
    from fastmcp import Client
    from fastmcp.client.transports import StdioTransport

    command = StdioTransport(command=PLACE[0], args=PLACE[1:], env=dict(os.environ))
    async with Client(PLACE[0] if IS_HTTP else command) as client:
        tools = [tool.name for tool in await client.list_tools()]
        result = await client.call_tool("clerk", {"message": "Hi"})
        begun = await client.call_tool("start", {"agent": "clerk", "message": "Hi", "conversation_id": "a"})
        return None, tools, result.structured_content, begun.structured_content


version, tools, result, begun = asyncio.run({"mcp1": mcp1, "mcp2": mcp2, "fastmcp": fastmcp}[KIND]())
print(json.dumps({"version": version, "tools": tools, "result": result, "begun": begun}))
