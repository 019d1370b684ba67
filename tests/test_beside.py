"""The programs of examples/beside, each against a scripted model; and the page that puts others' beside them."""

from __future__ import annotations

import importlib.util
import inspect
import json
import os
import re
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import ModuleType
from typing import Any
from uuid import uuid4

import mcp.client.stdio  # noqa: F401 - what it takes for a server's errors is the sys.stderr of its import: not one test's
import pytest

from everturn.devserver import DevServer
from everturn.testing import ScriptedModel, call
from tests.support.ports import free_port, listens
from tests.support.waiting import until

ROOT = Path(__file__).parents[1]
PROGRAMS = ROOT / "examples" / "beside"
PAGE = ROOT / "docs" / "howto" / "programs-side-by-side.md"

NO_PROGRAM = {"mcp_server"}
"""What the others start."""


def translator(messages: list[dict[str, Any]], body: dict[str, Any]) -> Any:
    if "translate the user's message" in str(messages[0]["content"]):
        return "Hola, ¿cómo estás?"
    if messages[-1]["role"] == "tool":
        return messages[-1]["content"]
    return call("translate_to_spanish", {"message": "Hello, how are you?"})


def flight_or_seat(messages: list[dict[str, Any]], body: dict[str, Any]) -> Any:
    question = str([message["content"] for message in messages if message["role"] == "user"][-1])
    if "Lisbon" in question:
        if messages[-1]["role"] == "tool":
            return f'{{"result": {messages[-1]["content"]}}}'
        return call("flight_search", {"origin": "Berlin", "destination": "Lisbon"})
    return '{"result": {"row": 1, "seat": "A"}}' if "window" in question else '{"result": {"reason": "from where?"}}'


def strict_judge(messages: list[dict[str, Any]], body: dict[str, Any]) -> Any:
    judges = "You are a guardrail" in str(messages[0]["content"])
    return '{"allowed": false, "reason": "math"}' if judges else "x = 4"


def handing_on(messages: list[dict[str, Any]], body: dict[str, Any]) -> Any:
    offered = {(one.get("function") or one)["name"] for one in body.get("tools", ())}
    return (
        call("escalate_refund", {"message": "wants it back"}) if "escalate_refund" in offered else "It is on its way."
    )


def typed_translator(messages: list[dict[str, Any]], body: dict[str, Any]) -> Any:
    given = {"text": "Hello", "source": "English", "target": "Spanish"}
    if messages[-1]["role"] == "tool":
        return messages[-1]["content"]
    return "Hola" if messages[-1]["content"] == json.dumps(given) else call("translate_text", given)


def escalated(messages: list[dict[str, Any]], body: dict[str, Any]) -> Any:
    handed = '{"reason": "waits for weeks"}' in str(messages[-1]["content"])
    return "I am sorry." if handed else call("transfer_to_escalation", {"reason": "waits for weeks"})


