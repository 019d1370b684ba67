"""The wheel, installed elsewhere, beside a user's own modules of the names that every Temporal user has."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "-q", "-w", folder, ROOT]
    subprocess.run(command, check=True, timeout=100)
    (built,) = folder.glob("*.whl")
    return built


def test_the_wheel_holds_one_package_and_none_of_the_links(wheel: Path) -> None:
    tops = {name.split("/")[0] for name in zipfile.ZipFile(wheel).namelist()}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"everturn"}


@pytest.mark.timeout(100)
def test_a_users_own_activities_and_workflows_are_left_alone(wheel: Path, tmp_path: Path) -> None:
    site, project = tmp_path / "site", tmp_path / "project"
    project.mkdir()
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "--no-deps", "-q", "--target", site, wheel], check=True, timeout=100
    )
    (project / "activities.py").write_text("MINE = 'activities'\n")
    (project / "workflows.py").write_text("MINE = 'workflows'\n")
    (project / "providers.py").write_text("MINE = 'providers'\n")
    hello = (ROOT / "examples" / "hello.py").read_text()
    (project / "hello.py").write_text(
        "import activities, workflows, providers, everturn\n"
        "assert [activities.MINE, workflows.MINE, providers.MINE] == ['activities', 'workflows', 'providers']\n"
        f"assert everturn.__file__.startswith({str(site)!r}), everturn.__file__\n" + hello
    )
    ran = subprocess.run(
        [sys.executable, "hello.py"],
        cwd=project,
        env={"PYTHONPATH": str(site), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert "21 degrees" in ran.stdout
