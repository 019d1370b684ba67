#!/usr/bin/env bash
# PYDANTIC READS 1e999 EVEN WHERE IT ALLOWS NO INFINITY, AND WRITES IT AS TWO THINGS: infinity or null, by the field's type.
#
# Software:  pydantic 2.14.3 with pydantic-core 2.50.4 (PyPI)
# Expected:  from_json(..., allow_inf_nan=False) refuses each text whose number is no finite one, as it refuses NaN and
#            Infinity; and one value is dumped as one thing, whatever the annotation of the dict that holds it
# Seen:      1e999, which is valid JSON, is read as inf. dump_python(mode="json") keeps it in a dict[str, float], and
#            makes None of it in a dict[str, Any], without a warning
# It matters to: who checks what a model or a client wrote: look for infinities after reading, and before dumping
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check "pydantic==2.14.3" || exit 2
"$folder/venv/bin/python" - <<'PY'
from typing import Any

from pydantic import TypeAdapter
from pydantic_core import from_json

text = b'{"cents": 1e999}'
read = from_json(text, allow_inf_nan=False)
dumped = {
    name: TypeAdapter(kind).dump_python(TypeAdapter(kind).validate_json(text), mode="json")
    for name, kind in (("dict[str, float]", dict[str, float]), ("dict[str, Any]", dict[str, Any]))
}
seen = f"read: {read}, dumped: {dumped}"
print(seen)
expected = "read: {'cents': inf}, dumped: {'dict[str, float]': {'cents': inf}, 'dict[str, Any]': {'cents': None}}"
assert seen == expected, f"it has changed: {seen!r}"
PY
# Output of 2026-11-27:
# read: {'cents': inf}, dumped: {'dict[str, float]': {'cents': inf}, 'dict[str, Any]': {'cents': None}}
