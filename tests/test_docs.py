"""The README and the pages under docs/: their Python runs, their commands exist, their links lead somewhere."""

from __future__ import annotations

import ast
import asyncio
import functools
import importlib.util
import inspect
import itertools
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import tomllib
import traceback
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

import everturn
from benchmarks import peers
from everturn import errors, events, names
from everturn.cli import app
from everturn.devserver import DevServer
from everturn.providers.catalog import PROVIDERS, address_variable
from everturn.settings import PREFIX, Settings
from everturn.testing import ScriptedModel, call
from tests.readers import READERS

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
ARGUMENTS = {
    "get_weather": {"city": "Paris"},
    "look_up": {"order_id": "81"},
    "refund": {"order_id": "81", "cents": 3490},
}
"""What the model of these tests calls its tools with, each once, in this order."""


@dataclass(frozen=True)
class Block:
    page: Path
    line: int
    language: str
    text: str
    peer: str
    """The package that it runs with, where a comment `<!-- runs with: ... -->` before it says so."""


def _blocks(page: Path) -> Iterator[Block]:
    lines = page.read_text().splitlines()
    number = 0
    while number < len(lines):
        if opened := re.fullmatch(r"```(\w*)", lines[number]):
            end = lines.index("```", number + 1)
            before = next((line for line in reversed(lines[:number]) if line.strip()), "")
            marked = re.fullmatch(r"<!-- runs with: (.+) -->", before)
            text = "\n".join(lines[number + 1 : end]) + "\n"
            yield Block(page, number + 2, opened[1], text, marked[1] if marked else "")
            number = end
        number += 1


BLOCKS = [block for page in PAGES for block in _blocks(page)]
WITH_PYTHON = [page for page in PAGES if any(b.page == page and b.language == "python" for b in BLOCKS)]


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


# ---------------------------------------------------------------- Python


def replies(messages: list[dict[str, Any]], body: dict[str, Any]) -> Any:
    offered = {one["function"]["name"] for one in body.get("tools", ())}
    called = {one["function"]["name"] for message in messages for one in message.get("tool_calls") or ()}
    for name, arguments in ARGUMENTS.items():
        if name in offered - called:
            return call(name, {**arguments})
    return "It is 21 degrees in Paris."


