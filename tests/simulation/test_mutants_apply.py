"""The bugs of before, as patches: each still fits today's code and changes it, and says what it was."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.simulation.mutants import finders
from tests.simulation.mutants.drawn import MUTATED
from tests.simulation.mutants.patch import FOLDER, HEADS, WORLDS, DoesNotFit, Hunk, Patch, all_patches
from tests.simulation.world import ALL_SITUATIONS

ROOT = Path(__file__).parents[2]
PATCHES = all_patches()


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("copy")
    shutil.copytree(ROOT / "everturn", folder / "everturn", ignore=shutil.ignore_patterns("__pycache__", "page"))
    return folder


def test_there_are_as_many_as_were_asked_for() -> None:
    assert len(PATCHES) >= 30


@pytest.mark.parametrize("patch", PATCHES, ids=lambda patch: patch.name)
def test_it_fits_and_makes_other_code(patch: Patch, copy: Path) -> None:
    files = {copy / name for name, _ in patch.hunks}
    assert files
    before = {file: file.read_text() for file in files}
    try:
        patch.apply(copy)
        for file, text in before.items():
            changed = ast.parse(file.read_text())
            assert ast.dump(changed) != ast.dump(ast.parse(text)), f"{file} means the same"
    finally:
        for file, text in before.items():
            file.write_text(text)


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
def test_the_tests_that_hunt_what_a_tool_draws_are_there() -> None:
    aimed = {file: finders.aimed_at(str(file)) for file in MUTATED}
    known = {name for file in aimed for name in (file.stem, f"{file.parent.name}/{file.stem}")}
    assert finders._AIMED.keys() - known == set()
    all_tests = (*finders.REPLAYS, *finders.WORKFLOW_TESTS, *(test for tests in aimed.values() for test in tests))
    assert [test for test in all_tests if not (ROOT / test).exists()] == []


def test_git_applies_each_of_them() -> None:
    for file in sorted(FOLDER.glob("*.patch")):
        ran = subprocess.run(["git", "apply", "--check", file], cwd=ROOT, capture_output=True, text=True, check=False)
        assert ran.returncode == 0, f"{file.name}: {ran.stderr}"


@pytest.mark.parametrize("patch", PATCHES, ids=lambda patch: patch.name)
def test_it_says_what_it_was(patch: Patch) -> None:
    assert tuple(patch.heads) in (HEADS, (*HEADS, WORLDS))
    assert {*patch.situations} <= {*ALL_SITUATIONS}
    assert re.match(r"[0-9a-f]{7,12} ", patch.heads["Mended"])
    for name in re.findall(r"tests/\S+\.py", patch.heads["Test"]):
        test = (ROOT / name).read_text()
        assert all(f"def {one}(" in test for one in re.findall(r"::(\w+)", patch.heads["Test"]))


def test_what_no_longer_fits_is_named_and_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("one = 1\ntwo = 2\n")
    patch = Patch("gone", {}, (("a.py", Hunk("one = 1\n", "one = 11\n", 1)), ("a.py", Hunk("three = 3\n", "", 3))))
    with pytest.raises(DoesNotFit, match=r"gone: a\.py has nothing like this any more:\nthree = 3"):
        patch.apply(tmp_path)
    assert (tmp_path / "a.py").read_text() == "one = 1\ntwo = 2\n"


def test_of_places_that_look_alike_the_nearest_is_meant(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x = 1\n" * 9)
    Patch("alike", {}, (("a.py", Hunk("x = 1\n", "y = 1\n", 5)),)).apply(tmp_path)
    assert (tmp_path / "a.py").read_text().splitlines().index("y = 1") == 4
