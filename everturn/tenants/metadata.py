"""A conversation's tenant and metadata, from whoever started it. Tools and predicates are given both."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import Field, JsonValue, field_validator

from everturn.records import Record
from everturn.sizes import MAX_KEYWORD_BYTES, MAX_METADATA_BYTES, MAX_NAME_CHARS, flat, size_of
from everturn.temporal.ids import keyword

MAX_SEARCHABLE = 10
"""Keys that one conversation can be found by."""

TENANT = "tenant"


class Labelled(Record):
    """What has a tenant and metadata: the start of a conversation, and the input of each activity that runs code of the
    user's."""

    tenant: str | None = Field(default=None, max_length=MAX_NAME_CHARS)
    metadata: dict[str, JsonValue] = Field(default_factory=dict)
    """4,096 bytes of JSON at most: it is in the input of each turn and of each call."""

    _flat_metadata = field_validator("metadata", mode="before")(flat)

    @field_validator("metadata")
    @classmethod
    def _small(cls, metadata: dict[str, JsonValue]) -> dict[str, JsonValue]:
        if (size := size_of(metadata)) > MAX_METADATA_BYTES:
            raise ValueError(
                f"it has {size:,} bytes of JSON, and the limit is {MAX_METADATA_BYTES:,}: store large "
                "values where tools can read them, and only their ids here"
            )
        return metadata

    @property
    def labels(self) -> dict[str, Any]:
        """The tenant and the metadata, if there are any, as other such records and a workflow's memo take them."""
        return {name: value for name in ("tenant", "metadata") if (value := getattr(self, name))}


def in_words(metadata: Mapping[str, JsonValue]) -> str:
    """`order: 81, vip: true`."""
    return ", ".join(f"{key}: {written(value)}" for key, value in metadata.items())


def written(value: JsonValue) -> str:
    """A text as it is, anything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def searched(key: str, value: JsonValue) -> str:
    """As the search attribute holds it, and is searched for: `order=81`."""
    return keyword(f"{key}={written(value)}")


def in_index(start: Labelled, keys: Iterable[str]) -> list[str]:
    """Those of the start's labels that are there, as the search attribute holds them."""
    known = {TENANT: start.tenant, **start.metadata}
    return [searched(key, known[key]) for key in dict.fromkeys(keys) if known.get(key) is not None]


def keywords(labels: list[str], *, tenant: str | None = None) -> list[str]:
    """All that the search attribute holds, as far as there is room. `labels`: what was asked for, from `in_index`; it
    comes first. `tenant`: what is there by itself."""
    found = list(labels)
    more = [searched(TENANT, tenant)] if tenant else []
    found += [one for one in more if one not in found and fit([*found, one])]
    return found


def fit(found: list[str]) -> bool:
    """Whether Temporal takes these in one search attribute."""
    return len(json.dumps(found)) <= MAX_KEYWORD_BYTES
