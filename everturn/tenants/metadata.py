"""A conversation's tenant and metadata, from whoever started it. Tools and predicates are given both."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pydantic import Field, JsonValue, field_validator

from everturn.records import Record
from everturn.sizes import MAX_KEYWORD_BYTES, MAX_METADATA_BYTES, MAX_NAME_CHARS, size_of, storable_json
from everturn.temporal.ids import keyword

MAX_SEARCHABLE = 10
"""Keys that one conversation can be found by."""

TENANT = "tenant"

FORK_OF = "fork-of"

MORE_FORKS_OF = "fork-of-more"
"""Of a fork that shares its beginning with more conversations than there is room for: its memo has them all."""


RESERVED_KEYS = frozenset({TENANT, FORK_OF})
"""What the index says of each conversation. No key of the metadata may say it in their place."""


class LabelledInput(Record):
    """What has a tenant and metadata: the start of a conversation, and the input of each activity that runs code of the
    user's."""

    tenant: str | None = Field(default=None, max_length=MAX_NAME_CHARS)
    metadata: dict[str, JsonValue] = Field(default_factory=dict)
    """4,096 bytes of JSON at most: it is in the input of each turn and of each call."""

    _storable_metadata = field_validator("metadata", mode="before")(storable_json)

    @field_validator("metadata")
    @classmethod
    def _check_size(cls, metadata: dict[str, JsonValue]) -> dict[str, JsonValue]:
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
    return ", ".join(f"{key}: {as_text(value)}" for key, value in metadata.items())


def as_text(value: JsonValue) -> str:
    """A text as it is, anything else as JSON."""
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False)


def search_keyword(key: str, value: JsonValue) -> str:
    """As the search attribute holds it, and is searched for: `order=81`."""
    return keyword(f"{key}={as_text(value)}")


def in_index(start: LabelledInput, keys: Iterable[str]) -> list[str]:
    """Those of the start's labels that are there, as the search attribute holds them."""
    known = {**start.metadata, TENANT: start.tenant}
    return [search_keyword(key, known[key]) for key in dict.fromkeys(keys) if known.get(key) is not None]


def index_keywords(labels: list[str], *, tenant: str | None = None, forked_from: Sequence[str] = ()) -> list[str]:
    """All that the search attribute holds, as far as there is room. `labels`: what was asked for, from `in_index`; it
    comes first. `tenant`: what is there by itself. `forked_from`: the conversations that a fork shares its beginning
    with. Each conversation has one of these, if only to say that it is no fork: else, all that have none would have to
    be looked at to find forks that were started before the namespace had the attribute."""
    keywords = list(labels)
    if tenant and (label := search_keyword(TENANT, tenant)) not in keywords and fits_index([*keywords, label]):
        keywords.append(label)
    line = [search_keyword(FORK_OF, conversation_id) for conversation_id in forked_from or [""]]
    while line and fits_index([*keywords, line[0]]):
        keywords.append(line.pop(0))
    if line:
        keywords.append(MORE_FORKS_OF)
    return keywords


def fits_index(labels: list[str]) -> bool:
    """Whether Temporal takes these in one search attribute."""
    return len(json.dumps(labels)) <= MAX_KEYWORD_BYTES  # Temporal takes more: MORE_FORKS_OF still fits in
