"""Tools and agents from Python files."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from everturn.errors import InvalidFile
from everturn.loading import load_agents, load_tools


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Each test works in a folder of its own, and leaves no modules behind."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if getattr(sys.modules[name], "__file__", None) and str(tmp_path) in str(sys.modules[name].__file__):
            del sys.modules[name]


def write(name: str, text: str) -> str:
    Path(name).parent.mkdir(exist_ok=True)
    Path(name).write_text(textwrap.dedent(text), encoding="utf-8")
    return name


def names(path: str) -> list[str]:
    return [load_tool.name for load_tool in load_tools(path)]


def refusal_of(path: str) -> str:
    with pytest.raises(InvalidFile) as caught:
        load_tools(path)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_every_public_function_of_a_file_is_a_tool_in_order() -> None:
    write("helper.py", "def imported(a: str) -> str: ...")
    path = write(
        "shop.py",
        """
        from __future__ import annotations
        import functools
        import json
        from json import dumps
        from dataclasses import dataclass
        from helper import imported
        from everturn.tools.tool import tool

        @dataclass
        class Order:
            id: str
            parts: list[Order]

        def zebra(order: Order) -> str:
            "Z."

        @tool(name="apple", effect="once")
        async def other() -> str: ...

        async def middle(a: int) -> str: ...

        also = middle
        short = lambda a: a
        send = tool(functools.partial(imported, a="b"), name="send")

        def _helper() -> None: ...

        _hidden = tool(_helper, name="hidden")
        """,
    )
    tools = load_tools(path)
    assert [tool.name for tool in tools] == ["zebra", "apple", "middle", "send"]
    assert tools[0].check({"order": {"id": "1", "parts": []}})["order"].id == "1"
    assert tools[1].effect == "once"


def test_tools_of_another_file_are_not_this_files() -> None:
    write("first.py", "from everturn.tools.tool import tool\n@tool\ndef a() -> str: ...")
    assert names(write("second.py", "from first import a\ndef b() -> str: ...")) == ["b"]


def test_two_files_of_one_name_do_not_meet() -> None:
    assert names(write("one/tools.py", "def a() -> str: ...")) == ["a"]
    assert names(write("two/tools.py", "def b() -> str: ...")) == ["b"]


def test_a_file_is_run_once() -> None:
    path = write("once.py", "def a() -> str: ...")
    assert load_tools(path)[0].function is load_tools(Path(path).resolve())[0].function


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x = 1\ndef f(:\n", "shop.py, line 2: SyntaxError: "),
        ("def f():\nreturn 1\n", "shop.py, line 2: IndentationError: "),
        ("x = 1\ny = 1 / 0\n", "shop.py, line 2: ZeroDivisionError: division by zero."),
        ("def g():\n    raise ValueError('a\\nb')\n\ng()\n", "shop.py, line 2: ValueError: a b."),
        ("import not_there_at_all\n", "line 1: ModuleNotFoundError: No module named 'not_there_at_all'. Install what"),
        ("import sys\nsys.exit(3)\n", "line 2: SystemExit: 3. Put the code that runs the program under `if __name__"),
        ("x = 1\n", "shop.py has no public function. Define one with `def`"),
        ("def _f(): ...\n", "has no public function"),
        ("\n\ndef f(*args): ...\n", "shop.py, line 3: Tool 'f'"),
        ("def f(*args): ...\n", "Name the parameters. Or start its name with _"),
        (
            "from everturn.tools.tool import tool\n@tool(effect='x')\ndef f(): ...\n",
            "shop.py, line 2: Tool 'f' has effect=",
        ),
        ("x = 1\0\n", "null bytes"),
    ],
)
def test_a_file_that_does_not_load_is_refused_by_line(text: str, said: str) -> None:
    path = write("shop.py", "")
    Path(path).write_text(text, encoding="utf-8")
    assert said in refusal_of(path)


def test_a_file_that_failed_is_tried_again() -> None:
    refusal_of(write("shop.py", "1 / 0"))
    assert names(write("shop.py", "def mended() -> str: ...")) == ["mended"]


def test_a_syntax_error_in_an_imported_file_is_told_there() -> None:
    write("helper.py", "\ndef f(:\n")
    assert "helper.py, line 2, imported by shop.py: SyntaxError" in refusal_of(write("shop.py", "import helper\n"))


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("missing.py", "There is no file missing.py. Check the path: everturn looked for /"),
        ("notes.txt", "notes.txt is not a Python file. Give the path of a file that ends in .py."),
        ("folder", "folder is not a Python file."),
    ],
)
def test_what_is_no_python_file_is_refused(path: str, said: str) -> None:
    Path("folder").mkdir()
    Path("notes.txt").touch()
    assert said in refusal_of(path)


TWO_AGENTS = """
    from everturn.agent import Agent
    clerk = Agent("clerk", model="scripted:demo")
    cook = Agent("cook", model="scripted:demo")
    same = clerk
    number = 3
    """


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("kitchen:clerk", ["clerk"]),
        ("kitchen.py", ["clerk", "cook"]),
        ("./kitchen.py:cook", ["cook"]),
        ("kitchen:clerk, kitchen.py:cook", ["clerk", "cook"]),
        ("pack.kitchen:cook", ["cook"]),
    ],
)
def test_agents_are_found_by_module_or_by_path(spec: str, expected: list[str]) -> None:
    write("kitchen.py", TWO_AGENTS)
    write("pack/kitchen.py", TWO_AGENTS)
    assert [load_agent.name for load_agent in load_agents(spec)] == expected


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("", "No agents are given. Write module:agent"),
        ("kitchen", "'kitchen' does not name an agent. Write module:agent, path.py or path.py:agent."),
        ("kitchen:", "does not name an agent"),
        ("kitchen:clark", "kitchen has no 'clark'. Did you mean 'clerk'?"),
        ("kitchen.py:zzz", "kitchen.py has no 'zzz'. It has clerk, cook."),
        ("kitchen:number", "'number' in kitchen is of type int, not an Agent. It has clerk, cook."),
        ("empty:clerk", "empty has no 'clerk'. Write clerk = Agent('clerk', model=...) there."),
        ("empty.py", "empty.py has no Agent. Write one"),
        ("nowhere:clerk", "There is no module 'nowhere'. Run from the folder that holds it"),
        ("nowhere.py", "There is no file nowhere.py."),
        (
            "wanting:clerk",
            "wanting.py, line 1: ModuleNotFoundError: No module named 'not_there_at_all'. Install what provides",
        ),
        ("broken:clerk", "broken.py, line 2: ZeroDivisionError: division by zero."),
        ("badly:clerk", "badly.py, line 1: 'gpt' is not a model. Write provider:name"),
        ("typo:clerk", "typo.py, line 1: SyntaxError"),
        ("..kitchen:clerk", "..kitchen"),
    ],
)
def test_what_names_no_agent_is_refused_with_a_cure(spec: str, said: str) -> None:
    write("kitchen.py", TWO_AGENTS)
    write("empty.py", "")
    write("wanting.py", "import not_there_at_all")
    write("broken.py", "\n1 / 0")
    write("badly.py", "from everturn.agent import Agent; clerk = Agent('clerk', model='gpt')")
    write("typo.py", "def f(:")
    with pytest.raises(InvalidFile) as caught:
        load_agents(spec)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_two_agents_of_one_name_are_refused_with_their_files() -> None:
    for file in ("a.py", "b.py"):
        write(file, "from everturn import Agent\n\nclerk = Agent('clerk', model='scripted:x')\n")
    write("both.py", "from everturn import Agent\n\na, b = (Agent('clerk', model='scripted:x') for _ in 'ab')\n")
    with pytest.raises(InvalidFile, match=r"Two agents are called 'clerk', in a\.py and in b\.py\."):
        load_agents("a.py,b.py")
    with pytest.raises(InvalidFile, match=r"Two agents are called 'clerk', both in both\.py\."):
        load_agents("both.py")
    assert len(load_agents("a.py,a.py:clerk")) == 2  # one and the same
