"""The example that comes with everturn: where it is, and how to host it on files of one's own."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from everturn.private_files import make_folder

AGENT: Final = "bookkeeper.py"
MODEL: Final = "bookkeeper_model.py"
INVOICES: Final = "invoices"
SCRIPTED: Final = "scripted:bookkeeper"


def examples_folder() -> Path | None:
    """The examples: of the checkout, or those that a wheel carries. None where there are none."""
    package = Path(__file__).parents[1]
    folders = (package.parent / "examples", package / "examples")
    return next((folder for folder in folders if (folder / AGENT).is_file()), None)


@contextmanager
def sample_agents(beside: Path, *, wanted: bool) -> Iterator[tuple[tuple[str, ...], list[str]]]:
    """Specs of the example's agent, ready to be hosted, and what to tell about it.

    Works on a copy of the invoices. Without MODEL in the environment, a scripted model plays its part.
    """
    folder = examples_folder() if wanted else None
    if folder is None:
        yield (), []
        return
    books = beside.resolve() / INVOICES
    if not books.exists():
        make_folder(books.parent)  # the server's database will be in there
        shutil.copytree(folder / INVOICES, books)
    os.environ.setdefault("BOOKS_DIR", str(books))
    notes = [f'Example    everturn run --agent bookkeeper "Do October\'s books."   (works on {books})']
    with ExitStack() as stack:
        if not os.environ.get("MODEL"):
            stack.enter_context(_scripted(folder))
            notes.append("Model      scripted: no MODEL=provider:name is set, so a script plays its part")
        yield (str(folder / AGENT),), notes


@contextmanager
def _scripted(folder: Path) -> Iterator[None]:
    import runpy

    from everturn.testing import ScriptedModel

    with ScriptedModel(runpy.run_path(str(folder / MODEL))["script"], keep=0) as model:
        os.environ.update(MODEL=SCRIPTED, SCRIPTED_BASE_URL=model.base_url)
        yield
