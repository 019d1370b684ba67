"""The package as its users and its installers meet it."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import everturn

ROOT = Path(__file__).parents[2]

# Spelt so that this file does not name them.
REGISTRIES = re.compile(
    "|".join(["pypi" + r"\.org", "python" + r"hosted\.org", "npm" + r"js\.(com|org)", "/opt/" + "pypi"])
)


def test_every_public_name_is_there() -> None:
    missing = [name for name in everturn.__all__ if not hasattr(everturn, name)]
    assert missing == []


def test_public_names_are_listed_by_dir() -> None:
    assert set(everturn.__all__) <= set(dir(everturn))


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError):
        _ = everturn.no_such_name  # type: ignore[attr-defined]


IMPORTS = {
    # No Temporal, no HTTP, no CLI, until something that needs them is used.
    "import everturn": ("httpx", "temporalio", "typer", "rich", "structlog"),
    # A short program logs nothing, asks no model and hosts nothing. rich comes with structlog, if it is installed.
    "from everturn import Client": (
        *("structlog", "rich", "httpx", "everturn.client.conversation", "temporalio.worker", "everturn.workflows"),
    ),
    # Each would add to the start of every worker: the command line, web servers, and extras that it does not use. The
    # modules are those that `worker.process.serve` imports, and an agent of a file.
    """
import everturn.client.client, everturn.loading, everturn.worker.process, everturn.worker.worker
from everturn import Agent, Worker, tool
Agent("clerk", model="openai:gpt-5")
""": (
        *("everturn.cli", "everturn.mcp_server", "everturn.ui", "everturn.web", "everturn.devserver"),
        *(
            "fastapi",
            "starlette",
            "uvicorn",
            "prompt_toolkit",
            "typer",
            "mcp",
            "opentelemetry",
            "redis",
            "cryptography",
        ),
        *("anthropic", "openai", "genai_prices", "httpx", "everturn.client.conversation", "everturn.events"),
    ),
}
"""What a process may not have imported after each of these, one after the other: each imports more than the last."""

IMPORTING = f"""
import gc, logging, sys
if sys.argv[1] == "False":
    gc.disable()
for code, unwanted in {IMPORTS!r}.items():
    exec(code)
    print(code.strip().splitlines()[0], sorted({{*unwanted}} & {{*sys.modules}}))
    if code == "import everturn":
        print(logging.getLogger().handlers, logging.getLogger("everturn").handlers)
print(gc.isenabled())
"""


@pytest.mark.parametrize("collects", [True, False])
def test_imports_are_light_and_leave_logs_and_garbage_collection_as_they_were(collects: bool) -> None:
    program = [sys.executable, "-c", IMPORTING, str(collects)]
    ran = subprocess.run(program, capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines() == [
        "import everturn []",
        "[] []",
        "from everturn import Client []",
        "import everturn.client.client, everturn.loading, everturn.worker.process, everturn.worker.worker []",
        str(collects),
    ]


def test_no_tracked_file_names_a_registry() -> None:
    """Where packages come from is a matter of each machine's own settings."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("not a git checkout")
    files = [ROOT / name for name in listed.stdout.split("\0") if name]
    named = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in files
        if path.is_file()
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), start=1)
        if REGISTRIES.search(line)
    ]
    assert named == []


@pytest.mark.parametrize("lock", ["requirements.lock", "requirements-worker.lock", "requirements-demo.lock"])
def test_the_lock_pins_every_dependency_by_hash(lock: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wanted = project["project"]["dependencies"] + project["dependency-groups"]["build"]
    if lock == "requirements.lock":
        wanted += [line for line in project["dependency-groups"]["dev"] if isinstance(line, str)]
    if lock != "requirements-worker.lock":
        wanted += project["project"]["optional-dependencies"]["server"]
    names = {re.split(r"[<>=\[; ]", line)[0] for line in wanted}

    text = (ROOT / lock).read_text()
    pinned = {
        name for name, hashed in re.findall(r"^(\S+)==\S+.*\\\n +(--hash=sha256:)?", text, re.MULTILINE) if hashed
    }
    assert names <= pinned, "run `make lock`"
    assert "://" not in text
