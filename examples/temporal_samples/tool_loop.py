"""The model calls tools until it has an answer: Temporal's cookbook, `agentic_loop_tool_call_openai_python`.

python examples/temporal_samples/tool_loop.py "Are there weather alerts where I am?"
"""

import asyncio
import os
import random
import sys
from typing import Annotated, Any

import httpx

from everturn import Agent, Client, Worker


async def get_ip_address() -> str:
    """Get the IP address of the current machine."""
    return (await _get("https://icanhazip.com")).text.strip()


async def get_location_info(ip_address: Annotated[str, "An IPv4 or IPv6 address"]) -> str:
    """Get the location information for an IP address: city, region and country."""
    place: dict[str, Any] = (await _get(f"http://ip-api.com/json/{ip_address}")).json()
    return f"{place['city']}, {place['regionName']}, {place['country']}"


async def get_weather_alerts(state: Annotated[str, "Two-letter US state code (e.g. CA, NY)"]) -> Any:
    """Get weather alerts for a US state."""
    return (await _get(f"https://api.weather.gov/alerts/active/area/{state}")).json()


def get_random_number() -> int:
    """Get a random number between 0 and 100."""
    return random.randint(0, 100)


async def _get(address: str) -> httpx.Response:
    async with httpx.AsyncClient(headers={"User-Agent": "weather-app/1.0"}, timeout=5) as http:
        return (await http.get(address)).raise_for_status()


agent = Agent(
    "assistant",
    model=os.environ.get("MODEL", "openai:gpt-5.5"),
    instructions="You are a helpful agent that can use tools to help the user. You never make anything up.",
    tools=[get_ip_address, get_location_info, get_weather_alerts, get_random_number],
)


async def main(question: str) -> None:
    client = await Client.connect()
    async with Worker(client, agents=[agent]):
        print((await client.run(agent, question)).text)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
