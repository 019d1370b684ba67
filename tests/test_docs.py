"""The README and the pages under docs/: their Python runs, their links lead somewhere, their references
name everything."""

from __future__ import annotations

import ast
import asyncio
import faulthandler
import gc
import importlib
import importlib.util
import inspect
import json
import os
import re
import subprocess
import sys
import tempfile
import traceback
import types
from collections.abc import Callable, Iterator
from importlib.metadata import metadata
from pathlib import Path
from typing import IO, Any, NoReturn
from xml.etree import ElementTree

import pytest

import everturn
from benchmarks import peers
from everturn import errors, events, names
from everturn.devserver import DevServer
from everturn.providers.catalog import PROVIDERS, address_variable
from everturn.settings import PREFIX, Settings
from everturn.testing import ScriptedModel, call
from tests.support.doc_pages import BLOCKS, PAGES, ROOT, Block, blocks_of, name_of
from tests.support.doc_readers import READERS
from tests.support.waiting import until

ARGUMENTS = {
    "get_weather": {"city": "Paris"},
    "look_up": {"order_id": "81"},
    "refund": {"order_id": "81", "cents": 3490},
    "bash": {"command": "ls"},
    "ask_user": {"question": "Which lamp?", "choices": ["the red one", "the blue one"]},
    "researcher": {"message": "What is order 81?"},
    "transfer_to_billing": {"message": "They want their money back."},
}
"""What the model of these tests calls its tools with, each once, in this order."""

FIELDS = {"order_id": "81", "broken": True, "wants": "refund"}
"""What it fills the fields of an output type with."""

LONGEST_PAGE_SECONDS = 200

AT_ONCE = 3

BESIDE = [ROOT / "README.md"]

WITH_PYTHON = [page for page in PAGES if any(b.page == page and b.language == "python" for b in BLOCKS)]


# ---------------------------------------------------------------- Python


def replies(messages: list[dict[str, Any]], body: dict[str, Any]) -> Any:
    offered = {(one.get("function") or one)["name"] for one in body.get("tools", ())}
    called = {one["function"]["name"] for message in messages for one in message.get("tool_calls") or ()}
    for name, arguments in ARGUMENTS.items():
        if name in offered - called:
            return call(name, {**arguments})
    if wanted := body.get("response_format"):
        return json.dumps({name: FIELDS[name] for name in wanted["json_schema"]["schema"]["properties"]})
    return "It is 21 degrees in Paris."


OTHERS = """
from everturn import Agent

bookkeeper = Agent("bookkeeper", model="scripted:docs")
"""


@pytest.fixture(scope="module")
def beside(server: DevServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What readers have in another terminal: an `everturn up` that hosts another agent on the same queue. One page has
    it on its queue: what is handed back between the two workers takes seconds on each."""
    folder = tmp_path_factory.mktemp("up")
    (folder / "others.py").write_text(OTHERS)
    command = [sys.executable, "-m", "everturn", "up", "--agents", "others.py"]
    environment = {**os.environ, "TEMPORAL_ADDRESS": server.address, "PYTHONUNBUFFERED": "1"}
    log = folder / "log"
    with log.open("w") as stderr, subprocess.Popen(command, cwd=folder, env=environment, stderr=stderr) as up:
        until(lambda: up.poll() is not None or "worker.started" in log.read_text())
        assert up.poll() is None, log.read_text()
        yield
        up.terminate()
    assert "Traceback" not in log.read_text()


def nexus_endpoints_of(page: Path) -> Iterator[str]:
    """The page's commands that make endpoints, which its Python needs."""
    start = "temporal operator nexus endpoint create "
    for block in blocks_of(page):
        if block.language == "sh":
            yield from (line for line in block.text.splitlines() if line.startswith(start))


endpoints_made: set[str] = set()
"""By these commands, on the server of this process: xdist may come back to this file after another one."""


@pytest.fixture(scope="module")
def ran(
    beside: None, request: pytest.FixtureRequest, server: DevServer, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, str]:
    """What went wrong with each page that is asked for, or an empty text."""
    asked = [item.callspec.params["page"] for item in request.session.items if "ran" in item.fixturenames]
    for command in {line for page in asked for line in nexus_endpoints_of(page)} - endpoints_made:
        made = [*command.split(), "--address", server.address]
        environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
        subprocess.run(made, check=True, env=environment, stdout=subprocess.DEVNULL)
        endpoints_made.add(command)
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
        )
    told: dict[str, str] = json.loads(finished.stdout)
    return told


