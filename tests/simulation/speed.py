"""What is worked out anew each time and comes to the same each time: in a world, it is worked out once."""

from __future__ import annotations

import gc
import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from itertools import count
from typing import Any
from unittest.mock import patch

import temporalio.common
import temporalio.converter
from temporalio.api.common.v1 import Payload, SearchAttributes
from temporalio.common import TypedSearchAttributes
from temporalio.converter import _payload_converter

from everturn.records import Record
from everturn.settings import Settings
from everturn.storage.data_converter import JSON
from tests.simulation.shared_reading import each_event_once

_read_hints = temporalio.common._type_hints_from_func
_hints: dict[Any, Any] = {}
_records: dict[tuple[type, bytes], Any] = {}
_read_payload = JSON.from_payload
_converter_of = _payload_converter._get_transfer_type_converter
_known_converter_of = cache(_converter_of)
_load_settings = cache(Settings.load)
_attributes: dict[tuple[Any, bytes], Any] = {}
_read_attributes = temporalio.converter.decode_typed_search_attributes
_read_untyped = temporalio.converter.decode_search_attributes

MOST_RECORDS = 4_000
WORLDS_BETWEEN_COLLECTIONS = 25

_lived = count(1)
_who_collects = ["this process"]


@contextmanager
def worked_out_once() -> Iterator[None]:
    with ExitStack() as stack:
        for owner, name, once in (
            (temporalio.common, "_type_hints_from_func", _types_of),
            (JSON, "from_payload", _record_of),
            (_payload_converter, "_get_transfer_type_converter", _transfer_converter_of),
            (Settings, "load", _load_settings),
            (temporalio.converter, "decode_typed_search_attributes", _attributes_of),
            (temporalio.converter, "decode_search_attributes", _untyped_attributes_of),
            (traceback, "format_tb", _no_traceback),
        ):
            stack.enter_context(patch.object(owner, name, once))
        stack.enter_context(each_event_once())
        stack.enter_context(_collected_at_the_end())
        yield


def _types_of(function: Any) -> Any:
    """The SDK reads the types of each handler for each instance of a workflow."""
    key = getattr(function, "__code__", function)
    if key not in _hints:
        _hints[key] = _read_hints(function)
    return _hints[key]


def _record_of(payload: Payload, type_hint: type | None = None) -> Any:
    """Workers, clients and checks read the same events. Records are frozen: each may have the same one."""
    if not (isinstance(type_hint, type) and issubclass(type_hint, Record)):
        return _read_payload(payload, type_hint)
    key = (type_hint, payload.data)
    if key not in _records:
        if len(_records) >= MOST_RECORDS:
            _records.clear()
        _records[key] = _read_payload(payload, type_hint)
    return _records[key]


def _transfer_converter_of(value_type: Any) -> Any:
    return _known_converter_of(value_type) if isinstance(value_type, type) else _converter_of(value_type)


def _attributes_of(attributes: SearchAttributes) -> Any:
    known = _known_attributes(_read_attributes, attributes)
    return TypedSearchAttributes([*known.search_attributes])  # a workflow changes its own


def _untyped_attributes_of(attributes: SearchAttributes) -> Any:
    known = _known_attributes(_read_untyped, attributes)
    return {name: [*values] for name, values in known.items()}


def _known_attributes(read: Callable[[SearchAttributes], Any], attributes: SearchAttributes) -> Any:
    """Whoever describes a run reads its attributes: mostly the same ones."""
    key = (read, attributes.SerializeToString(deterministic=True))
    if key not in _attributes:
        if len(_attributes) >= MOST_RECORDS:
            _attributes.clear()
        _attributes[key] = read(attributes)
    return _attributes[key]


def _no_traceback(_: Any) -> list[str]:
    """The SDK writes it into each failure, with the places of the code on this machine. Nobody in a world reads it."""
    return ["a traceback"]


def alone(*, for_long: bool = True) -> None:
    """For a process that does nothing but live through worlds: what is there before the first one stays. One that does
    so for a hundred of them, and then ends, looks for no garbage at all."""
    gc.disable()
    if for_long:
        gc.collect()
    else:
        _who_collects.clear()
    gc.freeze()


@contextmanager
def _collected_at_the_end() -> Iterator[None]:
    """A world is small, and goes as a whole: looking for garbage meanwhile is a tenth of all time. Between the tests of
    others, only what is new is looked through: all that pytest and its tests have is much more."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if _who_collects and next(_lived) % WORLDS_BETWEEN_COLLECTIONS == 0:
            gc.collect(1 if was_enabled else 2)
        if was_enabled:
            gc.enable()