SAID: dict[str, tuple[Any, list[str]]] = {
    "instructions_from_deps": (["A joke."], ["A joke."]),
    "deps_everywhere": (
        [call("get_joke_material", {"subject": "cars"}), '{"text": "bad"}', '{"text": "A joke."}'],
        ["text='A joke.'"],
    ),
    "deps_in_tests": (["A joke."], ["A joke.", "test prompt"]),
    "users_name": ([call("fetch_user_age"), "John is 47."], ["John is 47."]),
    "call_of_a_tool": ([call("get_weather", {"city": "Paris"}), "Sunny."], ["try 1: city=Paris", "Sunny."]),
    "run_metadata": (["Paris."], ["Paris. 1"]),
    "log_requests": (["Hi."], ["turn 1: 1 messages", "Hi."]),
    "log_the_run": (
        ["A quine prints itself."],
        ["Asking for assistant", "assistant produced 1 parts", "assistant finished: completed"],
    ),
    "audit_a_tool": ([call("send_email", {"to": "test@example.com"}), "Sent."], ["['audit: send_email']"]),
    "slow_hook": ([], ["slow_hook"]),
    "around_the_model": (["Hi."], ["['before', 'after']"]),
    "no_placeholders": (['{"result": "PLACEHOLDER"}', '{"result": "Real."}'], ["Real."]),
    "upstream_errors": ([call("get_document", {"doc_id": 42}), "It is not there."], ["It is not there."]),
    "last_messages_only": (["One.", "Two.", "Three.", "Four."], ["Four.", "8 messages in the transcript"]),
    "events_of_a_run": (
        [call("how_many_jokes"), "Three jokes."],
        ["-- Tool was called: how_many_jokes", "-- Tool output: 3", "-- Message output: Three jokes."],
    ),
    "text_as_it_is_written": (["Five jokes, one after the other."], ["Five jokes, one after the other."]),
    "secrets_in_tools": (
        [
            [call("classify_text", {"text": "sk-1"}), call("classify_text", {"text": "what is the key?"})],
            call("classify_text", {"text": "hello"}),
            "Done.",
        ],
        ["Remove secrets before calling this tool.", "Output contained sensitive data.", "length:5"],
    ),
    "translators": (translator, ["Hola, ¿cómo estás?", "tokens in"]),
    "tools_for_some": (["Hola"], ["Hola", "['respond_spanish']"]),
    "flight_and_seat": (flight_or_seat, ["flight_number='AK456' - row=1 seat='A'"]),
    "math_homework": (strict_judge, ["I don't do math homework."]),
    "math_in_the_answer": (strict_judge, ["I'd rather not calculate."]),
    "typed_translation": (
        typed_translator,
        ["text='Hello' source='English' target='Spanish'", "Hola"],
    ),
    "escalation": (
        escalated,
        ["Escalation agent called with reason: waits for weeks", "I am sorry."],
    ),
    "triage": (handing_on, ["triage handed it on to refunds", "It is on its way."]),
    "weather_in_oakland": (
        [call("get_temperature", {"city": "Oakland"}), "20 degrees."],
        ["Approve get_temperature with {'city': 'Oakland'}?", "20 degrees."],
    ),
    "denied_in_words": (
        [call("publish", {"title": "News"}), "I did not publish it."],
        ["The reviewer wants another title.", "I did not publish it."],
    ),
    "decided_by_code": (
        [
            [
                call("delete_file", {"path": "x"}),
                call("update_file", {"path": "README.md", "content": "Hello"}),
                call("update_file", {"path": ".env", "content": ""}),
                call("send_to_worker", {"task": "all"}),
            ],
            "Done.",
        ],
        [
            "Deleting files is not allowed",
            "File 'README.md' updated: 'Hello'",
            "File '.env' updated: ''",
            "(external result for send_to_worker)",
        ],
    ),
    "approved_for_always": (
        [[call("delete_file", {"path": "/tmp/a"}), call("delete_file", {"path": "/etc/passwd"})], "Done."],
        ["Done.", "File '/tmp/a' deleted", "not there"],
    ),
    "run_elsewhere": ([call("get_preferred_language", {"country": "Mexico"}), "¡Hola!"], ["¡Hola!"]),
    "dice_game": ([[call("roll_dice"), call("get_player_name")], "You win, Anne."], ["You win, Anne."]),
    "schema_of_a_tool": ([], ["fetch_weather - Fetch the weather for a given location.", "fetch_data", '"lat"']),
    "error_in_a_tool": (
        [call("get_user_profile", {"user_id": "user_7"}), "Try later."],
        ["Could not retrieve profile for user_id: user_7", "Try later."],
    ),
    "first_result_is_the_answer": (
        [call("get_weather", {"city": "Paris"})],
        ["Final weather: The weather in Paris is sunny"],
    ),
    "city_of_the_olympics": (
        ['{"city": "London", "country": "United Kingdom"}'],
        ["CityLocation(city='London', country='United Kingdom')"],
    ),
    "box_or_text": (
        [
            '{"result": "Please provide the units."}',
            '{"result": {"width": 10, "height": 20, "depth": 30, "units": "cm"}}',
        ],
        ["'Please provide the units.'", "Box(width=10, height=20, depth=30, units='cm')"],
    ),
    "checked_sql": (
        [
            '{"result": {"sql_query": "SELECT * FROM users"}}',
            '{"result": {"sql_query": "SELECT last_active FROM users"}}',
        ],
        ["sql_query='SELECT last_active FROM users' - 2 turns"],
    ),
    "go_on_by_id": (["San Francisco.", "California."], ["San Francisco.", "California."]),
    "mcp_over_stdio": ([call("calc_add", {"a": 7, "b": 5}), "12."], ["12."]),
    "mcp_over_http": ([call("add", {"a": 7, "b": 22}), "29."], ["29."]),
    "mcp_with_meta": ([call("echo_meta"), "You are acme."], ['"tenant_id"', "acme"]),
    "mcp_for_some": (["Hello."], ["['add', 'book_table', 'delete_file', 'echo_meta']"]),
    "mcp_that_asks": (
        [call("book_table"), "Booked."],
        ["Please provide your booking details:", "Booked table for 2 at Nonna on 24-12-2026"],
    ),
    "serve_over_mcp": (["Socks, in a box."], ["Socks, in a box."]),
}
"""What the model says in each program, and what has to be among its output."""


