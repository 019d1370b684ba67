"""Workflow code does the same each time: all that a workflow can reach names nothing that could differ on a replay.

Read from the source. What can't be read there is watched as recorded conversations replay: tests/support/watch.py.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType

import pytest

from tests.support.excused import HARMLESS, NOT_CALLED
from tests.support.planted import ALLOWED_MODULES, PLANTED, REFUSED_MODULES, Planted
from tests.support.shared_state import changes, kept
from tests.support.source import MODULES, WORKFLOWS, Source, Use, imported_as, modules_of, reached, read, source_of
from tests.support.unordered import orders_taken_from_sets, sets_by_name
from tests.support.zones import without_a_zone

_PURE = """
    __future__ base64.b64decode base64.b64encode binascii collections.abc collections.deque contextlib.contextmanager
    contextlib.suppress dataclasses.dataclass dataclasses.field dataclasses.replace decimal.Decimal difflib
    functools.wraps hashlib.blake2b hashlib.sha256 inspect.signature itertools json math pathlib.PurePosixPath re
    shlex.quote urllib.parse.unquote urllib.parse.urlsplit zlib
    typing.Annotated typing.Any typing.ClassVar typing.Final typing.Literal typing.NamedTuple typing.NoReturn
    typing.ParamSpec typing.Protocol typing.Self typing.TYPE_CHECKING typing.TypeVar typing.assert_never typing.cast
    pydantic.BaseModel pydantic.BeforeValidator pydantic.ConfigDict pydantic.Field pydantic.JsonValue
    pydantic.PlainSerializer pydantic.WrapValidator
    pydantic.SerializerFunctionWrapHandler pydantic.TypeAdapter pydantic.ValidationError pydantic.field_serializer
    pydantic.field_validator pydantic.model_serializer pydantic.model_validator
    pydantic._internal._model_construction.ModelMetaclass
    pydantic_core.PydanticSerializationError pydantic_core.to_json pydantic_core.to_jsonable_python
    nexusrpc.HandlerError nexusrpc.OperationError
    asyncio.CancelledError asyncio.Semaphore asyncio.TimeoutError
    asyncio.create_task asyncio.current_task asyncio.gather asyncio.get_running_loop asyncio.shield
    contextvars.ContextVar
    datetime.UTC datetime.datetime datetime.timedelta
    temporalio.api.common temporalio.api.failure temporalio.api.sdk temporalio.common temporalio.contrib.pydantic
    temporalio.converter temporalio.exceptions temporalio.worker.HandleQueryInput
    temporalio.worker.StartActivityInput temporalio.worker.WorkflowInboundInterceptor
    temporalio.worker.WorkflowOutboundInterceptor
    temporalio.workflow
    builtins
"""
PURE = _PURE.split()
"""What workflow code may name that is not ours: with all that is in it, but for what follows. No other module's.

A module is here as a whole only if nothing in it reads a clock, a file or a caller's frame. Pydantic has types that do
(PastDatetime, FilePath), contextlib has chdir, inspect has currentframe, and typing has get_type_hints, which runs
text as code: of those, only what is used is here."""

_BUT_NOT = """
    datetime.datetime.now datetime.datetime.today datetime.datetime.utcnow
    temporalio.workflow.logger temporalio.workflow.unsafe
    builtins.__import__ builtins.breakpoint builtins.compile builtins.eval builtins.exec builtins.globals builtins.hash
    builtins.id builtins.input builtins.open builtins.print builtins.vars builtins.delattr builtins.setattr
    builtins.copyright builtins.credits builtins.exit builtins.help builtins.license builtins.locals builtins.quit
    builtins.__build_class__ builtins.__builtins__ builtins.__debug__ builtins.__loader__ builtins.__spec__
