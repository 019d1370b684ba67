"""Which JSON schemas OpenAI's strict mode takes. Others are sent as they are, with strict off.

Rewriting them, as some libraries do, would change their meaning: optional properties would become required.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from everturn.models import Model
from everturn.providers.base import ToolSpec, warn_unsupported
from everturn.validation.sub_schemas import declared_types

_REFUSED = frozenset(
    {
        *("oneOf", "allOf", "not", "if", "then", "else", "default", "prefixItems", "unevaluatedItems"),
        *("minLength", "maxLength", "uniqueItems", "contains", "minContains", "maxContains"),
        *("patternProperties", "propertyNames", "minProperties", "maxProperties", "unevaluatedProperties"),
        *("dependentRequired", "dependentSchemas"),
    }
)
_FORMATS = frozenset({"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"})
_LOOKAROUND = re.compile(r"\(\?<?[=!]")


def fits_strict(schema: Mapping[str, Any]) -> bool:
    """Whether OpenAI takes the schema with `strict: true`, as the root of a tool's arguments or of an output."""
    definitions = [*schema.get("$defs", {}).values(), *schema.get("definitions", {}).values()]
    root = {name: value for name, value in schema.items() if name not in ("$defs", "definitions")}
    is_object = root.get("type") == "object" and "anyOf" not in root
    return is_object and all(map(_node_fits, (root, *definitions)))


def only_fitting(model: Model, tool: ToolSpec, options: Mapping[str, Any]) -> dict[str, Any]:
    """A tool's options without `strict`, with a warning, if its schema does not fit."""
    if not options.get("strict") or fits_strict(tool.parameters):
        return dict(options)
    warn_unsupported(
        model,
        f"strict= of the tool {tool.name!r} with its schema",
        "The tool is sent without it. Strict mode takes no defaults and no optional arguments, for example.",
    )
    return {name: value for name, value in options.items() if name != "strict"}


def _node_fits(schema: Any) -> bool:
    if not isinstance(schema, Mapping) or _REFUSED & schema.keys():
        return False
    if "$ref" in schema:
        return len(schema) == 1
    if not schema.keys() & {"type", "anyOf", "enum", "const"}:
        return False
    if str(schema.get("format", "date")) not in _FORMATS or _LOOKAROUND.search(str(schema.get("pattern", ""))):
        return False
    kinds = declared_types(schema)
    properties = schema.get("properties", {})
    closed = schema.get("additionalProperties") is False and set(schema.get("required", ())) == set(properties)
    return (
        ("object" not in kinds or closed)
        and ("array" not in kinds or _node_fits(schema.get("items")))
        and all(map(_node_fits, properties.values()))
        and all(map(_node_fits, schema.get("anyOf", ())))
    )
