"""Warns of worker settings that cost conversations time, if they differ from those that everturn would set."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from inspect import signature
from typing import Any, Final

from temporalio.worker import Worker
from temporalio.workflow import NondeterminismError

DEFAULTS: Final = {name: parameter.default for name, parameter in signature(Worker).parameters.items()}
"""temporalio's defaults for a worker's settings. everturn sets some of these if the application does not."""

FEW_CACHED = 100
FEW_ACTIVITIES = 20
LONG_STICKY = timedelta(seconds=5)
OPEN_THROTTLE = timedelta(seconds=1.5)
SHORT_DRAIN = timedelta(seconds=10)


@dataclass(frozen=True)
class ConfigWarning:
    setting: str
    """As temporalio's Worker is given it."""
    what: str
    cure: str


def warnings_of(config: Mapping[str, Any]) -> Iterator[ConfigWarning]:
    """`config`: as the application makes its worker."""

    def given_setting(name: str) -> Any:
        """None if the application leaves it to others."""
        value = config.get(name)
        return None if value == DEFAULTS.get(name) else value

    def make_warning(name: str, what: str, cure: str) -> ConfigWarning:
        return ConfigWarning(f"{name}={config[name]}", what, cure)

    leave = "Leave it out: everturn then sets it."
    cached = given_setting("max_cached_workflows")
    if cached is not None and cached < FEW_CACHED:
        what = "a conversation that is evicted from the cache is replayed from its start at each step"
        yield make_warning(
            "max_cached_workflows", what, "It should be larger than the number of workflows that run at the same time."
        )
    sticky = given_setting("sticky_queue_schedule_to_start_timeout")
    if sticky is not None and sticky > LONG_STICKY:
        what = f"after a worker is lost, a conversation's next step waits {sticky.total_seconds():g} s for it"
        yield make_warning("sticky_queue_schedule_to_start_timeout", what, leave)
    throttle = given_setting("max_heartbeat_throttle_interval")
    if throttle is not None and throttle > OPEN_THROTTLE:
        what = "streamed text and cancellations take up to 4 s"
        yield make_warning(
            "max_heartbeat_throttle_interval", what, f"{leave} Your own activities' heartbeats stay as they are."
        )
    drain = given_setting("graceful_shutdown_timeout")
    if drain is not None and drain < SHORT_DRAIN:
        what = "a model turn that takes longer than this when the worker stops is asked and paid again"
        yield make_warning("graceful_shutdown_timeout", what, leave)
    activities = given_setting("max_concurrent_activities")
    if activities is not None and activities < FEW_ACTIVITIES:
        what = "this is how many model turns, tool calls and activities of yours run at the same time; the others wait"
        yield make_warning("max_concurrent_activities", what, leave)
    for name in ("max_activities_per_second", "max_task_queue_activities_per_second"):
        if given_setting(name) is not None:
            what = "model turns and tool calls count, too, so they wait for each other and for your own activities"
            yield make_warning(name, what, "A turn uses one, and each of its tool calls one more.")
    yield from _switch_warnings(config)


def _switch_warnings(config: Mapping[str, Any]) -> Iterator[ConfigWarning]:
    if config.get("disable_eager_activity_execution"):
        yield ConfigWarning(
            "disable_eager_activity_execution=True",
            "each model turn goes through the server's queue, and often to a worker that has to read the transcript",
            "Leave it out, if nothing else needs it.",
        )
    if config.get("no_remote_activities"):
        yield ConfigWarning(
            "no_remote_activities=True",
            "this worker runs no model turn and no tool: conversations wait for one that does",
            "Leave it out, or have another worker of the task queue host the agents.",
        )
    failures = config.get("workflow_failure_exception_types", ())
    if any(issubclass(NondeterminismError, exception_type) for exception_type in failures):
        yield ConfigWarning(
            f"workflow_failure_exception_types={[exception_type.__name__ for exception_type in failures]}",
            "code that a conversation can't be replayed with ends it, instead of waiting for fixed code",
            "Set it in @workflow.defn(failure_exception_types=...) of your own workflows.",
        )