class Jokes(BaseHTTPRequestHandler):
    """What the programs fetch from."""

    def do_GET(self) -> None:
        self._say(200, "Tell jokes.")

    def do_POST(self) -> None:
        self._say(400 if self.path.endswith("bad") else 200, "not funny")

    def _say(self, status: int, text: str) -> None:
        self.send_response(status)
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        pass


@pytest.fixture(scope="module")
def jokes() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Jokes)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.fixture
def mcp_over_http() -> Iterator[str]:
    """The programs' MCP server, over HTTP."""
    import subprocess

    port = free_port()
    serve = f"import mcp_server; mcp_server.server.run('streamable-http', port={port})"
    process = subprocess.Popen([sys.executable, "-c", serve], cwd=PROGRAMS, stderr=subprocess.DEVNULL)
    try:
        until(lambda: listens(port))
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.kill()
        process.wait()


def loaded(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"beside_{name}", PROGRAMS / f"{name}.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", sorted(SAID))
async def test_a_program_says_what_it_is_to_say(
    name: str,
    server: DevServer,
    scripted: Callable[..., ScriptedModel],
    jokes: str,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    script, lines = SAID[name]
    model = scripted(script, order="arrival") if isinstance(script, list) else scripted(script)
    settings = {
        "TEMPORAL_ADDRESS": server.address,
        "EVERTURN_TASK_QUEUE": f"beside-{uuid4().hex[:8]}",
        "MODEL": "scripted:beside",
        "SCRIPTED_BASE_URL": model.base_url,
        "JOKES_URL": jokes,
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
    }
    if name == "mcp_over_http":
        settings |= {"MCP_URL": request.getfixturevalue("mcp_over_http"), "MCP_SERVER_TOKEN": "secret"}
    for variable, value in settings.items():
        monkeypatch.setenv(variable, value)
    module = loaded(name)
    done = module.main()
    if inspect.isawaitable(done):
        await done
    shown = capfd.readouterr().out
    for line in lines:
        assert line in shown, shown
    if isinstance(script, list):
        assert len(model.requests) == len(script)


ROW = re.compile(r"^\| .*\[(\w+)\.py\]\(\.\./\.\./examples/beside/(\w+)\.py\), (\d+) \|", re.MULTILINE)


def test_the_page_has_each_program_with_its_lines() -> None:
    rows = ROW.findall(PAGE.read_text())
    programs = {file.stem for file in PROGRAMS.glob("*.py")}
    assert programs == SAID.keys() | NO_PROGRAM, "each is run"
    assert {shown for shown, _, _ in rows} == SAID.keys()
    for shown, linked, lines in rows:
        assert (shown, int(lines)) == (linked, lines_of(PROGRAMS / f"{linked}.py"))


def lines_of(program: Path) -> int:
    """As those of others are counted on the page: neither empty ones nor those of the first docstring."""
    _, _, text = program.read_text().partition('"""\n')
    return len([line for line in text.splitlines() if line.strip()])
