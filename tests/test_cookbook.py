"""The programs of examples/cookbook, as a reader runs them without a key; and the page that shows what they print."""

from __future__ import annotations

import builtins
import importlib.util
import inspect
import re
import shutil
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import ModuleType
from uuid import uuid4

import pytest

from everturn.devserver import DevServer
from everturn.testing import ScriptedModel
from tests.support.doc_pages import ROOT

PROGRAMS = ROOT / "examples" / "cookbook"
PAGE = ROOT / "docs" / "cookbook.md"
TYPED = {"support_desk": ["y"], "coding_agent": ["y", "y"], "booking": ["20:30", "Ann"]}
"""What the person at the terminal types."""


Played = Callable[[str], Awaitable[tuple[str, ScriptedModel]]]


def names() -> list[str]:
    return sorted(file.stem for file in PROGRAMS.glob("*.py"))


def loaded(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"cookbook_{path.parent.name}_{path.stem}", path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def invoices(tmp_path: Path) -> Path:
    """Under names of their own: a conversation for each may be there already."""
    folder = tmp_path / "invoices"
    folder.mkdir()
    unique = uuid4().hex[:8]
    for file in (ROOT / "examples" / "invoices").glob("*.txt"):
        shutil.copy(file, folder / f"{file.stem}-{unique}.txt")
    return folder


@pytest.fixture
def played(
    server: DevServer,
    scripted: Callable[..., ScriptedModel],
    invoices: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Played:
    """Runs a program in an empty folder, with its own model: what the terminal shows, and the model."""
    monkeypatch.chdir(tmp_path)
    queue = f"cookbook-{uuid4().hex[:8]}"
    arguments = {"nightly_report": ["now"], "invoice_batch": [str(invoices)]}

    async def play(name: str) -> tuple[str, ScriptedModel]:
        model = scripted(loaded(PROGRAMS / "models" / f"{name}.py").script)
        settings = {
            "TEMPORAL_ADDRESS": server.address,
            "EVERTURN_TASK_QUEUE": queue,
            "MODEL": "scripted:cookbook",
            "SCRIPTED_BASE_URL": model.base_url,
        }
        for variable, value in settings.items():
            monkeypatch.setenv(variable, value)
        answers = list(TYPED.get(name, ()))

        def typed(prompt: str) -> str:
            said = answers.pop(0)
            print(f"{prompt}{said}")
            return said

        monkeypatch.setattr(builtins, "input", typed)
        monkeypatch.setattr(sys, "argv", [f"{name}.py", *arguments.get(name, ())])
        program = loaded(PROGRAMS / f"{name}.py")
        takes_arguments = inspect.signature(program.main).parameters
        await program.main(*(sys.argv[1:] if takes_arguments else ()))
        assert not answers
        return capsys.readouterr().out, model

    return play


def shown(name: str) -> str:
    """The output that the page shows in the section of this program."""
    [section] = [one for one in PAGE.read_text().split("\n## ") if f"(../examples/cookbook/{name}.py)" in one]
    [output] = re.findall(r"```text\n(.*?)```", section, re.S)
    return str(output)


@pytest.mark.parametrize("name", names())
async def test_a_program_prints_what_its_section_shows(name: str, played: Played) -> None:
    printed, _ = await played(name)
    assert printed == shown(name)


async def test_a_batch_that_is_started_again_asks_for_nothing_twice(
    played: Played,
) -> None:
    first, model = await played("invoice_batch")
    again, asked = await played("invoice_batch")
    assert again == first
    assert (len(model.requests), len(asked.requests)) == (5, 0)


async def test_a_chart_is_a_picture_that_the_model_is_shown(played: Played, tmp_path: Path) -> None:
    _, model = await played("data_analyst")
    assert (tmp_path / "lamps-by-month.png").read_bytes().startswith(b"\x89PNG")
    assert "data:image/png;base64," in str(model.requests[-1]["messages"])


def test_every_program_has_a_model_for_those_without_a_key() -> None:
    assert sorted(file.stem for file in (PROGRAMS / "models").glob("*.py")) == names()
    assert len(names()) == 10
