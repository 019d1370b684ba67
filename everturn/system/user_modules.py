"""Modules and files of users, imported: what goes wrong is said in one line, with its place and what to do."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

from everturn.errors import ConfigError, InvalidFile


def load_object(spec: str) -> Any:
    """What `module:name` or `path.py:name` names. Raises InvalidFile."""
    place, colon, name = spec.rpartition(":")
    if not (colon and place and name):
        raise InvalidFile(f"{spec!r} does not name an object in a module.", cure="Write module:name or path.py:name.")
    module = load_file(Path(place)) if is_path(place) else load_module(place)
    try:
        return getattr(module, name)
    except AttributeError:
        raise InvalidFile(f"There is no {name!r} in {place}.", cure="Check the name.") from None


def is_path(text: str) -> bool:
    return text.endswith(".py") or "/" in text or "\\" in text


def load_module(name: str) -> ModuleType:
    _make_importable(Path.cwd())
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            cure = f"Run from the folder that holds it ({Path.cwd()} does not), or give the path of the file."
            raise InvalidFile(f"There is no module {name!r}.", cure=cure) from error
        _raise_explained(error, place=name)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever an import raises
        _raise_explained(error, place=name)


def load_file(path: Path) -> ModuleType:
    file = path.expanduser().resolve()
    if path.suffix != ".py":
        raise InvalidFile(f"{path} is not a Python file.", cure="Give the path of a file that ends in .py.")
    if not file.is_file():
        raise InvalidFile(f"There is no file {path}.", cure=f"Check the path: everturn looked for {file}.")
    # Unique, so that tools.py of two folders don't meet; in sys.modules, so that its classes can resolve their hints.
    name = f"everturn_file_{hashlib.sha256(str(file).encode()).hexdigest()[:12]}_{file.stem}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise InvalidFile(f"{path} can't be loaded as Python.", cure="Give the path of a file that ends in .py.")
    module = importlib.util.module_from_spec(spec)
    _make_importable(file.parent)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException as error:
        del sys.modules[name]
        if isinstance(error, Exception | SystemExit):
            _raise_explained(error, place=str(path))
        raise
    return module


def _make_importable(folder: Path) -> None:
    # First, as for a script; for good, since functions may import when they run.
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


def _raise_explained(error: BaseException, *, place: str) -> NoReturn:
    """Raise InvalidFile for what went wrong at import: file, line, what, and what to do."""
    where = _error_place(error, place=place)
    if isinstance(error, ConfigError):
        raise InvalidFile(f"{where}: {error.message}", cure=error.cure) from error
    message = " ".join(str(error).split()).rstrip(".")
    cure = "Correct the code that runs when the file is imported."
    if isinstance(error, SyntaxError):
        message = error.msg
        cure = "Correct the line."
    elif isinstance(error, ModuleNotFoundError) and error.name:
        cure = f"Install what provides {error.name!r} in the environment of {sys.executable}."
    elif isinstance(error, SystemExit):
        cure = "Put the code that runs the program under `if __name__ == '__main__':`."
    raise InvalidFile(f"{where}: {type(error).__name__}: {message}.", cure=cure) from error


def _error_place(error: BaseException, *, place: str) -> str:
    """File and line: of a syntax error its own, of others those where the outermost file went wrong."""
    frames = traceback.extract_tb(error.__traceback__)
    module_file = next((frame.filename for frame in frames if frame.name == "<module>"), None)
    imported_by = f", imported by {_relative_path(module_file)}" if module_file else ""
    if isinstance(error, SyntaxError) and error.filename and error.lineno:
        return f"{_relative_path(error.filename)}, line {error.lineno}{imported_by}"
    if module_file is None:
        return place
    line = [frame.lineno for frame in frames if frame.filename == module_file][-1]
    return f"{_relative_path(module_file)}, line {line}"


def _relative_path(file: str) -> str:
    if not Path(file).is_relative_to(Path.cwd()):
        return file
    return str(Path(file).relative_to(Path.cwd()))
