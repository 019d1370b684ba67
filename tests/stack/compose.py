"""What docker-compose.yml says, with the values of .env.example: the stack runs the same programs by it."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]

_VARIABLE = re.compile(r"\$\{(\w+)(?::([-?])([^}]*))?\}")


@dataclass(frozen=True)
class Service:
    environment: dict[str, str]
    command: list[str]
    version: str
    """Of its image; empty if the image is built here."""


@dataclass(frozen=True)
class Compose:
    services: dict[str, Service]
    versions: dict[str, str]
    """The variables of .env.example that end in _VERSION."""

    def __getitem__(self, name: str) -> Service:
        return self.services[name]


def read(given: Mapping[str, str]) -> Compose:
    """`given` comes before .env.example, as the shell's variables come before .env's for docker compose."""
    values = example() | dict(given)
    told: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
    services = {}
    for name, said in told.items():
        environment = {}
        for variable, value in said.get("environment", {}).items():
            # Without a value, compose hands on the shell's; what is not set there is not set.
            filled = values.get(variable) if value is None else _filled(str(value), values)
            if filled is not None:
                environment[variable] = filled
        command = [_filled(str(word), values) for word in said.get("command") or []]
        version = "" if "build" in said else _filled(said["image"], values).rpartition(":")[2]
        services[name] = Service(environment, command, version)
    return Compose(services, {name: value for name, value in values.items() if name.endswith("_VERSION")})


def example() -> dict[str, str]:
    lines = (ROOT / ".env.example").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if re.match(r"\w+=", line))


def shell() -> dict[str, str]:
    """Of this shell's variables those that compose would see."""
    text = (ROOT / "docker-compose.yml").read_text()
    return {name: value for name, value in os.environ.items() if re.search(rf"\b{name}\b", text)}


def _filled(text: str, values: Mapping[str, str]) -> str:
    def fill(found: re.Match[str]) -> str:
        name, kind, otherwise = found.groups()
        if value := values.get(name):
            return value
        if kind == "?":
            raise LookupError(f"docker-compose.yml wants {name}: {otherwise}")
        return otherwise or ""

    return _VARIABLE.sub(fill, text)