"""
BUT_NOT = _BUT_NOT.split()

OF_WHATEVER = {"combine", "environ", "logger", "now", "run_in_executor", "strftime", "strptime", "today", "unsafe"}
OF_WHATEVER |= {"GetCurrentTime", "utcfromtimestamp", "utcnow"}
"""Attributes that nothing is asked for, whatever it may be: `type(at).now()`."""

HARMLESS_DUNDERS = {"__call__", "__cause__", "__init__", "__name__", "__pydantic_init_subclass__"}
"""By way of the others (`__class__`, `__globals__`, `__builtins__`), all is within reach."""

EXCUSED = {*NOT_CALLED, *HARMLESS}


def _within(what: str, of: list[str]) -> bool:
    return any(what == one or what.startswith(f"{one}.") for one in of)


def is_allowed(use: Use) -> bool:
    if use.as_value and _is_a_place_of_names(use.what):
        return False
    if use.what.startswith("everturn"):
        of_the_face = not _within(use.what, [use.module, *(one for one in MODULES if "." in one)])
        not_called = use.what in {place.replace(":", ".") for place in NOT_CALLED}
        return not not_called and not of_the_face and all(map(is_allowed, _really(use)))
    listed = _within(use.what, PURE) and not _within(use.what, BUT_NOT)
    return listed and not _is_by_way_of_a_module(use.what) and "*" not in use.what.split(".")


def _really(use: Use) -> Iterator[Use]:
    """What one of our modules imports has its name there, too: `everturn.records.uuid4`."""
    parts = use.what.split(".")
    module = next(name for count in range(len(parts), 0, -1) if (name := ".".join(parts[:count])) in MODULES)
    name, _, rest = use.what.removeprefix(module).removeprefix(".").partition(".")
    if module != use.module:
        yield from (replace(use, what=f"{what}.{rest}".removesuffix(".")) for what in imported_as(module, name))


@cache
def _is_by_way_of_a_module(what: str) -> bool:
    """What a module imports has its name there, too: `json.codecs.open`, `dataclasses.builtins.open`."""
    first, *rest = what.split(".")
    place, value = first, import_module(first)
    for name in rest:
        place, value = f"{place}.{name}", getattr(value, name, None)
        if isinstance(value, ModuleType) and value.__name__ != place:
            return True
    return False


@cache
def _is_a_place_of_names(what: str) -> bool:
    """A module, or a class that gives the time: by another name, nobody sees any more what is asked of it."""
    if what == "datetime.datetime":
        return True
    try:
        return find_spec(what) is not None
    except (ModuleNotFoundError, ValueError):
        return False


def is_allowed_of_anything(attribute: Use) -> bool:
    _, name = attribute.what.split(".")
    if ast.unparse(attribute.node) == "workflow.now":
        return True
    dunder = name.startswith("__") and name.endswith("__")
    return name in HARMLESS_DUNDERS if dunder else name not in OF_WHATEVER


def strange(source: Source) -> Iterator[Use]:
    """What may differ from one replay to the next, or from one worker to another."""
    yield from (use for use in source.uses if not is_allowed(use))
    yield from (use for use in source.attributes if not is_allowed_of_anything(use))
    for line, code in without_a_zone(source.tree):
        yield Use(source.module, "", f"{code} has the machine's time zone", source.tree, line)


def shared(sources: list[Source]) -> Iterator[Use]:
    """Where what conversations of one worker have in common is changed."""
    of_all = {name for source in sources for name, _ in kept(source)}
    yield from (use for source in sources for use in changes(source, of_all))


@cache
def problems_of(modules: tuple[str, ...]) -> list[Use]:
    """Excused or not. Most excuses change nothing about which modules are reached."""
    return [*shared([source_of(module) for module in modules]), *(use for name in modules for use in strange_in(name))]


@cache
def strange_in(module: str) -> list[Use]:
    return list(strange(source_of(module)))


def problems(excused: set[str]) -> set[str]:
    uses = problems_of(tuple(reached(WORKFLOWS, not_called=excused)))
    return {str(use) for use in uses if use.place not in excused}


def test_workflows_name_nothing_that_may_differ_on_a_replay_and_change_nothing_that_they_share() -> None:
    assert problems(EXCUSED) == set()


@pytest.mark.parametrize("place", sorted(EXCUSED))
def test_every_excuse_is_still_needed(place: str) -> None:
    assert problems(EXCUSED - {place}) != set()


@pytest.mark.parametrize("name", [name for name in PURE if name != "builtins"])
def test_what_workflows_may_name_is_what_they_name(name: str) -> None:
    """A list of what might come in handy would hold what nobody has looked at."""
    sources = [source_of(module) for module in reached(WORKFLOWS, not_called=EXCUSED)]
    assert any(_within(use.what, [name]) for source in sources for use in (*source.uses, *source.imports))


def test_what_workflows_reach_is_more_than_their_own_folder() -> None:
    modules = set(reached(WORKFLOWS, not_called=EXCUSED))
    assert {"everturn", "everturn.records", "everturn.sizes", "everturn.storage.data_converter"} < modules
    assert not modules & {*modules_of("activities"), *modules_of("providers")}


def test_no_order_is_taken_from_a_set() -> None:
    """It differs from process to process."""
    modules = [source_of(module) for module in reached(WORKFLOWS, not_called=EXCUSED)]
    known = sets_by_name(source.tree for source in modules)
    assert [
        f"{source.module}, line {line}: {code}"
        for source in modules
        for line, code in orders_taken_from_sets(source.tree, known)
    ] == []


def noticed(source: Source) -> list[object]:
    used = [source, source_of("everturn.names")]
    return [*strange(source), *shared(used), *orders_taken_from_sets(source.tree, sets_by_name([source.tree]))]


@pytest.mark.parametrize("planted", [one for one in PLANTED if one.in_source], ids=lambda one: one.name)
def test_a_planted_line_is_noticed(planted: Planted) -> None:
    source = read("everturn.planted", planted.source)
    assert noticed(source) != []


@pytest.mark.parametrize("source", REFUSED_MODULES.values(), ids=REFUSED_MODULES)
def test_what_no_workflow_may_do_is_noticed_in_many_spellings(source: str) -> None:
    assert noticed(read("everturn.planted", source)) != []


@pytest.mark.parametrize("source", ALLOWED_MODULES.values(), ids=ALLOWED_MODULES)
def test_what_looks_like_it_is_left_alone(source: str) -> None:
    assert noticed(read("everturn.planted", source)) == []


HARMLESS_LINES = """
import asyncio
from datetime import UTC, datetime
from temporalio import workflow

BY_NAME = {"a": 1}
SEEN: frozenset[str] = frozenset({"a", "b"})

async def harmless(names: set[str], texts: list[str], open: list[str]) -> list[str]:
    at = datetime.fromtimestamp(workflow.time(), UTC)
    await asyncio.gather(*[workflow.sleep(1) for _ in texts])
    open.append(str(at))
    found = [text for text in texts if text in names and text in SEEN and BY_NAME.get(text)]
    return found + sorted(names - SEEN) + sorted(name.upper() for name in names) + [str(len(names | SEEN))] + open
"""


def test_what_is_deterministic_is_left_alone() -> None:
    source = read("everturn.planted", HARMLESS_LINES)
    assert noticed(source) == []
