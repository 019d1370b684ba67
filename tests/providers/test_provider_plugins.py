"""A package of somebody else adds providers by entry points: a row, a dialect, a protocol of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from everturn import Agent, WebSearch
from everturn.errors import InvalidModel, InvalidTool
from everturn.models import Model
from everturn.prices import cost_usd
from everturn.providers.base import Request
from everturn.providers.catalog import Row, all_rows, row_of
from everturn.providers.openai_chat import encode
from everturn.records import Message, Usage
from everturn.vendor_models import plugins
from everturn.vendor_models.abilities import abilities_of
from tests.support.provider_server import Asked, ProviderServer

GROUP = "everturn.providers"
PACKAGE = Path(__file__).parents[2] / "examples" / "provider_plugin"

PROGRAM = """
import asyncio, json, os, sys
from everturn import Agent, ModelSettings, WebSearch, generate, tool
from everturn.errors import EverturnError
from everturn.providers.catalog import all_rows

@tool
def add(a: int, b: int) -> int:
    "Adds."
    return a + b

async def main():
    found = {"rows": [name for name in all_rows() if name.startswith("acme")]}
    for model in ("acme:any", "acme-cloud:large", "acme-own:any"):
        for stream in (True, False):
            pieces = []
            reply = await generate(model, "What is 1 + 2?", tools=[add], settings=ModelSettings(stream=stream,
                max_output_tokens=9, tool_choice="required"), on_delta=lambda delta: pieces.append(delta.text))
            again = await generate(model, ["What is 1 + 2?", reply, (reply.tool_calls[0], 3)], tools=[add],
                settings=ModelSettings(stream=stream))
            found[f"{model} {stream}"] = [reply.tool_calls[0].arguments, again.text, again.usage.total_tokens, pieces]
    for name, make in {"calls": lambda: Agent("a", model="acme-cloud:tiny", tools=[add]),
                       "name": lambda: Agent("a", model="acme-clod:tiny")}.items():
        try:
            make()
        except EverturnError as error:
            found[name] = str(error)
    await generate("acme-cloud:large", "?", tools=[WebSearch()], settings=ModelSettings(stream=False))
    print(json.dumps(found))

asyncio.run(main())
"""

CALL = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1, "b": 2}'}}


def answered(asked: Asked) -> Any:
    """Chat Completions and the package's own protocol, whole and streamed."""
    body = asked.body
    if asked.path.endswith("/talk"):
        last = body["said"][-1]
        whole: dict[str, Any] = {"says": "It is 3.", "spent": {"in": 5, "out": 2}}
        if last["who"] == "user":
            whole = {"says": "", "wants": [{"id": "c1", "name": "add", "with": {"a": 1, "b": 2}}]}
        else:
            assert last == {"who": "result", "id": "c1", "says": "3"}
        return iter([{"piece": whole["says"]}, {"whole": whole}]) if body["stream"] else whole
    calls = body["messages"][-1]["role"] == "user" and any(tool["type"] == "function" for tool in body["tools"])
    message = {"role": "assistant", "tool_calls": [CALL]} if calls else {"role": "assistant", "content": "It is 3."}
    choice = {"index": 0, "finish_reason": "stop"}
    usage = {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7}
    if body.get("stream"):
        return iter([{"id": "r", "choices": [{**choice, "delta": message}], "usage": usage}])
    return {"id": "r", "choices": [{**choice, "message": message}], "usage": usage}


def test_a_real_package_adds_a_row_a_dialect_and_a_protocol(tmp_path: Path) -> None:
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--no-build-isolation"]
    subprocess.run([*install, "--target", str(tmp_path), str(PACKAGE)], check=True, capture_output=True, timeout=120)
    with ProviderServer(answered) as server:
        urls = {f"ACME{name}_BASE_URL": server.base_url for name in ("", "_CLOUD", "_OWN")}
        environ = {**os.environ, **urls, "PYTHONPATH": str(tmp_path), "ACME_API_KEY": "acme-key-0123456789"}
        run = subprocess.run(
            [sys.executable, "-c", PROGRAM], capture_output=True, text=True, env=environ, timeout=120, check=False
        )
        bodies = server.bodies
    assert run.returncode == 0, run.stderr
    found = json.loads(run.stdout)
    assert found.pop("rows") == ["acme", "acme-cloud", "acme-own"]
    assert found.pop("calls").startswith("acme-cloud:tiny can't call tools, and was given add.")
    assert "Did you mean 'acme-cloud'?" in found.pop("name")
    for model, (arguments, text, tokens, _) in found.items():
        assert (model, arguments, text, tokens) == (model, {"a": 1, "b": 2}, "It is 3.", 7)
    cloud = next(body for body in bodies if body["model"] == "large")
    assert (cloud["max_completion_tokens"], cloud["tool_choice"]) == (9, "any")
    assert bodies[-1]["tools"] == [{"type": "acme_search"}]
    assert not list(PACKAGE.glob("*.egg-info")), "building leaves nothing behind"
    assert not list(PACKAGE.glob("build")), "building leaves nothing behind"


GOOD = Row(base_url="http://h/v1")
BROKEN = "not a row"


@pytest.fixture
def added(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[EntryPoint]]:
    """Entry points as if packages had added them."""
    points: list[EntryPoint] = []
    monkeypatch.setattr(
        "importlib.metadata.entry_points", lambda group: points if group == "everturn.providers" else []
    )
    plugins.forget_plugins()
    yield points
    monkeypatch.undo()
    plugins.forget_plugins()


def point(name: str, value: str) -> EntryPoint:
    return EntryPoint(name=name, value=f"{__name__}:{value}", group=GROUP)


def __getattr__(name: str) -> object:
    """As a package that ends the process of whoever imports it."""
    if name == "UNLICENSED":
        sys.exit("no licence")
    raise AttributeError(name)


def test_what_is_wrong_with_a_package_is_said_when_its_provider_is_used(added: list[EntryPoint]) -> None:
    added += [
        point("good", "GOOD"),
        point("broken", "BROKEN"),
        point("lost", "NOWHERE"),
        point("unlicensed", "UNLICENSED"),
    ]
    added += [point("twice", "GOOD"), point("twice", "BROKEN"), point("openai", "GOOD")]
    assert row_of("good") is GOOD
    assert row_of("openai") is not GOOD, "ours can't be taken"
    assert [name for name in all_rows() if name in {"good", "broken", "lost", "twice"}] == ["good"]
    for name, problem in {
        "broken": "not a Row",
        "lost": "can't be loaded: AttributeError",
        "unlicensed": "can't be loaded: SystemExit: no licence",
        "twice": "Several packages",
    }.items():
        with pytest.raises(InvalidModel, match=problem):
            row_of(name)
        with pytest.raises(InvalidModel):
            Agent("clerk", model=f"{name}:m")


def test_a_provider_of_a_package_has_no_abilities_and_prices_but_its_own(added: list[EntryPoint]) -> None:
    added.append(point("good", "GOOD"))
    assert abilities_of(Model("good:gpt-5")).efforts is None
    assert cost_usd(Model("good:gpt-5"), Usage(input_tokens=1000, output_tokens=10)) is None
    agent = Agent("clerk", model="good:m", tools=[WebSearch()])
    assert agent.model.provider == "good"
    with pytest.raises(InvalidTool, match="good:m has no WebSearch"):
        encode(Request(agent.model, [Message.user("?")], server_tools=agent.server_tools))
