"""The wheel, installed elsewhere, beside a user's own modules of the names that every Temporal user has."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from everturn.devserver import DevServer
from everturn.testing import ScriptedModel, call

MINE = ["activities", "workflows", "providers"]
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


@pytest.mark.timeout(600)
async def test_a_users_own_activities_and_workflows_are_left_alone(
    wheel: Path, tmp_path: Path, server: DevServer, scripted: Callable[..., ScriptedModel]
) -> None:
    site, project = tmp_path / "site", tmp_path / "project"
    project.mkdir()
    install = ["-m", "pip", "install", "--no-deps", "-q", "--target", str(site), str(wheel)]
    subprocess.run([sys.executable, *install], check=True, timeout=100)
    for name in MINE:
        (project / f"{name}.py").write_text(f"MINE = {name!r}\n")
    check = (
        f"import everturn, {', '.join(MINE)}\n"
        f"assert [{', '.join(f'{name}.MINE' for name in MINE)}] == {MINE!r}\n"
        f"assert everturn.__file__.startswith({str(site)!r}), everturn.__file__\n"
    )
    (project / "hello.py").write_text(check + (ROOT / "examples" / "hello.py").read_text())
    model = scripted([call("get_weather", {"city": "Paris"}), "21 degrees in Paris."])
    ran = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "hello.py"],
        cwd=project,
        env={
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(site),
            "TEMPORAL_ADDRESS": server.address,
            "EVERTURN_TASK_QUEUE": "installed",
            "MODEL": "scripted:hello",
            "SCRIPTED_BASE_URL": model.base_url,
        },
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == "21 degrees in Paris.\n"
    assert "21 degrees and sunny in Paris" in str(model.requests[-1])
