"""A rerun that is over may stand for a candidate only if nothing of it can be another one."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, field_validator

from everturn import Agent, Compaction, HandOff, Model, Shown, tool
from everturn.evals.fingerprints import fingerprint_of
from everturn.guardrails import MaxChars, Pattern
from everturn.hooks import DenyCall, Hooks, before_tool
from everturn.records import ToolCall
from everturn.tools.context import ToolContext, TurnContext

PROMPTS = {"clerk": "Be generous"}
LEAST = [5]
FILE = Path("prompt.md")


class Config:
    def __init__(self, prompt: str) -> None:
        self.prompt = prompt

    def __call__(self, context: TurnContext) -> str:
        return self.prompt

    def instructions(self, context: TurnContext) -> str:
        return self.prompt


@dataclass
class Denies(Hooks):
    words: tuple[str, ...]

    def before_tool(self, call: ToolCall, context: ToolContext) -> DenyCall | None:
        return DenyCall() if call.name in self.words else None


def looked_up(context: TurnContext) -> str:
    return PROMPTS["clerk"]


def by_helper(context: TurnContext) -> str:
    return looked_up(context).upper()


def with_default(prompt: str) -> Callable[[TurnContext], str]:
    def instructions(context: TurnContext, words: str = prompt) -> str:
        return words

    return instructions


@before_tool
def careful(call: ToolCall, context: ToolContext) -> DenyCall | None:
    return DenyCall() if len(call.arguments) > LEAST[0] else None


@tool(effect="read")
def look(order_id: str) -> str:
    """Looks."""
    return order_id


def agent(**options: Any) -> Agent:
    return Agent("clerk", **{"model": Model("scripted:x"), "tools": [look], **options})


def checked(least: int) -> type[BaseModel]:
    class Answer(BaseModel):
        cents: int

        @field_validator("cents")
        @classmethod
        def check_cents(cls, cents: int) -> int:
            return max(cents, least)

    return Answer


other = Agent("other", model="scripted:x", description="Others")

PAIRS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "pattern": ({"hooks": [Pattern("abc", refuse="No.")]}, {"hooks": [Pattern("refund", refuse="No.")]}),
    "flags": ({"hooks": [Pattern("abc", refuse="No.")]}, {"hooks": [Pattern("(?i)abc", refuse="No.")]}),
    "refuse": ({"hooks": [Pattern("abc", refuse="No.")]}, {"hooks": [Pattern("abc", refuse="Never.")]}),
    "limit": ({"hooks": [MaxChars(10, refuse="n")]}, {"hooks": [MaxChars(10_000, refuse="n")]}),
    "field": ({"hooks": [Denies(("pay",))]}, {"hooks": [Denies(("look",))]}),
    "tools of a hook": (
        {"hooks": [Pattern("a", redact="", tools=["pay"])]},
        {"hooks": [Pattern("a", redact="", tools=["look"])]},
    ),
    "compaction": ({}, {"compaction": Compaction(window_tokens=3000)}),
    "filter": ({"handoff_to": [HandOff(other)]}, {"handoff_to": [HandOff(other, filter=Shown(last=1))]}),
    "loop": ({}, {"loop": "manual"}),
    "key": ({}, {"model": Model("scripted:x", key_env="OTHER")}),
    "object": ({"instructions": Config("a")}, {"instructions": Config("b")}),
    "method": ({"instructions": Config("a").instructions}, {"instructions": Config("b").instructions}),
    "default": ({"instructions": with_default("a")}, {"instructions": with_default("b")}),
    "validator": ({"output": checked(1)}, {"output": checked(2)}),
}


@pytest.mark.parametrize("changed", PAIRS)
def test_another_candidate_has_another_fingerprint(changed: str) -> None:
    before, after = (fingerprint_of(agent(**options)) for options in PAIRS[changed])
    assert before.digest != after.digest
    assert before.is_certain
    assert after.is_certain


@pytest.mark.parametrize("options", [{"instructions": looked_up}, {"instructions": by_helper}, {"hooks": [careful]}])
def test_what_a_module_holds_is_in_it(monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]) -> None:
    before = fingerprint_of(agent(**options))
    assert fingerprint_of(agent(**options)) == before
    monkeypatch.setitem(PROMPTS, "clerk", "Be strict")
    monkeypatch.setitem(globals(), "LEAST", [0])
    after = fingerprint_of(agent(**options))
    assert after.digest != before.digest
    assert before.is_certain


def of_file(context: TurnContext) -> str:
    return FILE.read_text()


def of_open(context: TurnContext) -> str:
    with open("prompt.md") as file:  # noqa: PTH123 - is what it is about
        return file.read()


def of_clock(context: TurnContext) -> str:
    return f"Today is {datetime.now(UTC)}"


def of_import(context: TurnContext) -> str:
    from tests.unit import test_settings

    return str(test_settings)


def of_module(context: TurnContext) -> str:
    return pytest.__name__


@pytest.mark.parametrize("instructions", [of_file, of_open, of_clock, of_import, of_module])
def test_what_may_read_from_outside_is_not_certain(instructions: Any) -> None:
    assert not fingerprint_of(agent(instructions=instructions)).is_certain


PROGRAM = """
from tests.unit.test_rerun_fingerprints import PAIRS, agent, by_helper, careful, fingerprint_of
print([fingerprint_of(agent(**options)).digest for pair in PAIRS.values() for options in pair])
print(fingerprint_of(agent(instructions=by_helper, hooks=[careful])))
"""


def test_another_process_has_the_same() -> None:
    """Which goes on with reruns that were begun before a kill."""
    environment = {"PYTHONHASHSEED": "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"}
    ran = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=True)
    digests = [fingerprint_of(agent(**options)).digest for pair in PAIRS.values() for options in pair]
    assert ran.stdout == f"{digests}\n{fingerprint_of(agent(instructions=by_helper, hooks=[careful]))}\n"