@pytest.fixture(scope="module")
def ran(request: pytest.FixtureRequest, server: DevServer, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What went wrong with each page that is asked for, or an empty text."""
    asked = [item.callspec.params["page"] for item in request.session.items if "ran" in item.fixturenames]
    with ScriptedModel(replies) as model:
        environment = {
            **{name: value for name, value in os.environ.items() if not name.endswith("_API_KEY")},
            "TEMPORAL_ADDRESS": server.address,
            "MODEL": "scripted:docs",
            "SCRIPTED_BASE_URL": model.base_url,
            "PYTHONPATH": str(ROOT),
        }
        # A process of its own, as a reader's program or a notebook.
        finished = subprocess.run(
            [sys.executable, __file__, *map(str, asked)],
            check=True,
            env=environment,
            cwd=tmp_path_factory.mktemp("pages"),
            stdout=subprocess.PIPE,
            text=True,
            timeout=100,
        )
    told: dict[str, str] = json.loads(finished.stdout)
    return told


@pytest.mark.parametrize("page", WITH_PYTHON, ids=name_of)
def test_the_python_of_a_page_runs_from_top_to_bottom(page: Path, ran: dict[str, str]) -> None:
    assert ran[str(page)] == ""


def run_pages(pages: list[str]) -> dict[str, str]:
    """Each in a fork of this process: they share its imports, and nothing else."""
    told = {}
    for page in pages:
        with tempfile.TemporaryFile("w+") as output:
            if not (child := os.fork()):
                os.dup2(output.fileno(), 1)
                os.dup2(output.fileno(), 2)
                os.environ["EVERTURN_TASK_QUEUE"] = f"docs-{Path(page).stem}"
                status = 1
                try:
                    run(Path(page))
                    status = 0
                except BaseException:  # noqa: BLE001 - the parent tells
                    traceback.print_exc()
                finally:
                    sys.stdout.flush()
                    os._exit(status)
            _, status = os.waitpid(child, 0)
            output.seek(0)
            told[page] = output.read() or f"status {status}" if status else ""
    return told


def run(page: Path) -> None:
    """Runs the blocks one after the other, in one namespace; `await` may stand outside of functions. Then somebody uses
    what they make, where they make a program."""
    # A module, for what looks its types up by name.
    module = sys.modules["__main__"] = types.ModuleType("__main__")
    with asyncio.Runner() as runner:
        for block in _blocks(page):
            if block.language != "python" or block.peer:
                continue
            # Padded, so that a traceback has the line of the page.
            source = "\n" * (block.line - 1) + block.text
            code = compile(source, str(page), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
            if code.co_flags & inspect.CO_COROUTINE:
                runner.run(eval(code, vars(module)))
            else:
                exec(code, vars(module))
        if page.stem in READERS:
            runner.run(READERS[page.stem](vars(module)))


@pytest.mark.parametrize("block", [block for block in BLOCKS if block.peer], ids=lambda block: block.peer)
def test_a_peers_program_runs_with_the_peer(
    block: Block, server: DevServer, scripted: Callable[..., ScriptedModel], tmp_path: Path
) -> None:
    assert f"\n{block.peer}==" in peers.WANTED.read_text()
    compile(block.text, str(block.page), "exec")
    if not os.environ.get("PEERS"):
        pytest.skip("only with PEERS=1: `make bench` installs them, and they are slow to start")
    script = [call(name, ARGUMENTS[name]) for name in ("look_up", "refund")]
    program = tmp_path / "before.py"
    program.write_text(block.text)
    environment = {
        "PATH": os.environ["PATH"],
        "TEMPORAL_ADDRESS": server.address,
        "OPENAI_BASE_URL": scripted([*script, "Done."]).base_url,
        "OPENAI_API_KEY": "none",
        "OPENAI_AGENTS_DISABLE_TRACING": "1",
    }
    ran = subprocess.run(
        [peers.PYTHON, str(program)], check=False, env=environment, capture_output=True, text=True, timeout=60
    )
    assert (ran.returncode, ran.stdout) == (0, "Done.\n"), ran.stderr


@pytest.mark.parametrize("example", ["hello", "clerk"])
def test_the_readme_shows_the_examples_as_they_are(example: str) -> None:
    source = (ROOT / "examples" / f"{example}.py").read_text()
    without_docstring = source.split('"""', 2)[2].lstrip()
    shown = f"# examples/{example}.py\n{without_docstring}"
    assert shown in [block.text for block in BLOCKS if block.page.name == "README.md"]


# ---------------------------------------------------------------- commands

COMMANDS = typer.main.get_command(app).commands  # type: ignore[attr-defined]
TARGETS = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.M))
EXTRAS = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"])
VARIABLES = {PREFIX + name.upper() for name in Settings.model_fields}
OTHERS = {"cat", "curl", "docker", "git", "kill", "mkdir", "source"}
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
    match words:
        case []:
            pass
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
            assert {word for word in rest if re.match("--[a-z]", word)} <= _temporal_options(path)
        case [name, *_]:
            assert name in OTHERS


def check_variable(name: str) -> None:
    assert name in VARIABLES or not name.startswith(PREFIX), f"no setting is called {name}"


@functools.cache
def _temporal_options(path: tuple[str, ...]) -> set[str]:
    """What Temporal's own command says it takes."""
    program = str(Path(sys.executable).parent / "temporal")
    shown = subprocess.run([program, *path, "--help"], capture_output=True, text=True, check=True).stdout
    assert f"temporal {' '.join(path)} [" in shown
    return set(re.findall(r"--[a-z-]+", shown))


@pytest.mark.parametrize(("block", "line"), LINES, ids=lambda value: value if isinstance(value, str) else "")
def test_a_command_exists_with_its_options(block: Block, line: str) -> None:
    check_command(_words(line.partition(" > ")[0]))


@pytest.mark.parametrize(("page", "span"), SPANS, ids=lambda value: value if isinstance(value, str) else "")
def test_a_command_in_the_text_exists_with_its_options(page: Path, span: str) -> None:
    check_command(_words(re.sub(r"\[.*?\]|\.\.\.", "", span)))


