"""A folder of cases for git: a YAML file for each conversation, which is a data set of pydantic-evals by itself.

What is written depends on the conversation alone, so that a second export changes nothing that has not changed.
"""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from everturn.errors import InvalidFile, InvalidSetting
from everturn.evals.cases import RecordedCase
from everturn.system.extras import install
from everturn.system.json_numbers import place_of_odd_number
from everturn.text.utf8 import mend
from everturn.validation.explaining import explain

SUFFIX: Final = ".yaml"

MAX_FILE_NAME_CHARS: Final = 80
"""Of a file's name, before its digest."""

LINE_CHARS: Final = 120

RESTORE: Final = "Restore it from git; or delete it, and export it again."


def file_name(conversation_id: str) -> str:
    """The same for the same conversation, and for no other, on file systems that don't tell A from a, too."""
    name = re.sub(r"[^a-z0-9._-]", "-", conversation_id.lower()).strip(".")[:MAX_FILE_NAME_CHARS]
    if name != conversation_id:
        name += f"-{hashlib.sha256(conversation_id.encode()).hexdigest()[:8]}"
    return name + SUFFIX


def read_cases(path: Path | str) -> list[RecordedCase]:
    """The cases of a folder, or of one file, in the order of their names. Raises InvalidFile."""
    return [case for file in case_files(Path(path)) for case in read_case_file(file)]


def case_files(path: Path) -> list[Path]:
    """Raises InvalidFile if there is nothing of that name."""
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise InvalidFile(f"There is no folder {path}.", cure="`everturn cases --output FOLDER` makes one.")
    return sorted(path.glob(f"*{SUFFIX}"))


def read_case_file(file: Path) -> list[RecordedCase]:
    """Raises InvalidFile if it holds something else."""
    yaml = _yaml()
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        content = yaml.load(file.read_text(encoding="utf-8"), Loader=loader)
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InvalidFile(f"{file} is not YAML: {error}.", cure=RESTORE) from None
    if not isinstance(content, dict) or not isinstance(content.get("cases"), list):
        raise InvalidFile(f"{file} has no cases.", cure="Leave only files of `everturn cases` in the folder.")
    if odd := place_of_odd_number(content["cases"]):
        raise InvalidFile(f"{file} has a number that JSON does not have: {odd}.", cure="Write it as a text.")
    try:
        return [RecordedCase.model_validate(case) for case in content["cases"]]
    except ValidationError as error:
        raise InvalidFile(
            f"{file} is not a file of cases: {explain(error)}.",
            cure=RESTORE,
        ) from None


def write_cases(folder: Path, cases: Iterable[RecordedCase]) -> list[Path]:
    """Writes each conversation's file, if it would change. Returns those that it has written."""
    by_conversation: dict[str, list[RecordedCase]] = defaultdict(list)
    for case in cases:
        by_conversation[case.inputs.conversation].append(case)
    folder.mkdir(parents=True, exist_ok=True)
    return list(_write_changed(folder, by_conversation))


def _write_changed(folder: Path, by_conversation: dict[str, list[RecordedCase]]) -> Iterator[Path]:
    for conversation_id, cases in by_conversation.items():
        file = folder / file_name(conversation_id)
        text = as_yaml(conversation_id, _with_own_evaluators(file, cases))
        if not file.exists() or file.read_text(encoding="utf-8") != text:
            part = file.with_name(f".{file.name}.part")  # a file that is half written would stop the next export
            part.write_text(text, encoding="utf-8")
            part.replace(file)
            yield file


def _with_own_evaluators(file: Path, cases: list[RecordedCase]) -> list[RecordedCase]:
    """What people have added to the cases by hand stays."""
    if not file.exists():
        return cases
    evaluators = {case.name: case.evaluators for case in read_case_file(file)}
    return [case.model_copy(update={"evaluators": evaluators.get(case.name, case.evaluators)}) for case in cases]


def as_yaml(name: str, cases: Iterable[RecordedCase]) -> str:
    """As pydantic-evals reads a data set."""
    yaml = _yaml()

    class Dumper(yaml.SafeDumper):  # type: ignore[misc, name-defined]
        """Texts of several lines are written as such, and lists within their keys."""

        def increase_indent(self, flow: bool = False, indentless: bool = False) -> Any:  # noqa: ARG002 - as of yaml
            return super().increase_indent(flow, False)

        def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - what is said twice is written twice
            return True

    def write_text(dumper: Any, text: str) -> Any:
        text = mend(text)
        style = "|" if "\n" in text else None
        if "\x85" in text:  # which YAML 1.1 takes for the end of a line, and its writer for nothing special
            style = '"'
        return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)

    Dumper.add_representer(str, write_text)
    content = {"name": name, "cases": [case.model_dump(mode="json") for case in cases]}
    return str(yaml.dump(content, Dumper=Dumper, sort_keys=False, allow_unicode=True, width=LINE_CHARS))


def _yaml() -> Any:
    try:
        import yaml
    except ImportError:
        raise InvalidSetting("Cases are written in YAML, and PyYAML is not installed.", cure=install("evals")) from None
    return yaml
