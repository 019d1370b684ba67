"""The ids of tool calls, made here if a provider gives none or unusable ones, or takes only ids of a certain form."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Sequence
from hashlib import blake2b, sha256

from everturn.providers.encoded_messages import BranchedSet
from everturn.providers.transcript_facts import facts_of
from everturn.records import Message
from everturn.text.utf8 import mend

_USABLE = re.compile(r"[\w.:/-]{1,128}", re.ASCII)
"""Ids that may be in workflow state, activity ids and command lines. Some gateways pack kilobytes into theirs."""


def call_ids(
    given: Iterable[str], messages: Sequence[Message], *, response_id: str, hidden: Container[str] = frozenset()
) -> list[tuple[str, str | None]]:
    """For each id of a reply's calls, in order: a `call_id`, and a `provider_id` if that is different.

    Each call_id is new in the conversation, whose calls are in `messages` or have the `hidden` ids: those that a
    compacted transcript leaves out. It is the same each time the reply is read. An empty
    id means that none was given. If calls share an id, the first keeps it. An id that we make contains the response's
    own, if the provider gives one: otherwise a conversation that is started again under its old id would get
    the idempotency keys of the one before.
    """
    mark = ""
    if response_id:
        mark = f"_{blake2b(response_id.encode('utf-8', 'replace'), digest_size=4).hexdigest()}"
    facts = facts_of(messages)
    used = BranchedSet(facts.call_ids, hidden)
    seen: set[str] = set()
    ids: list[tuple[str, str | None]] = []
    for number, wanted in enumerate(map(mend, given)):
        call_id = wanted
        provider_id: str | None = None
        if wanted in used or not _USABLE.fullmatch(wanted):
            call_id = _new_id(f"call_{facts.replies}_{number}{mark}", used)
            if wanted and wanted not in seen:
                provider_id = wanted
        used.add(call_id)
        seen.add(wanted)
        ids.append((call_id, provider_id))
    return ids


def _new_id(wanted: str, used: BranchedSet) -> str:
    new = wanted
    tries = 1
    while new in used:
        tries += 1
        new = f"{wanted}_{tries}"
    return new


def matching_id(given: str, pattern: re.Pattern[str] | None, *, prefix: str = "", digits: int) -> str:
    """The id, if it has the form that a server asks for; else a digest of it, which has. `pattern` None: any form will
    do. The call and its result have the same one, in every request."""
    if pattern is None or pattern.fullmatch(given):
        return given
    return f"{prefix}{sha256(given.encode('utf-8', 'surrogatepass')).hexdigest()[:digits]}"
