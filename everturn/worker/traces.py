"""Traces: whether and how a worker reports by OpenTelemetry what its conversations do (decision 0018)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from everturn.errors import InvalidSetting
from everturn.settings import Settings
from everturn.validation import durations
from everturn.validation.spelling import known_fields

if TYPE_CHECKING:
    from opentelemetry._logs import LoggerProvider
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider


@known_fields(InvalidSetting)
@dataclass(frozen=True, kw_only=True)
class Traces:
    """How a worker traces its conversations: `Worker(client, agents=[...], traces=Traces(content=True))`.

    - `provider`: OpenTelemetry's TracerProvider, of its SDK. None: the program's own, if it has set one; else one that
      exports by OTLP over HTTP, and is set up by OpenTelemetry's own variables (OTEL_EXPORTER_OTLP_ENDPOINT,
      OTEL_SERVICE_NAME, OTEL_TRACES_SAMPLER ...).
    - `meter_provider`: where the metrics gen_ai.client.token.usage and gen_ai.client.operation.duration go. None: the
      same as for `provider`.
    - `logger_provider`: where gen_ai.evaluation.result goes, the results of the worker's evaluators. None: the same as
      for `provider`.
    - `content`: messages, and arguments and results of tools, are attributes, too. This text then leaves Temporal,
      and no codec encrypts it.
    - `export_within`: how long the end of a turn or call waits until its spans are exported, so that a worker that is
      killed right after it has exported them. Zero: it does not wait.

    Raises InvalidSetting.
    """

    provider: TracerProvider | None = None
    meter_provider: MeterProvider | None = None
    logger_provider: LoggerProvider | None = None
    content: bool = False
    export_within: timedelta = timedelta(seconds=1)

    def __post_init__(self) -> None:
        if cure := durations.problem_of(self.export_within, may_be_zero=True):
            raise InvalidSetting(f"Traces was given export_within={self.export_within!r}.", cure=cure)


def traces_of(given: Traces | bool | None, settings: Settings) -> Traces | None:
    """What was given; else what EVERTURN_TRACES says. None if there are to be no traces. Raises InvalidSetting."""
    if given is None and settings.traces:
        return Traces(content=settings.traces == "content")
    if given is None or isinstance(given, bool):
        return Traces() if given else None
    if isinstance(given, Traces):
        return given
    raise InvalidSetting(
        f"A worker was given traces={given!r}.", cure="Give True, or Traces(provider=..., content=True)."
    )
