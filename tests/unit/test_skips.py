"""What CI does when a test is skipped."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.support import prepared
from tests.support.skips import ALLOWED, AllowedSkip, SkipWatch, missing

ROOT = Path(__file__).parents[2]

CONFTEST = """
from tests.support.skips import watch_skips as pytest_configure
"""


def run(folder: Path, source: str, *options: str, ci: str = "true") -> subprocess.CompletedProcess[str]:
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "test_it.py").write_text(f"import pytest\n\n{source}")
    own = ("-p", "xdist.plugin", "-p", "no:cacheprovider", "-c", os.devnull)
    environment = {**os.environ, "CI": ci, "PYTHONPATH": str(ROOT)}
    environment = {name: value for name, value in environment.items() if not name.startswith("PYTEST_")}
    environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # it takes longer than all the rest
    return prepared.run("-m", "pytest", *own, *options, str(folder), cwd=folder, env=environment, timeout=100)


@pytest.mark.parametrize("options", [("-n0",), ("-n1",)], ids=["one process", "xdist"])
def test_a_skip_that_is_not_in_the_list_fails_the_run_and_is_named(tmp_path: Path, options: tuple[str, ...]) -> None:
    source = "def test_a():\n    pytest.skip('the oven is cold')\n\ndef test_b():\n    pass\n"
    ran = run(tmp_path, source, *options)
    assert ran.returncode == pytest.ExitCode.TESTS_FAILED, ran.stdout + ran.stderr
    assert "test_it.py::test_a: the oven is cold" in ran.stdout


def test_an_allowed_skip_and_an_expected_failure_pass(tmp_path: Path) -> None:
    ran = run(
        tmp_path,
        "@pytest.mark.skipif(True, reason='no recordings here')\ndef test_a():\n    pass\n\n"
        "@pytest.mark.xfail(reason='not yet')\ndef test_b():\n    assert False\n",
    )
    assert ran.returncode == pytest.ExitCode.OK, ran.stdout + ran.stderr
    assert "1 skipped, 1 xfailed" in ran.stdout


def test_only_ci_minds(tmp_path: Path) -> None:
    assert run(tmp_path, "def test_a():\n    pytest.skip('the oven is cold')\n", ci="").returncode == pytest.ExitCode.OK


@pytest.mark.parametrize(("program", "forbidden"), [("sh", 1), ("no-such-program", 0)])
def test_not_installed_is_no_reason_once_it_is_installed(program: str, forbidden: int) -> None:
    watch = SkipWatch([AllowedSkip("it is not installed", "", missing(program))])
    report = pytest.TestReport("t", ("t", 1, "t"), {}, "skipped", ("t", 1, "Skipped: it is not installed"), "setup")
    watch.pytest_runtest_logreport(report)
    assert len(watch._forbidden) == forbidden


def test_every_reason_in_the_list_is_one_that_a_test_gives() -> None:
    sources = "\n".join(
        file.read_text() for file in (ROOT / "tests").rglob("*.py") if file.name not in {"skips.py", "test_skips.py"}
    )
    sources = sources.replace("{CHROMIUM}", "/usr/bin/chromium")
    assert [one.reason for one in ALLOWED if one.reason not in sources] == []
