"""The Dockerfile's steps, and what docker would send to them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]

AGENT = """
import cryptography, mcp, opentelemetry.sdk  # extras that settings alone switch on
import iniconfig  # the agent's own dependency
from everturn import Agent

def get_weather(city: str) -> str:
    "The weather in a city."
    return f"sunny in {city}"

agent = Agent("contained", model="scripted:demo", tools=[get_weather])
"""


def steps() -> Iterator[tuple[str, str]]:
    """Instructions and their arguments, without comments."""
    text = re.sub(r"^#.*\n", "", (ROOT / "Dockerfile").read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    for line in filter(None, map(str.strip, text.splitlines())):
        instruction, _, rest = line.partition(" ")
        yield instruction, rest


def own_lock() -> str:
    """Of somebody whose agent imports a small package: as `make lock-agents` writes it."""
    found = re.search(r"^iniconfig==.*(\n    --hash=.*)+", (ROOT / "requirements.lock").read_text(), re.MULTILINE)
    assert found
    return found[0] + "\n"


def sent() -> set[str]:
    """The names at the top that .dockerignore lets through; it must be a list of what comes in."""
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    assert "*" in lines
    return {line[1:] for line in lines if line.startswith("!")}
