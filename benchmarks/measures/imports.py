"""What everturn costs before it does anything: `import everturn` and `everturn --help`, without extras and with all;
and a workflow of one's own that asks an agent, in Temporal's sandbox."""

from __future__ import annotations

import asyncio
import subprocess
import time
from pathlib import Path
from statistics import median

from benchmarks.measures import Column, Measured, Plan
from benchmarks.rig import RESULTS, ROOT, Rig

ROUNDS = 15

LOCKS = {"no extras": "requirements-demo.lock", "all extras": "requirements.lock"}
"""What is installed beside everturn: what it runs on; and all of its extras, with what its developers need."""

COMMANDS = {"python": ["python", "-c", "pass"], "import": ["python", "-c", "import everturn"]}
COMMANDS |= {"help": ["everturn", "--help"]}

SANDBOXED = ("plain", "asks")
"""Files of benchmarks/sandboxed. Such a program says itself how long an instance took."""


async def measure(_rig: Rig, _plan: Plan) -> Measured:
    homes = {name: await asyncio.to_thread(_home, lock) for name, lock in LOCKS.items()}
    samples = {name: {command: list[float]() for command in (*COMMANDS, *SANDBOXED)} for name in homes}
    for number in range(ROUNDS + 1):
        for command, words in COMMANDS.items():
            for name, home in sorted(homes.items(), reverse=bool(number % 2)):
                seconds = await asyncio.to_thread(_took, [str(home / "bin" / words[0]), *words[1:]])
                if number:  # the first round writes bytecode, and fills the disk's cache
                    samples[name][command].append(seconds * 1000)
        for workflow in SANDBOXED if number else ():
            for name, home in homes.items():
                samples[name][workflow].append(await asyncio.to_thread(_said, home, workflow))
    rows = {name: {command: median(found) for command, found in own.items()} for name, own in samples.items()}
    columns = [
        Column("python", "python alone, ms"),
        Column("import", "import everturn, ms", against="no extras"),
        Column("help", "everturn --help, ms", against="no extras"),
        Column("plain", "a sandboxed workflow's instance, ms"),
        Column("asks", "of one that asks an agent, ms"),
    ]
    note = (
        f"Medians of {ROUNDS} processes each, in turn. Installed are {_count(homes['no extras'])} packages without the "
        f"extras, and {_count(homes['all extras'])} with all of them (httpx imports one: zstandard). An instance of a "
        "sandboxed workflow is made when a worker takes it up, and when it is replayed from its start: of a file "
        "without everturn, and of one that imports it and defines an agent with a tool (benchmarks/sandboxed)."
    )
    return Measured("Import: a process that only imports, with the extras and without", columns, rows, [note], samples)


def _home(lock: str) -> Path:
    """A virtual environment with what the lock file names, and everturn; made once for each state of that file."""
    wanted = (ROOT / lock).read_bytes()
    home = RESULTS / f"venv-{Path(lock).stem}"
    made = home / "lock"
    if not made.exists() or made.read_bytes() != wanted:
        install = [str(home / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        for words in (
            ["python3", "-m", "venv", "--clear", str(home)],
            [*install, "--no-deps", "--require-hashes", "--requirement", str(ROOT / lock)],
            [*install, "--no-deps", "--no-build-isolation", "--editable", str(ROOT)],
        ):
            subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
        made.write_bytes(wanted)
    return home


def _took(words: list[str]) -> float:
    began = time.perf_counter()
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL, timeout=60)
    return time.perf_counter() - began


def _said(home: Path, workflow: str) -> float:
    words = [str(home / "bin" / "python"), "-m", "benchmarks.sandboxed", workflow]
    said = subprocess.run(words, check=True, stdout=subprocess.PIPE, cwd=ROOT, text=True, timeout=60).stdout
    return float(said)


def _count(home: Path) -> int:
    return len([*home.glob("lib/python3*/site-packages/*.dist-info")])