def test_other_blocks_are_what_they_say() -> None:
    read = {"json": json.loads, "yaml": yaml.safe_load}
    for block in BLOCKS:
        if block.language in read:
            read[block.language](block.text)
        else:
            assert block.language in {"python", "sh", "text", "py"}, f"{block.page}:{block.line}"


def test_every_command_has_its_line_in_the_reference() -> None:
    written = (ROOT / "docs/reference/cli.md").read_text()
    assert [name for name in COMMANDS if f"`everturn {name}" not in written] == []


# ---------------------------------------------------------------- links and pictures


def _slug(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


LINKS = [
    (page, target)
    for page in PAGES
    for target in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"```.*?```", "", page.read_text(), flags=re.S))
    if not target.startswith(("http://", "https://"))
]


@pytest.mark.parametrize(
    ("page", "target"), LINKS, ids=lambda value: name_of(value) if isinstance(value, Path) else value
)
def test_a_link_leads_somewhere(page: Path, target: str) -> None:
    path, _, anchor = target.partition("#")
    file = page.parent / path if path else page
    assert file.exists()
    if anchor:
        assert anchor in map(_slug, re.findall(r"^#+ (.+)$", file.read_text(), re.M))


def test_every_picture_is_shown_and_is_one() -> None:
    pictures = sorted((ROOT / "docs/pictures").glob("*.png"))
    shown = {(page.parent / target).resolve() for page, target in LINKS}
    assert [path for path in pictures if path not in shown or not path.read_bytes().startswith(b"\x89PNG")] == []
    assert pictures


def test_every_page_is_reachable_from_the_readme() -> None:
    reached, todo = set(), [ROOT / "README.md"]
    while todo:
        page = todo.pop()
        if page not in reached:
            reached.add(page)
            targets = [(one.parent / target.partition("#")[0]).resolve() for one, target in LINKS if one == page]
            todo += [target for target in targets if target.suffix == ".md" and target in PAGES]
            todo += [one for target in targets if target.is_dir() for one in PAGES if one.parent == target]
    assert [name_of(page) for page in PAGES if page not in reached | {ROOT / "docs/index.md"}] == []


# ---------------------------------------------------------------- what a reference has to name


def test_the_reference_is_what_the_docstrings_say() -> None:
    spec = importlib.util.spec_from_file_location("make_reference", ROOT / "docs/make_reference.py")
    assert spec
    assert spec.loader
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    behind = [name_of(page) for page in made.PAGES if made.written(page.read_text()) != page.read_text()]
    assert behind == [], "run: python docs/make_reference.py"


def test_the_reference_describes_every_public_name() -> None:
    page = (ROOT / "docs/reference/python.md").read_text()
    assert [name for name in everturn.__all__ if f"\n### {name}\n" not in page] == []


def _wanted() -> list[tuple[str, str]]:
    kinds = [one for one in vars(errors).values() if isinstance(one, type) and issubclass(one, errors.EverturnError)]
    wire = [value for name, value in vars(names).items() if name.isupper() and isinstance(value, str)]
    wanted = {
        "README.md": [f"`{provider}:`" for provider in PROVIDERS],
        "docs/reference/settings.md": [
            *(PREFIX + name.upper() for name in Settings.model_fields),
            *(key for row in PROVIDERS.values() for key in row.keys),
            *(address_variable(provider) for provider in PROVIDERS),
        ],
        "docs/reference/errors.md": [kind.__name__ for kind in kinds],
        "docs/reference/wire.md": [name for name in wire if name != names.REMINDER],
        "docs/reference/python.md": [
            *everturn.__all__,
            *(kind.model_fields["kind"].default for kind in vars(events).values() if _is_event(kind)),
        ],
    }
    return [(page, name) for page, needed in wanted.items() for name in needed]


def _is_event(kind: object) -> bool:
    return isinstance(kind, type) and issubclass(kind, events._Event) and "kind" in kind.model_fields


@pytest.mark.parametrize(("page", "name"), _wanted())
def test_a_reference_names_everything(page: str, name: str) -> None:
    assert name in (ROOT / page).read_text()


if __name__ == "__main__":
    print(json.dumps(run_pages(sys.argv[1:])))
