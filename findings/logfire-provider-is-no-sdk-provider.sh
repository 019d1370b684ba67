#!/usr/bin/env bash
# After logfire.configure(), the program's OpenTelemetry provider and its tracers are no instances of the SDK's classes.
#
# Software:  logfire 5.4.0, opentelemetry-sdk as it installs it (PyPI)
# Expected:  Logfire "is OpenTelemetry": trace.get_tracer_provider() gives opentelemetry.sdk.trace.TracerProvider
# Seen:      a ProxyTracerProvider of its own, that has the SDK's as `provider`, but neither its `id_generator` nor its
#            `sampler`; its tracers are no SDK tracers either, and have the SDK's as `tracer`. An attribute test or isinstance
#            fails; get_tracer, force_flush and add_span_processor work. OpenTelemetry's API has a class of the same name,
#            ProxyTracerProvider, which means the opposite: that the program has set no provider
# It matters to: libraries that need span ids of their own, or the sampler, and look whether a program traces
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check "logfire==5.4.0" || exit 2
"$folder/venv/bin/python" - <<'PY'
import logfire
from opentelemetry import trace
from opentelemetry.sdk.trace import Tracer, TracerProvider

logfire.configure(send_to_logfire=False, console=False)
provider = trace.get_tracer_provider()
tracer = provider.get_tracer("shop")
seen = {
    "provider": f"{type(provider).__module__}.{type(provider).__name__}",
    "is the SDK's provider": isinstance(provider, TracerProvider),
    "means that none is set": isinstance(provider, trace.ProxyTracerProvider),
    "lacks": [name for name in ("id_generator", "sampler") if not hasattr(provider, name)],
    "is the SDK's tracer": isinstance(tracer, Tracer),
    "has the SDK's as": [name for name, value in vars(tracer).items() if isinstance(value, Tracer)],
}
for name, value in seen.items():
    print(f"{name}: {value}")
assert seen == {
    "provider": "logfire._internal.tracer.ProxyTracerProvider",
    "is the SDK's provider": False,
    "means that none is set": False,
    "lacks": ["id_generator", "sampler"],
    "is the SDK's tracer": False,
    "has the SDK's as": ["tracer"],
}, f"it has changed: {seen}"
PY
# Output of 2026-11-27:
# provider: logfire._internal.tracer.ProxyTracerProvider
# is the SDK's provider: False
# means that none is set: False
# lacks: ['id_generator', 'sampler']
# is the SDK's tracer: False
# has the SDK's as: ['tracer']