@pytest.mark.parametrize("page", WITH_PYTHON, ids=name_of)
def test_the_python_of_a_page_runs_from_top_to_bottom(page: Path, ran: dict[str, str]) -> None:
    assert ran[str(page)] == "", ran[str(page)]


IMPORTED_LATE = ("certifi", "encodings.idna", "h11", "httpcore", "temporalio.envconfig")
"""What nearly each page comes to import as it runs."""


def run_pages(pages: list[str]) -> dict[str, str]:
    """Each in a fork of this process: they share its imports, and nothing else. Some at a time: most of them wait."""
    for name in IMPORTED_LATE:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()  # else each fork would look through all that is imported, and copy the memory that it is in
    told: dict[str, str] = {}
    left, running = list(pages), dict[int, tuple[str, IO[str]]]()
    while left or running:
        while left and len(running) < AT_ONCE:
            page, output = left.pop(0), tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed when its child has ended
            if not (child := os.fork()):
                run_alone(Path(page), output)
            running[child] = (page, output)
        child, status = os.wait()
        page, output = running.pop(child)
        with output:
            output.seek(0)
            told[page] = output.read() or f"status {status}" if status else ""
    return told


def run_alone(page: Path, output: IO[str]) -> NoReturn:
    """Runs the page, and ends the process."""
    os.dup2(output.fileno(), 1)
    os.dup2(output.fileno(), 2)
    faulthandler.dump_traceback_later(LONGEST_PAGE_SECONDS, exit=True)
    status = 1
    try:
        if page not in BESIDE:
            os.environ["EVERTURN_TASK_QUEUE"] = f"docs-{page.stem}"
        run(page)
        status = 0
    except BaseException:  # noqa: BLE001 - the parent tells
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(status)


def run(page: Path) -> None:
    """Runs the blocks one after the other, in one namespace; `await` may stand outside of functions. Then somebody uses
    what they make, where they make a program."""
    # A module, for what looks its types up by name.
    module = sys.modules["__main__"] = types.ModuleType("__main__")
    with asyncio.Runner() as runner:
        for block in blocks_of(page):
            if block.language != "python" or block.peer:
                continue
            if block.file:
                sys.path.insert(0, str(Path.cwd()))
                Path(block.file).write_text(block.text)
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
    pictures = sorted((ROOT / "docs/pictures").iterdir())
    shown = {(page.parent / target).resolve() for page, target in LINKS}
    signs = {".png": b"\x89PNG", ".svg": b"<svg "}
    assert [
        path for path in pictures if path not in shown or not path.read_bytes().startswith(signs[path.suffix])
    ] == []
    assert pictures


@pytest.mark.parametrize("path", sorted((ROOT / "docs/pictures").glob("*.svg")), ids=name_of)
def test_a_drawing_is_whole_and_says_what_it_shows(path: Path) -> None:
    drawing = ElementTree.parse(path).getroot()
    named = {one.tag.partition("}")[2] for one in drawing}
    assert {"title", "desc", "style"} <= named
    assert "prefers-color-scheme: dark" in path.read_text()
    assert not re.search(r"(href|src)=|url\((?!#)", path.read_text()), "it needs something from elsewhere"


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
    headings = set(re.findall(r"^#+ ([\w.]+)$", "\n".join(_reference_of_python()), re.M))
    assert [name for name in everturn.__all__ if name not in headings] == []


def _reference_of_python() -> list[str]:
    pages = [*(ROOT / "docs/reference/python").glob("*.md"), ROOT / "docs/reference/errors.md"]
    return [page.read_text() for page in pages]


def _wanted() -> list[tuple[str, str]]:
    kinds = [var for var in vars(errors).values() if isinstance(var, type) and issubclass(var, errors.EverturnError)]
    wire = [value for name, value in vars(names).items() if name.isupper() and isinstance(value, str)]
    wanted = {
        "README.md": [f"`{provider}:`" for provider in PROVIDERS],
        "docs/reference/settings.md": [
            *(PREFIX + name.upper() for name in Settings.model_fields),
            *(key for row in PROVIDERS.values() for key in row.keys),
            *(address_variable(provider) for provider in PROVIDERS),
        ],
        "docs/install.md": [f"`{extra}`" for extra in metadata("everturn").get_all("Provides-Extra") or ()],
        "docs/reference/errors.md": [kind.__name__ for kind in kinds],
        "docs/reference/wire.md": wire,
        "docs/reference/python/events.md": [
            kind.model_fields["kind"].default for kind in vars(events).values() if _is_event(kind)
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
