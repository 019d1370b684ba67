"""What the README and the pages under docs/ tell people to type is there: commands, options, settings, files."""

from __future__ import annotations

import functools
import importlib.util
import itertools
import json
import re
import shlex
import sqlite3
import subprocess
import sys
import tomllib
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
import typer
import yaml

from everturn.cli import app
from everturn.exporting import write_sqlite
from everturn.settings import PREFIX, Settings
from tests.support.doc_pages import BLOCKS, PAGES, ROOT, Block

COMMANDS = typer.main.get_command(app).commands  # type: ignore[attr-defined]
OPTIONS = {option for parameter in typer.main.get_command(app).params for option in parameter.opts}
TARGETS = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.M))
EXTRAS = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"])
VARIABLES = {PREFIX + name.upper() for name in Settings.model_fields}
TEMPORAL = str(Path(sys.executable).parent / "temporal")
OTHERS = {"cat", "curl", "docker", "git", "kill", "mkdir", "openssl", "pytest", "source", "tcld"}
"""Commands that are not ours to check."""


def _words(line: str) -> list[str]:
    return shlex.split(line, comments=True)


LINES = [
    (block, line)
    for block in BLOCKS
    if block.language == "sh"
    for line in block.text.replace("\\\n", " ").splitlines()
    if _words(line)
]
SPANS = [
    (page, span.replace("\n", " "))
    for page in PAGES
    for span in re.findall(r"(?<!`)`(everturn [^`]+)`(?!`)", re.sub(r"```.*?```", "", page.read_text(), flags=re.S))
]


def check_command(words: list[str]) -> None:
    while words and (assigned := re.match(r"([A-Z_0-9]+)=", words[0])):
        check_variable(assigned[1])
        words = words[1:]
    if words:
        words = [words[0].removeprefix(".venv/bin/").replace("python3", "python"), *words[1:]]
    match words:
        case []:
            pass
        case ["everturn", option] if option.startswith("-"):
            assert option in OPTIONS
        case ["everturn", name, *rest]:
            command = COMMANDS["run" if name == "COMMAND" else name]
            known = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
            assert {word for word in rest if re.match(r"--?[a-z]", word)} <= known | {"--help"}
        case ["make", target, *_]:
            assert target in TARGETS
        case ["python", "-m", module, *_]:
            assert importlib.util.find_spec(module)
        case ["python", file, *_]:
            assert (ROOT / file).is_file()
        case ["uvicorn", app, *_]:
            module = app.partition(":")[0]
            assert any(block.text.startswith(f"# {module}.py\n") for block in BLOCKS)
        case ["pip", "install", *packages]:
            extras = [extra for package in packages for extra in re.findall(r"\[(.+)\]", package)]
            assert set(extras) <= EXTRAS
        case ["export", *assigned]:
            for one in assigned:
                check_variable(one.partition("=")[0])
        case ["temporal", *rest]:
            path = tuple(itertools.takewhile(lambda word: not word.startswith("-"), rest))
            given = {word for word in rest if re.match("--[a-z]", word)}
            assert given <= _temporal_options(path)
            assert _required_by_temporal(path) <= given
        case [name, *_]:
            assert name in OTHERS


def check_variable(name: str) -> None:
    assert name in VARIABLES or not name.startswith(PREFIX), f"no setting is called {name}"


@functools.cache
def _temporal_options(path: tuple[str, ...]) -> set[str]:
    """What Temporal's own command says it takes."""
    everywhere = subprocess.run([TEMPORAL, "options"], capture_output=True, text=True, check=True)
    return set(re.findall(r"--[a-z-]+", _temporal_help(path) + everywhere.stdout + everywhere.stderr))


@functools.cache
def _temporal_help(path: tuple[str, ...]) -> str:
    help_text = subprocess.run([TEMPORAL, *path, "--help"], capture_output=True, text=True, check=True).stdout
    assert f"temporal {' '.join(path)} [" in help_text
    return help_text


def _required_by_temporal(path: tuple[str, ...]) -> set[str]:
    """The options without which the command only prints its help: their description ends so."""
    options = re.split(r"\n +(?=(?:-\w, )?--[a-z])", _temporal_help(path).partition("\nFlags:")[2])
    return {re.search("--[a-z-]+", option)[0] for option in options if " ".join(option.split()).endswith("Required.")}  # type: ignore[index]


@pytest.mark.parametrize(("block", "line"), LINES, ids=lambda value: value if isinstance(value, str) else "")
def test_a_command_exists_with_its_options(block: Block, line: str) -> None:
    words = _words(line)
    check_command(words[: words.index(">")] if ">" in words else words)


@pytest.mark.parametrize(("page", "span"), SPANS, ids=lambda value: value if isinstance(value, str) else "")
def test_a_command_in_the_text_exists_with_its_options(page: Path, span: str) -> None:
    check_command(_words(re.sub(r"\[.*?\]|\.\.\.", "", span)))


def _check_typescript(text: str, loader: str = "ts") -> None:
    """With the compiler of the tests' own worker, if that is built."""
    compiler = ROOT / "tests" / "typescript" / "node_modules" / ".bin" / "esbuild"
    if compiler.exists():
        subprocess.run(
            [compiler, f"--loader={loader}", "--format=esm"], input=text, text=True, check=True, capture_output=True
        )


def test_other_blocks_are_what_they_say(tmp_path: Path) -> None:
    write_sqlite(tmp_path / "empty.db", [])
    with closing(sqlite3.connect(tmp_path / "empty.db")) as exported:
        read: dict[str, Callable[[str], object]] = {
            "json": json.loads,
            "toml": tomllib.loads,
            "yaml": yaml.safe_load,
            "sql": exported.execute,
            "typescript": _check_typescript,
            "tsx": functools.partial(_check_typescript, loader="tsx"),
        }
        for block in BLOCKS:
            if block.language not in {"python", "sh", "text", "py"}:
                assert block.language in read, f"{block.page}:{block.line}"
                read[block.language](block.text)


def test_every_command_has_its_line_in_the_reference() -> None:
    written = (ROOT / "docs/reference/cli.md").read_text()
    assert [name for name in COMMANDS if f"`everturn {name}" not in written] == []
