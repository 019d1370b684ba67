"""Whether a JSON schema's object may have more fields than it lists."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any


def takes_more(schema: Mapping[str, Any]) -> bool | None:
    """Whether `additionalProperties` lets more in; None if the schema does not say. `{}` and `true` mean the same, and
    so do `{"not": {}}` and `false`."""
    more = schema.get("additionalProperties")
    if more is None:
        return None
    return more is not False and more != {"not": {}}


def is_listed(name: str, schema: Mapping[str, Any]) -> bool:
    """Whether the field has a schema of its own: by its name, or by a pattern. A pattern that Python can't read counts
    as one that fits: whoever wrote the schema checks it, too."""
    if name in schema.get("properties", {}):
        return True
    for pattern in schema.get("patternProperties") or ():
        try:
            if re.search(pattern, name):
                return True
        except re.error:
            return True
    return False
